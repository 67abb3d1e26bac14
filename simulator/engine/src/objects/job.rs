//! A job as it is written down, and which jobs are refused.

use super::cloud::Location;
use super::policy::Policy;
use super::workload::WorkloadSpec;
use crate::replay::Interrupted;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tombolo_base::NameError;

/// A workload, a policy and a cache, whose size is either `cache_bytes` or `cache_share`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// What is asked for.
    pub workload: WorkloadSpec,
    /// `lru`, `arc` (weighed in bytes), `sieve`, or one of the GDS family.
    pub policy: String,
    /// The size of the cache.
    #[serde(default)]
    pub cache_bytes: Option<u64>,
    /// Part of the bytes of all objects, each counted once at its largest.
    #[serde(default)]
    pub cache_share: Option<f64>,
    /// Objects are dealt out to the locations in turn, in the order of their first request.
    pub locations: Vec<Location>,
    /// What latencies are divided by.
    #[serde(default)]
    pub normalisation: Normalisation,
    /// Parts of the cache for latency and for price, in two-region policies; the paper's are 1 and 2.
    #[serde(default)]
    pub region_shares: Option<[u32; 2]>,
    /// When writes go to the cloud.
    #[serde(default)]
    pub write_mode: WriteMode,
    /// The medium that the cache lies on.
    #[serde(default)]
    pub local: Local,
    /// When requests come.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Decides the latencies; the workload has a seed of its own.
    #[serde(default = "one")]
    pub seed: u64,
    /// Whether an object larger than the cache is passed by; otherwise it is an error.
    #[serde(default)]
    pub passes_large_objects: bool,
}

/// What latencies are divided by in the policies that normalise, and in `gds-latency` and `gdsf-latency` if asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Normalisation {
    /// As the policy's own settings say.
    #[default]
    Policy,
    /// Microseconds as they are, everywhere.
    None,
    /// This multiple of the shortest round trip, everywhere but in the price region.
    RoundTrips(u32),
}

/// When writes go to the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum WriteMode {
    /// At once, and the request waits for it.
    Through,
    /// Later, by a daemon.
    Back {
        /// How long an object is dirty before it is uploaded.
        age_ms: u64,
        /// How often the daemon looks.
        period_ms: u64,
        /// Uploads of the daemon under way at a time.
        uploads_max: u32,
    },
}

impl Default for WriteMode {
    /// The paper's 30 and 5 seconds, section 5.1.1.
    fn default() -> Self {
        Self::Back {
            age_ms: 30_000,
            period_ms: 5_000,
            uploads_max: 1,
        }
    }
}

/// The medium that the cache lies on.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Local {
    /// For any request.
    pub access_ms: f64,
    /// Bandwidth.
    pub mib_per_s: f64,
}

impl Default for Local {
    /// An SSD of the paper's time: Hou et al., MSST'16, table II.
    fn default() -> Self {
        Self {
            access_ms: 0.2,
            mib_per_s: 60.0,
        }
    }
}

/// When requests come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrivals {
    /// Each request when the one before it has been answered.
    #[default]
    ClosedLoop,
    /// Each at its time; requests do not wait for each other.
    Trace,
}

fn one() -> u64 {
    1
}

/// Why a job is refused, or ended.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum Error {
    #[error("{field} is {value}; {permitted}")]
    Setting {
        field: String,
        value: String,
        permitted: &'static str,
    },
    #[error(transparent)]
    UnknownPolicy(#[from] NameError),
    #[error("exactly one of cache_bytes and cache_share is to be given")]
    CacheSize,
    #[error("object {object} has {bytes} bytes, the cache {cache_bytes}; passes_large_objects would pass it by")]
    ObjectExceedsCache { object: u64, bytes: u64, cache_bytes: u64 },
    #[error("request {request}: the size of an object is {bytes}; it must be between 1 and 4294967295 bytes")]
    ObjectSize { request: u64, bytes: u64 },
    #[error("the workload has no requests")]
    NoRequests,
    #[error("the workload has no times of arrival")]
    NoTimes,
    #[error("interrupted")]
    Interrupted,
    #[error("{path}, {unit} {number}: {source}")]
    Trace {
        path: String,
        /// What the number counts: `line`, or `byte` once decompressed.
        unit: &'static str,
        number: u64,
        source: std::io::Error,
    },
    #[error("{path}, line {line}: {problem}")]
    TraceLine {
        path: String,
        line: u64,
        problem: &'static str,
    },
}

impl From<Interrupted> for Error {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}

/// A number that must be finite and not negative.
pub(super) fn check_amount(field: impl Into<String>, value: f64) -> Result<(), Error> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(setting(field, value, "it must be finite and not negative"))
}

/// One that must be above zero as well.
pub(super) fn check_positive(field: impl Into<String>, value: f64) -> Result<(), Error> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(setting(field, value, "it must be finite and above zero"))
}

pub(super) fn setting(field: impl Into<String>, value: impl ToString, permitted: &'static str) -> Error {
    Error::Setting {
        field: field.into(),
        value: value.to_string(),
        permitted,
    }
}

impl Job {
    /// Refuses what cannot be carried out. Sizes of objects are looked at when the workload is there.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.policy.parse::<Policy>()?;
        match (self.cache_bytes, self.cache_share) {
            (Some(bytes), None) => check_positive("cache_bytes", bytes as f64)?,
            (None, Some(share)) => check_positive("cache_share", share)?,
            _ => return Err(Error::CacheSize),
        }
        if self.locations.is_empty() || self.locations.len() > usize::from(u8::MAX) {
            return Err(setting("locations", self.locations.len(), "1 to 255 are possible"));
        }
        for location in &self.locations {
            location.check()?;
        }
        if self.region_shares.is_some_and(|shares| shares.contains(&0)) {
            return Err(setting("region_shares", 0, "both must be above zero"));
        }
        if self.normalisation == Normalisation::RoundTrips(0) {
            return Err(setting("normalisation", 0, "the multiple must be above zero"));
        }
        if let WriteMode::Back { period_ms: 0, .. } | WriteMode::Back { uploads_max: 0, .. } = self.write_mode {
            return Err(setting("write_mode", 0, "period_ms and uploads_max must be above zero"));
        }
        check_amount("local.access_ms", self.local.access_ms)?;
        check_positive("local.mib_per_s", self.local.mib_per_s)?;
        self.workload.check()
    }
}
