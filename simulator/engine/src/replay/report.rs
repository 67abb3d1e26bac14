//! What came of a replay: plain data, written as JSON. Counts leave the warm-up out unless said otherwise.

use super::accesses::CLASSES;
use serde::{Deserialize, Serialize};
use tombolo_billing::Dollars;

/// What came of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// As in the job.
    pub replacement: String,
    /// As in the job.
    pub prefetch: String,
    /// As in the job.
    pub cache_blocks: u32,
    /// Requests that were replayed; one that is too large for the cache counts once for each part.
    pub requests: u64,
    /// Requests that were too large for the cache.
    pub requests_split: u64,
    /// What reads found.
    pub reads: Reads,
    /// What writes brought.
    pub writes: Writes,
    /// What became of prefetched blocks.
    pub prefetched: Prefetched,
    /// What went to the store and came from it.
    pub cloud: CloudTraffic,
    /// What that costs.
    pub dollars: Dollars,
    /// From a read's arrival to its answer.
    pub read_latency: Latencies,
    /// From a write's arrival to its answer.
    pub write_latency: Latencies,
    /// Traffic by time.
    pub series: Series,
    /// What the policies hold at the end.
    pub policy: PolicyState,
    /// Of the whole run.
    pub virtual_seconds: f64,
    /// Of the whole run.
    pub wall_seconds: f64,
    /// Of all requests, the warm-up included, by wall time.
    pub requests_per_second: f64,
    /// Of every answer with its time, in order: equal for equal runs.
    pub digest: String,
}

/// A request is a hit when all its blocks are in the cache, a complete miss when a fetch must begin for one, and a
/// partial miss when all that is missing is on its way already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reads {
    /// All of them.
    pub requests: u64,
    /// Requests.
    pub hits: u64,
    /// Requests.
    pub partial_misses: u64,
    /// Requests.
    pub complete_misses: u64,
    /// (partial + complete) / requests.
    pub miss_ratio: f64,
    /// Of all requests together.
    pub blocks: u64,
    /// Blocks in the cache.
    pub block_hits: u64,
    /// Blocks on their way.
    pub block_partial_misses: u64,
    /// Blocks that a fetch began for.
    pub block_complete_misses: u64,
    /// Blocks that nothing is stored of.
    pub block_holes: u64,
    /// (partial + complete) / (hits + partial + complete), of blocks.
    pub block_miss_ratio: f64,
}

/// What writes brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writes {
    /// All of them.
    pub requests: u64,
    /// Of all requests together.
    pub blocks: u64,
    /// Blocks of zeroes, which are stored nowhere.
    pub blocks_zero: u64,
    /// Blocks whose contents the cloud had already.
    pub blocks_duplicate: u64,
    /// Blocks that were packed to be uploaded.
    pub blocks_unique: u64,
    /// Requests.
    pub discards: u64,
    /// Requests.
    pub flushes: u64,
}

/// A block counts each time it is prefetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefetched {
    /// All of them.
    pub blocks: u64,
    /// Read before they were evicted, or waited for while they were on their way.
    pub used: u64,
    /// Evicted unread.
    pub wasted: u64,
    /// used / blocks: the prefetch efficiency of the Tombolo paper.
    pub efficiency: f64,
    /// Fetched for nothing for another reason: the fetch failed.
    pub dropped: u64,
    /// Reads of prefetched blocks before their eviction, and how many there were for each block.
    pub accesses: u64,
    /// As `accesses`.
    pub accesses_per_block: f64,
    /// Blocks that prefetches brought, by how often each was read until its eviction or the end: never, once, and so
    /// on, the last for five times or more. Those that were overwritten on their way are in none.
    pub blocks_by_reads: [u64; CLASSES],
    /// Blocks that were not fetched because they were not worth their price.
    pub refused: u64,
}

/// What went to the store and came from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloudTraffic {
    /// All of them.
    pub gets: u64,
    /// Those that a client waited for.
    pub gets_demand: u64,
    /// All of them.
    pub puts: u64,
    /// Downloaded.
    pub bytes_down: u64,
    /// Uploaded.
    pub bytes_up: u64,
    /// Downloaded.
    pub blocks_down: u64,
    /// When the run ended; what was there before the trace included.
    pub stored_bytes: u64,
    /// What was there before the trace began.
    pub preloaded_blocks: u64,
}

/// Milliseconds, to within a thousandth.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latencies {
    /// Requests.
    pub count: u64,
    /// Of all.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// (quantile, milliseconds).
    pub quantiles: Vec<(f64, f64)>,
    /// (upper bound in milliseconds, requests above the bound before and not above this one), without empty ones.
    pub histogram: Vec<(f64, u64)>,
}

/// Traffic by time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// In virtual time.
    pub interval_seconds: f64,
    /// One an interval, from the beginning of virtual time on; the warm-up is in it.
    pub points: Vec<Point>,
}

/// What happened in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Requests.
    pub reads: u64,
    /// Partial and complete.
    pub read_misses: u64,
    /// Requests.
    pub writes: u64,
    /// To the store.
    pub gets: u64,
    /// To the store.
    pub puts: u64,
    /// Downloaded.
    pub bytes_down: u64,
    /// Uploaded.
    pub bytes_up: u64,
}

/// What the policies hold when the run ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyState {
    /// That the prefetcher follows.
    pub streams: u64,
    /// Of its history.
    pub nodes: u64,
    /// Of its history.
    pub edges: u64,
    /// Of memory.
    pub prefetch_bytes: u64,
    /// Slots, their index and the replacement policy's tables.
    pub cache_bytes: u64,
}
