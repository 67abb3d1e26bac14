//! Count-min sketch of how often blocks were used lately: four 4-bit counters a key, all within 64 bytes of memory, so
//! that an estimate costs one cache miss. Counters are halved after ten uses per block of the cache.

use crate::key_index::mix;
use alloc::{vec, vec::Vec};
use tombolo_base::Pvbn;

const ROWS: u32 = 4;
const WORDS_PER_GROUP: usize = 8;
/// 16 counters a word; a quarter of a word's worth a block gives 4 bytes a block.
const BLOCKS_PER_GROUP: u32 = 16;
const COUNTER_MAX: u64 = 15;
const USES_PER_BLOCK: u64 = 10;
/// The lowest three bits of every counter.
const HALVED_MASK: u64 = 0x7777_7777_7777_7777;

#[derive(Debug)]
pub(crate) struct Sketch {
    words: Vec<u64>,
    groups: u64,
    uses: u64,
    uses_max: u64,
}

impl Sketch {
    pub fn new(blocks: u32) -> Self {
        let groups = blocks.div_ceil(BLOCKS_PER_GROUP).max(1);
        Self {
            words: vec![0; groups as usize * WORDS_PER_GROUP],
            groups: u64::from(groups),
            uses: 0,
            uses_max: u64::from(blocks.max(1)) * USES_PER_BLOCK,
        }
    }

    pub fn count(&mut self, block: Pvbn) {
        let (group, bits) = self.place(block);
        for row in 0..ROWS {
            let (word, shift) = counter(bits, row);
            let word = &mut self.words[group + word];
            if (*word >> shift) & COUNTER_MAX < COUNTER_MAX {
                *word += 1 << shift;
            }
        }
        self.uses += 1;
        if self.uses >= self.uses_max {
            self.uses /= 2;
            for word in &mut self.words {
                *word = (*word >> 1) & HALVED_MASK;
            }
        }
    }

    pub fn estimate(&self, block: Pvbn) -> u64 {
        let (group, bits) = self.place(block);
        let read = |row| {
            let (word, shift) = counter(bits, row);
            (self.words[group + word] >> shift) & COUNTER_MAX
        };
        (0..ROWS).map(read).min().unwrap_or(0)
    }

    pub fn bytes(&self) -> usize {
        self.words.capacity() * 8
    }

    /// The group's first word, and bits that choose counters within it.
    fn place(&self, block: Pvbn) -> (usize, u64) {
        let hash = mix(block.0);
        let group = ((u128::from(hash) * u128::from(self.groups)) >> 64) as usize;
        (group * WORDS_PER_GROUP, mix(hash))
    }
}

/// Each row has two words of the group: 32 counters, chosen by five bits.
fn counter(bits: u64, row: u32) -> (usize, u32) {
    let chosen = (bits >> (row * 8)) & 31;
    ((2 * u64::from(row) + chosen / 16) as usize, (chosen % 16 * 4) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// A count-min sketch never underestimates while nothing saturates or is halved.
        #[test]
        fn never_below_the_count(blocks in prop::collection::vec(0u64..50, 0..400)) {
            let mut sketch = Sketch::new(64);
            let mut counts = BTreeMap::new();
            for block in blocks {
                sketch.count(Pvbn(block));
                *counts.entry(block).or_insert(0u64) += 1;
                prop_assert!(sketch.estimate(Pvbn(block)) >= counts[&block].min(COUNTER_MAX));
            }
        }
    }

    #[test]
    fn few_keys_are_told_apart() {
        let mut sketch = Sketch::new(1000);
        (0..100).for_each(|block| (0..block % 10).for_each(|_| sketch.count(Pvbn(block))));
        let exact = (0..100)
            .filter(|block| sketch.estimate(Pvbn(*block)) == block % 10)
            .count();
        assert!(exact >= 95, "{exact} of 100");
    }

    #[test]
    fn counters_are_halved() {
        let mut sketch = Sketch::new(16);
        (0..12).for_each(|_| sketch.count(Pvbn(7)));
        (0..160 - 12).for_each(|_| sketch.count(Pvbn(8)));
        assert!(sketch.estimate(Pvbn(7)) <= 7);
        assert_eq!(sketch.estimate(Pvbn(8)), 7);
    }
}
