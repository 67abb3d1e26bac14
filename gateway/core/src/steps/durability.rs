//! From journal record to acknowledgement, from acknowledgement to stable storage, from journal to checkpoint.
//!
//! Rules that the crash argument rests on (docs/FORMAT.md):
//! 1. A request is acknowledged when its journal batch and all before it have been written to the file: a killed
//!    daemon loses nothing that was acknowledged.
//! 2. FLUSH and FUA are answered after a sync of cache file and journal that began when their records were written.
//! 3. A slot is reused only when the record that made its block dispensable is durable.

use crate::core_state::Core;
use crate::event::{Answer, Command, DiskError, MetadataError, Refusal, Token};
use crate::format::page::PAGE_ENTRIES;
use crate::format::record::{LinkRun, Lsn, Record};
use crate::format::slot_page::SLOTS_PER_PAGE;
use crate::format::slot_page::{SlotEntry, encode_slot_page};
use crate::state::extent_map::{Extent, Target};
use crate::state::overlay::Frozen;
use crate::state::overlay::Overlay;
use crate::state::slots::{SlotState, likely_object};
use alloc::{collections::BTreeMap, collections::VecDeque, string::String, sync::Arc, vec::Vec};
use tombolo_base::{Instant, Lcbn, Pvbn};

#[derive(Debug)]
pub(crate) struct Durability {
    /// Acknowledgements that wait until the journal is written up to a position.
    unwritten: BTreeMap<Lsn, Vec<Acknowledgement>>,
    /// Those that wait for the next sync.
    waiting: Vec<(Token, Answer)>,
    /// Those that the running sync serves.
    served: Vec<(Token, Answer)>,
    /// Up to where the running sync makes the journal durable.
    syncing: Option<Lsn>,
    /// Slots that may change state once the journal is durable up to a position.
    transitions: VecDeque<(Lsn, Lcbn, SlotTransition)>,
    /// How many of them may do so in this step.
    settle_left: u64,
    sync_wanted: bool,
    /// A checkpoint has failed. If it was for a sync, the next one fails too, even with nothing to bring to the disk, and
    /// the core must hear of that: changes may be waiting for a checkpoint that will never be.
    sync_doubted: bool,
    /// When the oldest unsynced batch was written.
    unsynced_since: Option<Instant>,
    pub checkpoint_lsn: Lsn,
    pub checkpoint_at: Instant,
    pub checkpoint_wanted: bool,
    checkpoint_retry_at: Option<Instant>,
    pub metadata_error: Option<String>,
    /// Records in the frozen overlay, and in the one above it.
    frozen_records: u64,
    pub overlay_records: u64,
    replay_micros_per_record: u64,
}

#[derive(Debug)]
struct Acknowledgement {
    token: Token,
    answer: Answer,
    force_unit_access: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotTransition {
    /// The block was written at this address and is in this object.
    Clean {
        address: u64,
        object: Pvbn,
    },
    Free,
}

/// What a record costs at recovery until one has been measured: at a kill of a busy gateway 308,000 batches took 14 s.
const REPLAY_MICROS_PER_RECORD: u64 = 45;
const REPLAY_MICROS_PER_RECORD_MAX: u64 = 1_000;
const REPLAY_RECORDS_TELLING: u64 = 10_000;
const CHECKPOINT_RETRY_MS: u64 = 1_000;

impl Durability {
    pub fn new(now: Instant, checkpoint_lsn: Lsn) -> Self {
        Self {
            unwritten: BTreeMap::new(),
            waiting: Vec::new(),
            served: Vec::new(),
            syncing: None,
            transitions: VecDeque::new(),
            settle_left: 0,
            sync_wanted: false,
            sync_doubted: false,
            unsynced_since: None,
            checkpoint_lsn,
            checkpoint_at: now,
            checkpoint_wanted: false,
            checkpoint_retry_at: None,
            metadata_error: None,
            frozen_records: 0,
            overlay_records: 0,
            replay_micros_per_record: REPLAY_MICROS_PER_RECORD,
        }
    }
}

impl Core {
    /// Journals and applies records as one batch; returns the LSN behind it.
    pub(crate) fn commit(&mut self, records: Vec<Record>) -> Lsn {
        let unneeded = self.dead_copies(&records);
        let mut transitions = Vec::new();
        for record in &records {
            transitions.append(&mut self.apply(record));
        }
        let has_write = records.iter().any(|record| matches!(record, Record::Write { .. }));
        self.durability.overlay_records += records.len() as u64;
        let write = self.journal.append(self.wall.time_of(self.now), records);
        let end = write.end;
        self.out.push(Command::WriteJournal(write));
        if has_write {
            self.dirty.journaled(self.next_pvbn, end);
        }
        for (slot, becomes) in transitions {
            if becomes == SlotTransition::Free {
                self.slots.retire(slot);
            }
            self.durability.transitions.push_back((end, slot, becomes));
        }
        self.free_dead_copies(unneeded);
        end
    }

    /// A slot will change its state when everything up to `lsn` is durable.
    pub(crate) fn settle_at(&mut self, lsn: Lsn, slot: Lcbn, becomes: SlotTransition) {
        // Nobody syncs for the sake of a mark.
        let lsn = match self.journal.is_durable() {
            true => lsn.min(self.journal.durable()),
            false => lsn,
        };
        self.durability.transitions.push_back((lsn, slot, becomes));
        // Nothing may be left to be synced, so that no later sync would look here.
        self.apply_transitions();
    }

    /// Effects of a record on map, objects, dirty queue and volumes. Returns the slots of blocks that the record makes
    /// dispensable, and what becomes of them once it is durable.
    pub(crate) fn apply(&mut self, record: &Record) -> Vec<(Lcbn, SlotTransition)> {
        match record {
            Record::Write {
                volume,
                first,
                pvbn,
                sums,
                ..
            } => {
                let count = sums.len() as u64;
                self.next_pvbn = self.next_pvbn.max(pvbn.plus(count));
                // Its own blocks become live next.
                self.remap_now(Extent {
                    volume: *volume,
                    first: *first,
                    count,
                    target: Target::At(*pvbn),
                })
            }
            Record::Hole { volume, first, count } => self.remap(Extent {
                volume: *volume,
                first: *first,
                count: *count,
                target: Target::Hole,
            }),
            Record::Redirect {
                volume,
                first,
                count,
                from,
                to,
            } => {
                let target = Target::At(*to);
                let count = u64::from(*count);
                self.losses.forget_places(*volume, *first, first + count);
                (0..count).for_each(|index| self.slots.refer_again(to.plus(index)));
                self.overlay.map.insert(Extent {
                    volume: *volume,
                    first: *first,
                    count,
                    target,
                });
                (0..count)
                    .filter_map(|index| self.redirected(from.plus(index), to.plus(index)))
                    .collect()
            }
            Record::Object(descriptor) => {
                self.overlay
                    .objects
                    .insert(descriptor.first_pvbn().0, Arc::new(descriptor.clone()));
                self.totals.objects += 1;
                self.totals.object_bytes += descriptor.object_bytes() as u64;
                Vec::new()
            }
            Record::Link(LinkRun {
                volume,
                first,
                count,
                pvbn,
            }) => {
                (0..*count).for_each(|index| self.slots.refer_again(pvbn.plus(index)));
                self.remap(Extent {
                    volume: *volume,
                    first: *first,
                    count: *count,
                    target: Target::At(*pvbn),
                })
            }
            Record::Entries(changes) => {
                self.apply_entries(changes);
                Vec::new()
            }
            Record::Create { .. } | Record::Resize { .. } => {
                self.apply_volume_record(record);
                Vec::new()
            }
            Record::Delete { .. } => match self.apply_volume_record(record) {
                Some((volume, blocks)) if blocks > 0 => {
                    self.prefetch_state.prefetcher.forget_volume(volume);
                    self.remap(Extent {
                        volume,
                        first: 0,
                        count: blocks,
                        target: Target::Hole,
                    })
                }
                _ => Vec::new(),
            },
        }
    }

    /// A dirty block's contents are those of `to`, which the cloud has. Its copy stays in the cache under that name,
    /// unless there is one or one is on its way.
    fn redirected(&mut self, from: Pvbn, to: Pvbn) -> Option<(Lcbn, SlotTransition)> {
        let block = self.dirty.remove(from)?;
        if self.slots.find(to).is_some() || self.fetches.contains(to) {
            return Some((block.slot, SlotTransition::Free));
        }
        self.slots.rename(block.slot, to);
        let address = self.own_address(block.volume, block.block, to);
        let object = self.descriptor_of(to).map(|descriptor| descriptor.first_pvbn());
        let object = object.unwrap_or_else(|| likely_object(to));
        Some((block.slot, SlotTransition::Clean { address, object }))
    }

    pub(crate) fn acknowledge_at(&mut self, end: Lsn, token: Token, answer: Answer, force_unit_access: bool) {
        let acknowledgement = Acknowledgement {
            token,
            answer,
            force_unit_access,
        };
        self.durability.unwritten.entry(end).or_default().push(acknowledgement);
    }

    pub(crate) fn on_flush(&mut self, token: Token) {
        if let Some(error) = &self.failed {
            return self.answer(token, Err(Refusal::Failed(error.clone())));
        }
        if self.journal.is_durable() {
            return self.answer(token, Ok(Answer::Done));
        }
        let changed = self.journal.next();
        if self.journal.written() < changed {
            // Readers see changes whose batch is still being written, and who syncs what was seen means those, too.
            return self.acknowledge_at(changed, token, Answer::Done, true);
        }
        self.durability.waiting.push((token, Answer::Done));
    }

    pub(crate) fn on_journal_written(&mut self, lsn: Lsn, end: Lsn, result: Result<(), DiskError>) {
        if let Err(error) = result {
            self.fail(error);
            self.refuse_all_waiting();
            return;
        }
        if self.failed.is_some() {
            return;
        }
        let written = self.journal.on_written(lsn, end);
        if self.journal.has_unsynced() {
            self.durability.unsynced_since.get_or_insert(self.now);
        }
        while let Some(entry) = self.durability.unwritten.first_entry()
            && *entry.key() <= written
        {
            for acknowledgement in entry.remove() {
                if acknowledgement.force_unit_access {
                    self.durability
                        .waiting
                        .push((acknowledgement.token, acknowledgement.answer));
                } else {
                    self.acknowledge_throttled(acknowledgement.token, acknowledgement.answer);
                }
            }
        }
    }

    pub(crate) fn on_synced(&mut self, result: Result<(), DiskError>) {
        let Some(upto) = self.durability.syncing.take() else {
            return;
        };
        self.counters.syncs += 1;
        match result {
            Ok(()) => {
                self.on_durable(upto);
                if let Some(mark) = self.journal.append_mark(self.wall.time_of(self.now)) {
                    self.out.push(Command::WriteJournal(mark));
                }
                for (token, answer) in core::mem::take(&mut self.durability.served) {
                    self.acknowledge_throttled(token, answer);
                }
            }
            Err(error) => {
                self.fail(error);
                self.refuse_all_waiting();
            }
        }
    }

    fn on_durable(&mut self, upto: Lsn) {
        self.journal.on_durable(upto);
        self.dirty.on_durable(upto);
        self.apply_transitions();
    }

    fn apply_transitions(&mut self) {
        let upto = self.journal.durable();
        while self.durability.settle_left > 0
            && let Some((lsn, slot, becomes)) = self.durability.transitions.front().copied()
            && lsn <= upto
        {
            self.durability.transitions.pop_front();
            self.durability.settle_left -= 1;
            match becomes {
                SlotTransition::Clean { address, object } if self.slots.state(slot) == SlotState::Dirty => {
                    self.slots.clean(slot, address, object);
                }
                SlotTransition::Clean { .. } => {}
                SlotTransition::Free => self.slots.release(slot),
            }
        }
    }

    /// A step begins. What one settles is bounded; what is left of it goes on in the next.
    pub(crate) fn settle_again(&mut self) {
        self.durability.settle_left = self.config.sweep_blocks_max;
        self.apply_transitions();
    }

    /// Whether slots wait for nothing but another step.
    pub(crate) fn may_settle(&self) -> bool {
        let upto = self.journal.durable();
        let front = self.durability.transitions.front();
        front.is_some_and(|(lsn, _, _)| *lsn <= upto)
    }

    fn refuse_all_waiting(&mut self) {
        let Some(error) = self.failed.clone() else { return };
        let mut tokens: Vec<Token> = Vec::new();
        tokens.extend(self.durability.served.drain(..).map(|(token, _)| token));
        tokens.extend(self.durability.waiting.drain(..).map(|(token, _)| token));
        for (_, acknowledgements) in core::mem::take(&mut self.durability.unwritten) {
            tokens.extend(
                acknowledgements
                    .into_iter()
                    .map(|acknowledgement| acknowledgement.token),
            );
        }
        for token in tokens {
            self.answer(token, Err(Refusal::Failed(error.clone())));
        }
    }

    /// Asks for a sync soon: slots or uploads wait for durability.
    pub(crate) fn want_sync(&mut self) {
        self.durability.sync_wanted = true;
    }

    pub(crate) fn is_settling(&self) -> bool {
        !self.durability.transitions.is_empty()
    }

    pub(crate) fn pump_durability(&mut self) {
        if self.failed.is_some() {
            self.refuse_all_waiting();
            return;
        }
        self.pump_checkpoint();
        self.pump_sync();
    }

    fn pump_sync(&mut self) {
        let durability = &mut self.durability;
        if durability.syncing.is_some() {
            return;
        }
        if !self.journal.has_unsynced() && !durability.sync_doubted {
            durability.sync_wanted = false;
            durability.unsynced_since = None;
            if durability.waiting.is_empty() {
                return;
            }
        }
        let overdue = durability
            .unsynced_since
            .is_some_and(|since| self.now >= since.plus_millis(self.config.sync_interval_ms));
        let is_wanted = durability.sync_wanted || durability.sync_doubted;
        if durability.waiting.is_empty() && !is_wanted && !overdue {
            return;
        }
        let mark = self.journal.mark_of_written();
        durability.syncing = Some(mark.lsn);
        durability.served = core::mem::take(&mut durability.waiting);
        durability.sync_wanted = false;
        durability.sync_doubted = false;
        durability.unsynced_since = None;
        self.out.push(Command::Sync { mark });
    }

    fn pump_checkpoint(&mut self) {
        if let Some(frozen) = &self.frozen {
            if self.durability.checkpoint_retry_at.is_some_and(|at| self.now >= at) {
                self.durability.checkpoint_retry_at = None;
                self.out.push(Command::Checkpoint {
                    frozen: frozen.clone(),
                    pages_max: self.config.checkpoint_pages_max,
                });
            }
            return;
        }
        if !self.has_changes() {
            self.durability.checkpoint_wanted = false;
            return;
        }
        let due = self.now
            >= self
                .durability
                .checkpoint_at
                .plus_millis(self.config.checkpoint_interval_ms)
            || self.is_overlay_full()
            // It lets go of segments.
            || self.journal.is_full()
            || self.slots.changed_page_count() >= self.config.overlay_slot_pages_max;
        // The frozen state must hold nothing that the disk might still refuse to have journaled, and call no slot dirty that
        // is to be given up.
        let is_complete = self.journal.written() == self.journal.next() && !self.is_sweeping();
        if (due || self.durability.checkpoint_wanted) && is_complete {
            self.durability.checkpoint_wanted = false;
            self.freeze();
        }
    }

    /// Whether a checkpoint is due for what has changed since the last one was frozen. Nothing may be added to that:
    /// what is frozen and what is not are thus each bounded, while a checkpoint takes long or fails.
    pub(crate) fn is_overlay_full(&self) -> bool {
        let (config, overlay) = (&self.config, &self.overlay);
        let frozen = self.frozen.as_ref().map(|frozen| frozen.superblock.lsn);
        let since = frozen.unwrap_or(self.durability.checkpoint_lsn);
        self.journal.bytes_since(since) >= config.checkpoint_journal_bytes
            || overlay.map.len() >= config.overlay_extents_max
            || overlay.objects.len() >= config.overlay_objects_max
            || overlay.entries.bytes() >= config.overlay_entry_bytes_max
            || self.durability.overlay_records >= (self.replay_records_max() / 2).max(1)
    }

    /// Whether changes have to wait for a checkpoint or for the disk.
    pub(crate) fn has_no_room(&self) -> bool {
        self.is_overlay_full() || self.journal.is_full()
    }

    /// Records that recovery may have to replay at the most.
    pub(crate) fn replay_records_max(&self) -> u64 {
        let by_time = self.config.replay_ms_max.saturating_mul(1_000) / self.durability.replay_micros_per_record;
        self.config.replay_records_max.min(by_time)
    }

    /// Records that recovery would have to replay now, and how long that would take.
    pub(crate) fn replay(&self) -> (u64, u64) {
        let records = self.durability.frozen_records + self.durability.overlay_records;
        (
            records,
            records.saturating_mul(self.durability.replay_micros_per_record) / 1_000,
        )
    }

    /// What a recovery of so many records took, to foresee the next. Few records tell little.
    pub fn learn_replay_cost(&mut self, records: u64, micros: u64) {
        if records >= REPLAY_RECORDS_TELLING {
            self.durability.replay_micros_per_record = (micros / records).clamp(1, REPLAY_MICROS_PER_RECORD_MAX);
        }
    }

    /// Whether a checkpoint would change anything: the journal, which blocks the cache holds, or the index.
    pub(crate) fn has_changes(&self) -> bool {
        self.journal.bytes_since(self.durability.checkpoint_lsn) > 0
            || self.slots.has_changes()
            || self.flush.remembered > 0
    }

    fn freeze(&mut self) {
        let lsn = self.journal.next();
        let overlay = core::mem::take(&mut self.overlay);
        let changed = self.slots.take_changed_pages();
        let slot_pages = changed.into_iter().map(|page| (page, self.slot_page(page))).collect();
        let superblock = self.superblock(lsn);
        let frozen = Arc::new(Frozen {
            superblock,
            map: overlay.map,
            objects: overlay.objects,
            entries: overlay.entries,
            slot_pages,
        });
        self.overlay = Overlay::default();
        self.durability.frozen_records = core::mem::take(&mut self.durability.overlay_records);
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
            self.durability.metadata_error = Some(error.0);
            self.durability.checkpoint_retry_at = Some(self.now.plus_millis(CHECKPOINT_RETRY_MS));
            self.durability.sync_doubted = true;
            return;
        }
        self.frozen = None;
        self.durability.frozen_records = 0;
        self.generation += 1;
        self.counters.checkpoints += 1;
        self.durability.metadata_error = None;
        self.durability.checkpoint_at = self.now;
        self.durability.checkpoint_lsn = frozen.superblock.lsn;
        self.forget_pages(&frozen);
        for (first, descriptor) in &frozen.objects {
            self.descriptors
                .insert(*first, descriptor.clone(), descriptor.header_bytes());
        }
        // Cache file and metadata are on stable storage up to here, whatever the journal's own sync has reached.
        self.on_durable(frozen.superblock.lsn);
        let keep_from = self.journal.trim(frozen.superblock.lsn);
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

    pub(crate) fn durability_deadline(&self) -> Option<Instant> {
        if self.failed.is_some() {
            return None;
        }
        let sync = self
            .durability
            .unsynced_since
            .filter(|_| self.durability.syncing.is_none())
            .map(|since| since.plus_millis(self.config.sync_interval_ms));
        let checkpoint = match &self.frozen {
            Some(_) => self.durability.checkpoint_retry_at,
            None if self.has_changes() && self.journal.written() == self.journal.next() && !self.is_sweeping() => Some(
                self.durability
                    .checkpoint_at
                    .plus_millis(self.config.checkpoint_interval_ms),
            ),
            None => None,
        };
        [sync, checkpoint].into_iter().flatten().min()
    }
}

#[cfg(test)]
#[path = "durability_tests.rs"]
mod tests;
