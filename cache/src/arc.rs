//! ARC, the adaptive replacement cache. About 31 bytes a slot, of which 22 are ghosts.
//!
//! Source: Megiddo and Modha, FAST'03, figure 4, with the target `p` and its step as real numbers (an integer step
//! gives measurably other miss ratios). T1 holds blocks used once lately, T2 those used again; B1 and B2 the ghosts
//! evicted from each. A hit in B1 says that T1 should have been larger, one in B2 that T2 should.
//!
//! Figure 4 makes room in the ghost lists before it evicts; here they are cut when the block is inserted, which comes
//! to the same: what is cut is the oldest ghost, and the eviction in between adds the newest.
//!
//! Deviations, all without effect when the cache is full and nothing is prefetched:
//! c is what dirty blocks leave of the cache, as seen when a victim was last needed; a prefetched block's
//! first read is its first use, and neither its arrival nor its eviction before that teaches anything; the ghosts
//! never outnumber the cache's blocks.

use crate::ghosts::Ghosts;
use crate::list::{Links, List, Looks};
use crate::{Access, Arrival, Capacity, Cause, Incoming, MissHint, Replacement, Residents};
use alloc::vec::Vec;
use tombolo_base::Lcbn;

/// Ghost lists.
const B1: u8 = 0;
const B2: u8 = 1;

/// What a ghost hit leaves in the miss_hint.
const FROM_B1: MissHint = MissHint(1);
const FROM_B2: MissHint = MissHint(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Outside,
    /// In T1, prefetched and not read yet.
    Unread,
    T1,
    T2,
}

/// The adaptive replacement cache (Megiddo and Modha, FAST'03): blocks used once and blocks used again, of which ghosts
/// say who should have more room.
#[derive(Debug)]
pub struct Arc {
    capacity: u32,
    /// The paper's c: the capacity, or what was inside when a victim was last needed, if that was less.
    effective: u32,
    /// Target length of T1.
    p: f64,
    places: Vec<Place>,
    links: Links,
    t1: List,
    t2: List,
    ghosts: Ghosts,
}

impl Arc {
    /// Empty; takes memory for `capacity.blocks` at once.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity: capacity.blocks,
            effective: capacity.blocks,
            p: 0.0,
            places: Vec::with_capacity(capacity.blocks as usize),
            links: Links::with_capacity(capacity.blocks as usize),
            t1: List::EMPTY,
            t2: List::EMPTY,
            ghosts: Ghosts::new(ghosts_max(capacity)),
        }
    }

    fn list_of(&mut self, slot: u32) -> &mut List {
        match self.places[slot as usize] {
            Place::T2 => &mut self.t2,
            _ => &mut self.t1,
        }
    }

    /// REPLACE's choice: whether T1 gives the victim.
    fn prefers_t1(&self, miss_hint: MissHint) -> bool {
        let t1 = f64::from(self.t1.len());
        t1 > self.p || (miss_hint == FROM_B2 && t1 == self.p)
    }

    /// |T1|+|B1| <= c and |T1|+|T2|+|B1|+|B2| <= 2c, the paper's invariants, and no more ghosts than blocks.
    fn cut_ghosts(&mut self) {
        let total_max = 2 * self.effective as usize;
        while self.t1.len() + self.ghosts.len(B1) > self.effective && self.ghosts.len(B1) > 0 {
            self.ghosts.drop_oldest(B1);
        }
        while self.ghosts.len(B2) > 0 && (self.len() + self.ghosts.total() > total_max || self.ghosts.is_full()) {
            self.ghosts.drop_oldest(B2);
        }
    }

    fn remember(&mut self, list: u8, slot: Lcbn, residents: &dyn Residents) {
        if self.ghosts.is_full() {
            let crowded = if self.ghosts.len(B2) == 0 { B1 } else { B2 };
            self.ghosts.drop_oldest(crowded);
        }
        self.ghosts.remember(list, residents.block(slot));
    }
}

/// One more than the cache's blocks: between an eviction and the insert that follows there is one too many.
fn ghosts_max(capacity: Capacity) -> u32 {
    capacity.blocks + 1
}

impl Replacement for Arc {
    fn name(&self) -> &'static str {
        "arc"
    }

    fn miss(&mut self, access: &Access) -> MissHint {
        let (b1, b2) = (f64::from(self.ghosts.len(B1)), f64::from(self.ghosts.len(B2)));
        match self.ghosts.forget(access.block) {
            Some(B1) => {
                self.p = (self.p + (b2 / b1).max(1.0)).min(f64::from(self.effective));
                FROM_B1
            }
            Some(_) => {
                self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
                FROM_B2
            }
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
        self.places[slot.0 as usize] = match arrival.cause {
            Cause::Prefetch => Place::Unread,
            _ if arrival.miss_hint == MissHint::default() => Place::T1,
            _ => Place::T2,
        };
        match self.places[slot.0 as usize] {
            Place::T2 => self.t2.push_newest(&mut self.links, slot.0),
            _ => self.t1.push_newest(&mut self.links, slot.0),
        }
        self.cut_ghosts();
    }

    fn touch(&mut self, slot: Lcbn, _access: &Access) {
        match self.places[slot.0 as usize] {
            Place::T2 => self.t2.move_to_newest(&mut self.links, slot.0),
            Place::Unread => {
                self.places[slot.0 as usize] = Place::T1;
                self.t1.move_to_newest(&mut self.links, slot.0);
            }
            _ => {
                self.places[slot.0 as usize] = Place::T2;
                self.t1.remove(&mut self.links, slot.0);
                self.t2.push_newest(&mut self.links, slot.0);
            }
        }
    }

    fn remove(&mut self, slot: Lcbn) {
        let mut list = *self.list_of(slot.0);
        list.remove(&mut self.links, slot.0);
        *self.list_of(slot.0) = list;
        self.places[slot.0 as usize] = Place::Outside;
    }

    fn victim(&mut self, incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        let mut looks = Looks::new();
        self.effective = self.capacity.min(self.len() as u32);
        self.p = self.p.min(f64::from(self.effective));
        let first_t1 = self.t2.len() == 0 || (self.t1.len() > 0 && self.prefers_t1(incoming.miss_hint));
        let links = &mut self.links;
        let slot = if first_t1 {
            self.t1
                .find_victim(links, residents, &mut looks)
                .or_else(|| self.t2.find_victim(links, residents, &mut looks))
        } else {
            self.t2
                .find_victim(links, residents, &mut looks)
                .or_else(|| self.t1.find_victim(links, residents, &mut looks))
        };
        let slot = Lcbn(slot?);
        let place = self.places[slot.0 as usize];
        self.remove(slot);
        match place {
            Place::T1 => self.remember(B1, slot, residents),
            Place::T2 => self.remember(B2, slot, residents),
            Place::Unread | Place::Outside => {}
        }
        Some(slot)
    }

    fn resize(&mut self, capacity: Capacity) {
        self.p *= f64::from(capacity.blocks) / f64::from(self.capacity.max(1));
        self.capacity = capacity.blocks;
        self.effective = capacity.blocks;
        self.ghosts.resize(ghosts_max(capacity));
        self.cut_ghosts();
    }

    fn len(&self) -> usize {
        (self.t1.len() + self.t2.len()) as usize
    }

    fn metadata_bytes(&self) -> usize {
        self.links.bytes() + self.places.capacity() + self.ghosts.bytes()
    }

    fn check_invariants(&self) {
        self.t1.check(&self.links);
        self.t2.check(&self.links);
        self.ghosts.check();
        assert!((0.0..=f64::from(self.capacity)).contains(&self.p));
        let in_t1 = |slot: u32| matches!(self.places[slot as usize], Place::T1 | Place::Unread);
        assert!(self.t1.iter(&self.links).all(in_t1));
        assert!(
            self.t2
                .iter(&self.links)
                .all(|slot| self.places[slot as usize] == Place::T2)
        );
    }
}
