//! The index against a `BTreeMap`, through random sequences of everything a caller may do: inserts, removals,
//! lookups, probes that outlive changes, split flushes, steps of several merges, failing disks, checkpoints, crashes
//! with replay, and rotten pages.

use crate::support::MemoryStorage;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use std::collections::BTreeMap;
use tombolo_base::{Fingerprint, Prng, Pvbn};
use tombolo_dedup::{
    Config, Flush, Index, IndexError, InsertError, Manifest, Merge, OlderRuns, OnBadRun, Probe, RunPart, RunStorage,
};

#[derive(Clone, Debug)]
enum Step {
    /// Inserts `count` keys of a small universe, so that keys recur.
    Insert {
        seed: u64,
        count: u8,
    },
    Remove {
        key: u16,
        right_pvbn: bool,
    },
    Lookup {
        key: u16,
    },
    /// Looks up in two halves, `AnswerProbe` being the second.
    Probe {
        key: u16,
    },
    AnswerProbe,
    Freeze,
    WriteFlush {
        fails: bool,
    },
    StartMerge,
    ContinueMerge {
        which: u8,
        pages: u8,
        fails: bool,
    },
    LoadFilter,
    Checkpoint,
    Crash,
    RotAndDropRun {
        which: u8,
        offset: u16,
    },
    RotAndReopen {
        which: u8,
        offset: u16,
        in_guide: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (any::<u64>(), 1u8..120).prop_map(|(seed, count)| Step::Insert { seed, count }),
        3 => (0u16..KEYS, any::<bool>()).prop_map(|(key, right_pvbn)| Step::Remove { key, right_pvbn }),
        5 => (0u16..KEYS).prop_map(|key| Step::Lookup { key }),
        2 => (0u16..KEYS).prop_map(|key| Step::Probe { key }),
        2 => Just(Step::AnswerProbe),
        4 => Just(Step::Freeze),
        5 => prop::bool::weighted(0.2).prop_map(|fails| Step::WriteFlush { fails }),
        4 => Just(Step::StartMerge),
        10 => (any::<u8>(), 0u8..12, prop::bool::weighted(0.1))
            .prop_map(|(which, pages, fails)| Step::ContinueMerge { which, pages, fails }),
        4 => Just(Step::LoadFilter),
        4 => Just(Step::Checkpoint),
        2 => Just(Step::Crash),
        1 => (any::<u8>(), any::<u16>()).prop_map(|(which, offset)| Step::RotAndDropRun { which, offset }),
        1 => (any::<u8>(), any::<u16>(), any::<bool>())
            .prop_map(|(which, offset, in_guide)| Step::RotAndReopen { which, offset, in_guide }),
    ];
    prop::collection::vec(step, 1..120)
}

const KEYS: u16 = 900;

/// Mostly uniform; every sixteenth shares its leading 8 bytes with its neighbours, which real ones never do.
fn key(number: u16) -> Fingerprint {
    let mut bytes = [0; 32];
    Prng::new(u64::from(number) << 20).fill(&mut bytes);
    if number.is_multiple_of(16) {
        bytes[..8].fill(0x77);
    }
    Fingerprint(bytes)
}

fn config() -> Config {
    Config {
        memtable_entries_max: 256,
        filter_bytes_max: 16 << 10,
        fence_bytes_max: 64,
        runs_max: 4,
        merge_buffer_bytes: 64 << 10,
        ..Config::default()
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Insert(u16, Pvbn),
    Remove(u16, Pvbn),
}

/// What must be true once runs have been lost: an entry may be forgotten, or stand for an earlier PVBN of the very
/// same fingerprint, but never for anything else.
#[derive(Default)]
struct Model {
    entries: BTreeMap<u16, Pvbn>,
    history: BTreeMap<u16, Vec<Pvbn>>,
    has_lost_runs: bool,
}

impl Model {
    fn insert(&mut self, key: u16, pvbn: Pvbn) {
        self.entries.insert(key, pvbn);
        self.history.entry(key).or_default().push(pvbn);
    }

    fn check(&self, key: u16, found: Option<Pvbn>) -> Result<(), String> {
        let expected = self.entries.get(&key).copied();
        let excused = self.has_lost_runs
            && found.is_none_or(|pvbn| self.history.get(&key).is_some_and(|pvbns| pvbns.contains(&pvbn)));
        if found == expected || excused {
            return Ok(());
        }
        Err(format!("key {key}: found {found:?} instead of {expected:?}"))
    }
}

/// How the harness is sabotaged to prove that it can fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sabotage {
    None,
    ReplayForgets,
    DeletesTooEarly,
}

struct World {
    storage: MemoryStorage,
    index: Index,
    model: Model,
    /// Changes since the freeze before the durable manifest, and where the frozen memtable's end.
    journal: Vec<Change>,
    frozen_at: Option<usize>,
    manifest: Manifest,
    flush: Option<Flush>,
    merges: Vec<Merge>,
    probe: Option<(u16, Option<Pvbn>, Probe)>,
    next_pvbn: u64,
    sabotage: Sabotage,
}

type Outcome = Result<(), String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl World {
    fn new(sabotage: Sabotage) -> Self {
        let storage = MemoryStorage::default();
        let opened = Index::open(&storage, &Manifest::default(), config(), OnBadRun::Refuse);
        let (index, _) = opened.expect("an empty index opens");
        Self {
            storage,
            index,
            model: Model::default(),
            journal: Vec::new(),
            frozen_at: None,
            manifest: Manifest::default(),
            flush: None,
            merges: Vec::new(),
            probe: None,
            next_pvbn: 0,
            sabotage,
        }
    }

    fn apply(&mut self, step: &Step) -> Outcome {
        match *step {
            Step::Insert { seed, count } => self.insert(seed, count),
            Step::Remove { key, right_pvbn } => self.remove(key, right_pvbn),
            Step::Lookup { key } => self.lookup(key),
            Step::Probe { key: number } => {
                let expected = self.model.entries.get(&number).copied();
                self.probe = Some((number, expected, self.index.probe(&key(number))));
                Ok(())
            }
            Step::AnswerProbe => self.answer_probe(),
            Step::Freeze => {
                self.freeze();
                Ok(())
            }
            Step::WriteFlush { fails } => self.write_flush(fails),
            Step::StartMerge => {
                let plan = self.index.plan_compaction();
                self.merges.extend(plan.and_then(|plan| self.index.start_merge(&plan)));
                Ok(())
            }
            Step::ContinueMerge { which, pages, fails } => self.step_merge(which, pages, fails),
            Step::LoadFilter => {
                if let Some(load) = self.index.next_filter_load() {
                    let filter = load.read(&self.storage).map_err(text)?;
                    self.index.install_filter(filter);
                }
                Ok(())
            }
            Step::Checkpoint => self.checkpoint(),
            Step::Crash => self.crash(OnBadRun::Refuse),
            Step::RotAndDropRun { which, offset } => self.rot_and_drop(which, offset),
            Step::RotAndReopen {
                which,
                offset,
                in_guide,
            } => self.rot_and_reopen(which, offset, in_guide),
        }
    }

    fn put(&mut self, number: u16, pvbn: Pvbn) -> Outcome {
        match self.index.insert(key(number), pvbn) {
            Err(InsertError::MemtableFull { .. }) => {
                self.write_flush(false)?;
                self.freeze();
                self.write_flush(false)?;
                self.index.insert(key(number), pvbn).map_err(text)
            }
            other => other.map_err(text),
        }
    }

    fn insert(&mut self, seed: u64, count: u8) -> Outcome {
        let mut prng = Prng::new(seed);
        for _ in 0..count {
            let number = prng.below(u64::from(KEYS)) as u16;
            let pvbn = Pvbn(self.next_pvbn);
            self.next_pvbn += 1;
            self.put(number, pvbn)?;
            self.model.insert(number, pvbn);
            self.journal.push(Change::Insert(number, pvbn));
        }
        Ok(())
    }

    fn remove(&mut self, number: u16, right_pvbn: bool) -> Outcome {
        let named = self.model.entries.get(&number).copied();
        let pvbn = named.filter(|_| right_pvbn).unwrap_or(Pvbn(u64::MAX - 1));
        let removed = match self.index.remove(&self.storage, key(number), pvbn) {
            Err(IndexError::Insert(_)) => {
                self.write_flush(false)?;
                self.freeze();
                self.write_flush(false)?;
                self.index.remove(&self.storage, key(number), pvbn)
            }
            other => other,
        };
        let removed = removed.map_err(text)?;
        if removed != (named == Some(pvbn)) && !self.model.has_lost_runs {
            return Err(format!("key {number}: removal of {pvbn:?} returned {removed}"));
        }
        if removed {
            self.model.entries.remove(&number);
        }
        self.journal.push(Change::Remove(number, pvbn));
        Ok(())
    }

    fn lookup(&self, number: u16) -> Outcome {
        let found = self.index.lookup(&self.storage, &key(number)).map_err(text)?;
        self.model.check(number, found)
    }

    /// A probe answers as of its beginning, whatever happened since.
    fn answer_probe(&mut self) -> Outcome {
        let Some((number, expected, probe)) = self.probe.take() else {
            return Ok(());
        };
        let found = probe.resolve(&self.storage).map_err(text)?;
        if found != expected && !self.model.has_lost_runs {
            return Err(format!(
                "key {number}: the probe found {found:?} instead of {expected:?}"
            ));
        }
        Ok(())
    }

    fn freeze(&mut self) {
        if self.flush.is_none() {
            self.flush = self.index.freeze();
            self.frozen_at = self.flush.as_ref().map(|_| self.journal.len());
        }
    }

    fn write_flush(&mut self, fails: bool) -> Outcome {
        let Some(flush) = self.flush.take() else {
            return Ok(());
        };
        if fails {
            self.storage.fail_appends_after(Some(0));
            let failed = flush.write(&self.storage).is_err();
            self.storage.fail_appends_after(None);
            // Lost, to be handed out again.
            self.flush = self.index.freeze();
            return if failed {
                Ok(())
            } else {
                Err("the failing disk went unnoticed".into())
            };
        }
        let flushed = flush.write(&self.storage).map_err(text)?;
        self.index.adopt_flush(flushed).map_err(text)
    }

    fn step_merge(&mut self, which: u8, pages: u8, fails: bool) -> Outcome {
        if self.merges.is_empty() {
            return Ok(());
        }
        let which = usize::from(which) % self.merges.len();
        self.storage.fail_appends_after(fails.then_some(0));
        let stepped = self.merges[which].step(&self.storage, u64::from(pages));
        self.storage.fail_appends_after(None);
        match stepped {
            Ok(None) => Ok(()),
            Ok(Some(merged)) => {
                drop(self.merges.remove(which));
                self.index.adopt_merge(merged).map_err(text)
            }
            Err(_) if fails => {
                let merge = self.merges.remove(which);
                let run = self.index.abandon_merge(merge);
                self.storage.delete(run).map_err(text)
            }
            Err(error) => Err(text(error)),
        }
    }

    /// As a gateway: freeze, write, take the manifest, make it durable, delete what has become obsolete.
    fn checkpoint(&mut self) -> Outcome {
        self.write_flush(false)?;
        self.freeze();
        self.write_flush(false)?;
        let covered = self.frozen_at.take().unwrap_or(0);
        let manifest = self.index.manifest();
        if self.sabotage == Sabotage::DeletesTooEarly {
            for run in self.manifest.runs.iter().take(1) {
                self.storage.delete(run.run).map_err(text)?;
            }
        }
        if !self.index.obsolete_runs().is_empty() && manifest.generation == 1 {
            return Err("a run is obsolete before any manifest is durable".into());
        }
        self.manifest = Manifest::decode(&manifest.encode()).map_err(text)?;
        self.journal.drain(..covered);
        self.index.manifest_is_durable(&manifest);
        for run in self.index.obsolete_runs() {
            self.storage.delete(run).map_err(text)?;
        }
        Ok(())
    }

    /// Power loss: only synced bytes and the last durable manifest remain; the journal is replayed.
    fn crash(&mut self, on_bad_run: OnBadRun) -> Outcome {
        self.storage.crash();
        self.forget_work();
        let opened = Index::open(&self.storage, &self.manifest, config(), on_bad_run).map_err(text)?;
        self.index = opened.0;
        for run in self.index.orphans(&self.storage.runs()) {
            self.storage.delete(run).map_err(text)?;
        }
        let named = self.manifest.runs.len();
        if on_bad_run == OnBadRun::Refuse && self.storage.runs().len() != named {
            return Err(format!("{} runs on storage, {named} named", self.storage.runs().len()));
        }
        for (place, change) in std::mem::take(&mut self.journal).into_iter().enumerate() {
            if self.sabotage == Sabotage::ReplayForgets && place % 3 == 0 {
                continue;
            }
            match change {
                Change::Insert(number, pvbn) => self.put(number, pvbn)?,
                Change::Remove(number, pvbn) => {
                    self.write_flush(false)?;
                    match self.index.remove(&self.storage, key(number), pvbn) {
                        Err(IndexError::Insert(_)) => {
                            self.freeze();
                            self.write_flush(false)?;
                            self.index.remove(&self.storage, key(number), pvbn).map_err(text)?;
                        }
                        other => {
                            other.map_err(text)?;
                        }
                    }
                }
            }
            self.journal.push(change);
        }
        Ok(())
    }

    fn forget_work(&mut self) {
        self.flush = None;
        self.frozen_at = None;
        self.merges.clear();
        self.probe = None;
    }

    /// A page rots in use: lookups say which, and going on without the run is possible.
    fn rot_and_drop(&mut self, which: u8, offset: u16) -> Outcome {
        self.checkpoint()?;
        // A probe may need what is about to rot.
        self.probe = None;
        if self.manifest.runs.is_empty() {
            return Ok(());
        }
        let run = self.manifest.runs[usize::from(which) % self.manifest.runs.len()].run;
        let pages_bytes = self.storage.bytes(run, RunPart::Entries).len() - 4096;
        if pages_bytes == 0 {
            return Ok(());
        }
        let offset = usize::from(offset) % pages_bytes;
        self.storage.rot(run, RunPart::Entries, offset);
        let page_rotten = (offset / 4096) as u64;
        for number in 0..KEYS {
            match self.index.lookup(&self.storage, &key(number)) {
                Ok(found) => self.model.check(number, found)?,
                Err(IndexError::CorruptPage { run: named, page, .. }) if named == run && page == page_rotten => {}
                Err(error) => return Err(text(error)),
            }
        }
        self.model.has_lost_runs = true;
        let dropped = self.index.drop_run(run, OlderRuns::Keep);
        if dropped != [run] {
            return Err(format!("dropped {dropped:?} instead of {run}"));
        }
        for merge in std::mem::take(&mut self.merges) {
            let output = self.index.abandon_merge(merge);
            self.storage.delete(output).map_err(text)?;
        }
        self.checkpoint()
    }

    fn rot_and_reopen(&mut self, which: u8, offset: u16, in_guide: bool) -> Outcome {
        self.checkpoint()?;
        // A probe may need what is about to rot.
        self.probe = None;
        if self.manifest.runs.is_empty() {
            return Ok(());
        }
        let run = self.manifest.runs[usize::from(which) % self.manifest.runs.len()].run;
        let part = if in_guide { RunPart::Guide } else { RunPart::Entries };
        let length = self.storage.bytes(run, part).len();
        if length == 0 {
            return Ok(());
        }
        // The guide anywhere, the entries file in its footer: what opening reads.
        let offset = if in_guide {
            usize::from(offset) % length
        } else {
            length - 1 - usize::from(offset) % 4096
        };
        self.storage.rot(run, part, offset);
        match Index::open(&self.storage, &self.manifest, config(), OnBadRun::Refuse) {
            Err(IndexError::CorruptRun { run: named, .. }) if named == run => {}
            Err(error) => return Err(text(error)),
            Ok((index, _)) if in_guide && has_no_room(&index) => {
                // There was no memory for this filter, so it was not read: heal it.
                self.storage.rot(run, part, offset);
                return Ok(());
            }
            Ok(_) => return Err(format!("{run} opened although {part:?} is rotten at {offset}")),
        }
        self.model.has_lost_runs = true;
        self.crash(OnBadRun::Drop(OlderRuns::Keep))?;
        self.checkpoint()
    }

    fn check_bounds(&self) -> Outcome {
        let memory = self.index.memory_use();
        let config = config();
        if memory.filter_bytes > config.filter_bytes_max {
            return Err(format!("filters take {} bytes", memory.filter_bytes));
        }
        // One post per run is always kept.
        let fence_bytes_max = config.fence_bytes_max + 8 * self.index.run_count() as u64;
        if memory.fence_bytes > fence_bytes_max {
            return Err(format!("fences take {} bytes", memory.fence_bytes));
        }
        if self.index.memtable_entry_count() > config.memtable_entries_max {
            return Err("the memtable has grown beyond its bound".into());
        }
        Ok(())
    }
}

/// Less memory is left than the smallest filter takes even when folded 64 times.
fn has_no_room(index: &Index) -> bool {
    index.memory_use().filter_bytes + 256 > config().filter_bytes_max
}

fn run(steps: &[Step], sabotage: Sabotage) -> Outcome {
    let mut world = World::new(sabotage);
    for (place, step) in steps.iter().enumerate() {
        let outcome = world.apply(step).and_then(|()| world.check_bounds());
        outcome.map_err(|error| format!("step {place}, {step:?}: {error}"))?;
    }
    (0..KEYS).try_for_each(|number| world.lookup(number))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/index/model.proptest-regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn index_answers_as_a_map_does(steps in steps()) {
        run(&steps, Sabotage::None).map_err(TestCaseError::fail)?;
    }
}

fn insert(seed: u64) -> Step {
    Step::Insert { seed, count: 100 }
}

/// The harness must notice a replay that forgets, and runs deleted before the manifest without them is durable.
#[test]
fn canary_sabotage_is_noticed() {
    let forgets = [insert(1), Step::Checkpoint, insert(2), Step::Crash];
    run(&forgets, Sabotage::None).unwrap();
    assert!(run(&forgets, Sabotage::ReplayForgets).is_err());
    let deletes = [insert(1), Step::Checkpoint, insert(2), Step::Checkpoint, Step::Crash];
    run(&deletes, Sabotage::None).unwrap();
    assert!(run(&deletes, Sabotage::DeletesTooEarly).is_err());
}
