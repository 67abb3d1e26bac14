//! Nodes of the metadata tree in the store: read alone or with all of their object, written into objects of some MiB.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::runtime::Runtime;
use tombolo_base::OBJECT_HEAD_BYTES;
use tombolo_cloud_driver::encryption::{KeyRing, SECRET_BYTES, SecretKey};
use tombolo_cloud_driver::node_object::{NodeObject, PlacedNode, node_object_name, open_node};
use tombolo_cloud_driver::{ObjectStore, PutMode, StoreError};
use tombolo_metadata_tree::{Nodes, Pointer, Written};

/// An object is closed when it has reached this; its last node may pass it.
const OBJECT_BYTES: usize = 4 << 20;
/// Objects that are kept while all nodes are read.
const OBJECTS_KEPT: usize = 16;
/// Heads that are kept.
const HEADS_KEPT: usize = 4096;

/// Why a node cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum NodesError {
    #[error("store: {0}")]
    Store(#[from] StoreError),
    #[error("the object `{name}` in the store: {reason}")]
    Object { name: String, reason: String },
    #[error("the system gives no random numbers")]
    NoRandomness,
}

/// Nodes are put when the tree is complete ([`StoreNodes::put`]), so an error before leaves nothing behind.
pub struct StoreNodes<'s> {
    runtime: &'s Runtime,
    store: &'s Arc<dyn ObjectStore>,
    ring: &'s KeyRing,
    heads: HashMap<u64, Vec<u8>>,
    /// Those of which all is read; the latest last. `None`: nodes are read alone.
    whole: Option<VecDeque<(u64, Vec<u8>)>>,
    open: Option<NodeObject<'s>>,
    closed: Vec<(u64, Vec<u8>)>,
}

impl<'s> StoreNodes<'s> {
    /// For few nodes, each read alone.
    pub fn of_few(runtime: &'s Runtime, store: &'s Arc<dyn ObjectStore>, ring: &'s KeyRing) -> Self {
        Self {
            runtime,
            store,
            ring,
            heads: HashMap::new(),
            whole: None,
            open: None,
            closed: Vec::new(),
        }
    }

    /// For all nodes, in their order: objects are read whole.
    pub fn of_all(runtime: &'s Runtime, store: &'s Arc<dyn ObjectStore>, ring: &'s KeyRing) -> Self {
        Self {
            whole: Some(VecDeque::new()),
            ..Self::of_few(runtime, store, ring)
        }
    }

    /// Brings what was written to the store. Returns how many bytes that are.
    pub fn put(mut self) -> Result<u64, NodesError> {
        self.close();
        let mut bytes = 0;
        for (number, object) in self.closed {
            bytes += object.len() as u64;
            let name = node_object_name(number);
            let put = self.store.put(&name, object.into(), PutMode::Overwrite);
            self.runtime.block_on(put)?;
        }
        Ok(bytes)
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.closed.push((open.number(), open.finish()));
        }
    }

    fn read_whole(&mut self, pointer: &Pointer) -> Result<Vec<u8>, NodesError> {
        let kept = self.whole.get_or_insert_default();
        if !kept.iter().any(|(number, _)| *number == pointer.object) {
            let name = node_object_name(pointer.object);
            let object = self.runtime.block_on(self.store.get(&name, None))?.to_vec();
            kept.push_back((pointer.object, object));
            if kept.len() > OBJECTS_KEPT {
                kept.pop_front();
            }
        }
        let object = kept.iter().find(|(number, _)| *number == pointer.object);
        let object = object.map_or(&[][..], |(_, object)| object);
        let (from, end) = (
            pointer.offset as usize,
            pointer.offset as usize + pointer.bytes as usize,
        );
        let head = object.get(..OBJECT_HEAD_BYTES).unwrap_or_default();
        open(pointer, head, object.get(from..end).unwrap_or_default(), self.ring)
    }

    fn read_alone(&mut self, pointer: &Pointer) -> Result<Vec<u8>, NodesError> {
        let name = node_object_name(pointer.object);
        let (from, end) = (
            u64::from(pointer.offset),
            u64::from(pointer.offset) + u64::from(pointer.bytes),
        );
        let known = self.heads.get(&pointer.object).cloned();
        let (head, node) = self.runtime.block_on(async {
            let node = self.store.get(&name, Some(from..end));
            match known {
                Some(head) => Ok((head, node.await?)),
                None => {
                    let head = self.store.get(&name, Some(0..OBJECT_HEAD_BYTES as u64));
                    let (head, node) = tokio::join!(head, node);
                    Ok::<_, StoreError>((head?.to_vec(), node?))
                }
            }
        })?;
        let opened = open(pointer, &head, &node, self.ring)?;
        if self.heads.len() >= HEADS_KEPT {
            self.heads.clear();
        }
        self.heads.insert(pointer.object, head);
        Ok(opened)
    }
}

fn open(pointer: &Pointer, head: &[u8], stored: &[u8], ring: &KeyRing) -> Result<Vec<u8>, NodesError> {
    let placed = PlacedNode {
        message: pointer.message,
        offset: pointer.offset,
        bytes: pointer.bytes,
        tag: pointer.tag,
    };
    open_node(pointer.object, head, &placed, stored, ring).map_err(|error| NodesError::Object {
        name: node_object_name(pointer.object),
        reason: error.to_string(),
    })
}

/// A number and a salt that no object has had.
fn fresh() -> Result<(u64, [u8; SECRET_BYTES]), NodesError> {
    let random = || SecretKey::generate().map_err(|_| NodesError::NoRandomness);
    Ok((random()?.id().0, *random()?.secret()))
}

impl Nodes for StoreNodes<'_> {
    type Error = NodesError;

    fn read(&mut self, pointer: &Pointer) -> Result<Vec<u8>, NodesError> {
        match self.whole {
            Some(_) => self.read_whole(pointer),
            None => self.read_alone(pointer),
        }
    }

    fn write(&mut self, node: Vec<u8>) -> Result<Written, NodesError> {
        if self.open.as_ref().is_some_and(|open| open.len() >= OBJECT_BYTES) {
            self.close();
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let (number, salt) = fresh()?;
                self.open.insert(NodeObject::new(number, salt, self.ring))
            }
        };
        let placed = open.add(&node);
        Ok(Written {
            object: open.number(),
            message: placed.message,
            offset: placed.offset,
            bytes: placed.bytes,
            tag: placed.tag,
        })
    }
}
