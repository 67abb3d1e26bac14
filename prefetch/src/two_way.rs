//! AMP for streams that go up and for streams that go down: a second [`Amp`] sees each address as its distance from the end of
//! the address space, so that what goes down goes up for it.
//!
//! Both see a read until one of them follows it. A stream is fetched ahead from its third read on: among blocks in the order in which
//! they were written, where this is used ([`crate::Addressing::Both`]), two reads are neighbours by chance more easily than in
//! a file.

use crate::{Access, Amp, AmpConfig, BLOCKS_MAX, Feedback, Pattern, Prefetcher, Statistics, Suggestion, Tag};
use alloc::vec::Vec;
use tombolo_base::{Instant, VolumeId};

/// Tags of the streams that go down have it.
pub(crate) const DOWN_TAG: u32 = 1 << 30;
/// Requests overtake each other, and not every block is read: a stream goes on behind gaps up to this, which are fetched with it.
const SLACK_BLOCKS: u64 = 16;
const THRESHOLD: u32 = 3;

/// AMP in both directions.
#[derive(Debug)]
pub struct TwoWay {
    up: Amp,
    down: Amp,
}

/// The same range, counted from the other end.
fn mirrored(first: u64, count: u64) -> u64 {
    BLOCKS_MAX.saturating_sub(first.saturating_add(count))
}

impl TwoWay {
    /// Follows no stream yet; none is fetched further ahead than `degree_blocks_max`.
    pub fn new(degree_blocks_max: u64) -> Self {
        let config = AmpConfig {
            degree_blocks_max,
            threshold: THRESHOLD,
            slack_blocks: SLACK_BLOCKS,
            ..AmpConfig::default()
        };
        Self {
            up: Amp::new(config),
            down: Amp::new(config),
        }
    }
}

impl Prefetcher for TwoWay {
    fn name(&self) -> &'static str {
        "two_way"
    }

    fn on_read(&mut self, now: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        if !access.is_valid() {
            return Pattern::Random;
        }
        if self.up.on_read(now, access, suggestions) == Pattern::Sequential {
            return Pattern::Sequential;
        }
        let access = Access {
            first: mirrored(access.first, access.count),
            ..access
        };
        let begin = suggestions.len();
        let pattern = self.down.on_read(now, access, suggestions);
        for suggestion in &mut suggestions[begin..] {
            suggestion.first = mirrored(suggestion.first, suggestion.count);
            suggestion.trigger = suggestion.trigger.map(|block| mirrored(block, 1));
            suggestion.tag = Tag(suggestion.tag.0 | DOWN_TAG);
        }
        pattern
    }

    fn uses_second_chances(&self) -> bool {
        self.up.uses_second_chances()
    }

    fn sequential_need_blocks(&self, now: Instant) -> u64 {
        self.up.sequential_need_blocks(now) + self.down.sequential_need_blocks(now)
    }

    fn on_feedback(&mut self, now: Instant, feedback: Feedback) {
        if feedback.tag.0 & DOWN_TAG == 0 {
            return self.up.on_feedback(now, feedback);
        }
        let feedback = Feedback {
            first: mirrored(feedback.first, feedback.count),
            tag: Tag(feedback.tag.0 & !DOWN_TAG),
            ..feedback
        };
        self.down.on_feedback(now, feedback);
    }

    fn on_tick(&mut self, now: Instant) {
        self.up.on_tick(now);
        self.down.on_tick(now);
    }

    fn forget_volume(&mut self, volume: VolumeId) {
        self.up.forget_volume(volume);
        self.down.forget_volume(volume);
    }

    fn statistics(&self) -> Statistics {
        let (up, down) = (self.up.statistics(), self.down.statistics());
        Statistics {
            streams: up.streams + down.streams,
            bytes: up.bytes + down.bytes,
            ..Statistics::default()
        }
    }

    fn check_invariants(&self) {
        self.up.check_invariants();
        self.down.check_invariants();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrefetchOutcome;
    use crate::testing::{EndlessCache, read, suggested_for_random_reads, withstands_anything};
    use proptest::prelude::*;

    const DEGREE_MAX: u64 = 256;

    fn missed(places: impl Iterator<Item = u64>, count: u64) -> (u64, u64) {
        let (mut cache, mut policy) = (EndlessCache::new(), TwoWay::new(DEGREE_MAX));
        places.for_each(|first| drop(cache.read(&mut policy, first, count)));
        (cache.missed, cache.efficiency_percent())
    }

    #[test]
    fn both_directions_are_followed_alike() {
        let up = missed((0..500).map(|step| 100_000 + 4 * step), 4);
        let down = missed((0..500).map(|step| 100_000 - 4 * step), 4);
        assert_eq!(up, down);
        assert!(up.0 < 12 && up.1 > 80, "{up:?}");
    }

    #[test]
    fn what_goes_down_is_fetched_down_to_the_beginning() {
        let (mut cache, mut policy) = (EndlessCache::new(), TwoWay::new(DEGREE_MAX));
        for first in (0..40).rev() {
            for (suggested, count) in cache.read(&mut policy, first, 1) {
                assert!(suggested + count <= first, "it lies below what was read");
            }
        }
        assert!(cache.missed < 12, "{}", cache.missed);
    }

    #[test]
    fn a_stream_goes_on_behind_small_gaps() {
        let beginning = [100_008, 100_004, 100_000];
        let with_gaps = (1..500).map(|step| 100_000 - 12 * step);
        let (missed, _) = missed(beginning.into_iter().chain(with_gaps), 4);
        assert!(missed < 60, "{missed}");
    }

    #[test]
    fn a_reader_that_waits_below_widens_what_is_fetched() {
        let (mut policy, mut suggestions, mut now) = (TwoWay::new(DEGREE_MAX), Vec::new(), Instant(0));
        let mut widest = 0;
        for step in 0..60 {
            now = now.plus_millis(1);
            policy.on_read(now, read(100_000 - 4 * step, 4), &mut suggestions);
            for suggestion in suggestions.drain(..) {
                assert_eq!(suggestion.tag.0 & DOWN_TAG, DOWN_TAG);
                widest = widest.max(suggestion.count);
                let feedback = Feedback {
                    volume: suggestion.volume,
                    first: suggestion.first,
                    count: suggestion.count,
                    tag: suggestion.tag,
                    prefetch_outcome: PrefetchOutcome::Arrived { waited: true },
                };
                policy.on_feedback(now, feedback);
            }
        }
        assert!(widest > 32, "{widest}");
    }

    #[test]
    fn random_reads_suggest_nothing() {
        assert_eq!(suggested_for_random_reads(&mut TwoWay::new(DEGREE_MAX), 5_000), 0);
    }

    proptest! {
        #[test]
        fn survives_anything(seed: u64, degree_blocks_max: u64) {
            withstands_anything(&mut TwoWay::new(degree_blocks_max), seed);
        }
    }
}
