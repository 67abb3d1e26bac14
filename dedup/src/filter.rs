//! A blocked Bloom filter: all bits of a key lie in one cache line of 64 bytes.
//!
//! The key's leading bits choose the block and later bits the places within it; SHA-256 is its own hash. Since the
//! block grows with the key, a sorted pass fills the blocks one after the other: a filter of any size is written
//! with one block in memory. For the same reason, merging neighbours halves a filter that must shrink.

use crate::entry::{array, prefix, share_of};
use alloc::vec::Vec;
use tombolo_base::Fingerprint;

pub(crate) const BLOCK_BYTES: usize = 64;
const BLOCK_BITS: u64 = 512;
/// Nine bits choose a place in a block; fourteen such choices fit the 16 bytes of the fingerprint set aside.
const PROBES_MAX: u32 = 14;
/// Block counts are multiples of this, so that a filter can be halved six times.
const BLOCKS_MULTIPLE: u64 = 64;

/// One cache line.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block([u64; 8]);

impl Block {
    fn places(key: &Fingerprint, probes: u32) -> impl Iterator<Item = (usize, u64)> {
        let mut choice = u128::from_le_bytes(array(&key.0[8..24]));
        (0..probes).map(move |_| {
            let place = (choice & 511) as usize;
            choice >>= 9;
            (place >> 6, 1 << (place & 63))
        })
    }

    fn insert(&mut self, key: &Fingerprint, probes: u32) {
        for (word, bit) in Self::places(key, probes) {
            self.0[word] |= bit;
        }
    }

    fn contains(&self, key: &Fingerprint, probes: u32) -> bool {
        Self::places(key, probes).all(|(word, bit)| self.0[word] & bit != 0)
    }

    fn bytes(&self) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        for (slot, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn join(&mut self, bytes: &[u8]) {
        for (word, slot) in self.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *word |= u64::from_le_bytes(array(slot));
        }
    }
}

/// Size of a filter and bits set per key. No blocks: no filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub block_count: u64,
    pub probes: u32,
}

impl Shape {
    /// At most `bytes_max`, and no more than `bits16_per_entry`, in sixteenths of a bit, asks for.
    pub fn plan(entry_count: u64, bits16_per_entry: u64, bytes_max: u64) -> Self {
        let wanted = (entry_count * bits16_per_entry).div_ceil(16 * BLOCK_BITS);
        let wanted = wanted.next_multiple_of(BLOCKS_MULTIPLE);
        let affordable = bytes_max / BLOCK_BYTES as u64 / BLOCKS_MULTIPLE * BLOCKS_MULTIPLE;
        let block_count = wanted.min(affordable);
        // The optimum is ln 2 = 0.693 per bit; a filter for no entry sets nothing, so any number will do.
        let bits16 = (16 * block_count * BLOCK_BITS / entry_count.max(1)).min(16 * 20);
        let probes = (bits16 * 693).div_ceil(16_000) as u32;
        Self {
            block_count,
            probes: probes.clamp(1, PROBES_MAX),
        }
    }

    pub fn bytes(self) -> u64 {
        self.block_count * BLOCK_BYTES as u64
    }

    /// What [`Shape::plan`] may have made.
    pub fn is_valid(self) -> bool {
        self.block_count.is_multiple_of(BLOCKS_MULTIPLE) && (1..=PROBES_MAX).contains(&self.probes)
    }

    /// The size after such folding; 0 when there is no filter, or none that fits.
    pub fn folded_bytes(self, bytes_max: u64) -> u64 {
        self.fold_for(bytes_max).map_or(0, |fold| self.bytes() / fold)
    }

    /// How many neighbouring blocks must be joined to fit `bytes_max`; `None` when even 64 do not.
    pub fn fold_for(self, bytes_max: u64) -> Option<u64> {
        (0..=6)
            .map(|halvings| 1 << halvings)
            .find(|fold| self.bytes() / fold <= bytes_max)
    }
}

/// The filter of one run, in memory.
#[derive(Debug)]
pub(crate) struct Filter {
    blocks: Vec<Block>,
    probes: u32,
}

impl Filter {
    /// False: the run does not hold the key. True: it may.
    pub fn may_contain(&self, key: &Fingerprint) -> bool {
        let block = share_of(prefix(key), self.blocks.len() as u64) as usize;
        self.blocks[block].contains(key, self.probes)
    }

    pub fn bytes(&self) -> u64 {
        (self.blocks.len() * BLOCK_BYTES) as u64
    }
}

/// Takes a filter's blocks in order, joining each `fold` neighbours.
pub(crate) struct FilterReader {
    filter: Filter,
    fold: u64,
    blocks_read: u64,
}

impl FilterReader {
    pub fn new(shape: Shape, fold: u64) -> Self {
        let filter = Filter {
            blocks: Vec::with_capacity((shape.block_count / fold) as usize),
            probes: shape.probes,
        };
        Self {
            filter,
            fold,
            blocks_read: 0,
        }
    }

    /// `bytes` is a whole number of blocks.
    pub fn push(&mut self, bytes: &[u8]) {
        for slot in bytes.chunks_exact(BLOCK_BYTES) {
            if self.blocks_read.is_multiple_of(self.fold) {
                self.filter.blocks.push(Block::default());
            }
            if let Some(block) = self.filter.blocks.last_mut() {
                block.join(slot);
            }
            self.blocks_read += 1;
        }
    }

    pub fn finish(self) -> Filter {
        self.filter
    }
}

/// Builds a filter from keys in ascending order, one block at a time.
#[derive(Debug)]
pub(crate) struct FilterWriter {
    shape: Shape,
    block: Block,
    blocks_done: u64,
}

impl FilterWriter {
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            block: Block::default(),
            blocks_done: 0,
        }
    }

    /// The next finished block that precedes `key`'s; call until `None`, then insert the key.
    pub fn finished_before(&mut self, key: &Fingerprint) -> Option<[u8; BLOCK_BYTES]> {
        (self.blocks_done < share_of(prefix(key), self.shape.block_count)).then(|| self.take())
    }

    pub fn insert(&mut self, key: &Fingerprint) {
        self.block.insert(key, self.shape.probes);
    }

    /// The next block once all keys are in; call until `None`.
    pub fn finished(&mut self) -> Option<[u8; BLOCK_BYTES]> {
        (self.blocks_done < self.shape.block_count).then(|| self.take())
    }

    fn take(&mut self) -> [u8; BLOCK_BYTES] {
        self.blocks_done += 1;
        core::mem::take(&mut self.block).bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random_keys;

    fn build(keys: &[Fingerprint], bits_per_entry: u64, fold: u64) -> Filter {
        let shape = Shape::plan(keys.len() as u64, 16 * bits_per_entry, u64::MAX);
        let mut writer = FilterWriter::new(shape);
        let mut reader = FilterReader::new(shape, fold);
        for key in keys {
            while let Some(block) = writer.finished_before(key) {
                reader.push(&block);
            }
            writer.insert(key);
        }
        while let Some(block) = writer.finished() {
            reader.push(&block);
        }
        assert_eq!(reader.blocks_read, shape.block_count);
        reader.finish()
    }

    fn false_positives_permille(filter: &Filter, seed: u64) -> usize {
        let absent = random_keys(seed, 100_000);
        absent.iter().filter(|key| filter.may_contain(key)).count() / 100
    }

    #[test]
    fn every_key_is_found_and_few_others_are() {
        let keys = random_keys(1, 50_000);
        for (bits, fold, permille) in [(12, 1, 2..=7), (8, 1, 12..=30), (12, 2, 60..=120)] {
            let filter = build(&keys, bits, fold);
            assert!(keys.iter().all(|key| filter.may_contain(key)));
            let found = false_positives_permille(&filter, 2);
            assert!(permille.contains(&found), "{bits} bits, fold {fold}: {found} permille");
        }
    }

    #[test]
    fn shape_keeps_to_its_bytes() {
        assert_eq!(Shape::plan(1_000_000, 16 * 12, 0).block_count, 0);
        let shape = Shape::plan(1_000_000, 16 * 12, 500_000);
        assert!(shape.bytes() <= 500_000 && shape.bytes() > 490_000);
        assert_eq!(shape.fold_for(300_000), Some(2));
        assert_eq!(shape.fold_for(1_000), None);
    }
}
