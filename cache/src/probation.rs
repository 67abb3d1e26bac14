//! Probation for what was prefetched because history expects it: until it is read such a block is kept apart from the policy,
//! in a list with room for an eighth of the cache. What comes to the end of a full list goes before any block that was read.
//!
//! Sequential blocks are not put on probation: they come in the order in which their stream reads them, and policies that
//! care have a list for them. 64 bytes a slot, besides the policy's.

use crate::list::{Links, List, Looks};
use crate::{Access, Advice, Arrival, Capacity, Cause, Expectation, Incoming, MissHint, Replacement, Residents};
use alloc::{boxed::Box, vec::Vec};
use tombolo_base::Lcbn;

const ROOM_DIVISOR: u32 = 8;

/// Any policy, with a list of its own for what has been prefetched at random places and not been read.
pub struct Probation {
    policy: Box<dyn Replacement>,
    links: Links,
    list: List,
    /// As they came, of the slots in the list; of others there is an earlier one, or none.
    arrivals: Vec<Option<Arrival>>,
    room: u32,
}

impl Probation {
    /// Around a policy that is empty.
    pub fn new(policy: Box<dyn Replacement>, capacity: Capacity) -> Self {
        Self {
            policy,
            links: Links::with_capacity(capacity.blocks as usize),
            list: List::EMPTY,
            arrivals: Vec::with_capacity(capacity.blocks as usize),
            room: capacity.blocks / ROOM_DIVISOR,
        }
    }

    /// Hands a slot that is in the list to the policy; false: it was there already.
    fn release(&mut self, slot: Lcbn) -> bool {
        let is_held = self.links.is_linked(slot.0);
        if is_held {
            self.list.remove(&mut self.links, slot.0);
            if let Some(arrival) = &self.arrivals[slot.0 as usize] {
                self.policy.insert(slot, arrival);
            }
        }
        is_held
    }

    fn list_victim(&mut self, residents: &mut dyn Residents) -> Option<Lcbn> {
        let slot = self.list.find_victim(&mut self.links, residents, &mut Looks::new())?;
        self.list.remove(&mut self.links, slot);
        Some(Lcbn(slot))
    }
}

impl Replacement for Probation {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn miss(&mut self, access: &Access) -> MissHint {
        self.policy.miss(access)
    }

    fn insert(&mut self, slot: Lcbn, arrival: &Arrival) {
        if arrival.cause != Cause::Prefetch || arrival.access.sequential != Some(false) {
            return self.policy.insert(slot, arrival);
        }
        self.links.reach(slot.0);
        if slot.0 as usize >= self.arrivals.len() {
            self.arrivals.resize(slot.0 as usize + 1, None);
        }
        self.arrivals[slot.0 as usize] = Some(*arrival);
        self.list.push_newest(&mut self.links, slot.0);
    }

    fn touch(&mut self, slot: Lcbn, access: &Access) {
        self.release(slot);
        self.policy.touch(slot, access);
    }

    fn expect(&mut self, slot: Lcbn, access: &Access, expectation: Expectation) {
        self.release(slot);
        self.policy.expect(slot, access, expectation);
    }

    fn uses_expectations(&self) -> bool {
        self.policy.uses_expectations()
    }

    fn set_dirty(&mut self, slot: Lcbn, is_dirty: bool) {
        self.release(slot);
        self.policy.set_dirty(slot, is_dirty);
    }

    fn set_bytes(&mut self, slot: Lcbn, bytes: u32) {
        self.release(slot);
        self.policy.set_bytes(slot, bytes);
    }

    fn remove(&mut self, slot: Lcbn) {
        if self.links.is_linked(slot.0) {
            self.list.remove(&mut self.links, slot.0);
        } else {
            self.policy.remove(slot);
        }
    }

    fn victim(&mut self, incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        if self.list.len() > self.room {
            let listed = self.list_victim(residents);
            return listed.or_else(|| self.policy.victim(incoming, residents));
        }
        let chosen = self.policy.victim(incoming, residents);
        chosen.or_else(|| self.list_victim(residents))
    }

    fn resize(&mut self, capacity: Capacity) {
        self.room = capacity.blocks / ROOM_DIVISOR;
        self.policy.resize(capacity);
    }

    fn advise(&mut self, advice: Advice) {
        self.policy.advise(advice);
    }

    fn len(&self) -> usize {
        self.policy.len() + self.list.len() as usize
    }

    fn metadata_bytes(&self) -> usize {
        let own = self.links.bytes() + self.arrivals.capacity() * size_of::<Option<Arrival>>();
        own + self.policy.metadata_bytes()
    }

    fn check_invariants(&self) {
        self.list.check(&self.links);
        for slot in self.list.iter(&self.links) {
            assert!(self.arrivals[slot as usize].is_some_and(|arrival| arrival.cause == Cause::Prefetch));
        }
        self.policy.check_invariants();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lru, Verdict};
    use alloc::vec;
    use tombolo_base::Pvbn;

    struct AllMayGo;

    impl Residents for AllMayGo {
        fn block(&self, slot: Lcbn) -> Pvbn {
            Pvbn(slot.0.into())
        }

        fn judge(&mut self, _slot: Lcbn) -> Verdict {
            Verdict::Evict
        }
    }

    fn lru_of(blocks: u32) -> Probation {
        let capacity = Capacity::of_blocks(blocks);
        Probation::new(Box::new(Lru::new(capacity)), capacity)
    }

    fn insert(policy: &mut Probation, slot: u32, cause: Cause, sequential: Option<bool>) {
        let access = Access {
            sequential,
            ..Access::to(Pvbn(slot.into()))
        };
        policy.insert(Lcbn(slot), &Arrival::of_block(access, cause, MissHint::default()));
    }

    fn victims(policy: &mut Probation) -> Vec<u32> {
        core::iter::from_fn(|| policy.victim(Incoming::BLOCK, &mut AllMayGo).map(|slot| slot.0)).collect()
    }

    #[test]
    fn what_nobody_has_read_goes_first_beyond_an_eighth() {
        let mut policy = lru_of(16);
        for slot in 0..4 {
            insert(&mut policy, slot, Cause::Write, None);
        }
        for slot in 4..8 {
            insert(&mut policy, slot, Cause::Prefetch, Some(false));
        }
        insert(&mut policy, 8, Cause::Prefetch, Some(true));
        policy.check_invariants();
        assert_eq!(policy.len(), 9);
        // Two may stay; these go when there is nothing else.
        assert_eq!(victims(&mut policy), vec![4, 5, 0, 1, 2, 3, 8, 6, 7]);
        assert!(policy.is_empty());
    }

    #[test]
    fn what_was_read_is_like_any_other() {
        let mut policy = lru_of(8);
        for slot in 0..3 {
            insert(&mut policy, slot, Cause::Prefetch, Some(false));
        }
        insert(&mut policy, 3, Cause::Write, None);
        policy.touch(Lcbn(1), &Access::to(Pvbn(1)));
        policy.check_invariants();
        assert_eq!(victims(&mut policy), vec![0, 3, 1, 2]);
    }
}
