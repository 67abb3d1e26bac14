//! A map of fixed size from addresses to small values: sets of four, in each of which the entry that was not used for
//! longest gives way. All memory is taken at the start; nothing iterates over it, and equal calls give equal answers.
//!
//! Most addresses that are asked for are not inside. A byte of the hash of each entry, four of a set beside each other, says
//! so without a look at the entries, which lie in many times as much memory.

use alloc::vec::Vec;
use tombolo_base::VolumeId;

const WAYS: usize = 4;

/// Where there is no entry.
const EMPTY: u8 = 0;

/// A block of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    pub volume: u64,
    pub block: u64,
}

impl Address {
    pub(crate) fn new(volume: VolumeId, block: u64) -> Self {
        Self {
            volume: volume.0,
            block,
        }
    }

    /// Well mixed, so that any of its bits may choose a bucket.
    pub(crate) fn hash(self) -> u64 {
        let mut mixed = self.block ^ self.volume.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry<V> {
    address: Address,
    /// When it was used last; zero: it is not inside.
    used: u64,
    value: V,
}

#[derive(Debug)]
pub(crate) struct Table<V> {
    /// Of each set.
    tags: Vec<[u8; WAYS]>,
    entries: Vec<Entry<V>>,
    uses: u64,
    len: usize,
}

impl<V: Copy + Default> Table<V> {
    /// Room for at least `capacity` entries, rounded up to a power of two.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.next_power_of_two().max(WAYS);
        Self {
            tags: alloc::vec![[EMPTY; WAYS]; capacity / WAYS],
            entries: alloc::vec![Entry::default(); capacity],
            uses: 0,
            len: 0,
        }
    }

    /// Room for so many entries, within bounds for sizes that follow from a cache's.
    pub(crate) fn bounded(entries: u64) -> Self {
        Self::new(entries.clamp(64, 1 << 20) as usize)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        self.entries.len() * (size_of::<Entry<V>>() + 1)
    }

    /// The set of an address, and the tag that it has there.
    fn set(&self, address: Address) -> (usize, u8) {
        let hash = address.hash();
        let tag = (hash >> 56) as u8;
        (hash as usize & (self.tags.len() - 1), tag.max(EMPTY + 1))
    }

    fn find(&self, address: Address) -> Option<usize> {
        let (set, tag) = self.set(address);
        let mut ways = (set * WAYS..).zip(self.tags[set]);
        ways.find(|(at, found)| *found == tag && self.entries[*at].address == address)
            .map(|(at, _)| at)
    }

    /// The value under an address, which counts as a use of it.
    pub(crate) fn get(&mut self, address: Address) -> Option<&mut V> {
        self.uses += 1;
        let at = self.find(address)?;
        let entry = &mut self.entries[at];
        entry.used = self.uses;
        Some(&mut entry.value)
    }

    /// How many calls ago an address was used, which is no use of it.
    pub(crate) fn age(&self, address: Address) -> Option<u64> {
        self.find(address).map(|at| self.uses - self.entries[at].used)
    }

    /// Sets the value under an address and returns what had to go for it.
    pub(crate) fn insert(&mut self, address: Address, value: V) -> Option<(Address, V)> {
        if let Some(present) = self.get(address) {
            *present = value;
            return None;
        }
        let used = self.uses;
        let (set, tag) = self.set(address);
        let ways = &mut self.entries[set * WAYS..][..WAYS];
        let (way, entry) = ways.iter_mut().enumerate().min_by_key(|(_, entry)| entry.used)?;
        let lost = (entry.used > 0).then_some((entry.address, entry.value));
        *entry = Entry { address, used, value };
        self.tags[set][way] = tag;
        self.len += usize::from(lost.is_none());
        lost
    }

    pub(crate) fn remove(&mut self, address: Address) -> Option<V> {
        let at = self.find(address)?;
        self.tags[at / WAYS][at % WAYS] = EMPTY;
        self.entries[at].used = 0;
        self.len -= 1;
        Some(self.entries[at].value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against a map: what is inside is right, and only a full set loses anything, its longest unused.
        #[test]
        fn it_is_a_map_that_forgets(calls in prop::collection::vec((0u8..3, 0u64..40), 1..300)) {
            let mut table = Table::new(16);
            let mut model: BTreeMap<u64, (u32, usize)> = BTreeMap::new();
            for (time, (call, block)) in calls.into_iter().enumerate() {
                let address = Address { volume: 1, block };
                match call {
                    0 => {
                        let value = time as u32;
                        let lost = table.insert(address, value);
                        let set = |block: u64| Address { volume: 1, block }.hash() as usize & 3;
                        let mates: Vec<u64> = model.keys().copied().filter(|b| set(*b) == set(block)).collect();
                        let expected = (!model.contains_key(&block) && mates.len() == WAYS)
                            .then(|| mates.into_iter().min_by_key(|b| model[b].1).unwrap());
                        prop_assert_eq!(lost.map(|(address, _)| address.block), expected);
                        if let Some(gone) = expected {
                            prop_assert_eq!(lost.unwrap().1, model.remove(&gone).unwrap().0);
                        }
                        model.insert(block, (value, time));
                    }
                    1 => {
                        prop_assert_eq!(table.get(address).copied(), model.get(&block).map(|entry| entry.0));
                        if let Some(entry) = model.get_mut(&block) {
                            entry.1 = time;
                        }
                    }
                    _ => prop_assert_eq!(table.remove(address), model.remove(&block).map(|entry| entry.0)),
                }
                prop_assert_eq!(table.len(), model.len());
            }
        }
    }
}
