//! Least recently used. 8 bytes a slot.
//!
//! Prefetched blocks enter at the newest end like any other (LRU_SEQ, LRU_AMP of the Tombolo paper).

use crate::list::{Links, List, Looks};
use crate::{Access, Arrival, Capacity, Incoming, MissHint, Replacement, Residents};
use tombolo_base::Lcbn;

/// The block read longest ago goes first.
#[derive(Debug)]
pub struct Lru {
    links: Links,
    list: List,
}

impl Lru {
    /// Empty; takes memory for `capacity.blocks` at once.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            links: Links::with_capacity(capacity.blocks as usize),
            list: List::EMPTY,
        }
    }
}

impl Replacement for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn miss(&mut self, _access: &Access) -> MissHint {
        MissHint::default()
    }

    fn reach(&mut self, slot: Lcbn) {
        self.links.reach(slot.0);
    }

    fn insert(&mut self, slot: Lcbn, _arrival: &Arrival) {
        self.reach(slot);
        self.list.push_newest(&mut self.links, slot.0);
    }

    fn touch(&mut self, slot: Lcbn, _access: &Access) {
        self.list.move_to_newest(&mut self.links, slot.0);
    }

    fn remove(&mut self, slot: Lcbn) {
        self.list.remove(&mut self.links, slot.0);
    }

    fn victim(&mut self, _incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        let slot = self.list.find_victim(&mut self.links, residents, &mut Looks::new())?;
        self.list.remove(&mut self.links, slot);
        Some(Lcbn(slot))
    }

    fn resize(&mut self, _capacity: Capacity) {}

    fn len(&self) -> usize {
        self.list.len() as usize
    }

    fn metadata_bytes(&self) -> usize {
        self.links.bytes()
    }

    fn check_invariants(&self) {
        self.list.check(&self.links);
    }
}
