//! Reads that lie equally far apart, forwards or backwards: a column of a table, the same field of many records. What lies between
//! them is not fetched.
//!
//! Two like reads of a client, one after the other in a volume, may be the beginning: the place that would come next is remembered.
//! From the fourth such read on what follows is fetched ahead, at first four reads of it, twice as many each time that the reader has
//! to wait. More is asked for as soon as half of that is left, so that what is close together can come by one request.
//!
//! Whatever else is read meanwhile does no harm: a stride is found by the place that would continue it. Beginnings that nothing
//! continues are forgotten in their turn. It is not told what becomes of its suggestions, as it learns that from the reads.

use crate::{
    Access, BLOCKS_MAX, Class, Gaps, Likelihood, Outcome, Pattern, Prefetcher, Statistics, Suggestion, Tag,
    graph::HISTORY_TAG,
    streams::STREAMS_MAX,
    suggest,
    table::{Address, Table},
    two_way::DOWN_TAG,
};
use alloc::vec::Vec;
use tombolo_base::Instant;

/// The read from which on a stride is followed: three equal distances do not come about by chance.
const THRESHOLD: u32 = 4;
const WINDOW_READS_MIN: u64 = 4;
const WINDOW_READS_MAX: u64 = 256;
/// Longer strides are jumps: 64 MiB.
const STRIDE_BLOCKS_MAX: u64 = 1 << 14;
/// Clients and volumes whose last read is remembered.
const CLIENTS_MAX: usize = 1 << 10;
/// Beginnings and strides that are remembered.
const STRIDES_MAX: usize = 1 << 10;

/// The other tags are of the graph, of streams that go down, and slots of streams.
const _: () = assert!(Strides::TAG.0 & (HISTORY_TAG | DOWN_TAG) == 0 && Strides::TAG.0 > STREAMS_MAX as u32);

#[derive(Clone, Copy, Debug, Default)]
struct Range {
    first: u64,
    count: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stride {
    distance: i64,
    /// Of each read.
    count: u64,
    /// So far.
    reads: u32,
    /// How many reads are to be fetched ahead.
    window: u64,
    /// How many have been asked for beyond the newest.
    ahead: u64,
}

/// Follows strides.
#[derive(Debug)]
pub struct Strides {
    blocks_max: u64,
    /// The last read of a client in a volume.
    previous: Table<Range>,
    /// By the place that would continue it.
    strides: Table<Stride>,
}

impl Strides {
    /// Its suggestions have this tag, and no other prefetcher's have.
    pub const TAG: Tag = Tag(1 << 29);

    /// Follows none yet; of none more than `blocks_max` is fetched ahead.
    pub fn new(blocks_max: u64) -> Self {
        Self {
            blocks_max: blocks_max.clamp(1, 1 << 20),
            previous: Table::new(CLIENTS_MAX),
            strides: Table::new(STRIDES_MAX),
        }
    }

    /// The stride that a read continues or begins.
    fn stride_of(&mut self, access: &Access) -> Option<Stride> {
        let client = Address::new(access.volume, access.client.0.into());
        let read = Range {
            first: access.first,
            count: access.count,
        };
        let previous = self.previous.get(client).copied();
        self.previous.insert(client, read);
        let continued = self.strides.remove(Address::new(access.volume, access.first));
        if let Some(stride) = continued.filter(|stride| stride.count == access.count) {
            return Some(Stride {
                reads: stride.reads.saturating_add(1),
                ahead: stride.ahead.saturating_sub(1),
                ..stride
            });
        }
        let previous = previous.filter(|previous| previous.count == access.count)?;
        let distance = access.first as i64 - previous.first as i64;
        let is_stride = (access.count + 1..=STRIDE_BLOCKS_MAX).contains(&distance.unsigned_abs());
        is_stride.then_some(Stride {
            distance,
            count: access.count,
            reads: 2,
            window: WINDOW_READS_MIN,
            ahead: 0,
        })
    }
}

impl Stride {
    /// What is to be fetched behind a read of it, if anything.
    fn proceed(&mut self, access: &Access, blocks_max: u64) -> Option<Suggestion> {
        if access.outcome == Outcome::Miss {
            // What was asked for has not come.
            self.ahead = 0;
        }
        if access.outcome != Outcome::Hit && self.reads > THRESHOLD {
            self.window = (2 * self.window).min(WINDOW_READS_MAX);
        }
        self.window = self.window.min(blocks_max / self.count);
        if self.reads < THRESHOLD || self.ahead > self.window / 2 || self.window <= self.ahead {
            return None;
        }
        let period = self.distance.unsigned_abs();
        let (nearest, mut farthest) = (self.ahead + 1, self.window);
        let first = if self.distance > 0 {
            access.first + nearest * period
        } else {
            farthest = farthest.min(access.first / period);
            access.first - farthest * period
        };
        self.ahead = farthest.max(self.ahead);
        let parts = (farthest + 1).checked_sub(nearest).filter(|parts| *parts > 0)?;
        Some(Suggestion {
            volume: access.volume,
            first,
            count: (parts - 1) * period + self.count,
            gaps: Some(Gaps {
                period_blocks: period,
                part_blocks: self.count,
            }),
            class: Class::History,
            likelihood: Likelihood::ratio(u64::from(self.reads), u64::from(self.reads) + 1),
            trigger: None,
            tag: Strides::TAG,
        })
    }
}

impl Prefetcher for Strides {
    fn name(&self) -> &'static str {
        "strides"
    }

    fn on_read(&mut self, _now: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        if !access.is_valid() {
            return Pattern::Random;
        }
        if let Some(mut stride) = self.stride_of(&access) {
            if let Some(suggestion) = stride.proceed(&access, self.blocks_max) {
                suggest(suggestions, suggestion);
            }
            let next = access.first.checked_add_signed(stride.distance);
            if let Some(next) = next.filter(|next| *next < BLOCKS_MAX) {
                self.strides.insert(Address::new(access.volume, next), stride);
            }
        }
        Pattern::Random
    }

    fn knows_streams(&self) -> bool {
        false
    }

    fn statistics(&self) -> Statistics {
        Statistics {
            bytes: self.previous.bytes() + self.strides.bytes(),
            ..Statistics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{EndlessCache, read, suggested_for_random_reads, withstands_anything};
    use proptest::prelude::*;

    const BLOCKS: u64 = 4096;

    fn policy() -> Strides {
        Strides::new(BLOCKS)
    }

    /// What is suggested at reads that all wait, as parts.
    fn suggested(policy: &mut Strides, places: impl IntoIterator<Item = u64>, count: u64) -> Vec<Vec<u64>> {
        let mut suggestions = Vec::new();
        let parts = |suggestion: Suggestion| {
            let gaps = suggestion.gaps.unwrap();
            assert_eq!(gaps.part_blocks, count);
            (suggestion.first..suggestion.end()).step_by(gaps.period_blocks as usize)
        };
        let mut at_each = |place| {
            let access = Access {
                outcome: Outcome::Partial,
                ..read(place, count)
            };
            policy.on_read(Instant(0), access, &mut suggestions);
            suggestions.drain(..).flat_map(parts).collect()
        };
        places.into_iter().map(&mut at_each).collect()
    }

    #[test]
    fn golden_from_the_fourth_read_on() {
        let forwards = suggested(&mut policy(), (0..7).map(|step| 1000 + 64 * step), 16);
        assert_eq!(forwards[..3], [vec![], vec![], vec![]]);
        // The fourth read is at 1192.
        assert_eq!(forwards[3], [1256, 1320, 1384, 1448]);
        assert_eq!(forwards[4], [1512, 1576, 1640, 1704, 1768]);
        assert_eq!(forwards[5].len(), 9);
        let backwards = suggested(&mut policy(), (0..5).map(|step| 1000 - 64 * step), 16);
        assert_eq!(backwards[3], [552, 616, 680, 744]);
        assert_eq!(backwards[4], [232, 296, 360, 424, 488]);
    }

    #[test]
    fn backwards_it_ends_at_the_beginning() {
        let backwards = suggested(&mut policy(), (0..5).map(|step| 450 - 100 * step), 16);
        assert_eq!(backwards, [vec![], vec![], vec![], vec![50], vec![]]);
    }

    #[test]
    fn nearly_all_is_fetched_ahead_and_no_gap() {
        for stride in [5, 40, 64, 3000] {
            let (mut cache, mut policy) = (EndlessCache::new(), policy());
            (0..1000).for_each(|step| drop(cache.read(&mut policy, 100 + stride * step, 4)));
            assert_eq!(cache.missed, 4);
            assert!(cache.efficiency_percent() > 98, "{}", cache.efficiency_percent());
        }
    }

    #[test]
    fn the_window_grows_while_the_reader_waits_up_to_its_bounds() {
        let widest = |count| {
            let at_each = suggested(&mut policy(), (0..600).map(|step| 100 * step), count);
            at_each.iter().map(Vec::len).max().unwrap() as u64
        };
        assert!((WINDOW_READS_MAX / 2..=WINDOW_READS_MAX).contains(&widest(1)));
        assert!((BLOCKS / 64 / 2..=BLOCKS / 64).contains(&widest(64)));
    }

    #[test]
    fn one_who_never_waits_is_not_fetched_far_ahead() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy());
        let widest = (0..1000).map(|step| cache.read(&mut policy, 100 * step, 4));
        let widest = widest.flatten().map(|(_, count)| count).max();
        assert_eq!(widest, Some(304), "four reads");
    }

    #[test]
    fn strides_of_two_clients_and_reads_of_others_between_them() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy());
        let mut access = |client, first| {
            let access = Access {
                client: crate::ClientId(client),
                ..read(first, 4)
            };
            let mut suggestions = Vec::new();
            policy.on_read(Instant(0), access, &mut suggestions);
            suggestions.len()
        };
        let found: usize = (0..10)
            .map(|step| access(1, 100 * step) + access(2, 90_000 - 70 * step))
            .sum();
        assert!(found > 4, "{found}");
        let mut policy = Strides::new(BLOCKS);
        for step in 0..100 {
            cache.read(&mut policy, 1_000_000 + 50 * step, 2);
            if step > 10 && step % 5 == 0 {
                cache.read(&mut policy, 9_000_000 + 1000 * step * step, 2);
            }
        }
        assert!(cache.missed < 30, "{}", cache.missed);
    }

    #[test]
    fn what_has_no_stride_suggests_nothing() {
        assert_eq!(suggested_for_random_reads(&mut policy(), 5_000), 0);
        let nothing = |places: &mut dyn Iterator<Item = u64>, count| {
            let at_each = suggested(&mut policy(), places, count);
            assert!(at_each.iter().all(Vec::is_empty));
        };
        nothing(&mut (0..50).map(|step| 4 * step), 4);
        nothing(&mut (0..50).map(|_| 1000), 4);
        nothing(&mut (0..50).map(|step| (STRIDE_BLOCKS_MAX + 1) * step), 4);
        nothing(&mut (0..50).flat_map(|step| [100 * step, 100 * step + 30]), 4);
    }

    proptest! {
        #[test]
        fn survives_anything(seed: u64, blocks_max: u64) {
            withstands_anything(&mut Strides::new(blocks_max), seed);
        }
    }
}
