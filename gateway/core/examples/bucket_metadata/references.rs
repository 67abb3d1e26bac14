//! References of PVBNs without counting over snapshots: a count is of *lives*, times that a block of the live map was mapped to
//! the PVBN and is still, or is on a dead list. Taking a snapshot changes no count.
//!
//! PVBNs are given out in order, so a mapping's PVBN says after which snapshots it was born. Only a mapping that deduplication
//! redirected to an older PVBN needs its birth written down.

use crate::codec::varint_bytes;
use crate::lifetimes::DeadLists;
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Clone, Copy, Default)]
struct Mapping {
    pvbn: u64,
    /// The checkpoint that redirected it here; none if it was written here.
    redirected: Option<u32>,
}

pub struct References {
    live: Vec<Mapping>,
    counts: HashMap<u64, u32>,
    dead: DeadLists<u64>,
    /// The next PVBN when a snapshot was taken, and the snapshot.
    births: BTreeSet<(u64, u32)>,
    freed: Vec<u64>,
    /// Put on lists since the last checkpoint, by the first snapshot that has them.
    listed: BTreeMap<u32, Vec<u64>>,
}

impl References {
    /// Block `n` is mapped to PVBN `n`.
    pub fn new(blocks: u64) -> Self {
        Self {
            live: (0..blocks).map(|pvbn| Mapping { pvbn, redirected: None }).collect(),
            counts: (0..blocks).map(|pvbn| (pvbn, 1)).collect(),
            dead: DeadLists::default(),
            births: BTreeSet::new(),
            freed: Vec::new(),
            listed: BTreeMap::new(),
        }
    }

    pub fn map(&mut self, block: u64, pvbn: u64, redirected: Option<u32>) {
        *self.counts.entry(pvbn).or_default() += 1;
        let old = std::mem::replace(&mut self.live[block as usize], Mapping { pvbn, redirected });
        let first = match old.redirected {
            Some(birth) => self.dead.first_holder_of(birth),
            None => self.births.range((old.pvbn + 1, 0)..).next().map(|&(_, epoch)| epoch),
        };
        match (self.dead.died(old.pvbn, first), first) {
            (Some(pvbn), _) => self.release(pvbn),
            (None, Some(first)) => self.listed.entry(first).or_default().push(old.pvbn),
            (None, None) => {}
        }
    }

    pub fn release(&mut self, pvbn: u64) {
        let Some(count) = self.counts.get_mut(&pvbn) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&pvbn);
            self.freed.push(pvbn);
        }
    }

    pub fn snapshot(&mut self, epoch: u32, next_pvbn: u64) {
        self.births.insert((next_pvbn, epoch));
        self.dead.snapshot(epoch);
    }

    /// Returns how many lives ended and how many lists were looked at.
    pub fn delete_snapshot(&mut self, epoch: u32) -> (u64, u64) {
        self.births.retain(|&(_, snapshot)| snapshot != epoch);
        let freed = self.dead.delete(epoch);
        let lives = freed.items.len() as u64;
        for pvbn in freed.items {
            self.release(pvbn);
        }
        (lives, freed.lists)
    }

    /// PVBNs that lost their last reference since the last call.
    pub fn take_freed(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.freed)
    }

    /// What the lists of this checkpoint add to the bucket: a key each, and PVBNs as differences.
    pub fn take_listed_bytes(&mut self) -> u64 {
        const KEY_BYTES: usize = 12;
        let mut bytes = 0;
        for mut list in std::mem::take(&mut self.listed).into_values() {
            list.sort_unstable();
            bytes += KEY_BYTES + varint_bytes(list[0]);
            bytes += list
                .windows(2)
                .map(|pair| varint_bytes(pair[1] - pair[0]))
                .sum::<usize>();
        }
        bytes as u64
    }

    /// Whether the counts are what one scan of the live map and the dead lists finds, however many snapshots there are.
    pub fn are_found_by_a_scan(&self) -> bool {
        let mut found: HashMap<u64, u32> = HashMap::new();
        for pvbn in self.live.iter().map(|mapping| &mapping.pvbn).chain(self.dead.items()) {
            *found.entry(*pvbn).or_default() += 1;
        }
        found == self.counts
    }

    pub fn counted(&self) -> BTreeSet<u64> {
        self.counts.keys().copied().collect()
    }
}
