//! Sequential runs of reads (Tombolo, MSST'16, figure 5): a run goes on while a read begins where the one before it ended.
//! *Strict* runs are broken by any read in between; *streams* are followed through others, 64 at a time.

use crate::Record;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Streams followed at a time.
const STREAMS_MAX: usize = 64;

/// Sequential runs of reads, by length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Runs {
    /// Broken by any read in between.
    pub strict: Vec<RunLength>,
    /// Followed through other reads.
    pub streams: Vec<RunLength>,
    /// In units.
    pub strict_longest: u64,
    /// In units.
    pub streams_longest: u64,
}

/// How many runs have a length of so many units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunLength {
    /// The length.
    pub units: u64,
    /// How many.
    pub runs: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    volume: u64,
    end: u64,
    units: u64,
}

#[derive(Debug, Default)]
pub(super) struct RunCounter {
    current: Option<Run>,
    strict: BTreeMap<u64, u64>,
    /// The most recently read first.
    followed: VecDeque<Run>,
    streams: BTreeMap<u64, u64>,
}

impl RunCounter {
    /// Returns whether the read continues the run of the read before it.
    pub fn on_read(&mut self, record: &Record) -> bool {
        self.follow(record);
        let continues = |run: &Run| run.volume == record.volume && run.end == record.first;
        if let Some(run) = self.current.as_mut().filter(|run| continues(run)) {
            run.end = record.end();
            run.units += record.count;
            return true;
        }
        if let Some(run) = self.current.replace(begin(record)) {
            *self.strict.entry(run.units).or_default() += 1;
        }
        false
    }

    fn follow(&mut self, record: &Record) {
        let found = (self.followed.iter()).position(|run| run.volume == record.volume && run.end == record.first);
        let mut run = begin(record);
        if let Some(before) = found.and_then(|at| self.followed.remove(at)) {
            run.units += before.units;
        }
        self.followed.push_front(run);
        if self.followed.len() > STREAMS_MAX
            && let Some(run) = self.followed.pop_back()
        {
            *self.streams.entry(run.units).or_default() += 1;
        }
    }

    pub fn finish(mut self) -> Runs {
        if let Some(run) = self.current {
            *self.strict.entry(run.units).or_default() += 1;
        }
        for run in self.followed {
            *self.streams.entry(run.units).or_default() += 1;
        }
        Runs {
            strict_longest: longest(&self.strict),
            streams_longest: longest(&self.streams),
            strict: lengths(&self.strict),
            streams: lengths(&self.streams),
        }
    }
}

fn begin(record: &Record) -> Run {
    Run {
        volume: record.volume,
        end: record.end(),
        units: record.count,
    }
}

fn longest(runs: &BTreeMap<u64, u64>) -> u64 {
    runs.keys().next_back().copied().unwrap_or(0)
}

fn lengths(runs: &BTreeMap<u64, u64>) -> Vec<RunLength> {
    runs.iter().map(|(&units, &runs)| RunLength { units, runs }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_streams_are_short_strict_runs() {
        let mut counter = RunCounter::default();
        for step in 0..5 {
            for volume in 0..2 {
                let record = Record {
                    volume,
                    first: 2 * step,
                    count: 2,
                    ..Record::default()
                };
                assert!(!counter.on_read(&record));
            }
        }
        let found = counter.finish();
        assert_eq!(found.strict, [RunLength { units: 2, runs: 10 }]);
        assert_eq!(found.streams, [RunLength { units: 10, runs: 2 }]);
        assert_eq!((found.strict_longest, found.streams_longest), (2, 10));
    }
}
