//! Reuse distances: how many different units were used between two uses of one. An LRU cache of n units hits exactly
//! the uses whose distance is below n (Mattson's stack algorithm), so one pass gives its miss ratio at every size.
//!
//! Uses are numbered; a Fenwick tree over the numbers has a one at the last use of each unit. When the numbers run out,
//! they are given out anew in the same order, which keeps the tree at twice the number of units.

use serde::Serialize;
use std::collections::HashMap;

/// Sizes of the curve: so many to each doubling.
const SIZES_PER_DOUBLING: u32 = 4;
const TREE_MIN: usize = 1 << 12;

/// Reuse distances as miss ratios of LRU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reuse {
    /// Units whose uses were reads, and those of them that were the first use of the unit.
    pub reads: u64,
    /// Reads that were the first use of their unit, which no cache hits.
    pub first_reads: u64,
    /// Of LRU, by size.
    pub lru: Vec<MissRatio>,
}

/// One point of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MissRatio {
    /// Of the cache, in units.
    pub size: u64,
    /// Misses of reads and writes.
    pub all: f64,
    /// Misses of reads.
    pub reads: f64,
}

#[derive(Debug)]
pub(super) struct ReuseCounter {
    last: HashMap<(u64, u64), usize>,
    tree: Vec<u32>,
    next: usize,
    /// Uses by distance; reads by distance.
    uses: Vec<u64>,
    reads: Vec<u64>,
    first_uses: u64,
    first_reads: u64,
}

impl Default for ReuseCounter {
    fn default() -> Self {
        Self {
            last: HashMap::new(),
            tree: vec![0; TREE_MIN],
            next: 0,
            uses: Vec::new(),
            reads: Vec::new(),
            first_uses: 0,
            first_reads: 0,
        }
    }
}

impl ReuseCounter {
    pub fn on_access(&mut self, key: (u64, u64), read: bool) {
        if self.next + 1 >= self.tree.len() {
            self.renumber();
        }
        let now = self.next;
        self.next += 1;
        match self.last.insert(key, now) {
            Some(before) => {
                let distance = self.last.len() - self.ones_up_to(before);
                self.add(before, -1);
                self.count(distance, read);
            }
            None => {
                self.first_uses += 1;
                self.first_reads += u64::from(read);
            }
        }
        self.add(now, 1);
    }

    fn count(&mut self, distance: usize, read: bool) {
        if self.uses.len() <= distance {
            self.uses.resize(distance + 1, 0);
            self.reads.resize(distance + 1, 0);
        }
        self.uses[distance] += 1;
        self.reads[distance] += u64::from(read);
    }

    fn add(&mut self, place: usize, change: i32) {
        let mut at = place + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add_signed(change);
            at += at & at.wrapping_neg();
        }
    }

    fn ones_up_to(&self, place: usize) -> usize {
        let (mut at, mut ones) = (place + 1, 0);
        while at > 0 {
            ones += self.tree[at] as usize;
            at -= at & at.wrapping_neg();
        }
        ones
    }

    #[expect(clippy::disallowed_methods, reason = "sorted before it is used")]
    fn renumber(&mut self) {
        let mut order: Vec<_> = self.last.iter().map(|(&key, &last)| (last, key)).collect();
        order.sort_unstable();
        self.tree = vec![0; (order.len() * 2 + 2).next_power_of_two().max(TREE_MIN)];
        self.next = order.len();
        for (place, (_, key)) in order.into_iter().enumerate() {
            self.last.insert(key, place);
            self.add(place, 1);
        }
    }

    pub fn finish(self) -> Reuse {
        let sum = |counts: &[u64]| counts.iter().sum::<u64>();
        let (uses, reads) = (sum(&self.uses) + self.first_uses, sum(&self.reads) + self.first_reads);
        let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let (mut hits, mut read_hits, mut distance) = (0, 0, 0);
        let mut lru = Vec::new();
        for size in sizes(self.last.len() as u64) {
            let below = (size as usize).min(self.uses.len());
            hits += sum(&self.uses[distance.min(below)..below]);
            read_hits += sum(&self.reads[distance.min(below)..below]);
            distance = below;
            lru.push(MissRatio {
                size,
                all: ratio(uses - hits, uses),
                reads: ratio(reads - read_hits, reads),
            });
        }
        Reuse {
            reads,
            first_reads: self.first_reads,
            lru,
        }
    }
}

/// From one to all units, and each whole percent of them.
fn sizes(units: u64) -> Vec<u64> {
    let mut sizes: Vec<u64> = (1..=100).map(|percent| units * percent / 100).collect();
    let mut size = 1.0f64;
    while size < units as f64 {
        sizes.push(size as u64);
        size *= 2f64.powf(1.0 / f64::from(SIZES_PER_DOUBLING));
    }
    sizes.retain(|&size| size > 0);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn misses_of_lru(keys: &[u64], size: usize) -> usize {
        let mut cache: Vec<u64> = Vec::new();
        let mut misses = 0;
        for &key in keys {
            match cache.iter().position(|&held| held == key) {
                Some(at) => drop(cache.remove(at)),
                None => misses += 1,
            }
            cache.insert(0, key);
            cache.truncate(size);
        }
        misses
    }

    proptest! {
        #[test]
        fn the_curve_is_that_of_a_cache(keys in proptest::collection::vec(0u64..40, 1..300)) {
            let mut counter = ReuseCounter::default();
            for &key in &keys {
                counter.on_access((0, key), true);
            }
            for point in counter.finish().lru {
                let expected = misses_of_lru(&keys, point.size as usize) as f64 / keys.len() as f64;
                prop_assert!((point.reads - expected).abs() < 1e-12);
                prop_assert!((point.all - expected).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn renumbering_changes_nothing() {
        let keys: Vec<u64> = (0..3 * TREE_MIN as u64).map(|step| step * step % 1009).collect();
        let mut counter = ReuseCounter::default();
        for &key in &keys {
            counter.on_access((0, key), true);
        }
        for point in counter.finish().lru.iter().step_by(25) {
            let expected = misses_of_lru(&keys, point.size as usize) as f64 / keys.len() as f64;
            assert!((point.reads - expected).abs() < 1e-12, "size {}", point.size);
        }
    }
}
