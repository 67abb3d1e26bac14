//! One policy after another while the cache is in use: the slots go over in pieces, so that nobody has to wait for all of
//! them. A bit a slot meanwhile.
//!
//! The old policy hands over in the order in which it would evict, and until it is empty it goes on as if nothing were: it
//! is asked about misses, gets what comes in, and hears of reads of what it has. So the new policy gets the slots in the
//! order in which it would have got all of them at once; what it has is what would go first, and what is evicted meanwhile
//! comes from there. Only what is read after it has gone over lies among what comes later.

use crate::{Access, Advice, Arrival, Capacity, Expectation, Incoming, MissHint, Replacement, Residents, Verdict};
use alloc::{boxed::Box, vec::Vec};
use tombolo_base::{Lcbn, Pvbn};

/// The policy at work, and the one before it as long as that has slots.
pub struct Succession {
    policy: Box<dyn Replacement>,
    before: Option<Predecessor>,
}

struct Predecessor {
    policy: Box<dyn Replacement>,
    gone_over: Marks,
}

/// A bit for each slot that the new policy has.
#[derive(Default)]
struct Marks(Vec<u64>);

impl Marks {
    fn has(&self, slot: Lcbn) -> bool {
        let word = self.0.get((slot.0 / 64) as usize);
        word.is_some_and(|word| word & (1 << (slot.0 % 64)) != 0)
    }

    fn set(&mut self, slot: Lcbn) {
        let word = (slot.0 / 64) as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (slot.0 % 64);
    }

    fn unset(&mut self, slot: Lcbn) {
        self.0[(slot.0 / 64) as usize] &= !(1 << (slot.0 % 64));
    }
}

impl Succession {
    /// The first.
    pub fn new(policy: Box<dyn Replacement>) -> Self {
        Self { policy, before: None }
    }

    /// `policy`, which MUST be empty, follows; none may be following already. It has nothing before [`Self::hand_over`].
    pub fn follow(&mut self, policy: Box<dyn Replacement>) {
        assert!(self.before.is_none(), "policies would pile up, each with its tables");
        self.before = Some(Predecessor {
            policy: core::mem::replace(&mut self.policy, policy),
            gone_over: Marks::default(),
        });
    }

    /// The slots that the policy before this one still has; `None`: it is gone.
    pub fn left(&self) -> Option<usize> {
        self.before.as_ref().map(|before| before.policy.len())
    }

    /// Up to so many slots go over; `arrival` says what they hold. The policy that was followed is given back when it has
    /// none left: dropping it takes time.
    pub fn hand_over(&mut self, count: u32, arrival: impl Fn(Lcbn) -> Arrival) -> Option<Box<dyn Replacement>> {
        let before = self.before.as_mut()?;
        for _ in 0..count {
            let Some(slot) = before.policy.victim(Incoming::BLOCK, &mut AllMayGo(&arrival)) else {
                assert!(before.policy.is_empty(), "a policy names what may go");
                return self.before.take().map(|before| before.policy);
            };
            before.gone_over.set(slot);
            self.policy.insert(slot, &arrival(slot));
        }
        None
    }

    /// Who has the slot.
    fn holder(&mut self, slot: Lcbn) -> &mut dyn Replacement {
        match &mut self.before {
            Some(before) if !before.gone_over.has(slot) => &mut *before.policy,
            _ => &mut *self.policy,
        }
    }

    /// Who hears of what is not there, and of what comes in.
    fn receiver(&mut self) -> &mut dyn Replacement {
        match &mut self.before {
            Some(before) => &mut *before.policy,
            None => &mut *self.policy,
        }
    }

    fn both(&self) -> impl Iterator<Item = &dyn Replacement> {
        let before = self.before.iter().map(|before| &*before.policy);
        core::iter::once(&*self.policy).chain(before)
    }
}

/// Their blocks stay, but all of them have to be named.
struct AllMayGo<'a, F>(&'a F);

impl<F: Fn(Lcbn) -> Arrival> Residents for AllMayGo<'_, F> {
    fn block(&self, slot: Lcbn) -> Pvbn {
        (self.0)(slot).access.block
    }

    fn judge(&mut self, _slot: Lcbn) -> Verdict {
        Verdict::Evict
    }
}

impl Replacement for Succession {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn miss(&mut self, access: &Access) -> MissHint {
        self.receiver().miss(access)
    }

    fn reach(&mut self, slot: Lcbn) {
        self.receiver().reach(slot);
    }

    fn insert(&mut self, slot: Lcbn, arrival: &Arrival) {
        self.receiver().insert(slot, arrival);
    }

    fn touch(&mut self, slot: Lcbn, access: &Access) {
        self.holder(slot).touch(slot, access);
    }

    fn expect(&mut self, slot: Lcbn, access: &Access, expectation: Expectation) {
        self.holder(slot).expect(slot, access, expectation);
    }

    fn uses_expectations(&self) -> bool {
        self.both().any(Replacement::uses_expectations)
    }

    fn set_dirty(&mut self, slot: Lcbn, is_dirty: bool) {
        self.holder(slot).set_dirty(slot, is_dirty);
    }

    fn set_bytes(&mut self, slot: Lcbn, bytes: u32) {
        self.holder(slot).set_bytes(slot, bytes);
    }

    fn remove(&mut self, slot: Lcbn) {
        self.holder(slot).remove(slot);
        if let Some(before) = &mut self.before
            && before.gone_over.has(slot)
        {
            before.gone_over.unset(slot);
        }
    }

    fn victim(&mut self, incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        let Some(before) = &mut self.before else {
            return self.policy.victim(incoming, residents);
        };
        // What the old policy knew of the block to come means nothing to the new one.
        let unknown = Incoming {
            miss_hint: MissHint::default(),
            ..incoming
        };
        if let Some(slot) = self.policy.victim(unknown, residents) {
            before.gone_over.unset(slot);
            return Some(slot);
        }
        before.policy.victim(incoming, residents)
    }

    fn resize(&mut self, capacity: Capacity) {
        self.policy.resize(capacity);
        if let Some(before) = &mut self.before {
            before.policy.resize(capacity);
        }
    }

    fn advise(&mut self, advice: Advice) {
        self.policy.advise(advice);
        if let Some(before) = &mut self.before {
            before.policy.advise(advice);
        }
    }

    fn len(&self) -> usize {
        self.both().map(Replacement::len).sum()
    }

    fn metadata_bytes(&self) -> usize {
        let marks = self
            .before
            .as_ref()
            .map_or(0, |before| before.gone_over.0.capacity() * 8);
        self.both().map(Replacement::metadata_bytes).sum::<usize>() + marks
    }

    fn check_invariants(&self) {
        self.both().for_each(Replacement::check_invariants);
        if let Some(before) = &self.before {
            let gone_over: u32 = before.gone_over.0.iter().map(|word| word.count_ones()).sum();
            assert_eq!(
                gone_over as usize,
                self.policy.len(),
                "what has gone over is what the new policy has"
            );
        }
    }
}
