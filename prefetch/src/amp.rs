//! AMP: adaptive multi-stream prefetching (Gill and Bathen, FAST'07; rules as numbered here).
//!
//! Each stream has a degree `p` and a trigger distance `g`, in blocks.
//! 1. A miss that continues the stream adds the read's length to `p`, sets `g` to half of `APT` once `p` exceeds
//!    `APT`, and fetches the former `p` blocks behind the read.
//! 2. Reading the trigger block fetches the next set of `p` blocks behind what was fetched.
//! 3. A new set's trigger lies `g` before its last block; `p` is at least `g + 1`.
//! 4. Reading the last block of a set raises `p` by the read's length, unless that block came to the end of the eviction
//!    order in the meantime (`old`).
//! 5. Each block that comes to the end of the eviction order unread takes one off `p` and `g`.
//! 6. A set whose first block a reader waits for when it arrives raises `g`.
//!
//! Invariant: `g < p <= p_max`.
//!
//! Variants. The paper keeps `p` and `g` in the last page of each set; like lstore's live implementation we keep them per
//! stream in a bounded table, so trigger and end of the two newest sets are remembered and no page needs a flag (older
//! sets have been read to their ends by then). Rule 6 says by how much only in the missing figures: by the read's
//! length (`Additive`, the paper as far as known; it needs hundreds of stalls to bridge a wide-area round trip), by the set's
//! length (`SetLength`, the default), or also at least to what rate times fetch time demands (`Rate`, from the paper's
//! condition for streams without stalls, t(p) <= (g + 1)/r). Reads that start no set again (a repeated read of a demand-
//! fetched trigger) do nothing here. Rule 7, when a prefetched page moves in the eviction order, is the cache's.

use crate::{
    Access, Class, Feedback, Outcome, Pattern, PrefetchOutcome, Prefetcher, Suggestion, Tag,
    streams::{Relation, Stream, Streams, forwards_to_streams},
    suggest,
};
use alloc::vec::Vec;
use tombolo_base::{Instant, VolumeId};

/// The degree from which a stream is prefetched asynchronously, in blocks (the paper's value).
const APT: u64 = 4;
/// The rate of a stream is measured over at least this long.
const RATE_WINDOW_MICROS: u64 = 50_000;
/// A stream that rests for longer needs no room until it goes on.
const REST_MICROS_MAX: u64 = 10_000_000;

/// By how much rule 6 raises the trigger distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerGrowth {
    /// By the length of the read, as in the paper.
    Additive,
    /// By the length of the set.
    SetLength,
    /// By the length of the read, and at least to what bridges a fetch at the stream's rate.
    Rate,
}

/// AMP's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmpConfig {
    /// Rule 6.
    pub growth: TriggerGrowth,
    /// `p` never exceeds it.
    pub degree_blocks_max: u64,
    /// The read of a stream from which on it is prefetched, counted from 1: 2 is AMP's own, 3 SARC's.
    pub threshold: u32,
    /// Streams that are followed at once.
    pub streams_max: usize,
    /// Blocks that requests may overtake each other by.
    pub slack_blocks: u64,
}

impl Default for AmpConfig {
    fn default() -> Self {
        Self {
            growth: TriggerGrowth::SetLength,
            degree_blocks_max: 4096,
            threshold: 2,
            streams_max: 1024,
            slack_blocks: 0,
        }
    }
}

/// Blocks that were suggested at once.
#[derive(Clone, Copy, Debug, Default)]
struct Set {
    first: u64,
    end: u64,
    issued: Instant,
    /// Its last block has not been read yet.
    open: bool,
    /// Its last block came to the end of the eviction order.
    old: bool,
    /// Its first block has come.
    arrived: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Degree {
    p: u64,
    g: u64,
    trigger: Option<u64>,
    /// The newest first.
    sets: [Set; 2],
    read_blocks: u64,
    rate_since: Instant,
    rate_blocks: u64,
    /// Thousandths of a block per second; zero: not known yet.
    rate: u64,
}

/// AMP (Gill and Bathen, FAST'07): each stream learns how far ahead it has to be fetched.
#[derive(Debug)]
pub struct Amp {
    config: AmpConfig,
    streams: Streams<Degree>,
    /// How long fetching a set takes, smoothed.
    fetch_micros: u64,
}

impl Amp {
    /// Follows no stream yet.
    pub fn new(config: AmpConfig) -> Self {
        Self {
            streams: Streams::new(config.streams_max, config.slack_blocks),
            config: AmpConfig {
                degree_blocks_max: config.degree_blocks_max.clamp(1, 1 << 20),
                ..config
            },
            fetch_micros: 0,
        }
    }

    /// The degree and trigger distance of the stream in a slot; for tests and displays.
    pub fn degree(&self, tag: Tag) -> Option<(u64, u64)> {
        self.streams.get(tag.0).map(|stream| (stream.state.p, stream.state.g))
    }
}

impl Degree {
    fn start(&mut self, now: Instant, count: u64, max: u64) {
        self.p = count.min(max);
        self.g = if self.p > APT { APT / 2 } else { 0 };
        self.read_blocks = count;
        self.rate_since = now;
    }

    fn measure(&mut self, now: Instant, count: u64) {
        self.read_blocks = count;
        self.rate_blocks = self.rate_blocks.saturating_add(count);
        let elapsed = now.micros_since(self.rate_since);
        if elapsed >= RATE_WINDOW_MICROS {
            let sample = (u128::from(self.rate_blocks) * 1_000_000_000 / u128::from(elapsed)).min(1 << 50) as u64;
            self.rate = smoothed(self.rate, sample);
            (self.rate_since, self.rate_blocks) = (now, 0);
        }
    }

    /// Rule 1, without the fetch.
    fn grow_on_miss(&mut self, count: u64, config: &AmpConfig) {
        self.p = (self.p + count).min(config.degree_blocks_max);
        self.sets = [Set::default(); 2];
        self.trigger = None;
        if self.p > APT {
            // The paper begins a new record here, with its default; a distance learnt from stalls is worth keeping.
            self.g = if config.growth == TriggerGrowth::Additive {
                APT / 2
            } else {
                self.g.max(APT / 2)
            };
        }
        self.g = self.g.min(self.p - 1);
    }

    /// Between a block's arrival and its turn as the last of its set, what is left of the set before (g) and its own set
    /// (p) are read, and the next set (p) arrives: so many blocks are more recent in the order of eviction.
    fn need_blocks(&self, now: Instant) -> u64 {
        let is_read = now.micros_since(self.rate_since) <= REST_MICROS_MAX;
        let is_prefetched = self.sets.iter().any(|set| set.open);
        if is_read && is_prefetched {
            2 * self.p + self.g
        } else {
            0
        }
    }

    /// Rule 4.
    fn close_sets(&mut self, next: u64, max: u64) {
        for set in &mut self.sets {
            if set.open && set.end <= next {
                set.open = false;
                if !set.old {
                    self.p = (self.p + self.read_blocks).min(max);
                }
            }
        }
    }

    fn raise_distance(&mut self, by: u64, max: u64) {
        self.g = self.g.saturating_add(by).min(max - 1);
        self.p = self.p.max(self.g + 1);
    }

    /// Rule 3.
    fn issue(&mut self, now: Instant, first: u64, count: u64) -> (u64, u64) {
        self.p = self.p.max(self.g + 1);
        let set = Set {
            first,
            end: first + count,
            issued: now,
            open: true,
            ..Set::default()
        };
        self.trigger = Some((set.end - 1).saturating_sub(self.g).max(first));
        self.sets = [set, self.sets[0]];
        (first, count)
    }

    /// Rule 5.
    fn shrink(&mut self, first: u64, count: u64) {
        self.p = self.p.saturating_sub(count).max(1);
        self.g = self.g.saturating_sub(count).min(self.p - 1);
        for set in &mut self.sets {
            set.old |= first < set.end && set.end <= first.saturating_add(count);
        }
    }
}

/// A step of an eighth towards a sample; the first sample is taken as it is.
fn smoothed(mean: u64, sample: u64) -> u64 {
    if mean == 0 { sample } else { (mean * 7 + sample) / 8 }
}

impl Amp {
    /// What a stream that is read on has fetched now, if anything.
    fn proceed(&mut self, now: Instant, slot: u32, access: &Access, moved: u64) -> Option<(u64, u64)> {
        let (config, fetch_micros) = (self.config, self.fetch_micros);
        let stream = self.streams.get_mut(slot)?;
        let (next, may_fetch) = (stream.next, stream.requests >= config.threshold);
        let degree = &mut stream.state;
        degree.measure(now, access.count);
        if access.outcome == Outcome::Miss {
            let former = degree.p;
            degree.grow_on_miss(moved, &config);
            return may_fetch.then(|| degree.issue(now, next, former));
        }
        degree.close_sets(next, config.degree_blocks_max);
        if !may_fetch || degree.trigger.is_none_or(|block| block >= next) {
            return None;
        }
        if config.growth == TriggerGrowth::Rate {
            let needed = (u128::from(degree.rate) * u128::from(fetch_micros))
                .div_ceil(1_000_000_000)
                .min(1 << 20) as u64;
            let missing = needed.saturating_sub(degree.g + 1);
            degree.raise_distance(missing, config.degree_blocks_max);
        }
        let first = degree.sets[0].end.max(next);
        Some(degree.issue(now, first, degree.p))
    }

    fn suggestion(&self, slot: u32, stream: &Stream<Degree>, range: (u64, u64)) -> Suggestion {
        Suggestion {
            volume: VolumeId(stream.volume),
            first: range.0,
            count: range.1,
            gaps: None,
            class: Class::Sequential,
            likelihood: stream.likelihood(),
            trigger: stream.state.trigger,
            tag: Tag(slot),
        }
    }

    /// Rule 6, and how long fetches take. A set comes in pieces, one of each object that it lies in, in any order; the one with
    /// its first block tells.
    fn on_arrival(&mut self, now: Instant, feedback: &Feedback, waited: bool) {
        let config = self.config;
        let Some(stream) = self.streams.get_mut(feedback.tag.0) else {
            return;
        };
        let degree = &mut stream.state;
        let Some(set) = degree
            .sets
            .iter_mut()
            .find(|set| set.first == feedback.first && set.end > set.first)
        else {
            return;
        };
        if core::mem::replace(&mut set.arrived, true) {
            return;
        }
        self.fetch_micros = smoothed(self.fetch_micros, now.micros_since(set.issued).min(1 << 40));
        if waited {
            let length = set.end - set.first;
            let by = if config.growth == TriggerGrowth::SetLength {
                length
            } else {
                degree.read_blocks
            };
            degree.raise_distance(by, config.degree_blocks_max);
        }
    }

    fn check_degree(&self, degree: &Degree) {
        assert!(
            degree.g < degree.p && degree.p <= self.config.degree_blocks_max,
            "{degree:?}"
        );
    }

    /// [`Prefetcher::on_read`], for a policy that looks at the read as well.
    pub(crate) fn read(&mut self, now: Instant, access: &Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        if !access.is_valid() {
            return Pattern::Random;
        }
        let followed = self.streams.follow(access);
        let slot = followed.slot;
        match followed.relation {
            Relation::New => {
                if let Some(stream) = self.streams.get_mut(slot) {
                    stream.state.start(now, access.count, self.config.degree_blocks_max);
                }
            }
            Relation::Continued => {
                let fetch = self.proceed(now, slot, access, access.count);
                if let (Some(range), Some(stream)) = (fetch, self.streams.get(slot)) {
                    suggest(suggestions, self.suggestion(slot, stream, range));
                }
            }
            Relation::Straggler => {}
        }
        self.streams
            .get(slot)
            .map_or(Pattern::Random, |stream| stream.pattern(self.config.threshold))
    }
}

impl Prefetcher for Amp {
    fn name(&self) -> &'static str {
        "amp"
    }

    fn on_read(&mut self, now: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        self.read(now, &access, suggestions)
    }

    fn uses_second_chances(&self) -> bool {
        true
    }

    fn sequential_need_blocks(&self, now: Instant) -> u64 {
        self.streams.iter().map(|stream| stream.state.need_blocks(now)).sum()
    }

    fn on_feedback(&mut self, now: Instant, feedback: Feedback) {
        let Some(stream) = self.streams.get_mut(feedback.tag.0) else {
            return;
        };
        // Another stream may have taken the slot since.
        let ahead = stream.state.sets[0].end;
        if stream.volume != feedback.volume.0 || feedback.first < stream.start || feedback.first >= ahead {
            return;
        }
        match feedback.prefetch_outcome {
            PrefetchOutcome::Arrived { waited } => self.on_arrival(now, &feedback, waited),
            PrefetchOutcome::Aged | PrefetchOutcome::Evicted { aged: false } => {
                stream.state.shrink(feedback.first, feedback.count);
            }
            PrefetchOutcome::Evicted { aged: true } => {}
            PrefetchOutcome::Dropped => {
                // What is not coming has to be missed before the stream is fetched again.
                let end = feedback.first.saturating_add(feedback.count);
                for set in &mut stream.state.sets {
                    set.open &= !(feedback.first < set.end && set.first < end);
                }
            }
        }
    }

    forwards_to_streams!(check_degree);
}

#[cfg(test)]
#[path = "amp_tests.rs"]
mod tests;
