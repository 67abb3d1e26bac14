//! LRU, SIEVE, W-TinyLFU, MIN: policies without ghosts.

use crate::driver::{Model, agree, traces};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tombolo_cache::{Capacity, Lru, Min, Sieve, WTinyLfu};

/// Oldest first.
pub struct LruModel {
    pub capacity: usize,
    pub keys: Vec<u64>,
}

impl Model for LruModel {
    fn access(&mut self, key: u64) -> bool {
        let found = self.keys.iter().position(|held| *held == key);
        match found {
            Some(at) => {
                self.keys.remove(at);
            }
            None if self.keys.len() == self.capacity => {
                self.keys.remove(0);
            }
            None => {}
        }
        self.keys.push(key);
        found.is_some()
    }
}

/// Oldest first, with visited marks; the hand is an index.
struct SieveModel {
    capacity: usize,
    keys: Vec<(u64, bool)>,
    hand: usize,
}

impl Model for SieveModel {
    fn access(&mut self, key: u64) -> bool {
        if let Some(entry) = self.keys.iter_mut().find(|entry| entry.0 == key) {
            entry.1 = true;
            return true;
        }
        if self.keys.len() == self.capacity {
            loop {
                if self.hand >= self.keys.len() {
                    self.hand = 0;
                }
                if !self.keys[self.hand].1 {
                    break;
                }
                self.keys[self.hand].1 = false;
                self.hand += 1;
            }
            self.keys.remove(self.hand);
            // A hand past the newest starts again at the oldest, whatever is added meanwhile.
            if self.hand == self.keys.len() {
                self.hand = usize::MAX;
            }
        }
        self.keys.push((key, false));
        false
    }
}

/// Looks through the rest of the trace at every eviction.
struct MinModel<'a> {
    capacity: usize,
    rest: &'a [u64],
    keys: Vec<u64>,
}

impl Model for MinModel<'_> {
    fn access(&mut self, key: u64) -> bool {
        self.rest = &self.rest[1..];
        if self.keys.contains(&key) {
            return true;
        }
        if self.keys.len() == self.capacity {
            let next = |key: &u64| self.rest.iter().position(|later| later == key).unwrap_or(usize::MAX);
            let farthest = (0..self.keys.len()).max_by_key(|at| next(&self.keys[*at]));
            self.keys.remove(farthest.unwrap());
        }
        self.keys.push(key);
        false
    }
}

/// The sketch with a byte for each counter, and three lists, oldest first.
struct WTinyLfuModel {
    capacity: usize,
    window: Vec<u64>,
    probation: Vec<u64>,
    protected: Vec<u64>,
    counters: BTreeMap<(u64, u64, u64), u8>,
    uses: usize,
}

fn mix(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

impl WTinyLfuModel {
    fn places(&self, key: u64) -> [(u64, u64, u64); 4] {
        let groups = self.capacity.div_ceil(16).max(1) as u128;
        let group = ((u128::from(mix(key)) * groups) >> 64) as u64;
        let bits = mix(mix(key));
        [0, 1, 2, 3].map(|row| (group, row, (bits >> (8 * row)) & 31))
    }

    fn count(&mut self, key: u64) {
        for place in self.places(key) {
            let counter = self.counters.entry(place).or_default();
            *counter = (*counter + 1).min(15);
        }
        self.uses += 1;
        if self.uses >= self.capacity * 10 {
            self.uses /= 2;
            self.counters.values_mut().for_each(|counter| *counter /= 2);
        }
    }

    fn estimate(&self, key: u64) -> u8 {
        let read = |place| self.counters.get(&place).copied().unwrap_or(0);
        self.places(key).map(read).into_iter().min().unwrap()
    }

    fn len(&self) -> usize {
        self.window.len() + self.probation.len() + self.protected.len()
    }

    fn window_max(&self) -> usize {
        let full = (self.capacity / 100).max(1);
        (full * self.len().min(self.capacity) / self.capacity).max(1)
    }

    fn protected_max(&self) -> usize {
        let main = self.capacity - (self.capacity / 100).max(1).min(self.capacity);
        (main * 4 / 5 * self.len().min(self.capacity) / self.capacity).max(1)
    }

    fn evict(&mut self) {
        let main = self.probation.first().or(self.protected.first()).copied();
        let is_contest = self.window.len() >= self.window_max();
        let candidate = self.window.first().copied();
        let loser = match (candidate, main) {
            (Some(_), Some(main)) if !is_contest => main,
            (Some(candidate), Some(main)) if self.estimate(candidate) > self.estimate(main) => {
                self.window.remove(0);
                self.probation.push(candidate);
                main
            }
            (Some(candidate), _) => candidate,
            (None, main) => main.unwrap(),
        };
        for list in [&mut self.window, &mut self.probation, &mut self.protected] {
            list.retain(|key| *key != loser);
        }
    }
}

impl Model for WTinyLfuModel {
    fn access(&mut self, key: u64) -> bool {
        self.count(key);
        for list in [&mut self.window, &mut self.protected] {
            if let Some(at) = list.iter().position(|held| *held == key) {
                list.remove(at);
                list.push(key);
                return true;
            }
        }
        if let Some(at) = self.probation.iter().position(|held| *held == key) {
            self.probation.remove(at);
            self.protected.push(key);
            while self.protected.len() > self.protected_max() {
                let demoted = self.protected.remove(0);
                self.probation.push(demoted);
            }
            return true;
        }
        if self.len() == self.capacity {
            self.evict();
        }
        self.window.push(key);
        while self.window.len() > self.window_max() {
            let moved = self.window.remove(0);
            self.probation.push(moved);
        }
        false
    }
}

proptest! {
    #[test]
    fn lru(capacity in 1u32..40, trace in traces()) {
        let model = LruModel { capacity: capacity as usize, keys: Vec::new() };
        agree(capacity, &trace, Box::new(Lru::new(Capacity::of_blocks(capacity))), model)?;
    }

    #[test]
    fn sieve(capacity in 1u32..40, trace in traces()) {
        let model = SieveModel { capacity: capacity as usize, keys: Vec::new(), hand: usize::MAX };
        agree(capacity, &trace, Box::new(Sieve::new(Capacity::of_blocks(capacity))), model)?;
    }

    #[test]
    fn w_tiny_lfu(capacity in 1u32..40, trace in traces()) {
        let model = WTinyLfuModel {
            capacity: capacity as usize,
            window: Vec::new(),
            probation: Vec::new(),
            protected: Vec::new(),
            counters: BTreeMap::new(),
            uses: 0,
        };
        agree(capacity, &trace, Box::new(WTinyLfu::new(Capacity::of_blocks(capacity))), model)?;
    }

    /// Which of several blocks that are never used again goes makes no difference to any later hit.
    #[test]
    fn min(capacity in 1u32..40, trace in traces()) {
        let model = MinModel { capacity: capacity as usize, rest: &trace, keys: Vec::new() };
        agree(capacity, &trace, Box::new(Min::new(&trace)), model)?;
    }
}
