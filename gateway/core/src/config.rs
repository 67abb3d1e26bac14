//! The core's limits. Plain data; the daemon fills it from its settings, the simulator from its seed.

use tombolo_base::{OBJECT_BLOCKS_MAX, PACK_BLOCKS};
use tombolo_flow_control::group_commit;

/// How rounds of uploads follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushInterval {
    /// When the oldest dirty block has waited for the whole delay.
    #[default]
    Fixed,
    /// By Stout's intervals, which never exceed the delay.
    Stout,
}

/// What a fetch brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FetchUnit {
    /// What was asked for, by ranges of the object.
    #[default]
    Range,
    /// The object: what else lies in it comes with what was asked for.
    Object,
}

/// Who says which reads are sequential, to replacement policies that care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SequentialBy {
    /// The prefetcher, if it follows streams.
    #[default]
    Prefetcher,
    /// The policy itself, by what it was asked for.
    Replacement,
}

/// What a core may use, and how long it waits; none of it changes while it runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Slots of the cache file.
    pub slot_count: u32,
    /// Dirty blocks never exceed this.
    pub dirty_blocks_max: u32,
    /// From this share of the cap on, acknowledgements of writes are delayed.
    pub throttle_start_permille: u32,
    /// The delay at the cap; it grows linearly from zero.
    pub throttle_delay_ms_max: u64,
    /// A dirty block waits at most this long before its upload begins.
    pub flush_delay_ms: u64,
    /// When so many wait that hardly anything would replace within the delay, their upload begins at once; `None`: never.
    pub early_flush_blocks: Option<u64>,
    /// How rounds of uploads follow each other within that.
    pub flush_interval: FlushInterval,
    /// Age of the oldest change that the bucket lacks at which a recovery point is frozen for it. `None`: the bucket is told
    /// of none.
    pub recovery_point_ms: Option<u64>,
    /// Changes wait when the bucket lacks so many extents of maps, or bytes of entries.
    pub unpublished_extents_max: usize,
    /// Likewise.
    pub unpublished_entry_bytes_max: usize,
    /// Likewise bytes of journal, which the local disk keeps until the bucket has what they say.
    pub unpublished_journal_bytes_max: u64,
    /// A write that waits at the cap longer than this is refused with [`crate::Refusal::Busy`].
    pub stall_timeout_ms: u64,
    /// From the end of a checkpoint to the beginning of the next, if anything has changed.
    pub checkpoint_interval_ms: u64,
    /// A checkpoint begins when the journal has grown by so much since the last; changes wait as with the overlay.
    pub checkpoint_journal_bytes: u64,
    /// Pages of local metadata that one transaction of a checkpoint changes, about ([`crate::Merge`]).
    pub checkpoint_pages_max: usize,
    /// A checkpoint begins when this many extents, objects, bytes of entries or pages of slots have changed. While one is
    /// under way or fails, as much may change once more (slots aside); then changes wait, and are refused with
    /// [`crate::Refusal::Busy`] after `stall_timeout_ms`.
    pub overlay_extents_max: usize,
    /// Blocks of objects that were confirmed since.
    pub overlay_object_blocks_max: usize,
    /// Bytes of keys and values, and about a hundred for each entry.
    pub overlay_entry_bytes_max: usize,
    /// Pages of the slot index, each of 64 slots. Changes do not wait for these.
    pub overlay_slot_pages_max: usize,
    /// Recovery never has more records to replay than this, or than take this long.
    pub replay_records_max: u64,
    /// In milliseconds, by what a record took at the last recovery ([`crate::Core::learn_replay_cost`]).
    pub replay_ms_max: u64,
    /// When a sync begins that somebody waits for.
    pub group_commit: group_commit::Rule,
    /// Unsynced journal waits at most this long for a sync.
    pub sync_interval_ms: u64,
    /// The journal goes on in a new segment when one has reached this; the last batch may pass it.
    pub segment_bytes: u64,
    /// Memory for pages of maps, least recently used first out.
    pub map_cache_bytes: usize,
    /// Likewise for object descriptors.
    pub descriptor_cache_bytes: usize,
    /// Blocks of one hash job.
    pub hash_blocks: usize,
    /// Hash jobs under way at once.
    pub hash_jobs_max: usize,
    /// Objects on their way to the store at once, and as many verifications.
    pub uploads_max: usize,
    /// Blocks of all objects on their way to the store at once; one object always may go.
    pub upload_blocks_max: usize,
    /// Blocks of one object at the most; 1 to [`tombolo_base::OBJECT_BLOCKS_MAX`].
    pub object_blocks_max: usize,
    /// Objects of which it is remembered that the store has them; each is 100 bytes.
    pub present_objects_max: usize,
    /// Times that a dirty block is read in vain before it is given up. The pauses double from a second to a minute: 12 take
    /// six minutes.
    pub slot_reads_max: u32,
    /// A read that waits this long without a block arriving for it is refused.
    pub read_timeout_ms: u64,
    /// Confirmed blocks that a checkpoint has not yet taken from the fingerprint index's memory to the disk. Uploads wait
    /// beyond that.
    pub fingerprints_max: usize,
    /// When so many dirty blocks wait for the upload of others of the same contents, no more are hashed; the jobs under way
    /// may add theirs. The batch that confirms an object redirects all that wait for it.
    pub followers_max: usize,
    /// What a fetch brings.
    pub fetch_unit: FetchUnit,
    /// Who says which reads are sequential.
    pub sequential_by: SequentialBy,
    /// GETs in flight at once; prefetch takes at most three quarters of them.
    pub fetches_max: usize,
    /// Blocks that GETs in flight may bring at once: each is in memory twice for a moment, as it came and decoded.
    pub fetch_blocks_max: usize,
    /// Delay before a failed upload is tried again; doubles up to the second.
    pub upload_retry_ms_min: u64,
    /// What the delay grows to at the most.
    pub upload_retry_ms_max: u64,
    /// What a step does at the most of the work that a large unmapping leaves behind: dirty blocks given up, extents of the
    /// overlay removed, slots set free. Likewise of a change of the replacement policy: slots handed over.
    pub sweep_blocks_max: u64,
    /// Whether the replacement policy keeps room for what the prefetcher's streams need ([`crate::steps::policies`]).
    pub sequential_floor: bool,
    /// Whether it is followed what other replacement policies would make of the same reads
    /// ([`tombolo_cache::Alternatives`]).
    pub compares_policies: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            slot_count: 1 << 18,
            dirty_blocks_max: 1 << 17,
            throttle_start_permille: 800,
            throttle_delay_ms_max: 50,
            flush_delay_ms: 5_000,
            early_flush_blocks: Some(1 << 12),
            flush_interval: FlushInterval::Fixed,
            recovery_point_ms: None,
            unpublished_extents_max: 1 << 22,
            unpublished_entry_bytes_max: 256 << 20,
            unpublished_journal_bytes_max: 2 << 30,
            stall_timeout_ms: 20_000,
            checkpoint_interval_ms: 30_000,
            checkpoint_journal_bytes: 256 << 20,
            checkpoint_pages_max: 4_096,
            overlay_extents_max: 1 << 20,
            overlay_object_blocks_max: 1 << 18,
            overlay_entry_bytes_max: 64 << 20,
            overlay_slot_pages_max: 1 << 14,
            replay_records_max: 400_000,
            replay_ms_max: 10_000,
            group_commit: group_commit::Rule::Immediate,
            sync_interval_ms: 1_000,
            segment_bytes: 64 << 20,
            map_cache_bytes: 64 << 20,
            descriptor_cache_bytes: 64 << 20,
            hash_blocks: 256,
            hash_jobs_max: 2,
            uploads_max: 8,
            upload_blocks_max: 1 << 15,
            object_blocks_max: OBJECT_BLOCKS_MAX,
            followers_max: 2_048,
            present_objects_max: 1 << 16,
            slot_reads_max: 12,
            read_timeout_ms: 60_000,
            fingerprints_max: 1 << 18,
            fetch_unit: FetchUnit::Range,
            sequential_by: SequentialBy::Prefetcher,
            fetches_max: 16,
            fetch_blocks_max: 1 << 15,
            upload_retry_ms_min: 500,
            upload_retry_ms_max: 30_000,
            sweep_blocks_max: 4_096,
            sequential_floor: false,
            compares_policies: false,
        }
    }
}

impl Config {
    /// Blocks that reads may hold or wait for together: half of what dirty blocks leave, so that slots can be found for
    /// what they wait for.
    pub(crate) fn read_blocks_max(&self) -> u32 {
        (self.slot_count.saturating_sub(self.dirty_blocks_max) / 2).max(1)
    }

    /// Blocks of one read that are looked for, held and answered at a time.
    pub(crate) fn read_window_blocks(&self) -> u32 {
        (self.read_blocks_max() / 4).max(1)
    }

    /// Blocks of one object while nobody waits for it and so many lanes are in use. A small cap on dirty blocks leaves each lane one
    /// object on its way and one being filled, and the index's memory takes each as a whole.
    pub(crate) fn object_blocks(&self, lanes: usize) -> usize {
        let share = self.dirty_blocks_max as usize / (2 * lanes.max(1));
        let room = self.fingerprints_max.max(1);
        self.object_blocks_max.min(share.max(PACK_BLOCKS)).min(room)
    }

    /// How long to wait after so many failures of a request to the store.
    pub(crate) fn upload_retry_ms(&self, failures: u32) -> u64 {
        (self.upload_retry_ms_min << failures.min(16)).min(self.upload_retry_ms_max)
    }
}
