//! MIN: evicts the block whose next use is farthest in the future. Offline: it is told the whole trace beforehand.
//!
//! Source: Belady, IBM Systems Journal 1966. Optimal for clean blocks of one size and cost that are fetched on demand;
//! not a bound where blocks are prefetched, dirty, or dearer than others. Each `miss` or `touch` is the trace's next
//! access; the caller MUST report all of them, in order. Times are logarithmic in the number of slots.

use crate::heap::{Heap, Rank};
use crate::key_index::KeyIndex;
use crate::{Access, Arrival, Capacity, Incoming, LOOK_AT_MAX, MissHint, Replacement, Residents, Verdict};
use alloc::{vec, vec::Vec};
use tombolo_base::{Lcbn, Pvbn};

const NEVER: u32 = u32::MAX;

/// MIN (Belady 1966): knows all accesses to come and evicts what is read last. Only for traces.
#[derive(Debug)]
pub struct Min {
    /// For each access, when its block is used again.
    next_uses: Vec<u32>,
    /// Accesses so far.
    now: usize,
    keys: Vec<u64>,
    index: KeyIndex,
    /// For each key, its first use after `now`.
    upcoming: Vec<u32>,
    /// The key in each slot.
    key_of_slot: Vec<u32>,
    heap: Heap,
    passed_over: Vec<u32>,
}

impl Min {
    /// `trace` names the key of every access to come, in order.
    ///
    /// # Panics
    /// When the trace has 2^32 accesses or more.
    pub fn new(trace: &[u64]) -> Self {
        assert!(trace.len() < NEVER as usize, "the trace is too long");
        let mut keys = Vec::new();
        let mut index = KeyIndex::with_capacity(1024);
        let mut upcoming = Vec::new();
        let mut next_uses = vec![NEVER; trace.len()];
        for (now, key) in trace.iter().enumerate().rev() {
            let node = index.find(&keys, *key).unwrap_or_else(|| {
                keys.push(*key);
                upcoming.push(NEVER);
                index.insert(&keys, keys.len() as u32 - 1);
                keys.len() as u32 - 1
            });
            next_uses[now] = core::mem::replace(&mut upcoming[node as usize], now as u32);
        }
        Self {
            next_uses,
            now: 0,
            keys,
            index,
            upcoming,
            key_of_slot: Vec::new(),
            heap: Heap::default(),
            passed_over: Vec::new(),
        }
    }

    fn node_of(&self, block: Pvbn) -> u32 {
        let Some(node) = self.index.find(&self.keys, block.0) else {
            panic!("block {} is not in the trace", block.0)
        };
        node
    }

    /// The trace's next access is to this key.
    fn advance(&mut self, node: u32) {
        assert_eq!(
            self.upcoming[node as usize] as usize, self.now,
            "the accesses differ from the trace"
        );
        self.upcoming[node as usize] = self.next_uses[self.now];
        self.now += 1;
    }

    fn rank(&mut self, slot: u32) {
        let next_use = self.upcoming[self.key_of_slot[slot as usize] as usize];
        let rank = Rank {
            value: u64::from(NEVER - next_use),
            stamp: 0,
        };
        self.heap.set(slot, rank);
    }
}

impl Replacement for Min {
    fn name(&self) -> &'static str {
        "min"
    }

    fn miss(&mut self, access: &Access) -> MissHint {
        self.advance(self.node_of(access.block));
        MissHint::default()
    }

    fn reach(&mut self, slot: Lcbn) {
        if slot.0 as usize >= self.key_of_slot.len() {
            self.key_of_slot.resize(slot.0 as usize + 1, 0);
        }
    }

    fn insert(&mut self, slot: Lcbn, arrival: &Arrival) {
        self.reach(slot);
        self.key_of_slot[slot.0 as usize] = self.node_of(arrival.access.block);
        self.rank(slot.0);
    }

    fn touch(&mut self, slot: Lcbn, _access: &Access) {
        self.advance(self.key_of_slot[slot.0 as usize]);
        self.rank(slot.0);
    }

    fn remove(&mut self, slot: Lcbn) {
        self.heap.remove(slot.0);
    }

    fn victim(&mut self, _incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        let mut victim = None;
        for _ in 0..LOOK_AT_MAX {
            let Some((slot, _)) = self.heap.peek() else { break };
            self.heap.remove(slot);
            if residents.judge(Lcbn(slot)) == Verdict::Evict {
                victim = Some(Lcbn(slot));
                break;
            }
            self.passed_over.push(slot);
        }
        while let Some(slot) = self.passed_over.pop() {
            self.rank(slot);
        }
        victim
    }

    fn resize(&mut self, _capacity: Capacity) {}

    fn len(&self) -> usize {
        self.heap.len()
    }

    fn metadata_bytes(&self) -> usize {
        self.heap.bytes()
            + (self.next_uses.capacity() + self.upcoming.capacity() + self.key_of_slot.capacity()) * 4
            + self.keys.capacity() * 8
            + self.index.bytes()
    }

    fn check_invariants(&self) {
        self.heap.check();
        assert!(
            self.upcoming
                .iter()
                .all(|next| *next == NEVER || *next as usize >= self.now)
        );
    }
}
