//! Least recently used: a doubly linked list threaded through two arrays indexed by slot, 8 bytes a slot.

use crate::Replacement;
use alloc::{vec, vec::Vec};
use tombolo_base::{Lcbn, Pvbn};

const NONE: u32 = u32::MAX;
/// Marks a slot that is not in the list, in `next`.
const OUTSIDE: u32 = u32::MAX - 1;
/// Pinned slots passed over before giving up: readers hold few slots, and briefly.
const LOOK_AT_MAX: usize = 4096;

#[derive(Debug)]
pub struct Lru {
    /// Towards the most recently used.
    next: Vec<u32>,
    /// Towards the least recently used.
    previous: Vec<u32>,
    oldest: u32,
    newest: u32,
    len: usize,
}

impl Lru {
    /// # Panics
    /// When there are more slots than a list link can name.
    pub fn new(slot_count: u32) -> Self {
        assert!(slot_count < OUTSIDE);
        Self {
            next: vec![OUTSIDE; slot_count as usize],
            previous: vec![NONE; slot_count as usize],
            oldest: NONE,
            newest: NONE,
            len: 0,
        }
    }

    fn unlink(&mut self, slot: u32) {
        let (previous, next) = (self.previous[slot as usize], self.next[slot as usize]);
        assert!(next != OUTSIDE, "slot {slot} is not in the list");
        match previous {
            NONE => self.oldest = next,
            _ => self.next[previous as usize] = next,
        }
        match next {
            NONE => self.newest = previous,
            _ => self.previous[next as usize] = previous,
        }
        self.next[slot as usize] = OUTSIDE;
        self.len -= 1;
    }

    fn push_newest(&mut self, slot: u32) {
        assert!(
            self.next[slot as usize] == OUTSIDE,
            "slot {slot} is in the list already"
        );
        self.previous[slot as usize] = self.newest;
        self.next[slot as usize] = NONE;
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.next[newest as usize] = slot,
        }
        self.newest = slot;
        self.len += 1;
    }
}

impl Replacement for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn insert(&mut self, slot: Lcbn, _pvbn: Pvbn) {
        self.push_newest(slot.0);
    }

    fn touch(&mut self, slot: Lcbn) {
        self.unlink(slot.0);
        self.push_newest(slot.0);
    }

    fn remove(&mut self, slot: Lcbn) {
        self.unlink(slot.0);
    }

    fn victim(&mut self, may_evict: &mut dyn FnMut(Lcbn) -> bool) -> Option<Lcbn> {
        let mut slot = self.oldest;
        for _ in 0..LOOK_AT_MAX {
            if slot == NONE {
                return None;
            }
            if may_evict(Lcbn(slot)) {
                self.unlink(slot);
                return Some(Lcbn(slot));
            }
            slot = self.next[slot as usize];
        }
        None
    }

    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOTS: u32 = 12;

    #[derive(Clone, Debug)]
    enum Step {
        Use(u32),
        Remove(u32),
        Victim { pinned: u32 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        prop::collection::vec(
            prop_oneof![
                4 => (0..SLOTS).prop_map(Step::Use),
                1 => (0..SLOTS).prop_map(Step::Remove),
                2 => (0..=SLOTS).prop_map(|pinned| Step::Victim { pinned }),
            ],
            0..200,
        )
    }

    proptest! {
        /// Reference model: a vector, oldest first.
        #[test]
        fn equals_a_sorted_vector(steps in steps()) {
            let mut lru = Lru::new(SLOTS);
            let mut model: Vec<u32> = Vec::new();
            for step in steps {
                match step {
                    Step::Use(slot) => {
                        let position = model.iter().position(|held| *held == slot);
                        match position {
                            Some(index) => {
                                model.remove(index);
                                lru.touch(Lcbn(slot));
                            }
                            None => lru.insert(Lcbn(slot), Pvbn(u64::from(slot))),
                        }
                        model.push(slot);
                    }
                    Step::Remove(slot) => {
                        if let Some(index) = model.iter().position(|held| *held == slot) {
                            model.remove(index);
                            lru.remove(Lcbn(slot));
                        }
                    }
                    Step::Victim { pinned } => {
                        let expected = model.iter().position(|held| *held != pinned).map(|index| model.remove(index));
                        prop_assert_eq!(lru.victim(&mut |slot| slot.0 != pinned), expected.map(Lcbn));
                    }
                }
                prop_assert_eq!(lru.len(), model.len());
            }
        }
    }
}
