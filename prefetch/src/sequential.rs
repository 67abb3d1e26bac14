//! SEQ with a stream table: a read that continues a known stream doubles the stream's window up to a maximum; the
//! next window is asked for when the reader has used half of what was fetched ahead (asynchronous trigger).
//!
//! The stream table in place of a "previous block is resident" test keeps dense random sets from looking sequential
//! (SARC's detector is fooled by them). Doubling follows Hou et al. (MSST'16), section on the prefetch window.

use crate::{Access, Prefetcher, Suggestion};
use alloc::vec::Vec;
use tombolo_base::VolumeId;

/// Streams followed at once; the least recently continued one is forgotten.
const STREAMS_MAX: usize = 64;
/// First window: one object of 64 blocks.
const WINDOW_BLOCKS_MIN: u64 = 64;

#[derive(Debug)]
struct Stream {
    volume: VolumeId,
    /// The block that would continue the stream.
    next: u64,
    /// Everything below this was suggested already.
    ahead: u64,
    window: u64,
    last_use: u64,
}

#[derive(Debug)]
pub struct Sequential {
    streams: Vec<Stream>,
    window_blocks_max: u64,
    uses: u64,
}

impl Sequential {
    pub fn new(window_blocks_max: u64) -> Self {
        Self {
            streams: Vec::new(),
            window_blocks_max: window_blocks_max.max(1),
            uses: 0,
        }
    }

    fn start(&mut self, access: Access) {
        let stream = Stream {
            volume: access.volume,
            next: access.first + access.count,
            ahead: access.first + access.count,
            window: 0,
            last_use: self.uses,
        };
        if self.streams.len() < STREAMS_MAX {
            self.streams.push(stream);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.last_use) {
            *oldest = stream;
        }
    }
}

impl Prefetcher for Sequential {
    fn name(&self) -> &'static str {
        "seq"
    }

    fn on_read(&mut self, access: Access) -> Option<Suggestion> {
        self.uses += 1;
        let end = access.first + access.count;
        // Requests of one client may arrive slightly out of order, so a stream is continued by anything that
        // touches the span between its oldest expected block and what was fetched ahead.
        let found = self.streams.iter_mut().find(|stream| {
            stream.volume == access.volume
                && access.first <= stream.ahead.max(stream.next)
                && end >= stream.next
                && access.first + stream.window.max(access.count) >= stream.next
        });
        let Some(stream) = found else {
            self.start(access);
            return None;
        };
        stream.last_use = self.uses;
        stream.next = stream.next.max(end);
        stream.ahead = stream.ahead.max(stream.next);
        if stream.ahead - stream.next > stream.window / 2 {
            return None;
        }
        stream.window =
            (stream.window * 2).clamp(WINDOW_BLOCKS_MIN.min(self.window_blocks_max), self.window_blocks_max);
        let first = stream.ahead;
        stream.ahead = stream.next + stream.window;
        (stream.ahead > first).then(|| Suggestion {
            first,
            count: stream.ahead - first,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(first: u64, count: u64) -> Access {
        Access {
            volume: VolumeId(1),
            first,
            count,
        }
    }

    #[test]
    fn a_stream_doubles_up_to_the_maximum_and_stays_ahead() {
        let mut policy = Sequential::new(1024);
        let mut ahead = 0;
        let mut largest = 0;
        for first in (0..20_000).step_by(32) {
            if let Some(suggestion) = policy.on_read(read(first, 32)) {
                assert!(suggestion.first >= ahead, "nothing is suggested twice");
                ahead = suggestion.first + suggestion.count;
                largest = largest.max(ahead - first);
            }
            if first >= 64 {
                assert!(ahead >= first + 32);
            }
        }
        assert!(largest > 1000 && largest <= 1024 + 32);
    }

    #[test]
    fn random_reads_are_left_alone() {
        let mut policy = Sequential::new(1024);
        let mut prng = tombolo_base::Prng::new(7);
        let suggestions = (0..5_000)
            .filter(|_| policy.on_read(read(prng.below(1 << 40), 1)).is_some())
            .count();
        assert_eq!(suggestions, 0);
    }

    #[test]
    fn interleaved_streams_are_told_apart() {
        let mut policy = Sequential::new(256);
        let mut suggested = [0u64; 8];
        for step in 0..100 {
            for (stream, total) in suggested.iter_mut().enumerate() {
                if let Some(found) = policy.on_read(read(((stream as u64) << 30) + step * 8, 8)) {
                    assert_eq!(found.first >> 30, stream as u64);
                    *total += found.count;
                }
            }
        }
        assert!(suggested.iter().all(|total| *total >= 800));
    }

    proptest! {
        #[test]
        fn suggestions_are_bounded(reads in prop::collection::vec((0u64..4096, 1u64..64), 1..300)) {
            let mut policy = Sequential::new(512);
            for (first, count) in reads {
                if let Some(found) = policy.on_read(read(first, count)) {
                    prop_assert!(found.count > 0 && found.first + found.count <= first + count + 4096 + 512);
                }
            }
            prop_assert!(policy.streams.len() <= STREAMS_MAX);
        }
    }
}
