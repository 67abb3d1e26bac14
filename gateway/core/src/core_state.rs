//! The core's state, the dispatch of events, its deadlines, and what it tells about itself.

use crate::checkpoint::{Frozen, Superblock, Totals, Volume};
use crate::config::Config;
use crate::dirty::Dirty;
use crate::durability::Durability;
use crate::entries::Entries;
use crate::event::{Answer, Command, DiskError, Event, Refusal, Token};
use crate::extent_map::{ExtentMap, Target};
use crate::fetch::Fetches;
use crate::flush::Flush;
use crate::journal::Journal;
use crate::losses::{Losses, LostRun};
use crate::page::{MapPage, PAGE_ENTRIES};
use crate::partial_write::PartialWrites;
use crate::policies::{PolicySnapshot, PrefetchState};
use crate::read::{Query, Reads};
use crate::record::{Lsn, VOLUME_BLOCKS_MAX};
use crate::slots::Slots;
use crate::verification::Verification;
use crate::volumes::VolumeChange;
use crate::wall_clock::WallClock;
use crate::weighted_lru::WeightedLru;
use crate::write::Writes;
use alloc::{collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use tombolo_base::{Instant, Lcbn, ObjectDescriptor, Pvbn, VolumeId, WallTime};

/// Changes since the last checkpoint; reads look here before local metadata.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    pub map: ExtentMap,
    pub objects: BTreeMap<u64, Arc<ObjectDescriptor>>,
    pub entries: Entries,
}

/// Events counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub fetches: u64,
    pub fetch_failures: u64,
    pub uploads: u64,
    pub upload_failures: u64,
    pub upload_bytes: u64,
    pub syncs: u64,
    pub checkpoints: u64,
    pub writes_throttled: u64,
    pub writes_stalled: u64,
    pub writes_refused_busy: u64,
    /// Reads whose blocks the store did not bring.
    pub reads_refused: u64,
    pub slots_stale: u64,
    pub slots_corrupt: u64,
    pub blocks_lost: u64,
}

/// What is known of the cloud from the last requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreState {
    pub last_success: Option<Instant>,
    /// Set while the latest request has failed.
    pub error: Option<String>,
    pub error_since: Option<Instant>,
}

/// A look at the core for `status` and `/metrics`.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub counters: Counters,
    pub totals: Totals,
    pub store: StoreState,
    pub volumes: Vec<Volume>,
    pub slot_count: u32,
    pub slots_clean: u32,
    pub slots_dirty: u32,
    pub slots_corrupt: u32,
    /// Blocks that read as errors, as far as is known, and the first of them.
    pub lost_blocks: u64,
    pub lost_runs: Vec<LostRun>,
    pub dirty_blocks: u64,
    pub dirty_blocks_max: u32,
    /// The first of them, and when it was written at the latest, also if that was before the start.
    pub oldest_dirty_pvbn: Option<Pvbn>,
    pub oldest_dirty: Option<Instant>,
    pub draining: bool,
    pub journal_bytes: u64,
    /// Records that recovery would replay now, the most it ever has to, and how long the former would take.
    pub replay_records: u64,
    pub replay_records_max: u64,
    pub replay_ms: u64,
    /// Changes wait for the checkpoint under way.
    pub waits_for_checkpoint: bool,
    /// Changes wait for room on the local disk.
    pub waits_for_journal: bool,
    pub last_checkpoint: Instant,
    pub uploads_in_flight: u64,
    pub fetches_in_flight: u64,
    pub writes_waiting: u64,
    pub failed: Option<DiskError>,
    pub metadata_error: Option<String>,
    pub policies: PolicySnapshot,
    pub slot_memory_bytes: u64,
    pub dirty_memory_bytes: u64,
    pub map_cache_bytes: u64,
    pub descriptor_cache_bytes: u64,
    pub overlay_extents: u64,
    pub overlay_entry_bytes: u64,
}

pub struct Core {
    pub(crate) config: Config,
    pub(crate) now: Instant,
    pub(crate) wall: WallClock,
    pub(crate) out: Vec<Command>,
    pub(crate) volumes: BTreeMap<VolumeId, Volume>,
    pub(crate) next_volume: u64,
    pub(crate) next_pvbn: Pvbn,
    pub(crate) next_job: u64,
    pub(crate) journal: Journal,
    pub(crate) slots: Slots,
    pub(crate) dirty: Dirty,
    /// Blocks whose only copy is damaged, until they are overwritten.
    pub(crate) corrupt: BTreeMap<(VolumeId, u64), Lcbn>,
    pub(crate) overlay: Overlay,
    /// Every counter of the entries; those that are nothing are left out.
    pub(crate) counters_of_entries: BTreeMap<Vec<u8>, i64>,
    pub(crate) frozen: Option<Arc<Frozen>>,
    /// Counts checkpoints, so that a page read before one is not kept after it.
    pub(crate) generation: u64,
    pub(crate) pages: WeightedLru<(VolumeId, u64), MapPage>,
    pub(crate) descriptors: WeightedLru<u64, Arc<ObjectDescriptor>>,
    pub(crate) prefetch_state: PrefetchState,
    pub(crate) writes: Writes,
    pub(crate) partial_writes: PartialWrites,
    pub(crate) reads: Reads,
    pub(crate) fetches: Fetches,
    pub(crate) flush: Flush,
    pub(crate) verification: Verification,
    pub(crate) losses: Losses,
    pub(crate) durability: Durability,
    pub(crate) counters: Counters,
    pub(crate) totals: Totals,
    pub(crate) store: StoreState,
    pub(crate) failed: Option<DiskError>,
    /// Dirty blocks that this start has found: more than the cap where that was set lower, or where blocks are among them
    /// whose only copy was known to be damaged, which is not kept over a kill.
    pub(crate) recovered_dirty: u32,
}

/// What the map says of a block.
pub(crate) enum Lookup {
    /// The target, and for how many blocks it goes on.
    Known(Target, u64),
    /// The page is not in memory.
    NeedPage(u64),
}

impl Core {
    /// Takes in an event and appends what is to be done.
    pub fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Command>) {
        self.now = self.now.max(now);
        self.slots.return_withdrawn(self.now);
        self.settle_again();
        self.dispatch(event);
        self.pump_sweep();
        self.pump();
        // A pump may have refused the read of a partial write's edge.
        while self.partial_writes.has_answers() {
            self.pump();
        }
        out.append(&mut self.out);
    }

    fn pump(&mut self) {
        self.pump_partial_writes();
        self.pump_writes();
        self.pump_flush();
        self.pump_reads();
        self.pump_fetches();
        self.pump_durability();
        self.pump_policies();
        self.pump_losses();
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Read { token, client, span } => self.on_read(token, client, span),
            Event::Write {
                token,
                span,
                sums,
                force_unit_access,
                change,
            } => {
                self.on_write(token, span, sums, force_unit_access, change);
            }
            Event::WritePartly { token, write } => self.on_write_partly(token, write),
            Event::Merged { token, sums } => self.on_merged(token, sums),
            Event::Zero {
                token,
                span,
                force_unit_access,
            } => self.on_zero(token, span, force_unit_access),
            Event::Flush { token } => self.on_flush(token),
            Event::Status { token, span } => self.on_query(token, span, Query::Status),
            Event::Resolve { token, span } => self.on_query(token, span, Query::Resolve),
            Event::Commit { token, change, links } => self.on_commit(token, change, links),
            Event::Cancel { token } => self.on_cancel(token),
            Event::VolumeCreate { token, name, blocks } => {
                self.on_volume_change(token, VolumeChange::Create { name, blocks });
            }
            Event::VolumeResize { token, volume, blocks } => {
                self.on_volume_change(token, VolumeChange::Resize { volume, blocks });
            }
            Event::VolumeDelete { token, volume } => self.on_volume_change(token, VolumeChange::Delete { volume }),
            Event::Drain => self.flush.drain_to = Some(self.next_pvbn),
            Event::CheckpointNow => self.durability.checkpoint_wanted = true,
            Event::SlotsWritten { token, result } => self.on_slots_written(token, result),
            Event::SlotsRead {
                token,
                result,
                corrupt,
                unreadable,
            } => self.on_slots_read(token, result, corrupt, unreadable),
            Event::JournalWritten { lsn, end, result } => self.on_journal_written(lsn, end, result),
            Event::Synced { result } => self.on_synced(result),
            Event::PageLoaded {
                volume,
                page,
                generation,
                result,
            } => {
                self.on_page_loaded(volume, page, generation, result);
            }
            Event::DescriptorLoaded { pvbn, result } => self.on_descriptor_loaded(pvbn, result),
            Event::Fetched { fetch, result } => self.on_fetched(fetch, result),
            Event::Hashed { job, results } => self.on_hashed(job, results),
            Event::Uploaded { job, result } => self.on_uploaded(job, result),
            Event::Verified { job, result } => self.on_verified(job, result),
            Event::CopiesFound { job, copies } => self.on_copies_found(job, copies),
            Event::Checkpointed { result } => self.on_checkpointed(result),
            Event::JournalFull { segment } => self.journal.set_lacking(Some(segment)),
            Event::JournalHasRoom => self.journal.set_lacking(None),
            Event::WallClock { micros } => self.wall = WallClock::new(self.now, micros),
            Event::Tick => {}
        }
    }

    /// When the next [`Event::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        [
            self.write_deadline(),
            self.flush_deadline(),
            self.read_deadline(),
            self.durability_deadline(),
            self.sweep_deadline(),
            self.slots.withdrawn_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub fn is_drained(&self) -> bool {
        self.dirty.is_empty()
    }

    /// True when a checkpoint holds everything journaled so far.
    pub fn is_checkpointed(&self) -> bool {
        self.frozen.is_none() && !self.has_changes()
    }

    /// Slots from this one on hold nothing; for the world, before it lets the core run.
    pub fn slots_used_to(&self) -> Lcbn {
        self.slots.used_to()
    }

    pub fn volume(&self, volume: VolumeId) -> Option<&Volume> {
        self.volumes.get(&volume)
    }

    pub fn volume_named(&self, name: &str) -> Option<&Volume> {
        self.volumes.values().find(|volume| volume.name == name)
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            counters: self.counters,
            totals: self.totals,
            store: self.store.clone(),
            volumes: self.volumes.values().cloned().collect(),
            slot_count: self.slots.count(),
            slots_clean: self.slots.clean_count(),
            slots_dirty: self.slots.dirty_count(),
            slots_corrupt: self.slots.corrupt_count(),
            lost_blocks: self.lost_count(),
            lost_runs: self.lost_runs(),
            dirty_blocks: self.dirty.len() as u64,
            dirty_blocks_max: self.config.dirty_blocks_max,
            oldest_dirty_pvbn: self.dirty.first_pvbn(),
            oldest_dirty: self.dirty.oldest(),
            draining: self.flush.drain_to.is_some(),
            journal_bytes: self.journal.bytes_since(self.durability.checkpoint_lsn),
            replay_records: self.replay().0,
            replay_records_max: self.replay_records_max(),
            replay_ms: self.replay().1,
            waits_for_checkpoint: self.is_overlay_full(),
            waits_for_journal: self.journal.is_full(),
            last_checkpoint: self.durability.checkpoint_at,
            uploads_in_flight: self.flush.uploads_in_flight() as u64,
            fetches_in_flight: self.fetches.in_flight_count() as u64,
            writes_waiting: self.writes.waiting_count() as u64,
            failed: self.failed.clone(),
            metadata_error: self.durability.metadata_error.clone(),
            policies: self.policies(),
            slot_memory_bytes: self.slots.memory_bytes(),
            dirty_memory_bytes: self.dirty.memory_bytes(),
            map_cache_bytes: self.pages.weight() as u64,
            descriptor_cache_bytes: self.descriptors.weight() as u64,
            overlay_extents: (self.overlay.map.len() + self.frozen.as_ref().map_or(0, |frozen| frozen.map.len()))
                as u64,
            overlay_entry_bytes: (self.overlay.entries.bytes()
                + self.frozen.as_ref().map_or(0, |frozen| frozen.entries.bytes()))
                as u64,
        }
    }

    /// Checks what must always hold; for tests and simulation.
    pub fn check_invariants(&self) {
        self.slots.check_invariants();
        self.check_accounts();
        self.check_unmapped();
        assert!(
            self.slots.dirty_count() <= self.config.dirty_blocks_max.max(self.recovered_dirty),
            "the backlog is bounded"
        );
        assert!(self.dirty.len() <= self.slots.dirty_count() as usize);
        self.partial_writes
            .check_invariants(|token| self.writes.is_locked(token));
        self.writes.check_deadlines(self.now, self.config.stall_timeout_ms);
        assert!(self.journal.durable() <= self.journal.next());
        assert_eq!(self.corrupt.len(), self.slots.corrupt_count() as usize);
    }

    pub(crate) fn answer(&mut self, token: Token, result: Result<Answer, Refusal>) {
        if let Err(result) = self.partial_writes.take_answer(token, result) {
            self.out.push(Command::Answer { token, result });
        }
    }

    pub(crate) fn next_job(&mut self) -> crate::event::JobId {
        self.next_job += 1;
        crate::event::JobId(self.next_job)
    }

    pub(crate) fn check_span(&self, span: crate::event::Span) -> Result<(), Refusal> {
        let blocks = self.size_of(span.volume)?;
        match span.first.checked_add(span.count) {
            Some(end) if end <= blocks => Ok(()),
            end => Err(Refusal::OutOfRange {
                first: span.first,
                end: end.unwrap_or(u64::MAX),
                blocks,
            }),
        }
    }

    pub(crate) fn check_spans(&self, spans: impl IntoIterator<Item = crate::event::Span>) -> Result<(), Refusal> {
        spans.into_iter().try_for_each(|span| self.check_span(span))
    }

    /// In blocks. A file's size is the file service's affair: its map takes any block.
    pub(crate) fn size_of(&self, volume: VolumeId) -> Result<u64, Refusal> {
        match (volume.inode(), self.volumes.get(&volume)) {
            (Some(_), _) => Ok(VOLUME_BLOCKS_MAX),
            (None, Some(volume)) => Ok(volume.blocks),
            (None, None) => Err(Refusal::UnknownVolume(volume)),
        }
    }

    /// Looks a block up: overlay, frozen overlay, then the page of local metadata.
    pub(crate) fn lookup(&mut self, volume: VolumeId, block: u64) -> Lookup {
        if let Some(extent) = self.overlay.map.get(volume, block) {
            return Lookup::Known(extent.target, extent.count);
        }
        let page_end = (block / PAGE_ENTRIES + 1) * PAGE_ENTRIES;
        let mut limit = self.overlay.map.next_start(volume, block, page_end).unwrap_or(page_end) - block;
        if let Some(frozen) = &self.frozen {
            if let Some(extent) = frozen.map.get(volume, block) {
                return Lookup::Known(extent.target, extent.count.min(limit));
            }
            limit = limit.min(frozen.map.next_start(volume, block, page_end).unwrap_or(page_end) - block);
        }
        let number = block / PAGE_ENTRIES;
        match self.pages.get((volume, number)) {
            Some(page) => {
                let (pvbn, run) = page.get((block % PAGE_ENTRIES) as u16);
                Lookup::Known(pvbn.map_or(Target::Hole, Target::At), u64::from(run).min(limit))
            }
            None => Lookup::NeedPage(number),
        }
    }

    /// Of the state directory.
    pub fn identity(&self) -> u64 {
        self.journal.identity()
    }

    pub fn slot_count(&self) -> u32 {
        self.slots.count()
    }

    /// No PVBN from here on has been given out.
    pub fn next_pvbn(&self) -> Pvbn {
        self.next_pvbn
    }

    /// How far the journal has been written: after recovery, what is durable once the caller has synced.
    pub fn journal_mark(&self) -> crate::journal::JournalMark {
        self.journal.mark_of_written()
    }

    pub(crate) fn superblock(&self, lsn: Lsn) -> Superblock {
        Superblock {
            journal_identity: self.journal.identity(),
            slot_count: self.slots.count(),
            lsn,
            segment: self.journal.segment(),
            next_pvbn: self.next_pvbn.0,
            next_volume: self.next_volume,
            volumes: self.volumes.values().cloned().collect(),
            totals: self.totals,
            dirty_ages: self.dirty_ages(),
        }
    }

    fn dirty_ages(&self) -> Vec<(Pvbn, WallTime)> {
        let ages = self.dirty.ages();
        ages.map(|(first, at)| (first, self.wall.time_of(at))).collect()
    }

    /// A local disk failure on the way to stable storage: what was acknowledged may or may not be there, so nothing
    /// more is accepted. Reads go on. A restart recovers what the disk really holds.
    pub(crate) fn fail(&mut self, error: DiskError) {
        if self.failed.is_none() {
            self.failed = Some(error);
        }
    }
}
