//! Replacement policies alone over the keys of a trace: no time, no cloud, every key as large as any other. Miss ratios
//! are comparable with libCacheSim's (`ignore_obj_size`): a request for n units is n requests for one, reads and
//! writes alike.

use crate::replay::{Error, Progress, ratio};
use hashbrown::{HashMap, HashSet};
use serde::{Deserialize, Serialize};
use std::time::Instant;
use tombolo_cache::{Capacity, Grouping, KeyedCache, Min, Policy, Replacement, UnknownPolicy};
use tombolo_trace::{Operation, Record, Source, open};

/// Belady's policy, which knows the future.
pub const MIN: &str = "min";

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

/// Loads the trace and tries every run on it.
pub fn run(job: &Job, progress: Progress<'_>) -> Result<Report, Error> {
    let began = Instant::now();
    let trace = Trace::load(job, progress)?;
    let mut report = Report {
        requests: trace.keys.len() as u64,
        reads: trace.reads(),
        distinct: trace.distinct,
        load_seconds: began.elapsed().as_secs_f64(),
        runs: Vec::new(),
    };
    for run in &job.runs {
        report.runs.push(try_run(run, &trace, progress)?);
    }
    Ok(report)
}

/// Keys in order, and which of the requests are reads.
struct Trace {
    keys: Vec<u64>,
    is_write: Vec<u64>,
    distinct: u64,
}

/// Keys of one volume are its addresses; those of others lie apart.
const VOLUME_SHIFT: u32 = 46;
const VOLUMES_MAX: u64 = 1 << 17;

impl Trace {
    fn load(job: &Job, progress: Progress<'_>) -> Result<Self, Error> {
        let mut reader = open(&job.trace)?;
        let (mut record, mut trace) = (Record::default(), Self::empty());
        let mut volumes: HashMap<u64, u64> = HashMap::new();
        let mut distinct = HashSet::new();
        while reader.next(&mut record)? {
            let is_write = match record.operation {
                Operation::Read => false,
                Operation::Write => true,
                Operation::Discard | Operation::Flush => continue,
            };
            let next = volumes.len() as u64;
            let volume = *volumes.entry(record.volume).or_insert(next);
            if volume > 0 && (volume >= VOLUMES_MAX || record.end() > 1 << VOLUME_SHIFT) {
                let reason = "keys of several volumes must be below 2^46, in 2^17 volumes".into();
                let field = "trace";
                return Err(Error::Job { field, reason });
            }
            let base = volume << VOLUME_SHIFT;
            for key in record.first..record.end() {
                distinct.insert(base.wrapping_add(key));
                trace.push(base.wrapping_add(key), is_write);
                if trace.keys.len().is_multiple_of(PROGRESS_KEYS) {
                    progress(trace.keys.len() as u64, 0)?;
                }
            }
        }
        trace.distinct = distinct.len() as u64;
        Ok(trace)
    }

    fn empty() -> Self {
        Self {
            keys: Vec::new(),
            is_write: Vec::new(),
            distinct: 0,
        }
    }

    fn push(&mut self, key: u64, is_write: bool) {
        let at = self.keys.len();
        if at.is_multiple_of(64) {
            self.is_write.push(0);
        }
        self.is_write[at / 64] |= u64::from(is_write) << (at % 64);
        self.keys.push(key);
    }

    fn is_write(&self, at: usize) -> bool {
        self.is_write[at / 64] & 1 << (at % 64) != 0
    }

    fn reads(&self) -> u64 {
        let writes: u64 = self.is_write.iter().map(|word| u64::from(word.count_ones())).sum();
        self.keys.len() as u64 - writes
    }
}

/// Keys between two calls of [`Progress`].
const PROGRESS_KEYS: usize = 1 << 20;

fn try_run(run: &Run, trace: &Trace, progress: Progress<'_>) -> Result<RunReport, Error> {
    let capacity = capacity_of(run.capacity, trace.distinct)?;
    let policy = policy_of(&run.policy, capacity, &trace.keys)?;
    let mut cache = KeyedCache::new(capacity, policy);
    let (mut misses, mut read_misses) = (0u64, 0u64);
    let began = Instant::now();
    for (part, keys) in trace.keys.chunks(PROGRESS_KEYS).enumerate() {
        let start = part * PROGRESS_KEYS;
        for (offset, key) in keys.iter().enumerate() {
            if !cache.access(*key) {
                misses += 1;
                read_misses += u64::from(!trace.is_write(start + offset));
            }
        }
        progress((start + keys.len()) as u64, trace.keys.len() as u64)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    Ok(RunReport {
        policy: run.policy.clone(),
        capacity: capacity.blocks,
        misses,
        read_misses,
        miss_ratio: ratio(misses, trace.keys.len() as u64),
        read_miss_ratio: ratio(read_misses, trace.reads()),
        seconds,
        requests_per_second: trace.keys.len() as f64 / seconds.max(1e-9),
    })
}

fn capacity_of(size: Size, distinct: u64) -> Result<Capacity, Error> {
    let keys = match size {
        Size::Keys(keys) => u64::from(keys),
        Size::Percent(percent) if (0.0..=1e6).contains(&percent) => (distinct as f64 * percent / 100.0) as u64,
        Size::Percent(_) => 0,
    };
    match u32::try_from(keys) {
        Ok(keys) if keys > 0 => Ok(Capacity::of_blocks(keys)),
        _ => Err(Error::Job {
            field: "capacity",
            reason: format!("{keys} keys; it must be 1 to 2^32"),
        }),
    }
}

fn policy_of(name: &str, capacity: Capacity, keys: &[u64]) -> Result<Box<dyn Replacement>, Error> {
    let refuse = |reason: String| Error::Job {
        field: "policy",
        reason,
    };
    if name == MIN {
        if keys.len() >= u32::MAX as usize {
            return Err(refuse("the trace is too long for min".into()));
        }
        return Ok(Box::new(Min::new(keys)));
    }
    let policy: Policy = name.parse().map_err(|error: UnknownPolicy| refuse(error.to_string()))?;
    Ok(policy.build(capacity, Grouping::Slots))
}
