//! A window that doubles: a read that continues a known stream fetches twice as far ahead as the last one did, up to a
//! maximum; the next window is asked for when the reader has used half of what was fetched ahead.
//!
//! Ours: the doubling of Hou et al. (MSST'16, section V.B) without its ceiling of eight chunks, and an asynchronous
//! trigger, because one round trip to a cloud may be worth thousands of blocks. It needs no feedback.

use crate::{
    Access, Class, Pattern, Prefetcher, Suggestion, Tag,
    streams::{Relation, Streams, forwards_to_streams},
    suggest,
};
use alloc::vec::Vec;
use tombolo_base::Instant;

const STREAMS_MAX: usize = 256;
/// First window: one object of 64 blocks.
const WINDOW_BLOCKS_MIN: u64 = 64;
/// Requests of one client may overtake each other by so much.
const SLACK_BLOCKS: u64 = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// Everything below this was suggested already.
    ahead: u64,
    blocks: u64,
}

/// Windows that double while a stream goes on.
#[derive(Debug)]
pub struct Ramp {
    streams: Streams<Window>,
    window_blocks_max: u64,
}

impl Ramp {
    /// Follows no stream yet. No window exceeds `window_blocks_max`.
    pub fn new(window_blocks_max: u64) -> Self {
        Self {
            streams: Streams::new(STREAMS_MAX, SLACK_BLOCKS),
            window_blocks_max: window_blocks_max.clamp(1, 1 << 30),
        }
    }
}

impl Prefetcher for Ramp {
    fn name(&self) -> &'static str {
        "ramp"
    }

    fn on_read(&mut self, _now: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        if !access.is_valid() {
            return Pattern::Random;
        }
        let followed = self.streams.follow(&access);
        let Some(stream) = self.streams.get_mut(followed.slot) else {
            return Pattern::Random;
        };
        if followed.relation != Relation::Continued {
            return stream.pattern(2);
        }
        let (next, likelihood) = (stream.next, stream.likelihood());
        let window = &mut stream.state;
        window.ahead = window.ahead.max(next);
        if window.ahead - next > window.blocks / 2 {
            return Pattern::Sequential;
        }
        let least = WINDOW_BLOCKS_MIN.min(self.window_blocks_max);
        window.blocks = (window.blocks * 2).clamp(least, self.window_blocks_max);
        let first = window.ahead;
        window.ahead = window.ahead.max(next + window.blocks);
        let suggestion = Suggestion {
            volume: access.volume,
            first,
            count: window.ahead - first,
            gaps: None,
            class: Class::Sequential,
            likelihood,
            trigger: window.ahead.checked_sub(window.blocks / 2 + 1),
            tag: Tag(followed.slot),
        };
        suggest(suggestions, suggestion);
        Pattern::Sequential
    }

    forwards_to_streams!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{EndlessCache, suggested_for_random_reads, withstands_anything};
    use proptest::prelude::*;

    #[test]
    fn golden_doubling() {
        let (mut cache, mut policy) = (EndlessCache::new(), Ramp::new(256));
        let suggested: Vec<_> = (0..24)
            .flat_map(|step| cache.read(&mut policy, step * 32, 32))
            .collect();
        assert_eq!(
            suggested,
            [
                (64, 64),
                (128, 96),
                (224, 192),
                (416, 128),
                (544, 128),
                (672, 128),
                (800, 128)
            ]
        );
        assert_eq!(cache.missed, 2);
    }

    #[test]
    fn a_stream_doubles_up_to_the_maximum_and_stays_ahead() {
        let (mut cache, mut policy) = (EndlessCache::new(), Ramp::new(1024));
        let (mut ahead, mut largest) = (0, 0);
        for first in (0..20_000).step_by(32) {
            for (from, count) in cache.read(&mut policy, first, 32) {
                assert!(from >= ahead, "nothing is suggested twice");
                ahead = from + count;
                largest = largest.max(ahead - first);
            }
            assert!(first < 64 || ahead >= first + 32);
        }
        assert!(largest > 1000 && largest <= 1024 + 32);
    }

    #[test]
    fn random_reads_are_left_alone() {
        assert_eq!(suggested_for_random_reads(&mut Ramp::new(1024), 5_000), 0);
    }

    #[test]
    fn interleaved_streams_are_told_apart() {
        let (mut cache, mut policy) = (EndlessCache::new(), Ramp::new(256));
        for step in 0..100 {
            for stream in 0..100 {
                cache.read(&mut policy, (stream << 30) + step * 8, 8);
            }
        }
        assert_eq!(cache.missed, 200);
    }

    proptest! {
        #[test]
        fn survives_anything(seed: u64) {
            withstands_anything(&mut Ramp::new(512), seed);
        }
    }
}
