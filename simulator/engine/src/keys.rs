//! Replacement policies alone over the keys of a trace: no time, no cloud, every key as large as any other. Miss ratios
//! are comparable with libCacheSim's (`ignore_obj_size`): a request for n units is n requests for one, reads and
//! writes alike.

mod requests;

use crate::replay::{Error, Progress, ratio};
use requests::{Part, Requests};
use serde::{Deserialize, Serialize};
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Instant;
use tombolo_base::NameError;
use tombolo_cache::{Capacity, Grouping, KeyedCache, Min, Policy, Replacement};
use tombolo_trace::Source;

/// Belady's policy, which knows the future.
pub const MIN: &str = "min";

/// A trace and what is tried on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Its view says what a key is.
    pub trace: Source,
    /// Any number; each sees the whole trace.
    pub runs: Vec<Run>,
}

/// A policy and a size to try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// As replacement policies are named in the gateway's settings, or `min`.
    pub policy: String,
    /// How many keys fit.
    pub capacity: Size,
}

/// A size of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// So many.
    Keys(u32),
    /// Of the trace's distinct keys, rounded down.
    Percent(f64),
}

/// What all runs came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// For one unit each.
    pub requests: u64,
    /// Requests that are reads.
    pub reads: u64,
    /// Different keys, where the whole trace was loaded.
    pub distinct: Option<u64>,
    /// Wall time that reading the trace took.
    pub load_seconds: f64,
    /// As they stand in the job.
    pub runs: Vec<RunReport>,
}

/// What one run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunReport {
    /// As in the job.
    pub policy: String,
    /// In keys.
    pub capacity: u32,
    /// Of reads and writes.
    pub misses: u64,
    /// Of reads.
    pub read_misses: u64,
    /// Misses in all requests.
    pub miss_ratio: f64,
    /// Misses of reads in all reads.
    pub read_miss_ratio: f64,
    /// Wall time.
    pub seconds: f64,
    /// By wall time.
    pub requests_per_second: f64,
}

/// Tries every run on the trace. One run needs each key but once, so the trace passes by; several, one that knows the
/// future and one whose size is a share of the keys have it loaded first.
pub fn run(job: &Job, progress: Progress<'_>) -> Result<Report, Error> {
    match &job.runs[..] {
        [run] if !run.needs_whole_trace() => pass_by(run, &job.trace, progress),
        runs => load_and_try(runs, &mut Requests::open(&job.trace)?, progress),
    }
}

/// One thread reads the trace, the other replays it.
fn pass_by(run: &Run, trace: &Source, progress: Progress<'_>) -> Result<Report, Error> {
    let mut requests = Requests::open(trace)?;
    let mut attempt = Attempt::new(run, None, &[])?;
    thread::scope(|scope| {
        let (filled, parts) = sync_channel(PARTS_AHEAD);
        let (used, empty) = channel();
        let reader = scope.spawn(move || read(&mut requests, &filled, &empty));
        let mut report = Report::default();
        for part in parts {
            report.count(&part);
            attempt.replay(&part);
            progress(report.requests, 0)?;
            // A reader that is done needs no more.
            let _ = used.send(part);
        }
        report.load_seconds = reader.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        report.runs.push(attempt.report(&report));
        Ok(report)
    })
}

/// Hands on the whole trace in parts; returns the seconds that reading took. Ends early when nobody wants more.
fn read(requests: &mut Requests, filled: &SyncSender<Part>, empty: &Receiver<Part>) -> Result<f64, Error> {
    let mut seconds = 0.0;
    loop {
        let began = Instant::now();
        let mut part = empty.try_recv().unwrap_or_default();
        part.clear();
        let is_over = !requests.fill(&mut part, PART_KEYS)?;
        seconds += began.elapsed().as_secs_f64();
        if is_over || filled.send(part).is_err() {
            return Ok(seconds);
        }
    }
}

fn load_and_try(runs: &[Run], requests: &mut Requests, progress: Progress<'_>) -> Result<Report, Error> {
    let (mut report, mut parts) = (Report::default(), Vec::new());
    let began = Instant::now();
    loop {
        let mut part = Part::default();
        if !requests.fill(&mut part, PART_KEYS)? {
            break;
        }
        report.count(&part);
        parts.push(part);
        progress(report.requests, 0)?;
    }
    let distinct = requests::distinct(&parts);
    report.distinct = Some(distinct);
    report.load_seconds = began.elapsed().as_secs_f64();
    for run in runs {
        let mut attempt = Attempt::new(run, Some(distinct), &parts)?;
        let mut done = 0;
        for part in &parts {
            attempt.replay(part);
            done += part.keys.len() as u64;
            progress(done, report.requests)?;
        }
        report.runs.push(attempt.report(&report));
    }
    Ok(report)
}

/// Keys that are read, and replayed, at a time: few enough to stay in the processor's cache.
const PART_KEYS: usize = 1 << 16;
/// Parts that wait to be replayed.
const PARTS_AHEAD: usize = 2;

impl Run {
    fn needs_whole_trace(&self) -> bool {
        self.policy == MIN || matches!(self.capacity, Size::Percent(_))
    }
}

impl Report {
    fn count(&mut self, part: &Part) {
        self.requests += part.keys.len() as u64;
        self.reads += part.keys.len() as u64 - part.writes();
    }
}

/// A run under way.
struct Attempt<'a> {
    run: &'a Run,
    capacity: Capacity,
    cache: KeyedCache,
    misses: u64,
    read_misses: u64,
    seconds: f64,
}

impl<'a> Attempt<'a> {
    /// `distinct` and all parts are needed only by a run that says so.
    fn new(run: &'a Run, distinct: Option<u64>, parts: &[Part]) -> Result<Self, Error> {
        let capacity = capacity_of(run.capacity, distinct.unwrap_or(0))?;
        let policy = policy_of(&run.policy, capacity, parts)?;
        Ok(Self {
            run,
            capacity,
            cache: KeyedCache::new(capacity, policy),
            misses: 0,
            read_misses: 0,
            seconds: 0.0,
        })
    }

    fn replay(&mut self, part: &Part) {
        let began = Instant::now();
        for (at, key) in part.keys.iter().enumerate() {
            if !self.cache.access(*key) {
                self.misses += 1;
                self.read_misses += u64::from(!part.is_write(at));
            }
        }
        self.seconds += began.elapsed().as_secs_f64();
    }

    fn report(&self, whole: &Report) -> RunReport {
        RunReport {
            policy: self.run.policy.clone(),
            capacity: self.capacity.blocks,
            misses: self.misses,
            read_misses: self.read_misses,
            miss_ratio: ratio(self.misses, whole.requests),
            read_miss_ratio: ratio(self.read_misses, whole.reads),
            seconds: self.seconds,
            requests_per_second: whole.requests as f64 / self.seconds.max(1e-9),
        }
    }
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

fn policy_of(name: &str, capacity: Capacity, parts: &[Part]) -> Result<Box<dyn Replacement>, Error> {
    let refuse = |reason: String| Error::Job {
        field: "policy",
        reason,
    };
    if name == MIN {
        let keys: Vec<u64> = parts.iter().flat_map(|part| &part.keys).copied().collect();
        if keys.len() >= u32::MAX as usize {
            return Err(refuse("the trace is too long for min".into()));
        }
        return Ok(Box::new(Min::new(&keys)));
    }
    let policy: Policy = name.parse().map_err(|error: NameError| refuse(error.to_string()))?;
    Ok(policy.build(capacity, Grouping::Slots))
}
