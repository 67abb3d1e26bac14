//! Linux read-ahead (mm/readahead.c as of 5.x, `ondemand_readahead`): the baseline that every host brings along.
//!
//! A window [start, start + size) with a marker where its asynchronous part begins. A sequential miss opens a window of
//! the next power of two of the request, four times that up to a 32nd of the maximum, twice up to a quarter. Reaching
//! the marker (or the end of the window) opens the next window behind it: four times as large below a 16th of the
//! maximum, else twice. A small random read is left alone; one larger than the maximum opens a window at once.
//!
//! The kernel keeps one window per open file and finds interleaved streams by the residency of pages; the stream table
//! does both here. There are no files, so "offset zero is the start of a sequential read" is left out.

use crate::{
    Access, Class, Outcome, Pattern, Prefetcher, Suggestion, Tag,
    streams::{Relation, Streams, forwards_to_streams},
    suggest,
};
use alloc::vec::Vec;
use tombolo_base::Instant;

/// The settings of the kernel's read-ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxConfig {
    /// `read_ahead_kb`; the kernel's 128 KiB are 32 blocks, too few for a cloud.
    pub window_blocks_max: u64,
    /// Streams that are followed at once, in place of open files.
    pub streams_max: usize,
    /// Blocks that requests may overtake each other by.
    pub slack_blocks: u64,
}

impl Default for LinuxConfig {
    fn default() -> Self {
        Self {
            window_blocks_max: 1024,
            streams_max: 256,
            slack_blocks: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    start: u64,
    /// Zero: no window yet.
    size: u64,
    /// The marker lies this many blocks before the end.
    asynchronous: u64,
}

/// Linux's read-ahead of 5.x.
#[derive(Debug)]
pub struct Linux {
    max: u64,
    streams: Streams<Window>,
}

impl Linux {
    /// Follows no stream yet.
    pub fn new(config: LinuxConfig) -> Self {
        Self {
            max: config.window_blocks_max.clamp(1, 1 << 20),
            streams: Streams::new(config.streams_max, config.slack_blocks),
        }
    }

    fn check_window(&self, window: &Window) {
        assert!(window.asynchronous <= window.size && window.size <= self.max.next_power_of_two());
    }
}

impl Window {
    fn end(&self) -> u64 {
        self.start + self.size
    }

    fn marker(&self) -> u64 {
        self.end() - self.asynchronous
    }

    fn first_size(request: u64, max: u64) -> u64 {
        let size = request.min(max).next_power_of_two();
        if size <= max / 32 {
            size * 4
        } else if size <= max / 4 {
            size * 2
        } else {
            max
        }
    }

    fn next_size(&self, max: u64) -> u64 {
        if self.size < max / 16 {
            self.size * 4
        } else if self.size <= max / 2 {
            self.size * 2
        } else {
            max
        }
    }

    /// A window that begins with the request itself.
    fn open(&mut self, access: &Access, max: u64) {
        self.start = access.first;
        self.size = Self::first_size(access.count, max);
        self.asynchronous = if self.size > access.count {
            self.size - access.count
        } else {
            self.size
        };
        // The reader is at the marker already: take the next window along with this one.
        if self.asynchronous == self.size {
            let more = self.next_size(max);
            if self.size + more <= max {
                self.asynchronous = more;
                self.size += more;
            } else {
                self.size = max;
                self.asynchronous = max >> 1;
            }
        }
    }

    /// The window behind this one.
    fn advance(&mut self, max: u64) {
        self.start = self.end();
        self.size = self.next_size(max);
        self.asynchronous = self.size;
    }
}

impl Prefetcher for Linux {
    fn name(&self) -> &'static str {
        "linux"
    }

    fn on_read(&mut self, _now: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        if !access.is_valid() {
            return Pattern::Random;
        }
        let max = self.max;
        let followed = self.streams.follow(&access);
        let Some(stream) = self.streams.get_mut(followed.slot) else {
            return Pattern::Random;
        };
        let (next, likelihood) = (stream.next, stream.likelihood());
        let pattern = stream.pattern(2);
        let window = &mut stream.state;
        let continued = followed.relation == Relation::Continued;
        if continued && window.size > 0 && access.outcome != Outcome::Miss {
            if window.marker() >= next {
                return pattern;
            }
            window.advance(max);
        } else if access.outcome == Outcome::Miss && (continued || access.count > max) {
            // A miss where the window should have been: what it fetched is gone.
            window.open(&access, max);
        } else {
            return pattern;
        }
        let first = window.start.max(next);
        let suggestion = Suggestion {
            volume: access.volume,
            first,
            count: window.end().saturating_sub(first),
            gaps: None,
            class: Class::Sequential,
            likelihood,
            trigger: Some(window.marker().max(first)),
            tag: Tag(followed.slot),
        };
        suggest(suggestions, suggestion);
        pattern
    }

    forwards_to_streams!(check_window);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{EndlessCache, suggested_for_random_reads, withstands_anything};
    use proptest::prelude::*;

    fn policy(window_blocks_max: u64) -> Linux {
        Linux::new(LinuxConfig {
            window_blocks_max,
            ..LinuxConfig::default()
        })
    }

    #[test]
    fn golden_growth_of_the_kernel() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy(32));
        let suggested: Vec<_> = (0..80).map(|block| cache.read(&mut policy, block, 1)).collect();
        let given: Vec<_> = suggested
            .iter()
            .enumerate()
            .filter(|(_, s)| !s.is_empty())
            .map(|(at, s)| (at, s[0]))
            .collect();
        // From the miss at 1: 4 pages with the marker at 2, then 8, 16, 32, 32, each at the marker of the one before.
        assert_eq!(
            given,
            [
                (1, (2, 3)),
                (2, (5, 8)),
                (5, (13, 16)),
                (13, (29, 32)),
                (29, (61, 32)),
                (61, (93, 32))
            ]
        );
    }

    #[test]
    fn a_read_larger_than_the_maximum_opens_a_window() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy(32));
        assert_eq!(cache.read(&mut policy, 1000, 31), []);
        assert_eq!(cache.read(&mut policy, 5000, 33), []);
        // The window lay within the request, so the next block is a sequential miss and opens its own.
        assert_eq!(cache.read(&mut policy, 5033, 1), [(5034, 3)]);
    }

    #[test]
    fn random_reads_are_left_alone_and_streams_told_apart() {
        assert_eq!(suggested_for_random_reads(&mut policy(1024), 5_000), 0);
        let (mut cache, mut policy) = (EndlessCache::new(), policy(128));
        for step in 0..100 {
            for stream in 0..50 {
                cache.read(&mut policy, (stream << 30) + step * 8, 8);
            }
        }
        assert_eq!(cache.missed, 100);
    }

    /// The kernel's formulas, literally.
    fn kernel_first(request: u64, max: u64) -> u64 {
        let new = request.next_power_of_two();
        if new <= max / 32 {
            new * 4
        } else if new <= max / 4 {
            new * 2
        } else {
            max
        }
    }

    proptest! {
        /// The kernel's state machine for one file read in sequence, on page numbers alone.
        #[test]
        fn equals_the_kernel_on_one_stream(counts in prop::collection::vec(1u64..40, 1..60), log in 6u32..10) {
            let max = 1 << log;
            let (mut cache, mut policy) = (EndlessCache::new(), policy(max));
            let (mut at, mut start, mut size, mut asynchronous, mut resident) = (0u64, 0u64, 0u64, 0u64, 0u64);
            for (step, count) in counts.into_iter().enumerate() {
                let end = at + count;
                let found = cache.read(&mut policy, at, count);
                let before = resident.max(at);
                if step > 0 && end > resident {
                    start = at;
                    size = kernel_first(count, max);
                    asynchronous = if size > count { size - count } else { size };
                    if asynchronous == size {
                        let next = if size < max / 16 { 4 * size } else if size <= max / 2 { 2 * size } else { max };
                        (size, asynchronous) = if size + next <= max { (size + next, next) } else { (max, max >> 1) };
                    }
                    resident = resident.max(end).max(start + size);
                } else if step > 0 && start + size - asynchronous < end {
                    start += size;
                    size = if size < max / 16 { 4 * size } else if size <= max / 2 { 2 * size } else { max };
                    asynchronous = size;
                    resident = resident.max(start + size);
                }
                resident = resident.max(end);
                let blocks: u64 = found.iter().filter(|range| range.0 + range.1 > before.max(end)).map(|r| r.0 + r.1 - before.max(end)).sum();
                prop_assert_eq!(blocks, resident - before.max(end));
                at = end;
            }
        }

        #[test]
        fn survives_anything(seed: u64, max in 1u64..2000) {
            withstands_anything(&mut policy(max), seed);
        }
    }
}
