use super::ReplicaCheck;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// So many findings are kept; the rest are counted. One defect can show in a million files.
pub const CHECK_FINDINGS_KEPT_MAX: usize = 1_000;

/// How far a check of all shares is, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckStatus {
    /// Counts the checks since the gateway's start; 0 before the first. Tells a check from the next one.
    pub run: u64,
    /// Whether the numbers below still grow.
    pub state: CheckState,
    /// Looked at so far.
    pub inodes_checked: u64,
    /// How many there are, as far as is known; files come and go during a check.
    pub inodes: u64,
    /// All findings; `findings` has the first of them, at most [`CHECK_FINDINGS_KEPT_MAX`].
    pub findings_count: u64,
    /// In the order in which they were found.
    pub findings: Vec<CheckFinding>,
    /// Why it ended before its end.
    pub error: Option<String>,
}

/// Where a check of all shares stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// There was none yet.
    #[default]
    None,
    /// `inodes_checked` grows; findings may follow.
    Running,
    /// All inodes were looked at; without findings the shares are sound.
    Finished,
    /// It ended before its end; what it found until then stands.
    Failed,
}

/// Something that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckFinding {
    /// None: what belongs to no share.
    pub share: Option<String>,
    /// None: it is about no single file.
    pub inode: Option<u64>,
    /// What was found and what was expected.
    pub message: String,
}

/// How far a check of the store is, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoreCheckStatus {
    /// Counts the checks since the gateway's start; 0 before the first. Tells a check from the next one.
    pub run: u64,
    /// Whether the numbers below still grow.
    pub state: CheckState,
    /// What is being looked at, or was at the end.
    pub stage: StoreCheckStage,
    /// Whether it went on where an earlier one was interrupted; its numbers and findings are among these.
    pub resumed: bool,
    /// Blocks and records of the store's metadata that were compared with local metadata.
    pub records_compared: u64,
    /// Blocks whose references were counted and whose objects were looked for in local metadata.
    pub references_checked: u64,
    /// Entries of the fingerprint index that were looked up.
    pub index_entries_checked: u64,
    /// Of these, entries that lead to no object: they are not used, and no damage.
    pub index_entries_nowhere: u64,
    /// Read and verified so far, or found missing.
    pub objects_checked: u64,
    /// How many there are, as far as is known; more are put during a check.
    pub objects: u64,
    /// Of objects that are whole.
    pub bytes_read: u64,
    /// Of all objects, as far as is known.
    pub bytes: u64,
    /// Since the check began, or went on, to read objects.
    pub bytes_per_s: f64,
    /// Blocks in objects that the fingerprint index does not know: equal ones will be stored again. No damage.
    pub blocks_not_indexed: u64,
    /// Objects in the store that are none of this gateway's: garbage that an interrupted upload has left.
    pub orphans_count: u64,
    /// Their keys, at most [`CHECK_FINDINGS_KEPT_MAX`].
    pub orphans: Vec<String>,
    /// Copies in the store itself that were missing or altered and were put again from a replica.
    #[serde(default)]
    pub objects_healed: u64,
    /// What was found in each replica.
    #[serde(default)]
    pub replicas: Vec<ReplicaCheck>,
    /// All findings; `findings` has the first of them, at most [`CHECK_FINDINGS_KEPT_MAX`].
    pub findings_count: u64,
    /// In the order in which they were found.
    pub findings: Vec<StoreFinding>,
    /// What was not looked at, and why.
    pub remarks: Vec<String>,
    /// Why it ended before its end.
    pub error: Option<String>,
}

/// What a check of the store looks at, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreCheckStage {
    /// The store's root, journal and tree, against local metadata.
    #[default]
    StoreMetadata,
    /// Reference counts, maps, objects and slots in local metadata.
    References,
    /// The entries of the fingerprint index.
    Index,
    /// The names of the objects in the store.
    Listing,
    /// The objects themselves.
    Objects,
}

/// What kind of thing was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreFindingKind {
    /// An object is not there.
    #[default]
    ObjectMissing,
    /// An object does not decrypt, decode or verify, or holds other blocks than were put there.
    ObjectAltered,
    /// A part of the store's metadata is missing, damaged or not what its other parts say.
    StoreMetadata,
    /// Local metadata cannot be read to its end.
    LocalMetadata,
    /// References to blocks are counted wrongly.
    References,
    /// A map refers to blocks that are in no object and in no slot, or in one that is damaged: they read as errors.
    BlocksLost,
    /// An object is listed where it is not found.
    ObjectMisplaced,
    /// Local metadata and the store's do not map blocks to the same.
    MapDiffers,
    /// They do not list the same object.
    ObjectDiffers,
    /// They do not have the same entry or counter of a share.
    RecordDiffers,
    /// They do not have the same volume.
    VolumeDiffers,
    /// A fingerprint leads to a block with other contents.
    FingerprintWrong,
    /// A file of the fingerprint index cannot be read.
    IndexDamaged,
}

/// Something that is missing, altered, or contradicts something else. Fields that do not apply are empty or zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreFinding {
    /// What kind of finding it is.
    pub kind: StoreFindingKind,
    /// The key, below the store's prefix; of metadata, which have no blocks, perhaps only what their keys begin with.
    pub object: String,
    /// The volume or file whose blocks they are.
    pub volume: Option<String>,
    /// The first of them, in that volume or file.
    pub first_block: u64,
    /// Of the first block.
    pub first_pvbn: u64,
    /// Of the last block.
    pub last_pvbn: u64,
    /// How many; those of an object that are still referred to read as errors.
    pub blocks: u64,
    /// What was found and what was expected.
    pub message: String,
    /// What to do about it.
    pub advice: String,
}
