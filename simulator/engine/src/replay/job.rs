//! What to replay: plain data, read from JSON. Times are virtual unless said otherwise.

use serde::{Deserialize, Serialize};
use tombolo_billing::{Prices, Table};
use tombolo_cloud_driver::latency_table::Cell;
use tombolo_trace::Source;

/// A trace, a gateway and its surroundings.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// What clients ask for.
    pub trace: Source,
    /// Slots of the cache.
    pub cache_blocks: u32,
    /// As the replacement policies are named in the gateway's settings, or [`ADAPTIVE`](super::policies::ADAPTIVE).
    #[serde(default = "lru")]
    pub replacement: String,
    /// As the prefetch policies are named in the gateway's settings.
    #[serde(default = "none")]
    pub prefetch: String,
    /// Fields of the prefetch policy that differ from its defaults.
    #[serde(default)]
    pub prefetch_settings: serde_json::Map<String, serde_json::Value>,
    /// SARC keeps room for the streams of AMP and GRAPH, as the gateway's setting `[cache] sequential_floor`.
    #[serde(default)]
    pub sequential_floor: bool,
    /// What a fetch brings.
    #[serde(default)]
    pub fetch_unit: FetchUnit,
    /// Who tells SARC which reads are sequential.
    #[serde(default)]
    pub sequential_by: SequentialBy,
    /// What the prefetcher's addresses are.
    #[serde(default)]
    pub addressing: Addressing,
    /// Whether the prefetcher tells clients apart.
    #[serde(default)]
    pub clients: Clients,
    /// When requests come.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// The trace's times are multiplied by this ([`Arrivals::Trace`]).
    #[serde(default = "one")]
    pub time_scale: f64,
    /// Requests under way at the most ([`Arrivals::ClosedLoop`]).
    #[serde(default = "one_request")]
    pub outstanding_max: u32,
    /// From the answer to a request to the next one that takes its place ([`Arrivals::ClosedLoop`]).
    #[serde(default)]
    pub think_time_us: u64,
    /// Decides latencies and what else is drawn.
    #[serde(default)]
    pub seed: u64,
    /// Requests at the beginning that warm the cache and are left out of the report.
    #[serde(default)]
    pub warmup_requests: u64,
    /// What is in the cloud when the trace begins.
    #[serde(default)]
    pub preload: Preload,
    /// Latencies of the store.
    #[serde(default)]
    pub cloud: Cloud,
    /// Latencies of the cache's disk.
    #[serde(default)]
    pub disk: Disk,
    /// As the gateway's setting of this name.
    #[serde(default = "flush_delay_ms")]
    pub flush_delay_ms: u64,
    /// Dirty blocks at the most; half the cache when nothing is said.
    #[serde(default)]
    pub dirty_blocks_max: Option<u32>,
    /// Blocks of an object that was in the cloud before the trace began.
    #[serde(default = "pack_blocks")]
    pub pack_blocks: u32,
    /// Whether equal contents are stored once.
    #[serde(default = "yes")]
    pub dedup: bool,
    /// What the store charges; S3 Standard's list prices when nothing is said.
    #[serde(default = "s3_standard")]
    pub prices: Prices,
    /// What a second that a reader waits is worth, in millionths of a dollar: what is prefetched must be worth its price.
    /// Nothing: any price is paid.
    #[serde(default)]
    pub microdollars_per_second: Option<u64>,
    /// Checks the core's invariants after every event: slow, for tests.
    #[serde(default)]
    pub check: bool,
}

/// What the prefetcher's addresses are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Addressing {
    /// Volume and block.
    #[default]
    Logical,
    /// The names of the blocks.
    Pvbn,
    /// The first, and streams among the second for reads that follow none.
    Both,
}

/// What a fetch brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FetchUnit {
    /// What was asked for.
    #[default]
    Range,
    /// The whole object, in one request: in the papers an object of the cloud is what lies behind a key.
    Object,
}

/// Who tells SARC which reads are sequential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SequentialBy {
    /// The prefetcher's table of streams, as in the gateway.
    #[default]
    Prefetcher,
    /// SARC's own rule: the track before it is resident.
    Replacement,
}

/// Whether the prefetcher sees the trace's clients or one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clients {
    /// It sees them.
    #[default]
    Trace,
    /// All are one to it.
    One,
}

/// When the requests come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// When the trace says, times `time_scale`.
    Trace,
    /// Each `think_time_us` after an earlier one has been answered: the trace's times do not matter.
    #[default]
    ClosedLoop,
    /// At random, this many a second on the average.
    #[serde(rename = "poisson_per_s")]
    PoissonPerS(f64),
}

/// What is in the cloud when the trace begins: of blocks that are read before they are ever written, and their
/// neighbours. A prefetcher that reaches beyond what the trace touches pays for it only when something is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preload {
    /// Only these blocks.
    Touched,
    /// Every block of the aligned 256 around each of them.
    #[default]
    Pages,
    /// These, and behind them what the trace writes, as a log that was written by an earlier run of it: in the order of writing, each
    /// content once. Blocks are where they were written last; what was replaced still lies between them.
    Aged,
}

/// A named latency table (see `replay::models`), one's own, as (quantile, milliseconds) pairs in ascending order, between
/// which latencies are interpolated and beyond which the nearest counts, or the cells of a store that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Latency {
    /// A table of `replay::models`.
    Named(String),
    /// (quantile, milliseconds).
    Table(Vec<(f64, f64)>),
    /// By size and parallelism: `get` or `put` of a [`tombolo_cloud_driver::latency_table::LatencyTable`].
    Measured(Vec<Cell>),
}

/// The store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cloud {
    /// Of a GET of little, or as measured.
    pub get_ms: Latency,
    /// Of a PUT of little, or as measured.
    pub put_ms: Latency,
    /// Added to every latency: how far the store is from where the table was measured.
    pub rtt_ms: f64,
    /// Added to a request's latency for its size; not to one as measured, which depends on the size.
    pub ms_per_mib: f64,
    /// GETs under way at the most, and PUTs.
    pub parallel_requests: u32,
}

impl Default for Cloud {
    fn default() -> Self {
        Self {
            get_ms: Latency::Named("s3-2025-get".into()),
            put_ms: Latency::Named("s3-2025-put".into()),
            rtt_ms: 0.0,
            ms_per_mib: 20.0,
            parallel_requests: 16,
        }
    }
}

/// The cache's disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Disk {
    /// Of a read.
    pub read_ms: Latency,
    /// Of a write.
    pub write_ms: Latency,
    /// Operations that the disk carries out at a time.
    pub queue_depth: u32,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            read_ms: Latency::Named("ssd-read".into()),
            write_ms: Latency::Named("ssd-write".into()),
            queue_depth: 32,
        }
    }
}

fn s3_standard() -> Prices {
    Table::AwsS3Standard.prices()
}

fn lru() -> String {
    "lru".into()
}

fn none() -> String {
    "none".into()
}

fn one() -> f64 {
    1.0
}

fn one_request() -> u32 {
    1
}

fn flush_delay_ms() -> u64 {
    5_000
}

fn pack_blocks() -> u32 {
    64
}

fn yes() -> bool {
    true
}
