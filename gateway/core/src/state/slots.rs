//! The cache file's slots: what each holds and whether it may be reused, 17 bytes a slot, 4 bytes a cached block for the
//! index from PVBN to slot, the policy's tables, and the tags of prefetched blocks.
//!
//! | state    | holds            | in policy | leaves by                                              |
//! |----------|------------------|-----------|--------------------------------------------------------|
//! | Free     | nothing          | no        | `take`                                                 |
//! | Taken    | a write or fetch | no        | `hold_dirty`, `hold_clean`, `release`                  |
//! | Dirty    | the only copy    | no        | `clean` (in the cloud, known durably), `retire` (dead) |
//! | Clean    | a copy           | yes       | eviction in `take`, `drop_clean`                       |
//! | Corrupt  | a lost block     | no        | `retire`                                               |
//! | Retiring | nothing needed   | no        | `release`, once the journal that says so is durable    |
//! | Withdrawn | nothing         | no        | `return_withdrawn`, a while after the disk refused it  |
//!
//! A slot that readers or uploaders hold (`pin`) is never reused before they let go.

use crate::format::record::SlotRun;
use crate::format::slot_page::SLOTS_PER_PAGE;
use crate::state::prefetched::{PrefetchTag, Prefetched, Touched, address};
use crate::state::pvbn_index::PvbnIndex;
use alloc::{boxed::Box, vec, vec::Vec};
use hashbrown::HashMap;
use tombolo_base::{BlockSum, Instant, Lcbn, PACK_BLOCKS, Pvbn};
use tombolo_cache::{
    Access, Advice, Arrival, Cause, Expectation, Incoming, MissHint, Replacement, Residents, Succession, Verdict,
};
use tombolo_prefetch::{PVBN_SPACE, PrefetchOutcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SlotState {
    Free,
    Taken,
    Dirty,
    Clean,
    Corrupt,
    Retiring,
    Withdrawn,
}

pub struct Slots {
    pvbns: Vec<u64>,
    sums: Vec<u64>,
    states: Vec<SlotState>,
    /// Slots whose bytes may be older than the index says, after recovery: a wrong sum there is no corruption.
    unproven: Vec<u64>,
    index: PvbnIndex,
    /// Free slots as runs, a stack: slots freed lately are used first, because the kernel still has their pages; slots
    /// never used lie at the bottom.
    free: Vec<SlotRun>,
    free_count: u32,
    dirty_count: u32,
    corrupt_count: u32,
    pins: HashMap<u32, u32>,
    /// Slots that became releasable while pinned.
    release_when_unpinned: HashMap<u32, ()>,
    /// Slots that the disk could not read or write, not to be used before then: the next request would fail as well.
    unusable: HashMap<u32, Instant>,
    /// Those of them that would be free.
    withdrawn: Vec<Lcbn>,
    policy: Succession,
    prefetched: Prefetched,
    /// Whether sequential blocks that were never read are spared once (AMP, rule 5).
    second_chances: bool,
    /// Slots changed since the last checkpoint, a bit per page of slots.
    changed_pages: Vec<u64>,
    changed_page_count: usize,
    /// A bit per slot whose block was written by a client of this run and has been referred to but once: when that
    /// reference goes, nothing can ask for the block any more.
    referred_once: Vec<u64>,
}

/// How long a slot that the disk refused is left alone.
const UNUSABLE_MS: u64 = 60_000;

impl Slots {
    pub fn new(count: u32, policy: Box<dyn Replacement>) -> Self {
        let pages = count.div_ceil(SLOTS_PER_PAGE) as usize;
        Self {
            pvbns: vec![0; count as usize],
            sums: vec![0; count as usize],
            states: vec![SlotState::Free; count as usize],
            unproven: vec![0; count.div_ceil(64) as usize],
            index: PvbnIndex::default(),
            free: vec![SlotRun { first: Lcbn(0), count }],
            free_count: count,
            dirty_count: 0,
            corrupt_count: 0,
            pins: HashMap::new(),
            release_when_unpinned: HashMap::new(),
            unusable: HashMap::new(),
            withdrawn: Vec::new(),
            policy: Succession::new(policy),
            prefetched: Prefetched::new(count),
            second_chances: false,
            changed_pages: vec![0; pages.div_ceil(64)],
            changed_page_count: 0,
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

    #[cfg(test)]
    pub fn free_count(&self) -> u32 {
        self.free_count
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
        self.index.find(pvbn, &self.pvbns)
    }

    /// Counts a read of a resident block at `address`.
    pub fn touch(&mut self, slot: Lcbn, address: u64, sequential: Option<bool>) -> Touched {
        if self.state(slot) != SlotState::Clean {
            return Touched::default();
        }
        let touched = self.prefetched.read(slot);
        // AMP, rule 7: among equals a prefetched block moves at its second read. Policies that count uses count this.
        if !(self.second_chances && touched.first.is_some() && self.policy.name() == "lru") {
            let block = self.pvbn(slot);
            let access = Access {
                block,
                address,
                sequential,
            };
            self.policy.touch(slot, &access);
        }
        touched
    }

    /// Counts a read of a block that is neither resident nor on its way.
    pub fn miss(&mut self, access: &Access) -> MissHint {
        self.policy.miss(access)
    }

    /// The prefetcher expects a resident block to be read.
    pub fn expect(&mut self, slot: Lcbn, address: u64, expectation: Expectation) {
        if self.state(slot) == SlotState::Clean {
            let access = Access {
                block: self.pvbn(slot),
                address,
                sequential: Some(true),
            };
            self.policy.expect(slot, &access, expectation);
        }
    }

    /// Whether [`Self::expect`] is of any use.
    pub fn uses_expectations(&self) -> bool {
        self.policy.uses_expectations()
    }

    pub fn advise(&mut self, advice: Advice) {
        self.policy.advise(advice);
    }

    pub fn set_second_chances(&mut self, second_chances: bool) {
        self.second_chances = second_chances;
    }

    /// Whether a prefetch brought the block and nobody has read it.
    pub fn is_unread(&self, slot: Lcbn) -> bool {
        self.prefetched.is_unread(slot)
    }

    /// Whether a prefetch brought the block, read by now or not.
    pub fn was_prefetched(&self, slot: Lcbn) -> bool {
        self.prefetched.was_prefetched(slot)
    }

    pub fn unread_count(&self) -> usize {
        self.prefetched.unread_count()
    }

    /// A prefetch has brought the block in the slot; `None`: a reader was waiting for it.
    pub fn note_prefetched(&mut self, slot: Lcbn, unread: Option<PrefetchTag>) {
        match unread {
            Some(prefetch_tag) => self.prefetched.put_unread(slot, prefetch_tag),
            None => self.prefetched.put_read(slot),
        }
    }

    pub fn forget_prefetched(&mut self) {
        self.prefetched.clear();
    }

    pub fn has_prefetch_outcomes(&self) -> bool {
        self.prefetched.has_prefetch_outcomes()
    }

    pub fn take_prefetch_outcomes(&mut self, prefetch_outcomes: &mut Vec<(PrefetchTag, PrefetchOutcome)>) {
        self.prefetched.take_prefetch_outcomes(prefetch_outcomes);
    }

    /// Another policy takes the evictable blocks over, by and by ([`Self::hand_over`]). None may be at it already.
    pub fn set_policy(&mut self, policy: Box<dyn Replacement>) {
        self.policy.follow(policy);
    }

    /// The blocks that the policy before the one that was set still has; `None`: no change is under way.
    pub fn left_to_hand_over(&self) -> Option<usize> {
        self.policy.left()
    }

    /// Up to so many blocks go from the policy before to the one that was set, as if each had been used once, or never if a
    /// prefetch brought it. Gives the policy before back when it has none left.
    pub fn hand_over(&mut self, count: u32) -> Option<Box<dyn Replacement>> {
        let (pvbns, prefetched) = (&self.pvbns, &self.prefetched);
        let arrival = |slot| {
            let cause = match prefetched.is_unread(slot) {
                true => Cause::Prefetch,
                false => Cause::Write,
            };
            arrival_of(Pvbn(pvbns[slot.0 as usize]), cause)
        };
        self.policy.hand_over(count, arrival)
    }

    /// Takes `count` slots for new contents, evicting as needed, in as few runs as possible; `None` and no change
    /// when there are not enough. `miss_hints` says what the policy knew of the blocks to come; it may be shorter.
    pub fn take(&mut self, count: u32, miss_hints: impl IntoIterator<Item = MissHint>) -> Option<Vec<SlotRun>> {
        if !self.has_room(count) {
            return None;
        }
        let mut miss_hints = miss_hints.into_iter().skip(self.free_count as usize);
        while self.free_count < count {
            let mut residents = Unpinned {
                pins: &self.pins,
                pvbns: &self.pvbns,
                prefetched: &mut self.prefetched,
                second_chances: self.second_chances,
            };
            let miss_hint = miss_hints.next().unwrap_or_default();
            let incoming = Incoming {
                miss_hint,
                ..Incoming::BLOCK
            };
            let victim = self.policy.victim(incoming, &mut residents)?;
            self.prefetched.evict(victim);
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
        assert!(count <= self.free_count);
        self.free_count -= count;
        Some(runs)
    }

    /// Whether so many slots are free or may be evicted.
    fn has_room(&self, count: u32) -> bool {
        let room = self.free_count as usize + self.policy.len();
        if room < count as usize {
            return false;
        }
        let spare = room - count as usize;
        // Most often there are fewer pins than slots to spare.
        if spare >= self.pins.len() {
            return true;
        }
        #[expect(clippy::disallowed_methods, reason = "a count is the same in any order")]
        let pinned = self
            .pins
            .keys()
            .filter(|slot| self.state(Lcbn(**slot)) == SlotState::Clean);
        spare >= pinned.count()
    }

    /// The disk cannot read or write the slot: when it comes free it is not used again for a while.
    pub fn set_unusable(&mut self, slot: Lcbn, now: Instant) {
        self.unusable.insert(slot.0, now.plus_millis(UNUSABLE_MS));
    }

    /// [`Self::release`] of a slot that the disk could not write.
    pub fn withdraw(&mut self, slot: Lcbn, now: Instant) {
        self.set_unusable(slot, now);
        self.release(slot);
    }

    /// Gives slots another try.
    pub fn return_withdrawn(&mut self, now: Instant) {
        if self.unusable.is_empty() {
            return;
        }
        self.unusable.retain(|_, until| now < *until);
        for slot in core::mem::take(&mut self.withdrawn) {
            self.push_free(slot);
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the least is the same in any order")]
    pub fn withdrawn_deadline(&self) -> Option<Instant> {
        self.unusable.values().min().copied()
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

    /// A taken slot now holds a copy of a block that the cloud has.
    pub fn hold_clean(&mut self, slot: Lcbn, sum: BlockSum, arrival: &Arrival) {
        self.hold(slot, arrival.access.block, sum, SlotState::Clean);
        self.policy.insert(slot, arrival);
    }

    /// A dirty block is in the cloud, in `object`, and the journal that says so is durable. It was written at `address`.
    pub fn clean(&mut self, slot: Lcbn, address: u64, object: Pvbn) {
        assert_eq!(self.state(slot), SlotState::Dirty);
        self.dirty_count -= 1;
        self.set_state(slot, SlotState::Clean);
        let mut arrival = arrival_of(self.pvbn(slot), Cause::Write);
        arrival.access.address = address;
        arrival.object = object.0;
        self.policy.insert(slot, &arrival);
    }

    /// The block in a dirty slot goes by another name from now on: that of a block of the same contents which is in the
    /// cloud and not resident. `clean` must follow once that is durable.
    pub fn rename(&mut self, slot: Lcbn, pvbn: Pvbn) {
        assert_eq!(self.state(slot), SlotState::Dirty);
        self.unindex(slot);
        self.dirty_count -= 1;
        // Nobody knows who else refers to that block.
        self.set_state(slot, SlotState::Taken);
        self.hold(slot, pvbn, self.sum(slot), SlotState::Dirty);
        self.dirty_count += 1;
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
        self.prefetched.leave(slot);
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
            SlotState::Clean => {
                self.policy.remove(slot);
                self.prefetched.leave(slot);
            }
            SlotState::Free | SlotState::Taken | SlotState::Retiring | SlotState::Withdrawn => {}
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
            SlotState::Free | SlotState::Taken | SlotState::Retiring | SlotState::Withdrawn => {
                self.set_state(slot, SlotState::Free);
                return;
            }
        }
        self.set_state(slot, SlotState::Taken);
        self.hold(slot, pvbn, sum, state);
        if state == SlotState::Clean {
            self.policy.insert(slot, &arrival_of(pvbn, Cause::Prefetch));
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
        self.changed_page_count > 0
    }

    pub fn changed_page_count(&self) -> usize {
        self.changed_page_count
    }

    /// Pages of slots that changed since the last call, ascending.
    pub fn take_changed_pages(&mut self) -> Vec<u32> {
        self.changed_page_count = 0;
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
            + self.prefetched.memory_bytes()
            + self.index.memory_bytes()
            + self.free.len() as u64 * 8
    }

    fn hold(&mut self, slot: Lcbn, pvbn: Pvbn, sum: BlockSum, state: SlotState) {
        assert_eq!(self.state(slot), SlotState::Taken);
        debug_assert!(self.find(pvbn).is_none(), "PVBN {} is held twice", pvbn.0);
        self.pvbns[slot.0 as usize] = pvbn.0;
        self.sums[slot.0 as usize] = sum.0;
        self.set_state(slot, state);
        self.index.insert(slot, &self.pvbns);
    }

    /// Removes an evicted block from the index.
    fn forget(&mut self, slot: Lcbn) {
        self.unindex(slot);
        self.mark_proven(slot);
    }

    fn unindex(&mut self, slot: Lcbn) {
        self.index.remove(slot, &self.pvbns);
    }

    fn push_free(&mut self, slot: Lcbn) {
        self.mark_proven(slot);
        if self.unusable.contains_key(&slot.0) {
            self.set_state(slot, SlotState::Withdrawn);
            return self.withdrawn.push(slot);
        }
        self.set_state(slot, SlotState::Free);
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
        let word = &mut self.changed_pages[(page / 64) as usize];
        self.changed_page_count += usize::from(*word & (1 << (page % 64)) == 0);
        *word |= 1 << (page % 64);
    }

    /// Checks what must always hold; for tests.
    pub fn check_invariants(&self) {
        let count = |state: SlotState| self.states.iter().filter(|held| **held == state).count();
        assert_eq!(count(SlotState::Dirty), self.dirty_count as usize);
        assert_eq!(count(SlotState::Corrupt), self.corrupt_count as usize);
        assert_eq!(count(SlotState::Free), self.free_count as usize);
        assert_eq!(count(SlotState::Clean), self.policy.len());
        assert_eq!(count(SlotState::Withdrawn), self.withdrawn.len());
        self.policy.check_invariants();
        self.prefetched
            .check_invariants(|slot| self.state(slot) == SlotState::Clean);
        assert_eq!(self.free.iter().map(|run| run.count).sum::<u32>(), self.free_count);
        let held = self.dirty_count as usize + self.corrupt_count as usize + self.policy.len();
        assert_eq!(self.index.len(), held);
    }
}

/// Objects are made in the order of PVBNs, so neighbours likely share one.
pub(crate) fn likely_object(pvbn: Pvbn) -> Pvbn {
    Pvbn(pvbn.0 - pvbn.0 % PACK_BLOCKS as u64)
}

/// A block of which no more is known than its name.
fn arrival_of(pvbn: Pvbn, cause: Cause) -> Arrival {
    let access = Access {
        block: pvbn,
        address: address(PVBN_SPACE, pvbn.0),
        sequential: None,
    };
    Arrival {
        object: likely_object(pvbn).0,
        ..Arrival::of_block(access, cause, MissHint::default())
    }
}

/// What the policy asks while it looks for a victim: slots that readers hold stay, and what was prefetched in vain may
/// get a second chance.
struct Unpinned<'a> {
    pins: &'a HashMap<u32, u32>,
    pvbns: &'a [u64],
    prefetched: &'a mut Prefetched,
    second_chances: bool,
}

impl Residents for Unpinned<'_> {
    fn block(&self, slot: Lcbn) -> Pvbn {
        Pvbn(self.pvbns[slot.0 as usize])
    }

    fn judge(&mut self, slot: Lcbn) -> Verdict {
        if self.pins.contains_key(&slot.0) {
            Verdict::Keep
        } else if self.second_chances && self.prefetched.spare(slot) {
            Verdict::Again
        } else {
            Verdict::Evict
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_cache::{Capacity, Lru};

    fn slots(count: u32) -> Slots {
        Slots::new(count, Box::new(Lru::new(Capacity::of_blocks(count))))
    }

    fn one(slots: &mut Slots) -> Lcbn {
        slots.take(1, None).unwrap()[0].first
    }

    #[test]
    fn dirty_slots_are_never_given_away() {
        let mut slots = slots(4);
        for index in 0..4u64 {
            let slot = one(&mut slots);
            slots.hold_dirty(slot, Pvbn(index), BlockSum(index));
        }
        assert!(slots.take(1, None).is_none());
        let slot = slots.find(Pvbn(2)).unwrap();
        slots.clean(slot, 2, Pvbn(0));
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
        assert!(slots.take(2, None).is_none());
        slots.unpin(slot);
        assert!(slots.take(2, None).is_none());
        slots.unpin(slot);
        assert!(slots.take(2, None).is_some());
    }

    #[test]
    fn eviction_passes_over_pins() {
        let mut slots = slots(2);
        for index in 0..2u64 {
            let slot = one(&mut slots);
            slots.hold_clean(slot, BlockSum(index), &arrival_of(Pvbn(index), Cause::Prefetch));
        }
        let oldest = slots.find(Pvbn(0)).unwrap();
        slots.pin(oldest);
        let taken = one(&mut slots);
        assert_ne!(taken, oldest);
        assert!(slots.take(1, None).is_none());
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
        slots.clean(written, 1, Pvbn(0));
        assert!(slots.is_clean_and_referred_once(written));
        slots.refer_again(Pvbn(1));
        assert!(!slots.is_clean_and_referred_once(written));
        // Fetched into the same slot, and into one that was referred to once: nobody knows who refers to it.
        slots.drop_clean(written);
        let again = one(&mut slots);
        assert_eq!(again, written);
        slots.hold_dirty(again, Pvbn(2), BlockSum(2));
        slots.clean(again, 2, Pvbn(0));
        slots.drop_clean(again);
        let fetched = one(&mut slots);
        slots.restore(fetched, Pvbn(3), BlockSum(3), SlotState::Clean);
        assert!(!slots.is_clean_and_referred_once(fetched));
    }

    #[test]
    fn another_policy_takes_every_block_over_oldest_first() {
        const COUNT: u32 = 9_000;
        let grouping = tombolo_cache::Grouping::Objects { evict_blocks: 16 };
        for old in tombolo_cache::Policy::ALL {
            let mut slots = Slots::new(COUNT, old.build(Capacity::of_blocks(COUNT), grouping));
            for index in 0..u64::from(COUNT) {
                let slot = one(&mut slots);
                slots.hold_clean(slot, BlockSum(index), &arrival_of(Pvbn(index), Cause::Prefetch));
            }
            for index in (0..u64::from(COUNT)).rev() {
                let slot = slots.find(Pvbn(index)).unwrap();
                slots.touch(slot, index, None);
            }
            slots.set_policy(Box::new(Lru::new(Capacity::of_blocks(COUNT))));
            let mut pieces = 0;
            while slots.left_to_hand_over().is_some() {
                slots.hand_over(1_000);
                slots.check_invariants();
                pieces += 1;
            }
            assert!((9..12).contains(&pieces), "{pieces}");
            assert_eq!(slots.clean_count(), COUNT, "{}", old.name());
            if old == tombolo_cache::Policy::Lru {
                let taken = one(&mut slots);
                assert_eq!(
                    slots.pvbn(taken),
                    Pvbn(u64::from(COUNT) - 1),
                    "the one used longest ago goes first"
                );
            }
        }
    }

    #[test]
    fn free_slots_come_before_miss_hints_are_used() {
        let mut slots = slots(2);
        let slot = one(&mut slots);
        slots.hold_clean(slot, BlockSum(0), &arrival_of(Pvbn(0), Cause::Prefetch));
        let mut asked = 0;
        let miss_hints = core::iter::repeat_with(|| {
            asked += 1;
            MissHint::default()
        });
        assert!(slots.take(2, miss_hints).is_some());
        assert_eq!(
            asked, 2,
            "one is passed over for the free slot, one goes to the eviction"
        );
    }

    #[test]
    fn nothing_is_evicted_for_what_does_not_fit() {
        let mut slots = slots(4);
        for index in 0..4u64 {
            let slot = one(&mut slots);
            slots.hold_clean(slot, BlockSum(index), &arrival_of(Pvbn(index), Cause::Prefetch));
        }
        let pinned = slots.find(Pvbn(1)).unwrap();
        slots.pin(pinned);
        assert!(slots.take(4, None).is_none());
        assert_eq!(slots.clean_count(), 4);
        slots.unpin(pinned);
        assert!(slots.take(4, None).is_some());
    }

    #[test]
    fn a_slot_that_the_disk_refused_is_not_used_for_a_while() {
        let mut slots = slots(2);
        let slot = one(&mut slots);
        slots.withdraw(slot, Instant(0));
        slots.check_invariants();
        assert_ne!(one(&mut slots), slot);
        assert!(slots.take(1, None).is_none());
        slots.return_withdrawn(Instant(UNUSABLE_MS * 1_000 - 1));
        assert!(slots.take(1, None).is_none());
        slots.return_withdrawn(Instant(UNUSABLE_MS * 1_000));
        assert_eq!(one(&mut slots), slot);
    }

    #[test]
    fn changed_pages_are_told_once() {
        let mut slots = slots(300);
        slots.take(130, None);
        assert_eq!(slots.take_changed_pages(), vec![0, 1, 2]);
        assert!(slots.take_changed_pages().is_empty());
        slots.release(Lcbn(129));
        assert_eq!(slots.take_changed_pages(), vec![2]);
    }
}
