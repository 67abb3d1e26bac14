//! LIRS. About 47 bytes a slot, of which 30 are ghosts.
//!
//! Source: Jiang and Zhang, SIGMETRICS'02, section 3. Stack S orders blocks by recency and holds ghosts too; LIR blocks
//! (99 % of the cache) have a short time between uses and are all in S, whose oldest entry is always LIR (pruning);
//! resident HIR blocks (1 %) are in queue Q, whose oldest is the victim and stays in S as a ghost. An HIR block used
//! while in S becomes LIR, and the oldest LIR block goes to Q instead.
//!
//! The paper leaves the number of ghosts open: here S never exceeds twice the cache's blocks, and the ghost evicted
//! longest ago goes first. libCacheSim also demotes a LIR block when an HIR block outside S is used, which the paper does
//! not and this does not; all else is equal, so misses differ by 0.02 % of the requests at the most (`tests/reference.rs`).
//!
//! Deviations: when dirty blocks take part of the cache, the LIR share is that of the blocks inside; a prefetched
//! block enters Q alone, so its first read is its first use and it leaves no ghost before.
//!
//! Nodes of S: slot s is node 2s, ghost g node 2g+1.

use crate::key_index::KeyIndex;
use crate::list::{Links, List, Looks, NONE};
use crate::{Access, Arrival, Capacity, Cause, Incoming, MissHint, Replacement, Residents, Verdict};
use alloc::vec::Vec;
use tombolo_base::Lcbn;

const FROM_GHOSTS: MissHint = MissHint(1);

/// LIRS (Jiang and Zhang, SIGMETRICS'02): the blocks of low inter-reference recency keep most of the cache.
#[derive(Debug)]
pub struct Lirs {
    capacity: u32,
    /// LIR blocks wanted: 99 % of the cache, or of what was inside when a victim was last needed.
    lir_max: u32,
    lir_count: u32,
    is_lir: Vec<bool>,
    stack_links: Links,
    stack: List,
    queue_links: Links,
    queue: List,
    ghosts: StackGhosts,
}

/// Ghosts by name and by time of eviction; their place in S is the stack's business.
#[derive(Debug)]
struct StackGhosts {
    keys: Vec<u64>,
    index: KeyIndex,
    links: Links,
    by_eviction: List,
    free: List,
}

impl StackGhosts {
    fn new(limit: u32) -> Self {
        Self {
            keys: Vec::with_capacity(limit as usize),
            index: KeyIndex::with_capacity(limit as usize),
            links: Links::with_capacity(limit as usize),
            by_eviction: List::EMPTY,
            free: List::EMPTY,
        }
    }

    fn add(&mut self, key: u64) -> u32 {
        let ghost = match self.free.oldest() {
            NONE => {
                self.keys.push(0);
                let ghost = self.keys.len() as u32 - 1;
                self.links.reach(ghost);
                ghost
            }
            ghost => {
                self.free.remove(&mut self.links, ghost);
                ghost
            }
        };
        self.keys[ghost as usize] = key;
        self.index.insert(&self.keys, ghost);
        self.by_eviction.push_newest(&mut self.links, ghost);
        ghost
    }

    fn drop(&mut self, ghost: u32) {
        self.index.remove(&self.keys, ghost);
        self.by_eviction.remove(&mut self.links, ghost);
        self.free.push_newest(&mut self.links, ghost);
    }
}

fn slot_node(slot: u32) -> u32 {
    slot * 2
}

fn ghost_node(ghost: u32) -> u32 {
    ghost * 2 + 1
}

fn is_ghost(node: u32) -> bool {
    node & 1 == 1
}

fn hir_max(blocks: u32) -> u32 {
    (blocks / 100).max(1)
}

impl Lirs {
    /// Empty; takes memory for `capacity.blocks` at once.
    pub fn new(capacity: Capacity) -> Self {
        let blocks = capacity.blocks;
        Self {
            capacity: blocks,
            lir_max: blocks.saturating_sub(hir_max(blocks)),
            lir_count: 0,
            is_lir: Vec::with_capacity(blocks as usize),
            stack_links: Links::with_capacity(2 * blocks as usize),
            stack: List::EMPTY,
            queue_links: Links::with_capacity(blocks as usize),
            queue: List::EMPTY,
            ghosts: StackGhosts::new(ghosts_max(blocks)),
        }
    }

    fn push_stack(&mut self, slot: u32) {
        let node = slot_node(slot);
        if self.stack_links.is_linked(node) {
            self.stack.move_to_newest(&mut self.stack_links, node);
        } else {
            self.stack.push_newest(&mut self.stack_links, node);
        }
    }

    fn push_queue(&mut self, slot: u32) {
        if self.queue_links.is_linked(slot) {
            self.queue.move_to_newest(&mut self.queue_links, slot);
        } else {
            self.queue.push_newest(&mut self.queue_links, slot);
        }
    }

    /// The slot's block is LIR from now on; others give way.
    fn make_lir(&mut self, slot: u32) {
        self.is_lir[slot as usize] = true;
        self.lir_count += 1;
        while self.lir_count > self.lir_max.max(1) {
            self.demote_oldest_lir();
        }
        self.prune();
    }

    /// The oldest LIR block, which is S's oldest entry, goes to Q.
    fn demote_oldest_lir(&mut self) {
        let node = self.stack.oldest();
        let slot = node / 2;
        debug_assert!(!is_ghost(node) && self.is_lir[slot as usize]);
        self.stack.remove(&mut self.stack_links, node);
        self.is_lir[slot as usize] = false;
        self.lir_count -= 1;
        self.push_queue(slot);
        self.prune();
    }

    /// Removes from S what is older than the oldest LIR block.
    fn prune(&mut self) {
        loop {
            let node = self.stack.oldest();
            if node == NONE || (!is_ghost(node) && self.is_lir[(node / 2) as usize]) {
                return;
            }
            self.stack.remove(&mut self.stack_links, node);
            if is_ghost(node) {
                self.ghosts.drop(node / 2);
            }
        }
    }

    fn drop_ghost(&mut self, ghost: u32) {
        self.stack.remove(&mut self.stack_links, ghost_node(ghost));
        self.ghosts.drop(ghost);
    }

    fn limit_stack(&mut self) {
        let stack_max = self.capacity.saturating_mul(2);
        while self.stack.len() > stack_max || self.ghosts.by_eviction.len() > ghosts_max(self.capacity) {
            match self.ghosts.by_eviction.oldest() {
                NONE => return,
                ghost => self.drop_ghost(ghost),
            }
        }
    }

    /// Q gets its share of what is inside; all that is older becomes LIR's.
    fn balance(&mut self) {
        let resident = self.len() as u32;
        let blocks = if resident >= self.capacity {
            self.capacity
        } else {
            resident
        };
        self.lir_max = blocks.saturating_sub(hir_max(blocks));
        while self.lir_count > self.lir_max {
            self.demote_oldest_lir();
        }
    }

    fn evict(&mut self, slot: u32, residents: &dyn Residents) {
        self.queue.remove(&mut self.queue_links, slot);
        let node = slot_node(slot);
        if self.stack_links.is_linked(node) {
            let ghost = self.ghosts.add(residents.block(Lcbn(slot)).0);
            self.stack_links.reach(ghost_node(ghost));
            self.stack.replace(&mut self.stack_links, node, ghost_node(ghost));
            self.limit_stack();
        }
    }
}

/// All that S can hold besides the LIR blocks of a full cache.
fn ghosts_max(blocks: u32) -> u32 {
    blocks.saturating_add(hir_max(blocks))
}

impl Replacement for Lirs {
    fn name(&self) -> &'static str {
        "lirs"
    }

    fn miss(&mut self, access: &Access) -> MissHint {
        match self.ghosts.index.find(&self.ghosts.keys, access.block.0) {
            Some(ghost) => {
                self.drop_ghost(ghost);
                FROM_GHOSTS
            }
            None => MissHint::default(),
        }
    }

    fn reach(&mut self, slot: Lcbn) {
        if slot.0 as usize >= self.is_lir.len() {
            self.is_lir.resize(slot.0 as usize + 1, false);
        }
        self.stack_links.reach(slot_node(slot.0));
        self.queue_links.reach(slot.0);
    }

    fn insert(&mut self, slot: Lcbn, arrival: &Arrival) {
        if arrival.cause != Cause::Demand {
            self.miss(&arrival.access);
        }
        self.reach(slot);
        let slot = slot.0;
        self.is_lir[slot as usize] = false;
        if arrival.cause == Cause::Prefetch {
            return self.push_queue(slot);
        }
        self.push_stack(slot);
        if arrival.miss_hint == FROM_GHOSTS || self.lir_count < self.lir_max {
            self.make_lir(slot);
        } else {
            self.push_queue(slot);
            self.prune();
        }
        self.limit_stack();
    }

    fn touch(&mut self, slot: Lcbn, _access: &Access) {
        let slot = slot.0;
        let in_stack = self.stack_links.is_linked(slot_node(slot));
        self.push_stack(slot);
        if self.is_lir[slot as usize] {
            self.prune();
        } else if in_stack {
            self.queue.remove(&mut self.queue_links, slot);
            self.make_lir(slot);
        } else {
            self.push_queue(slot);
            self.prune();
        }
        self.limit_stack();
    }

    fn remove(&mut self, slot: Lcbn) {
        let node = slot_node(slot.0);
        if self.stack_links.is_linked(node) {
            self.stack.remove(&mut self.stack_links, node);
        }
        if self.queue_links.is_linked(slot.0) {
            self.queue.remove(&mut self.queue_links, slot.0);
        }
        if core::mem::take(&mut self.is_lir[slot.0 as usize]) {
            self.lir_count -= 1;
        }
        self.prune();
    }

    fn victim(&mut self, _incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        self.balance();
        let mut looks = Looks::new();
        loop {
            if let Some(slot) = self.queue.find_victim(&mut self.queue_links, residents, &mut looks) {
                self.evict(slot, residents);
                return Some(Lcbn(slot));
            }
            // Everything in Q is held. Q's newest is what a demotion has just brought, so each turn judges one more.
            if self.lir_count == 0 {
                return None;
            }
            self.demote_oldest_lir();
            let slot = self.queue.newest();
            if !looks.take() {
                return None;
            }
            match residents.judge(Lcbn(slot)) {
                Verdict::Evict => {
                    self.evict(slot, residents);
                    return Some(Lcbn(slot));
                }
                Verdict::Keep | Verdict::Again => {}
            }
        }
    }

    fn resize(&mut self, capacity: Capacity) {
        self.capacity = capacity.blocks;
        self.lir_max = capacity.blocks.saturating_sub(hir_max(capacity.blocks));
        while self.lir_count > self.lir_max.max(1) {
            self.demote_oldest_lir();
        }
        self.limit_stack();
    }

    fn len(&self) -> usize {
        (self.lir_count + self.queue.len()) as usize
    }

    fn metadata_bytes(&self) -> usize {
        self.is_lir.capacity()
            + self.stack_links.bytes()
            + self.queue_links.bytes()
            + self.ghosts.keys.capacity() * 8
            + self.ghosts.index.bytes()
            + self.ghosts.links.bytes()
    }

    fn check_invariants(&self) {
        self.stack.check(&self.stack_links);
        self.queue.check(&self.queue_links);
        self.ghosts.by_eviction.check(&self.ghosts.links);
        let is_lir = |node: u32| !is_ghost(node) && self.is_lir[(node / 2) as usize];
        let oldest = self.stack.oldest();
        assert!(oldest == NONE || is_lir(oldest), "S is pruned");
        let lir = self.stack.iter(&self.stack_links).filter(|node| is_lir(*node)).count();
        assert_eq!(lir, self.lir_count as usize, "every LIR block is in S");
        assert!(
            self.queue
                .iter(&self.queue_links)
                .all(|slot| !self.is_lir[slot as usize])
        );
        let ghosts = self
            .stack
            .iter(&self.stack_links)
            .filter(|node| is_ghost(*node))
            .count();
        assert_eq!(ghosts, self.ghosts.by_eviction.len() as usize, "every ghost is in S");
        assert_eq!(ghosts, self.ghosts.index.len());
    }
}
