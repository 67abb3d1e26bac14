//! GreedyDual-Size and its cloud descendants: GDS, GDSF, GDS-L, GDS-LF, GDS-LC, GDS-LCF.
//!
//! Sources: Cao and Irani, USITS'97 (GDS); Hou and Chen, ACM TOS 2017 (GDS-LC: section 4.1 and figure 4 regions and
//! migration, 4.2 cost functions, 4.3 frequency). H = inflation + cost * frequency / size, set when a group is admitted
//! or used; the least H is the victim and becomes the inflation. Equal H: least recently used first, so that uniform
//! costs give LRU.
//!
//! GDS-LC has two regions, for performance and price, 1:2. Everything is admitted to the upper one; what that has no
//! room for sinks to the lower one with H reckoned anew; a use brings it up again. Regions are limits on bytes, not
//! places.
//!
//! In a gateway the cost of one block on one backend is constant and GDS would be LRU; so cost groups (`groups`): all
//! that is resident of one object is one entry, its cost that of fetching it again as one range.
//!
//! Deviations, where figure 4 is silent or does not end: what exceeds the upper region is admitted to the lower one.
//! Where the paper evicts to make a region fit although the cache has room, nothing is evicted. A change from clean to
//! dirty or of a group's blocks reckons H with the inflation of the last use.
//!
//! 92 bytes an entry with one slot each; in groups 13 bytes a slot and 110 a group.

mod config;
mod cost;
mod groups;
mod region;

pub use config::{GdsConfig, Goal, Region};
pub use cost::CostClass;
pub use groups::Grouping;

use crate::list::{Looks, NONE};
use crate::{Access, Advice, Arrival, Capacity, Cause, Incoming, MissHint, Replacement, Residents, Verdict};
use alloc::{vec, vec::Vec};
use cost::{default_factor, normalised, per_byte};
use groups::Groups;
use region::RegionState;
use tombolo_base::{BLOCK_BYTES, Lcbn, PACK_BLOCKS};

const UPPER: u8 = 0;
const LOWER: u8 = 1;
/// Groups of fewer blocks are weighed as if they had so many: else a fixed cost over few bytes would make fragments
/// the most valuable of all.
const WEIGHED_BLOCKS_MIN: u64 = 16;
/// The GreedyDual-Size family: what is cheapest to bring back, for its size and its use, goes first.
#[derive(Debug)]
pub struct Gds {
    config: GdsConfig,
    regions: [RegionState; 2],
    groups: Groups,
    classes: Vec<CostClass>,
    /// What latencies are divided by.
    factor_us: u64,
    clock: u64,
    len: usize,
    passed_over: Vec<u32>,
}

enum Search {
    Found(u32),
    AllHeld,
    /// The group was given another round.
    Again,
    GivenUp,
}

impl Gds {
    /// Empty; every transfer costs nothing until [`Advice::Costs`](crate::Advice) says otherwise.
    pub fn new(capacity: Capacity, config: GdsConfig) -> Self {
        let entries = match config.grouping {
            Grouping::Slots => capacity.blocks as usize,
            Grouping::Objects { .. } => capacity.blocks as usize / 32,
        };
        let upper_entries = if config.lower.is_some() { entries / 3 } else { entries };
        let mut policy = Self {
            config,
            regions: [
                RegionState::new(upper_entries),
                RegionState::new(entries - upper_entries),
            ],
            groups: Groups::new(config.grouping, capacity.blocks),
            classes: vec![CostClass::default(); 1],
            factor_us: 1,
            clock: 0,
            len: 0,
            passed_over: Vec::new(),
        };
        policy.resize(capacity);
        policy
    }

    /// Bytes in the upper and in the lower region.
    pub fn region_bytes(&self) -> (u64, u64) {
        (self.regions[0].bytes, self.regions[1].bytes)
    }

    /// Cost per byte, times frequency, in the region that the group is in.
    fn value(&self, group: u32) -> u64 {
        let entry = self.groups.get(group);
        let region = match (entry.region, &self.config.lower) {
            (LOWER, Some(lower)) => lower,
            _ => &self.config.upper,
        };
        let bytes = match self.config.grouping {
            Grouping::Slots => entry.bytes,
            Grouping::Objects { .. } => entry.bytes.max(WEIGHED_BLOCKS_MIN * BLOCK_BYTES as u64),
        };
        let frequency = u64::from(entry.visits.clamp(1, region.frequency_max));
        per_byte(self.cost(group, region.goal, bytes), bytes) * frequency
    }

    fn cost(&self, group: u32, goal: Goal, bytes: u64) -> u64 {
        let entry = self.groups.get(group);
        let class = self.classes.get(usize::from(entry.class)).unwrap_or(&self.classes[0]);
        let upload_share = |whole: u64| match self.config.grouping {
            _ if entry.dirty == 0 || !self.config.counts_uploads => 0,
            Grouping::Slots => whole,
            Grouping::Objects { .. } => whole * u64::from(entry.dirty) / PACK_BLOCKS as u64,
        };
        let download_us = match (self.config.grouping, entry.latency_us) {
            (Grouping::Slots, measured) if measured > 0 => u64::from(measured),
            _ => class.download_us(bytes),
        };
        match goal {
            Goal::Latency => download_us + upload_share(class.upload_us(bytes)),
            Goal::NormalisedLatency => {
                let upload = normalised(class.upload_us(bytes), self.factor_us);
                normalised(download_us, self.factor_us) + upload_share(upload)
            }
            Goal::Price => class.download_nanodollars(bytes) + upload_share(u64::from(class.put_nanodollars)),
        }
    }

    /// Puts a detached group into a region, valued at that region's inflation.
    fn attach(&mut self, group: u32, region: u8) {
        self.groups.get_mut(group).region = region;
        let value = self.value(group);
        let state = &mut self.regions[usize::from(region)];
        let entry = self.groups.get_mut(group);
        entry.base = state.inflation;
        entry.rank = entry.base + value;
        state.bytes += entry.bytes;
        state.heap.set(group, entry.key());
    }

    fn detach(&mut self, group: u32) {
        let entry = self.groups.get(group);
        let state = &mut self.regions[usize::from(entry.region)];
        state.heap.remove(group);
        state.bytes -= entry.bytes;
    }

    /// Puts a detached group where blocks are admitted; others make room there.
    fn admit(&mut self, group: u32) {
        let bytes = self.groups.get(group).bytes;
        let upper_max = self.regions[0].bytes_max;
        if self.config.lower.is_some() && bytes > upper_max {
            return self.attach(group, LOWER);
        }
        while self.regions[0].bytes + bytes > upper_max && self.config.lower.is_some() {
            let Some(least) = self.least(UPPER) else { break };
            self.demote(least);
        }
        self.attach(group, UPPER);
    }

    /// A group in the upper region counts as used, and may have grown.
    fn readmit(&mut self, group: u32) {
        while self.regions[0].bytes > self.regions[0].bytes_max {
            match self.least(UPPER) {
                Some(least) if least != group => self.demote(least),
                _ => {
                    // The others make room for it, so it stands aside.
                    self.detach(group);
                    self.stamp(group);
                    return self.admit(group);
                }
            }
        }
        self.refresh(group);
    }

    fn demote(&mut self, group: u32) {
        self.inflate(group);
        self.detach(group);
        self.attach(group, LOWER);
    }

    fn least(&mut self, region: u8) -> Option<u32> {
        self.regions[usize::from(region)].least(&self.groups)
    }

    /// The group leaves its region as the least valuable.
    fn inflate(&mut self, group: u32) {
        let entry = *self.groups.get(group);
        self.regions[usize::from(entry.region)].inflate(entry.rank, &mut self.groups);
    }

    /// The group's cost changed, but it was not used.
    fn revalue(&mut self, group: u32) {
        let value = self.value(group);
        let entry = self.groups.get_mut(group);
        entry.rank = entry.base + value;
        self.regions[usize::from(self.groups.get(group).region)].note(group, &self.groups);
    }

    fn stamp(&mut self, group: u32) {
        self.clock += 1;
        self.groups.get_mut(group).stamp = self.clock;
    }

    fn refresh(&mut self, group: u32) {
        self.stamp(group);
        let inflation = self.regions[usize::from(self.groups.get(group).region)].inflation;
        self.groups.get_mut(group).base = inflation;
        self.revalue(group);
    }

    fn search(&mut self, group: u32, residents: &mut dyn Residents, looks: &mut Looks) -> Search {
        let mut slot = self.groups.get(group).slots.oldest();
        while slot != NONE {
            if !looks.take() {
                return Search::GivenUp;
            }
            match residents.judge(Lcbn(slot)) {
                Verdict::Evict => return Search::Found(slot),
                Verdict::Keep => slot = self.groups.newer(slot),
                Verdict::Again => {
                    self.groups.move_to_newest(slot);
                    self.refresh(group);
                    return Search::Again;
                }
            }
        }
        Search::AllHeld
    }

    fn evict_from(&mut self, region: u8, residents: &mut dyn Residents, looks: &mut Looks) -> Option<Lcbn> {
        let mut victim = None;
        while let Some(group) = self.least(region) {
            match self.search(group, residents, looks) {
                Search::Found(slot) => {
                    victim = Some((group, slot));
                    break;
                }
                Search::Again => {}
                Search::AllHeld => {
                    self.regions[usize::from(region)].heap.remove(group);
                    self.passed_over.push(group);
                }
                Search::GivenUp => break,
            }
        }
        while let Some(group) = self.passed_over.pop() {
            self.regions[usize::from(self.groups.get(group).region)].note(group, &self.groups);
        }
        let (group, slot) = victim?;
        self.inflate(group);
        self.take_out(slot, self.is_track_done(group));
        Some(Lcbn(slot))
    }

    /// Whether the group's value is to be reckoned anew once it has lost one more block.
    fn is_track_done(&self, group: u32) -> bool {
        match self.config.grouping {
            Grouping::Slots => true,
            Grouping::Objects { evict_blocks } => {
                (self.groups.get(group).slots.len() - 1).is_multiple_of(evict_blocks.max(1))
            }
        }
    }

    fn take_out(&mut self, slot: u32, revalues: bool) {
        let group = self.groups.of_slot(slot);
        let before = self.groups.get(group).bytes;
        self.groups.remove_slot(slot);
        self.len -= 1;
        let entry = *self.groups.get(group);
        let state = &mut self.regions[usize::from(entry.region)];
        if entry.slots.len() == 0 {
            state.bytes -= before;
            state.heap.remove(group);
            self.groups.release(group);
        } else {
            state.bytes -= before - entry.bytes;
            if revalues {
                self.revalue(group);
            }
        }
    }
}

impl Replacement for Gds {
    fn name(&self) -> &'static str {
        self.config.name
    }

    fn miss(&mut self, _access: &Access) -> MissHint {
        MissHint::default()
    }

    fn reach(&mut self, slot: Lcbn) {
        self.groups.reach(slot.0);
    }

    fn insert(&mut self, slot: Lcbn, arrival: &Arrival) {
        self.reach(slot);
        let group = self.groups.find_or_add(slot.0, arrival);
        let before = *self.groups.get(group);
        let is_attached = before.slots.len() > 0;
        if is_attached && before.region == LOWER {
            self.detach(group);
        }
        self.groups.add_slot(group, slot.0, arrival);
        self.len += 1;
        if arrival.cause != Cause::Prefetch {
            self.groups.visit(group);
        }
        if is_attached && before.region == UPPER {
            self.regions[0].bytes += self.groups.get(group).bytes - before.bytes;
            self.readmit(group);
        } else {
            self.stamp(group);
            self.admit(group);
        }
    }

    fn touch(&mut self, slot: Lcbn, _access: &Access) {
        let group = self.groups.of_slot(slot.0);
        self.groups.visit(group);
        self.groups.move_to_newest(slot.0);
        if self.groups.get(group).region == UPPER {
            self.readmit(group);
        } else {
            self.detach(group);
            self.stamp(group);
            self.admit(group);
        }
    }

    fn set_dirty(&mut self, slot: Lcbn, is_dirty: bool) {
        self.groups.set_dirty(slot.0, is_dirty);
        self.revalue(self.groups.of_slot(slot.0));
    }

    fn set_bytes(&mut self, slot: Lcbn, bytes: u32) {
        if self.config.grouping != Grouping::Slots {
            return;
        }
        let entry = self.groups.get_mut(slot.0);
        let region = &mut self.regions[usize::from(entry.region)];
        region.bytes = region.bytes - entry.bytes + u64::from(bytes);
        entry.bytes = u64::from(bytes);
    }

    fn remove(&mut self, slot: Lcbn) {
        self.take_out(slot.0, true);
    }

    fn victim(&mut self, incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        let mut looks = Looks::new();
        if self.config.lower.is_none() {
            return self.evict_from(UPPER, residents, &mut looks);
        }
        // Figure 4: the upper region sheds what the incoming block needs, and the lower one what that needs, before
        // it comes.
        while self.regions[0].bytes + incoming.bytes > self.regions[0].bytes_max {
            let Some(least) = self.least(UPPER) else { break };
            let lower = &self.regions[1];
            if lower.bytes + self.groups.get(least).bytes > lower.bytes_max {
                break;
            }
            self.demote(least);
        }
        self.evict_from(LOWER, residents, &mut looks)
            .or_else(|| self.evict_from(UPPER, residents, &mut looks))
    }

    fn resize(&mut self, capacity: Capacity) {
        let Some(lower) = self.config.lower else {
            self.regions[0].bytes_max = u64::MAX;
            return;
        };
        let upper_share = u64::from(self.config.upper.share);
        let parts = (upper_share + u64::from(lower.share)).max(1);
        self.regions[0].bytes_max = (u128::from(capacity.bytes) * u128::from(upper_share) / u128::from(parts)) as u64;
        self.regions[1].bytes_max = capacity.bytes - self.regions[0].bytes_max;
        while self.regions[0].bytes > self.regions[0].bytes_max {
            let Some(least) = self.least(UPPER) else { break };
            self.demote(least);
        }
    }

    fn advise(&mut self, advice: Advice) {
        let Advice::Costs { class, costs } = advice else {
            return;
        };
        if usize::from(class) >= self.classes.len() {
            self.classes.resize(usize::from(class) + 1, CostClass::default());
        }
        self.classes[usize::from(class)] = costs;
        let round_trips = self.classes.iter().map(|class| u64::from(class.round_trip_us));
        let shortest = round_trips.filter(|us| *us > 0).min().unwrap_or(0);
        let factor = match self.config.normalisation_factor {
            0 => default_factor(shortest),
            factor => u64::from(factor),
        };
        self.factor_us = (shortest * factor).max(1);
    }

    fn len(&self) -> usize {
        self.len
    }

    fn metadata_bytes(&self) -> usize {
        self.groups.memory_bytes() + self.regions.iter().map(|region| region.heap.bytes()).sum::<usize>()
    }

    fn check_invariants(&self) {
        let mut slots = 0;
        for (number, region) in self.regions.iter().enumerate() {
            let groups = region.check(&self.groups);
            assert!(
                groups
                    .iter()
                    .all(|group| usize::from(self.groups.get(*group).region) == number)
            );
            slots += groups.iter().map(|group| self.groups.check(*group)).sum::<usize>();
        }
        assert_eq!(slots, self.len);
    }
}
