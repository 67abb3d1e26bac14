//! The structure of a trace's requests, as far as caching and prefetching can live off it: how long sequential runs are,
//! how soon blocks are used again, how often the place that is read next is one that was read next before, and how large
//! the working set is. Nothing here depends on a policy, but that reuse distances are those of LRU.
//!
//! Everything counts units of the view that the trace is read in. Discards and flushes count as requests only.

mod reuse;
mod runs;
mod successors;
mod working_set;

pub use reuse::{MissRatio, Reuse};
pub use runs::{RunLength, Runs};
pub use successors::Successors;
pub use working_set::{Interval, WorkingSet};

use crate::{Operation, Record};
use reuse::ReuseCounter;
use runs::RunCounter;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use successors::SuccessorCounter;
use working_set::WorkingSetCounter;

/// What is found in a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Analysis {
    /// Of all kinds.
    pub requests: u64,
    /// Requests.
    pub reads: u64,
    /// Requests.
    pub writes: u64,
    /// Requests.
    pub discards: u64,
    /// Requests.
    pub flushes: u64,
    /// Units read, each time counted.
    pub read_units: u64,
    /// Units written, each time counted.
    pub written_units: u64,
    /// As asked for, not rounded up to units.
    pub read_bytes: u64,
    /// As asked for, not rounded up to units.
    pub written_bytes: u64,
    /// From the first request to the last.
    pub span_us: u64,
    /// Different ones.
    pub clients: u64,
    /// Different ones.
    pub volumes: u64,
    /// Units that were read or written at all, read at all, and written at all.
    pub distinct: u64,
    /// Units read at least once.
    pub distinct_read: u64,
    /// Units written at least once.
    pub distinct_written: u64,
    /// Units that were read or written once only.
    pub one_touch: u64,
    /// Units written that nobody had touched before: new data, unless it is older than the trace.
    pub first_writes: u64,
    /// Writes that say what they contain, in units, and how many different contents there were.
    pub named_contents: u64,
    /// Different names of contents.
    pub distinct_contents: u64,
    /// Sequential runs of reads.
    pub runs: Runs,
    /// What a history of pairs could foresee.
    pub successors: Successors,
    /// Miss ratios of LRU.
    pub reuse: Reuse,
    /// Units in use, by time.
    pub working_set: WorkingSet,
}

#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    count: u32,
    read: bool,
    written: bool,
}

/// Takes a trace's records in their order.
#[derive(Debug)]
pub struct Analyser {
    analysis: Analysis,
    units: HashMap<(u64, u64), Touched>,
    clients: HashSet<u32>,
    volumes: HashSet<u64>,
    contents: HashSet<u64>,
    runs: RunCounter,
    successors: SuccessorCounter,
    reuse: ReuseCounter,
    working_set: WorkingSetCounter,
}

impl Analyser {
    /// `interval_us`: of what time the working set is; not zero.
    pub fn new(interval_us: u64) -> Self {
        Self {
            analysis: Analysis::default(),
            units: HashMap::new(),
            clients: HashSet::new(),
            volumes: HashSet::new(),
            contents: HashSet::new(),
            runs: RunCounter::default(),
            successors: SuccessorCounter::default(),
            reuse: ReuseCounter::default(),
            working_set: WorkingSetCounter::new(interval_us),
        }
    }

    /// The next record.
    pub fn on_record(&mut self, record: &Record) {
        self.analysis.requests += 1;
        self.analysis.span_us = self.analysis.span_us.max(record.time_us);
        self.clients.insert(record.client);
        self.volumes.insert(record.volume);
        match record.operation {
            Operation::Read => self.on_read(record),
            Operation::Write => self.on_write(record),
            Operation::Discard => self.analysis.discards += 1,
            Operation::Flush => self.analysis.flushes += 1,
        }
    }

    fn on_read(&mut self, record: &Record) {
        self.analysis.reads += 1;
        self.analysis.read_units += record.count;
        self.analysis.read_bytes += record.bytes;
        let sequential = self.runs.on_read(record);
        self.successors.on_read(record, sequential);
        self.touch(record);
    }

    fn on_write(&mut self, record: &Record) {
        self.analysis.writes += 1;
        self.analysis.written_units += record.count;
        self.analysis.written_bytes += record.bytes;
        self.analysis.named_contents += record.contents.len() as u64;
        self.contents.extend(&record.contents);
        self.touch(record);
    }

    fn touch(&mut self, record: &Record) {
        let read = record.operation == Operation::Read;
        for unit in record.first..record.end() {
            let key = (record.volume, unit);
            let touched = self.units.entry(key).or_default();
            self.analysis.first_writes += u64::from(!read && touched.count == 0);
            touched.count = touched.count.saturating_add(1);
            touched.read |= read;
            touched.written |= !read;
            self.reuse.on_access(key, read);
            self.working_set.on_access(record.time_us, key);
        }
    }

    /// What all of them came to.
    #[expect(clippy::disallowed_methods, reason = "a count has no order")]
    pub fn finish(self) -> Analysis {
        let count = |what: fn(&Touched) -> bool| self.units.values().filter(|touched| what(touched)).count() as u64;
        Analysis {
            clients: self.clients.len() as u64,
            volumes: self.volumes.len() as u64,
            distinct: self.units.len() as u64,
            distinct_read: count(|touched| touched.read),
            distinct_written: count(|touched| touched.written),
            one_touch: count(|touched| touched.count == 1),
            distinct_contents: self.contents.len() as u64,
            runs: self.runs.finish(),
            successors: self.successors.finish(),
            reuse: self.reuse.finish(),
            working_set: self.working_set.finish(),
            ..self.analysis
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(time_us: u64, operation: Operation, first: u64, count: u64) -> Record {
        Record {
            time_us,
            operation,
            first,
            count,
            bytes: count * 4096,
            ..Record::default()
        }
    }

    #[test]
    fn counts_are_of_units() {
        let mut analyser = Analyser::new(10);
        analyser.on_record(&request(0, Operation::Write, 0, 4));
        analyser.on_record(&request(5, Operation::Read, 2, 4));
        analyser.on_record(&request(25, Operation::Write, 5, 1));
        analyser.on_record(&request(25, Operation::Discard, 0, 9));
        let found = analyser.finish();
        assert_eq!(
            (found.requests, found.reads, found.writes, found.discards),
            (4, 1, 2, 1)
        );
        assert_eq!((found.distinct, found.distinct_read, found.distinct_written), (6, 4, 5));
        assert_eq!((found.one_touch, found.first_writes), (3, 4));
        assert_eq!(found.working_set.intervals.len(), 3);
        assert_eq!(found.working_set.intervals[0].distinct, 6);
        assert_eq!(found.working_set.intervals[1].distinct, 0);
        assert_eq!(
            found.working_set.intervals[2],
            Interval {
                accesses: 1,
                distinct: 1,
                first_touches: 0
            }
        );
    }
}
