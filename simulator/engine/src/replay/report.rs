//! What came of a replay: plain data, written as JSON. Counts leave the warm-up out unless said otherwise.

use super::accesses::CLASSES;
use crate::Dollars;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    pub replacement: String,
    pub prefetch: String,
    pub cache_blocks: u32,
    /// Requests that were replayed; one that is too large for the cache counts once for each part.
    pub requests: u64,
    pub requests_split: u64,
    pub reads: Reads,
    pub writes: Writes,
    pub prefetched: Prefetched,
    pub cloud: CloudTraffic,
    pub dollars: Dollars,
    /// From a read's arrival to its answer.
    pub read_latency: Latencies,
    pub write_latency: Latencies,
    pub series: Series,
    pub policy: PolicyState,
    /// Of the whole run.
    pub virtual_seconds: f64,
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
    pub requests: u64,
    pub hits: u64,
    pub partial_misses: u64,
    pub complete_misses: u64,
    /// (partial + complete) / requests.
    pub miss_ratio: f64,
    pub blocks: u64,
    pub block_hits: u64,
    pub block_partial_misses: u64,
    pub block_complete_misses: u64,
    /// Blocks that nothing is stored of.
    pub block_holes: u64,
    /// (partial + complete) / (hits + partial + complete), of blocks.
    pub block_miss_ratio: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writes {
    pub requests: u64,
    pub blocks: u64,
    pub blocks_zero: u64,
    /// Blocks whose contents the cloud had already.
    pub blocks_duplicate: u64,
    /// Blocks that were packed to be uploaded.
    pub blocks_unique: u64,
    pub discards: u64,
    pub flushes: u64,
}

/// A block counts each time it is prefetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefetched {
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
    pub accesses_per_block: f64,
    /// Blocks that prefetches brought, by how often each was read until its eviction or the end: never, once, and so
    /// on, the last for five times or more. Those that were overwritten on their way are in none.
    pub blocks_by_reads: [u64; CLASSES],
    /// Blocks that were not fetched because they were not worth their price.
    pub refused: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloudTraffic {
    pub gets: u64,
    pub gets_demand: u64,
    pub puts: u64,
    pub bytes_down: u64,
    pub bytes_up: u64,
    pub blocks_down: u64,
    /// When the run ended; what was there before the trace included.
    pub stored_bytes: u64,
    pub preloaded_blocks: u64,
}

/// Milliseconds, to within a thousandth.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latencies {
    pub count: u64,
    pub mean: f64,
    pub min: f64,
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
    pub interval_seconds: f64,
    /// One an interval, from the beginning of virtual time on; the warm-up is in it.
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    pub reads: u64,
    pub read_misses: u64,
    pub writes: u64,
    pub gets: u64,
    pub puts: u64,
    pub bytes_down: u64,
    pub bytes_up: u64,
}

/// What the policies hold when the run ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyState {
    pub streams: u64,
    pub nodes: u64,
    pub edges: u64,
    pub prefetch_bytes: u64,
    /// Slots, their index and the replacement policy's tables.
    pub cache_bytes: u64,
}
