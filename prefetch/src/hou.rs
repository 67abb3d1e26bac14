//! Hou et al. (MSST'16), section V.B: the history-based window of a cloud file system's client.
//!
//! Objects are read in chunks. When chunk n is entered and chunks n-i to n-1 were read in sequence before it, the next
//! min(8, 2^(i-1)) chunks are prefetched; after a random read, none. Chunks that were asked for already are not asked
//! for again. The paper's parallel downloads are the caller's business.

use crate::{
    Access, Class, Pattern, Prefetcher, Suggestion, Tag,
    streams::{Relation, Streams, forwards_to_streams},
    suggest,
};
use alloc::vec::Vec;
use tombolo_base::Instant;

/// Hou's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HouConfig {
    /// One chunk; with prefetch on, 1 MiB did best in the paper.
    pub chunk_blocks: u64,
    /// The most that is fetched ahead; 8 in the paper.
    pub window_chunks_max: u64,
    /// Streams that are followed at once.
    pub streams_max: usize,
    /// Blocks that requests may overtake each other by.
    pub slack_blocks: u64,
}

impl Default for HouConfig {
    fn default() -> Self {
        Self {
            chunk_blocks: 256,
            window_chunks_max: 8,
            streams_max: 256,
            slack_blocks: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Chunks below this were asked for.
    ahead: u64,
    /// The chunk that the last window was computed in, plus one; zero before the first.
    entered: u64,
}

/// The history-based window of Hou and others (MSST'16, section V.B).
#[derive(Debug)]
pub struct Hou {
    config: HouConfig,
    streams: Streams<Progress>,
}

impl Hou {
    /// Follows no stream yet.
    pub fn new(config: HouConfig) -> Self {
        Self {
            streams: Streams::new(config.streams_max, config.slack_blocks),
            config: HouConfig {
                chunk_blocks: config.chunk_blocks.clamp(1, 1 << 20),
                window_chunks_max: config.window_chunks_max.min(1 << 10),
                ..config
            },
        }
    }

    /// Chunks to prefetch after `sequential` chunks in sequence.
    fn window(&self, sequential: u64) -> u64 {
        match sequential {
            0 => 0,
            chunks => (1u64 << (chunks - 1).min(20)).min(self.config.window_chunks_max),
        }
    }
}

impl Prefetcher for Hou {
    fn name(&self) -> &'static str {
        "hou"
    }

    fn on_read(&mut self, _now: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        if !access.is_valid() {
            return Pattern::Random;
        }
        let followed = self.streams.follow(&access);
        let Some(&stream) = self.streams.get(followed.slot) else {
            return Pattern::Random;
        };
        let chunk = (stream.next - 1) / self.config.chunk_blocks;
        let entered = core::mem::replace(
            &mut self.streams.get_mut(followed.slot).expect("just read").state.entered,
            chunk + 1,
        );
        let moved = matches!(followed.relation, Relation::Continued) || stream.requests == 1;
        let window = self.window(chunk - stream.start / self.config.chunk_blocks);
        if moved && entered != chunk + 1 && window > 0 {
            let first = stream.state.ahead.max(chunk + 1);
            let end = (chunk + 1 + window).max(first);
            self.streams.get_mut(followed.slot).expect("just read").state.ahead = end;
            let suggestion = Suggestion {
                volume: access.volume,
                first: first * self.config.chunk_blocks,
                count: (end - first) * self.config.chunk_blocks,
                gaps: None,
                class: Class::Sequential,
                likelihood: stream.likelihood(),
                trigger: Some(first * self.config.chunk_blocks),
                tag: Tag(followed.slot),
            };
            suggest(suggestions, suggestion);
        }
        stream.pattern(2)
    }

    forwards_to_streams!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{EndlessCache, suggested_for_random_reads, withstands_anything};
    use proptest::prelude::*;

    fn policy(chunk_blocks: u64) -> Hou {
        Hou::new(HouConfig {
            chunk_blocks,
            ..HouConfig::default()
        })
    }

    #[test]
    fn golden_one_two_four_eight() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy(10));
        let suggested: Vec<_> = (0..8)
            .flat_map(|chunk| cache.read(&mut policy, chunk * 10, 10))
            .collect();
        // Windows of 1, 2, 4, 8, 8 chunks behind chunks 1 to 5, less what was asked for before.
        assert_eq!(
            suggested,
            [(20, 10), (30, 20), (50, 30), (80, 50), (130, 10), (140, 10), (150, 10)]
        );
    }

    #[test]
    fn a_chunk_counts_once_however_it_is_read() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy(10));
        let suggested: Vec<_> = (0..25).flat_map(|step| cache.read(&mut policy, step, 1)).collect();
        assert_eq!(suggested, [(20, 10), (30, 20)]);
    }

    #[test]
    fn random_reads_have_no_window() {
        assert_eq!(suggested_for_random_reads(&mut policy(256), 5_000), 0);
    }

    proptest! {
        /// For whole chunks in sequence, the paper's formula.
        #[test]
        fn equals_the_formula(start in 0u64..100, length in 1u64..30, chunk_blocks in 1u64..300) {
            let (mut cache, mut policy) = (EndlessCache::new(), policy(chunk_blocks));
            let mut ahead = 0;
            for step in 0..length {
                let chunk = start + step;
                let window = if step == 0 { 0 } else { 8.min(1 << (step - 1).min(10)) };
                let expected = (ahead.max(chunk + 1), chunk + 1 + window);
                let found = cache.read(&mut policy, chunk * chunk_blocks, chunk_blocks);
                let expected_range = (expected.1 > expected.0 && window > 0)
                    .then(|| (expected.0 * chunk_blocks, (expected.1 - expected.0) * chunk_blocks));
                prop_assert_eq!(found.first().copied(), expected_range);
                if window > 0 {
                    ahead = expected.1.max(expected.0);
                }
            }
        }

        #[test]
        fn survives_anything(seed: u64) {
            withstands_anything(&mut policy(16), seed);
        }
    }
}
