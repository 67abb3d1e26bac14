//! The cache file's slots: what each holds and whether it may be reused, 17 bytes a slot, 4 bytes a cached block for the
//! index from PVBN to slot, and the policy's tables.
//!
//! | state    | holds            | in policy | leaves by                                              |
//! |----------|------------------|-----------|--------------------------------------------------------|
//! | Free     | nothing          | no        | `take`                                                 |
//! | Taken    | a write or fetch | no        | `hold_dirty`, `hold_clean`, `release`                  |
//! | Dirty    | the only copy    | no        | `clean` (uploaded, known durably), `retire` (dead)     |
//! | Clean    | a copy           | yes       | eviction in `take`, `drop_clean`                       |
//! | Corrupt  | a lost block     | no        | `retire`                                               |
//! | Retiring | nothing needed   | no        | `release`, once the journal that says so is durable    |
//!
//! A slot that readers or uploaders hold (`pin`) is never reused before they let go.

use alloc::{boxed::Box, vec, vec::Vec};
use hashbrown::{HashMap, HashTable};
use tombolo_base::{BlockSum, Lcbn, Pvbn};
use tombolo_cache::{Access, Arrival, Cause, Incoming, Recall, Replacement, Residents, Verdict};

use crate::record::SlotRun;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SlotState {
    Free,
    Taken,
    Dirty,
    Clean,
    Corrupt,
    Retiring,
}

pub struct Slots {
    pvbns: Vec<u64>,
    sums: Vec<u64>,
    states: Vec<SlotState>,
    /// Slots whose bytes may be older than the index says, after recovery: a wrong sum there is no corruption.
    unproven: Vec<u64>,
    index: HashTable<u32>,
    /// Free slots as runs, a stack: slots freed lately are used first, because the kernel still has their pages; slots
    /// never used lie at the bottom.
    free: Vec<SlotRun>,
    free_count: u32,
    dirty_count: u32,
    corrupt_count: u32,
    pins: HashMap<u32, u32>,
    /// Slots that became releasable while pinned.
    release_when_unpinned: HashMap<u32, ()>,
    policy: Box<dyn Replacement>,
    /// Slots changed since the last checkpoint, a bit per page of slots.
    changed_pages: Vec<u64>,
    has_changes: bool,
    /// A bit per slot whose block was written by a client of this run and has been referred to but once: when that
    /// reference goes, nothing can ask for the block any more.
    referred_once: Vec<u64>,
}

/// Slots per page of the persistent cache index.
pub const SLOTS_PER_PAGE: u32 = 64;

impl Slots {
    pub fn new(count: u32, policy: Box<dyn Replacement>) -> Self {
        let pages = count.div_ceil(SLOTS_PER_PAGE) as usize;
        Self {
            pvbns: vec![0; count as usize],
            sums: vec![0; count as usize],
            states: vec![SlotState::Free; count as usize],
            unproven: vec![0; count.div_ceil(64) as usize],
            index: HashTable::new(),
            free: vec![SlotRun { first: Lcbn(0), count }],
            free_count: count,
            dirty_count: 0,
            corrupt_count: 0,
            pins: HashMap::new(),
            release_when_unpinned: HashMap::new(),
            policy,
            changed_pages: vec![0; pages.div_ceil(64)],
            has_changes: false,
            referred_once: vec![0; count.div_ceil(64) as usize],
        }
    }

    pub fn count(&self) -> u32 {
        self.states.len() as u32
    }

    pub fn dirty_count(&self) -> u32 {
        self.dirty_count
    }

    pub fn corrupt_count(&self) -> u32 {
        self.corrupt_count
    }

    pub fn clean_count(&self) -> u32 {
        self.policy.len() as u32
    }

    pub fn policy_name(&self) -> &'static str {
        self.policy.name()
    }

    pub fn state(&self, slot: Lcbn) -> SlotState {
        self.states[slot.0 as usize]
    }

    pub fn pvbn(&self, slot: Lcbn) -> Pvbn {
        Pvbn(self.pvbns[slot.0 as usize])
    }

    pub fn sum(&self, slot: Lcbn) -> BlockSum {
        BlockSum(self.sums[slot.0 as usize])
    }

    pub fn is_unproven(&self, slot: Lcbn) -> bool {
        self.unproven[(slot.0 / 64) as usize] & (1 << (slot.0 % 64)) != 0
    }

    pub fn find(&self, pvbn: Pvbn) -> Option<Lcbn> {
        let pvbns = &self.pvbns;
        self.index
            .find(hash(pvbn.0), |slot| pvbns[*slot as usize] == pvbn.0)
            .map(|slot| Lcbn(*slot))
    }

    /// Counts a read of a resident block.
    pub fn touch(&mut self, slot: Lcbn) {
        if self.state(slot) == SlotState::Clean {
            self.policy.touch(slot, &Access::to(self.pvbn(slot)));
        }
    }

    /// Counts a read of a block that is neither resident nor on its way.
    pub fn miss(&mut self, pvbn: Pvbn) -> Recall {
        self.policy.miss(&Access::to(pvbn))
    }

    /// Takes `count` slots for new contents, evicting as needed, in as few runs as possible; `None` and no change
    /// when there are not enough.
    pub fn take(&mut self, count: u32) -> Option<Vec<SlotRun>> {
        while self.free_count < count {
            let mut residents = Unpinned {
                pins: &self.pins,
                pvbns: &self.pvbns,
            };
            let victim = self.policy.victim(Incoming::BLOCK, &mut residents)?;
            self.forget(victim);
            self.push_free(victim);
        }
        let mut runs: Vec<SlotRun> = Vec::new();
        let mut wanted = count;
        while wanted > 0 {
            let run = self.free.last_mut()?;
            let part = run.count.min(wanted);
            let taken = SlotRun {
                first: run.first,
                count: part,
            };
            run.first.0 += part;
            run.count -= part;
            if run.count == 0 {
                self.free.pop();
            }
            wanted -= part;
            for slot in taken.first.0..taken.first.0 + part {
                self.set_state(Lcbn(slot), SlotState::Taken);
            }
            match runs.last_mut() {
                Some(last) if last.first.0 + last.count == taken.first.0 => last.count += part,
                _ => runs.push(taken),
            }
        }
        self.free_count -= count;
        Some(runs)
    }

    /// A taken slot now holds the only copy of a block.
    pub fn hold_dirty(&mut self, slot: Lcbn, pvbn: Pvbn, sum: BlockSum) {
        self.hold(slot, pvbn, sum, SlotState::Dirty);
        self.dirty_count += 1;
        self.referred_once[(slot.0 / 64) as usize] |= 1 << (slot.0 % 64);
    }

    /// Something more refers to the block.
    pub fn refer_again(&mut self, pvbn: Pvbn) {
        if let Some(slot) = self.find(pvbn) {
            self.referred_once[(slot.0 / 64) as usize] &= !(1 << (slot.0 % 64));
        }
    }

    /// Whether it holds a clean block to which there is, or was, one reference and no other.
    pub fn is_clean_and_referred_once(&self, slot: Lcbn) -> bool {
        let is_once = self.referred_once[(slot.0 / 64) as usize] & (1 << (slot.0 % 64)) != 0;
        is_once && self.state(slot) == SlotState::Clean
    }

    /// A taken slot now holds a copy of a block that the cloud has. `recall` is what `miss` said when a reader asked
    /// for the block; `None`: nobody had.
    pub fn hold_clean(&mut self, slot: Lcbn, pvbn: Pvbn, sum: BlockSum, recall: Option<Recall>) {
        self.hold(slot, pvbn, sum, SlotState::Clean);
        let cause = if recall.is_some() {
            Cause::Demand
        } else {
            Cause::Prefetch
        };
        self.make_evictable(slot, cause, recall.unwrap_or_default());
    }

    /// A dirty block is in the cloud, and the journal that says so is durable.
    pub fn clean(&mut self, slot: Lcbn) {
        assert_eq!(self.state(slot), SlotState::Dirty);
        self.dirty_count -= 1;
        self.set_state(slot, SlotState::Clean);
        self.make_evictable(slot, Cause::Write, Recall::default());
    }

    /// A dirty slot's bytes are wrong: the block is lost until it is overwritten.
    pub fn mark_corrupt(&mut self, slot: Lcbn) {
        assert_eq!(self.state(slot), SlotState::Dirty);
        self.dirty_count -= 1;
        self.corrupt_count += 1;
        self.set_state(slot, SlotState::Corrupt);
    }

    /// The block in a dirty or corrupt slot is not needed any more; `release` must follow once that is durable.
    pub fn retire(&mut self, slot: Lcbn) {
        match self.state(slot) {
            SlotState::Dirty => self.dirty_count -= 1,
            SlotState::Corrupt => self.corrupt_count -= 1,
            other => panic!("slot {} is {other:?} and cannot retire", slot.0),
        }
        self.unindex(slot);
        self.set_state(slot, SlotState::Retiring);
    }

    /// Makes a retiring or taken slot free (when the last pin has gone).
    pub fn release(&mut self, slot: Lcbn) {
        assert!(matches!(self.state(slot), SlotState::Retiring | SlotState::Taken));
        if self.pins.contains_key(&slot.0) {
            self.release_when_unpinned.insert(slot.0, ());
        } else {
            self.push_free(slot);
        }
    }

    /// Forgets a clean block whose bytes turned out wrong or stale, or that nothing can ask for any more.
    pub fn drop_clean(&mut self, slot: Lcbn) {
        assert_eq!(self.state(slot), SlotState::Clean);
        self.policy.remove(slot);
        self.unindex(slot);
        self.set_state(slot, SlotState::Retiring);
        self.release(slot);
    }

    pub fn pin(&mut self, slot: Lcbn) {
        *self.pins.entry(slot.0).or_insert(0) += 1;
    }

    pub fn unpin(&mut self, slot: Lcbn) {
        let Some(count) = self.pins.get_mut(&slot.0) else {
            panic!("slot {} is not pinned", slot.0)
        };
        *count -= 1;
        if *count == 0 {
            self.pins.remove(&slot.0);
            if self.release_when_unpinned.remove(&slot.0).is_some() {
                self.push_free(slot);
            }
        }
    }

    /// The bytes in the slot were read and matched their sum.
    pub fn mark_proven(&mut self, slot: Lcbn) {
        self.unproven[(slot.0 / 64) as usize] &= !(1 << (slot.0 % 64));
    }

    /// Recovery: puts a slot into a state, whatever it was.
    pub fn restore(&mut self, slot: Lcbn, pvbn: Pvbn, sum: BlockSum, state: SlotState) {
        match self.state(slot) {
            SlotState::Dirty => self.dirty_count -= 1,
            SlotState::Corrupt => self.corrupt_count -= 1,
            SlotState::Clean => self.policy.remove(slot),
            SlotState::Free | SlotState::Taken | SlotState::Retiring => {}
        }
        self.unindex(slot);
        // Two slots may claim one block after a crash; the later claim wins.
        if matches!(state, SlotState::Dirty | SlotState::Clean | SlotState::Corrupt)
            && let Some(other) = self.find(pvbn)
        {
            self.restore(other, pvbn, sum, SlotState::Free);
        }
        match state {
            SlotState::Dirty => self.dirty_count += 1,
            SlotState::Corrupt => self.corrupt_count += 1,
            SlotState::Clean => {
                self.unproven[(slot.0 / 64) as usize] |= 1 << (slot.0 % 64);
            }
            SlotState::Free | SlotState::Taken | SlotState::Retiring => {
                self.set_state(slot, SlotState::Free);
                return;
            }
        }
        self.set_state(slot, SlotState::Taken);
        self.hold(slot, pvbn, sum, state);
        if state == SlotState::Clean {
            self.make_evictable(slot, Cause::Prefetch, Recall::default());
        }
    }

    /// Recovery: rebuilds the list of free slots from the states.
    pub fn rebuild_free(&mut self) {
        self.free.clear();
        self.free_count = 0;
        for slot in 0..self.count() {
            if self.states[slot as usize] == SlotState::Free {
                self.push_free_run(Lcbn(slot));
            }
        }
    }

    /// The slot behind the last that holds anything.
    pub fn used_to(&self) -> Lcbn {
        let used = self.states.iter().rposition(|state| *state != SlotState::Free);
        Lcbn(used.map_or(0, |last| last as u32 + 1))
    }

    /// Whether [`Self::take_changed_pages`] has any to tell.
    pub fn has_changes(&self) -> bool {
        self.has_changes
    }

    /// Pages of slots that changed since the last call, ascending.
    pub fn take_changed_pages(&mut self) -> Vec<u32> {
        self.has_changes = false;
        let mut pages = Vec::new();
        for (word_index, word) in self.changed_pages.iter_mut().enumerate() {
            let mut bits = core::mem::take(word);
            while bits != 0 {
                pages.push(word_index as u32 * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        pages
    }

    pub fn memory_bytes(&self) -> u64 {
        self.states.len() as u64 * (8 + 8 + 1)
            + self.policy.metadata_bytes() as u64
            + self.index.capacity() as u64 * 5
            + self.free.len() as u64 * 8
    }

    fn hold(&mut self, slot: Lcbn, pvbn: Pvbn, sum: BlockSum, state: SlotState) {
        assert_eq!(self.state(slot), SlotState::Taken);
        debug_assert!(self.find(pvbn).is_none(), "PVBN {} is held twice", pvbn.0);
        self.pvbns[slot.0 as usize] = pvbn.0;
        self.sums[slot.0 as usize] = sum.0;
        self.set_state(slot, state);
        let pvbns = &self.pvbns;
        self.index
            .insert_unique(hash(pvbn.0), slot.0, |slot| hash(pvbns[*slot as usize]));
    }

    fn make_evictable(&mut self, slot: Lcbn, cause: Cause, recall: Recall) {
        let access = Access::to(self.pvbn(slot));
        self.policy.insert(slot, &Arrival::of_block(access, cause, recall));
    }

    /// Removes an evicted block from the index.
    fn forget(&mut self, slot: Lcbn) {
        self.unindex(slot);
        self.mark_proven(slot);
    }

    fn unindex(&mut self, slot: Lcbn) {
        let pvbn = self.pvbns[slot.0 as usize];
        if let Ok(entry) = self.index.find_entry(hash(pvbn), |held| *held == slot.0) {
            entry.remove();
        }
    }

    fn push_free(&mut self, slot: Lcbn) {
        self.set_state(slot, SlotState::Free);
        self.mark_proven(slot);
        self.push_free_run(slot);
    }

    fn push_free_run(&mut self, slot: Lcbn) {
        self.free_count += 1;
        match self.free.last_mut() {
            Some(last) if last.first.0 + last.count == slot.0 => last.count += 1,
            _ => self.free.push(SlotRun { first: slot, count: 1 }),
        }
    }

    fn set_state(&mut self, slot: Lcbn, state: SlotState) {
        self.states[slot.0 as usize] = state;
        if state == SlotState::Taken {
            self.referred_once[(slot.0 / 64) as usize] &= !(1 << (slot.0 % 64));
        }
        self.mark_changed(slot);
    }

    /// What the next checkpoint says of the slot differs from what the last one said.
    pub fn mark_changed(&mut self, slot: Lcbn) {
        let page = slot.0 / SLOTS_PER_PAGE;
        self.changed_pages[(page / 64) as usize] |= 1 << (page % 64);
        self.has_changes = true;
    }

    /// Checks what must always hold; for tests.
    pub fn check_invariants(&self) {
        let count = |state: SlotState| self.states.iter().filter(|held| **held == state).count();
        assert_eq!(count(SlotState::Dirty), self.dirty_count as usize);
        assert_eq!(count(SlotState::Corrupt), self.corrupt_count as usize);
        assert_eq!(count(SlotState::Free), self.free_count as usize);
        assert_eq!(count(SlotState::Clean), self.policy.len());
        self.policy.check_invariants();
        assert_eq!(self.free.iter().map(|run| run.count).sum::<u32>(), self.free_count);
        let held = self.dirty_count as usize + self.corrupt_count as usize + self.policy.len();
        assert_eq!(self.index.len(), held);
    }
}

/// What the policy asks while it looks for a victim: slots that readers hold stay.
struct Unpinned<'a> {
    pins: &'a HashMap<u32, u32>,
    pvbns: &'a [u64],
}

impl Residents for Unpinned<'_> {
    fn block(&self, slot: Lcbn) -> Pvbn {
        Pvbn(self.pvbns[slot.0 as usize])
    }

    fn judge(&mut self, slot: Lcbn) -> Verdict {
        if self.pins.contains_key(&slot.0) {
            Verdict::Keep
        } else {
            Verdict::Evict
        }
    }
}

/// Fibonacci hashing spreads consecutive PVBNs over the whole table.
fn hash(pvbn: u64) -> u64 {
    let mixed = pvbn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_cache::{Capacity, Lru};

    fn slots(count: u32) -> Slots {
        Slots::new(count, Box::new(Lru::new(Capacity::of_blocks(count))))
    }

    fn one(slots: &mut Slots) -> Lcbn {
        slots.take(1).unwrap()[0].first
    }

    #[test]
    fn dirty_slots_are_never_given_away() {
        let mut slots = slots(4);
        for index in 0..4u64 {
            let slot = one(&mut slots);
            slots.hold_dirty(slot, Pvbn(index), BlockSum(index));
        }
        assert!(slots.take(1).is_none());
        let slot = slots.find(Pvbn(2)).unwrap();
        slots.clean(slot);
        assert_eq!(one(&mut slots), slot);
        assert_eq!(slots.find(Pvbn(2)), None);
        slots.release(slot);
        slots.check_invariants();
    }

    #[test]
    fn a_pinned_slot_is_reused_only_after_the_last_pin() {
        let mut slots = slots(2);
        let slot = one(&mut slots);
        slots.hold_dirty(slot, Pvbn(1), BlockSum(1));
        slots.pin(slot);
        slots.pin(slot);
        slots.retire(slot);
        slots.release(slot);
        assert!(slots.take(2).is_none());
        slots.unpin(slot);
        assert!(slots.take(2).is_none());
        slots.unpin(slot);
        assert!(slots.take(2).is_some());
    }

    #[test]
    fn eviction_passes_over_pins() {
        let mut slots = slots(2);
        for index in 0..2u64 {
            let slot = one(&mut slots);
            slots.hold_clean(slot, Pvbn(index), BlockSum(index), None);
        }
        let oldest = slots.find(Pvbn(0)).unwrap();
        slots.pin(oldest);
        let taken = one(&mut slots);
        assert_ne!(taken, oldest);
        assert!(slots.take(1).is_none());
        slots.unpin(oldest);
        assert_eq!(one(&mut slots), oldest);
        slots.check_invariants_taken(2);
    }

    impl Slots {
        fn check_invariants_taken(&self, taken: usize) {
            assert_eq!(
                self.states.iter().filter(|state| **state == SlotState::Taken).count(),
                taken
            );
            self.check_invariants();
        }
    }

    #[test]
    fn only_what_was_written_and_referred_to_once_counts_as_such() {
        let mut slots = slots(3);
        let written = one(&mut slots);
        slots.hold_dirty(written, Pvbn(1), BlockSum(1));
        assert!(!slots.is_clean_and_referred_once(written), "dirty");
        slots.clean(written);
        assert!(slots.is_clean_and_referred_once(written));
        slots.refer_again(Pvbn(1));
        assert!(!slots.is_clean_and_referred_once(written));
        // Fetched into the same slot, and into one that was referred to once: nobody knows who refers to it.
        slots.drop_clean(written);
        let again = one(&mut slots);
        assert_eq!(again, written);
        slots.hold_dirty(again, Pvbn(2), BlockSum(2));
        slots.clean(again);
        slots.drop_clean(again);
        let fetched = one(&mut slots);
        slots.restore(fetched, Pvbn(3), BlockSum(3), SlotState::Clean);
        assert!(!slots.is_clean_and_referred_once(fetched));
    }

    #[test]
    fn changed_pages_are_told_once() {
        let mut slots = slots(300);
        slots.take(130);
        assert_eq!(slots.take_changed_pages(), vec![0, 1, 2]);
        assert!(slots.take_changed_pages().is_empty());
        slots.release(Lcbn(129));
        assert_eq!(slots.take_changed_pages(), vec![2]);
    }
}
