//! A job as it is written down.

use serde::{Deserialize, Serialize};

/// Gateways before one store, for so long.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// What they all use.
    pub store: StoreSpec,
    /// Those that are alike, together.
    pub gateways: Vec<GatewaySpec>,
    /// Spans of time that are reported on; the last end ends the run.
    pub windows_s: Vec<(f64, f64)>,
    /// How often the state is sampled for the series.
    #[serde(default = "one_second")]
    pub sample_s: f64,
    /// Decides everything.
    #[serde(default = "one")]
    pub seed: u64,
}

/// How a store behaves.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSpec {
    /// Parts of the store, each with its own servers and its own queue.
    #[serde(default = "one_u32")]
    pub partitions: u32,
    /// Requests that a partition serves at a time.
    pub servers: u32,
    /// What a server takes for any request, on average.
    pub base_ms: f64,
    /// For each operation in it besides.
    #[serde(default)]
    pub per_operation_ms: f64,
    /// Of the logarithm of service times; zero: none.
    #[serde(default)]
    pub sigma: f64,
    /// The distance.
    #[serde(default)]
    pub round_trip_ms: f64,
    /// What one connection carries.
    #[serde(default = "no_limit")]
    pub connection_mib_per_s: f64,
    /// What all of them carry together.
    #[serde(default = "no_limit")]
    pub link_mib_per_s: f64,
    /// Requests that may wait in a partition; further ones are asked to slow down.
    #[serde(default)]
    pub queue_max: Option<u32>,
    /// Those of more than a second at this rate are asked to slow down.
    #[serde(default)]
    pub requests_per_s_max: Option<f64>,
    /// Answers that are lost, each time that they are sent.
    #[serde(default)]
    pub loss_permille: u32,
    /// When they are sent again, and twice as late each time.
    #[serde(default = "two_hundred")]
    pub retransmission_ms: f64,
    /// When everything takes longer.
    #[serde(default)]
    pub slow_periods: Vec<SlowPeriod>,
    /// When nothing begins.
    #[serde(default)]
    pub pauses: Vec<Pause>,
}

/// Service and transfer take so many times as long.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "said above")]
pub struct SlowPeriod {
    pub from_s: f64,
    pub to_s: f64,
    pub factor: f64,
}

/// The store serves nothing.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "said above")]
pub struct Pause {
    pub at_s: f64,
    pub for_s: f64,
}

/// Gateways of one kind.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GatewaySpec {
    /// How many.
    #[serde(default = "one_u32")]
    pub count: u32,
    /// What is asked of each.
    pub source: Source,
    /// Bytes of operations, with weights.
    pub sizes: Vec<(u64, f64)>,
    /// Distinct names: of operations on the same one in a batch, only one goes to the store. None: all are distinct.
    #[serde(default)]
    pub keys: Option<u32>,
    /// When operations are sent.
    #[serde(default)]
    pub batching: Batching,
    /// Operations that one request holds at the most.
    #[serde(default = "no_bound")]
    pub operations_max: u32,
    /// Requests in flight.
    #[serde(default)]
    pub limiter: Limiter,
    /// When a request without an answer counts as lost.
    #[serde(default = "thirty")]
    pub timeout_s: f64,
}

/// Where operations come from.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// At random, so many a second from an instant on.
    Poisson(Vec<(f64, f64)>),
    /// So many at a time: the next when one is done. From an instant on.
    Closed(Vec<(f64, u32)>),
}

/// When operations are sent.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Batching {
    /// Each at once, by itself.
    #[default]
    None,
    /// All that have come, so often.
    FixedMs(f64),
    /// All that have come, as Stout says.
    Stout(StoutSpec),
}

/// Stout's constants, where they are not the paper's.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StoutSpec {
    /// Which calibration.
    #[serde(default)]
    pub calibration: Calibration,
    /// Of gateways in turn; none: the calibration's.
    #[serde(default)]
    pub initial_ms: Vec<f64>,
    /// The larger of both terms of the back-off, as the paper prints it.
    #[serde(default)]
    pub alpha_max_rule: bool,
    /// Which bytes count.
    #[serde(default)]
    pub bytes: Bytes,
    /// Whether completions are counted by operations; else by requests.
    #[serde(default)]
    pub counts_operations: bool,
}

/// The ways to read the paper's `bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Bytes {
    /// Of a request, on average.
    #[default]
    Request,
    /// Of an interval.
    Interval,
    /// Of the window.
    Window,
}

/// Stout's constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Calibration {
    /// Tables 2 and 3.
    #[default]
    Paper,
    /// Section 5.6.
    Sds,
    /// Section 5.6.
    PacificA,
    /// The product's, for a journal.
    GroupCommit,
    /// The product's, for uploads.
    Uploads {
        /// The median latency of a PUT.
        latency_p50_ms: f64,
        /// When dirty data must leave.
        dirty_age_max_ms: f64,
    },
}

/// How many requests are in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Limiter {
    /// Any number.
    #[default]
    None,
    /// So many.
    Fixed(u32),
    /// The product's, up to a ceiling.
    Adaptive(u32),
    /// Latency of late over latency of long, as in Netflix' concurrency-limits; up to a ceiling.
    Gradient(u32),
    /// What waits, from the lowest latency; up to a ceiling.
    Vegas(u32),
    /// Highest rate of late times lowest latency of late; up to a ceiling.
    Bbr(u32),
}

fn one() -> u64 {
    1
}

fn one_u32() -> u32 {
    1
}

fn one_second() -> f64 {
    1.0
}

fn two_hundred() -> f64 {
    200.0
}

fn thirty() -> f64 {
    30.0
}

fn no_limit() -> f64 {
    1e6
}

fn no_bound() -> u32 {
    u32::MAX
}
