//! How many different units are used in each interval of time (Tombolo, MSST'16, figure 4).

use serde::Serialize;
use std::collections::HashMap;

/// Intervals at the most; later ones are counted into the last.
const INTERVALS_MAX: usize = 1 << 16;

/// Units in use, by time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkingSet {
    /// Length of each interval.
    pub interval_us: u64,
    /// From the trace's beginning, without gaps.
    pub intervals: Vec<Interval>,
}

/// What was used in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interval {
    /// Uses of units.
    pub accesses: u64,
    /// Different units.
    pub distinct: u64,
    /// Units that were never used before.
    pub first_touches: u64,
}

#[derive(Debug)]
pub(super) struct WorkingSetCounter {
    found: WorkingSet,
    /// The interval in which a unit was last used.
    last: HashMap<(u64, u64), u32>,
}

impl WorkingSetCounter {
    pub fn new(interval_us: u64) -> Self {
        Self {
            found: WorkingSet {
                interval_us: interval_us.max(1),
                intervals: Vec::new(),
            },
            last: HashMap::new(),
        }
    }

    pub fn on_access(&mut self, time_us: u64, key: (u64, u64)) {
        let at = ((time_us / self.found.interval_us) as usize).min(INTERVALS_MAX - 1);
        if self.found.intervals.len() <= at {
            self.found.intervals.resize(at + 1, Interval::default());
        }
        let before = self.last.insert(key, at as u32);
        let interval = &mut self.found.intervals[at];
        interval.accesses += 1;
        interval.distinct += u64::from(before != Some(at as u32));
        interval.first_touches += u64::from(before.is_none());
    }

    pub fn finish(self) -> WorkingSet {
        self.found
    }
}
