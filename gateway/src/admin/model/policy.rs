use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tombolo_core::{PolicyCounters, Tally};

/// The policies at work, how they fare, and what is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyStatus {
    pub replacement: String,
    pub prefetch: String,
    /// The paper's name for this pair, if it has one.
    pub combination: Option<String>,
    pub addressing: String,
    /// One per pair that has been at work since the start, the present one last.
    pub tallies: Vec<PolicyTally>,
    /// Streams that the prefetcher follows.
    pub streams: u64,
    pub graph_nodes: u64,
    pub graph_edges: u64,
    pub prefetcher_memory_bytes: u64,
    /// Prefetched blocks in the cache that nobody has read yet.
    pub unread_blocks: u64,
    /// How much of what was predicted came true, in thousandths.
    pub calibration_sequential_permille: u64,
    pub calibration_history_permille: u64,
    /// What can be changed while the gateway runs, as it would stand in the settings file; unset keys are left out.
    pub settings: Vec<PolicySetting>,
}

/// One key of the settings file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicySetting {
    pub section: String,
    pub key: String,
    pub value: String,
}

/// What one pair of policies has achieved. Blocks, unless it says reads or suggestions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyTally {
    pub replacement: String,
    pub prefetch: String,
    #[serde(flatten)]
    pub counters: PolicyCounters,
    /// Used in prefetched; 0 before the first.
    pub efficiency: f64,
    pub accesses_per_prefetched: f64,
}

impl From<&Tally> for PolicyTally {
    fn from(tally: &Tally) -> Self {
        let counters = tally.counters;
        let of_prefetched = |count: u64| match counters.prefetched {
            0 => 0.0,
            prefetched => count as f64 / prefetched as f64,
        };
        Self {
            replacement: tally.replacement.into(),
            prefetch: tally.prefetch.into(),
            counters,
            efficiency: of_prefetched(counters.used),
            accesses_per_prefetched: of_prefetched(counters.accesses),
        }
    }
}
