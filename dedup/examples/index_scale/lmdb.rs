//! The same fingerprints in an LMDB B-tree, committed as often as the index flushes.

use crate::{Arguments, Failure, Figures, fingerprint, per_second, progress_bar, resident_bytes};
use heed::types::Bytes;
use heed::{Database, EnvOpenOptions};
use std::time::Instant;
use tombolo_base::Prng;
use tombolo_dedup::Config;

/// Room for half-full pages of 40-byte entries, and more.
const MAP_BYTES_PER_ENTRY: u64 = 200;

pub fn measure(arguments: &Arguments) -> Result<Figures, Failure> {
    let map_bytes = (arguments.entries * MAP_BYTES_PER_ENTRY).next_multiple_of(1 << 20) + (16 << 20);
    // SAFETY: the directory was empty a moment ago and belongs to this run alone.
    let environment = unsafe {
        EnvOpenOptions::new()
            .map_size(map_bytes as usize)
            .open(&arguments.directory)?
    };
    let mut transaction = environment.write_txn()?;
    let database: Database<Bytes, Bytes> = environment.create_database(&mut transaction, None)?;
    transaction.commit()?;
    let mut figures = Figures::new();
    let bar = progress_bar(arguments, arguments.entries, "insert");
    let started = Instant::now();
    let mut next = 0;
    while next < arguments.entries {
        let until = (next + Config::default().memtable_entries_max as u64).min(arguments.entries);
        let mut transaction = environment.write_txn()?;
        for number in next..until {
            let key = fingerprint(arguments.seed, number);
            database.put(&mut transaction, &key.0, &number.to_le_bytes())?;
        }
        transaction.commit()?;
        next = until;
        bar.set_position(next);
    }
    bar.finish_and_clear();
    figures.insert("entries".into(), arguments.entries.into());
    figures.insert("inserts_per_s".into(), per_second(arguments.entries, started.elapsed()));
    figures.insert("index_bytes_on_disk".into(), environment.real_disk_size()?.into());
    figures.insert("written_bytes_to_disk".into(), written_bytes()?.into());
    let (resident, peak) = resident_bytes()?;
    figures.insert("rss_bytes".into(), resident.into());
    figures.insert("rss_peak_bytes".into(), peak.into());
    let transaction = environment.read_txn()?;
    for (name, first, span) in [
        ("absent", arguments.entries, arguments.entries << 8),
        ("present", 0, arguments.entries),
    ] {
        let mut prng = Prng::new(arguments.seed);
        let started = Instant::now();
        for _ in 0..arguments.lookups {
            let number = first + prng.below(span.max(1));
            let found = database.get(&transaction, &fingerprint(arguments.seed, number).0)?;
            if found.is_some() != (number < arguments.entries) {
                return Err(format!("fingerprint {number}: wrong answer").into());
            }
        }
        figures.insert(
            format!("{name}_lookups_per_s"),
            per_second(arguments.lookups, started.elapsed()),
        );
    }
    Ok(figures)
}

/// Bytes that this process has caused to be written to the disk.
fn written_bytes() -> Result<u64, Failure> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io
        .lines()
        .find(|line| line.starts_with("write_bytes:"))
        .ok_or("no write_bytes in io")?;
    Ok(line.split_whitespace().nth(1).ok_or("no figure in io")?.parse()?)
}
