//! The index itself: the memtables, the list of runs, and the bookkeeping of work that goes on outside.
//!
//! | invariant | why |
//! |---|---|
//! | `runs` is ordered newest first | the first answer wins |
//! | at most one frozen memtable | memory stays bounded: two memtables in all |
//! | the inputs of a merge are neighbours in `runs`, and in no other merge | nothing can come between them in age |
//! | a run leaves `runs` only into `retired` | its files outlive the manifests and the lookups that name it |
//! | filters in memory or being loaded stay within `filter_bytes_max` | the bound is a promise |

use crate::budget::{self, Grant};
use crate::entry::Target;
use crate::memtable::Memtable;
use crate::open::OlderRuns;
use crate::plan::{self, MergePlan};
use crate::run::{FilterLoad, LoadedFilter, Run, RunMeta};
use crate::{
    Config, Flush, Flushed, IndexError, InsertError, Manifest, ManifestRun, Merge, Merged, Probe, RunId, RunStorage,
    Scan, StaleRun,
};
use alloc::{sync::Arc, vec::Vec};
use core::ops::Range;
use tombolo_base::{Fingerprint, Pvbn};

struct Frozen {
    run: RunId,
    table: Arc<Memtable>,
    grant: Grant,
    /// Set aside for the run's filter.
    filter_bytes: u64,
    is_oldest: bool,
}

/// A merge that somebody is working on.
struct MergeWork {
    output: RunId,
    inputs: Vec<RunId>,
    grant: Grant,
    entry_count: u64,
}

/// A run that is no longer part of the index, but that a durable manifest may name.
pub(crate) struct Retired {
    pub run: RunId,
    /// Shared with the lookups and merges that still read the run.
    pub meta: Option<Arc<RunMeta>>,
    /// The last manifest issued before it left.
    pub generation: u64,
}

/// Bytes in use, by purpose. Transient besides: the read chunk of a guide being loaded (256 KiB).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// The memtable that takes what is inserted.
    pub memtable_bytes: u64,
    /// The frozen memtable and its sorted copy, which exists while it is written.
    pub frozen_bytes: u64,
    /// The filters of all runs.
    pub filter_bytes: u64,
    /// The fences of all runs.
    pub fence_bytes: u64,
    /// Buffers and fences of merges under way.
    pub merge_bytes: u64,
}

impl MemoryUse {
    /// All of them.
    pub fn total_bytes(&self) -> u64 {
        self.memtable_bytes + self.frozen_bytes + self.filter_bytes + self.fence_bytes + self.merge_bytes
    }
}

/// See the crate's head for the whole.
pub struct Index {
    config: Config,
    memtable: Memtable,
    frozen: Option<Frozen>,
    runs: Arc<Vec<Run>>,
    merges: Vec<MergeWork>,
    retired: Vec<Retired>,
    next_run: u64,
    /// Of the last manifest issued, and of the last one known to be durable.
    generation: u64,
    generation_durable: u64,
}

/// Entries.
impl Index {
    /// Maps `fingerprint` to `pvbn`, replacing what it mapped to. Never reads or writes storage.
    pub fn insert(&mut self, fingerprint: Fingerprint, pvbn: Pvbn) -> Result<(), InsertError> {
        let target = Target::of(pvbn).ok_or(InsertError::ReservedPvbn(pvbn.0))?;
        self.put(fingerprint, target)
    }

    /// Forgets `fingerprint` if it maps to `pvbn`; says whether it did. Reads as a lookup does.
    ///
    /// When the lookup fails, the fingerprint is forgotten all the same (that is the safe side: it must not name a
    /// lost object) and the error is returned. Only [`IndexError::Insert`] means that nothing was done.
    pub fn remove<S: RunStorage>(
        &mut self,
        storage: &S,
        fingerprint: Fingerprint,
        pvbn: Pvbn,
    ) -> Result<bool, IndexError<S::Error>> {
        let found = self.lookup(storage, &fingerprint);
        let keeps = matches!(found, Ok(other) if other != Some(pvbn));
        if keeps {
            return Ok(false);
        }
        self.put(fingerprint, Target::REMOVED)?;
        found.map(|_| true)
    }

    /// The first half of a lookup: memory only. Hold a lock for this one, none for [`Probe::resolve`].
    pub fn probe(&self, fingerprint: &Fingerprint) -> Probe {
        let frozen = || self.frozen.as_ref().and_then(|frozen| frozen.table.get(fingerprint));
        let decided = self.memtable.get(fingerprint).or_else(frozen);
        Probe::new(*fingerprint, decided, &self.runs)
    }

    /// Both halves at once.
    pub fn lookup<S: RunStorage>(
        &self,
        storage: &S,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Pvbn>, IndexError<S::Error>> {
        self.probe(fingerprint).resolve(storage)
    }

    /// All entries of the runs as they are now; those of the memtables are not among them.
    pub fn scan(&self) -> Scan {
        Scan::new(&self.runs, self.config.merge_buffer_bytes)
    }

    /// Entries in the memtable; a flush is due before it reaches `memtable_entries_max`.
    pub fn memtable_entry_count(&self) -> usize {
        self.memtable.len()
    }

    /// Entries of all runs, hidden and removing ones included.
    pub fn run_entry_count(&self) -> u64 {
        self.runs.iter().map(|run| run.meta.entry_count).sum()
    }

    /// Those that are being merged included.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// As it was opened with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn put(&mut self, key: Fingerprint, target: Target) -> Result<(), InsertError> {
        let entries_max = self.config.memtable_entries_max;
        if self.memtable.len() >= entries_max && self.memtable.get(&key).is_none() {
            return Err(InsertError::MemtableFull { entries_max });
        }
        self.memtable.insert(key, target);
        Ok(())
    }
}

/// Flushes and the manifest.
impl Index {
    /// Sets the memtable aside for writing and begins an empty one; cheap. While a frozen memtable has not been
    /// adopted, that one is returned again (so a lost or failed flush can be repeated). `None`: nothing to write.
    ///
    /// The manifest taken after the flush was adopted covers what was inserted before this call.
    pub fn freeze(&mut self) -> Option<Flush> {
        if self.frozen.is_none() {
            if self.memtable.is_empty() {
                return None;
            }
            let entry_count = self.memtable.len() as u64;
            let run = self.assign_run();
            let grant = self.grant(entry_count, self.run_entry_count() + entry_count);
            self.frozen = Some(Frozen {
                run,
                grant,
                filter_bytes: grant.filter.folded_bytes(self.filter_bytes_free()),
                table: Arc::new(core::mem::take(&mut self.memtable)),
                is_oldest: self.runs.is_empty(),
            });
        }
        self.frozen.as_ref().map(|frozen| Flush {
            run: frozen.run,
            table: frozen.table.clone(),
            grant: frozen.grant,
            filter_bytes: frozen.filter_bytes,
            is_oldest: frozen.is_oldest,
        })
    }

    /// Replaces the frozen memtable by the run written from it.
    pub fn adopt_flush(&mut self, flushed: Flushed) -> Result<(), StaleRun> {
        let run = flushed.run.id();
        if self.frozen.as_ref().is_none_or(|frozen| frozen.run != run) {
            return Err(StaleRun { run });
        }
        self.frozen = None;
        let mut runs = self.runs.to_vec();
        runs.insert(0, flushed.run);
        self.runs = Arc::new(runs);
        Ok(())
    }

    /// Freezes, writes and adopts in one call, for callers without a second thread.
    pub fn flush_memtable<S: RunStorage>(&mut self, storage: &S) -> Result<Manifest, IndexError<S::Error>> {
        // Twice when an earlier flush had been left behind: first that one, then the memtable.
        while let Some(flush) = self.freeze() {
            let flushed = flush.write(storage)?;
            if self.adopt_flush(flushed).is_err() {
                break;
            }
        }
        Ok(self.manifest())
    }

    /// The runs as they are now, for the caller's checkpoint.
    pub fn manifest(&mut self) -> Manifest {
        self.generation += 1;
        let named = |run: &Run| ManifestRun {
            run: run.id(),
            entry_count: run.meta.entry_count,
        };
        Manifest {
            generation: self.generation,
            next_run: self.next_run,
            runs: self.runs.iter().map(named).collect(),
        }
    }

    /// The checkpoint that holds `manifest` has become durable.
    pub fn manifest_is_durable(&mut self, manifest: &Manifest) {
        self.generation_durable = self.generation_durable.max(manifest.generation);
    }

    /// Runs that no durable manifest names and nobody reads any more, each reported once: delete their files. Those
    /// whose deletion fails become orphans.
    pub fn obsolete_runs(&mut self) -> Vec<RunId> {
        let generation_durable = self.generation_durable;
        let is_obsolete = |retired: &mut Retired| {
            let is_read = retired.meta.as_ref().is_some_and(|meta| Arc::strong_count(meta) > 1);
            retired.generation < generation_durable && !is_read
        };
        self.retired
            .extract_if(.., is_obsolete)
            .map(|retired| retired.run)
            .collect()
    }

    /// Of the runs that `existing` lists, those that a crash or a failure left behind: delete their files. Call it
    /// after opening and before anything is written; ids of the runs listed will not be assigned again.
    pub fn orphans(&mut self, existing: &[RunId]) -> Vec<RunId> {
        let highest = existing.iter().map(|run| run.0.saturating_add(1)).max();
        self.next_run = self.next_run.max(highest.unwrap_or(0));
        existing.iter().copied().filter(|run| !self.is_known(*run)).collect()
    }

    fn is_known(&self, run: RunId) -> bool {
        self.runs.iter().any(|known| known.id() == run)
            || self.retired.iter().any(|known| known.run == run)
            || self.merges.iter().any(|known| known.output == run)
            || self.frozen.as_ref().is_some_and(|known| known.run == run)
    }

    fn assign_run(&mut self) -> RunId {
        let run = RunId(self.next_run);
        self.next_run += 1;
        run
    }
}

/// Merges.
impl Index {
    /// The next merge worth doing, among the runs newer than those already being merged; decides only.
    pub fn plan_compaction(&self) -> Option<MergePlan> {
        let idle = self
            .runs
            .iter()
            .take_while(|run| !self.merges.iter().any(|merge| merge.inputs.contains(&run.id())));
        let (ids, entry_counts): (Vec<RunId>, Vec<u64>) = idle.map(|run| (run.id(), run.meta.entry_count)).unzip();
        plan::plan(&entry_counts, &self.config).map(|stretch| MergePlan {
            inputs: ids[stretch].to_vec(),
        })
    }

    /// Begins a planned merge; `None` when the plan is outdated.
    pub fn start_merge(&mut self, plan: &MergePlan) -> Option<Merge> {
        let stretch = self.stretch_of(&plan.inputs)?;
        let busy = |run: &RunId| self.merges.iter().any(|merge| merge.inputs.contains(run));
        if plan.inputs.iter().any(busy) {
            return None;
        }
        let inputs = self.runs[stretch.clone()].to_vec();
        let entry_count = inputs.iter().map(|run| run.meta.entry_count).sum();
        let grant = self.grant(entry_count, self.run_entry_count());
        let drops_removals = stretch.end == self.runs.len();
        let output = self.assign_run();
        self.merges.push(MergeWork {
            output,
            inputs: plan.inputs.clone(),
            grant,
            entry_count,
        });
        let buffer_bytes = self.config.merge_buffer_bytes;
        Some(Merge::new(output, inputs, drops_removals, grant, buffer_bytes))
    }

    /// Replaces the inputs of a merge by its output. Then [`Index::next_filter_load`] has work.
    pub fn adopt_merge(&mut self, merged: Merged) -> Result<(), StaleRun> {
        let stale = StaleRun { run: merged.run.id() };
        let work = self
            .merges
            .extract_if(.., |work| work.output == stale.run)
            .next()
            .ok_or(stale)?;
        let stretch = self.stretch_of(&work.inputs).ok_or(stale)?;
        self.replace(stretch, Some(merged.run));
        Ok(())
    }

    /// Gives a merge up, whether it failed or is no longer wanted. The caller deletes what it has written.
    pub fn abandon_merge(&mut self, merge: Merge) -> RunId {
        self.merges.retain(|work| work.output != merge.run());
        merge.run()
    }

    /// Goes on without a run that proved corrupt; returns what was dropped. Merges of these runs become stale.
    pub fn drop_run(&mut self, run: RunId, older: OlderRuns) -> Vec<RunId> {
        let Some(start) = self.runs.iter().position(|known| known.id() == run) else {
            return Vec::new();
        };
        let end = match older {
            OlderRuns::Keep => start + 1,
            OlderRuns::Drop => self.runs.len(),
        };
        let dropped: Vec<RunId> = self.runs[start..end].iter().map(Run::id).collect();
        self.merges
            .retain(|work| !work.inputs.iter().any(|input| dropped.contains(input)));
        self.replace(start..end, None);
        dropped
    }

    /// Where these runs lie, if they still are neighbours in this order.
    fn stretch_of(&self, inputs: &[RunId]) -> Option<Range<usize>> {
        let start = self.runs.iter().position(|run| Some(&run.id()) == inputs.first())?;
        let stretch = start..start.checked_add(inputs.len())?;
        let runs = self.runs.get(stretch.clone())?;
        runs.iter().map(Run::id).eq(inputs.iter().copied()).then_some(stretch)
    }

    fn replace(&mut self, stretch: Range<usize>, by: Option<Run>) {
        let mut runs = self.runs.to_vec();
        let generation = self.generation;
        self.retired.extend(runs.splice(stretch, by).map(|run| Retired {
            run: run.id(),
            meta: Some(run.meta),
            generation,
        }));
        self.runs = Arc::new(runs);
    }
}

/// Memory.
impl Index {
    pub(crate) fn with_runs(config: Config, manifest: &Manifest, runs: Arc<Vec<Run>>, retired: Vec<Retired>) -> Self {
        Self {
            config,
            memtable: Memtable::default(),
            frozen: None,
            runs,
            merges: Vec::new(),
            retired,
            next_run: manifest.next_run,
            generation: manifest.generation,
            generation_durable: manifest.generation,
        }
    }

    /// What the index holds now. Work handed out (a frozen memtable, merges) is counted in full.
    pub fn memory_use(&self) -> MemoryUse {
        let filters = self.runs.iter().filter_map(|run| run.filter.as_ref());
        let merge_bytes =
            |work: &MergeWork| self.config.merge_buffer_bytes as u64 + work.grant.fence_bytes(work.entry_count);
        MemoryUse {
            memtable_bytes: self.memtable.memory_bytes(),
            frozen_bytes: self
                .frozen
                .as_ref()
                .map_or(0, |frozen| frozen.table.memory_bytes() + frozen.table.sorted_bytes()),
            filter_bytes: filters.map(|filter| filter.bytes()).sum(),
            fence_bytes: self.runs.iter().map(|run| run.fence.bytes()).sum(),
            merge_bytes: self.merges.iter().map(merge_bytes).sum(),
        }
    }

    /// All of [`Index::memory_use`].
    pub fn memory_bytes(&self) -> u64 {
        self.memory_use().total_bytes()
    }

    /// The next filter worth loading: of a merged run, or of one for which there was too little memory before. Read it
    /// without a lock, then [`Index::install_filter`]; ask again until `None`, at least after each adopted merge.
    ///
    /// Newest first: small runs need little memory and cost as many reads as large ones.
    pub fn next_filter_load(&mut self) -> Option<FilterLoad> {
        let free = self.filter_bytes_free();
        let mut runs = self.runs.to_vec();
        let (run, bytes) = runs.iter_mut().filter(|run| run.loads).find_map(|run| {
            // The filter in use stays until the better one has been read: both must fit.
            let bytes = run.meta.filter.folded_bytes(free);
            (bytes > run.filter_bytes).then_some((run, bytes))
        })?;
        run.loads = false;
        run.filter_bytes += bytes;
        let load = FilterLoad {
            meta: run.meta.clone(),
            bytes_max: bytes,
        };
        self.runs = Arc::new(runs);
        Some(load)
    }

    /// Puts a filter to use; without effect if the run has gone meanwhile.
    pub fn install_filter(&mut self, loaded: LoadedFilter) {
        self.change_run(loaded.run, |run| {
            run.loads = true;
            run.set_filter(loaded.filter);
        });
    }

    /// Gives up a filter that could not be read; it is not offered again before the run is merged or reopened.
    pub fn abandon_filter(&mut self, load: FilterLoad) {
        self.change_run(load.meta.run, |run| run.set_filter(run.filter.clone()));
    }

    fn change_run(&mut self, id: RunId, change: impl FnOnce(&mut Run)) {
        let mut runs = self.runs.to_vec();
        if let Some(run) = runs.iter_mut().find(|run| run.id() == id) {
            change(run);
            self.runs = Arc::new(runs);
        }
    }

    fn filter_bytes_free(&self) -> u64 {
        let runs: u64 = self.runs.iter().map(|run| run.filter_bytes).sum();
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.filter_bytes);
        self.config.filter_bytes_max.saturating_sub(runs + frozen)
    }

    fn grant(&self, entry_count: u64, entry_count_all: u64) -> Grant {
        let runs: u64 = self.runs.iter().map(|run| run.fence.bytes()).sum();
        let frozen = self.frozen.as_ref();
        let frozen = frozen.map_or(0, |frozen| frozen.grant.fence_bytes(frozen.table.len() as u64));
        // The fences of a merge's inputs stay until its output, fence included, replaces them.
        let merge_fence = |work: &MergeWork| work.grant.fence_bytes(work.entry_count);
        let merges: u64 = self.merges.iter().map(merge_fence).sum();
        let fence_bytes_free = self.config.fence_bytes_max.saturating_sub(runs + frozen + merges);
        budget::grant(&self.config, entry_count, entry_count_all, fence_bytes_free)
    }
}
