//! Which slots a prefetch has filled, and of those that nobody has read yet, on whose word. Two bits a slot, 48 bytes
//! an unread block.
//!
//! It owns the prefetch_outcome of prefetched blocks from their arrival to their first read or eviction. What is still on its way is
//! the affair of `fetch`.

use alloc::{vec, vec::Vec};
use hashbrown::HashMap;
use tombolo_base::{Lcbn, VolumeId};
use tombolo_prefetch::{BLOCKS_MAX, Class, PrefetchOutcome, Tag};

/// A suggested block: its address as the prefetcher names it, and the prefetcher's note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub volume: VolumeId,
    pub block: u64,
    pub class: Class,
    pub tag: Tag,
}

#[derive(Clone, Copy, Debug)]
struct Unread {
    mark: Mark,
    /// It has had its second chance.
    aged: bool,
}

/// What reading a slot means to the account of prefetched blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// A prefetch brought the block.
    pub brought: bool,
    /// Nobody had read it since.
    pub first: Option<Mark>,
}

#[derive(Debug)]
pub struct Marks {
    brought: Vec<u64>,
    is_unread: Vec<u64>,
    unread: HashMap<u32, Unread>,
    /// Aged and evicted blocks that the prefetcher has not heard of yet.
    prefetch_outcomes: Vec<(Mark, PrefetchOutcome)>,
}

impl Marks {
    pub fn new(slot_count: u32) -> Self {
        let words = slot_count.div_ceil(64) as usize;
        Self {
            brought: vec![0; words],
            is_unread: vec![0; words],
            unread: HashMap::new(),
            prefetch_outcomes: Vec::new(),
        }
    }

    /// A prefetch has brought a block that nobody asked for meanwhile.
    pub fn put_unread(&mut self, slot: Lcbn, mark: Mark) {
        set(&mut self.brought, slot);
        set(&mut self.is_unread, slot);
        self.unread.insert(slot.0, Unread { mark, aged: false });
    }

    /// A prefetch has brought a block that a reader was waiting for by then.
    pub fn put_read(&mut self, slot: Lcbn) {
        set(&mut self.brought, slot);
    }

    pub fn is_unread(&self, slot: Lcbn) -> bool {
        is_set(&self.is_unread, slot)
    }

    pub fn was_prefetched(&self, slot: Lcbn) -> bool {
        is_set(&self.brought, slot)
    }

    pub fn read(&mut self, slot: Lcbn) -> Touched {
        if !is_set(&self.brought, slot) {
            return Touched::default();
        }
        Touched {
            brought: true,
            first: self.forget_unread(slot).map(|unread| unread.mark),
        }
    }

    /// The block in the slot is evicted.
    pub fn evict(&mut self, slot: Lcbn) {
        if let Some(Unread { mark, aged }) = self.forget_unread(slot) {
            self.prefetch_outcomes.push((mark, PrefetchOutcome::Evicted { aged }));
        }
        unset(&mut self.brought, slot);
    }

    /// The block leaves the slot for another reason.
    pub fn leave(&mut self, slot: Lcbn) {
        self.forget_unread(slot);
        unset(&mut self.brought, slot);
    }

    /// Whether the slot is to stay once more: it holds a sequential block that is unread and has not been spared yet.
    pub fn spare(&mut self, slot: Lcbn) -> bool {
        if !self.is_unread(slot) {
            return false;
        }
        let Some(unread) = self.unread.get_mut(&slot.0) else {
            return false;
        };
        if unread.aged || unread.mark.class != Class::Sequential {
            return false;
        }
        unread.aged = true;
        self.prefetch_outcomes.push((unread.mark, PrefetchOutcome::Aged));
        true
    }

    /// Forgets everything: the marks are of another prefetcher than the one that will be told.
    pub fn clear(&mut self) {
        self.brought.fill(0);
        self.is_unread.fill(0);
        self.unread.clear();
        self.prefetch_outcomes.clear();
    }

    /// What the prefetcher has not heard of yet, into an empty list.
    pub fn take_prefetch_outcomes(&mut self, prefetch_outcomes: &mut Vec<(Mark, PrefetchOutcome)>) {
        core::mem::swap(&mut self.prefetch_outcomes, prefetch_outcomes);
    }

    pub fn has_prefetch_outcomes(&self) -> bool {
        !self.prefetch_outcomes.is_empty()
    }

    pub fn unread_count(&self) -> usize {
        self.unread.len()
    }

    pub fn memory_bytes(&self) -> u64 {
        let entry_bytes = size_of::<(u32, Unread)>() + 1;
        ((self.brought.len() + self.is_unread.len()) * 8 + self.unread.capacity() * entry_bytes) as u64
    }

    fn forget_unread(&mut self, slot: Lcbn) -> Option<Unread> {
        if !self.is_unread(slot) {
            return None;
        }
        unset(&mut self.is_unread, slot);
        self.unread.remove(&slot.0)
    }

    /// Checks what must always hold; for tests. `is_clean` says whether a slot holds a clean block.
    pub fn check_invariants(&self, is_clean: impl Fn(Lcbn) -> bool) {
        let count = |words: &[u64]| words.iter().map(|word| word.count_ones() as usize).sum::<usize>();
        assert_eq!(count(&self.is_unread), self.unread.len());
        for slot in self.unread.keys().copied().map(Lcbn) {
            assert!(self.is_unread(slot) && is_set(&self.brought, slot));
            assert!(
                is_clean(slot),
                "slot {} is marked as prefetched and is not clean",
                slot.0
            );
        }
    }
}

fn is_set(words: &[u64], slot: Lcbn) -> bool {
    words[(slot.0 / 64) as usize] & (1 << (slot.0 % 64)) != 0
}

fn set(words: &mut [u64], slot: Lcbn) {
    words[(slot.0 / 64) as usize] |= 1 << (slot.0 % 64);
}

fn unset(words: &mut [u64], slot: Lcbn) {
    words[(slot.0 / 64) as usize] &= !(1 << (slot.0 % 64));
}

/// Where a block lies, as one number for the policies: blocks of different volumes are far apart. A block whose place is
/// not known, or does not count, has its PVBN in the space of PVBNs.
pub fn address(volume: VolumeId, block: u64) -> u64 {
    let spread = volume.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !(BLOCKS_MAX - 1);
    spread | (block & (BLOCKS_MAX - 1))
}

/// Whether the right block follows the left one in the same suggestion.
pub fn continues(left: &Mark, right: &Mark) -> bool {
    left.volume == right.volume && left.tag == right.tag && left.class == right.class && left.block + 1 == right.block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(block: u64, class: Class) -> Mark {
        Mark {
            volume: VolumeId(1),
            block,
            class,
            tag: Tag(7),
        }
    }

    #[test]
    fn a_block_is_used_once_and_counted_while_it_stays() {
        let mut marks = Marks::new(100);
        let slot = Lcbn(70);
        assert_eq!(marks.read(slot), Touched::default());
        marks.put_unread(slot, mark(5, Class::History));
        let first = marks.read(slot);
        assert_eq!(first.first, Some(mark(5, Class::History)));
        let again = Touched {
            brought: true,
            first: None,
        };
        assert_eq!(marks.read(slot), again);
        marks.evict(slot);
        assert!(!marks.has_prefetch_outcomes());
        assert_eq!(marks.read(slot), Touched::default());
    }

    #[test]
    fn sequential_blocks_are_spared_once() {
        let mut marks = Marks::new(64);
        marks.put_unread(Lcbn(1), mark(1, Class::Sequential));
        marks.put_unread(Lcbn(2), mark(2, Class::History));
        assert!(!marks.spare(Lcbn(0)) && !marks.spare(Lcbn(2)));
        assert!(marks.spare(Lcbn(1)) && !marks.spare(Lcbn(1)));
        marks.evict(Lcbn(1));
        marks.evict(Lcbn(2));
        let mut prefetch_outcomes = Vec::new();
        marks.take_prefetch_outcomes(&mut prefetch_outcomes);
        let expected = [
            (mark(1, Class::Sequential), PrefetchOutcome::Aged),
            (mark(1, Class::Sequential), PrefetchOutcome::Evicted { aged: true }),
            (mark(2, Class::History), PrefetchOutcome::Evicted { aged: false }),
        ];
        assert_eq!(prefetch_outcomes, expected);
        marks.check_invariants(|_| true);
    }
}
