//! Nodes of the metadata tree in the store: written into objects of some MiB, and read alone or with all of their object.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::{Handle, Runtime};
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
/// Of single nodes that are kept, as decrypted.
const CACHE_BYTES: usize = 64 << 20;

/// Why a node cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum NodesError {
    #[error("store: {0}")]
    Store(#[from] StoreError),
    #[error("the object `{name}` in the store: {reason}")]
    Object { name: String, reason: String },
    #[error("the system gives no random numbers")]
    NoRandomness,
    #[error(
        "a part of local metadata is still in the store, where a running gateway reads it: start the gateway, and wait until \
         `tombolo status` says that local metadata is complete"
    )]
    Away,
    #[error("nodes are only read here")]
    ReadOnly,
}

/// Nodes are put when the tree is complete ([`StoreNodes::put`]), so an error before leaves nothing behind.
pub struct StoreNodes<'s> {
    runtime: &'s Runtime,
    store: &'s Arc<dyn ObjectStore>,
    ring: &'s KeyRing,
    heads: HashMap<u64, Vec<u8>>,
    open: Option<NodeObject<'s>>,
    closed: Vec<(u64, Vec<u8>)>,
}

impl<'s> StoreNodes<'s> {
    /// Each node is read alone.
    pub fn new(runtime: &'s Runtime, store: &'s Arc<dyn ObjectStore>, ring: &'s KeyRing) -> Self {
        Self {
            runtime,
            store,
            ring,
            heads: HashMap::new(),
            open: None,
            closed: Vec::new(),
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
}

/// Head of the object, and the node as it is stored.
async fn fetch(
    store: Arc<dyn ObjectStore>,
    pointer: Pointer,
    known_head: Option<Vec<u8>>,
) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
    let name = node_object_name(pointer.object);
    let from = u64::from(pointer.offset);
    let node = store.get(&name, Some(from..from + u64::from(pointer.bytes)));
    match known_head {
        Some(head) => Ok((head, node.await?.to_vec())),
        None => {
            let head = store.get(&name, Some(0..OBJECT_HEAD_BYTES as u64));
            let (head, node) = tokio::join!(head, node);
            Ok((head?.to_vec(), node?.to_vec()))
        }
    }
}

fn keep_head(heads: &mut HashMap<u64, Vec<u8>>, object: u64, head: Vec<u8>) {
    if heads.len() >= HEADS_KEPT {
        heads.clear();
    }
    heads.insert(object, head);
}

/// For all nodes of a tree, in their order: objects are read whole.
pub struct WholeObjects {
    runtime: Handle,
    store: Arc<dyn ObjectStore>,
    ring: Arc<KeyRing>,
    /// The latest last.
    objects: VecDeque<(u64, Vec<u8>)>,
}

impl WholeObjects {
    pub fn new(runtime: Handle, store: Arc<dyn ObjectStore>, ring: Arc<KeyRing>) -> Self {
        let objects = VecDeque::new();
        Self {
            runtime,
            store,
            ring,
            objects,
        }
    }
}

impl Nodes for WholeObjects {
    type Error = NodesError;

    fn read(&mut self, pointer: &Pointer) -> Result<Vec<u8>, NodesError> {
        let kept = &mut self.objects;
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
        open(pointer, head, object.get(from..end).unwrap_or_default(), &self.ring)
    }

    fn write(&mut self, _node: Vec<u8>) -> Result<Written, NodesError> {
        Err(NodesError::ReadOnly)
    }
}

/// Single nodes, for many threads: each is read alone, and kept for a while. Those that were announced are fetched at the same
/// time.
#[derive(Clone)]
pub struct CachedNodes(Option<Arc<Cached>>);

struct Cached {
    /// Of the thread pool that serves the store's requests.
    runtime: Handle,
    store: Arc<dyn ObjectStore>,
    ring: Arc<KeyRing>,
    cache: Mutex<NodeCache>,
}

#[derive(Default)]
struct NodeCache {
    heads: HashMap<u64, Vec<u8>>,
    nodes: HashMap<(u64, u32), Vec<u8>>,
    /// Which came when, the oldest first.
    order: VecDeque<(u64, u32)>,
    bytes: usize,
}

impl fmt::Debug for CachedNodes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CachedNodes").finish_non_exhaustive()
    }
}

impl CachedNodes {
    pub fn new(runtime: Handle, store: Arc<dyn ObjectStore>, ring: Arc<KeyRing>) -> Self {
        let cache = Mutex::default();
        Self(Some(Arc::new(Cached {
            runtime,
            store,
            ring,
            cache,
        })))
    }

    /// None can be read.
    pub fn away() -> Self {
        Self(None)
    }
}

impl NodeCache {
    fn keep(&mut self, pointer: &Pointer, node: Vec<u8>) {
        let name = (pointer.object, pointer.message);
        self.bytes += node.len();
        if let Some(before) = self.nodes.insert(name, node) {
            self.bytes -= before.len();
            return;
        }
        self.order.push_back(name);
        while self.bytes > CACHE_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.nodes.remove(&oldest).map_or(0, |node| node.len());
        }
    }
}

impl Cached {
    fn cache(&self) -> MutexGuard<'_, NodeCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lacking(&self, pointers: &[Pointer]) -> Vec<(Pointer, Option<Vec<u8>>)> {
        let cache = self.cache();
        let is_lacking = |pointer: &&Pointer| !cache.nodes.contains_key(&(pointer.object, pointer.message));
        let lacking = pointers.iter().filter(is_lacking);
        lacking
            .map(|pointer| (*pointer, cache.heads.get(&pointer.object).cloned()))
            .collect()
    }

    fn read(&self, pointer: &Pointer) -> Result<Vec<u8>, NodesError> {
        let known = {
            let cache = self.cache();
            if let Some(node) = cache.nodes.get(&(pointer.object, pointer.message)) {
                return Ok(node.clone());
            }
            cache.heads.get(&pointer.object).cloned()
        };
        let (head, node) = self.runtime.block_on(fetch(self.store.clone(), *pointer, known))?;
        self.take(pointer, head, &node)
    }

    fn take(&self, pointer: &Pointer, head: Vec<u8>, stored: &[u8]) -> Result<Vec<u8>, NodesError> {
        let node = open(pointer, &head, stored, &self.ring)?;
        let mut cache = self.cache();
        keep_head(&mut cache.heads, pointer.object, head);
        cache.keep(pointer, node.clone());
        Ok(node)
    }
}

impl Nodes for CachedNodes {
    type Error = NodesError;

    fn read(&mut self, pointer: &Pointer) -> Result<Vec<u8>, NodesError> {
        self.0.as_ref().ok_or(NodesError::Away)?.read(pointer)
    }

    /// What fails is asked for again when it is read.
    fn announce(&mut self, pointers: &[Pointer]) {
        let Some(cached) = &self.0 else { return };
        let lacking = cached.lacking(pointers);
        if lacking.len() < 2 {
            return;
        }
        let fetches = lacking.into_iter().map(|(pointer, known)| {
            let store = cached.store.clone();
            (pointer, cached.runtime.spawn(fetch(store, pointer, known)))
        });
        for (pointer, fetched) in fetches.collect::<Vec<_>>() {
            if let Ok(Ok((head, node))) = cached.runtime.block_on(fetched) {
                let _ = cached.take(&pointer, head, &node);
            }
        }
    }

    fn write(&mut self, _node: Vec<u8>) -> Result<Written, NodesError> {
        Err(NodesError::ReadOnly)
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
        let known = self.heads.get(&pointer.object).cloned();
        let (head, node) = self.runtime.block_on(fetch(self.store.clone(), *pointer, known))?;
        let opened = open(pointer, &head, &node, self.ring)?;
        keep_head(&mut self.heads, pointer.object, head);
        Ok(opened)
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
