//! Which slots a prefetch has filled, and of those that nobody has read yet, on whose word. Two bits a slot, 48 bytes
//! an unread block.
//!
//! It knows what becomes of prefetched blocks from their arrival to their first read or eviction. What is still on its way
//! is the affair of `fetch`.

use alloc::{vec, vec::Vec};
use hashbrown::HashMap;
use tombolo_base::{Lcbn, VolumeId};
use tombolo_prefetch::{BLOCKS_MAX, Class, PrefetchOutcome, Tag};

/// A suggested block: its address as the prefetcher names it, and the prefetcher's note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefetchTag {
    pub volume: VolumeId,
    pub block: u64,
    pub class: Class,
    pub tag: Tag,
}

#[derive(Clone, Copy, Debug)]
struct Unread {
    prefetch_tag: PrefetchTag,
    /// It has had its second chance.
    aged: bool,
}

/// What reading a slot means to the account of prefetched blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// A prefetch brought the block.
    pub brought: bool,
    /// Nobody had read it since.
    pub first: Option<PrefetchTag>,
}

#[derive(Debug)]
pub struct Prefetched {
    brought: Vec<u64>,
    is_unread: Vec<u64>,
    unread: HashMap<u32, Unread>,
    /// Aged and evicted blocks that the prefetcher has not been told of yet.
    prefetch_outcomes: Vec<(PrefetchTag, PrefetchOutcome)>,
}

impl Prefetched {
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
    pub fn put_unread(&mut self, slot: Lcbn, prefetch_tag: PrefetchTag) {
        set(&mut self.brought, slot);
        set(&mut self.is_unread, slot);
        self.unread.insert(
            slot.0,
            Unread {
                prefetch_tag,
                aged: false,
            },
        );
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
            first: self.forget_unread(slot).map(|unread| unread.prefetch_tag),
        }
    }

    /// The block in the slot is evicted.
    pub fn evict(&mut self, slot: Lcbn) {
        if let Some(Unread { prefetch_tag, aged }) = self.forget_unread(slot) {
            self.prefetch_outcomes
                .push((prefetch_tag, PrefetchOutcome::Evicted { aged }));
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
        if unread.aged || unread.prefetch_tag.class != Class::Sequential {
            return false;
        }
        unread.aged = true;
        self.prefetch_outcomes
            .push((unread.prefetch_tag, PrefetchOutcome::Aged));
        true
    }

    /// Forgets everything: the tags are of another prefetcher than the one that will be told.
    pub fn clear(&mut self) {
        self.brought.fill(0);
        self.is_unread.fill(0);
        self.unread.clear();
        self.prefetch_outcomes.clear();
    }

    /// What the prefetcher has not been told of yet, into an empty list.
    pub fn take_prefetch_outcomes(&mut self, prefetch_outcomes: &mut Vec<(PrefetchTag, PrefetchOutcome)>) {
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
        #[expect(clippy::disallowed_methods, reason = "all of them are looked at, in any order")]
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
pub fn continues(left: &PrefetchTag, right: &PrefetchTag) -> bool {
    left.volume == right.volume && left.tag == right.tag && left.class == right.class && left.block + 1 == right.block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefetch_tag(block: u64, class: Class) -> PrefetchTag {
        PrefetchTag {
            volume: VolumeId(1),
            block,
            class,
            tag: Tag(7),
        }
    }

    #[test]
    fn a_block_is_used_once_and_counted_while_it_stays() {
        let mut prefetched = Prefetched::new(100);
        let slot = Lcbn(70);
        assert_eq!(prefetched.read(slot), Touched::default());
        prefetched.put_unread(slot, prefetch_tag(5, Class::History));
        let first = prefetched.read(slot);
        assert_eq!(first.first, Some(prefetch_tag(5, Class::History)));
        let again = Touched {
            brought: true,
            first: None,
        };
        assert_eq!(prefetched.read(slot), again);
        prefetched.evict(slot);
        assert!(!prefetched.has_prefetch_outcomes());
        assert_eq!(prefetched.read(slot), Touched::default());
    }

    #[test]
    fn sequential_blocks_are_spared_once() {
        let mut prefetched = Prefetched::new(64);
        prefetched.put_unread(Lcbn(1), prefetch_tag(1, Class::Sequential));
        prefetched.put_unread(Lcbn(2), prefetch_tag(2, Class::History));
        assert!(!prefetched.spare(Lcbn(0)) && !prefetched.spare(Lcbn(2)));
        assert!(prefetched.spare(Lcbn(1)) && !prefetched.spare(Lcbn(1)));
        prefetched.evict(Lcbn(1));
        prefetched.evict(Lcbn(2));
        let mut prefetch_outcomes = Vec::new();
        prefetched.take_prefetch_outcomes(&mut prefetch_outcomes);
        let expected = [
            (prefetch_tag(1, Class::Sequential), PrefetchOutcome::Aged),
            (
                prefetch_tag(1, Class::Sequential),
                PrefetchOutcome::Evicted { aged: true },
            ),
            (
                prefetch_tag(2, Class::History),
                PrefetchOutcome::Evicted { aged: false },
            ),
        ];
        assert_eq!(prefetch_outcomes, expected);
        prefetched.check_invariants(|_| true);
    }
}
