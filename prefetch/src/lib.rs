//! Prefetch policies: which blocks to fetch before they are asked for.
//!
//! A policy is a deterministic state machine. It sees every read of a client with its outcome, and what became of what it
//! suggested; it answers with ranges worth fetching. It never sees the cache: blocks that are resident or in flight
//! already are skipped by the caller, demand always goes first, and whether a suggestion is worth its price is
//! decided by [`Admission`], which the caller consults. One policy, one file, one trait.
//!
//! Addresses are logical (volume and block), or PVBNs in the one space [`PVBN_SPACE`]; a policy does not care which,
//! as long as its caller does not mix them.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
#![warn(missing_docs, clippy::unwrap_used)]
extern crate alloc;

mod admission;
mod amp;
mod configuration;
pub mod graph;
mod hou;
mod leap;
mod likelihood;
mod linux;
mod mithril;
mod none;
mod oracle;
mod probability;
mod ramp;
mod sequential;
mod streams;
mod strides;
mod table;
#[cfg(test)]
mod testing;
mod two_way;

pub use admission::{Admission, Offer};
pub use amp::{Amp, AmpConfig, TriggerGrowth};
pub use configuration::{Addressing, Combination, ConfigError, PolicyConfig, PolicyName, ReplacementName};
pub use graph::{Graph, GraphConfig};
pub use hou::{Hou, HouConfig};
pub use leap::{Leap, LeapConfig};
pub use likelihood::Likelihood;
pub use linux::{Linux, LinuxConfig};
pub use mithril::{Mithril, MithrilConfig};
pub use none::NoPrefetch;
pub use oracle::{FutureRead, Oracle, OracleConfig};
pub use probability::{ProbabilityConfig, ProbabilityGraph};
pub use ramp::Ramp;
pub use sequential::{Sequential, SequentialConfig, Trigger};
pub use streams::{Followed, Relation, Stream, Streams};
pub use strides::Strides;
pub use two_way::TwoWay;

use alloc::vec::Vec;
use tombolo_base::{Instant, VolumeId};

/// Addresses at or above this are ignored: 256 PiB of logical space, or of data ever written. It leaves room for every
/// sum that a policy makes.
pub const BLOCKS_MAX: u64 = 1 << 46;
/// The one space of PVBN addressing: the last number that is not a file's map, which no volume has.
pub const PVBN_SPACE: VolumeId = VolumeId(u64::MAX >> 1);
/// Suggestions that one call adds at the most.
pub const SUGGESTIONS_MAX: usize = 1088;

/// Who reads: a connection or a session. Zero when the caller does not tell clients apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// What a read found, by its worst block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every block was resident.
    Hit,
    /// No block was absent, but some were still on their way.
    Partial,
    /// A fetch had to be started.
    Miss,
}

/// One read by a client, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Who reads.
    pub client: ClientId,
    /// Where, or [`PVBN_SPACE`].
    pub volume: VolumeId,
    /// The first block.
    pub first: u64,
    /// How many blocks.
    pub count: u64,
    /// What it found, by its worst block.
    pub outcome: Outcome,
    /// Blocks of this read that a prefetch brought or was bringing, and that nobody had read since.
    pub prefetched: u64,
}

impl Access {
    /// One past the last block.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    /// Whether policies look at it at all: not empty, and below [`BLOCKS_MAX`].
    pub fn is_valid(&self) -> bool {
        self.count > 0 && self.end() <= BLOCKS_MAX
    }
}

/// Whether a read continued a stream that the policy follows; SARC's two lists need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// It continued one.
    Sequential,
    /// It did not, or not for long enough.
    Random,
}

/// Which reasoning a suggestion rests on, so that the cache can treat its blocks accordingly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A stream goes on.
    Sequential,
    /// It was so before.
    History,
}

/// A policy's own note on a suggestion; the caller returns it with feedback and does not look into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag(pub u32);

/// What of a range is not meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// From the beginning of one part that is meant to that of the next.
    pub period_blocks: u64,
    /// Of each part that is meant; the range ends with one.
    pub part_blocks: u64,
}

/// A range worth fetching. `count` is the degree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// Where, or [`PVBN_SPACE`].
    pub volume: VolumeId,
    /// The first block.
    pub first: u64,
    /// How many blocks, at least one.
    pub count: u64,
    /// Which of them are not meant.
    pub gaps: Option<Gaps>,
    /// Why.
    pub class: Class,
    /// How likely it is that the range will be read soon.
    pub likelihood: Likelihood,
    /// The block in the range whose reading will make the policy suggest more; none when only a miss will. Policies
    /// watch for it themselves.
    pub trigger: Option<u64>,
    /// Comes back with the feedback.
    pub tag: Tag,
}

impl Suggestion {
    /// One past the last block.
    pub fn end(&self) -> u64 {
        self.first + self.count
    }
}

/// Appends a suggestion without what lies beyond [`BLOCKS_MAX`]; an empty one is left out.
pub(crate) fn suggest(suggestions: &mut Vec<Suggestion>, mut suggestion: Suggestion) {
    let end = suggestion.first.saturating_add(suggestion.count).min(BLOCKS_MAX);
    suggestion.count = end.saturating_sub(suggestion.first);
    if suggestion.count > 0 {
        suggestion.trigger = suggestion
            .trigger
            .filter(|block| (suggestion.first..end).contains(block));
        suggestions.push(suggestion);
    }
}

/// What became of suggested blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchOutcome {
    /// They have come.
    Arrived {
        /// A reader was waiting for the first or the last of them.
        waited: bool,
    },
    /// They came to the end of the eviction order unread and were given a second chance (AMP's `old`). Only caches
    /// that give second chances report it.
    Aged,
    /// They were evicted unread.
    Evicted {
        /// Whether it had been reported as [`PrefetchOutcome::Aged`].
        aged: bool,
    },
    /// The fetch failed or was not admitted; they are not coming.
    Dropped,
}

/// What became of a suggested range, or of a piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// As in the suggestion.
    pub volume: VolumeId,
    /// The first block of the piece.
    pub first: u64,
    /// How many blocks.
    pub count: u64,
    /// As in the suggestion.
    pub tag: Tag,
    /// What became of all of them.
    pub prefetch_outcome: PrefetchOutcome,
}

/// The caller's knowledge of the cache, asked while a policy looks for what to suggest.
pub trait Residency {
    /// Whether there is nothing to fetch: the block is resident or on its way, or nothing is stored of it.
    fn is_at_hand(&mut self, volume: VolumeId, block: u64) -> bool;
}

/// What a policy holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Streams that are followed.
    pub streams: usize,
    /// Nodes of the history.
    pub nodes: usize,
    /// Edges of the history.
    pub edges: usize,
    /// Memory held, allocated or not yet used.
    pub bytes: usize,
}

/// What every prefetch policy must do.
///
/// The caller MUST pass instants that never go back, MUST clip suggestions to the volume, and SHOULD report what became
/// of every block that it fetched on a suggestion: first use by [`Access::prefetched`], the rest by
/// [`Prefetcher::on_feedback`]. Without feedback the policies still work but no longer adapt. No method fails, and
/// any sequence of calls with any values is allowed: calls may be repeated and lost without harm beyond a worse guess.
pub trait Prefetcher: Send {
    /// The policy's name as it stands in settings and metrics.
    fn name(&self) -> &'static str;

    /// Learns from one read and appends at most [`SUGGESTIONS_MAX`] ranges, the most likely first. Reads must come in
    /// the order of their arrival; the caller passes each once, when its outcome is known.
    fn on_read(&mut self, now: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern;

    /// Whether [`Self::on_read_of`] asks for residency, so that callers can skip the preparations.
    fn uses_residency(&self) -> bool {
        false
    }

    /// As [`Self::on_read`], with what the caller knows of the cache.
    fn on_read_of(
        &mut self,
        now: Instant,
        access: Access,
        _residency: &mut dyn Residency,
        suggestions: &mut Vec<Suggestion>,
    ) -> Pattern {
        self.on_read(now, access, suggestions)
    }

    /// Whether the patterns that [`Self::on_read`] returns come of knowing streams. Where not, a cache that needs them
    /// had better look for runs itself.
    fn knows_streams(&self) -> bool {
        true
    }

    /// Whether sequential blocks that come to the end of the eviction order unread are to be given a second chance,
    /// and reported as [`PrefetchOutcome::Aged`].
    fn uses_second_chances(&self) -> bool {
        false
    }

    /// How many sequential blocks a cache has to keep so that prefetched blocks are not evicted before their stream
    /// reads them. Takes time in proportion to the streams; worth asking about once a second.
    fn sequential_need_blocks(&self, _now: Instant) -> u64 {
        0
    }

    /// Learns what became of suggested blocks.
    fn on_feedback(&mut self, _now: Instant, _feedback: Feedback) {}

    /// Upkeep in bounded steps; worth calling about once a second. Nothing depends on it but memory.
    fn on_tick(&mut self, _now: Instant) {}

    /// The volume is gone, and its identifier will not come back.
    fn forget_volume(&mut self, _volume: VolumeId) {}

    /// The cache has changed its size.
    fn resize(&mut self, _cache_blocks: u64) {}

    /// Takes constant time.
    fn statistics(&self) -> Statistics;

    /// The history that should survive a restart, if the policy has one.
    fn history(&self) -> Option<&graph::History> {
        None
    }

    /// Panics where the state contradicts itself; for tests and simulation.
    fn check_invariants(&self) {}
}
