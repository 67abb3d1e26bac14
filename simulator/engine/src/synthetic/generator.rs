//! Sessions merged into one trace, in order of time.

use super::contents::Contents;
use super::projects::lognormal;
use super::sessions::{Office, Request};
use super::{Specification, arrivals, model};
use crate::replay::Error;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tombolo_base::{BLOCK_BYTES, Prng};
use tombolo_trace::{Operation, Record};

const DAY_US: u64 = 86_400_000_000;
/// Keep the draws of arrivals and of contents apart from those of sessions, which begin with the seed itself.
const ARRIVALS: u64 = 0x6172_7269_7661_6c73;
const CONTENTS: u64 = 0x636f_6e74_656e_7473;

#[derive(Clone, Copy, Debug)]
struct Planned {
    start_us: u64,
    /// Requests that all later sessions have left to make.
    left_after: u64,
}

/// A request in its place; earlier ones, then those made first, come first.
#[derive(Debug)]
struct Waiting(u64, u64, Request);

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// The records of a trace, in order of time. Holds the namespace and the requests of sessions under way.
#[derive(Debug)]
pub struct Generator {
    office: Office,
    contents: Contents,
    contents_prng: Prng,
    sessions: VecDeque<Planned>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Requests of all sessions so far.
    made: u64,
    /// Days whose beginning has passed.
    days: u64,
    requests: u64,
}

impl Generator {
    /// # Errors
    /// The specification is refused.
    pub fn new(trace: Specification) -> Result<Self, Error> {
        trace.check()?;
        let printed = trace.dataset.printed();
        let office = Office::new(trace);
        let requests = office.left();
        Ok(Self {
            sessions: plan(&mut Prng::new(trace.seed ^ ARRIVALS), requests, printed.days),
            contents: Contents::new(printed.new_share()),
            contents_prng: Prng::new(trace.seed ^ CONTENTS),
            office,
            waiting: BinaryHeap::new(),
            made: 0,
            days: 0,
            requests,
        })
    }

    /// Of the whole trace.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    fn begin_session(&mut self, planned: Planned) {
        while self.days < planned.start_us / DAY_US {
            self.office.drift();
            self.days += 1;
        }
        let mut requests = Vec::new();
        self.office.session(planned.start_us, planned.left_after, &mut requests);
        for request in requests {
            self.waiting.push(Reverse(Waiting(request.time_us, self.made, request)));
            self.made += 1;
        }
    }

    fn record_of(&mut self, request: Request) -> Record {
        let (first, count) = (request.extent.first, request.extent.blocks);
        let contents = match request.is_write {
            true => self.contents.of_write(&mut self.contents_prng, count),
            false => Vec::new(),
        };
        Record {
            time_us: request.time_us,
            operation: if request.is_write {
                Operation::Write
            } else {
                Operation::Read
            },
            client: request.client,
            volume: 0,
            first,
            count,
            bytes: count * BLOCK_BYTES as u64,
            contents,
        }
    }
}

impl Iterator for Generator {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        // Nothing that a later session asks for comes before its beginning.
        let is_due = |planned: &Planned, first: Option<&Reverse<Waiting>>| {
            first.is_none_or(|Reverse(Waiting(time_us, ..))| planned.start_us <= *time_us)
        };
        while let Some(planned) = self.sessions.front().copied()
            && is_due(&planned, self.waiting.peek())
        {
            self.sessions.pop_front();
            self.begin_session(planned);
        }
        let Reverse(Waiting(_, _, request)) = self.waiting.pop()?;
        Some(self.record_of(request))
    }
}

/// When sessions begin and how the requests are shared out among them. One that makes more than its share leaves less to
/// those that follow.
fn plan(prng: &mut Prng, requests: u64, days: u64) -> VecDeque<Planned> {
    let sessions = (requests as f64 / model::SESSION_REQUESTS).ceil() as usize;
    let starts = arrivals::starts(prng, sessions, days);
    let weights: Vec<f64> = (0..sessions)
        .map(|_| lognormal(prng, (1.0, model::SESSION_SIGMA)))
        .collect();
    let total: f64 = weights.iter().sum();
    let mut passed = 0.0;
    let mut planned: VecDeque<_> = (starts.into_iter().zip(weights))
        .map(|(start_us, weight)| {
            passed += weight;
            Planned {
                start_us,
                left_after: (requests as f64 * (1.0 - passed / total)).max(0.0) as u64,
            }
        })
        .collect();
    if let Some(last) = planned.back_mut() {
        last.left_after = 0;
    }
    planned
}
