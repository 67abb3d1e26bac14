//! ARC over objects of unlike sizes, for object traces; it neither knows costs nor prefers small objects.
//!
//! Source: Megiddo and Modha, FAST'03, figure 4 (see `arc`), with the one change of Hou and Chen, ACM TOS 2017,
//! section 5.1.3: lists are weighed in bytes, and the target `p` moves by the size of the object that was missed.
//! With objects of one size it is ARC, decision by decision (a test says so).
//!
//! Not for the gateway: a prefetched object counts as used, and ghosts are kept in ordered maps, of which there may be
//! as many as objects fit.

use crate::list::{Links, List, Looks};
use crate::{Access, Arrival, Capacity, Incoming, MissHint, Replacement, Residents};
use alloc::{collections::BTreeMap, vec::Vec};
use tombolo_base::Lcbn;

/// T1 and B1, T2 and B2.
const ONCE: usize = 0;
const AGAIN: usize = 1;

const FROM_B1: MissHint = MissHint(1);
const FROM_B2: MissHint = MissHint(2);

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    bytes: u32,
    list: usize,
}

/// B1 and B2.
#[derive(Debug, Default)]
struct Ghosts {
    /// Name and size by age.
    lists: [BTreeMap<u64, (u64, u32)>; 2],
    bytes: [u64; 2],
    /// List and age by name.
    places: BTreeMap<u64, (usize, u64)>,
    clock: u64,
}

impl Ghosts {
    fn remember(&mut self, list: usize, name: u64, bytes: u32) {
        self.clock += 1;
        self.lists[list].insert(self.clock, (name, bytes));
        self.places.insert(name, (list, self.clock));
        self.bytes[list] += u64::from(bytes);
    }

    /// Forgets a name; says which list it was in and its size.
    fn forget(&mut self, name: u64) -> Option<(usize, u32)> {
        let (list, age) = self.places.remove(&name)?;
        let (_, bytes) = self.lists[list].remove(&age)?;
        self.bytes[list] -= u64::from(bytes);
        Some((list, bytes))
    }

    fn drop_oldest(&mut self, list: usize) {
        if let Some((_, (name, bytes))) = self.lists[list].pop_first() {
            self.places.remove(&name);
            self.bytes[list] -= u64::from(bytes);
        }
    }

    fn is_empty(&self, list: usize) -> bool {
        self.lists[list].is_empty()
    }
}

/// [`Arc`](crate::Arc) for objects of any size: lists, ghosts and target are measured in bytes.
#[derive(Debug)]
pub struct ArcBytes {
    capacity_bytes: u64,
    /// Target size of T1.
    p: f64,
    entries: Vec<Entry>,
    links: Links,
    /// T1 and T2.
    lists: [List; 2],
    bytes: [u64; 2],
    ghosts: Ghosts,
}

impl ArcBytes {
    /// Empty, for `capacity.bytes`.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity_bytes: capacity.bytes,
            p: 0.0,
            entries: Vec::new(),
            links: Links::with_capacity(0),
            lists: [List::EMPTY; 2],
            bytes: [0; 2],
            ghosts: Ghosts::default(),
        }
    }

    fn put(&mut self, slot: u32, list: usize) {
        self.lists[list].push_newest(&mut self.links, slot);
        self.entries[slot as usize].list = list;
        self.bytes[list] += u64::from(self.entries[slot as usize].bytes);
    }

    fn take(&mut self, slot: u32) -> Entry {
        let entry = self.entries[slot as usize];
        self.lists[entry.list].remove(&mut self.links, slot);
        self.bytes[entry.list] -= u64::from(entry.bytes);
        entry
    }

    /// |T1|+|B1| <= c and |T1|+|T2|+|B1|+|B2| <= 2c.
    fn cut_ghosts(&mut self) {
        while self.bytes[ONCE] + self.ghosts.bytes[ONCE] > self.capacity_bytes && !self.ghosts.is_empty(ONCE) {
            self.ghosts.drop_oldest(ONCE);
        }
        let inside: u64 = self.bytes.iter().sum();
        while inside + self.ghosts.bytes.iter().sum::<u64>() > 2 * self.capacity_bytes && !self.ghosts.is_empty(AGAIN) {
            self.ghosts.drop_oldest(AGAIN);
        }
    }

    /// REPLACE's choice: whether T1 gives the victim.
    fn prefers_t1(&self, miss_hint: MissHint) -> bool {
        let t1 = self.bytes[ONCE] as f64;
        t1 > self.p || (miss_hint == FROM_B2 && t1 == self.p)
    }
}

impl Replacement for ArcBytes {
    fn name(&self) -> &'static str {
        "arc-bytes"
    }

    fn miss(&mut self, access: &Access) -> MissHint {
        let [b1, b2] = self.ghosts.bytes.map(|bytes| bytes as f64);
        match self.ghosts.forget(access.block.0) {
            Some((ONCE, bytes)) => {
                let step = (b2 / b1).max(1.0) * f64::from(bytes);
                self.p = (self.p + step).min(self.capacity_bytes as f64);
                FROM_B1
            }
            Some((_, bytes)) => {
                self.p = (self.p - (b1 / b2).max(1.0) * f64::from(bytes)).max(0.0);
                FROM_B2
            }
            None => MissHint::default(),
        }
    }

    fn reach(&mut self, slot: Lcbn) {
        self.links.reach(slot.0);
        if slot.0 as usize >= self.entries.len() {
            self.entries.resize(slot.0 as usize + 1, Entry::default());
        }
    }

    fn insert(&mut self, slot: Lcbn, arrival: &Arrival) {
        self.ghosts.forget(arrival.access.block.0);
        self.reach(slot);
        self.entries[slot.0 as usize].bytes = arrival.bytes;
        let is_known = arrival.miss_hint != MissHint::default();
        self.put(slot.0, if is_known { AGAIN } else { ONCE });
        self.cut_ghosts();
    }

    fn touch(&mut self, slot: Lcbn, _access: &Access) {
        self.take(slot.0);
        self.put(slot.0, AGAIN);
    }

    fn set_bytes(&mut self, slot: Lcbn, bytes: u32) {
        let entry = &mut self.entries[slot.0 as usize];
        let total = &mut self.bytes[entry.list];
        *total = *total - u64::from(entry.bytes) + u64::from(bytes);
        entry.bytes = bytes;
    }

    fn remove(&mut self, slot: Lcbn) {
        self.take(slot.0);
    }

    fn victim(&mut self, incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        let mut looks = Looks::new();
        let [t1, t2] = &self.lists;
        let first_t1 = t2.len() == 0 || (t1.len() > 0 && self.prefers_t1(incoming.miss_hint));
        let order = if first_t1 { [ONCE, AGAIN] } else { [AGAIN, ONCE] };
        let links = &mut self.links;
        let lists = &mut self.lists;
        let slot = order
            .into_iter()
            .find_map(|list| lists[list].find_victim(links, residents, &mut looks))?;
        let entry = self.take(slot);
        let name = residents.block(Lcbn(slot)).0;
        self.ghosts.remember(entry.list, name, entry.bytes);
        Some(Lcbn(slot))
    }

    fn resize(&mut self, capacity: Capacity) {
        self.p *= capacity.bytes as f64 / self.capacity_bytes.max(1) as f64;
        self.capacity_bytes = capacity.bytes;
        self.cut_ghosts();
    }

    fn len(&self) -> usize {
        (self.lists[ONCE].len() + self.lists[AGAIN].len()) as usize
    }

    fn metadata_bytes(&self) -> usize {
        // An ordered map's nodes are at least half full; its exact size is not told.
        let ghost = 2 * (size_of::<(u64, (u64, u32))>() + size_of::<(u64, (usize, u64))>());
        self.links.bytes() + self.entries.capacity() * size_of::<Entry>() + self.ghosts.places.len() * ghost
    }

    fn check_invariants(&self) {
        assert!((0.0..=self.capacity_bytes as f64).contains(&self.p));
        for (number, list) in self.lists.iter().enumerate() {
            list.check(&self.links);
            let entries = || list.iter(&self.links).map(|slot| self.entries[slot as usize]);
            assert!(entries().all(|entry| entry.list == number));
            assert_eq!(
                entries().map(|entry| u64::from(entry.bytes)).sum::<u64>(),
                self.bytes[number]
            );
            let ghosts = self.ghosts.lists[number].values();
            assert_eq!(
                ghosts.map(|ghost| u64::from(ghost.1)).sum::<u64>(),
                self.ghosts.bytes[number]
            );
        }
    }
}
