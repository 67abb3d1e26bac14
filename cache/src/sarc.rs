//! SARC: sequential prefetching in an adaptive replacement cache. About 18 bytes a slot, with the counter detector 27.
//!
//! Source: Gill and Modha, USENIX ATC'05. Two LRU lists, SEQ and RANDOM; the target length of SEQ moves towards the list
//! whose bottom is worth more. A hit in RANDOM's bottom closes an interval; `2 * sequential misses * bottom / |SEQ|` in
//! it is the ratio of the two marginal utilities, and one is the balance. The target moves by half the adaptation per
//! evicted block. The eviction rule's text is lost in the paper's public form; this is the one that independent
//! descriptions agree on.
//!
//! Here the unit of the lists is the block, that of detection and of the utilities the track: several blocks of one
//! track in a row count as one hit or miss, as they would if tracks were cached whole.
//!
//! The degree and the triggers of SARC's prefetch are the prefetcher's business. It tells of groups by inserts of cause
//! `Prefetch` with `sequential: Some(true)`, and of blocks of a group that are resident already by `expect`.
//!
//! Additions: a detector by stream table (see `detector`) or by the caller's word; a floor under SEQ, for streams that
//! would otherwise lose what was prefetched for them; the target never exceeds the blocks inside.

mod detector;

use crate::list::{Links, List, Looks};
use crate::{Access, Advice, Arrival, Capacity, Cause, Expectation, Incoming, MissHint, Replacement, Residents};
use alloc::vec::Vec;
use detector::{Runs, SEQUENTIAL};
use tombolo_base::Lcbn;

/// How sequential accesses are recognised when the caller does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detector {
    /// The paper's: a track continues the run of the track before it, if that is resident.
    Counter {
        /// Tracks that make a run.
        threshold_tracks: u8,
    },
    /// A bounded table of the tracks where runs have arrived.
    StreamTable {
        /// How many runs are followed at once.
        streams: u32,
        /// Tracks that make a run.
        threshold_tracks: u8,
    },
}

/// SARC's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SarcConfig {
    /// Blocks in a track.
    pub track_blocks: u32,
    /// The bottom of a list, in permille of the cache.
    pub bottom_permille: u32,
    /// Above this ratio a hit in SEQ's bottom enlarges SEQ too.
    pub large_ratio: f64,
    /// Which accesses are sequential.
    pub detector: Detector,
    /// SEQ keeps this many blocks for each active stream in the stream table.
    pub floor_blocks_per_stream: u32,
}

impl Default for SarcConfig {
    /// The paper's figures where it gives them; 2 % is from memory of its authors' other texts.
    fn default() -> Self {
        Self {
            track_blocks: 8,
            bottom_permille: 20,
            large_ratio: 20.0,
            detector: Detector::Counter { threshold_tracks: 3 },
            floor_blocks_per_stream: 0,
        }
    }
}

impl SarcConfig {
    /// The detector that dense random sets do not fool.
    pub fn with_stream_table() -> Self {
        Self {
            detector: Detector::StreamTable {
                streams: 256,
                threshold_tracks: 5,
            },
            ..Self::default()
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_sequential: bool,
    is_unread: bool,
}

/// SARC (Gill and Modha, USENIX ATC'05): a list of sequential and one of random blocks, of which the more useful one
/// grows.
#[derive(Debug)]
pub struct Sarc {
    config: SarcConfig,
    capacity: u32,
    states: Vec<State>,
    /// When each slot last moved to the newest end of its list.
    stamps: Vec<u64>,
    clock: u64,
    links: Links,
    sequential: List,
    random: List,
    runs: Runs,
    /// Sequential misses since the last hit in RANDOM's bottom.
    sequential_misses: u64,
    adaptation: f64,
    /// Target length of SEQ; zero: not set yet.
    desired: f64,
    floor_blocks: u32,
    last_track: Option<u64>,
}

impl Sarc {
    /// Empty; takes memory for `capacity.blocks` at once.
    pub fn new(capacity: Capacity, config: SarcConfig) -> Self {
        let blocks = capacity.blocks as usize;
        Self {
            config,
            capacity: capacity.blocks,
            states: Vec::with_capacity(blocks),
            stamps: Vec::with_capacity(blocks),
            clock: 0,
            links: Links::with_capacity(blocks),
            sequential: List::EMPTY,
            random: List::EMPTY,
            runs: Runs::new(config.detector, capacity.blocks, config.track_blocks),
            sequential_misses: 0,
            adaptation: 0.0,
            desired: 0.0,
            floor_blocks: 0,
            last_track: None,
        }
    }

    /// Blocks in SEQ, and its target.
    pub fn sequential_blocks(&self) -> (u32, f64) {
        (self.sequential.len(), self.desired)
    }

    fn track(&self, access: &Access) -> u64 {
        access.address / u64::from(self.config.track_blocks)
    }

    /// False while accesses stay in one track.
    fn is_new_visit(&mut self, track: u64) -> bool {
        self.last_track.replace(track) != Some(track)
    }

    fn bottom_blocks(&self) -> u32 {
        let blocks = u64::from(self.capacity) * u64::from(self.config.bottom_permille) / 1000;
        (blocks as u32).max(1)
    }

    fn floor(&self) -> u32 {
        let streams = self.runs.active_streams();
        self.floor_blocks
            .max(streams.saturating_mul(self.config.floor_blocks_per_stream))
    }

    /// Whether the slot lies in the last part of its list, judged by time: constant time, and near enough.
    fn is_in_bottom(&self, list: &List, slot: u32) -> bool {
        let stamp = |slot: u32| u128::from(self.stamps[slot as usize]);
        let (oldest, newest) = (stamp(list.oldest()), stamp(list.newest()));
        // Slots sent round by `Again` carry old stamps at the newest end, so differences may be below zero.
        let (age, span) = (stamp(slot).saturating_sub(oldest), newest.saturating_sub(oldest));
        age * u128::from(list.len()) <= u128::from(self.bottom_blocks()) * span
    }

    fn adapt_to_hit(&mut self, slot: u32) {
        let scaled = 2 * self.sequential_misses * u64::from(self.bottom_blocks());
        let ratio = scaled as f64 / f64::from(self.sequential.len().max(1));
        if self.states[slot as usize].is_sequential {
            if ratio > self.config.large_ratio && self.is_in_bottom(&self.sequential, slot) {
                self.adaptation = 1.0;
            }
        } else if self.is_in_bottom(&self.random, slot) {
            self.adaptation = (ratio - 1.0).clamp(-1.0, 1.0);
            self.sequential_misses = 0;
        }
    }

    fn list_of(&mut self, slot: u32) -> (&mut List, &mut Links) {
        if self.states[slot as usize].is_sequential {
            (&mut self.sequential, &mut self.links)
        } else {
            (&mut self.random, &mut self.links)
        }
    }

    fn push_newest(&mut self, slot: u32) {
        self.clock += 1;
        self.stamps[slot as usize] = self.clock;
        let (list, links) = self.list_of(slot);
        list.push_newest(links, slot);
    }

    fn unlink(&mut self, slot: u32) {
        let (list, links) = self.list_of(slot);
        list.remove(links, slot);
    }

    fn prefers_sequential(&self) -> bool {
        let (sequential, random) = (self.sequential.len(), self.random.len());
        let bottom = self.bottom_blocks();
        if sequential == 0 || random == 0 {
            sequential > 0
        } else if sequential <= self.floor() {
            false
        } else if sequential < bottom || random < bottom {
            let stamp = |list: &List| self.stamps[list.oldest() as usize];
            stamp(&self.sequential) < stamp(&self.random)
        } else {
            f64::from(sequential) > self.desired
        }
    }

    fn adapt_to_eviction(&mut self) {
        let blocks = f64::from(self.sequential.len() + self.random.len() + 1);
        self.desired = if self.desired > 0.0 {
            (self.desired + self.adaptation / 2.0).clamp(0.0, blocks)
        } else {
            f64::from(self.sequential.len())
        };
    }
}

impl Replacement for Sarc {
    fn name(&self) -> &'static str {
        match self.config.detector {
            Detector::Counter { .. } => "sarc",
            Detector::StreamTable { .. } => "sarc-streams",
        }
    }

    fn miss(&mut self, access: &Access) -> MissHint {
        let track = self.track(access);
        let run = self.runs.observe_miss(track, access.sequential);
        if self.is_new_visit(track) && self.runs.is_sequential(run) {
            self.sequential_misses += 1;
        }
        MissHint(run)
    }

    fn reach(&mut self, slot: Lcbn) {
        self.links.reach(slot.0);
        if slot.0 as usize >= self.states.len() {
            self.states.resize(slot.0 as usize + 1, State::default());
            self.stamps.resize(slot.0 as usize + 1, 0);
        }
        self.runs.reach(slot.0);
    }

    fn insert(&mut self, slot: Lcbn, arrival: &Arrival) {
        let run = match arrival.cause {
            Cause::Demand => arrival.miss_hint.0,
            Cause::Prefetch if arrival.access.sequential == Some(true) => SEQUENTIAL,
            Cause::Prefetch | Cause::Write => 0,
        };
        let state = State {
            is_sequential: self.runs.is_sequential(run),
            is_unread: arrival.cause == Cause::Prefetch,
        };
        self.reach(slot);
        self.states[slot.0 as usize] = state;
        self.runs.enter(slot.0, self.track(&arrival.access), run);
        self.push_newest(slot.0);
    }

    fn touch(&mut self, slot: Lcbn, access: &Access) {
        let track = self.track(access);
        if self.is_new_visit(track) {
            self.adapt_to_hit(slot.0);
        }
        self.states[slot.0 as usize].is_unread = false;
        self.unlink(slot.0);
        self.push_newest(slot.0);
        self.runs.observe_hit(slot.0, track);
    }

    fn uses_expectations(&self) -> bool {
        true
    }

    fn expect(&mut self, slot: Lcbn, _access: &Access, expectation: Expectation) {
        let state = self.states[slot.0 as usize];
        if expectation == Expectation::RestOfGroup && !(state.is_sequential && state.is_unread) {
            return;
        }
        self.unlink(slot.0);
        self.states[slot.0 as usize].is_sequential = true;
        self.push_newest(slot.0);
        self.runs.mark_sequential(slot.0);
    }

    fn remove(&mut self, slot: Lcbn) {
        self.unlink(slot.0);
        self.runs.leave(slot.0);
    }

    fn victim(&mut self, _incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        let mut looks = Looks::new();
        let sequential_first = self.prefers_sequential();
        let links = &mut self.links;
        let slot = if sequential_first {
            self.sequential
                .find_victim(links, residents, &mut looks)
                .or_else(|| self.random.find_victim(links, residents, &mut looks))
        } else {
            self.random
                .find_victim(links, residents, &mut looks)
                .or_else(|| self.sequential.find_victim(links, residents, &mut looks))
        };
        let slot = Lcbn(slot?);
        self.remove(slot);
        self.adapt_to_eviction();
        Some(slot)
    }

    fn resize(&mut self, capacity: Capacity) {
        self.desired *= f64::from(capacity.blocks) / f64::from(self.capacity.max(1));
        self.capacity = capacity.blocks;
    }

    fn advise(&mut self, advice: Advice) {
        if let Advice::SequentialFloorBlocks(blocks) = advice {
            self.floor_blocks = blocks;
        }
    }

    fn len(&self) -> usize {
        (self.sequential.len() + self.random.len()) as usize
    }

    fn metadata_bytes(&self) -> usize {
        self.links.bytes()
            + self.states.capacity() * size_of::<State>()
            + self.stamps.capacity() * 8
            + self.runs.bytes()
    }

    fn check_invariants(&self) {
        for (list, is_sequential) in [(&self.sequential, true), (&self.random, false)] {
            list.check(&self.links);
            let fits = |slot: u32| self.states[slot as usize].is_sequential == is_sequential;
            assert!(list.iter(&self.links).all(fits));
        }
        self.runs.check(self.len());
        assert!(self.desired >= 0.0 && self.adaptation.abs() <= 1.0);
    }
}
