//! A job as it is written down, and which jobs are refused.

use crate::replay::Interrupted;
use serde::{Deserialize, Serialize};
use thiserror::Error;

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

/// Why a job is refused, or ended.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum Error {
    #[error("{field} is {value}; {permitted}")]
    Setting {
        field: &'static str,
        value: f64,
        permitted: &'static str,
    },
    #[error("{0} is empty")]
    Empty(&'static str),
    #[error("interrupted")]
    Interrupted,
}

impl From<Interrupted> for Error {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}

pub(super) fn check(
    field: &'static str,
    value: f64,
    least: f64,
    most: f64,
    permitted: &'static str,
) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::Setting {
        field,
        value,
        permitted,
    })
}

const HOUR_MS: f64 = 3_600_000.0;
const DAYS_S: f64 = 864_000.0;

impl Job {
    pub(super) fn check(&self) -> Result<(), Error> {
        self.store.check()?;
        for (name, is_empty) in [
            ("gateways", self.gateways.is_empty()),
            ("windows_s", self.windows_s.is_empty()),
        ] {
            if is_empty {
                return Err(Error::Empty(name));
            }
        }
        for (from, to) in &self.windows_s {
            check("windows_s", *from, 0.0, DAYS_S, "0 to 864000 s")?;
            check(
                "windows_s",
                *to,
                from + 1e-6,
                DAYS_S,
                "later than its beginning, up to 864000 s",
            )?;
        }
        check("sample_s", self.sample_s, 0.001, DAYS_S, "0.001 to 864000 s")?;
        self.gateways.iter().try_for_each(GatewaySpec::check)
    }

    /// When the run ends.
    pub(super) fn end_us(&self) -> u64 {
        let end_s = self.windows_s.iter().map(|(_, to)| *to).fold(0.0, f64::max);
        (end_s * 1e6) as u64
    }
}

impl StoreSpec {
    pub(super) fn check(&self) -> Result<(), Error> {
        for (field, count) in [("store.partitions", self.partitions), ("store.servers", self.servers)] {
            check(field, f64::from(count), 1.0, 65_536.0, "1 to 65536")?;
        }
        for (field, ms) in [
            ("store.base_ms", self.base_ms),
            ("store.per_operation_ms", self.per_operation_ms),
            ("store.round_trip_ms", self.round_trip_ms),
            ("store.retransmission_ms", self.retransmission_ms),
        ] {
            check(field, ms, 0.0, HOUR_MS, "0 to 3600000 ms")?;
        }
        check("store.sigma", self.sigma, 0.0, 5.0, "0 to 5")?;
        for (field, rate) in [
            ("store.connection_mib_per_s", self.connection_mib_per_s),
            ("store.link_mib_per_s", self.link_mib_per_s),
            ("store.requests_per_s_max", self.requests_per_s_max.unwrap_or(1.0)),
        ] {
            check(field, rate, 1e-3, 1e9, "0.001 to 1e9")?;
        }
        check(
            "store.loss_permille",
            f64::from(self.loss_permille),
            0.0,
            999.0,
            "0 to 999",
        )?;
        for period in &self.slow_periods {
            check("store.slow_periods.from_s", period.from_s, 0.0, DAYS_S, "0 to 864000 s")?;
            check(
                "store.slow_periods.to_s",
                period.to_s,
                period.from_s,
                DAYS_S,
                "not before its beginning",
            )?;
            check("store.slow_periods.factor", period.factor, 1e-3, 1e6, "0.001 to 1e6")?;
        }
        for pause in &self.pauses {
            check("store.pauses.at_s", pause.at_s, 0.0, DAYS_S, "0 to 864000 s")?;
            check("store.pauses.for_s", pause.for_s, 0.0, DAYS_S, "0 to 864000 s")?;
        }
        Ok(())
    }
}

impl GatewaySpec {
    fn check(&self) -> Result<(), Error> {
        check("gateways.count", f64::from(self.count), 1.0, 10_000.0, "1 to 10000")?;
        check(
            "gateways.operations_max",
            f64::from(self.operations_max),
            1.0,
            f64::from(u32::MAX),
            "above zero",
        )?;
        check("gateways.timeout_s", self.timeout_s, 0.001, DAYS_S, "0.001 to 864000 s")?;
        if self.sizes.is_empty() {
            return Err(Error::Empty("gateways.sizes"));
        }
        for (bytes, weight) in &self.sizes {
            check("gateways.sizes", *bytes as f64, 0.0, 1e12, "0 to 1e12 bytes")?;
            check("gateways.sizes", *weight, 1e-9, 1e9, "weights above zero")?;
        }
        if self.keys == Some(0) {
            return Err(Error::Empty("gateways.keys"));
        }
        let steps: Vec<(f64, f64)> = match &self.source {
            Source::Poisson(steps) => steps.clone(),
            Source::Closed(steps) => steps.iter().map(|(from, count)| (*from, f64::from(*count))).collect(),
        };
        if steps.is_empty() {
            return Err(Error::Empty("gateways.source"));
        }
        for (from, rate) in &steps {
            check("gateways.source", *from, 0.0, DAYS_S, "0 to 864000 s")?;
            check("gateways.source", *rate, 0.0, 1e7, "0 to 1e7")?;
        }
        if !steps.is_sorted_by(|left, right| left.0 < right.0) {
            return Err(Error::Setting {
                field: "gateways.source",
                value: steps[0].0,
                permitted: "instants must rise",
            });
        }
        if let Batching::FixedMs(ms) = self.batching {
            check("gateways.batching.fixed-ms", ms, 0.001, HOUR_MS, "0.001 to 3600000 ms")?;
        }
        if let Batching::Stout(stout) = &self.batching {
            for ms in &stout.initial_ms {
                check(
                    "gateways.batching.stout.initial_ms",
                    *ms,
                    0.001,
                    HOUR_MS,
                    "0.001 to 3600000 ms",
                )?;
            }
        }
        match self.limiter {
            Limiter::None => Ok(()),
            Limiter::Fixed(limit)
            | Limiter::Adaptive(limit)
            | Limiter::Gradient(limit)
            | Limiter::Vegas(limit)
            | Limiter::Bbr(limit) => check("gateways.limiter", f64::from(limit), 1.0, 1e6, "1 to 1000000 requests"),
        }
    }
}
