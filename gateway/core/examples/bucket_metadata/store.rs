//! A simulated bucket of immutable objects, and sealed nodes packed into them.
//!
//! A node keeps its name, the object and offset that it was first written to, when its object is cleaned: the copy is found
//! by a table of what was moved. So cleaning rewrites no pointer, however many snapshots have it.

use crate::Failure;
use crate::codec::Pointer;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use std::collections::{BTreeMap, HashMap};

/// Where an object is closed.
pub const OBJECT_BYTES: usize = 4 << 20;
/// In front of each node: magic, kind, version, length, salt of its key.
const HEADER_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
/// What the root holds whatever the structure: header, counters, position in the journal, tables of one volume.
const ROOT_BYTES: u64 = 256;
/// Of each object that has moved nodes, in the root: its number, the object that they are in, where.
const MOVED_OBJECT_BYTES: u64 = 16;

type Name = (u32, u32);

#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    pub puts: u64,
    pub put_bytes: u64,
    pub cleaning_bytes: u64,
    pub deletes: u64,
}

struct Packed {
    name: Name,
    offset: u32,
    bytes: u32,
    live: bool,
}

#[derive(Default)]
struct Object {
    bytes: Vec<u8>,
    nodes: Vec<Packed>,
    live_bytes: u64,
}

pub struct Store {
    objects: BTreeMap<u32, Object>,
    /// Being filled, under the number `next`.
    open: Object,
    next: u32,
    moved: HashMap<Name, Name>,
    /// Live moved nodes of each object that they were written to.
    moved_objects: HashMap<u32, u32>,
    key: LessSafeKey,
    pub traffic: Traffic,
    stored_bytes: u64,
    live_bytes: u64,
    live_nodes: u64,
    cleans: bool,
}

impl Store {
    /// Without cleaning an object goes when its last node does, as sorted runs want it.
    pub fn new(cleans: bool) -> Result<Self, Failure> {
        let key = UnboundKey::new(&AES_256_GCM, &[7; 32]).map_err(|_| "no key")?;
        Ok(Self {
            objects: BTreeMap::new(),
            open: Object::default(),
            next: 0,
            moved: HashMap::new(),
            moved_objects: HashMap::new(),
            key: LessSafeKey::new(key),
            traffic: Traffic::default(),
            stored_bytes: 0,
            live_bytes: 0,
            live_nodes: 0,
            cleans,
        })
    }

    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub fn live_nodes(&self) -> u64 {
        self.live_nodes
    }

    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    fn nonce(name: Name) -> Nonce {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&name.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&name.1.to_le_bytes());
        Nonce::assume_unique_for_key(bytes)
    }

    /// Seals a node into the object that is being filled.
    pub fn write(&mut self, mut plain: Vec<u8>, birth: u32) -> Result<Pointer, Failure> {
        self.close_if_full();
        let name = (self.next, self.open.bytes.len() as u32);
        let tag = self
            .key
            .seal_in_place_separate_tag(Self::nonce(name), Aad::from(birth.to_le_bytes()), &mut plain)
            .map_err(|_| "a node cannot be sealed")?;
        let tag: [u8; 16] = tag.as_ref().try_into()?;
        let bytes = (HEADER_BYTES + plain.len() + TAG_BYTES) as u32;
        self.open.bytes.extend_from_slice(&[0; HEADER_BYTES]);
        self.open.bytes.extend_from_slice(&plain);
        self.open.bytes.extend_from_slice(&tag);
        self.append(name, name.1, bytes);
        self.live_nodes += 1;
        Ok(Pointer {
            object: name.0,
            offset: name.1,
            bytes,
            birth,
            tag,
        })
    }

    fn append(&mut self, name: Name, offset: u32, bytes: u32) {
        self.open.nodes.push(Packed {
            name,
            offset,
            bytes,
            live: true,
        });
        self.open.live_bytes += u64::from(bytes);
        self.live_bytes += u64::from(bytes);
    }

    /// The plain bytes of a node, as the writer has them on its disk: no request.
    pub fn read(&self, pointer: &Pointer) -> Result<Vec<u8>, Failure> {
        let name = (pointer.object, pointer.offset);
        let (object, offset) = self.place(name);
        let object = if object == self.next {
            &self.open
        } else {
            self.objects.get(&object).ok_or("a node of a deleted object")?
        };
        let from = offset as usize + HEADER_BYTES;
        let mut bytes = object.bytes[from..offset as usize + pointer.bytes as usize].to_vec();
        if bytes[bytes.len() - TAG_BYTES..] != pointer.tag {
            return Err("a node is not the one that its pointer means".into());
        }
        let length = bytes.len() - TAG_BYTES;
        self.key
            .open_in_place(Self::nonce(name), Aad::from(pointer.birth.to_le_bytes()), &mut bytes)
            .map_err(|_| "a node's tag is wrong")?;
        bytes.truncate(length);
        Ok(bytes)
    }

    fn place(&self, name: Name) -> Name {
        self.moved.get(&name).copied().unwrap_or(name)
    }

    pub fn free(&mut self, pointer: &Pointer) -> Result<(), Failure> {
        let name = (pointer.object, pointer.offset);
        let (number, offset) = self.place(name);
        if self.moved.remove(&name).is_some()
            && let Some(count) = self.moved_objects.get_mut(&name.0)
        {
            *count -= 1;
            if *count == 0 {
                self.moved_objects.remove(&name.0);
            }
        }
        let object = if number == self.next {
            &mut self.open
        } else {
            self.objects.get_mut(&number).ok_or("freed twice: the object is gone")?
        };
        let index = object.nodes.partition_point(|node| node.offset < offset);
        let node = object.nodes.get_mut(index).ok_or("freed what never was")?;
        if !node.live || node.name != name {
            return Err("a node is freed twice".into());
        }
        node.live = false;
        object.live_bytes -= u64::from(node.bytes);
        self.live_bytes -= u64::from(node.bytes);
        self.live_nodes -= 1;
        if object.live_bytes == 0 && number != self.next {
            self.delete(number);
        }
        Ok(())
    }

    fn delete(&mut self, number: u32) {
        if let Some(object) = self.objects.remove(&number) {
            self.stored_bytes -= object.bytes.len() as u64;
            self.traffic.deletes += 1;
        }
    }

    fn close_if_full(&mut self) {
        if self.open.bytes.len() >= OBJECT_BYTES {
            self.close();
        }
    }

    fn close(&mut self) {
        let mut object = std::mem::take(&mut self.open);
        if object.bytes.is_empty() {
            return;
        }
        object.bytes.shrink_to_fit();
        self.traffic.puts += 1;
        self.traffic.put_bytes += object.bytes.len() as u64;
        self.stored_bytes += object.bytes.len() as u64;
        let is_dead = object.live_bytes == 0;
        self.objects.insert(self.next, object);
        if is_dead {
            self.delete(self.next);
        }
        self.next += 1;
    }

    /// Cleans, puts what is left, and the root.
    pub fn checkpoint(&mut self, root_bytes: u64) {
        if self.cleans {
            self.clean();
        }
        self.close();
        self.traffic.puts += 1;
        self.traffic.put_bytes += ROOT_BYTES + root_bytes + MOVED_OBJECT_BYTES * self.moved_objects.len() as u64;
    }

    /// Moves the live nodes of the emptiest objects until two thirds of what is stored is live.
    fn clean(&mut self) {
        let is_wasteful = |store: &Self| 2 * store.stored_bytes > 3 * store.live_bytes + 2 * OBJECT_BYTES as u64;
        if !is_wasteful(self) {
            return;
        }
        let mut candidates: Vec<(u64, u32)> = self
            .objects
            .iter()
            .map(|(&number, object)| (object.live_bytes * 1000 / object.bytes.len() as u64, number))
            .collect();
        candidates.sort_unstable();
        for (_, number) in candidates {
            if !is_wasteful(self) {
                return;
            }
            self.move_nodes(number);
        }
    }

    fn move_nodes(&mut self, number: u32) {
        let Some(object) = self.objects.get_mut(&number) else {
            return;
        };
        let object = std::mem::take(object);
        self.objects.remove(&number);
        self.stored_bytes -= object.bytes.len() as u64;
        self.traffic.deletes += 1;
        for node in object.nodes.iter().filter(|node| node.live) {
            self.close_if_full();
            let offset = self.open.bytes.len() as u32;
            let from = node.offset as usize;
            self.open
                .bytes
                .extend_from_slice(&object.bytes[from..from + node.bytes as usize]);
            // The sealed bytes are moved as they are; they were live before.
            self.live_bytes -= u64::from(node.bytes);
            self.append(node.name, offset, node.bytes);
            self.traffic.cleaning_bytes += u64::from(node.bytes);
            if self.moved.insert(node.name, (self.next, offset)).is_none() {
                *self.moved_objects.entry(node.name.0).or_default() += 1;
            }
        }
    }
}
