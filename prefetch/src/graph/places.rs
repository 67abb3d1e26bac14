//! The heads of the chains in which nodes hang, by place, or volumes, by identifier: linear hashing (Litwin 1980). There
//! are as many chains as nodes, and each new node adds one by splitting one, so no insertion ever rehashes everything.

use super::slab::Slab;

pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Places {
    heads: Slab<u32>,
}

/// The chain to be divided between itself and a new one.
pub(super) struct Division {
    pub from: u32,
}

impl Places {
    pub(super) fn new() -> Self {
        let mut heads = Slab::new();
        heads.push(NONE);
        Self { heads }
    }

    pub(super) fn bytes(&self) -> usize {
        self.heads.bytes()
    }

    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// The chain of a place.
    pub(super) fn chain(&self, place: u64) -> u32 {
        let mut hash = place.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        let chains = self.heads.len();
        let full = chains.next_power_of_two();
        let chain = hash as usize & (full - 1);
        (if chain < chains { chain } else { chain - full / 2 }) as u32
    }

    pub(super) fn head(&self, chain: u32) -> u32 {
        self.heads[chain]
    }

    pub(super) fn set_head(&mut self, chain: u32, node: u32) {
        self.heads[chain] = node;
    }

    /// Adds a chain; the nodes of the divided one must be hung anew by their places.
    pub(super) fn divide(&mut self) -> Division {
        let new = self.heads.push(NONE) as usize;
        let full = (new + 1).next_power_of_two();
        Division {
            from: (new - full / 2) as u32,
        }
    }
}
