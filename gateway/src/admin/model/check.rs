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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreCheckStatus {
    /// Counts the checks since the gateway's start; 0 before the first. Tells a check from the next one.
    pub run: u64,
    /// Whether the numbers below still grow.
    pub state: CheckState,
    /// Read and verified so far, or found missing.
    pub objects_checked: u64,
    /// How many there are, as far as is known; more are put during a check.
    pub objects: u64,
    /// Of objects that are whole.
    pub bytes_read: u64,
    /// Objects in the store that are none of this gateway's: garbage that an interrupted upload has left.
    pub orphans_count: u64,
    /// Their keys, at most [`CHECK_FINDINGS_KEPT_MAX`].
    pub orphans: Vec<String>,
    /// All findings; `findings` has the first of them, at most [`CHECK_FINDINGS_KEPT_MAX`].
    pub findings_count: u64,
    /// In the order of PVBNs.
    pub findings: Vec<StoreFinding>,
    /// Why it ended before its end.
    pub error: Option<String>,
}

/// An object that is missing or altered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreFinding {
    /// Its key, below the store's prefix; of metadata, which have no blocks, perhaps only what their keys begin with.
    pub object: String,
    /// Of its first block.
    pub first_pvbn: u64,
    /// Of its last block.
    pub last_pvbn: u64,
    /// In it; those that are still referred to read as errors.
    pub blocks: u64,
    /// What is wrong with it.
    pub message: String,
}
