//! Cost groups: which slots are fetched together, and the state of each group in GDS.
//!
//! With one slot per group, the group's number is the slot's. Otherwise a group is what is resident of one object, found
//! by the object's name.

use crate::Arrival;
use crate::heap::Rank;
use crate::key_index::KeyIndex;
use crate::list::{Links, List, NONE};
use alloc::vec::Vec;
use tombolo_base::BLOCK_BYTES;

/// What is fetched, weighed and evicted as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Each slot holds an object of its own, of any size.
    Slots,
    /// Slots hold blocks of objects, each weighing `BLOCK_BYTES` whatever its arrival says. The cheapest group loses this many blocks, least recently
    /// used first, before its cost is looked at again; `u32::MAX`: all.
    Objects {
        /// How many blocks go at once.
        evict_blocks: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// The region's inflation when the group was last used.
    pub base: u64,
    /// H: `base` and the group's cost per byte.
    pub rank: u64,
    /// When it was last used.
    pub stamp: u64,
    pub bytes: u64,
    pub slots: List,
    pub dirty: u32,
    /// The last measured download; zero: none.
    pub latency_us: u32,
    pub class: u8,
    /// Uses since it came, saturating.
    pub visits: u8,
    pub region: u8,
}

impl Group {
    /// Its place among the others: by H, then by last use.
    pub fn key(&self) -> Rank {
        Rank {
            value: self.rank,
            stamp: self.stamp,
        }
    }
}

#[derive(Debug)]
pub(super) struct Groups {
    pub grouping: Grouping,
    groups: Vec<Group>,
    free: Vec<u32>,
    objects: Vec<u64>,
    index: KeyIndex,
    group_of_slot: Vec<u32>,
    dirty_slots: Vec<bool>,
    links: Links,
    last_visited: u32,
}

impl Groups {
    pub fn new(grouping: Grouping, blocks: u32) -> Self {
        let groups = match grouping {
            Grouping::Slots => blocks as usize,
            // Half-filled objects of 64 blocks; the tables grow if residency is sparser.
            Grouping::Objects { .. } => blocks as usize / 32,
        };
        Self {
            grouping,
            groups: Vec::with_capacity(groups),
            free: Vec::new(),
            objects: Vec::new(),
            index: KeyIndex::with_capacity(if grouping == Grouping::Slots { 0 } else { groups }),
            group_of_slot: Vec::new(),
            dirty_slots: Vec::new(),
            links: Links::with_capacity(blocks as usize),
            last_visited: NONE,
        }
    }

    pub fn get(&self, group: u32) -> &Group {
        &self.groups[group as usize]
    }

    pub fn get_mut(&mut self, group: u32) -> &mut Group {
        &mut self.groups[group as usize]
    }

    pub fn of_slot(&self, slot: u32) -> u32 {
        match self.grouping {
            Grouping::Slots => slot,
            Grouping::Objects { .. } => self.group_of_slot[slot as usize],
        }
    }

    /// The group that the arriving block belongs to, empty if it is the first.
    pub fn find_or_add(&mut self, slot: u32, arrival: &Arrival) -> u32 {
        let empty = Group {
            base: 0,
            rank: 0,
            stamp: 0,
            bytes: 0,
            slots: List::EMPTY,
            dirty: 0,
            latency_us: arrival.latency_us,
            class: arrival.cost_class,
            visits: 0,
            region: 0,
        };
        let group = match self.grouping {
            Grouping::Slots => slot,
            Grouping::Objects { .. } => match self.index.find(&self.objects, arrival.object) {
                Some(group) => return group,
                None => self.free.pop().unwrap_or(self.groups.len() as u32),
            },
        };
        if group as usize >= self.groups.len() {
            self.groups.resize(group as usize + 1, empty);
        }
        self.groups[group as usize] = empty;
        if self.grouping != Grouping::Slots {
            if group as usize >= self.objects.len() {
                self.objects.resize(group as usize + 1, 0);
            }
            self.objects[group as usize] = arrival.object;
            self.index.insert(&self.objects, group);
        }
        group
    }

    /// Makes room for the slot.
    pub fn reach(&mut self, slot: u32) {
        self.links.reach(slot);
        if self.grouping != Grouping::Slots && slot as usize >= self.group_of_slot.len() {
            self.group_of_slot.resize(slot as usize + 1, NONE);
            self.dirty_slots.resize(slot as usize + 1, false);
        }
    }

    pub fn add_slot(&mut self, group: u32, slot: u32, arrival: &Arrival) {
        if self.grouping != Grouping::Slots {
            self.group_of_slot[slot as usize] = group;
            self.dirty_slots[slot as usize] = arrival.is_dirty;
        }
        let entry = &mut self.groups[group as usize];
        entry.slots.push_newest(&mut self.links, slot);
        entry.bytes += match self.grouping {
            Grouping::Slots => u64::from(arrival.bytes),
            Grouping::Objects { .. } => BLOCK_BYTES as u64,
        };
        entry.dirty += u32::from(arrival.is_dirty);
        entry.class = arrival.cost_class;
        if arrival.latency_us > 0 {
            entry.latency_us = arrival.latency_us;
        }
    }

    /// Takes the slot out of its group. When it was the last, the group MUST be freed.
    pub fn remove_slot(&mut self, slot: u32) {
        let group = self.of_slot(slot);
        let entry = &mut self.groups[group as usize];
        entry.slots.remove(&mut self.links, slot);
        match self.grouping {
            Grouping::Slots => (entry.bytes, entry.dirty) = (0, 0),
            Grouping::Objects { .. } => {
                entry.bytes -= BLOCK_BYTES as u64;
                entry.dirty -= u32::from(self.dirty_slots[slot as usize]);
            }
        }
    }

    /// Forgets an empty group.
    pub fn release(&mut self, group: u32) {
        if self.last_visited == group {
            self.last_visited = NONE;
        }
        if self.grouping != Grouping::Slots {
            self.index.remove(&self.objects, group);
            self.free.push(group);
        }
    }

    pub fn move_to_newest(&mut self, slot: u32) {
        let group = self.of_slot(slot) as usize;
        self.groups[group].slots.move_to_newest(&mut self.links, slot);
    }

    pub fn newer(&self, slot: u32) -> u32 {
        self.links.newer(slot)
    }

    /// A use of one of the group's blocks. Block after block of one object counts as one visit.
    pub fn visit(&mut self, group: u32) {
        if self.grouping == Grouping::Slots || self.last_visited != group {
            let visits = &mut self.groups[group as usize].visits;
            *visits = visits.saturating_add(1);
        }
        self.last_visited = group;
    }

    pub fn set_dirty(&mut self, slot: u32, is_dirty: bool) {
        let group = self.of_slot(slot) as usize;
        if self.grouping == Grouping::Slots {
            self.groups[group].dirty = u32::from(is_dirty);
            return;
        }
        let was_dirty = core::mem::replace(&mut self.dirty_slots[slot as usize], is_dirty);
        self.groups[group].dirty -= u32::from(was_dirty);
        self.groups[group].dirty += u32::from(is_dirty);
    }

    pub fn memory_bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Group>()
            + self.objects.capacity() * 8
            + self.index.bytes()
            + (self.free.capacity() + self.group_of_slot.capacity()) * 4
            + self.dirty_slots.capacity()
            + self.links.bytes()
    }

    /// Checks one group that is in use; returns its slots.
    pub fn check(&self, group: u32) -> usize {
        let entry = self.get(group);
        assert!(entry.slots.len() > 0, "a group in use is not empty");
        entry.slots.check(&self.links);
        assert!(entry.slots.iter(&self.links).all(|slot| self.of_slot(slot) == group));
        if self.grouping != Grouping::Slots {
            let slots = || entry.slots.iter(&self.links);
            let bytes = slots().count() as u64 * BLOCK_BYTES as u64;
            let dirty = slots().filter(|slot| self.dirty_slots[*slot as usize]).count();
            assert_eq!((bytes, dirty), (entry.bytes, entry.dirty as usize));
        }
        entry.slots.len() as usize
    }
}
