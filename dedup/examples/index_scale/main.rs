//! Measures the fingerprint index at scale on real files: inserts with flushes and merges as a gateway would run
//! them (merges on a second thread), then lookups of absent and of present fingerprints.
//!
//! ```text
//! cargo run --release -p tombolo-dedup --example index_scale -- 10000000 --directory /var/tmp/index --json
//! ```
//! `--lmdb` fills an LMDB database with the same fingerprints instead. The directory must be absent or empty; what
//! was written is deleted at the end.

mod files;
mod lmdb;

use clap::Parser;
use files::FileStorage;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tombolo_base::{Fingerprint, Prng, Pvbn};
use tombolo_dedup::{Config, Index, InsertError, Manifest, OnBadRun};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Input pages that a merge goes through between looks at the stop flag.
const MERGE_STEP_PAGES: u64 = 4096;
/// Inserts under one lock: one pack.
const BATCH_ENTRIES: u64 = 64;

#[derive(Parser)]
#[command(about = "Measure the fingerprint index at scale")]
pub struct Arguments {
    /// Fingerprints to insert.
    entries: u64,
    /// Where to write; absent or empty.
    #[arg(long)]
    directory: PathBuf,
    /// Memory for all filters.
    #[arg(long, default_value_t = 256)]
    filter_mib: u64,
    /// Lookups of each kind.
    #[arg(long, default_value_t = 500_000)]
    lookups: u64,
    /// Lookups of present fingerprints past the page cache.
    #[arg(long, default_value_t = 50_000)]
    direct_lookups: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure LMDB with the same fingerprints instead.
    #[arg(long)]
    lmdb: bool,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// The `number`-th fingerprint of a run: uniform, and the same for every run with this seed.
pub fn fingerprint(seed: u64, number: u64) -> Fingerprint {
    let mut bytes = [0; 32];
    Prng::new(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93)).fill(&mut bytes);
    Fingerprint(bytes)
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.directory)?;
    if std::fs::read_dir(&arguments.directory)?.next().is_some() {
        return Err(format!("{} is not empty", arguments.directory.display()).into());
    }
    let figures = if arguments.lmdb {
        lmdb::measure(&arguments)?
    } else {
        measure(&arguments)?
    };
    std::fs::remove_dir_all(&arguments.directory)?;
    if arguments.json {
        println!("{}", serde_json::Value::Object(figures));
    } else {
        for (name, value) in figures {
            println!("{name:32} {value}");
        }
    }
    Ok(())
}

pub type Figures = serde_json::Map<String, serde_json::Value>;

pub fn progress_bar(arguments: &Arguments, count: u64, what: &'static str) -> ProgressBar {
    if arguments.json {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}");
    let bar = ProgressBar::new(count).with_message(what);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Resident and peak resident bytes of this process.
pub fn resident_bytes() -> Result<(u64, u64), Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> Result<u64, Failure> {
        let line = status
            .lines()
            .find(|line| line.starts_with(name))
            .ok_or("no such line in status")?;
        let kibibytes = line.split_whitespace().nth(1).ok_or("no figure in status")?;
        Ok(kibibytes.parse::<u64>()? << 10)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

/// What the inserting and the merging thread share.
struct World {
    index: Mutex<Index>,
    storage: FileStorage,
    inserting: AtomicBool,
}

impl World {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a checkpoint does, with a manifest that is durable at once.
    fn checkpoint(&self) -> Result<(), Failure> {
        let flush = self.index().freeze();
        if let Some(flush) = flush {
            let flushed = flush.write(&self.storage)?;
            self.index().adopt_flush(flushed)?;
        }
        self.delete_obsolete()
    }

    fn has_too_many_runs(&self) -> bool {
        let index = self.index();
        index.run_count() > 2 * index.config().runs_max
    }

    fn delete_obsolete(&self) -> Result<(), Failure> {
        let obsolete = {
            let mut index = self.index();
            let manifest = index.manifest();
            index.manifest_is_durable(&manifest);
            index.obsolete_runs()
        };
        for run in obsolete {
            tombolo_dedup::RunStorage::delete(&self.storage, run)?;
        }
        Ok(())
    }

    /// Merges until the inserts are over and nothing is left to merge.
    fn merge_all(&self) -> Result<(), Failure> {
        loop {
            let inserting = self.inserting.load(Ordering::Acquire);
            let merge = {
                let mut index = self.index();
                index.plan_compaction().and_then(|plan| index.start_merge(&plan))
            };
            match merge {
                Some(merge) => self.merge(merge)?,
                None if inserting => std::thread::sleep(Duration::from_millis(2)),
                None => return Ok(()),
            }
        }
    }

    fn merge(&self, mut merge: tombolo_dedup::Merge) -> Result<(), Failure> {
        let merged = loop {
            if let Some(merged) = merge.step(&self.storage, MERGE_STEP_PAGES)? {
                break merged;
            }
        };
        drop(merge);
        self.index().adopt_merge(merged)?;
        while let Some(load) = self.next_filter_load() {
            let filter = load.read(&self.storage)?;
            self.index().install_filter(filter);
        }
        self.delete_obsolete()
    }

    /// A call of its own, so that the lock is not held while the filter is read.
    fn next_filter_load(&self) -> Option<tombolo_dedup::FilterLoad> {
        self.index().next_filter_load()
    }
}

fn measure(arguments: &Arguments) -> Result<Figures, Failure> {
    let config = Config {
        filter_bytes_max: arguments.filter_mib << 20,
        ..Config::default()
    };
    let storage = FileStorage::new(&arguments.directory);
    let (index, _) = Index::open(&storage, &Manifest::default(), config.clone(), OnBadRun::Refuse)?;
    let world = World {
        index: Mutex::new(index),
        storage,
        inserting: AtomicBool::new(true),
    };
    let mut figures = Figures::new();
    insert(arguments, &world, &mut figures)?;
    let manifest = world.index().manifest();
    let memory = world.index().memory_use();
    figures.insert("runs".into(), world.index().run_count().into());
    figures.insert("index_bytes_on_disk".into(), world.storage.bytes_on_disk()?.into());
    figures.insert("memory_bytes".into(), memory.total_bytes().into());
    figures.insert("memory_filter_bytes".into(), memory.filter_bytes.into());
    figures.insert("memory_fence_bytes".into(), memory.fence_bytes.into());
    let (resident, peak) = resident_bytes()?;
    figures.insert("rss_bytes".into(), resident.into());
    figures.insert("rss_peak_bytes".into(), peak.into());
    look_up(arguments, &world, &mut figures)?;
    let started = Instant::now();
    let (reopened, _) = Index::open(&world.storage, &manifest, config, OnBadRun::Refuse)?;
    figures.insert("open_ms".into(), (started.elapsed().as_millis() as u64).into());
    if reopened.run_entry_count() != arguments.entries {
        return Err(format!("reopened with {} entries", reopened.run_entry_count()).into());
    }
    Ok(figures)
}

fn insert(arguments: &Arguments, world: &World, figures: &mut Figures) -> Result<(), Failure> {
    let bar = progress_bar(arguments, arguments.entries, "insert");
    let started = Instant::now();
    let inserted = std::thread::scope(|scope| {
        let merges = scope.spawn(|| world.merge_all());
        let inserts = insert_all(arguments, world, &bar);
        world.inserting.store(false, Ordering::Release);
        let inserted = started.elapsed();
        merges.join().map_err(|_| "the merging thread panicked")??;
        inserts.map(|()| inserted)
    })?;
    bar.finish_and_clear();
    let merged = started.elapsed();
    let written = world.storage.written_bytes();
    figures.insert("entries".into(), arguments.entries.into());
    figures.insert("inserts_per_s".into(), per_second(arguments.entries, inserted));
    figures.insert("inserts_merged_per_s".into(), per_second(arguments.entries, merged));
    figures.insert("written_bytes".into(), written.into());
    let permille = written * 1000 / (arguments.entries.max(1) * 40);
    figures.insert("write_amplification".into(), (permille as f64 / 1000.0).into());
    Ok(())
}

fn insert_all(arguments: &Arguments, world: &World, bar: &ProgressBar) -> Result<(), Failure> {
    let mut next = 0;
    while next < arguments.entries {
        let until = (next + BATCH_ENTRIES).min(arguments.entries);
        // A statement of its own, or the lock would be held through the match.
        let outcome = insert_batch(&mut world.index(), arguments.seed, next, until);
        match outcome {
            Ok(()) => next = until,
            Err((reached, InsertError::MemtableFull { .. })) => {
                next = reached;
                bar.set_position(next);
                world.checkpoint()?;
                // As a gateway would: slow the writers rather than let the merges fall behind for good.
                while world.has_too_many_runs() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            Err((_, error)) => return Err(error.into()),
        }
    }
    world.checkpoint()
}

fn insert_batch(index: &mut Index, seed: u64, from: u64, until: u64) -> Result<(), (u64, InsertError)> {
    for number in from..until {
        index
            .insert(fingerprint(seed, number), Pvbn(number))
            .map_err(|error| (number, error))?;
    }
    Ok(())
}

fn look_up(arguments: &Arguments, world: &World, figures: &mut Figures) -> Result<(), Failure> {
    let absent = |prng: &mut Prng| arguments.entries + prng.below(arguments.entries.max(1) << 8);
    let present = |prng: &mut Prng| prng.below(arguments.entries);
    let mut pass = |name: &str, count: u64, choose: &dyn Fn(&mut Prng) -> u64| -> Result<(), Failure> {
        let bar = progress_bar(arguments, count, "look up");
        let reads_before = world.storage.read_count();
        let mut prng = Prng::new(arguments.seed);
        let started = Instant::now();
        for done in 0..count {
            let number = choose(&mut prng);
            let probe = world.index().probe(&fingerprint(arguments.seed, number));
            let expected = (number < arguments.entries).then_some(Pvbn(number));
            if probe.resolve(&world.storage)? != expected {
                return Err(format!("fingerprint {number}: wrong answer").into());
            }
            if done % 10_000 == 0 {
                bar.set_position(done);
            }
        }
        let elapsed = started.elapsed();
        bar.finish_and_clear();
        let reads = world.storage.read_count() - reads_before;
        figures.insert(format!("{name}_lookups_per_s"), per_second(count, elapsed));
        figures.insert(
            format!("{name}_page_reads_per_lookup"),
            (reads as f64 / count.max(1) as f64).into(),
        );
        Ok(())
    };
    pass("absent", arguments.lookups, &absent)?;
    pass("present", arguments.lookups, &present)?;
    world.storage.bypass_page_cache()?;
    pass("present_direct", arguments.direct_lookups, &present)
}

pub fn per_second(count: u64, elapsed: Duration) -> serde_json::Value {
    ((count as f64 / elapsed.as_secs_f64().max(1e-9)) as u64).into()
}
