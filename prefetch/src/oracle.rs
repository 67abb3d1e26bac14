//! A prefetcher that knows the future: the practical ceiling in the simulator. On each read it suggests the next reads of
//! the trace that were not suggested yet, as far ahead as `look_ahead` and no faster than a cap on bandwidth.
//!
//! It suggests nothing that a client will not ask for, but it does not know the cache: looking further ahead than the
//! cache is large evicts what is needed sooner.

use crate::{Access, Class, Likelihood, Pattern, Prefetcher, Statistics, Suggestion, Tag, suggest};
use alloc::vec::Vec;
use tombolo_base::{Instant, VolumeId};

/// A read to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutureRead {
    /// Where.
    pub volume: VolumeId,
    /// The first block.
    pub first: u64,
    /// How many blocks.
    pub count: u64,
}

/// How far and how fast it may fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OracleConfig {
    /// Reads ahead of the present one.
    pub look_ahead: usize,
    /// The cap, in blocks per second; none: no cap.
    pub blocks_per_second_max: Option<u64>,
}

/// Knows every read to come: the ceiling that others are measured by.
#[derive(Debug)]
pub struct Oracle {
    config: OracleConfig,
    future: Vec<FutureRead>,
    /// The read that is expected next.
    position: usize,
    /// Reads below this were suggested or have come.
    suggested: usize,
    /// Millionths of a block that the cap still allows.
    allowance: u128,
    since: Instant,
    /// Reads that were not the ones foreseen.
    mismatches: u64,
}

impl Oracle {
    /// `future`: all reads to come, in their order.
    pub fn new(config: OracleConfig, future: Vec<FutureRead>) -> Self {
        Self {
            config,
            future,
            position: 0,
            suggested: 0,
            allowance: 0,
            since: Instant::default(),
            mismatches: 0,
        }
    }

    /// Reads that were not the ones foreseen; anything but zero means that the trace and the future differ.
    pub fn mismatches(&self) -> u64 {
        self.mismatches
    }

    /// Takes blocks from the cap; at most a second's worth is saved up, but a read larger than that may pass as well.
    fn afford(&mut self, blocks: u64) -> bool {
        let Some(rate) = self.config.blocks_per_second_max else {
            return true;
        };
        let price = u128::from(blocks) * 1_000_000;
        let full = u128::from(rate) * 1_000_000;
        let affordable = self.allowance >= price.min(full) && full > 0;
        if affordable {
            self.allowance = self.allowance.saturating_sub(price);
        }
        affordable
    }
}

impl Prefetcher for Oracle {
    fn name(&self) -> &'static str {
        "oracle"
    }

    fn on_read(&mut self, now: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        if let Some(rate) = self.config.blocks_per_second_max {
            let gained = u128::from(now.micros_since(self.since)) * u128::from(rate);
            self.allowance = (self.allowance + gained).min(u128::from(rate) * 1_000_000);
            self.since = now;
        }
        let foreseen = self.future.get(self.position).copied();
        let expected = FutureRead {
            volume: access.volume,
            first: access.first,
            count: access.count,
        };
        self.mismatches += u64::from(foreseen != Some(expected));
        self.position += 1;
        self.suggested = self.suggested.max(self.position);
        let end = self
            .position
            .saturating_add(self.config.look_ahead)
            .min(self.future.len());
        let room = suggestions.len() + crate::SUGGESTIONS_MAX;
        while self.suggested < end && suggestions.len() < room {
            let read = self.future[self.suggested];
            if !self.afford(read.count) {
                break;
            }
            let suggestion = Suggestion {
                volume: read.volume,
                first: read.first,
                count: read.count,
                gaps: None,
                class: Class::History,
                likelihood: Likelihood::ONE,
                trigger: None,
                tag: Tag(0),
            };
            suggest(suggestions, suggestion);
            self.suggested += 1;
        }
        Pattern::Random
    }

    fn knows_streams(&self) -> bool {
        false
    }

    fn statistics(&self) -> Statistics {
        Statistics {
            bytes: self.future.capacity() * size_of::<FutureRead>(),
            ..Statistics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{EndlessCache, read, withstands_anything};
    use proptest::prelude::*;

    fn future(reads: &[(u64, u64)]) -> Vec<FutureRead> {
        let volume = VolumeId(1);
        reads
            .iter()
            .map(|&(first, count)| FutureRead { volume, first, count })
            .collect()
    }

    proptest! {
        /// Only the first read of an endless cache misses, and nothing is fetched in vain.
        #[test]
        fn all_but_the_first_read_hit(reads in prop::collection::vec((0u64..10_000, 1u64..20), 1..200), ahead in 1usize..40) {
            let config = OracleConfig { look_ahead: ahead, blocks_per_second_max: None };
            let mut policy = Oracle::new(config, future(&reads));
            let mut cache = EndlessCache::new();
            reads.iter().for_each(|(first, count)| {
                cache.read(&mut policy, *first, *count);
            });
            prop_assert_eq!((cache.missed, cache.efficiency_percent(), policy.mismatches()), (1, 100, 0));
        }

        #[test]
        fn the_cap_holds(reads in prop::collection::vec((0u64..10_000, 1u64..20), 1..200), rate in 0u64..2000) {
            let config = OracleConfig { look_ahead: 50, blocks_per_second_max: Some(rate) };
            let mut policy = Oracle::new(config, future(&reads));
            let (mut total, mut out) = (0, Vec::new());
            for (at, (first, count)) in reads.iter().enumerate() {
                let micros = 10_000 * (at as u64 + 1);
                out.clear();
                policy.on_read(Instant(micros), read(*first, *count), &mut out);
                total += out.iter().map(|s| s.count).sum::<u64>();
                // A read larger than a second's worth passes when the allowance is full.
                prop_assert!(total * 1_000_000 <= rate * micros + 20_000_000);
            }
        }

        #[test]
        fn survives_anything(seed: u64) {
            let config = OracleConfig { look_ahead: 100, blocks_per_second_max: Some(seed) };
            withstands_anything(&mut Oracle::new(config, future(&[(5, 5), (7, 7)])), seed);
        }
    }
}
