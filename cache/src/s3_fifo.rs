//! S3-FIFO. About 31 bytes a slot, of which 20 are ghosts.
//!
//! Source: Yang et al., SOSP'23, algorithm 1: a small queue for what is new (10 %), a main queue (90 %), and ghosts of
//! what left the small one (90 % of the cache's blocks). Reads only count, up to three. The small queue's oldest goes
//! to the main queue when it was read often enough (twice; fewer may suit block traces), else it is evicted; the main
//! queue's oldest goes round again, one count lower, while it has any.
//!
//! Variant: as in its authors' simulator since December 2024, blocks that come before the first eviction, when the
//! small queue has its share already, go straight to the main queue; counts start at zero on entering the main queue.
//!
//! Deviations: the shares shrink in proportion when dirty blocks take part of the cache; a prefetched block's first
//! read is not counted, and evicted unread it leaves no ghost.

use crate::ghosts::Ghosts;
use crate::list::{Links, List, Looks, NONE};
use crate::{Access, Arrival, Capacity, Cause, Incoming, MissHint, Replacement, Residents, Verdict, share};
use alloc::vec::Vec;
use tombolo_base::Lcbn;

const GHOSTS: u8 = 0;
const FROM_GHOSTS: MissHint = MissHint(1);
const READS_MAX: u8 = 3;
/// Reads that bring a block from the small queue to the main one.
const PROMOTION_READS: u8 = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    is_main: bool,
    is_unread: bool,
    reads: u8,
}

/// S3-FIFO (Yang and others, SOSP'23): a small queue for newcomers, a main one, and ghosts.
#[derive(Debug)]
pub struct S3Fifo {
    capacity: u32,
    promotion_reads: u8,
    has_evicted: bool,
    states: Vec<State>,
    links: Links,
    small: List,
    main: List,
    ghosts: Ghosts,
}

impl S3Fifo {
    /// Empty; takes memory for `capacity.blocks` at once.
    pub fn new(capacity: Capacity) -> Self {
        Self::with_promotion_reads(capacity, PROMOTION_READS)
    }

    /// How many reads of a newcomer let it into the main queue, in place of the paper's number.
    pub fn with_promotion_reads(capacity: Capacity, promotion_reads: u8) -> Self {
        Self {
            capacity: capacity.blocks,
            promotion_reads: promotion_reads.clamp(1, READS_MAX),
            has_evicted: false,
            states: Vec::with_capacity(capacity.blocks as usize),
            links: Links::with_capacity(capacity.blocks as usize),
            small: List::EMPTY,
            main: List::EMPTY,
            ghosts: Ghosts::new(ghosts_max(capacity)),
        }
    }

    fn main_max(&self) -> u32 {
        let main = self.capacity - self.capacity / 10;
        share(main, self.len() as u32, self.capacity)
    }

    /// One pass over the small queue.
    fn small_victim(&mut self, residents: &mut dyn Residents, looks: &mut Looks) -> Option<u32> {
        let mut slot = self.small.oldest();
        while slot != NONE {
            let mut next = self.links.newer(slot);
            if self.states[slot as usize].reads >= self.promotion_reads {
                self.promote(slot);
            } else {
                if !looks.take() {
                    return None;
                }
                match residents.judge(Lcbn(slot)) {
                    Verdict::Evict => return Some(slot),
                    Verdict::Keep => {}
                    Verdict::Again => {
                        self.small.move_to_newest(&mut self.links, slot);
                        next = if next == NONE { slot } else { next };
                    }
                }
            }
            slot = next;
        }
        None
    }

    /// Goes round the main queue until nothing in it has reads left or may go.
    fn main_victim(&mut self, residents: &mut dyn Residents, looks: &mut Looks) -> Option<u32> {
        let mut slot = self.main.oldest();
        while slot != NONE {
            let next = self.links.newer(slot);
            let goes_round = self.states[slot as usize].reads > 0;
            if goes_round {
                self.states[slot as usize].reads -= 1;
            } else if !looks.take() {
                return None;
            } else {
                match residents.judge(Lcbn(slot)) {
                    Verdict::Evict => return Some(slot),
                    Verdict::Keep => {
                        slot = next;
                        continue;
                    }
                    Verdict::Again => {}
                }
            }
            self.main.move_to_newest(&mut self.links, slot);
            slot = if next == NONE { slot } else { next };
        }
        None
    }

    fn promote(&mut self, slot: u32) {
        self.small.remove(&mut self.links, slot);
        self.main.push_newest(&mut self.links, slot);
        self.states[slot as usize] = State {
            is_main: true,
            is_unread: false,
            reads: 0,
        };
    }

    fn unlink(&mut self, slot: u32) {
        if self.states[slot as usize].is_main {
            self.main.remove(&mut self.links, slot);
        } else {
            self.small.remove(&mut self.links, slot);
        }
    }
}

fn ghosts_max(capacity: Capacity) -> u32 {
    (u64::from(capacity.blocks) * 9 / 10).max(1) as u32
}

impl Replacement for S3Fifo {
    fn name(&self) -> &'static str {
        "s3-fifo"
    }

    fn miss(&mut self, access: &Access) -> MissHint {
        match self.ghosts.forget(access.block) {
            Some(_) => FROM_GHOSTS,
            None => MissHint::default(),
        }
    }

    fn reach(&mut self, slot: Lcbn) {
        self.links.reach(slot.0);
        if slot.0 as usize >= self.states.len() {
            self.states.resize(slot.0 as usize + 1, State::default());
        }
    }

    fn insert(&mut self, slot: Lcbn, arrival: &Arrival) {
        if arrival.cause != Cause::Demand {
            self.ghosts.forget(arrival.access.block);
        }
        self.reach(slot);
        let mut state = State {
            is_main: arrival.miss_hint == FROM_GHOSTS,
            is_unread: arrival.cause == Cause::Prefetch,
            reads: 0,
        };
        state.is_main |= !self.has_evicted && self.small.len() >= self.capacity / 10;
        self.states[slot.0 as usize] = state;
        if state.is_main {
            self.main.push_newest(&mut self.links, slot.0);
        } else {
            self.small.push_newest(&mut self.links, slot.0);
        }
    }

    fn touch(&mut self, slot: Lcbn, _access: &Access) {
        let state = &mut self.states[slot.0 as usize];
        if !core::mem::take(&mut state.is_unread) {
            state.reads = (state.reads + 1).min(READS_MAX);
        }
    }

    fn remove(&mut self, slot: Lcbn) {
        self.unlink(slot.0);
    }

    fn victim(&mut self, _incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        self.has_evicted = true;
        let mut looks = Looks::new();
        let main_first = self.main.len() > self.main_max() || self.small.len() == 0;
        let slot = if main_first {
            self.main_victim(residents, &mut looks)
                .or_else(|| self.small_victim(residents, &mut looks))
                .or_else(|| self.main_victim(residents, &mut looks))
        } else {
            self.small_victim(residents, &mut looks)
                .or_else(|| self.main_victim(residents, &mut looks))
        };
        let slot = slot?;
        self.unlink(slot);
        let state = self.states[slot as usize];
        if !state.is_main && !state.is_unread {
            if self.ghosts.is_full() {
                self.ghosts.drop_oldest(GHOSTS);
            }
            self.ghosts.remember(GHOSTS, residents.block(Lcbn(slot)));
        }
        Some(Lcbn(slot))
    }

    fn resize(&mut self, capacity: Capacity) {
        self.capacity = capacity.blocks;
        self.ghosts.resize(ghosts_max(capacity));
    }

    fn len(&self) -> usize {
        (self.small.len() + self.main.len()) as usize
    }

    fn metadata_bytes(&self) -> usize {
        self.links.bytes() + self.states.capacity() * size_of::<State>() + self.ghosts.bytes()
    }

    fn check_invariants(&self) {
        self.small.check(&self.links);
        self.main.check(&self.links);
        self.ghosts.check();
        assert!(
            self.small
                .iter(&self.links)
                .all(|slot| !self.states[slot as usize].is_main)
        );
        assert!(
            self.main
                .iter(&self.links)
                .all(|slot| self.states[slot as usize].is_main)
        );
    }
}
