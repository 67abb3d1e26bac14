//! How often the place that is read next was read next before: the most that a history of pairs can foresee.
//!
//! A jump is a read that does not begin where the client's previous read ended. It is foreseen when, after the previous
//! read's first unit, one of the places remembered is where it goes.

use crate::Record;
use serde::Serialize;
use std::collections::HashMap;

/// Places remembered after each place.
const REMEMBERED: usize = 4;

/// How many jumps a history of pairs could foresee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Successors {
    /// Reads that do not begin where the client's previous one ended.
    pub jumps: u64,
    /// Jumps to where the last jump from there went.
    pub to_last: u64,
    /// Jumps to one of the four most recent different places.
    pub to_any_of_4: u64,
}

type Place = (u64, u64);

#[derive(Debug, Default)]
pub(super) struct SuccessorCounter {
    found: Successors,
    /// The last read's place.
    previous: Option<Place>,
    /// The most recent first.
    after: HashMap<Place, Vec<Place>>,
}

impl SuccessorCounter {
    pub fn on_read(&mut self, record: &Record, sequential: bool) {
        let place = (record.volume, record.first);
        if let Some(previous) = self.previous.replace(place)
            && !sequential
        {
            let known = self.after.entry(previous).or_default();
            let found = known.iter().position(|&next| next == place);
            self.found.jumps += 1;
            self.found.to_last += u64::from(found == Some(0));
            self.found.to_any_of_4 += u64::from(found.is_some());
            if let Some(at) = found {
                known.remove(at);
            }
            known.truncate(REMEMBERED - 1);
            known.insert(0, place);
        }
    }

    pub fn finish(self) -> Successors {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_and_the_four_last_are_told_apart() {
        let mut counter = SuccessorCounter::default();
        for first in [0, 10, 0, 20, 0, 10, 0, 10] {
            let record = Record {
                first,
                count: 1,
                ..Record::default()
            };
            counter.on_read(&record, false);
        }
        // 0->10, 10->0, 0->20, 20->0, 0->10 (one of four), 10->0 (last), 0->10 (last)
        assert_eq!(
            counter.finish(),
            Successors {
                jumps: 7,
                to_last: 2,
                to_any_of_4: 3
            }
        );
    }
}
