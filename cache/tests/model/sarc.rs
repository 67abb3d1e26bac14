//! SARC with both detectors against lists in vectors. Prefetch, floors and expectations have tests of their own.

use crate::driver::{Model, agree, traces};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tombolo_base::{Lcbn, Pvbn};
use tombolo_cache::{
    Access, Advice, Arrival, Capacity, Cause, Detector, Expectation, Incoming, Replacement, Residents, Sarc,
    SarcConfig, Verdict,
};

#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    stamp: u64,
}

struct SarcModel {
    capacity: usize,
    config: SarcConfig,
    /// SEQ and RANDOM, oldest first.
    sequential: Vec<Entry>,
    random: Vec<Entry>,
    counts: BTreeMap<u64, u8>,
    /// Tracks where streams have arrived and their runs, least recently continued first.
    streams: Vec<(u64, u8)>,
    clock: u64,
    misses: u64,
    adaptation: f64,
    desired: f64,
    last_track: Option<u64>,
}

impl SarcModel {
    fn track(&self, key: u64) -> u64 {
        key / u64::from(self.config.track_blocks)
    }

    fn bottom(&self) -> usize {
        (self.capacity * self.config.bottom_permille as usize / 1000).max(1)
    }

    fn is_resident(&self, track: u64) -> bool {
        let all = self.sequential.iter().chain(&self.random);
        all.clone().any(|entry| self.track(entry.key) == track)
    }

    /// Whether an access to the track belongs to a sequential run; sets its count.
    fn detect(&mut self, track: u64) -> bool {
        match self.config.detector {
            Detector::Counter { threshold_tracks } => {
                if !self.is_resident(track) {
                    self.counts.remove(&track);
                }
                let before = track.checked_sub(1).filter(|before| self.is_resident(*before));
                let fresh = before.map_or(1, |before| (self.counts[&before] + 1).min(threshold_tracks));
                *self.counts.entry(track).or_insert(fresh) == threshold_tracks
            }
            Detector::StreamTable {
                streams,
                threshold_tracks,
            } => {
                let same = self.streams.iter().position(|stream| stream.0 == track);
                let before = self.streams.iter().position(|stream| stream.0 + 1 == track);
                let run = match (same, before) {
                    (Some(at), _) => self.streams.remove(at).1,
                    (None, Some(at)) => (self.streams.remove(at).1 + 1).min(threshold_tracks),
                    (None, None) => 1,
                };
                if self.streams.len() == streams as usize {
                    self.streams.remove(0);
                }
                self.streams.push((track, run));
                run >= threshold_tracks
            }
        }
    }

    fn is_in_bottom(&self, list: &[Entry], entry: Entry) -> bool {
        let (oldest, newest) = (list[0].stamp, list[list.len() - 1].stamp);
        (entry.stamp - oldest) * list.len() as u64 <= self.bottom() as u64 * (newest - oldest)
    }

    fn evict(&mut self) {
        let (sequential, random) = (self.sequential.len(), self.random.len());
        let takes_sequential = if sequential == 0 || random == 0 {
            sequential > 0
        } else if sequential < self.bottom() || random < self.bottom() {
            self.sequential[0].stamp < self.random[0].stamp
        } else {
            sequential as f64 > self.desired
        };
        if takes_sequential {
            self.sequential.remove(0);
        } else {
            self.random.remove(0);
        }
        self.desired = if self.desired > 0.0 {
            (self.desired + self.adaptation / 2.0).clamp(0.0, self.capacity as f64)
        } else {
            self.sequential.len() as f64
        };
    }
}

impl Model for SarcModel {
    fn access(&mut self, key: u64) -> bool {
        let track = self.track(key);
        let is_new_visit = self.last_track.replace(track) != Some(track);
        self.clock += 1;
        let moved = Entry { key, stamp: self.clock };
        let ratio = (2 * self.misses) as f64 * self.bottom() as f64 / self.sequential.len().max(1) as f64;
        if let Some(at) = self.random.iter().position(|entry| entry.key == key) {
            if is_new_visit && self.is_in_bottom(&self.random, self.random[at]) {
                self.adaptation = (ratio - 1.0).clamp(-1.0, 1.0);
                self.misses = 0;
            }
            self.detect(track);
            self.random.remove(at);
            self.random.push(moved);
            return true;
        }
        if let Some(at) = self.sequential.iter().position(|entry| entry.key == key) {
            if is_new_visit
                && ratio > self.config.large_ratio
                && self.is_in_bottom(&self.sequential, self.sequential[at])
            {
                self.adaptation = 1.0;
            }
            self.detect(track);
            self.sequential.remove(at);
            self.sequential.push(moved);
            return true;
        }
        let is_sequential = self.detect(track);
        if is_sequential && is_new_visit {
            self.misses += 1;
        }
        if self.sequential.len() + self.random.len() == self.capacity {
            self.evict();
        }
        if is_sequential {
            &mut self.sequential
        } else {
            &mut self.random
        }
        .push(moved);
        false
    }
}

fn configs() -> impl Strategy<Value = SarcConfig> {
    let detector = prop_oneof![
        (1u8..4).prop_map(|threshold_tracks| Detector::Counter { threshold_tracks }),
        (1u32..6, 1u8..6).prop_map(|(streams, threshold_tracks)| Detector::StreamTable {
            streams,
            threshold_tracks
        }),
    ];
    (1u32..4, 10u32..400, detector).prop_map(|(track_blocks, bottom_permille, detector)| SarcConfig {
        track_blocks,
        bottom_permille,
        large_ratio: 2.0,
        detector,
        floor_blocks_per_stream: 0,
    })
}

proptest! {
    #[test]
    fn sarc(capacity in 1u32..60, config in configs(), trace in traces()) {
        let model = SarcModel {
            capacity: capacity as usize,
            config,
            sequential: Vec::new(),
            random: Vec::new(),
            counts: BTreeMap::new(),
            streams: Vec::new(),
            clock: 0,
            misses: 0,
            adaptation: 0.0,
            desired: 0.0,
            last_track: None,
        };
        agree(capacity, &trace, Box::new(Sarc::new(Capacity::of_blocks(capacity), config)), model)?;
    }
}

struct Free;

impl Residents for Free {
    fn block(&self, slot: Lcbn) -> Pvbn {
        Pvbn(u64::from(slot.0))
    }

    fn judge(&mut self, _slot: Lcbn) -> Verdict {
        Verdict::Evict
    }
}

fn prefetched(block: u64) -> Arrival {
    let access = Access {
        sequential: Some(true),
        ..Access::to(Pvbn(block))
    };
    Arrival::of_block(access, Cause::Prefetch, Incoming::BLOCK.miss_hint)
}

fn random(block: u64) -> Arrival {
    Arrival::of_block(Access::to(Pvbn(block)), Cause::Prefetch, Incoming::BLOCK.miss_hint)
}

fn victims(sarc: &mut Sarc) -> Vec<u32> {
    std::iter::from_fn(|| sarc.victim(Incoming::BLOCK, &mut Free).map(|slot| slot.0)).collect()
}

/// Without it, the group prefetched last would outlive the rest of the one before it, which is needed sooner.
#[test]
fn the_rest_of_the_last_group_is_renewed_before_the_next_group() {
    let mut sarc = Sarc::new(Capacity::of_blocks(100), SarcConfig::default());
    (0..4).for_each(|slot| sarc.insert(Lcbn(slot), &prefetched(u64::from(slot))));
    sarc.touch(Lcbn(0), &Access::to(Pvbn(0)));
    sarc.insert(Lcbn(9), &prefetched(900));
    (0..4).for_each(|slot| {
        let access = Access::to(Pvbn(u64::from(slot)));
        sarc.expect(Lcbn(slot), &access, Expectation::RestOfGroup);
    });
    // Slot 0 was read, so it is no rest; 1, 2 and 3 are newer than the block of elsewhere now.
    assert_eq!(victims(&mut sarc), [0, 9, 1, 2, 3]);
}

#[test]
fn a_resident_block_of_a_group_moves_to_seq() {
    let mut sarc = Sarc::new(Capacity::of_blocks(100), SarcConfig::default());
    sarc.insert(Lcbn(0), &random(70));
    assert_eq!(sarc.sequential_blocks().0, 0);
    sarc.expect(Lcbn(0), &Access::to(Pvbn(70)), Expectation::InGroup);
    assert_eq!(sarc.sequential_blocks().0, 1);
    sarc.check_invariants();
}

#[test]
fn the_floor_keeps_sequential_blocks() {
    let mut sarc = Sarc::new(Capacity::of_blocks(20), SarcConfig::default());
    (0..10).for_each(|slot| sarc.insert(Lcbn(slot), &prefetched(u64::from(slot))));
    (10..20).for_each(|slot| sarc.insert(Lcbn(slot), &random(1000 + 50 * u64::from(slot))));
    sarc.advise(Advice::SequentialFloorBlocks(8));
    let gone = victims(&mut sarc);
    assert!(gone[..12].iter().filter(|slot| **slot < 10).count() <= 2);
    assert_eq!(gone.len(), 20, "the floor yields when there is nothing else");
}

/// A dense hot random set looks sequential to the counter and not to the stream table.
#[test]
fn dense_random_sets_fool_only_the_counter() {
    let sequential_blocks = |config: SarcConfig| {
        let config = SarcConfig {
            track_blocks: 1,
            ..config
        };
        let mut sarc = Sarc::new(Capacity::of_blocks(2000), config);
        let mut resident = vec![false; 2500];
        let mut prng = tombolo_base::Prng::new(5);
        for _ in 0..20_000 {
            let block = prng.below(2500);
            let (slot, access) = (Lcbn(block as u32), Access::to(Pvbn(block)));
            if std::mem::replace(&mut resident[block as usize], true) {
                sarc.touch(slot, &access);
                continue;
            }
            let miss_hint = sarc.miss(&access);
            if sarc.len() == 2000 {
                let victim = sarc.victim(Incoming::BLOCK, &mut Free).unwrap();
                resident[victim.0 as usize] = false;
            }
            sarc.insert(slot, &Arrival::of_block(access, Cause::Demand, miss_hint));
        }
        sarc.sequential_blocks().0
    };
    let counter = sequential_blocks(SarcConfig::default());
    let table = sequential_blocks(SarcConfig::with_stream_table());
    assert!(counter > 500 && table < 20, "counter {counter}, table {table}");
}
