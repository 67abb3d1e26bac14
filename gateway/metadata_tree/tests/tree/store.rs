//! Nodes in memory, as the bucket would have them: each has a place of its own, and is never changed.

use std::collections::{BTreeMap, BTreeSet};
use tombolo_base::{Fingerprint, TAG_BYTES};
use tombolo_metadata_tree::{Nodes, Pointer, Written};

/// Object and message.
pub type Name = (u64, u32);

pub fn name(pointer: &Pointer) -> Name {
    (pointer.object, pointer.message)
}

const HEAD_BYTES: u32 = 56;
const OBJECT_NODES_MAX: u32 = 5;

#[derive(Clone)]
pub struct Store {
    nodes: BTreeMap<Name, (Written, Vec<u8>)>,
    next: Written,
    /// Since they were taken.
    written: Vec<Name>,
    pub reads: u64,
    /// The read in which a bit is flipped, and the bit.
    pub damage: Option<(u64, u64)>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            nodes: BTreeMap::new(),
            next: Written {
                object: 3 << 40,
                message: 0,
                offset: HEAD_BYTES,
                bytes: 0,
                tag: [0; TAG_BYTES],
            },
            written: Vec::new(),
            reads: 0,
            damage: None,
        }
    }
}

impl Store {
    pub fn take_written(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.written)
    }

    pub fn remove(&mut self, name: Name) {
        self.nodes.remove(&name);
    }

    pub fn names(&self) -> BTreeSet<Name> {
        self.nodes.keys().copied().collect()
    }

    pub fn bytes(&self, name: Name) -> Option<&[u8]> {
        self.nodes.get(&name).map(|(_, bytes)| bytes.as_slice())
    }
}

impl Nodes for Store {
    type Error = String;

    fn read(&mut self, pointer: &Pointer) -> Result<Vec<u8>, String> {
        let (written, bytes) = self.nodes.get(&name(pointer)).ok_or("no such node")?;
        let place = (written.offset, written.bytes, written.tag);
        if place != (pointer.offset, pointer.bytes, pointer.tag) {
            return Err(format!("{pointer:?} names another node than {written:?}"));
        }
        if self.written.contains(&name(pointer)) {
            return Err(format!("{pointer:?} was written by this change itself"));
        }
        let mut bytes = bytes.clone();
        if let Some((read, bit)) = self.damage
            && read == self.reads
        {
            let bit = (bit % (bytes.len() as u64 * 8)) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        self.reads += 1;
        Ok(bytes)
    }

    fn write(&mut self, node: Vec<u8>) -> Result<Written, String> {
        if self.next.message == OBJECT_NODES_MAX {
            self.next.object += 1;
            (self.next.message, self.next.offset) = (0, HEAD_BYTES);
        }
        let mut written = self.next;
        written.bytes = (node.len() + TAG_BYTES) as u32;
        written.tag.copy_from_slice(&Fingerprint::of(&node).0[..TAG_BYTES]);
        self.next.message += 1;
        self.next.offset += written.bytes;
        let name = (written.object, written.message);
        self.written.push(name);
        self.nodes.insert(name, (written, node));
        Ok(written)
    }
}
