//! Small numbers for the volumes that have nodes, so that volume and place of a node fit into 64 bits though a volume's
//! identifier takes all of them.
//!
//! A number is given when a volume gets its first node, and free again when its last node is gone. There are fewer
//! numbers than there can be volumes; when none is free, nothing is learnt of further ones. A forgotten volume loses its
//! identifier at once, so that nothing is found under it, and its number when the last of its nodes is swept away.

use super::places::{NONE, Places};
use super::slab::{PIECE, Slab};
use tombolo_base::VolumeId;

/// Bits of a number.
pub(super) const NUMBER_BITS: u32 = 22;
/// Memory for one volume with its chain.
pub(super) const VOLUME_BYTES: usize = size_of::<Entry>() + 4;
/// In place of a chain: the volume was forgotten and hangs in none.
const FORGOTTEN: u32 = NONE - 1;

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: VolumeId,
    /// Zero: the number is free, but for the moment between [`Volumes::number`] and the first node.
    nodes: u32,
    /// The next entry of the chain, or the next free one.
    chain: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Volumes {
    entries: Slab<Entry>,
    chains: Places,
    free: u32,
    used: usize,
    forgotten: usize,
    max: usize,
}

impl Volumes {
    pub(super) fn new(max: u32) -> Self {
        Self {
            entries: Slab::new(),
            chains: Places::new(),
            free: NONE,
            used: 0,
            forgotten: 0,
            max: max.clamp(1, 1 << NUMBER_BITS) as usize,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.bytes() + self.chains.bytes()
    }

    /// The most memory that so many volumes take, to a piece of each kind.
    pub(super) fn bytes_max(max: u32) -> usize {
        let pieces = |count: u32, bytes: usize| (count as usize).div_ceil(PIECE) * PIECE * bytes;
        pieces(max, size_of::<Entry>()) + pieces(max + 1, 4)
    }

    pub(super) fn is_full(&self) -> bool {
        self.used >= self.max
    }

    pub(super) fn find(&self, volume: VolumeId) -> Option<u32> {
        let mut at = self.chains.head(self.chains.chain(volume.0));
        while at != NONE && self.entries[at].id != volume {
            at = self.entries[at].chain;
        }
        (at != NONE).then_some(at)
    }

    /// The number of a volume that is about to get a node; none if it has none and all are taken.
    pub(super) fn number(&mut self, volume: VolumeId) -> Option<u32> {
        self.find(volume)
            .or_else(|| (!self.is_full()).then(|| self.add(volume)))
    }

    fn add(&mut self, volume: VolumeId) -> u32 {
        let entry = Entry {
            id: volume,
            nodes: 0,
            chain: NONE,
        };
        let number = if self.free == NONE {
            self.entries.push(entry)
        } else {
            let number = self.free;
            self.free = self.entries[number].chain;
            self.entries[number] = entry;
            number
        };
        self.used += 1;
        if self.used > self.chains.len() {
            self.divide_chain();
        }
        self.hang(number);
        number
    }

    pub(super) fn id(&self, number: u32) -> VolumeId {
        self.entries[number].id
    }

    pub(super) fn is_forgotten(&self, number: u32) -> bool {
        self.forgotten > 0 && self.entries[number].chain == FORGOTTEN
    }

    pub(super) fn add_node(&mut self, number: u32) {
        self.entries[number].nodes += 1;
    }

    /// One node less; with the last one the number becomes free.
    pub(super) fn remove_node(&mut self, number: u32) {
        self.entries[number].nodes -= 1;
        if self.entries[number].nodes > 0 {
            return;
        }
        if self.is_forgotten(number) {
            self.forgotten -= 1;
        } else {
            self.unhang(number);
        }
        self.entries[number].chain = self.free;
        self.free = number;
        self.used -= 1;
    }

    pub(super) fn forget(&mut self, volume: VolumeId) {
        if let Some(number) = self.find(volume) {
            self.unhang(number);
            self.entries[number].chain = FORGOTTEN;
            self.forgotten += 1;
        }
    }

    fn divide_chain(&mut self) {
        let from = self.chains.divide().from;
        let mut at = self.chains.head(from);
        self.chains.set_head(from, NONE);
        while at != NONE {
            let next = self.entries[at].chain;
            self.hang(at);
            at = next;
        }
    }

    fn hang(&mut self, number: u32) {
        let chain = self.chains.chain(self.entries[number].id.0);
        self.entries[number].chain = self.chains.head(chain);
        self.chains.set_head(chain, number);
    }

    fn unhang(&mut self, number: u32) {
        let entry = self.entries[number];
        let chain = self.chains.chain(entry.id.0);
        let mut at = self.chains.head(chain);
        if at == number {
            return self.chains.set_head(chain, entry.chain);
        }
        while self.entries[at].chain != number {
            at = self.entries[at].chain;
        }
        self.entries[at].chain = entry.chain;
    }

    /// The numbers in use are those that nodes have, each as often as it says.
    pub(super) fn check_invariants(&self, nodes_by_number: &alloc::collections::BTreeMap<u32, u32>) {
        assert_eq!(self.used, nodes_by_number.len());
        assert!(self.used <= self.max);
        for (number, nodes) in nodes_by_number {
            assert_eq!(self.entries[*number].nodes, *nodes);
            let found = self.find(self.entries[*number].id);
            assert_eq!(found == Some(*number), !self.is_forgotten(*number));
        }
        let forgotten = nodes_by_number.keys().filter(|number| self.is_forgotten(**number));
        assert_eq!(self.forgotten, forgotten.count());
    }
}
