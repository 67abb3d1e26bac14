//! 2Q, the full version. About 20 bytes a slot, of which 11 are ghosts.
//!
//! Source: Johnson and Shasha, VLDB'94, figure 2, with the paper's Kin = 25 % and Kout = 50 % of the cache. New blocks
//! pass through the queue A1in, in order of arrival and whatever is read there; its victims leave a ghost in A1out; a
//! miss on a ghost brings the block into Am, which is LRU.
//!
//! Deviations: Kin shrinks in proportion when dirty blocks take part of the cache; prefetched blocks that were never
//! read leave no ghost.

use crate::ghosts::Ghosts;
use crate::list::{Links, List, Looks};
use crate::{Access, Arrival, Capacity, Cause, Incoming, MissHint, Replacement, Residents, share};
use alloc::vec::Vec;
use tombolo_base::Lcbn;

const A1_OUT: u8 = 0;
const FROM_A1_OUT: MissHint = MissHint(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Outside,
    /// In A1in, prefetched and not read yet.
    Unread,
    A1In,
    Am,
}

/// 2Q (Johnson and Shasha, VLDB'94): a queue for newcomers, an LRU list for what was asked for again, and ghosts.
#[derive(Debug)]
pub struct TwoQ {
    capacity: u32,
    places: Vec<Place>,
    links: Links,
    a1_in: List,
    am: List,
    ghosts: Ghosts,
}

impl TwoQ {
    /// Empty; takes memory for `capacity.blocks` at once.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity: capacity.blocks,
            places: Vec::with_capacity(capacity.blocks as usize),
            links: Links::with_capacity(capacity.blocks as usize),
            a1_in: List::EMPTY,
            am: List::EMPTY,
            ghosts: Ghosts::new(ghosts_max(capacity)),
        }
    }

    fn unlink(&mut self, slot: u32) -> Place {
        let place = core::mem::replace(&mut self.places[slot as usize], Place::Outside);
        match place {
            Place::Am => self.am.remove(&mut self.links, slot),
            _ => self.a1_in.remove(&mut self.links, slot),
        }
        place
    }
}

fn ghosts_max(capacity: Capacity) -> u32 {
    (capacity.blocks / 2).max(1)
}

impl Replacement for TwoQ {
    fn name(&self) -> &'static str {
        "2q"
    }

    fn miss(&mut self, access: &Access) -> MissHint {
        match self.ghosts.forget(access.block) {
            Some(_) => FROM_A1_OUT,
            None => MissHint::default(),
        }
    }

    fn reach(&mut self, slot: Lcbn) {
        self.links.reach(slot.0);
        if slot.0 as usize >= self.places.len() {
            self.places.resize(slot.0 as usize + 1, Place::Outside);
        }
    }

    fn insert(&mut self, slot: Lcbn, arrival: &Arrival) {
        if arrival.cause != Cause::Demand {
            self.ghosts.forget(arrival.access.block);
        }
        self.reach(slot);
        let place = match arrival.cause {
            Cause::Prefetch => Place::Unread,
            _ if arrival.miss_hint == FROM_A1_OUT => Place::Am,
            _ => Place::A1In,
        };
        self.places[slot.0 as usize] = place;
        match place {
            Place::Am => self.am.push_newest(&mut self.links, slot.0),
            _ => self.a1_in.push_newest(&mut self.links, slot.0),
        }
    }

    fn touch(&mut self, slot: Lcbn, _access: &Access) {
        match self.places[slot.0 as usize] {
            Place::Am => self.am.move_to_newest(&mut self.links, slot.0),
            _ => self.places[slot.0 as usize] = Place::A1In,
        }
    }

    fn remove(&mut self, slot: Lcbn) {
        self.unlink(slot.0);
    }

    fn victim(&mut self, _incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        let mut looks = Looks::new();
        let a1_in_max = share(self.capacity / 4, self.len() as u32, self.capacity);
        let links = &mut self.links;
        let slot = if self.a1_in.len() > a1_in_max {
            self.a1_in
                .find_victim(links, residents, &mut looks)
                .or_else(|| self.am.find_victim(links, residents, &mut looks))
        } else {
            self.am
                .find_victim(links, residents, &mut looks)
                .or_else(|| self.a1_in.find_victim(links, residents, &mut looks))
        };
        let slot = slot?;
        if self.unlink(slot) == Place::A1In {
            if self.ghosts.is_full() {
                self.ghosts.drop_oldest(A1_OUT);
            }
            self.ghosts.remember(A1_OUT, residents.block(Lcbn(slot)));
        }
        Some(Lcbn(slot))
    }

    fn resize(&mut self, capacity: Capacity) {
        self.capacity = capacity.blocks;
        self.ghosts.resize(ghosts_max(capacity));
    }

    fn len(&self) -> usize {
        (self.a1_in.len() + self.am.len()) as usize
    }

    fn metadata_bytes(&self) -> usize {
        self.links.bytes() + self.places.capacity() + self.ghosts.bytes()
    }

    fn check_invariants(&self) {
        self.a1_in.check(&self.links);
        self.am.check(&self.links);
        self.ghosts.check();
        let in_a1 = |slot: u32| matches!(self.places[slot as usize], Place::A1In | Place::Unread);
        assert!(self.a1_in.iter(&self.links).all(in_a1));
        assert!(
            self.am
                .iter(&self.links)
                .all(|slot| self.places[slot as usize] == Place::Am)
        );
    }
}
