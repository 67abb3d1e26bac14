//! What the core tells about itself.

use crate::core_state::{Core, Counters, StoreState};
use crate::event::{MetadataError, StopReason};
use crate::format::superblock::{Totals, Volume};
use crate::state::lost_blocks::LostRun;
use crate::state::policy_counters::{PolicyCounters, Tally};
use crate::state::prefetch_state::Economy;
use crate::state::unpublished::UnpublishedChanges;
use alloc::vec::Vec;
use tombolo_base::{Instant, Lcbn, Pvbn, VolumeId, WallTime};
use tombolo_cache::{Alternative, Alternatives, Policy};
use tombolo_flow_control::{Stout, group_commit, stout};
use tombolo_prefetch::{Addressing, Class, Statistics, graph::History};

/// A look at the core for `status` and `/metrics`.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Since the start.
    pub counters: Counters,
    /// Of the journal's syncs.
    pub group_commit: group_commit::State,
    /// Of the rounds of uploads; `None`: they begin by age alone.
    pub flush_interval: Option<stout::State>,
    /// The share of what was written of late that was replaced within the delay of the flush ([`tombolo_flow_control::EarlyFlush`]).
    pub absorbed_share: f64,
    /// Since the state directory was made.
    pub totals: Totals,
    /// From fetches, uploads and verifications.
    pub store: StoreState,
    /// By their numbers; files of shares are not among them.
    pub volumes: Vec<Volume>,
    /// Of the cache file.
    pub slot_count: u32,
    /// Blocks that may be evicted, unless somebody reads them now.
    pub slots_clean: u32,
    /// Those that may not: the store lacks the block, or it is not yet durable that it has it.
    pub slots_dirty: u32,
    /// Those whose block was the only copy and is damaged.
    pub slots_corrupt: u32,
    /// Dirty blocks whose slots cannot be read for the time being.
    pub unreadable_blocks: u64,
    /// Blocks that read as errors, as far as is known, and the first of them.
    pub lost_blocks: u64,
    /// At most a hundred: first those without a copy in the store, each kind by volume and block.
    pub lost_runs: Vec<LostRun>,
    /// Blocks that the store lacks; damaged ones are not among them.
    pub dirty_blocks: u64,
    /// The cap, of [`Config`](crate::Config).
    pub dirty_blocks_max: u32,
    /// The first of them, and when it was written at the earliest, also if that was before the start.
    pub oldest_dirty_pvbn: Option<Pvbn>,
    /// No age is told too small. `None`: nothing is dirty.
    pub oldest_dirty: Option<Instant>,
    /// A drain was asked for, and not everything that was dirty then is durably known to be in the store.
    pub draining: bool,
    /// Journal since the last checkpoint, which a recovery would replay.
    pub journal_bytes: u64,
    /// Records that recovery would replay now, the most it ever has to, and how long the former would take.
    pub replay_records: u64,
    /// By number or by time, whichever is less.
    pub replay_records_max: u64,
    /// An estimate, in milliseconds.
    pub replay_ms: u64,
    /// Changes wait for the checkpoint under way.
    pub waits_for_checkpoint: bool,
    /// Changes wait for room on the local disk.
    pub waits_for_journal: bool,
    /// Changes wait until the bucket has caught up.
    pub waits_for_recovery_point: bool,
    /// When it ended; the start counts as one.
    pub last_checkpoint: Instant,
    /// Objects; those that wait for another attempt are not among them.
    pub uploads_in_flight: u64,
    /// GETs; those that are queued are not among them.
    pub fetches_in_flight: u64,
    /// Changes that wait for others, for a checkpoint, for the disk, for the cap or for slots.
    pub writes_waiting: u64,
    /// When the oldest change was made that the bucket does not have, also if that was before the start. Recovery from the
    /// bucket alone would lose it and all after it. `None`: it has everything.
    pub oldest_unpublished: Option<Instant>,
    /// When the recovery point was frozen that the bucket holds, by the machine's clock.
    pub published_time: Option<WallTime>,
    /// Why changes have been refused since then, until a restart.
    pub failed: Option<StopReason>,
    /// Why the last checkpoint failed; `None` when one has succeeded since.
    pub metadata_error: Option<MetadataError>,
    /// What [`Core::policies`] says.
    pub policies: PolicySnapshot,
    /// What the slots, their index and the replacement policy take.
    pub slot_memory_bytes: u64,
    /// What the dirty queue and its map take, about.
    pub dirty_memory_bytes: u64,
    /// What the pages of maps in memory take, as decoded.
    pub map_cache_bytes: u64,
    /// What the object descriptors in memory take.
    pub descriptor_cache_bytes: u64,
    /// Extents of the overlay and of the frozen one.
    pub overlay_extents: u64,
    /// What the changed entries of the two take.
    pub overlay_entry_bytes: u64,
}

/// What the policies have achieved and hold, for `status` and `/metrics`.
#[derive(Clone, Debug, Default)]
pub struct PolicySnapshot {
    /// The name of the policy that is at work.
    pub replacement: &'static str,
    /// The name of the prefetcher that is at work.
    pub prefetch: &'static str,
    /// Whether the two see volume and block, or PVBNs.
    pub addressing: Addressing,
    /// What suggestions are weighed by.
    pub economy: Economy,
    /// One per pair of policies that has been at work since the start, the present one last.
    pub tallies: Vec<Tally>,
    /// What the prefetcher says of itself.
    pub prefetcher: Statistics,
    /// Resident prefetched blocks that nobody has read yet.
    pub unread_blocks: u64,
    /// What other replacement policies would have made of the same reads.
    pub comparison: Comparison,
    /// How much of what a class expected came true, in permille: sequential, history.
    pub calibration_permille: [u64; 2],
}

/// Of a sample of the blocks read since the start; without prefetch.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Sampled blocks that were read.
    pub reads: u64,
    /// What each policy's cache held of them.
    pub alternatives: Vec<Alternative>,
}

/// Blocks of a group are sampled together and read together, so that only so many of the reads are taken for independent.
const DEPENDENT_BLOCKS: f64 = 16.0;
const STANDARD_ERRORS: f64 = 3.0;
const GAIN_MIN: f64 = 0.01;

impl Comparison {
    /// The policy that holds clearly more than the one of this name: the difference is above three standard errors and a
    /// hundredth of the blocks read. `None`: none does, or the one of this name is not compared.
    pub fn better(&self, at_work: &str) -> Option<Policy> {
        let present = self.alternatives.iter().find(|one| one.policy.name() == at_work)?;
        let best = self.alternatives.iter().max_by_key(|one| one.hits)?;
        let share = |hits: u64| hits as f64 / self.reads.max(1) as f64;
        let gain = share(best.hits) - share(present.hits);
        // Of the difference of two shares, at its largest for independent ones; these are of the same reads.
        let variance = 2.0 * 0.25 * DEPENDENT_BLOCKS / self.reads.max(1) as f64;
        let is_clear = gain > GAIN_MIN && gain * gain > STANDARD_ERRORS * STANDARD_ERRORS * variance;
        is_clear.then_some(best.policy)
    }
}

fn comparison(of: &Alternatives) -> Comparison {
    Comparison {
        reads: of.reads(),
        alternatives: of.results().collect(),
    }
}

impl PolicySnapshot {
    /// All pairs together.
    pub fn total(&self) -> PolicyCounters {
        let mut total = PolicyCounters::default();
        self.tallies.iter().for_each(|tally| total.add(&tally.counters));
        total
    }
}

impl Core {
    /// What the bucket lacks. Takes time with how much that is.
    pub fn unpublished_changes(&self) -> UnpublishedChanges {
        self.unpublished.changes()
    }

    /// As of the last step. Takes time with the number of volumes and of lost blocks.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            group_commit: self.group_commit.controller.state(),
            flush_interval: self.flush.interval.as_ref().map(Stout::state),
            absorbed_share: self.flush.early.absorbed_share(),
            counters: self.counters,
            totals: self.totals,
            store: self.store.clone(),
            volumes: self.volumes.values().cloned().collect(),
            slot_count: self.slots.count(),
            slots_clean: self.slots.clean_count(),
            slots_dirty: self.slots.dirty_count(),
            slots_corrupt: self.slots.corrupt_count(),
            unreadable_blocks: self.flush.unreadable.len() as u64,
            lost_blocks: self.lost_count(),
            lost_runs: self.lost_runs(),
            dirty_blocks: self.dirty.len() as u64,
            dirty_blocks_max: self.config.dirty_blocks_max,
            oldest_dirty_pvbn: self.dirty.first_pvbn(),
            oldest_dirty: self.dirty.oldest(),
            draining: self.flush.drain.is_some(),
            journal_bytes: self.journal.bytes_since(self.checkpoints.lsn),
            replay_records: self.replay().0,
            replay_records_max: self.replay_records_max(),
            replay_ms: self.replay().1,
            waits_for_checkpoint: self.is_overlay_full(),
            waits_for_journal: self.journal.is_full(),
            waits_for_recovery_point: self.is_unpublished_full(),
            last_checkpoint: self.checkpoints.at,
            uploads_in_flight: self.flush.uploads_in_flight() as u64,
            fetches_in_flight: self.fetches.in_flight_count() as u64,
            writes_waiting: self.writes.waiting_count() as u64,
            oldest_unpublished: self.unpublished.oldest(),
            published_time: self.unpublished.published_time,
            failed: self.failed.clone(),
            metadata_error: self.checkpoints.metadata_error.clone(),
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

    /// Whether the store has everything that is not lost, and knows it; what may still be missing is a checkpoint.
    pub fn is_drained(&self) -> bool {
        self.dirty.is_empty() && self.unpublished.oldest().is_none()
    }

    /// True when a checkpoint holds everything journaled so far.
    pub fn is_checkpointed(&self) -> bool {
        self.frozen.is_none() && !self.has_changes()
    }

    /// Slots from this one on hold nothing; for the world, before it lets the core run.
    pub fn slots_used_to(&self) -> Lcbn {
        self.slots.used_to()
    }

    /// `None` for one that does not exist, and for files of shares.
    pub fn volume(&self, volume: VolumeId) -> Option<&Volume> {
        self.volumes.get(&volume)
    }

    /// `None`: no volume has this name. Looks through all of them.
    pub fn volume_named(&self, name: &str) -> Option<&Volume> {
        self.volumes.values().find(|volume| volume.name == name)
    }

    /// Of the state directory.
    pub fn identity(&self) -> u64 {
        self.journal.identity()
    }

    /// Slots of the cache file, free ones included.
    pub fn slot_count(&self) -> u32 {
        self.slots.count()
    }

    /// No PVBN from here on has been given out.
    pub fn next_pvbn(&self) -> Pvbn {
        self.next_pvbn
    }

    /// How far the journal has been written: after recovery, what is durable once the caller has synced.
    pub fn journal_mark(&self) -> crate::format::cache_header::JournalMark {
        self.journal.mark_of_written()
    }

    /// Without the rest of the snapshot.
    pub fn policies(&self) -> PolicySnapshot {
        let prefetch_state = &self.prefetch_state;
        let mut tallies = prefetch_state.earlier.clone();
        tallies.push(self.tally());
        let permille = |class| (u64::from(prefetch_state.admission.calibration(class).bits()) * 1000) >> 30;
        PolicySnapshot {
            replacement: self.slots.policy_name(),
            prefetch: prefetch_state.prefetcher.name(),
            addressing: prefetch_state.addressing,
            economy: prefetch_state.economy,
            tallies,
            prefetcher: prefetch_state.statistics(),
            unread_blocks: self.slots.unread_count() as u64,
            comparison: self.alternatives.as_ref().map(comparison).unwrap_or_default(),
            calibration_permille: [permille(Class::Sequential), permille(Class::History)],
        }
    }

    /// The prefetcher's history, if it has one; to be encoded chunk by chunk.
    pub fn history(&self) -> Option<&History> {
        self.prefetch_state.prefetcher.history()
    }

    /// Whether a prefetch brought the block in a slot.
    pub fn was_prefetched(&self, slot: Lcbn) -> bool {
        self.slots.was_prefetched(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_that_is_none_of_the_samples_is_told() {
        let better = |hits: [u64; 2], reads, at_work| {
            let policies = [Policy::Lru, Policy::Lirs].into_iter().zip(hits);
            let alternatives = policies.map(|(policy, hits)| Alternative { policy, hits }).collect();
            Comparison { reads, alternatives }.better(at_work)
        };
        assert_eq!(better([400, 900], 1_000, "lru"), Some(Policy::Lirs));
        assert_eq!(better([400, 650], 1_000, "lru"), None, "too few reads");
        assert_eq!(better([4_000_000, 4_090_000], 10_000_000, "lru"), None, "too small");
        assert_eq!(better([4_000_000, 4_200_000], 10_000_000, "lru"), Some(Policy::Lirs));
        assert_eq!(better([400, 900], 1_000, "lirs"), None);
        assert_eq!(better([400, 900], 1_000, "sarc"), None, "it is not compared");
        assert_eq!(Comparison::default().better("lru"), None);
    }
}
