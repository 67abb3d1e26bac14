//! Which tracks belong to sequential runs.
//!
//! The counter (the paper's section 4, prose rule): each resident track has a count, set once per residency to one more
//! than that of the track before it, if that is resident, up to the threshold; at the threshold it is sequential. On a
//! dense random set it takes chance neighbours for runs.
//!
//! The stream table: the last track of each of the streams seen lately, least recently continued out first. An access to
//! the next track lengthens the run; residency plays no part.

use super::Detector;
use crate::key_index::KeyIndex;
use crate::list::{Links, List, NONE};
use alloc::vec::Vec;

/// A run that is sequential by the caller's word, or by the stream table.
pub(super) const SEQUENTIAL: u8 = u8::MAX;

#[derive(Debug)]
pub(super) enum Runs {
    Counter(Counter),
    Streams(Streams),
}

impl Runs {
    pub fn new(detector: Detector, blocks: u32, track_blocks: u32) -> Self {
        match detector {
            Detector::Counter { threshold_tracks } => {
                Self::Counter(Counter::new(threshold_tracks, blocks, track_blocks))
            }
            Detector::StreamTable {
                streams,
                threshold_tracks,
            } => Self::Streams(Streams::new(streams.max(1), threshold_tracks)),
        }
    }

    /// The run that a missing block of the track belongs to, for `is_sequential` and `enter`.
    pub fn observe_miss(&mut self, track: u64, told: Option<bool>) -> u8 {
        match (self, told) {
            (_, Some(true)) => SEQUENTIAL,
            (_, Some(false)) => 1,
            (Self::Counter(counter), None) => counter.count_of(track),
            (Self::Streams(streams), None) => streams.observe(track),
        }
    }

    pub fn observe_hit(&mut self, slot: u32, track: u64) {
        match self {
            Self::Counter(counter) => counter.set_if_unset(slot, track),
            Self::Streams(streams) => {
                streams.observe(track);
            }
        }
    }

    pub fn is_sequential(&self, run: u8) -> bool {
        match self {
            Self::Counter(counter) => run >= counter.threshold,
            Self::Streams(_) => run == SEQUENTIAL,
        }
    }

    pub fn active_streams(&self) -> u32 {
        match self {
            Self::Counter(_) => 0,
            Self::Streams(streams) => streams.active,
        }
    }

    /// Makes room for the slot.
    pub fn reach(&mut self, slot: u32) {
        if let Self::Counter(counter) = self {
            counter.reach(slot);
        }
    }

    pub fn enter(&mut self, slot: u32, track: u64, run: u8) {
        if let Self::Counter(counter) = self {
            counter.enter(slot, track, run);
        }
    }

    pub fn leave(&mut self, slot: u32) {
        if let Self::Counter(counter) = self {
            counter.leave(slot);
        }
    }

    pub fn mark_sequential(&mut self, slot: u32) {
        if let Self::Counter(counter) = self {
            let node = counter.node_of_slot[slot as usize];
            counter.tracks[node as usize].count = counter.threshold;
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Self::Counter(counter) => counter.bytes(),
            Self::Streams(streams) => streams.keys.capacity() * 9 + streams.links.bytes() + streams.index.bytes(),
        }
    }

    /// `blocks` are resident.
    pub fn check(&self, blocks: usize) {
        match self {
            Self::Counter(counter) => {
                let resident: u32 = counter.tracks.iter().map(|track| track.resident).sum();
                assert_eq!(resident as usize, blocks);
                assert_eq!(counter.index.len() + counter.free.len(), counter.tracks.len());
            }
            Self::Streams(streams) => {
                streams.list.check(&streams.links);
                let active = streams.runs.iter().filter(|run| **run >= streams.threshold).count();
                assert_eq!(active, streams.active as usize);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Track {
    resident: u32,
    /// Zero: not set.
    count: u8,
}

#[derive(Debug)]
pub(super) struct Counter {
    threshold: u8,
    keys: Vec<u64>,
    tracks: Vec<Track>,
    index: KeyIndex,
    free: Vec<u32>,
    node_of_slot: Vec<u32>,
}

impl Counter {
    fn new(threshold: u8, blocks: u32, track_blocks: u32) -> Self {
        // Tracks are seldom resident with a single block; the tables grow if they are.
        let tracks = (blocks / track_blocks.max(1)).max(16) as usize;
        Self {
            threshold: threshold.clamp(1, SEQUENTIAL - 1),
            keys: Vec::with_capacity(tracks),
            tracks: Vec::with_capacity(tracks),
            index: KeyIndex::with_capacity(tracks),
            free: Vec::new(),
            node_of_slot: Vec::with_capacity(blocks as usize),
        }
    }

    fn stored(&self, track: u64) -> Option<u8> {
        let node = self.index.find(&self.keys, track)?;
        Some(self.tracks[node as usize].count)
    }

    fn count_of(&self, track: u64) -> u8 {
        match self.stored(track) {
            Some(count) if count > 0 => count,
            _ => {
                let before = track.checked_sub(1).and_then(|before| self.stored(before));
                before.map_or(1, |count| (count + 1).min(self.threshold))
            }
        }
    }

    fn set_if_unset(&mut self, slot: u32, track: u64) {
        let node = self.node_of_slot[slot as usize] as usize;
        if self.tracks[node].count == 0 {
            self.tracks[node].count = self.count_of(track);
        }
    }

    fn reach(&mut self, slot: u32) {
        if slot as usize >= self.node_of_slot.len() {
            self.node_of_slot.resize(slot as usize + 1, NONE);
        }
    }

    fn enter(&mut self, slot: u32, track: u64, run: u8) {
        self.reach(slot);
        let node = self.index.find(&self.keys, track).unwrap_or_else(|| self.add(track));
        let entry = &mut self.tracks[node as usize];
        entry.resident += 1;
        if entry.count == 0 {
            entry.count = run.min(self.threshold);
        }
        self.node_of_slot[slot as usize] = node;
    }

    fn add(&mut self, track: u64) -> u32 {
        let node = self.free.pop().unwrap_or_else(|| {
            self.keys.push(0);
            self.tracks.push(Track { resident: 0, count: 0 });
            self.keys.len() as u32 - 1
        });
        self.keys[node as usize] = track;
        self.index.insert(&self.keys, node);
        node
    }

    fn leave(&mut self, slot: u32) {
        let node = core::mem::replace(&mut self.node_of_slot[slot as usize], NONE);
        let entry = &mut self.tracks[node as usize];
        entry.resident -= 1;
        if entry.resident == 0 {
            entry.count = 0;
            self.index.remove(&self.keys, node);
            self.free.push(node);
        }
    }

    fn bytes(&self) -> usize {
        self.keys.capacity() * 8
            + self.tracks.capacity() * size_of::<Track>()
            + self.index.bytes()
            + (self.free.capacity() + self.node_of_slot.capacity()) * 4
    }
}

#[derive(Debug)]
pub(super) struct Streams {
    threshold: u8,
    streams_max: u32,
    /// The track where each stream has arrived.
    keys: Vec<u64>,
    runs: Vec<u8>,
    index: KeyIndex,
    links: Links,
    list: List,
    /// Streams whose run has reached the threshold.
    active: u32,
}

impl Streams {
    fn new(streams_max: u32, threshold: u8) -> Self {
        let streams = streams_max as usize;
        Self {
            threshold: threshold.clamp(1, SEQUENTIAL - 1),
            streams_max,
            keys: Vec::with_capacity(streams),
            runs: Vec::with_capacity(streams),
            index: KeyIndex::with_capacity(streams),
            links: Links::with_capacity(streams),
            list: List::EMPTY,
            active: 0,
        }
    }

    fn observe(&mut self, track: u64) -> u8 {
        let node = match self.index.find(&self.keys, track) {
            Some(node) => node,
            None => self.advance_or_begin(track),
        };
        self.list.move_to_newest(&mut self.links, node);
        let run = self.runs[node as usize];
        if run >= self.threshold { SEQUENTIAL } else { run }
    }

    fn advance_or_begin(&mut self, track: u64) -> u32 {
        let before = track
            .checked_sub(1)
            .and_then(|before| self.index.find(&self.keys, before));
        let (node, run) = match before {
            Some(node) => {
                let run = self.runs[node as usize];
                (node, (run + 1).min(self.threshold))
            }
            None if self.list.len() < self.streams_max => {
                let node = self.keys.len() as u32;
                self.keys.push(track);
                self.runs.push(0);
                self.links.reach(node);
                self.list.push_newest(&mut self.links, node);
                self.index.insert(&self.keys, node);
                (node, 1)
            }
            None => (self.list.oldest(), 1),
        };
        if self.keys[node as usize] != track {
            self.index.remove(&self.keys, node);
            self.keys[node as usize] = track;
            self.index.insert(&self.keys, node);
        }
        self.active -= u32::from(self.runs[node as usize] >= self.threshold);
        self.active += u32::from(run >= self.threshold);
        self.runs[node as usize] = run;
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_table_follows_interleaved_streams_and_ignores_neighbours_in_time() {
        let mut streams = Streams::new(4, 3);
        for step in 0..5u64 {
            for stream in 0..3u64 {
                let run = streams.observe(stream * 1000 + step);
                assert_eq!(run == SEQUENTIAL, step >= 2, "stream {stream}, step {step}");
            }
        }
        assert_eq!(streams.active, 3);
        // A fourth and a fifth stream push the oldest out.
        streams.observe(9_000);
        streams.observe(9_100);
        assert_eq!(streams.active, 2);
        assert_eq!(streams.observe(5), 1, "stream 0 was forgotten");
    }

    #[test]
    fn the_counter_needs_residency() {
        let mut counter = Counter::new(3, 64, 1);
        for track in 0..3 {
            let run = counter.count_of(track);
            assert_eq!(run, track as u8 + 1);
            counter.enter(track as u32, track, run);
        }
        counter.leave(2);
        assert_eq!(counter.count_of(3), 1);
        assert_eq!(counter.count_of(2), 3);
    }
}
