//! GRAPH: history-based prefetch for random reads, AMP for streams (Tombolo, MSST'16, section 4.2.3).
//!
//! A read that continues a known stream is AMP's. Any other read enters the history graph and expands it from where the
//! read ended; the candidates are fetched, rounded to tracks. So the heads of streams become nodes, and jumps
//! between streams are foreseen.
//!
//! *Graph-aware AMP*: each node has a degree p (blocks that an expansion from it may fetch) and a trigger distance g.
//! Reading the last of what was fetched raises p. When a reader waits for the first block of a fetch as it arrives, g
//! rises. A block that is evicted unread changes nothing yet: it goes into a ghost list with its source, and only if it is read
//! from there, so that the prediction was right but too early, p falls. Wrong predictions leave p alone.
//!
//! The paper gives intent, not mechanics, for g: since every random read expands the graph anyway, g only matters for
//! triggers that a stream reads, and with [`Expand::AtTriggers`], where hits on what the graph has fetched expand
//! nothing but at triggers. The thresholds, which the paper does not give, are ours: a miss may fetch less likely nodes than a
//! hit, because its reader shows that the working set is moving.
//!
//! While nothing is missed and nothing that was fetched ahead is used, nothing is recorded or expanded: a working set that the
//! cache holds is known from when it was missed, and does not pay for more.
//!
//! Ghosts, triggers and ends are kept by track in tables that grow with the cache. Of the paper's list of recently read blocks one
//! half is the cache's knowledge: [`Access::prefetched`] and [`PrefetchOutcome`] say what was read since it was fetched. The
//! other half, that what was read and evicted lately is not fetched again at once, is [`GraphConfig::skips_recently_read`].

mod codec;
mod cost;
mod expansion;
mod export;
mod history;
mod memo;
mod places;
mod slab;
mod volumes;

pub use codec::{HEADER_BYTES, Restorer, VERSION};
pub use cost::Budget;
pub use expansion::{Candidate, Expansion, Limits};
pub use export::Successor;
pub use history::{EDGE_BYTES, History, HistoryConfig, NODE_BYTES, NodeId, OUT_DEGREE_MAX, READ_BLOCKS_MAX, Range};

use crate::{
    Access, Amp, AmpConfig, Class, ClientId, Feedback, Likelihood, Outcome, Pattern, PrefetchOutcome, Prefetcher,
    Residency, Statistics, Suggestion, Tag, suggest,
    table::{Address, Table},
};
use alloc::vec::Vec;
use cost::{Cost, NothingAtHand, RecentlyRead};
use memo::Memo;
use tombolo_base::{Instant, VolumeId};

/// Tags of this policy have it, those of AMP do not.
pub(crate) const HISTORY_TAG: u32 = 1 << 31;
/// Tracks of one read or one report that are looked at.
const TRACKS_MAX: u64 = 64;
/// The largest bound on candidates: one for each block of the largest degree that is usual.
pub const CANDIDATES_MAX: usize = 1024;
/// The rest is for AMP.
const _: () = assert!(CANDIDATES_MAX + 64 <= crate::SUGGESTIONS_MAX);
/// Of what was evicted unread, the latest quarter of a cache is remembered; of lists, a sixteenth.
const GHOSTS_DIVISOR: u64 = 4;
const LISTS_DIVISOR: u64 = 16;
/// After so many reads in a row that found all in the cache, none of it fetched ahead, the graph rests: there is nothing to
/// gain until a read waits again.
const QUIET_READS: u32 = 1024;
/// Slots swept at each read, and at each tick: a second apart, that is all of a million within five hours, where edges
/// are remembered for days.
const SWEEP_PER_READ: usize = 2;
const SWEEP_PER_TICK: usize = 64;

/// Which reads enter the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Populate {
    /// Those that continue no stream.
    Random,
    /// The paper's naive variant, for comparison.
    Every,
}

/// What expands the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expand {
    /// Whether it hit or missed.
    EveryRead,
    /// Hits on blocks that the graph has fetched do only at triggers.
    AtTriggers,
}

/// Whose previous read counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The same client's.
    Client,
    /// Anybody's, as in the paper.
    Global,
}

/// Where a cache keeps what the graph has brought until it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// Where its policy keeps what was just used.
    Newest,
    /// On probation, apart from what was read.
    Probation,
}

/// GRAPH's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphConfig {
    /// Bound on the history; expansions and tables take some MiB more.
    pub memory_bytes_max: u64,
    /// Counts are forgotten after one to two of these.
    pub count_window_micros: u64,
    /// How long candidates are remembered; zero: not at all.
    pub memo_micros: u64,
    /// Candidate lists that are remembered.
    pub memo_entries: usize,
    /// The least likelihood that is fetched after a miss.
    pub threshold_miss_permille: u32,
    /// The least likelihood that is fetched after a hit.
    pub threshold_hit_permille: u32,
    /// Fetches are rounded to multiples of this: a power of two up to one object.
    pub track_blocks: u64,
    /// The degree of a new node, in blocks.
    pub degree_initial: u16,
    /// No node's degree exceeds it.
    pub degree_max: u16,
    /// Candidates of one expansion at the most: 1 to [`CANDIDATES_MAX`].
    pub candidates_max: usize,
    /// What a degree is spent on.
    pub budget: Budget,
    /// Candidates that were read lately and have been evicted since are passed over, if the caller can be asked.
    pub skips_recently_read: bool,
    /// For whoever builds the cache; this policy does not know it.
    pub insertion: Insertion,
    /// Which reads become nodes.
    pub populate: Populate,
    /// Which reads look for candidates.
    pub expand: Expand,
    /// Whose reads follow each other.
    pub scope: Scope,
    /// Clients whose previous read is remembered.
    pub clients_max: usize,
    /// The prefetcher of streams.
    pub amp: AmpConfig,
}

impl Default for GraphConfig {
    fn default() -> Self {
        Self {
            memory_bytes_max: 256 << 20,
            count_window_micros: 302_400_000_000,
            memo_micros: 60_000_000,
            memo_entries: 1 << 14,
            threshold_miss_permille: 700,
            threshold_hit_permille: 850,
            track_blocks: 16,
            degree_initial: 64,
            degree_max: 1024,
            candidates_max: 32,
            budget: Budget::Every,
            skips_recently_read: false,
            insertion: Insertion::Newest,
            populate: Populate::Random,
            expand: Expand::EveryRead,
            scope: Scope::Client,
            clients_max: 1024,
            amp: AmpConfig {
                threshold: 3,
                ..AmpConfig::default()
            },
        }
    }
}

impl GraphConfig {
    /// The bounds of the history that these settings allow.
    pub fn history(&self) -> HistoryConfig {
        let initial = self.degree_initial.clamp(1, self.degree_max.max(1));
        HistoryConfig::within(self.memory_bytes_max, self.count_window_micros, initial)
    }

    /// No client has read anything yet.
    fn previous_reads(&self) -> Table<Address> {
        Table::new(self.clients_max.clamp(1, 1 << 20))
    }

    /// An empty table for the tracks that so many blocks are.
    fn tracks_of<V: Copy + Default>(&self, blocks: u64) -> Table<V> {
        Table::bounded(blocks / self.track_blocks)
    }

    pub(crate) fn validate(&self, check: &mut dyn FnMut(&'static str, u64, bool, (&'static str, &'static str))) {
        let memory = (
            "at least 8 MiB",
            "less would forget a read before it is followed by another",
        );
        check(
            "memory_bytes_max",
            self.memory_bytes_max,
            self.memory_bytes_max >= 8 << 20,
            memory,
        );
        let track = ("a power of two up to 64", "tracks must not cross objects");
        let allowed = self.track_blocks.is_power_of_two() && self.track_blocks <= 64;
        check("track_blocks", self.track_blocks, allowed, track);
        let thresholds = (
            "1 to 1000",
            "they are thousandths, and zero would fetch everything reachable",
        );
        for (field, value) in [
            ("threshold_miss_permille", self.threshold_miss_permille),
            ("threshold_hit_permille", self.threshold_hit_permille),
        ] {
            check(field, value.into(), (1..=1000).contains(&value), thresholds);
        }
        let degree = (
            "1 to degree_max",
            "a node fetches at least one block and at most degree_max",
        );
        let initial = self.degree_initial;
        check(
            "degree_initial",
            initial.into(),
            (1..=self.degree_max).contains(&initial),
            degree,
        );
        let candidates = (
            "1 to 1024",
            "each may become a suggestion, and one read may add no more than that",
        );
        let most = self.candidates_max;
        check(
            "candidates_max",
            most as u64,
            (1..=CANDIDATES_MAX).contains(&most),
            candidates,
        );
        let day = 86_400_000_000;
        let window = (
            "an hour to 18446744073709551615",
            "shorter windows would forget before patterns repeat",
        );
        check(
            "count_window_micros",
            self.count_window_micros,
            self.count_window_micros >= day / 24,
            window,
        );
    }
}

/// GRAPH (Tombolo, MSST'16, section 4.2.3): AMP for streams, and a history graph for random reads.
#[derive(Debug)]
pub struct Graph {
    config: GraphConfig,
    amp: Amp,
    history: History,
    memo: Memo,
    expansion: Expansion,
    candidates: Vec<Candidate>,
    /// The last block of each client's last read in the graph.
    previous: Table<Address>,
    /// Tracks evicted unread, with the nodes that had them fetched.
    ghosts: Table<u32>,
    /// Tracks with the last block of a list, with their sources.
    ends: Table<u32>,
    /// Tracks whose reading expands the graph.
    triggers: Table<u64>,
    recently_read: Option<RecentlyRead>,
    /// Reads since one waited or used what was fetched ahead.
    quiet_reads: u32,
}

impl Graph {
    /// Knows nothing yet; [`PolicyConfig::build`](crate::PolicyConfig::build) is the same for any policy.
    pub fn new(config: GraphConfig) -> Self {
        let history = History::new(config.history());
        Self::with_history(config, history)
    }

    /// With the history of an earlier life.
    pub fn with_history(config: GraphConfig, history: History) -> Self {
        let config = GraphConfig {
            track_blocks: config.track_blocks.clamp(1, 64).next_power_of_two(),
            degree_max: config.degree_max.max(1),
            candidates_max: config.candidates_max.clamp(1, CANDIDATES_MAX),
            ..config
        };
        Self {
            amp: Amp::new(config.amp),
            memo: Memo::new(config.memo_entries, config.memo_micros),
            expansion: Expansion::default(),
            candidates: Vec::new(),
            previous: config.previous_reads(),
            ghosts: config.tracks_of(0),
            ends: config.tracks_of(0),
            triggers: config.tracks_of(0),
            recently_read: config.skips_recently_read.then(|| RecentlyRead::new(0)),
            quiet_reads: 0,
            history,
            config,
        }
    }

    /// The tracks that a range touches, as many as are looked at.
    fn tracks(&self, volume: VolumeId, first: u64, count: u64) -> impl Iterator<Item = Address> + use<> {
        let track = self.config.track_blocks;
        let last = first.saturating_add(count.saturating_sub(1)) / track;
        let tracks = first / track..=last.min((first / track).saturating_add(TRACKS_MAX - 1));
        tracks.map(move |track| Address::new(volume, track))
    }

    /// What a read tells about earlier suggestions; returns a trigger that it has reached.
    fn learn_from(&mut self, access: &Access) -> Option<u64> {
        if self.ghosts.is_empty() && self.ends.is_empty() && self.triggers.is_empty() {
            return None;
        }
        let mut reached = None;
        for track in self.tracks(access.volume, access.first, access.count) {
            if let Some(source) = self.ghosts.remove(track) {
                self.change_degree(source, |p, g| (p.saturating_sub(1), g));
            }
            if let Some(source) = self.ends.remove(track) {
                let blocks = access.count.min(1 << 12) as u16;
                self.change_degree(source, |p, g| (p.saturating_add(blocks), g));
            }
            reached = self.triggers.remove(track).or(reached);
        }
        reached
    }

    /// Whether this read comes after many that gave no reason to look ahead, and gives none itself.
    fn rests(&mut self, access: &Access) -> bool {
        let was_at_rest = self.quiet_reads >= QUIET_READS;
        self.quiet_reads = match access.outcome {
            Outcome::Hit if access.prefetched == 0 => self.quiet_reads.saturating_add(1),
            _ => 0,
        };
        let is_at_rest = self.quiet_reads >= QUIET_READS;
        if was_at_rest && !is_at_rest {
            // What was read before the rest is not what is read before this.
            self.previous = self.config.previous_reads();
        }
        is_at_rest
    }

    fn change_degree(&mut self, source: u32, change: impl Fn(u16, u16) -> (u16, u16)) {
        if let Some((p, g)) = self.history.degree(NodeId(source)) {
            let (p, g) = change(p, g);
            let p = p.clamp(1, self.config.degree_max);
            self.history.set_degree(NodeId(source), p, g.min(p - 1));
        }
    }

    /// Enters a read into the graph; returns its last node.
    fn record(&mut self, now: Instant, access: &Access) -> Option<NodeId> {
        let client = match self.config.scope {
            Scope::Client => access.client,
            Scope::Global => ClientId(0),
        };
        let key = Address {
            volume: 0,
            block: u64::from(client.0),
        };
        let previous = self.previous.get(key).map(|last| (VolumeId(last.volume), last.block));
        let range = Range {
            volume: access.volume,
            first: access.first,
            count: access.count,
        };
        let node = self.history.record(now, previous, range)?;
        let last = self.history.range(node);
        self.previous
            .insert(key, Address::new(last.volume, last.first + last.count - 1));
        Some(node)
    }

    /// Fills `self.candidates` from a node, remembered or anew.
    fn expand(&mut self, now: Instant, source: NodeId, p: u16, residency: &mut dyn Residency) {
        self.candidates.clear();
        let range = self.history.range(source);
        if self.memo.get(now, range, u64::from(p), &mut self.candidates) {
            return;
        }
        // The lower threshold, so that the list serves hits and misses.
        let permille = self
            .config
            .threshold_miss_permille
            .min(self.config.threshold_hit_permille);
        let limits = Limits {
            threshold: Likelihood::from_permille(permille),
            blocks_max: u64::from(p),
            candidates_max: self.config.candidates_max,
        };
        let mut cost = Cost {
            budget: self.config.budget,
            recently_read: self.recently_read.as_ref(),
            residency,
        };
        let blocks_of = |range| cost.of(range).unwrap_or(0);
        self.expansion
            .run(&self.history, source, now, limits, blocks_of, &mut self.candidates);
        self.memo.put(now, range, u64::from(p), &self.candidates);
    }

    /// Leaves of `self.candidates` what is to be fetched from a node of this degree.
    fn choose(&mut self, p: u16, outcome: Outcome, residency: &mut dyn Residency) {
        let threshold = Likelihood::from_permille(match outcome {
            Outcome::Hit => self.config.threshold_hit_permille,
            Outcome::Partial | Outcome::Miss => self.config.threshold_miss_permille,
        });
        let mut cost = Cost {
            budget: self.config.budget,
            recently_read: self.recently_read.as_ref(),
            residency,
        };
        let mut left = u64::from(p);
        self.candidates.retain_mut(|candidate| {
            if left == 0 || candidate.likelihood < threshold {
                return false;
            }
            let Some(blocks) = cost.of(candidate.range) else {
                return false;
            };
            if blocks > left {
                candidate.range.count = left;
            }
            left -= blocks.min(left);
            true
        });
    }

    fn suggest_from(
        &mut self,
        now: Instant,
        source: NodeId,
        access: &Access,
        residency: &mut dyn Residency,
        suggestions: &mut Vec<Suggestion>,
    ) {
        let Some((p, g)) = self.history.degree(source) else {
            return;
        };
        self.expand(now, source, p, residency);
        self.choose(p, access.outcome, residency);
        let blocks: u64 = self.candidates.iter().map(|candidate| candidate.range.count).sum();
        if blocks == 0 {
            return;
        }
        let trigger_at = (blocks - 1).saturating_sub(u64::from(g));
        let (made, mut passed) = (suggestions.len(), 0);
        for at in 0..self.candidates.len() {
            let Candidate { range, likelihood } = self.candidates[at];
            let trigger = (passed..passed + range.count)
                .contains(&trigger_at)
                .then(|| range.first + trigger_at - passed);
            passed += range.count;
            if let Some(block) = trigger {
                let track = Address::new(range.volume, block / self.config.track_blocks);
                self.triggers.insert(track, block);
            }
            if passed == blocks {
                let track = Address::new(range.volume, (range.first + range.count - 1) / self.config.track_blocks);
                self.ends.insert(track, source.0);
            }
            let tag = Tag(HISTORY_TAG | source.0);
            self.suggest_tracks(range, likelihood, trigger, tag, access, made, suggestions);
        }
    }

    /// Suggests the tracks of a range that this read has not touched or suggested already.
    #[expect(
        clippy::too_many_arguments,
        reason = "one suggestion and its surroundings, used once"
    )]
    fn suggest_tracks(
        &self,
        range: Range,
        likelihood: Likelihood,
        trigger: Option<u64>,
        tag: Tag,
        access: &Access,
        made: usize,
        suggestions: &mut Vec<Suggestion>,
    ) {
        let track = self.config.track_blocks;
        let mut first = range.first - range.first % track;
        let end = (range.first + range.count).next_multiple_of(track);
        // What the read itself fetches, and what touches an earlier suggestion.
        if range.volume == access.volume && first < access.end() && access.first <= first {
            first = access.end().min(end);
        }
        for earlier in &suggestions[made..] {
            if earlier.volume == range.volume && earlier.first <= first && first < earlier.end() {
                first = earlier.end().min(end);
            }
        }
        let suggestion = Suggestion {
            volume: range.volume,
            first,
            count: end - first,
            gaps: None,
            class: Class::History,
            likelihood,
            trigger,
            tag,
        };
        suggest(suggestions, suggestion);
    }

    fn read(
        &mut self,
        now: Instant,
        access: &Access,
        residency: &mut dyn Residency,
        suggestions: &mut Vec<Suggestion>,
    ) -> Pattern {
        if !access.is_valid() {
            return Pattern::Random;
        }
        let pattern = self.amp.read(now, access, suggestions);
        let trigger = self.learn_from(access);
        if let Some(recently_read) = &mut self.recently_read {
            recently_read.note(access);
        }
        if self.rests(access) {
            return pattern;
        }
        self.history.sweep(now, SWEEP_PER_READ);
        let recorded = (pattern == Pattern::Random || self.config.populate == Populate::Every)
            .then(|| self.record(now, access))
            .flatten();
        let fetched_ahead = access.outcome == Outcome::Hit && access.prefetched > 0;
        let source = match (pattern, self.config.expand) {
            (Pattern::Random, Expand::EveryRead) => recorded,
            (Pattern::Random, Expand::AtTriggers) if !fetched_ahead || trigger.is_some() => recorded,
            (Pattern::Random, Expand::AtTriggers) => None,
            (Pattern::Sequential, _) => trigger.and_then(|block| self.history.find(access.volume, block)),
        };
        if let Some(source) = source {
            self.suggest_from(now, source, access, residency, suggestions);
        }
        pattern
    }
}

impl Prefetcher for Graph {
    fn name(&self) -> &'static str {
        "graph"
    }

    fn on_read(&mut self, now: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        self.read(now, &access, &mut NothingAtHand, suggestions)
    }

    fn uses_residency(&self) -> bool {
        self.config.budget == Budget::Absent || self.config.skips_recently_read
    }

    fn on_read_of(
        &mut self,
        now: Instant,
        access: Access,
        residency: &mut dyn Residency,
        suggestions: &mut Vec<Suggestion>,
    ) -> Pattern {
        self.read(now, &access, residency, suggestions)
    }

    fn uses_second_chances(&self) -> bool {
        true
    }

    fn sequential_need_blocks(&self, now: Instant) -> u64 {
        self.amp.sequential_need_blocks(now)
    }

    fn on_feedback(&mut self, now: Instant, feedback: Feedback) {
        if feedback.tag.0 & HISTORY_TAG == 0 {
            return self.amp.on_feedback(now, feedback);
        }
        let source = feedback.tag.0 & !HISTORY_TAG;
        match feedback.prefetch_outcome {
            PrefetchOutcome::Arrived { waited: true } => {
                let blocks = feedback.count.min(1 << 12) as u16;
                self.change_degree(source, |p, g| (p, g.saturating_add(blocks)));
            }
            PrefetchOutcome::Arrived { waited: false } => {}
            PrefetchOutcome::Aged | PrefetchOutcome::Evicted { .. } | PrefetchOutcome::Dropped => {
                let evicted = matches!(feedback.prefetch_outcome, PrefetchOutcome::Evicted { .. });
                for track in self.tracks(feedback.volume, feedback.first, feedback.count) {
                    self.ends.remove(track);
                    if evicted {
                        self.ghosts.insert(track, source);
                    }
                }
            }
        }
    }

    fn on_tick(&mut self, now: Instant) {
        self.history.sweep(now, SWEEP_PER_TICK);
    }

    fn forget_volume(&mut self, volume: VolumeId) {
        self.amp.forget_volume(volume);
        self.history.forget_volume(volume);
    }

    fn resize(&mut self, cache_blocks: u64) {
        self.ghosts = self.config.tracks_of(cache_blocks / GHOSTS_DIVISOR);
        self.ends = self.config.tracks_of(cache_blocks / LISTS_DIVISOR);
        self.triggers = self.config.tracks_of(cache_blocks / LISTS_DIVISOR);
        self.recently_read = self.config.skips_recently_read.then(|| RecentlyRead::new(cache_blocks));
    }

    fn statistics(&self) -> Statistics {
        let amp = self.amp.statistics();
        let recently_read = self.recently_read.as_ref();
        let tables = self.previous.bytes()
            + self.ghosts.bytes()
            + self.ends.bytes()
            + self.triggers.bytes()
            + recently_read.map_or(0, RecentlyRead::bytes);
        Statistics {
            streams: amp.streams,
            nodes: self.history.node_count(),
            edges: self.history.edge_count(),
            bytes: amp.bytes + self.history.bytes() + self.memo.bytes() + self.expansion.bytes() + tables,
        }
    }

    fn history(&self) -> Option<&History> {
        Some(&self.history)
    }

    fn check_invariants(&self) {
        self.amp.check_invariants();
        self.history.check_invariants();
    }
}

#[cfg(test)]
#[path = "graph/graph_tests.rs"]
mod tests;
