//! Distributions: counted by many threads at once, and as they are told.

use alloc::{boxed::Box, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts values by their size, in relaxed atomics: each number is right by itself, and what is told while others count may
/// lack a part of what they add.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    sum: AtomicU64,
    /// One more than there are bounds.
    counts: Box<[AtomicU64]>,
}

/// What a [`Histogram`] has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Rising.
    pub bounds: &'static [u64],
    /// For each bound the values up to it and above the one before; last those above all of them.
    pub counts: Vec<u64>,
    /// Of all values.
    pub sum: u64,
}

impl Histogram {
    /// `bounds` rise; above the last of them there is one more class.
    pub fn new(bounds: &'static [u64]) -> Self {
        Self {
            bounds,
            sum: AtomicU64::new(0),
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Counts one value.
    pub fn count(&self, value: u64) {
        let class = self.bounds.partition_point(|bound| *bound < value);
        self.sum.fetch_add(value, Relaxed);
        self.counts[class].fetch_add(1, Relaxed);
    }

    /// All that was counted so far.
    pub fn distribution(&self) -> Distribution {
        Distribution {
            bounds: self.bounds,
            counts: self.counts.iter().map(|count| count.load(Relaxed)).collect(),
            sum: self.sum.load(Relaxed),
        }
    }
}

impl Distribution {
    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_counted_once() {
        let histogram = Histogram::new(&[10, 20]);
        for value in [0, 10, 11, 20, 21, 1_000] {
            histogram.count(value);
        }
        let told = histogram.distribution();
        assert_eq!((told.counts.as_slice(), told.sum), ([2, 2, 2].as_slice(), 1_062));
        assert_eq!((told.count(), told.bounds), (6, [10, 20].as_slice()));
        assert_eq!(Distribution::default().count(), 0);
    }
}
