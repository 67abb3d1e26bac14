//! From a key to the number of the node that holds it: open addressing with linear probing over node numbers.
//!
//! Deletion shifts later entries back, so there are no tombstones and never a pause to clean them up. The keys
//! themselves lie with the nodes, in a slice that every call is given. 4 bytes an entry at three quarters' load.

use alloc::{vec, vec::Vec};

const EMPTY: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct KeyIndex {
    table: Vec<u32>,
    len: usize,
}

impl KeyIndex {
    /// Room for `keys` keys; more make the table grow.
    pub fn with_capacity(keys: usize) -> Self {
        Self {
            table: vec![EMPTY; keys + keys / 3 + 4],
            len: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn bytes(&self) -> usize {
        self.table.capacity() * size_of::<u32>()
    }

    pub fn find(&self, keys: &[u64], key: u64) -> Option<u32> {
        let mut place = self.home(key);
        loop {
            match self.table[place] {
                EMPTY => return None,
                node if keys[node as usize] == key => return Some(node),
                _ => place = self.next(place),
            }
        }
    }

    /// The node's key MUST NOT be inside yet.
    pub fn insert(&mut self, keys: &[u64], node: u32) {
        if (self.len + 1) * 4 > self.table.len() * 3 {
            self.grow(keys);
        }
        self.put(keys, node);
        self.len += 1;
    }

    /// The node MUST be inside.
    pub fn remove(&mut self, keys: &[u64], node: u32) {
        let mut hole = self.home(keys[node as usize]);
        while self.table[hole] != node {
            assert!(self.table[hole] != EMPTY, "node {node} is not indexed");
            hole = self.next(hole);
        }
        let mut place = self.next(hole);
        while self.table[place] != EMPTY {
            let home = self.home(keys[self.table[place] as usize]);
            // The entry may move back to the hole unless its home lies cyclically behind the hole.
            if self.distance(home, place) >= self.distance(hole, place) {
                self.table[hole] = self.table[place];
                hole = place;
            }
            place = self.next(place);
        }
        self.table[hole] = EMPTY;
        self.len -= 1;
    }

    fn put(&mut self, keys: &[u64], node: u32) {
        let mut place = self.home(keys[node as usize]);
        while self.table[place] != EMPTY {
            debug_assert!(
                keys[self.table[place] as usize] != keys[node as usize],
                "a key is indexed twice"
            );
            place = self.next(place);
        }
        self.table[place] = node;
    }

    fn grow(&mut self, keys: &[u64]) {
        let larger = vec![EMPTY; self.table.len() * 2];
        let old = core::mem::replace(&mut self.table, larger);
        for node in old.into_iter().filter(|node| *node != EMPTY) {
            self.put(keys, node);
        }
    }

    fn home(&self, key: u64) -> usize {
        ((u128::from(fold(key)) * self.table.len() as u128) >> 64) as usize
    }

    fn next(&self, place: usize) -> usize {
        if place + 1 == self.table.len() { 0 } else { place + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from {
            to - from
        } else {
            to + self.table.len() - from
        }
    }
}

/// Spreads keys well enough for a table whose chains are short: neighbours lie far apart, and all bits count. One
/// multiplication, which every access waits for.
fn fold(key: u64) -> u64 {
    let product = u128::from(key) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

/// Spreads keys that differ anywhere over all 64 bits (the finaliser of SplitMix64).
pub(crate) fn mix(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Reference model: an ordered map. Few distinct keys, so that chains collide, wrap and close.
        #[test]
        fn equals_a_map(steps in prop::collection::vec((0u64..40, any::<bool>()), 0..400), room in 0usize..40) {
            let mut index = KeyIndex::with_capacity(room);
            let keys: Vec<u64> = (0..40).map(|key| key * key * 977).collect();
            let mut model = BTreeMap::new();
            for (node, add) in steps {
                let key = keys[node as usize];
                match (add, model.contains_key(&key)) {
                    (true, false) => {
                        index.insert(&keys, node as u32);
                        model.insert(key, node as u32);
                    }
                    (false, true) => {
                        index.remove(&keys, node as u32);
                        model.remove(&key);
                    }
                    _ => {}
                }
                prop_assert_eq!(index.len(), model.len());
                for key in &keys {
                    prop_assert_eq!(index.find(&keys, *key), model.get(key).copied());
                }
            }
        }
    }
}
