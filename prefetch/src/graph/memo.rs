//! Candidates remembered for a while (60 seconds in the paper), so that a node that is read often is not expanded anew each
//! time.
//!
//! A list is found by its source's range, so splitting or merging the source drops it. It holds ranges, not nodes:
//! splitting or merging a member changes none of the blocks in it, so it stays. Bounded by a direct-mapped table and a
//! ring of candidates, in which the oldest are overwritten.

use super::expansion::Candidate;
use super::history::Range;
use crate::{Likelihood, table::Address};
use alloc::vec::Vec;
use tombolo_base::{Instant, VolumeId};

#[derive(Clone, Copy, Debug)]
struct Entry {
    source: Range,
    made: Instant,
    /// The position of the first candidate since the beginning of time.
    position: u64,
    count: u32,
    /// For how many blocks it was made.
    blocks_max: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Memo {
    entries: Vec<Option<Entry>>,
    ring: Vec<Candidate>,
    position: u64,
    age_micros_max: u64,
}

const NOTHING: Candidate = Candidate {
    range: Range {
        volume: VolumeId(0),
        first: 0,
        count: 0,
    },
    likelihood: Likelihood::ZERO,
};

impl Memo {
    /// `entries`: lists that are remembered, rounded up to a power of two; eight candidates each on average.
    pub(super) fn new(entries: usize, age_micros_max: u64) -> Self {
        let entries = if age_micros_max == 0 {
            1
        } else {
            entries.clamp(64, 1 << 20).next_power_of_two()
        };
        Self {
            entries: alloc::vec![None; entries],
            ring: alloc::vec![NOTHING; (entries * 8).max(64)],
            position: 0,
            age_micros_max,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.len() * size_of::<Option<Entry>>() + self.ring.len() * size_of::<Candidate>()
    }

    fn slot(&self, source: Range) -> usize {
        Address::new(source.volume, source.first).hash() as usize & (self.entries.len() - 1)
    }

    /// Appends the list of a source if it is young and was made for at least as many blocks.
    pub(super) fn get(&self, now: Instant, source: Range, blocks_max: u64, out: &mut Vec<Candidate>) -> bool {
        let Some(entry) = self.entries[self.slot(source)] else {
            return false;
        };
        let whole = self.position - entry.position <= self.ring.len() as u64;
        if entry.source != source
            || now.micros_since(entry.made) >= self.age_micros_max
            || entry.blocks_max < blocks_max
            || !whole
        {
            return false;
        }
        let places = entry.position..entry.position + u64::from(entry.count);
        out.extend(places.map(|place| self.ring[(place % self.ring.len() as u64) as usize]));
        true
    }

    pub(super) fn put(&mut self, now: Instant, source: Range, blocks_max: u64, candidates: &[Candidate]) {
        // To know that there was nothing saves little, and would hide what is learnt next.
        if self.age_micros_max == 0 || candidates.is_empty() || candidates.len() > self.ring.len() {
            return;
        }
        let slot = self.slot(source);
        self.entries[slot] = Some(Entry {
            source,
            made: now,
            position: self.position,
            count: candidates.len() as u32,
            blocks_max,
        });
        let length = self.ring.len() as u64;
        for candidate in candidates {
            self.ring[(self.position % length) as usize] = *candidate;
            self.position += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64) -> Range {
        Range {
            volume: VolumeId(1),
            first,
            count: 4,
        }
    }

    fn list(memo: &Memo, now: u64, first: u64, blocks_max: u64) -> Option<Vec<u64>> {
        let mut out = Vec::new();
        memo.get(Instant(now), range(first), blocks_max, &mut out)
            .then(|| out.iter().map(|candidate| candidate.range.first).collect())
    }

    #[test]
    fn lists_age_and_serve_no_larger_degree() {
        let mut memo = Memo::new(64, 60);
        memo.put(
            Instant(100),
            range(0),
            32,
            &[Candidate {
                range: range(7),
                ..NOTHING
            }; 2],
        );
        memo.put(Instant(100), range(8), 32, &[]);
        assert_eq!(list(&memo, 159, 0, 32), Some(vec![7, 7]));
        assert_eq!(list(&memo, 159, 8, 10), None);
        assert_eq!(list(&memo, 159, 0, 33), None);
        assert_eq!(list(&memo, 160, 0, 32), None);
        assert_eq!(list(&memo, 101, 1, 1), None);
    }

    #[test]
    fn overwritten_lists_are_gone_and_never_mixed() {
        let mut memo = Memo::new(64, u64::MAX);
        for first in 0..2000 {
            let candidates = [Candidate {
                range: range(first * 10),
                ..NOTHING
            }; 20];
            memo.put(Instant(0), range(first), 1, &candidates);
            for back in 0..first.min(60) {
                if let Some(found) = list(&memo, 0, first - back, 1) {
                    assert_eq!(found, vec![(first - back) * 10; 20]);
                    assert!(back < 512 / 20);
                }
            }
        }
        assert!(list(&memo, 0, 1999, 1).is_some());
    }
}
