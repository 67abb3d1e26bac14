//! When a checkpoint begins, what it holds, and what it makes dispensable.

use crate::core_state::Core;
use crate::event::{Command, MetadataError};
use crate::format::page::PAGE_ENTRIES;
use crate::format::slot_page::{SLOTS_PER_PAGE, SlotEntry, encode_slot_page};
use crate::state::overlay::Frozen;
use crate::state::slots::SlotState;
use alloc::{sync::Arc, vec::Vec};
use tombolo_base::Lcbn;

const REPLAY_MICROS_PER_RECORD_MAX: u64 = 1_000;
const REPLAY_RECORDS_TELLING: u64 = 10_000;
pub(crate) const CHECKPOINT_RETRY_MS: u64 = 1_000;

impl Core {
    pub(crate) fn pump_checkpoint(&mut self) {
        if let Some(frozen) = &self.frozen {
            if self.checkpoints.retry_at.is_some_and(|at| self.now >= at) {
                self.checkpoints.retry_at = None;
                self.out.push(Command::Checkpoint {
                    frozen: frozen.clone(),
                    pages_max: self.config.checkpoint_pages_max,
                });
            }
            return;
        }
        if !self.has_changes() {
            self.checkpoints.is_wanted = false;
            return;
        }
        let due = self.now
            >= self
                .checkpoints.at
                .plus_millis(self.config.checkpoint_interval_ms)
            || self.is_overlay_full()
            // It lets go of segments.
            || self.journal.is_full()
            || self.slots.changed_page_count() >= self.config.overlay_slot_pages_max;
        // The frozen state must hold nothing that the disk might still refuse to have journaled, and call no slot dirty that
        // is to be given up.
        let is_complete = self.journal.written() == self.journal.next() && !self.is_sweeping();
        if (due || self.checkpoints.is_wanted) && is_complete {
            self.checkpoints.is_wanted = false;
            self.freeze();
        }
    }

    /// Whether a checkpoint is due for what has changed since the last one was frozen. Nothing may be added to that:
    /// what is frozen and what is not are thus each bounded, while a checkpoint takes long or fails.
    pub(crate) fn is_overlay_full(&self) -> bool {
        let (config, overlay) = (&self.config, &self.overlay);
        let frozen = self.frozen.as_ref().map(|frozen| frozen.superblock.lsn);
        let since = frozen.unwrap_or(self.checkpoints.lsn);
        self.journal.bytes_since(since) >= config.checkpoint_journal_bytes
            || overlay.map.len() >= config.overlay_extents_max
            || overlay.object_blocks >= config.overlay_object_blocks_max
            || overlay.entries.bytes() >= config.overlay_entry_bytes_max
            || self.checkpoints.overlay_records >= (self.replay_records_max() / 2).max(1)
    }

    /// Whether changes have to wait for a checkpoint or for the disk.
    pub(crate) fn has_no_room(&self) -> bool {
        self.is_overlay_full() || self.journal.is_full()
    }

    /// Whether clients' changes have to wait; those that lead to a recovery point do not wait for one.
    pub(crate) fn must_changes_wait(&self) -> bool {
        self.has_no_room() || self.is_unpublished_full()
    }

    /// Records that recovery may have to replay at the most.
    pub(crate) fn replay_records_max(&self) -> u64 {
        let by_time = self.config.replay_ms_max.saturating_mul(1_000) / self.checkpoints.replay_micros_per_record;
        self.config.replay_records_max.min(by_time)
    }

    /// Records that recovery would have to replay now, and how long that would take.
    pub(crate) fn replay(&self) -> (u64, u64) {
        let records = self.checkpoints.frozen_records + self.checkpoints.overlay_records;
        (
            records,
            records.saturating_mul(self.checkpoints.replay_micros_per_record) / 1_000,
        )
    }

    /// What a recovery of so many records took, to foresee the next. Few records tell little.
    pub fn learn_replay_cost(&mut self, records: u64, micros: u64) {
        if records >= REPLAY_RECORDS_TELLING {
            self.checkpoints.replay_micros_per_record = (micros / records).clamp(1, REPLAY_MICROS_PER_RECORD_MAX);
        }
    }

    /// So many fingerprints get into the index that no upload of this life has made; the next checkpoint writes them. False: there
    /// is no room for them before one.
    pub fn reserve_fingerprints(&mut self, count: usize) -> bool {
        let remembered = self.flush.remembered + count;
        if self.flush.remembered > 0 && remembered > self.config.fingerprints_max {
            return false;
        }
        self.flush.remembered = remembered;
        true
    }

    /// The index has room in memory for so many, between two checkpoints.
    pub fn fingerprints_max(&self) -> usize {
        self.config.fingerprints_max
    }

    /// How many checkpoints were made in this life.
    pub fn checkpoints_made(&self) -> u64 {
        self.counters.checkpoints
    }

    /// How many checkpoints have to be made until there is one that has everything up to now.
    pub fn next_checkpoint(&self) -> u64 {
        self.counters.checkpoints + 1 + u64::from(self.frozen.is_some())
    }

    /// Whether a checkpoint would change anything: the journal, which blocks the cache holds, or the index.
    pub(crate) fn has_changes(&self) -> bool {
        self.journal.bytes_since(self.checkpoints.lsn) > 0 || self.slots.has_changes() || self.flush.remembered > 0
    }

    fn freeze(&mut self) {
        assert!(self.frozen.is_none(), "one checkpoint at a time");
        let frozen = Arc::new(self.take_frozen());
        self.checkpoints.frozen_records = core::mem::take(&mut self.checkpoints.overlay_records);
        self.frozen = Some(frozen.clone());
        // The index is set aside with it.
        self.flush.remembered = 0;
        self.out.push(Command::Checkpoint {
            frozen,
            pages_max: self.config.checkpoint_pages_max,
        });
        // What waited for room has it now.
        self.pump_writes();
        self.pump_flush();
    }

    /// What has changed since the last checkpoint; from now on nothing has.
    pub(crate) fn take_frozen(&mut self) -> Frozen {
        assert!(!self.is_sweeping(), "every slot's state is known");
        let lsn = self.journal.next();
        assert_eq!(
            lsn,
            self.journal.written(),
            "nothing is frozen that may still be refused"
        );
        let overlay = core::mem::take(&mut self.overlay);
        let changed = self.slots.take_changed_pages();
        let slot_pages = changed.into_iter().map(|page| (page, self.slot_page(page))).collect();
        Frozen {
            superblock: self.superblock(lsn),
            map: overlay.map,
            objects: overlay.objects,
            entries: overlay.entries,
            slot_pages,
        }
    }

    fn slot_page(&self, page: u32) -> Vec<u8> {
        let first = page * SLOTS_PER_PAGE;
        let end = (first + SLOTS_PER_PAGE).min(self.slots.count());
        encode_slot_page((first..end).map(|slot| self.slot_entry(Lcbn(slot))))
    }

    fn slot_entry(&self, slot: Lcbn) -> SlotEntry {
        let (pvbn, sum) = (self.slots.pvbn(slot), self.slots.sum(slot));
        match self.slots.state(slot) {
            SlotState::Free | SlotState::Taken | SlotState::Retiring | SlotState::Withdrawn => SlotEntry::Free,
            SlotState::Clean => SlotEntry::Clean { pvbn, sum },
            SlotState::Corrupt => match self.corrupt.iter().find(|(_, held)| **held == slot) {
                Some((&(volume, block), _)) => SlotEntry::Corrupt {
                    pvbn,
                    sum,
                    volume,
                    block,
                },
                None => SlotEntry::Free,
            },
            SlotState::Dirty => match self.dirty.find(pvbn) {
                Some(block) if self.dirty.is_live(block) => SlotEntry::Dirty {
                    pvbn,
                    sum,
                    volume: block.volume,
                    block: block.block,
                },
                // Overwritten while a job holds it: nothing needs it after a restart.
                Some(_) => SlotEntry::Free,
                // Uploaded or redirected; the checkpoint itself makes that durable.
                None => SlotEntry::Clean { pvbn, sum },
            },
        }
    }

    pub(crate) fn on_checkpointed(&mut self, result: Result<(), MetadataError>) {
        let Some(frozen) = self.frozen.clone() else { return };
        if let Err(error) = result {
            self.checkpoints.metadata_error = Some(error);
            self.checkpoints.retry_at = Some(self.now.plus_millis(CHECKPOINT_RETRY_MS));
            self.group_commit.is_doubted = true;
            return;
        }
        assert!(
            self.checkpoints.lsn <= frozen.superblock.lsn,
            "checkpoints follow each other"
        );
        assert!(frozen.superblock.lsn <= self.journal.written());
        self.frozen = None;
        self.checkpoints.frozen_records = 0;
        self.generation += 1;
        self.counters.checkpoints += 1;
        self.checkpoints.metadata_error = None;
        self.checkpoints.at = self.now;
        self.checkpoints.lsn = frozen.superblock.lsn;
        self.forget_pages(&frozen);
        for (first, descriptor) in &frozen.objects {
            self.descriptors
                .insert(*first, descriptor.clone(), descriptor.encoded_bytes());
        }
        // Cache file and metadata are on stable storage up to here, whatever the journal's own sync has reached.
        self.on_durable(frozen.superblock.lsn);
        self.trim_journal();
    }

    /// Recovery replays the journal behind the checkpoint, and finds in it what the bucket lacks.
    pub(crate) fn trim_journal(&mut self) {
        let needed = self.checkpoints.lsn.min(self.unpublished.needed_from());
        let keep_from = self.journal.trim(needed);
        self.out.push(Command::TrimJournal { keep_from });
    }

    /// Drops cached pages that the checkpoint has changed.
    fn forget_pages(&mut self, frozen: &Frozen) {
        for extent in frozen.map.iter() {
            let pages = extent.first / PAGE_ENTRIES..=(extent.end() - 1) / PAGE_ENTRIES;
            if pages.clone().count() > 4096 {
                self.pages = crate::state::weighted_lru::WeightedLru::new(self.config.map_cache_bytes);
                return;
            }
            for page in pages {
                self.pages.remove((extent.volume, page));
            }
        }
    }
}
