//! SIEVE. 9 bytes a slot.
//!
//! Source: Zhang et al., NSDI'24, algorithm 1. One queue in order of arrival; reads only mark a block visited; a hand
//! goes from old to new, clears marks and evicts the first block without one, and stays where it stopped. Not
//! resistant to scans of blocks.
//!
//! Deviations: a prefetched block's first read does not mark it; the hand passes over slots that may not go.

use crate::list::{Links, List, Looks, NONE};
use crate::{Access, Arrival, Capacity, Cause, Incoming, MissHint, Replacement, Residents, Verdict};
use alloc::vec::Vec;
use tombolo_base::Lcbn;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Unread,
    Plain,
    Visited,
}

/// SIEVE (Zhang and others, NSDI'24): one queue, and a hand that passes over what was read since it came by.
#[derive(Debug)]
pub struct Sieve {
    marks: Vec<Mark>,
    links: Links,
    list: List,
    /// Where the next search begins; `NONE`: at the oldest.
    hand: u32,
}

impl Sieve {
    /// Empty; takes memory for `capacity.blocks` at once.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            marks: Vec::with_capacity(capacity.blocks as usize),
            links: Links::with_capacity(capacity.blocks as usize),
            list: List::EMPTY,
            hand: NONE,
        }
    }
}

impl Replacement for Sieve {
    fn name(&self) -> &'static str {
        "sieve"
    }

    fn miss(&mut self, _access: &Access) -> MissHint {
        MissHint::default()
    }

    fn reach(&mut self, slot: Lcbn) {
        self.links.reach(slot.0);
        if slot.0 as usize >= self.marks.len() {
            self.marks.resize(slot.0 as usize + 1, Mark::Plain);
        }
    }

    fn insert(&mut self, slot: Lcbn, arrival: &Arrival) {
        self.reach(slot);
        self.marks[slot.0 as usize] = match arrival.cause {
            Cause::Prefetch => Mark::Unread,
            Cause::Demand | Cause::Write => Mark::Plain,
        };
        self.list.push_newest(&mut self.links, slot.0);
    }

    fn touch(&mut self, slot: Lcbn, _access: &Access) {
        let mark = &mut self.marks[slot.0 as usize];
        *mark = match mark {
            Mark::Unread => Mark::Plain,
            Mark::Plain | Mark::Visited => Mark::Visited,
        };
    }

    fn remove(&mut self, slot: Lcbn) {
        if self.hand == slot.0 {
            self.hand = self.links.newer(slot.0);
        }
        self.list.remove(&mut self.links, slot.0);
    }

    fn victim(&mut self, _incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        let mut looks = Looks::new();
        let mut unmoved = 0;
        while self.list.len() > 0 && unmoved < self.list.len() {
            let slot = if self.hand == NONE {
                self.list.oldest()
            } else {
                self.hand
            };
            self.hand = self.links.newer(slot);
            if self.marks[slot as usize] == Mark::Visited {
                self.marks[slot as usize] = Mark::Plain;
                unmoved = 0;
                continue;
            }
            if !looks.take() {
                return None;
            }
            match residents.judge(Lcbn(slot)) {
                Verdict::Evict => {
                    self.list.remove(&mut self.links, slot);
                    return Some(Lcbn(slot));
                }
                Verdict::Keep => unmoved += 1,
                Verdict::Again => {
                    self.marks[slot as usize] = Mark::Visited;
                    unmoved = 0;
                }
            }
        }
        None
    }

    fn resize(&mut self, _capacity: Capacity) {}

    fn len(&self) -> usize {
        self.list.len() as usize
    }

    fn metadata_bytes(&self) -> usize {
        self.links.bytes() + self.marks.capacity()
    }

    fn check_invariants(&self) {
        self.list.check(&self.links);
        assert!(self.hand == NONE || self.links.is_linked(self.hand));
    }
}
