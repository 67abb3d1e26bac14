//! What callers rely on, one behaviour per test.

use crate::support::{BOTH, MemoryStorage};
use tombolo_base::{Fingerprint, Prng, Pvbn};
use tombolo_dedup::{
    Config, Index, IndexError, InsertError, Manifest, OlderRuns, OnBadRun, RunFault, RunPart, RunStorage, Scan,
};

fn key(number: u64) -> Fingerprint {
    let mut bytes = [0; 32];
    Prng::new(number << 20).fill(&mut bytes);
    Fingerprint(bytes)
}

fn open(storage: &MemoryStorage, manifest: &Manifest, config: Config) -> Index {
    Index::open(storage, manifest, config, OnBadRun::Refuse)
        .expect("it opens")
        .0
}

fn insert(index: &mut Index, numbers: std::ops::Range<u64>) {
    for number in numbers {
        index.insert(key(number), Pvbn(number)).expect("room for it");
    }
}

fn flush(index: &mut Index, storage: &MemoryStorage) -> Manifest {
    index.flush_memtable(storage).expect("a healthy storage")
}

fn load_filters(index: &mut Index, storage: &MemoryStorage) {
    while let Some(load) = index.next_filter_load() {
        let filter = load.read(storage).expect("a healthy storage");
        index.install_filter(filter);
        let memory = index.memory_use();
        assert!(memory.filter_bytes <= index.config().filter_bytes_max, "{memory:?}");
    }
}

fn merge_all(index: &mut Index, storage: &MemoryStorage) {
    while let Some(plan) = index.plan_compaction() {
        let mut merge = index.start_merge(&plan).expect("the plan is fresh");
        let merged = loop {
            if let Some(merged) = merge.step(storage, 3).expect("a healthy storage") {
                break merged;
            }
        };
        index.adopt_merge(merged).expect("it is expected");
        load_filters(index, storage);
    }
}

/// Reads per lookup, in permille, over `count` keys from `first` on.
fn reads_permille(index: &Index, storage: &MemoryStorage, first: u64, count: u64, present: bool) -> u64 {
    let before = storage.page_reads();
    for number in first..first + count {
        let found = index.lookup(storage, &key(number)).expect("a healthy storage");
        assert_eq!(found, present.then_some(Pvbn(number)));
    }
    (storage.page_reads() - before) * 1000 / count
}

#[test]
fn one_read_for_a_present_and_hardly_any_for_an_absent_fingerprint() {
    let storage = MemoryStorage::default();
    let mut index = open(&storage, &Manifest::default(), Config::default());
    insert(&mut index, 0..50_000);
    flush(&mut index, &storage);
    assert_eq!(reads_permille(&index, &storage, 0, 20_000, true), 1000);
    assert!(reads_permille(&index, &storage, 1_000_000, 20_000, false) < 8);
}

#[test]
fn little_memory_costs_reads_but_no_answers() {
    let storage = MemoryStorage::default();
    let starved = Config {
        filter_bytes_max: 32 << 10,
        fence_bytes_max: 100,
        ..Config::default()
    };
    let mut index = open(&storage, &Manifest::default(), starved);
    insert(&mut index, 0..50_000);
    flush(&mut index, &storage);
    let memory = index.memory_use();
    assert!(
        memory.filter_bytes <= 32 << 10 && memory.fence_bytes <= 100,
        "{memory:?}"
    );
    let present = reads_permille(&index, &storage, 0, 20_000, true);
    assert!((1000..4000).contains(&present), "{present} reads in 1000 lookups");
}

#[test]
fn opening_with_less_memory_folds_filters_and_thins_fences() {
    let storage = MemoryStorage::default();
    let mut index = open(&storage, &Manifest::default(), Config::default());
    insert(&mut index, 0..50_000);
    let manifest = flush(&mut index, &storage);
    let full = index.memory_use();
    let smaller = Config {
        filter_bytes_max: full.filter_bytes * 2 / 3,
        fence_bytes_max: full.fence_bytes / 3,
        ..Config::default()
    };
    let index = open(&storage, &manifest, smaller.clone());
    let memory = index.memory_use();
    assert!(memory.filter_bytes > 0 && memory.filter_bytes <= smaller.filter_bytes_max);
    assert!(memory.fence_bytes > 0 && memory.fence_bytes <= smaller.fence_bytes_max);
    assert!(reads_permille(&index, &storage, 0, 20_000, true) < 2000);
    assert!(reads_permille(&index, &storage, 1_000_000, 20_000, false) < 200);
    let none = Config {
        filter_bytes_max: 0,
        ..Config::default()
    };
    let index = open(&storage, &manifest, none);
    assert_eq!(index.memory_use().filter_bytes, 0);
    assert_eq!(reads_permille(&index, &storage, 0, 100, true), 1000);
}

#[test]
fn memory_that_a_merge_frees_improves_other_filters() {
    let storage = MemoryStorage::default();
    let scarce = Config {
        memtable_entries_max: 1000,
        filter_bytes_max: 8 << 10,
        ..Config::default()
    };
    let mut index = open(&storage, &Manifest::default(), scarce);
    for round in 0..40 {
        insert(&mut index, round * 1000..round * 1000 + 1000);
        flush(&mut index, &storage);
    }
    let before = reads_permille(&index, &storage, 1_000_000, 2000, false);
    merge_all(&mut index, &storage);
    let after = reads_permille(&index, &storage, 1_000_000, 2000, false);
    assert!(after * 4 < before, "{before} and {after} reads in 1000 lookups");
    assert!(index.memory_use().filter_bytes > 4 << 10);
}

#[test]
fn a_rotten_filter_is_given_up_and_the_run_still_answers() {
    let storage = MemoryStorage::default();
    let mut index = open(&storage, &Manifest::default(), Config::default());
    for round in 0..2 {
        insert(&mut index, round * 100..round * 100 + 100);
        flush(&mut index, &storage);
    }
    let plan = index.plan_compaction().unwrap();
    let mut merge = index.start_merge(&plan).unwrap();
    let output = merge.run();
    let merged = merge.step(&storage, 1000).unwrap().unwrap();
    index.adopt_merge(merged).unwrap();
    storage.rot(output, RunPart::Guide, 5);
    let load = index.next_filter_load().unwrap();
    assert!(matches!(load.read(&storage), Err(IndexError::CorruptRun { run, .. }) if run == output));
    index.abandon_filter(load);
    assert!(index.next_filter_load().is_none());
    assert_eq!(index.memory_use().filter_bytes, 0);
    assert_eq!(reads_permille(&index, &storage, 0, 200, true), 1000);
}

#[test]
fn a_full_memtable_refuses_new_fingerprints_and_takes_known_ones() {
    let storage = MemoryStorage::default();
    let config = Config {
        memtable_entries_max: 2,
        ..Config::default()
    };
    let mut index = open(&storage, &Manifest::default(), config);
    insert(&mut index, 0..2);
    let full = InsertError::MemtableFull { entries_max: 2 };
    assert_eq!(index.insert(key(2), Pvbn(2)), Err(full));
    assert_eq!(index.insert(key(1), Pvbn(7)), Ok(()));
    assert_eq!(
        index.insert(key(1), Pvbn(u64::MAX)),
        Err(InsertError::ReservedPvbn(u64::MAX))
    );
    flush(&mut index, &storage);
    assert_eq!(index.insert(key(2), Pvbn(2)), Ok(()));
    assert_eq!(index.lookup(&storage, &key(1)).unwrap(), Some(Pvbn(7)));
}

#[test]
fn a_frozen_memtable_answers_and_is_handed_out_again_until_adopted() {
    let storage = MemoryStorage::default();
    let mut index = open(&storage, &Manifest::default(), Config::default());
    insert(&mut index, 0..10);
    let first = index.freeze().unwrap();
    insert(&mut index, 10..20);
    assert_eq!(index.lookup(&storage, &key(5)).unwrap(), Some(Pvbn(5)));
    let second = index.freeze().unwrap();
    assert_eq!(first.run(), second.run());
    let flushed = second.write(&storage).unwrap();
    index.adopt_flush(flushed).unwrap();
    let again = first.write(&storage).unwrap();
    assert!(index.adopt_flush(again).is_err());
    assert_eq!(index.memtable_entry_count(), 10);
    assert_eq!(reads_permille(&index, &storage, 0, 10, true), 1000);
}

/// Two flushed runs and the last manifest issued.
fn two_runs(storage: &MemoryStorage) -> (Index, Manifest) {
    let mut index = open(storage, &Manifest::default(), Config::default());
    insert(&mut index, 0..100);
    flush(&mut index, storage);
    insert(&mut index, 100..200);
    let manifest = flush(&mut index, storage);
    (index, manifest)
}

#[test]
fn replaced_runs_are_kept_until_a_manifest_without_them_is_durable() {
    let storage = MemoryStorage::default();
    let (mut index, old) = two_runs(&storage);
    let replaced = storage.runs();
    merge_all(&mut index, &storage);
    // Issued before the merge, durable only now: it still names the inputs.
    index.manifest_is_durable(&old);
    assert_eq!(index.obsolete_runs(), []);
    let new = index.manifest();
    assert_eq!(index.obsolete_runs(), []);
    index.manifest_is_durable(&new);
    let mut obsolete = index.obsolete_runs();
    obsolete.sort();
    assert_eq!(obsolete, replaced);
    assert_eq!(index.obsolete_runs(), []);
}

#[test]
fn replaced_runs_are_kept_while_a_probe_may_read_them() {
    let storage = MemoryStorage::default();
    let (mut index, _) = two_runs(&storage);
    let probe = index.probe(&key(3));
    merge_all(&mut index, &storage);
    let manifest = index.manifest();
    index.manifest_is_durable(&manifest);
    assert_eq!(index.obsolete_runs(), []);
    assert_eq!(probe.resolve(&storage).unwrap(), Some(Pvbn(3)));
    drop(probe);
    assert_eq!(index.obsolete_runs().len(), 2);
}

#[test]
fn removals_stay_while_an_older_run_is_left_out_of_the_merge() {
    let storage = MemoryStorage::default();
    let config = Config {
        memtable_entries_max: 1000,
        ..Config::default()
    };
    let mut index = open(&storage, &Manifest::default(), config);
    insert(&mut index, 0..1000);
    flush(&mut index, &storage);
    assert!(index.remove(&storage, key(1), Pvbn(1)).unwrap());
    flush(&mut index, &storage);
    insert(&mut index, 1000..1001);
    flush(&mut index, &storage);
    merge_all(&mut index, &storage);
    assert_eq!((index.run_count(), index.run_entry_count()), (2, 1002));
    assert_eq!(index.lookup(&storage, &key(1)).unwrap(), None);
}

#[test]
fn orphans_are_listed_and_their_ids_not_used_again() {
    let storage = MemoryStorage::default();
    let mut index = open(&storage, &Manifest::default(), Config::default());
    insert(&mut index, 0..100);
    let durable = flush(&mut index, &storage);
    insert(&mut index, 100..200);
    flush(&mut index, &storage);
    storage.crash();
    let mut index = open(&storage, &durable, Config::default());
    let orphans = index.orphans(&storage.runs());
    assert_eq!(orphans, storage.runs()[1..]);
    insert(&mut index, 100..200);
    let run = index.freeze().unwrap().run();
    assert!(run > orphans[0]);
}

#[test]
fn a_run_that_is_missing_cut_or_rotten_is_refused_or_dropped() {
    for part in BOTH {
        let storage = MemoryStorage::default();
        let mut index = open(&storage, &Manifest::default(), Config::default());
        insert(&mut index, 0..1000);
        let manifest = flush(&mut index, &storage);
        let run = manifest.runs[0].run;
        let length = storage.bytes(run, part).len();
        storage.rot(run, part, length - 1);
        let rotten = Index::open(&storage, &manifest, Config::default(), OnBadRun::Refuse);
        assert!(matches!(
            rotten,
            Err(IndexError::CorruptRun {
                fault: RunFault::Decode(_),
                ..
            })
        ));
        storage.cut(run, part, length - 1);
        let cut = Index::open(&storage, &manifest, Config::default(), OnBadRun::Refuse);
        assert!(matches!(
            cut,
            Err(IndexError::CorruptRun { fault: RunFault::Length { file, .. }, .. }) if file.part == part
        ));
    }
    let storage = MemoryStorage::default();
    let mut index = open(&storage, &Manifest::default(), Config::default());
    insert(&mut index, 0..1000);
    let manifest = flush(&mut index, &storage);
    let run = manifest.runs[0].run;
    storage.delete(run).unwrap();
    let missing = Index::open(&storage, &manifest, Config::default(), OnBadRun::Refuse);
    assert!(matches!(missing, Err(IndexError::Storage { .. })));
    let on_bad_run = OnBadRun::Drop(OlderRuns::Keep);
    let (index, bad_runs) = Index::open(&storage, &manifest, Config::default(), on_bad_run).unwrap();
    assert_eq!(bad_runs[0].run, run);
    assert_eq!(index.lookup(&storage, &key(1)).unwrap(), None);
}

#[test]
fn dropping_older_runs_too_brings_nothing_outdated_back() {
    for (older, expected) in [(OlderRuns::Keep, Some(Pvbn(1))), (OlderRuns::Drop, None)] {
        let storage = MemoryStorage::default();
        let mut index = open(&storage, &Manifest::default(), Config::default());
        insert(&mut index, 0..40_000);
        flush(&mut index, &storage);
        assert!(index.remove(&storage, key(1), Pvbn(1)).unwrap());
        assert!(!index.remove(&storage, key(2), Pvbn(1)).unwrap());
        let manifest = flush(&mut index, &storage);
        assert_eq!(index.lookup(&storage, &key(1)).unwrap(), None);
        let newest = manifest.runs[0].run;
        storage.cut(newest, RunPart::Entries, 10);
        let (index, _) = Index::open(&storage, &manifest, Config::default(), OnBadRun::Drop(older)).unwrap();
        assert_eq!(index.lookup(&storage, &key(1)).unwrap(), expected, "{older:?}");
    }
}

#[test]
fn removal_holds_even_where_the_entry_cannot_be_read() {
    let storage = MemoryStorage::default();
    let mut index = open(&storage, &Manifest::default(), Config::default());
    insert(&mut index, 0..50);
    let manifest = flush(&mut index, &storage);
    storage.rot(manifest.runs[0].run, RunPart::Entries, 100);
    assert!(matches!(
        index.remove(&storage, key(1), Pvbn(1)),
        Err(IndexError::CorruptPage { page: 0, .. })
    ));
    assert_eq!(index.lookup(&storage, &key(1)).unwrap(), None);
}

#[test]
fn removals_vanish_once_nothing_older_is_left() {
    let storage = MemoryStorage::default();
    let mut index = open(&storage, &Manifest::default(), Config::default());
    insert(&mut index, 0..100);
    flush(&mut index, &storage);
    for number in 0..100 {
        assert!(index.remove(&storage, key(number), Pvbn(number)).unwrap());
    }
    flush(&mut index, &storage);
    assert_eq!(index.run_entry_count(), 200);
    merge_all(&mut index, &storage);
    assert_eq!((index.run_count(), index.run_entry_count()), (1, 0));
    let manifest = index.manifest();
    let index = open(&storage, &manifest, Config::default());
    assert_eq!(reads_permille(&index, &storage, 0, 100, false), 0);
}

#[test]
fn checkpoints_with_few_entries_leave_few_runs() {
    let storage = MemoryStorage::default();
    let mut index = open(&storage, &Manifest::default(), Config::default());
    for round in 0..300 {
        insert(&mut index, round * 20..round * 20 + 20);
        flush(&mut index, &storage);
        merge_all(&mut index, &storage);
        assert!(index.run_count() <= 2);
    }
    assert!(reads_permille(&index, &storage, 0, 6000, true) < 1010);
}

#[test]
fn golden_run_files() {
    let storage = MemoryStorage::default();
    let mut index = open(&storage, &Manifest::default(), Config::default());
    insert(&mut index, 0..200);
    let run = flush(&mut index, &storage).runs[0].run;
    let sums = BOTH.map(|part| {
        let bytes = storage.bytes(run, part);
        (bytes.len(), xxhash_rust::xxh3::xxh3_64(&bytes))
    });
    assert_eq!(
        sums,
        [
            (3 * 4096, 11_124_040_773_596_763_556),
            (64 * 64 + 2 * 8, 15_203_732_961_340_108_176)
        ]
    );
}

#[test]
fn a_scan_tells_every_entry_of_its_runs_and_goes_on_behind_a_damaged_one() {
    let storage = MemoryStorage::default();
    let (mut index, _) = two_runs(&storage);
    let runs = storage.runs();
    index.remove(&storage, key(1), Pvbn(1)).unwrap();
    flush(&mut index, &storage);
    let mut damaged = index.scan();
    let mut scan = index.scan();
    // What comes later is not seen, and what is replaced meanwhile is still there.
    insert(&mut index, 5_000..5_010);
    flush(&mut index, &storage);
    merge_all(&mut index, &storage);
    let told = |scan: &mut Scan| {
        let (mut found, mut faults) = (Vec::new(), 0);
        loop {
            match scan.next(&storage) {
                Ok(Some(entry)) => found.push(entry),
                Ok(None) => break,
                Err(_) => faults += 1,
            }
        }
        found.sort_unstable_by_key(|(_, pvbn)| *pvbn);
        (found, faults)
    };
    let all: Vec<_> = (0..200).map(|number| (key(number), Pvbn(number))).collect();
    assert_eq!(told(&mut scan), (all.clone(), 0));
    // The run of 100..200.
    storage.rot(runs[1], RunPart::Entries, 100);
    assert_eq!(told(&mut damaged), (all[..100].to_vec(), 1));
}
