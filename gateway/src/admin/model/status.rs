//! What `tombolo status --json` prints. Names and units are a promise to scripts; fields are added, never changed.

use super::{BillStatus, PolicyStatus, ReplicaInfo, ShareInfo, VolumeInfo};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a running gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Of the daemon, not of the command that asks.
    pub version: String,
    /// Seconds since it began to serve, recovery not included.
    pub uptime_s: f64,
    /// Absolute; cache file, journal and local metadata are in it.
    pub state_directory: String,
    /// Set once the local disk has failed: until a restart reads are served, nothing is changed or uploaded.
    pub failure: Option<String>,
    /// What the local disk, or a store that is behind or away, keeps from going on for now: it goes on by itself once
    /// the cause is gone.
    #[serde(default)]
    pub pause: Option<String>,
    /// The bucket or directory behind the gateway, as the latest requests found it.
    pub store: StoreStatus,
    /// The other stores that hold the same, in the order of their names.
    #[serde(default)]
    pub replicas: Vec<ReplicaInfo>,
    /// Of what is put into the store.
    #[serde(default)]
    pub encryption: EncryptionStatus,
    /// Blocks that read as errors.
    #[serde(default)]
    pub lost: LossStatus,
    /// Acknowledged, not in the store yet: lost if the local disk is lost now.
    pub dirty_bytes: u64,
    /// At so many dirty bytes writers wait, and after too long are told to try again.
    pub dirty_bytes_max: u64,
    /// How old the oldest acknowledged byte is that the store lacks. 0 when nothing is dirty.
    pub oldest_dirty_age_s: f64,
    /// What a recovery from the store alone would bring back.
    #[serde(default)]
    pub recovery_point: RecoveryPointStatus,
    /// Whether what a recovery found in the store is here.
    #[serde(default)]
    pub metadata: MetadataStatus,
    /// On the way from the local disk to the store.
    pub upload: UploadStatus,
    /// Over the life of the state directory.
    pub dedup: DedupStatus,
    /// Room, and reads since the start.
    pub cache: CacheStatus,
    /// Replacement and prefetch.
    #[serde(default)]
    pub policy: PolicyStatus,
    /// Bytes of all objects, after deduplication and compression.
    pub stored_bytes: u64,
    /// How many there are; each is one PUT and holds up to 64 blocks.
    pub objects: u64,
    /// What the store costs.
    #[serde(default)]
    pub bill: BillStatus,
    /// What the next start has to replay.
    pub journal: JournalStatus,
    /// Since the start, but for those that wait.
    pub writes: WriteStatus,
    /// Of the daemon alone; servers in front of it have their own.
    pub memory: MemoryStatus,
    /// Clients of all volumes.
    pub connections: u64,
    /// In the order of their names.
    pub volumes: Vec<VolumeInfo>,
    /// In the order of their names.
    pub shares: Vec<ShareInfo>,
    /// Named stores, in the order of their names; all above but process, volumes and shares is of the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<NamedStoreStatus>,
}

/// A store that `[store.named.NAME]` names, or has named once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamedStoreStatus {
    /// As in the settings.
    pub name: String,
    /// Why it does not serve; none: it does.
    pub reason: Option<String>,
    /// As of the first; none: it does not serve.
    pub status: Option<Status>,
}

/// Local metadata of a gateway that was recovered from its store. What is not here yet is read in the store when it is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MetadataStatus {
    /// Nothing more of it is in the store alone.
    pub is_complete: bool,
    /// Pages of maps, entries and objects that were brought here since the start.
    pub loaded_records: u64,
    /// Why the last of them could not be brought, if that is so; it is tried again.
    pub failure: Option<String>,
}

/// Of a daemon that brings all of it here before it serves.
impl Default for MetadataStatus {
    fn default() -> Self {
        Self {
            is_complete: true,
            loaded_records: 0,
            failure: None,
        }
    }
}

/// What the store holds, and can be recovered from it without the local disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecoveryPointStatus {
    /// Age of the oldest change that the store does not know of: data, names, anything. All that is younger would be lost with
    /// the local disk. 0: it knows everything.
    pub age_s: f64,
    /// Everything that was acknowledged before this time is in the store; seconds since 1970, by this machine's clock. None: the
    /// store was told nothing yet.
    pub time_s: Option<u64>,
    /// Recovery points that the store was told of since the start.
    pub count: u64,
    /// Attempts that failed and were repeated.
    pub failures: u64,
}

/// How objects are encrypted, and with which keys. Of a key only the id is ever told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EncryptionStatus {
    /// Whether new objects are encrypted; if so, with AES-256-GCM and the last data key.
    pub is_on: bool,
    /// The master key, which encrypts the data keys; none if there are no data keys.
    pub master_key: Option<String>,
    /// The key of AWS KMS that wraps the master key, by its ARN; none if the master key comes from elsewhere.
    pub wrapped_by: Option<String>,
    /// Oldest first. Each is kept for the objects that it has encrypted.
    pub data_keys: Vec<DataKeyStatus>,
}

/// A data key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DataKeyStatus {
    /// 16 hexadecimal digits.
    pub id: String,
    /// Seconds since 1970.
    pub made_s: u64,
}

/// Blocks that are known to be lost, until they are overwritten or found again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossStatus {
    /// Of 4 KiB, in all ranges, shown or not.
    pub blocks: u64,
    /// The first hundred.
    pub ranges: Vec<LostRange>,
}

/// Neighbouring blocks of one volume or file, lost for the same reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostRange {
    /// The volume's name, or which file of a share.
    pub volume: String,
    /// In blocks of 4 KiB.
    pub first_block: u64,
    /// Of 4 KiB.
    pub blocks: u64,
    /// Their object is missing or altered; else their only copy in the cache file went bad before it was uploaded.
    pub in_store: bool,
}

/// Whether the store does what it is asked, and if not, what to see to first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreState {
    /// The latest request succeeded, and no object is known to be missing.
    #[default]
    Ok,
    /// It answers, but objects are missing or altered.
    Damaged,
    /// Some requests fail.
    Degraded,
    /// No request has succeeded for a while.
    Unreachable,
    /// It is full, or over its quota.
    Full,
    /// It refuses our credentials or permissions.
    Denied,
    /// The bucket or directory is not there.
    Missing,
}

impl StoreState {
    /// As in the JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Damaged => "damaged",
            Self::Degraded => "degraded",
            Self::Unreachable => "unreachable",
            Self::Full => "full",
            Self::Denied => "denied",
            Self::Missing => "missing",
        }
    }
}

/// The store as the latest requests found it. Failed requests are tried again by themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoreStatus {
    /// Without secrets.
    pub url: String,
    /// Anything but `ok` wants a look at `last_error`, or at the lost blocks.
    pub state: StoreState,
    /// Why the latest request failed; none while the latest succeeded.
    pub last_error: Option<String>,
    /// None before the first success.
    pub last_success_age_s: Option<f64>,
    /// Requests from it.
    #[serde(default)]
    pub downloads: ConcurrencyStatus,
    /// Requests to it.
    #[serde(default)]
    pub uploads: ConcurrencyStatus,
    /// What the gateway began with; none if it had to find out everything.
    #[serde(default)]
    pub latency_table: Option<LatencyTableStatus>,
}

/// A table of what the store was measured to take, `[store] latency_table`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyTableStatus {
    /// Where it was read at the start.
    pub file: String,
    /// When it was measured, in UTC.
    pub measured_at: String,
    /// The URL of the store that was measured.
    pub measured_store: String,
}

/// Requests in one direction, and what is known of the path that they take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConcurrencyStatus {
    /// So many suit the store at once, as found out or as set.
    pub limit: u64,
    /// The highest rate of late; 0 before anything is known.
    pub bytes_per_s: f64,
    /// How often the store has asked for patience, or lost so much that the limit was halved.
    pub halvings: u64,
}

/// How fast dirty data leaves, and how long that takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UploadStatus {
    /// Dirty bytes that became clean per second, lately.
    pub clean_bytes_per_s: f64,
    /// PUTs that the store has not answered yet.
    pub objects_in_flight: u64,
    /// Someone asked for a drain, and it is not finished.
    pub draining: bool,
    /// Until nothing is dirty, at the present rate. 0 when clean, none while nothing moves.
    pub drain_eta_s: Option<f64>,
    /// The share of what was written lately that was replaced or deleted within `[flush] flush_delay_ms`. Above an eighth, uploads
    /// wait for that delay.
    #[serde(default)]
    pub absorbed_share: f64,
    /// Between rounds of uploads; none while they begin by the age of the oldest dirty block alone.
    #[serde(default)]
    pub interval: Option<UploadIntervalStatus>,
}

/// Stout's interval between rounds of uploads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UploadIntervalStatus {
    /// As it is now.
    pub interval_s: f64,
    /// Of an object, from when it was ready, lately.
    pub latency_s: f64,
    /// Decisions to shorten the interval.
    pub accelerations: u64,
    /// Those to lengthen it.
    pub back_offs: u64,
}

impl UploadStatus {
    /// How long the backlog takes at a rate.
    pub fn eta_s(dirty_bytes: u64, clean_bytes_per_s: f64) -> Option<f64> {
        match dirty_bytes {
            0 => Some(0.0),
            _ if clean_bytes_per_s > 0.0 => Some(dirty_bytes as f64 / clean_bytes_per_s),
            _ => None,
        }
    }
}

/// Blocks that clients wrote and the flush has looked at, by what became of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DedupStatus {
    /// The sum of the next three.
    pub blocks_written: u64,
    /// Blocks of zeroes, which are stored nowhere.
    pub blocks_zero: u64,
    /// Already in the store.
    pub blocks_duplicate: u64,
    /// Uploaded.
    pub blocks_unique: u64,
    /// Blocks written for each block uploaded; 1 before anything was uploaded.
    pub ratio: f64,
}

impl DedupStatus {
    /// Sum and ratio follow from the three.
    pub fn new(blocks_zero: u64, blocks_duplicate: u64, blocks_unique: u64) -> Self {
        let blocks_written = blocks_zero + blocks_duplicate + blocks_unique;
        let ratio = if blocks_unique == 0 {
            1.0
        } else {
            blocks_written as f64 / blocks_unique as f64
        };
        Self {
            blocks_written,
            blocks_zero,
            blocks_duplicate,
            blocks_unique,
            ratio,
        }
    }
}

/// The cache file. What is counted is counted since the gateway's start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheStatus {
    /// All slots; headers do not count.
    pub size_bytes: u64,
    /// Dirty and clean blocks together.
    pub used_bytes: u64,
    /// Blocks read that were in the cache.
    pub hits: u64,
    /// Blocks read that were already on their way from the store.
    pub partial_misses: u64,
    /// Blocks read that had to be fetched.
    pub complete_misses: u64,
    /// Hits in all blocks read; 0 before the first.
    pub hit_ratio: f64,
    /// Blocks sent for before anybody asked.
    pub blocks_prefetched: u64,
    /// Slots whose content did not match its checksum; such a block is fetched again if the store has it.
    pub slots_corrupt: u64,
    /// Dirty blocks whose slots cannot be read for the time being; they are read again before they are given up as lost.
    pub blocks_unreadable: u64,
    /// Blocks whose only copy was found corrupt. Anything but 0 is loss of data.
    pub blocks_lost: u64,
}

impl CacheStatus {
    /// Sets the ratio from the counters.
    pub fn with_hit_ratio(mut self) -> Self {
        let reads = self.reads();
        self.hit_ratio = if reads == 0 {
            0.0
        } else {
            self.hits as f64 / reads as f64
        };
        self
    }

    /// Blocks read.
    pub fn reads(&self) -> u64 {
        self.hits + self.partial_misses + self.complete_misses
    }
}

/// The journal, and how far local metadata is behind it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JournalStatus {
    /// Written since the latest checkpoint.
    pub bytes: u64,
    /// Since the latest that succeeded; since the start before the first.
    pub last_checkpoint_age_s: f64,
    /// Records that a restart would replay now, and about how long that would take.
    #[serde(default)]
    pub replay_records: u64,
    /// Seconds, estimated from how long the latest replay took.
    #[serde(default)]
    pub replay_s: f64,
    /// The most that it ever has to.
    #[serde(default)]
    pub replay_records_max: u64,
    /// Changes wait until the checkpoint under way is over.
    #[serde(default)]
    pub is_behind: bool,
    /// When syncs begin that clients wait for.
    #[serde(default)]
    pub group_commit: GroupCommitStatus,
}

/// The rule by which syncs of journal and cache file begin, and what it has come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupCommitStatus {
    /// `immediate`, `gather` or `stout`.
    pub rule: String,
    /// How long a sync takes, on average.
    pub sync_s: f64,
    /// With `gather` the longest that a sync is held back now; with `stout` the time between the beginnings of two.
    pub interval_s: f64,
    /// The share of clients that are back within that after an answer.
    pub returning: f64,
    /// Syncs that were held back.
    pub held_back: u64,
    /// Decisions of `stout` to shorten the interval.
    pub accelerations: u64,
    /// Those to lengthen it.
    pub back_offs: u64,
}

/// How writers fared at the cap on dirty data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WriteStatus {
    /// Writes slowed above the throttle's start.
    pub throttled: u64,
    /// Writes that had to wait at the cap.
    pub stalled: u64,
    /// Writes, and flushes that were to wait for the store, refused with "try again" after waiting too long.
    pub refused: u64,
    /// Writes waiting at the cap now.
    pub waiting: u64,
}

/// Bytes of memory by what they are for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryStatus {
    /// Bookkeeping of cache slots.
    pub slots_bytes: u64,
    /// Bookkeeping of dirty blocks.
    pub dirty_bytes: u64,
    /// Map pages, as decoded.
    pub map_cache_bytes: u64,
    /// Descriptors of objects, as decoded.
    pub descriptor_cache_bytes: u64,
    /// Filters, fences and the memtable; its runs are on the disk.
    pub fingerprint_index_bytes: u64,
    /// Streams and history.
    #[serde(default)]
    pub prefetcher_bytes: u64,
    /// Resident set of the process.
    pub resident_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_defined_without_data() {
        assert_eq!(DedupStatus::new(0, 0, 0).ratio, 1.0);
        assert_eq!(DedupStatus::new(1, 2, 3).ratio, 2.0);
        assert_eq!(CacheStatus::default().with_hit_ratio().hit_ratio, 0.0);
        let cache = CacheStatus {
            hits: 3,
            partial_misses: 1,
            complete_misses: 0,
            ..Default::default()
        };
        assert_eq!(cache.with_hit_ratio().hit_ratio, 0.75);
    }

    #[test]
    fn estimate_needs_a_rate() {
        assert_eq!(UploadStatus::eta_s(0, 0.0), Some(0.0));
        assert_eq!(UploadStatus::eta_s(10, 0.0), None);
        assert_eq!(UploadStatus::eta_s(10, 5.0), Some(2.0));
    }
}
