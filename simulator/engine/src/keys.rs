//! Replacement policies alone over the keys of a trace: no time, no cloud, every key as large as any other. Miss ratios
//! are comparable with libCacheSim's (`ignore_obj_size`): a request for n units is n requests for one, reads and
//! writes alike.

use serde::{Deserialize, Serialize};
use tombolo_trace::Source;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Its view says what a key is.
    pub trace: Source,
    pub runs: Vec<Run>,
}

/// A policy and a size to try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// As replacement policies are named in the gateway's settings, or `min`.
    pub policy: String,
    pub capacity: Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    Keys(u32),
    /// Of the trace's distinct keys, rounded down.
    Percent(f64),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    pub requests: u64,
    pub reads: u64,
    pub distinct: u64,
    /// Wall time that reading the trace took.
    pub load_seconds: f64,
    pub runs: Vec<RunReport>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunReport {
    pub policy: String,
    pub capacity: u32,
    pub misses: u64,
    pub read_misses: u64,
    pub miss_ratio: f64,
    pub read_miss_ratio: f64,
    pub seconds: f64,
    pub requests_per_second: f64,
}
