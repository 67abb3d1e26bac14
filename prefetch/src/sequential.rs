//! SEQ: sequential prefetch of a fixed degree (Tombolo, MSST'16, section 4.2.1; the prefetcher of SARC, USENIX'05).
//!
//! A stream is taken for sequential at its third read (SARC's threshold; the stream table takes the place of SARC's
//! counters of resident tracks, see `streams`). *Synchronous*, as in Tombolo: a sequential miss fetches the next group
//! of `degree` blocks, and nothing else does. *Asynchronous*, as in SARC: reading the block `offset` before the end of a
//! group fetches the next group as well.
//!
//! Where the papers align groups to disks, these end at a cloud object's end as far as that leaves any block, so that
//! one group never costs two objects where one would do.

use crate::{
    Access, Class, Outcome, Pattern, Prefetcher, Suggestion, Tag,
    streams::{Relation, Stream, Streams, forwards_to_streams},
    suggest,
};
use alloc::vec::Vec;
use tombolo_base::{Instant, VolumeId};

/// What starts a prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A sequential miss only.
    Synchronous,
    /// Also reading the block this many before the last of a group.
    Asynchronous {
        /// Zero is the last block itself.
        offset_blocks: u64,
    },
}

/// SEQ's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequentialConfig {
    /// Blocks in a group.
    pub degree_blocks: u64,
    /// Groups end at multiples of this; 1 leaves them as they are.
    pub align_blocks: u64,
    /// The read of a stream that makes it sequential, counted from 1.
    pub threshold: u32,
    /// What fetches the next group.
    pub trigger: Trigger,
    /// Streams that are followed at once.
    pub streams_max: usize,
    /// Blocks that requests may overtake each other by.
    pub slack_blocks: u64,
}

impl Default for SequentialConfig {
    fn default() -> Self {
        Self {
            degree_blocks: 64,
            align_blocks: 64,
            threshold: 3,
            trigger: Trigger::Synchronous,
            streams_max: 256,
            slack_blocks: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// One past the last block fetched ahead; zero before the first group.
    end: u64,
    /// The block whose reading fetches the next group.
    trigger: Option<u64>,
}

/// SEQ (Tombolo, MSST'16, section 4.2.1): fetches groups of a fixed degree.
#[derive(Debug)]
pub struct Sequential {
    config: SequentialConfig,
    streams: Streams<Group>,
}

impl Sequential {
    /// Follows no stream yet.
    pub fn new(config: SequentialConfig) -> Self {
        Self {
            streams: Streams::new(config.streams_max, config.slack_blocks),
            config,
        }
    }
}

impl SequentialConfig {
    fn group(&self, stream: &mut Stream<Group>, first: u64, tag: Tag) -> Suggestion {
        let align = self.align_blocks.max(1);
        let end = first + self.degree_blocks.clamp(1, 1 << 20);
        let aligned = end - end % align;
        let end = if aligned > first { aligned } else { end };
        stream.state.end = end;
        stream.state.trigger = match self.trigger {
            Trigger::Synchronous => None,
            Trigger::Asynchronous { offset_blocks } => Some((end - 1).saturating_sub(offset_blocks).max(first)),
        };
        Suggestion {
            volume: VolumeId(stream.volume),
            first,
            count: end - first,
            gaps: None,
            class: Class::Sequential,
            likelihood: stream.likelihood(),
            trigger: stream.state.trigger,
            tag,
        }
    }
}

impl Prefetcher for Sequential {
    fn name(&self) -> &'static str {
        "seq"
    }

    fn on_read(&mut self, _now: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        if !access.is_valid() {
            return Pattern::Random;
        }
        let followed = self.streams.follow(&access);
        let Some(stream) = self.streams.get_mut(followed.slot) else {
            return Pattern::Random;
        };
        if stream.requests < self.config.threshold {
            return Pattern::Random;
        }
        if followed.relation == Relation::Continued {
            let triggered = stream.state.trigger.is_some_and(|block| block < stream.next);
            let first = match access.outcome {
                Outcome::Miss => Some(stream.next),
                _ if triggered => Some(stream.state.end.max(stream.next)),
                _ => None,
            };
            if let Some(first) = first {
                suggest(suggestions, self.config.group(stream, first, Tag(followed.slot)));
            }
        }
        Pattern::Sequential
    }

    forwards_to_streams!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{EndlessCache, read, suggested_for_random_reads, withstands_anything};
    use proptest::prelude::*;

    fn policy(trigger: Trigger) -> Sequential {
        Sequential::new(SequentialConfig {
            trigger,
            ..SequentialConfig::default()
        })
    }

    #[test]
    fn golden_synchronous() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy(Trigger::Synchronous));
        let suggested: Vec<_> = (0..30)
            .map(|step| cache.read(&mut policy, 1000 + step * 8, 8))
            .collect();
        let given: Vec<_> = suggested.iter().enumerate().filter(|(_, s)| !s.is_empty()).collect();
        // The third read misses: to the object's end at 1024 there are no blocks left, thus to 1088.
        assert_eq!(
            given,
            [
                (2, &vec![(1024, 64)]),
                (11, &vec![(1096, 56)]),
                (19, &vec![(1160, 56)]),
                (27, &vec![(1224, 56)])
            ]
        );
        assert_eq!(cache.missed, 6);
    }

    #[test]
    fn golden_asynchronous() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy(Trigger::Asynchronous { offset_blocks: 15 }));
        let suggested: Vec<_> = (0..30)
            .map(|step| cache.read(&mut policy, 1000 + step * 8, 8))
            .collect();
        let given: Vec<_> = suggested.iter().enumerate().filter(|(_, s)| !s.is_empty()).collect();
        // Triggers at 1072, 1136 and 1200: the reads that cover them, no earlier and no later.
        assert_eq!(
            given,
            [
                (2, &vec![(1024, 64)]),
                (9, &vec![(1088, 64)]),
                (17, &vec![(1152, 64)]),
                (25, &vec![(1216, 64)])
            ]
        );
        assert_eq!(cache.missed, 3);
    }

    #[test]
    fn random_and_strided_reads_are_left_alone() {
        assert_eq!(suggested_for_random_reads(&mut policy(Trigger::Synchronous), 5_000), 0);
        let (mut cache, mut policy) = (EndlessCache::new(), policy(Trigger::Synchronous));
        (0..100).for_each(|step| assert_eq!(cache.read(&mut policy, step * 100, 4), []));
    }

    #[test]
    fn interleaved_streams_and_loops() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy(Trigger::Synchronous));
        for _ in 0..2 {
            for step in 0..64 {
                for stream in 0..20 {
                    cache.read(&mut policy, (stream << 30) + step * 8, 8);
                }
            }
        }
        // 512 blocks each; the second turn of the loop hits. The last group may lie beyond the end.
        assert!(cache.efficiency_percent() >= 85, "{}", cache.efficiency_percent());
        assert!(cache.missed <= 20 * 13, "{}", cache.missed);
    }

    proptest! {
        /// The specification, written as a scan over the whole history of one volume.
        #[test]
        fn equals_the_specification(
            reads in prop::collection::vec((0u64..2000, 1u64..30, 0u8..4, any::<bool>()), 1..120),
            offset in prop::option::of(0u64..70),
        ) {
            let trigger = offset.map_or(Trigger::Synchronous, |offset_blocks| Trigger::Asynchronous { offset_blocks });
            let mut policy = policy(trigger);
            // Streams as (next, reads, group end, trigger).
            let mut streams: Vec<(u64, u32, u64, Option<u64>)> = Vec::new();
            for (random, count, continuing, hit) in reads {
                // Starts are far apart, so that only exact continuation is possible.
                let fresh = random * 1_000_000;
                let first = if continuing > 0 { streams.last().map_or(fresh, |s| s.0) } else { fresh };
                if continuing == 0 && streams.iter().any(|s| s.0.abs_diff(first) < 900_000) {
                    continue;
                }
                let outcome = if hit { Outcome::Hit } else { Outcome::Miss };
                let mut found = Vec::new();
                policy.on_read(Instant(0), Access { outcome, ..read(first, count) }, &mut found);
                let known = streams.iter().position(|s| s.0 == first);
                let mut stream = known.map_or((0, 0, 0, None), |index| streams.remove(index));
                stream = (first + count, stream.1 + 1, stream.2, stream.3);
                let mut expected = None;
                if stream.1 >= 3 {
                    let triggered = stream.3.is_some_and(|block| block < stream.0);
                    let from = if !hit { Some(stream.0) } else if triggered { Some(stream.2.max(stream.0)) } else { None };
                    if let Some(from) = from {
                        let mut end = from + 64;
                        if end / 64 * 64 > from {
                            end = end / 64 * 64;
                        }
                        stream.2 = end;
                        stream.3 = offset.map(|offset| (end - 1 - offset.min(end - 1)).max(from));
                        expected = Some((from, end - from));
                    }
                }
                streams.push(stream);
                prop_assert_eq!(found.first().map(|s| (s.first, s.count)), expected);
            }
        }

        #[test]
        fn survives_anything(seed: u64) {
            withstands_anything(&mut policy(Trigger::Asynchronous { offset_blocks: 9 }), seed);
        }
    }
}
