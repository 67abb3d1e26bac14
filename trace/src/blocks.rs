//! A set of blocks, a bit each, for counting what a trace touches.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

const PAGE_BLOCKS: u64 = 256;

/// Blocks by volume and number.
#[derive(Clone, Debug, Default)]
pub struct BlockSet {
    pages: HashMap<(u64, u64), [u64; 4]>,
    len: u64,
}

impl BlockSet {
    /// Blocks inside.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// No block is inside.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the blocks of a range; returns how many are new. The range MUST NOT pass the end of 64 bits.
    pub fn insert(&mut self, volume: u64, first: u64, count: u64) -> u64 {
        self.insert_unless(volume, first, count, None)
    }

    /// As [`Self::insert`], but without the blocks that `other` holds.
    pub fn insert_unless(&mut self, volume: u64, first: u64, count: u64, other: Option<&Self>) -> u64 {
        let mut added = 0;
        let mut block = first;
        let mut left = count;
        while left > 0 {
            let (page, start) = (block / PAGE_BLOCKS, block % PAGE_BLOCKS);
            let part = left.min(PAGE_BLOCKS - start);
            let held = other.and_then(|other| other.pages.get(&(volume, page)));
            let mut mask = mask(start, part);
            if let Some(held) = held {
                mask.iter_mut().zip(held).for_each(|(mask, held)| *mask &= !held);
            }
            if mask != [0; 4] {
                let bits = self.pages.entry((volume, page)).or_default();
                for (bits, mask) in bits.iter_mut().zip(mask) {
                    added += u64::from((mask & !*bits).count_ones());
                    *bits |= mask;
                }
            }
            block += part;
            left -= part;
        }
        self.len += added;
        added
    }

    /// Whether the block is inside.
    pub fn contains(&self, volume: u64, block: u64) -> bool {
        let (page, bit) = (block / PAGE_BLOCKS, block % PAGE_BLOCKS);
        let bits = self.pages.get(&(volume, page));
        bits.is_some_and(|bits| bits[(bit / 64) as usize] & 1 << (bit % 64) != 0)
    }

    /// Takes a block out; false when it is not inside.
    pub fn remove(&mut self, volume: u64, block: u64) -> bool {
        let (page, bit) = (block / PAGE_BLOCKS, block % PAGE_BLOCKS);
        let Entry::Occupied(mut entry) = self.pages.entry((volume, page)) else {
            return false;
        };
        let word = &mut entry.get_mut()[(bit / 64) as usize];
        let was_inside = *word & 1 << (bit % 64) != 0;
        *word &= !(1 << (bit % 64));
        self.len -= u64::from(was_inside);
        was_inside
    }

    /// The aligned groups of 256 blocks with a block inside, by volume and number, each with its bits; ascending.
    #[expect(clippy::disallowed_methods, reason = "sorted before it is used")]
    pub fn pages(&self) -> Vec<((u64, u64), [u64; 4])> {
        let mut pages: Vec<_> = self.pages.iter().map(|(place, bits)| (*place, *bits)).collect();
        pages.retain(|(_, bits)| *bits != [0; 4]);
        pages.sort_unstable_by_key(|(place, _)| *place);
        pages
    }
}

fn mask(start: u64, count: u64) -> [u64; 4] {
    let end = start + count;
    let mut mask = [0; 4];
    for (index, word) in mask.iter_mut().enumerate() {
        let base = index as u64 * 64;
        let (from, to) = (start.clamp(base, base + 64) - base, end.clamp(base, base + 64) - base);
        if from < to {
            *word = (u64::MAX >> (64 - (to - from))) << from;
        }
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn equals_a_set(ranges in prop::collection::vec((0u64..3, 0u64..900, 0u64..600, any::<bool>()), 0..30)) {
            let (mut set, mut model, mut other, mut others) = <(BlockSet, BTreeSet<_>, BlockSet, BTreeSet<_>)>::default();
            for (volume, first, count, into_other) in ranges {
                let blocks = (first..first + count).map(|block| (volume, block));
                if into_other {
                    other.insert(volume, first, count);
                    others.extend(blocks);
                } else {
                    let before = model.len();
                    model.extend(blocks.filter(|place| !others.contains(place)));
                    let added = set.insert_unless(volume, first, count, Some(&other));
                    prop_assert_eq!(added as usize, model.len() - before);
                }
                if model.remove(&(volume, first)) {
                    prop_assert!(set.contains(volume, first) && set.remove(volume, first));
                }
                prop_assert!(!set.remove(volume, first));
            }
            prop_assert_eq!(set.len() as usize, model.len());
            let blocks = set.pages().into_iter().flat_map(|((volume, page), bits)| {
                let inside = (0..256u64).filter(move |bit| bits[(bit / 64) as usize] & 1 << (bit % 64) != 0);
                inside.map(move |bit| (volume, page * 256 + bit))
            });
            prop_assert_eq!(blocks.collect::<Vec<_>>(), model.into_iter().collect::<Vec<_>>());
        }
    }
}
