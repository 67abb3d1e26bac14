//! A 4-ary minimum heap over numbered entries, whose ranks may change in place. Equal ranks leave in the order of their
//! stamps. 28 bytes an entry.

use crate::list::NONE;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub value: u64,
    pub stamp: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    rank: Rank,
    id: u32,
}

const ARITY: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Heap {
    entries: Vec<Entry>,
    /// Where each id's entry is; `NONE`: nowhere.
    places: Vec<u32>,
}

impl Heap {
    pub fn with_capacity(ids: usize) -> Self {
        Self {
            entries: Vec::with_capacity(ids),
            places: Vec::with_capacity(ids),
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn peek(&self) -> Option<(u32, Rank)> {
        self.entries.first().map(|entry| (entry.id, entry.rank))
    }

    pub fn rank(&self, id: u32) -> Option<Rank> {
        let place = *self.places.get(id as usize)?;
        (place != NONE).then(|| self.entries[place as usize].rank)
    }

    /// Adds the entry or changes its rank.
    pub fn set(&mut self, id: u32, rank: Rank) {
        if id as usize >= self.places.len() {
            self.places.resize(id as usize + 1, NONE);
        }
        let entry = Entry { rank, id };
        match self.places[id as usize] {
            NONE => {
                self.entries.push(entry);
                self.sift_up(self.entries.len() - 1, entry);
            }
            place => self.settle(place as usize, entry),
        }
    }

    /// The entry MUST be inside.
    pub fn remove(&mut self, id: u32) {
        let place = core::mem::replace(&mut self.places[id as usize], NONE) as usize;
        let last = self.entries.len() - 1;
        let moved = self.entries[last];
        self.entries.pop();
        if place < last {
            self.settle(place, moved);
        }
    }

    /// In no particular order.
    pub fn ids(&self) -> Vec<u32> {
        self.entries.iter().map(|entry| entry.id).collect()
    }

    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.places.capacity() * size_of::<u32>()
    }

    pub fn check(&self) {
        for (place, entry) in self.entries.iter().enumerate() {
            assert_eq!(self.places[entry.id as usize] as usize, place);
            assert!(place == 0 || self.entries[(place - 1) / ARITY].rank <= entry.rank);
        }
        let placed = self.places.iter().filter(|place| **place != NONE).count();
        assert_eq!(placed, self.entries.len());
    }

    fn settle(&mut self, place: usize, entry: Entry) {
        if place > 0 && entry.rank < self.entries[(place - 1) / ARITY].rank {
            self.sift_up(place, entry);
        } else {
            self.sift_down(place, entry);
        }
    }

    fn sift_up(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.entries[parent].rank <= entry.rank {
                break;
            }
            self.put(place, self.entries[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sift_down(&mut self, mut place: usize, entry: Entry) {
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.entries.len());
            let Some(least) = children.min_by_key(|child| self.entries[*child].rank) else {
                break;
            };
            if entry.rank <= self.entries[least].rank {
                break;
            }
            self.put(place, self.entries[least]);
            place = least;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.entries[place] = entry;
        self.places[entry.id as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Reference model: an ordered map searched for its least rank.
        #[test]
        fn equals_a_map(steps in prop::collection::vec((0u32..30, 0u64..12, 0u8..4), 0..300)) {
            let mut heap = Heap::default();
            let mut model = BTreeMap::new();
            for (stamp, (id, value, kind)) in steps.into_iter().enumerate() {
                if kind > 0 {
                    let rank = Rank { value, stamp: stamp as u64 };
                    heap.set(id, rank);
                    model.insert(id, rank);
                } else if model.remove(&id).is_some() {
                    heap.remove(id);
                }
                heap.check();
                let least = model.iter().min_by_key(|(_, rank)| **rank).map(|(id, rank)| (*id, *rank));
                prop_assert_eq!(heap.peek(), least);
                prop_assert_eq!(heap.rank(id), model.get(&id).copied());
                prop_assert_eq!(heap.len(), model.len());
            }
        }
    }
}
