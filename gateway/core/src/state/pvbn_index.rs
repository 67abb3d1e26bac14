//! The index from PVBN to slot: an open-addressing table of 4 bytes a block. It holds slots alone; which PVBN lies in each
//! is looked up where the slots keep it.

use hashbrown::HashTable;
use tombolo_base::{Lcbn, Pvbn};

#[derive(Default)]
pub struct PvbnIndex {
    slots: HashTable<u32>,
}

/// What a place of the table costs: the slot and its control byte.
const PLACE_BYTES: u64 = 5;

impl PvbnIndex {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// `pvbns` are those of all slots.
    pub fn find(&self, pvbn: Pvbn, pvbns: &[u64]) -> Option<Lcbn> {
        let found = self.slots.find(hash(pvbn.0), |slot| pvbns[*slot as usize] == pvbn.0);
        found.map(|slot| Lcbn(*slot))
    }

    /// The slot holds its PVBN, which no other does.
    pub fn insert(&mut self, slot: Lcbn, pvbns: &[u64]) {
        let rehash = |slot: &u32| hash(pvbns[*slot as usize]);
        self.slots.insert_unique(rehash(&slot.0), slot.0, rehash);
    }

    /// Forgets the slot if it is there.
    pub fn remove(&mut self, slot: Lcbn, pvbns: &[u64]) {
        let hash = hash(pvbns[slot.0 as usize]);
        if let Ok(entry) = self.slots.find_entry(hash, |held| *held == slot.0) {
            entry.remove();
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        self.slots.capacity() as u64 * PLACE_BYTES
    }
}

/// Fibonacci hashing spreads consecutive PVBNs over the whole table.
fn hash(pvbn: u64) -> u64 {
    let mixed = pvbn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}
