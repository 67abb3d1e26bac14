//! One region of the cache: its groups by H, and its inflation.
//!
//! The heap is lazy: a use only notes the new H with the group, and an entry that reaches the top with an old one is
//! sorted in again, so that a hit takes constant time. A noted rank is never above the true one.

use super::groups::Groups;
use crate::heap::Heap;
use alloc::vec::Vec;

/// Above this, all values of the region are lowered. Costs stay below 2^61, so sums stay below 2^63.
const INFLATION_MAX: u64 = 1 << 62;

#[derive(Debug)]
pub(super) struct RegionState {
    pub heap: Heap,
    /// H of the most valuable group that had to leave.
    pub inflation: u64,
    pub bytes: u64,
    pub bytes_max: u64,
}

impl RegionState {
    /// Room for so many groups; more make the tables grow.
    pub fn new(groups: usize) -> Self {
        Self {
            heap: Heap::with_capacity(groups),
            inflation: 0,
            bytes: 0,
            bytes_max: 0,
        }
    }

    /// The group with the least H.
    pub fn least(&mut self, groups: &Groups) -> Option<u32> {
        loop {
            let (group, noted) = self.heap.peek()?;
            let key = groups.get(group).key();
            if noted == key {
                return Some(group);
            }
            self.heap.set(group, key);
        }
    }

    /// The heap learns of a lower rank at once, of a higher one when the entry reaches the top.
    pub fn note(&mut self, group: u32, groups: &Groups) {
        let key = groups.get(group).key();
        if self.heap.rank(group).is_none_or(|noted| key < noted) {
            self.heap.set(group, key);
        }
    }

    /// A group of this rank leaves as the least valuable.
    pub fn inflate(&mut self, rank: u64, groups: &mut Groups) {
        self.inflation = self.inflation.max(rank);
        if self.inflation > INFLATION_MAX {
            self.deflate(groups);
        }
    }

    /// Lowers all values by the same amount.
    fn deflate(&mut self, groups: &mut Groups) {
        let ids = self.heap.ids();
        let Some(lowest) = ids.iter().map(|id| groups.get(*id).base).min() else {
            return;
        };
        self.inflation -= lowest;
        for id in ids {
            let entry = groups.get_mut(id);
            entry.base -= lowest;
            entry.rank -= lowest;
            self.heap.set(id, entry.key());
        }
    }

    /// Checks the heap against the groups; returns these.
    pub fn check(&self, groups: &Groups) -> Vec<u32> {
        self.heap.check();
        let ids = self.heap.ids();
        for id in &ids {
            let entry = groups.get(*id);
            assert!(entry.base <= entry.rank && entry.base <= self.inflation);
            let noted = self.heap.rank(*id);
            assert!(
                noted.is_some_and(|noted| noted <= entry.key()),
                "a noted rank is too high"
            );
        }
        let bytes: u64 = ids.iter().map(|id| groups.get(*id).bytes).sum();
        assert_eq!(bytes, self.bytes);
        ids
    }
}
