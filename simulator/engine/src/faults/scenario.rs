//! What a seed decides: limits of the core, load, delays, faults.
//!
//! Faults that MUST be survived without any loss or refusal beyond "try again":
//! store requests that fail before or after their effect, outages, slow and reordered replies; failures of metadata
//! transactions; process kills and power losses at any moment, inside operations too; a clean slot that rots.
//!
//! Faults that may end in a typed refusal, never in wrong data: a failed read or write of a slot (`Disk`, for that
//! request); a failed journal write or sync (`Failed`, until the restart that the world then performs; what was not
//! flushed may be lost by a failed sync, as by a power loss); a failed read of metadata (`Metadata`); a damaged object
//! or a missing one, a dirty slot that rots or whose sector fails (`Lost`, for exactly the blocks concerned).

use crate::faults::delays::Delays;
use crate::faults::policies::PolicyChoice;
use tombolo_base::{FlushMode, Prng};
use tombolo_core::{Config, FetchUnit, FlushInterval, SequentialBy};
use tombolo_flow_control::group_commit::Rule;

/// A defect built into the world on purpose; the checkers must notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Canary {
    /// Syncs report success and make nothing durable.
    SkipSync,
    /// Checkpoints commit without making the cache file durable first.
    SkipCacheSyncAtCheckpoint,
    /// The first transactions of a checkpoint commit before the journal is durable up to it.
    SkipJournalSyncAtCheckpoint,
    /// Journal writes are reported before they happen.
    AckBeforeJournal,
    /// A fetch delivers another block's bytes, unverified.
    WrongBytes,
    /// The index's part of a checkpoint is taken when the checkpoint ends instead of when it begins.
    FreezeIndexLate,
    /// A write's bytes go into the next slot.
    WrongSlot,
    /// The entries that belong to a write are sent in a commit of their own.
    SplitChange,
    /// The whole blocks of a WRITE ZEROES with a ragged end are sent in a request of their own.
    SplitZeroes,
    /// Journal batches reach the disk without their entries, though with all else.
    LoseEntriesOfBatch,
    /// A checkpoint that a crash interrupts has everything but the entries.
    TornCheckpoint,
    /// Every transaction of a checkpoint moves the superblock.
    SuperblockAhead,
    /// Recovery reads through pages that a failed sync left clean in memory.
    TrustMemory,
    /// The file service's changes are made without the note of their request.
    ForgetRequests,
    /// The file service's locks are granted without being written down.
    ForgetLocks,
    /// What the file service reads to fill in the edges of a write is as it was before the last write, as if nobody had
    /// locked the file.
    StaleEdges,
    /// A checkpoint goes on calling those slots dirty that have come free since the last one: as if blocks of a range that is
    /// being unmapped were live.
    KeepDirtySlots,
    /// What the file service changes of one directory is made before what it changes of another.
    SplitRename,
    /// A file's first record is made before its second.
    SplitInode,
    /// Objects reach an encrypted store in clear.
    ClearObjects,
    /// The root is put although the parts of the journal that it names are not.
    RootBeforeJournal,
    /// The root is put although the nodes of its tree are not.
    RootBeforeNodes,
    /// Objects of nodes are removed although a root that is kept needs them.
    RemoveKeptNodes,
    /// Objects of nodes are removed although local metadata lacks what they have.
    RemoveNodesBehind,
    /// Uploads are confirmed some time before the store has the object.
    ConfirmBeforeUpload,
    /// Roots are put without a condition.
    StaleRoot,
    /// A gateway that has seen another one's root takes no notice.
    GoOnWhenFenced,
    /// One change is left out of what the bucket is told.
    OmitChange,
    /// Flushes that are to wait for the bucket wait for the local disk alone.
    FlushToDiskAlone,
    /// Where local metadata was lost, what is left of the journal is not replayed.
    ForgetJournal,
    /// Where the journal is lost that would have completed a checkpoint, its beginning is taken for a state.
    TrustTornCheckpoint,
    /// An older copy of the cache file notes what the newest one does.
    CopyNotesAll,
    /// An object's name does not say all that it holds, so that one key and nonce encrypt two texts.
    TwoContentsOfAName,
}

/// Rates in permille of the operations concerned.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub slot_read_failure: u64,
    pub slot_write_failure: u64,
    pub journal_write_failure: u64,
    pub sync_failure: u64,
    pub metadata_failure: u64,
    pub put_failure: u64,
    pub put_reply_lost: u64,
    pub get_failure: u64,
    /// Mean virtual milliseconds between outages; zero: none.
    pub outage_interval_ms: u64,
    pub outage_ms_max: u64,
    /// Mean virtual milliseconds between spells in which no checkpoint can be made; zero: none.
    pub checkpoint_outage_interval_ms: u64,
    pub checkpoint_outage_ms_max: u64,
    /// Mean virtual milliseconds between flips of a bit in a slot, or in an object.
    pub slot_rot_interval_ms: u64,
    /// Mean virtual milliseconds between times in which the disk has no room for anything new; zero: none.
    pub full_interval_ms: u64,
    pub full_ms_max: u64,
    pub object_rot_interval_ms: u64,
    /// Mean virtual milliseconds between failures of a sector: it cannot be read until it is written, or for ever.
    pub sector_failure_interval_ms: u64,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub config: Config,
    pub delays: Delays,
    pub faults: Faults,
    pub client_count: usize,
    pub requests_per_client: usize,
    pub request_count: u64,
    pub volume_count: usize,
    pub volume_blocks_max: u64,
    pub read_blocks_max: u64,
    pub write_blocks_max: u64,
    /// Values that are written again and again.
    pub common_values: u64,
    pub policies: PolicyChoice,
    /// Mean virtual milliseconds between changes of policy; zero: none.
    pub policy_change_interval_ms: u64,
    /// Files with maps of their own, and how far into them most requests go.
    pub file_count: u64,
    pub file_blocks: u64,
    /// How much of what the clients do goes to files and entries; the rest to volumes.
    pub file_work_permille: u64,
    /// Clients of the file service, and what they ask for together. There are no clients then that work on files past it.
    pub share_clients: usize,
    pub share_requests: u64,
    /// Crashes, each after about this many events of its life.
    pub crash_count: u64,
    pub events_per_life: u64,
    pub power_loss_permille: u64,
    /// How often the local disk is lost in a crash.
    pub disk_loss_permille: u64,
    /// How often another machine takes the bucket over in the place of a crash, and leaves this one alive.
    pub take_over_permille: u64,
    /// How often flushes of a volume wait for the bucket.
    pub flush_to_bucket_permille: u64,
    /// What flushes of the share wait for.
    pub share_flush: FlushMode,
    /// Of the crashes, those with which local metadata alone is lost, the journal alone, and the cache file alone.
    pub metadata_loss_permille: u64,
    pub journal_loss_permille: u64,
    pub cache_loss_permille: u64,
    /// How often a life begins with other settings than the one before.
    pub settings_change_permille: u64,
    pub canary: Option<Canary>,
}

impl Scenario {
    pub fn draw(prng: &mut Prng, canary: Option<Canary>) -> Self {
        let slot_count = 96 + prng.below(300) as u32;
        let dirty_blocks_max = (slot_count / 4 + prng.below(u64::from(slot_count) / 4) as u32).max(20);
        let config = draw_config(prng, slot_count, dirty_blocks_max);
        let client_count = 1 + prng.below(4) as usize;
        let requests_per_client = 1 + prng.below(4) as usize;
        Self {
            config,
            delays: Delays::draw(prng),
            faults: draw_faults(prng),
            client_count,
            requests_per_client,
            request_count: 150 + prng.below(600),
            volume_count: 2 + prng.below(2) as usize,
            volume_blocks_max: 64 + prng.below(540),
            read_blocks_max: 1 + prng.below(24),
            write_blocks_max: 1 + prng.below(16),
            common_values: 4 + prng.below(60),
            file_count: 2 + prng.below(3),
            file_blocks: 24 + prng.below(400),
            file_work_permille: prng.below(900),
            share_clients: 0,
            share_requests: 0,
            crash_count: if prng.chance(250) { 0 } else { 1 + prng.below(10) },
            events_per_life: 20 + prng.below(2_500),
            power_loss_permille: prng.below(3) * 500,
            disk_loss_permille: prng.below(3) * 150,
            take_over_permille: prng.below(3) * 400,
            metadata_loss_permille: prng.below(3) * 100,
            journal_loss_permille: prng.below(3) * 50,
            cache_loss_permille: prng.below(3) * 50,
            settings_change_permille: prng.below(3) * 300,
            flush_to_bucket_permille: prng.below(3) * 400,
            share_flush: FlushMode::Local,
            policies: PolicyChoice::draw(prng),
            policy_change_interval_ms: if prng.chance(500) { 20 + prng.below(1_000) } else { 0 },
            canary,
        }
        .without_contradictions()
        .with_shares(prng)
    }

    /// In some worlds the file service runs, whose entries and maps nobody else may touch. Its clients take no data loss
    /// for an answer, so nothing rots there.
    fn with_shares(mut self, prng: &mut Prng) -> Self {
        let faults = &self.faults;
        let rots = faults.slot_rot_interval_ms + faults.object_rot_interval_ms + faults.sector_failure_interval_ms;
        if prng.chance(SHARE_PERMILLE) && rots == 0 {
            self.file_work_permille = 0;
            // Nor do they take it that what they were answered is undone.
            self.disk_loss_permille = 0;
            self.take_over_permille = 0;
            self.journal_loss_permille = 0;
            self.cache_loss_permille = 0;
            self.request_count /= 4;
            self.share_clients = 1 + prng.below(4) as usize;
            self.share_requests = 40 + prng.below(300);
            // Opening the service takes some hundred events, and what follows is worth more.
            self.crash_count = 1 + prng.below(8);
            self.events_per_life = 200 + prng.below(1_800);
            // Clients of a share ask until they are answered, so there must be points for as long as the world lasts.
            if self.config.recovery_point_ms.is_some() && prng.chance(self.flush_to_bucket_permille) {
                self.share_flush = FlushMode::Bucket;
            }
        }
        self
    }

    /// A rotten slot that was never flushed looks like a write that a power loss undid; so rot comes without crashes.
    fn without_contradictions(mut self) -> Self {
        if self.faults.slot_rot_interval_ms > 0 {
            self.crash_count = 0;
            self.faults.sync_failure = 0;
            self.faults.journal_write_failure = 0;
        }
        self
    }
}

/// How many worlds in a thousand run the file service, if nothing rots in them.
const SHARE_PERMILLE: u64 = 500;

/// One that runs reach, in some of them.
fn tiny(prng: &mut Prng, least: u64, span: u64, ordinary: usize) -> usize {
    if prng.chance(300) {
        (least + prng.below(span)) as usize
    } else {
        ordinary
    }
}

pub(crate) fn draw_config(prng: &mut Prng, slot_count: u32, dirty_blocks_max: u32) -> Config {
    Config {
        slot_count,
        dirty_blocks_max,
        throttle_start_permille: 500 + prng.below(500) as u32,
        throttle_delay_ms_max: prng.below(20),
        flush_delay_ms: 1 + prng.below(300),
        // As small as the worlds are.
        early_flush_blocks: Some(1 + u64::from(dirty_blocks_max) / 8),
        recovery_point_ms: prng.chance(850).then(|| 1 + prng.below(600)),
        unpublished_extents_max: tiny(prng, 4, 200, 1 << 22),
        unpublished_entry_bytes_max: tiny(prng, 200, 20_000, 256 << 20),
        unpublished_journal_bytes_max: tiny(prng, 2_000, 60_000, 2 << 30) as u64,
        stall_timeout_ms: 20 + prng.below(3_000),
        checkpoint_interval_ms: 10 + prng.below(1_000),
        checkpoint_journal_bytes: 1_000 + prng.below(60_000),
        checkpoint_pages_max: if prng.chance(700) {
            1 + prng.below(8) as usize
        } else {
            4_096
        },
        overlay_extents_max: tiny(prng, 4, 200, 1 << 20),
        overlay_object_blocks_max: tiny(prng, 1, 1_000, 1 << 18),
        overlay_entry_bytes_max: tiny(prng, 200, 20_000, 64 << 20),
        overlay_slot_pages_max: tiny(prng, 1, 4, 1 << 14),
        replay_records_max: tiny(prng, 2, 300, 400_000) as u64,
        replay_ms_max: tiny(prng, 1, 50, 10_000) as u64,
        group_commit: [Rule::Immediate, Rule::Gather, Rule::Stout][prng.below(3) as usize],
        flush_interval: [FlushInterval::Fixed, FlushInterval::Stout][prng.below(2) as usize],
        sync_interval_ms: 2 + prng.below(200),
        segment_bytes: 500 + prng.below(12_000),
        map_cache_bytes: 200 + prng.below(20_000) as usize,
        descriptor_cache_bytes: 200 + prng.below(60_000) as usize,
        hash_blocks: 1 + prng.below(64) as usize,
        hash_jobs_max: 1 + prng.below(3) as usize,
        uploads_max: 1 + prng.below(4) as usize,
        object_blocks_max: 1 + prng.below(300) as usize,
        followers_max: 1 + prng.below(40) as usize,
        present_objects_max: 1 + prng.below(20) as usize,
        read_timeout_ms: 20_000 + prng.below(100_000),
        slot_reads_max: 2 + prng.below(4) as u32,
        fingerprints_max: 64 + prng.below(400) as usize,
        fetches_max: 1 + prng.below(6) as usize,
        fetch_blocks_max: tiny(prng, 1, 200, 1 << 15),
        upload_blocks_max: tiny(prng, 1, 400, 1 << 15),
        upload_retry_ms_min: 1 + prng.below(20),
        upload_retry_ms_max: 20 + prng.below(500),
        sequential_floor: prng.chance(500),
        compares_policies: true,
        fetch_unit: [FetchUnit::Range, FetchUnit::Range, FetchUnit::Object][prng.below(3) as usize],
        sequential_by: [SequentialBy::Prefetcher, SequentialBy::Replacement][prng.below(2) as usize],
        sweep_blocks_max: tiny(prng, 1, 12, 4_096) as u64,
    }
}

fn draw_faults(prng: &mut Prng) -> Faults {
    let mut faults = Faults::default();
    let rate = |prng: &mut Prng, likely: u64, most: u64| {
        if prng.chance(likely) { 1 + prng.below(most) } else { 0 }
    };
    faults.put_failure = rate(prng, 500, 300);
    faults.put_reply_lost = rate(prng, 500, 300);
    faults.get_failure = rate(prng, 400, 150);
    faults.outage_interval_ms = rate(prng, 300, 2_000);
    faults.outage_ms_max = 1 + prng.below(120_000);
    faults.metadata_failure = rate(prng, 200, 100);
    faults.checkpoint_outage_interval_ms = rate(prng, 250, 2_000);
    faults.checkpoint_outage_ms_max = 1 + prng.below(60_000);
    faults.slot_read_failure = rate(prng, 150, 40);
    faults.slot_write_failure = rate(prng, 150, 40);
    faults.journal_write_failure = rate(prng, 100, 4);
    faults.sync_failure = rate(prng, 100, 20);
    faults.slot_rot_interval_ms = rate(prng, 60, 100);
    faults.object_rot_interval_ms = rate(prng, 120, 300);
    faults.sector_failure_interval_ms = rate(prng, 80, 200);
    faults.full_interval_ms = rate(prng, 200, 1_000);
    faults.full_ms_max = 1 + prng.below(30_000);
    faults
}
