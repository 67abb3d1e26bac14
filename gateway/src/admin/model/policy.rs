use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tombolo_cache::Alternative;
use tombolo_core::{Comparison, PolicyCounters, Tally};

/// The policies at work, how they fare, and what is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyStatus {
    /// Its word in the settings file, such as `lru`.
    pub replacement: String,
    /// Its word in the settings file; `none` where nothing is prefetched.
    pub prefetch: String,
    /// The paper's name for this pair, if it has one.
    pub combination: Option<String>,
    /// `logical` (volume and block) or `pvbn`: by which addresses the prefetcher looks for neighbours.
    pub addressing: String,
    /// One per pair that has been at work since the start, the present one last.
    pub tallies: Vec<PolicyTally>,
    /// Streams that the prefetcher follows.
    pub streams: u64,
    /// Ranges of blocks in the history graph; 0 for a policy without one, as for the edges.
    pub graph_nodes: u64,
    /// How many pairs of ranges were read one right after the other.
    pub graph_edges: u64,
    /// Streams and history together.
    pub prefetcher_memory_bytes: u64,
    /// Prefetched blocks in the cache that nobody has read yet.
    pub unread_blocks: u64,
    /// How much of what was predicted came true, in thousandths.
    pub calibration_sequential_permille: u64,
    /// The same for what the history suggested, that above for streams.
    pub calibration_history_permille: u64,
    /// What replacement policies would have made of the blocks that were read since the start, without prefetch.
    pub comparison: PolicyComparison,
    /// What can be changed while the gateway runs, as it would stand in the settings file; unset keys are left out.
    pub settings: Vec<PolicySetting>,
}

/// Caches of metadata alone, over a sample of the blocks. The figures compare with each other and not with the gateway's
/// own, which prefetches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyComparison {
    /// Blocks of the sample that were read.
    pub blocks_read: u64,
    /// The policies that are compared.
    pub policies: Vec<ComparedPolicy>,
    /// The policy that holds clearly more than the one at work: the difference is above three standard errors and a
    /// hundredth of the blocks read. `null`: none does, or the one at work is not compared (`sarc`, `gds-latency` and their like).
    pub better: Option<String>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedPolicy {
    /// Its word in the settings file.
    pub replacement: String,
    /// Of the blocks read, those that its cache held.
    pub hits: u64,
}

impl PolicyComparison {
    /// Of what was counted; `at_work` is the word of the present policy.
    pub fn new(counted: &Comparison, at_work: &str) -> Self {
        let compared = |one: &Alternative| ComparedPolicy {
            replacement: one.policy.name().into(),
            hits: one.hits,
        };
        Self {
            blocks_read: counted.reads,
            policies: counted.alternatives.iter().map(compared).collect(),
            better: counted.better(at_work).map(|policy| policy.name().into()),
        }
    }
}

/// One key of the settings file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicySetting {
    /// Without brackets: `cache` or `prefetch`.
    pub section: String,
    /// As in docs/CONFIGURATION.md.
    pub key: String,
    /// As TOML, so texts are quoted.
    pub value: String,
}

/// What one pair of policies has achieved. Blocks, unless it says reads or suggestions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyTally {
    /// As in [`PolicyStatus`].
    pub replacement: String,
    /// As in [`PolicyStatus`].
    pub prefetch: String,
    /// In the JSON they stand beside the other fields, not in an object of their own.
    #[serde(flatten)]
    pub counters: PolicyCounters,
    /// Used in prefetched; 0 before the first.
    pub efficiency: f64,
    /// Reads of prefetched blocks in prefetched blocks; 0 before the first.
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
