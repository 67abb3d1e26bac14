//! The core: all of its state, and what every step asks of it.

use crate::config::Config;
use crate::event::{Answer, Command, Lanes, Refusal, StopReason, Token};
use crate::format::local_metadata::least_first;
use crate::format::page::{MapPage, PAGE_ENTRIES};
use crate::format::record::{Lsn, VOLUME_BLOCKS_MAX};
use crate::format::superblock::{Superblock, Totals, Volume};
use crate::state::checkpoints::Checkpoints;
use crate::state::dirty::Dirty;
use crate::state::extent_map::Target;
use crate::state::fetches::Fetches;
use crate::state::flush_pipeline::Flush;
use crate::state::group_commit::GroupCommit;
use crate::state::journal::Journal;
use crate::state::lost_blocks::Losses;
use crate::state::metadata_loads::MetadataLoads;
use crate::state::overlay::{Frozen, Overlay};
use crate::state::partial_writes::PartialWrites;
use crate::state::prefetch_state::PrefetchState;
use crate::state::reads::Reads;
use crate::state::slot_transitions::SlotTransitions;
use crate::state::slots::Slots;
use crate::state::unpublished::Unpublished;
use crate::state::verifications::Verification;
use crate::state::wall_clock::WallClock;
use crate::state::weighted_lru::WeightedLru;
use crate::state::writes::Writes;
use alloc::{boxed::Box, collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use tombolo_base::{Instant, Lcbn, ObjectDescriptor, Pvbn, VolumeId, WallTime};
use tombolo_cache::{Alternatives, Replacement};

/// Events counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// GETs that were begun, for clients and ahead of them.
    pub fetches: u64,
    /// GETs that failed as a whole, after the driver's own retries.
    pub fetch_failures: u64,
    /// Objects that were confirmed.
    pub uploads: u64,
    /// Uploads that failed and were begun again: the store did not take the object, or slots could not be read.
    pub upload_failures: u64,
    /// Length of the confirmed objects, as they are stored.
    pub upload_bytes: u64,
    /// Syncs of cache file and journal that ended, failed ones included.
    pub syncs: u64,
    /// Checkpoints that were completed.
    pub checkpoints: u64,
    /// Recovery points that the bucket was told of.
    pub recovery_points: u64,
    /// Times that it could not be told, and was tried again.
    pub recovery_point_failures: u64,
    /// Acknowledgements that were delayed because the backlog came near its cap.
    pub writes_throttled: u64,
    /// Times that a change had to wait for the cap, a slot, a checkpoint or the disk; one change may do so repeatedly.
    pub writes_stalled: u64,
    /// Changes, and flushes that were to wait for the bucket, refused with [`Refusal::Busy`].
    pub writes_refused_busy: u64,
    /// Reads whose blocks the store did not bring.
    pub reads_refused: u64,
    /// Clean slots that held an older block than the index said, after a crash; they were fetched again.
    pub slots_stale: u64,
    /// Other slots with a wrong sum, or that the disk could not read; one that is dirty counts when it is given up.
    pub slots_corrupt: u64,
    /// Blocks that were found to be lost, each once; less those of which the cloud turned out to have a copy.
    pub blocks_lost: u64,
}

/// What is known of the cloud from the last requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreState {
    /// When the store answered last, if only by saying that it lacks an object; `None`: not yet in this life.
    pub last_success: Option<Instant>,
    /// Set while the latest request has failed.
    pub error: Option<String>,
    /// When the first of the failures came since it last answered.
    pub error_since: Option<Instant>,
}

/// The data path's state. One world owns it and steps it, one event at a time.
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
    /// A replacement policy that has handed all slots over, for whoever can drop so much memory.
    pub(crate) replaced: Option<Box<dyn Replacement>>,
    /// When the next of its slots go over.
    pub(crate) succession_at: Instant,
    pub(crate) alternatives: Option<Alternatives>,
    pub(crate) writes: Writes,
    pub(crate) partial_writes: PartialWrites,
    pub(crate) reads: Reads,
    pub(crate) metadata_loads: MetadataLoads,
    pub(crate) fetches: Fetches,
    pub(crate) flush: Flush,
    pub(crate) lanes: Lanes,
    pub(crate) unpublished: Unpublished,
    pub(crate) verification: Verification,
    pub(crate) losses: Losses,
    pub(crate) group_commit: GroupCommit,
    pub(crate) slot_transitions: SlotTransitions,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) counters: Counters,
    pub(crate) totals: Totals,
    pub(crate) store: StoreState,
    pub(crate) failed: Option<StopReason>,
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
    pub(crate) fn answer(&mut self, token: Token, result: Result<Answer, Refusal>) {
        if let Err(result) = self.partial_writes.take_answer(token, result) {
            self.out.push(Command::Answer { token, result });
        }
    }

    pub(crate) fn next_job(&mut self) -> crate::event::JobId {
        self.next_job += 1;
        crate::event::JobId(self.next_job)
    }

    pub(crate) fn check_span(&self, span: tombolo_base::Span) -> Result<(), Refusal> {
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

    pub(crate) fn check_spans(&self, spans: impl IntoIterator<Item = tombolo_base::Span>) -> Result<(), Refusal> {
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
            merging_to: None,
            dirty_ages: self.dirty_ages(),
        }
    }

    fn dirty_ages(&self) -> Vec<(Pvbn, WallTime)> {
        let ages = self.dirty.ages();
        ages.map(|(first, at)| (first, self.wall.time_of(at))).collect()
    }

    /// A local disk failure on the way to stable storage: what was acknowledged may or may not be there, so nothing
    /// more is accepted. Reads go on. A restart recovers what the disk really holds. The same when another gateway has
    /// become the bucket's writer: what is accepted from then on would never get there.
    pub(crate) fn fail(&mut self, reason: impl Into<StopReason>) {
        if self.failed.is_none() {
            self.failed = Some(reason.into());
        }
    }

    /// The object that covers `pvbn`, if it is in memory.
    pub(crate) fn descriptor_of(&mut self, pvbn: Pvbn) -> Option<Arc<ObjectDescriptor>> {
        let candidates = least_first(pvbn)..=pvbn.0;
        let in_overlay = |objects: &BTreeMap<u64, Arc<ObjectDescriptor>>| {
            let mut near = objects.range(candidates.clone()).rev();
            near.find(|(_, descriptor)| descriptor.find(pvbn).is_some())
                .map(|(_, descriptor)| descriptor.clone())
        };
        in_overlay(&self.overlay.objects)
            .or_else(|| in_overlay(&self.frozen.as_ref()?.objects))
            .or_else(|| {
                self.descriptors
                    .last_where(candidates.clone(), |descriptor| descriptor.find(pvbn).is_some())
                    .cloned()
            })
    }
}
