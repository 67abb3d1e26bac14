//! The other stores that hold the same bucket.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One replica of the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaInfo {
    /// As the settings name it.
    pub name: String,
    /// Without secrets.
    pub url: String,
    /// `even`, `behind`, `away`, or `foreign`: with a root that this gateway has not put there.
    pub state: String,
    /// Why it is away or foreign.
    pub reason: Option<String>,
    /// Objects that are known to be lacking there.
    pub behind_objects: u64,
    /// Their bytes.
    pub behind_bytes: u64,
    /// Objects that are to be removed there once its root allows.
    pub behind_removals: u64,
    /// For how long something has been lacking there; 0 when nothing is.
    pub behind_age_s: u64,
    /// More may be lacking than is known: the listings have to be compared, or are being compared.
    pub is_compared: bool,
    /// Objects that were brought later, since the start.
    pub brought: u64,
    /// Objects that were put anew as they were missing or altered, since the start.
    pub healed: u64,
    /// Reads that it has answered, since the start.
    pub reads: u64,
    /// Reads that it did not answer, or too late, so that another store was asked.
    pub reads_failed_over: u64,
}

/// What a check of the store has found of the copies in one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaCheck {
    /// As the settings name it.
    pub name: String,
    /// Copies that are whole, or noted as still to be brought.
    pub whole: u64,
    /// Objects of metadata that are the same as in the store; others count below.
    pub metadata_whole: u64,
    /// Copies that were missing.
    pub missing: u64,
    /// Copies that were altered.
    pub altered: u64,
    /// Of those the ones that were put again from another store.
    pub healed: u64,
    /// Copies of which nothing is known, as the replica did not answer.
    pub unknown: u64,
}
