//! The storage of the file service over a whole gateway with a directory for a cloud.

use super::*;
use crate::runtime::{OpenError, Options};
use crate::settings::Settings;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tombolo_base::{EntryChange, FlushMode};
use tombolo_files::storage::Storage;

fn options(directory: &Path) -> Options {
    let text = format!(
        "state_directory = \"{0}/state\"\nruntime_directory = \"{0}/run\"\n\
         [store]\nurl = \"dir:{0}/store\"\n[cache]\nsize = \"64MiB\"\n[flush]\nflush_delay_ms = 3600000\n",
        directory.display()
    );
    let settings = Settings::parse(&text).expect("the settings are right");
    crate::daemon::options(&settings).expect("the options are right")
}

/// The last thread of an earlier gateway may still hold the state directory's lock.
fn open(directory: &Path) -> FileStorage {
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        match Gateway::open(options(directory)) {
            Ok(gateway) => return tombolo_file_storage::FileStorage(GatewayAccess(gateway)),
            Err(OpenError::InUse { .. }) if Instant::now() < patience => std::thread::sleep(Duration::from_millis(2)),
            Err(error) => panic!("the gateway does not open: {error}"),
        }
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < patience, "{what} took too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn checkpoint(storage: &FileStorage) {
    until("a checkpoint", || {
        storage.0.0.submit(Event::CheckpointNow);
        storage.0.0.core().is_checkpointed()
    });
}

fn drain(storage: &FileStorage) {
    storage.0.0.drain();
    until("a drain", || storage.0.0.core().is_drained());
}

/// Ends without a last checkpoint, so that the journal is replayed.
fn reopen(storage: FileStorage, directory: &Path) -> FileStorage {
    storage.0.0.stop(Duration::ZERO);
    drop(storage);
    open(directory)
}

fn pattern(blocks: u64, seed: u8) -> Vec<u8> {
    (0..blocks * BLOCK_BYTES as u64)
        .map(|index| (index / 7) as u8 ^ (index >> 12) as u8 ^ seed)
        .collect()
}

fn put(storage: &FileStorage, inode: u64, first: u64, data: &[u8], entries: Vec<EntryChange>) {
    let sums = BlockSum::of_blocks(data);
    let span = Span::of_file(inode, first, sums.len() as u64);
    let change = MetadataChange {
        entries,
        holes: Vec::new(),
    };
    storage
        .write(span, data.to_vec().into(), sums, change)
        .expect("a write");
}

fn span(inode: u64, first: u64, count: u64) -> Span {
    Span::of_file(inode, first, count)
}

#[test]
fn the_generation_goes_on_with_a_start_that_lost_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut storage = open(directory.path());
    let first = storage.0.0.generation.number();
    assert!(storage.0.0.generation.is_new());
    storage.0.0.generation.settle();
    for name in ["one", "two", "three"] {
        let create = |token| Event::VolumeCreate {
            token,
            name: name.into(),
            blocks: 16,
            flush: FlushMode::Local,
        };
        storage.0.0.ask(create).unwrap();
        storage = reopen(storage, directory.path());
        assert_eq!(storage.0.0.generation.number(), first);
    }
}

#[test]
fn data_and_its_entries_come_back_together() {
    let directory = tempfile::tempdir().unwrap();
    let mut storage = open(directory.path());
    let data = pattern(5, 1);
    let size = EntryChange::Put {
        key: b"D1".to_vec(),
        value: b"size".to_vec(),
    };
    put(&storage, 1, 3, &data, vec![size]);
    for _ in 0..2 {
        assert_eq!(storage.get(b"D1").unwrap().as_deref(), Some(b"size".as_slice()));
        assert_eq!(storage.0.read_blocks(span(1, 3, 5)).unwrap(), data);
        let runs = storage.map(span(1, 0, 10)).unwrap();
        let runs: Vec<(u64, bool)> = runs.iter().map(|run| (run.count, run.mapped)).collect();
        assert_eq!(runs, [(3, false), (5, true), (2, false)]);
        storage = reopen(storage, directory.path());
    }
}

#[test]
fn links_share_blocks_clean_dirty_and_missing() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let stored = pattern(4, 1);
    put(&storage, 1, 0, &stored, Vec::new());
    drain(&storage);
    let unique = storage.0.0.snapshot().totals.blocks_unique;
    let dirty = pattern(2, 99);
    put(&storage, 1, 6, &dirty, Vec::new());
    storage
        .link(span(1, 0, 8), span(2, 100, 8), MetadataChange::default())
        .unwrap();
    let whole = [stored.clone(), vec![0; 2 * BLOCK_BYTES], dirty].concat();
    assert_eq!(storage.0.read_blocks(span(2, 100, 8)).unwrap(), whole);
    // The source goes its own way.
    let holes = vec![span(1, 0, 8)];
    let entries = Vec::new();
    storage.commit(MetadataChange { entries, holes }).unwrap();
    assert_eq!(storage.0.read_blocks(span(2, 100, 8)).unwrap(), whole);
    drain(&storage);
    checkpoint(&storage);
    let storage = reopen(storage, directory.path());
    assert_eq!(storage.0.read_blocks(span(2, 100, 8)).unwrap(), whole);
    assert_eq!(
        storage.0.0.snapshot().totals.blocks_unique,
        unique + 2,
        "nothing is uploaded twice"
    );
    assert_eq!(storage.next_mapped(0).unwrap(), Some(2));
    assert_eq!(storage.next_mapped(3).unwrap(), None);
}

#[test]
fn copies_that_nothing_can_ask_for_leave_the_cache_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let clean = || {
        drain(&storage);
        storage.0.0.snapshot().slots_clean
    };
    let cut = |holes| {
        let entries = Vec::new();
        storage.commit(MetadataChange { entries, holes }).unwrap();
    };
    put(&storage, 1, 0, &pattern(8, 1), Vec::new());
    until("clean slots", || clean() == 8);
    // Overwritten; punched; read all the same.
    put(&storage, 1, 0, &pattern(2, 2), Vec::new());
    cut(vec![span(1, 2, 1)]);
    assert_eq!(storage.0.0.snapshot().slots_clean, 5);
    until("clean slots", || clean() == 7);
    // The same contents again, and a link: the copy is needed by either.
    put(&storage, 2, 0, &pattern(1, 2), Vec::new());
    storage
        .link(span(1, 3, 1), span(3, 0, 1), MetadataChange::default())
        .unwrap();
    until("clean slots", || clean() == 7);
    cut(vec![span(1, 0, 1), span(1, 3, 1)]);
    assert_eq!(storage.0.0.snapshot().slots_clean, 7);
    let fetches = storage.0.0.snapshot().counters.fetches;
    assert_eq!(storage.0.read_blocks(span(2, 0, 1)).unwrap(), pattern(1, 2));
    assert_eq!(
        storage.0.read_blocks(span(3, 0, 1)).unwrap(),
        pattern(8, 1)[3 * BLOCK_BYTES..4 * BLOCK_BYTES]
    );
    assert_eq!(storage.0.0.snapshot().counters.fetches, fetches);
}

#[test]
fn a_vast_empty_map_is_looked_through_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let last = (1 << 36) - 1;
    let whole = span(1, 0, last + 1);
    put(&storage, 1, 7, &pattern(1, 1), Vec::new());
    put(&storage, 1, last, &pattern(1, 2), Vec::new());
    let runs = |storage: &FileStorage| -> Vec<(u64, bool)> {
        let runs = storage.map(whole).unwrap();
        runs.iter().map(|run| (run.count, run.mapped)).collect()
    };
    let expected = [(7, false), (1, true), (last - 8, false), (1, true)];
    assert_eq!(runs(&storage), expected);
    checkpoint(&storage);
    assert_eq!(runs(&storage), expected);
    let (entries, holes) = (Vec::new(), vec![whole]);
    storage.commit(MetadataChange { entries, holes }).unwrap();
    assert_eq!(runs(&storage), [(last + 1, false)]);
    assert_eq!(storage.next_mapped(0).unwrap(), None);
}

#[test]
fn stored_pages_under_newer_holes_do_not_count_as_mapped() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    put(&storage, 1, 0, &pattern(2, 1), Vec::new());
    put(&storage, 1, 4096, &pattern(2, 2), Vec::new());
    checkpoint(&storage);
    // Nothing of the map is in memory now.
    let storage = reopen(storage, directory.path());
    let (entries, holes) = (Vec::new(), vec![span(1, 0, 2)]);
    storage.commit(MetadataChange { entries, holes }).unwrap();
    assert_eq!(storage.next_mapped(0).unwrap(), Some(1));
    let (entries, holes) = (Vec::new(), vec![span(1, 4096, 2)]);
    storage.commit(MetadataChange { entries, holes }).unwrap();
    assert_eq!(storage.next_mapped(0).unwrap(), None);
}

#[test]
fn a_counter_adds_up_across_checkpoints_and_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let mut storage = open(directory.path());
    let add = |storage: &FileStorage, amount| {
        let key = b"Ucount".to_vec();
        let entries = vec![EntryChange::Add { key, amount }];
        let holes = Vec::new();
        storage.commit(MetadataChange { entries, holes }).unwrap();
    };
    add(&storage, 5);
    checkpoint(&storage);
    add(&storage, -2);
    assert_eq!(storage.counter(b"Ucount"), Ok(3));
    storage = reopen(storage, directory.path());
    assert_eq!(storage.counter(b"Ucount"), Ok(3));
    add(&storage, -3);
    checkpoint(&storage);
    storage = reopen(storage, directory.path());
    assert_eq!(storage.counter(b"Ucount"), Ok(0));
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Checkpoint,
    Scan(u8, u8, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0u8..24, any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        3 => (0u8..24).prop_map(Step::Delete),
        1 => Just(Step::Checkpoint),
        4 => (0u8..24, 0u8..26, 1usize..8).prop_map(|(from, end, limit)| Step::Scan(from, end, limit)),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn scans_merge_memory_and_metadata(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        let storage = open(directory.path());
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let commit = |entry| storage.commit(MetadataChange { entries: vec![entry], holes: Vec::new() });
        for step in steps {
            match step {
                Step::Put(key, value) => {
                    model.insert(vec![key], vec![value]);
                    commit(EntryChange::Put { key: vec![key], value: vec![value] }).unwrap();
                }
                Step::Delete(key) => {
                    model.remove(&vec![key]);
                    commit(EntryChange::Delete { key: vec![key] }).unwrap();
                }
                Step::Checkpoint => checkpoint(&storage),
                Step::Scan(from, end, limit) => {
                    let expected: Vec<_> = match from < end {
                        true => model.range(vec![from]..vec![end]).take(limit).collect(),
                        false => Vec::new(),
                    };
                    let found = storage.scan(&[from], &[end], limit).unwrap();
                    let found: Vec<_> = found.iter().map(|(key, value)| (key.clone(), value.to_vec())).collect();
                    let found: Vec<_> = found.iter().map(|(key, value)| (key, value)).collect();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}

#[test]
fn what_files_ask_for_is_recorded() {
    use tombolo_trace::Operation::{Discard, Read, Write};
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let path = directory.path().join("trace");
    storage.0.0.recorder().start(&path, 1 << 20).unwrap();
    put(&storage, 5, 3, &pattern(2, 1), Vec::new());
    storage.0.read_blocks(span(5, 3, 2)).unwrap();
    let holes = vec![span(5, 4, 1)];
    let entries = Vec::new();
    storage.commit(MetadataChange { entries, holes }).unwrap();
    let status = storage.0.0.recorder().stop();
    assert_eq!((status.records, status.dropped), (3, 0));
    let mut reader = tombolo_trace::open(&tombolo_trace::Source::of(&path)).unwrap();
    let mut record = tombolo_trace::Record::default();
    let mut found = Vec::new();
    while reader.next(&mut record).unwrap() {
        assert_eq!(record.volume, VolumeId::of_inode(5).0);
        found.push((record.operation, record.first, record.count, record.contents.len()));
    }
    assert_eq!(found, [(Write, 3, 2, 2), (Read, 3, 2, 0), (Discard, 4, 1, 0)]);
}

/// Nanoseconds on a processor: of this thread, and of the process.
fn cpu_nanoseconds() -> [i64; 2] {
    [libc::CLOCK_THREAD_CPUTIME_ID, libc::CLOCK_PROCESS_CPUTIME_ID].map(|clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a timespec that outlives the call.
        assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    })
}

/// Not a test but a measurement: cached reads and writes of 4 KiB with and without a recording, in turns that alternate
/// in which comes first. By processor time, which a busy machine disturbs less than the clock: of the thread that asks,
/// which is what a request takes longer, and of the whole daemon, which includes the thread that writes the trace, and the
/// beginning and the end of the recording.
/// `cargo test --release -p tombolo the_cost_of_recording -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn the_cost_of_recording() {
    // Fewer than the recorder's queue holds: nothing is dropped, however late the thread that writes is.
    const REQUESTS: u64 = 16_000;
    const TURNS: usize = 101;
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let data = pattern(1, 1);
    (0..256).for_each(|block| put(&storage, 1, block, &data, Vec::new()));
    let round = |writes: bool, path: Option<&Path>| {
        let [_, before] = cpu_nanoseconds();
        if let Some(path) = path {
            storage.0.0.recorder().start(path, 1 << 30).unwrap();
        }
        let [begun, _] = cpu_nanoseconds();
        for request in 0..REQUESTS {
            match writes {
                true => put(&storage, 1, request % 256, &data, Vec::new()),
                false => drop(storage.0.read_blocks(span(1, request % 256, 1)).unwrap()),
            }
        }
        let [ended, _] = cpu_nanoseconds();
        // The thread that writes the trace ends here, so that all its work is counted.
        let dropped = path.map_or(0, |_| storage.0.0.recorder().stop().dropped);
        let [_, after] = cpu_nanoseconds();
        assert_eq!(dropped, 0, "the queue holds all of them");
        [(ended - begun) as f64, (after - before) as f64]
    };
    for writes in [false, true] {
        let mut ratios = [Vec::new(), Vec::new()];
        for turn in 0..TURNS {
            let path = directory.path().join(format!("trace-{writes}-{turn}"));
            let (plain, recorded) = if turn % 2 == 0 {
                (round(writes, None), round(writes, Some(&path)))
            } else {
                let recorded = round(writes, Some(&path));
                (round(writes, None), recorded)
            };
            (0..2).for_each(|which| ratios[which].push(recorded[which] / plain[which]));
        }
        let operation = if writes { "writes" } else { "reads" };
        for (ratios, whose) in ratios.iter_mut().zip(["thread that asks", "daemon"]) {
            ratios.sort_by(f64::total_cmp);
            let [low, median, high] = [TURNS / 4, TURNS / 2, TURNS * 3 / 4].map(|at| ratios[at]);
            println!("{operation}, CPU time of the {whose}, with / without: {median:.3} ({low:.3}-{high:.3})");
        }
    }
}
