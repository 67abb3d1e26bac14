//! Checkpoints: cache file and journal to disk, overlay and index into LMDB, in transactions of bounded size. Then the
//! index's runs are merged.

use super::Gateway;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use tombolo_core::{Event, Frozen, JournalMark, Merge, MetadataError};
use tombolo_dedup::{FilterLoad, Flush, Manifest};

/// The index's part of a checkpoint.
pub struct IndexCheckpoint {
    /// Which checkpoint it belongs to.
    frozen: Weak<Frozen>,
    /// Still to be written.
    flush: Option<Flush>,
    manifest: Option<Manifest>,
}

/// Pages merged between two looks at whether the gateway stops.
const MERGE_PAGES: u64 = 1024;

impl Gateway {
    pub(super) fn checkpoint(self: &Arc<Self>, frozen: Arc<Frozen>, pages_max: usize) {
        let gateway = self.clone();
        self.checkpointing.run(move || {
            let result = gateway.write_checkpoint(Merge::new(frozen, pages_max));
            if let Err(error) = &result {
                tracing::error!(%error, "checkpoint failed; it will be tried again");
            }
            let is_durable = result.is_ok();
            gateway.submit(Event::Checkpointed { result });
            if is_durable {
                gateway.save_history_sometimes();
                gateway.compact();
            }
        });
    }

    fn write_checkpoint(&self, mut merge: Merge) -> Result<(), MetadataError> {
        let failed = |step: &str, error: &dyn std::fmt::Display| MetadataError::Local(format!("{step}: {error}"));
        // What the frozen state says of dirty slots must be on the disk before it is told, and the journal that a
        // restart in the middle would replay.
        self.cache.sync().map_err(|error| failed("cache file sync", &error))?;
        self.journal.sync().map_err(|error| failed("journal sync", &error))?;
        // Whoever reads what one checkpoint has left waits until the next one is whole.
        let mut is_settled = self.is_settled.lock().unwrap_or_else(PoisonError::into_inner);
        *is_settled = false;
        let superblock = &merge.frozen().superblock;
        self.cache.note_journal(JournalMark {
            segment: superblock.segment,
            lsn: superblock.lsn,
        });
        // Durably, before local metadata says as much: a cache file that notes less is an older copy.
        self.cache.sync().map_err(|error| failed("cache file sync", &error))?;
        let manifest = self.flush_index();
        loop {
            let mut writing = self.metadata.write().map_err(|error| failed("begin", &error))?;
            let is_last = merge.step(&mut writing).map_err(|fault| match fault.into() {
                MetadataError::Local(reason) => failed("merge", &reason),
                in_store => in_store,
            })?;
            if let Some(manifest) = manifest.as_ref().filter(|_| is_last) {
                writing
                    .put_manifest(&manifest.encode())
                    .map_err(|error| failed("index manifest", &error))?;
            }
            writing.commit().map_err(|error| failed("commit", &error))?;
            // Committed, so the file is durable as long as it is now, and nobody else makes it longer.
            self.cache.note_metadata(self.metadata.file_bytes());
            if is_last {
                break;
            }
        }
        *is_settled = true;
        drop(is_settled);
        if let Some(manifest) = manifest {
            self.index().manifest_is_durable(&manifest);
            self.delete_obsolete_runs();
        }
        Ok(())
    }

    /// Sets the memtable aside; runs under the core's lock, in the order of the steps. A checkpoint that is tried
    /// again keeps the part that it has.
    pub(super) fn freeze_index(&self, frozen: &Arc<Frozen>) {
        let frozen = Arc::downgrade(frozen);
        let mut checkpoint = self.index_checkpoint();
        if checkpoint.as_ref().is_none_or(|found| !found.frozen.ptr_eq(&frozen)) {
            let flush = self.index().freeze();
            *checkpoint = Some(IndexCheckpoint {
                frozen,
                flush,
                manifest: None,
            });
        }
    }

    /// Writes the memtable that was set aside as a run. A failure costs dedup of these blocks after a restart, nothing
    /// else, so it does not keep the checkpoint from being made.
    fn flush_index(&self) -> Option<Manifest> {
        let Some(IndexCheckpoint { flush, manifest, .. }) = &mut *self.index_checkpoint() else {
            return None;
        };
        if let Some(set_aside) = flush {
            match set_aside.write(&self.index_files) {
                Ok(flushed) => {
                    // Refused only when the run was dropped meanwhile; the manifest does not name it then.
                    let _ = self.index().adopt_flush(flushed);
                    self.index_is_full.store(false, Ordering::Relaxed);
                    *flush = None;
                }
                Err(error) => {
                    tracing::warn!(%error, run = ?set_aside.run(), "the fingerprint index could not be flushed");
                    return None;
                }
            }
        }
        Some(manifest.get_or_insert_with(|| self.index().manifest()).clone())
    }

    fn index_checkpoint(&self) -> MutexGuard<'_, Option<IndexCheckpoint>> {
        self.index_checkpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// On its own, so that the index's lock is not held while the filter is read.
    fn next_filter_load(&self) -> Option<FilterLoad> {
        self.index().next_filter_load()
    }

    fn delete_obsolete_runs(&self) {
        use tombolo_dedup::RunStorage as _;
        let obsolete = self.index().obsolete_runs();
        for run in obsolete {
            if let Err(error) = self.index_files.delete(run) {
                tracing::warn!(%error, ?run, "an old run of the fingerprint index could not be removed");
            }
        }
    }

    /// Merges runs in the background, one merge at a time.
    fn compact(self: &Arc<Self>) {
        let gateway = self.clone();
        self.compacting.run(move || while gateway.compact_once() {});
    }

    fn compact_once(&self) -> bool {
        let merge = {
            let mut index = self.index();
            index.plan_compaction().and_then(|plan| index.start_merge(&plan))
        };
        let Some(mut merge) = merge else { return false };
        loop {
            match merge.step(&self.index_files, MERGE_PAGES) {
                Ok(None) => {}
                Ok(Some(merged)) => {
                    let adopted = self.index().adopt_merge(merged);
                    self.load_filters();
                    return adopted.is_ok();
                }
                Err(error) => {
                    tracing::warn!(%error, "a merge of the fingerprint index failed");
                    let run = self.index().abandon_merge(merge);
                    let _ = tombolo_dedup::RunStorage::delete(&self.index_files, run);
                    return false;
                }
            }
        }
    }

    /// Reads the filters of merged runs, which do without one until then.
    fn load_filters(&self) {
        while let Some(load) = self.next_filter_load() {
            match load.read(&self.index_files) {
                Ok(loaded) => self.index().install_filter(loaded),
                Err(error) => {
                    tracing::warn!(%error, "the filter of a merged run could not be read");
                    return self.index().abandon_filter(load);
                }
            }
        }
    }
}
