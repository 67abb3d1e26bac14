//! Nodes of the metadata tree in the store: written into objects of some MiB, and read alone or with all of their object.

use super::cloud::store_failure;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;
use tombolo_base::OBJECT_HEAD_BYTES;
use tombolo_cloud_driver::encryption::{KeyRing, SECRET_BYTES, SecretKey};
use tombolo_cloud_driver::node_object::{NodeObject, PlacedNode, node_object_name, open_node};
use tombolo_cloud_driver::{ObjectStore, PutMode, StoreError};
use tombolo_core::MetadataError;
use tombolo_metadata_tree::{Nodes, Pointer, Written};

/// An object is closed when it has reached this; its last node may pass it.
const OBJECT_BYTES: usize = 4 << 20;
/// Objects that are kept while all nodes are read.
const OBJECTS_KEPT: usize = 16;
/// Heads that are kept.
const HEADS_KEPT: usize = 4096;
/// Of single nodes that are kept, as decrypted.
const CACHE_BYTES: usize = 64 << 20;
/// What is left for each read of a node once the gateway is stopping. What is not made then is made at the next start.
const STOPPING_PATIENCE: Duration = Duration::from_secs(1);

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
    /// At a start; why, with the store's url.
    #[error("{0}")]
    Unreachable(String),
    /// The store has failed since this was asked for, and what is said of that.
    #[error("{0}")]
    Overdue(String),
    #[error("the gateway is stopping, and waits no longer for the store")]
    Stopping,
    #[error("it would have to be read in the store")]
    NotKept,
    #[error("nodes are only read here")]
    ReadOnly,
}

/// Whoever asks cares for one thing: may the same succeed later?
impl From<NodesError> for MetadataError {
    fn from(error: NodesError) -> Self {
        let reason = error.to_string();
        match error {
            NodesError::Store(error) if store_failure(&error).retryable => Self::Unanswered(reason),
            NodesError::Store(_) | NodesError::Object { .. } => Self::Altered(reason),
            NodesError::Unreachable(_) | NodesError::Overdue(_) | NodesError::Stopping => Self::Unanswered(reason),
            NodesError::NoRandomness | NodesError::Away | NodesError::NotKept | NodesError::ReadOnly => {
                Self::Local(reason)
            }
        }
    }
}

/// Is told what the store answers when it is asked for nodes. It MUST NOT wait, and not use local metadata: whoever
/// reads a node is within a transaction of that.
pub type Listener = Arc<dyn Fn(Result<(), &StoreError>) + Send + Sync>;

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
    listener: Option<Listener>,
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
            listener: None,
            objects,
        }
    }

    pub fn told_to(self, listener: Listener) -> Self {
        let listener = Some(listener);
        Self { listener, ..self }
    }
}

impl Nodes for WholeObjects {
    type Error = NodesError;

    fn read(&mut self, pointer: &Pointer) -> Result<Vec<u8>, NodesError> {
        let kept = &mut self.objects;
        if !kept.iter().any(|(number, _)| *number == pointer.object) {
            let name = node_object_name(pointer.object);
            let got = self.runtime.block_on(self.store.get(&name, None));
            if let Some(listener) = &self.listener {
                listener(got.as_ref().map(|_| ()));
            }
            kept.push_back((pointer.object, got?.to_vec()));
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
pub struct CachedNodes {
    source: Source,
    patience: Patience,
}

#[derive(Clone)]
enum Source {
    Store(Arc<Cached>),
    /// None can be read.
    Away,
    /// The store did not answer when it was asked for the first time, and is not asked again; why.
    Unreachable(Arc<str>),
}

/// What may be done for a node.
#[derive(Clone)]
enum Patience {
    /// The store is asked, again and again, as it is for data.
    OneRequest,
    /// The same, but not any more once this has passed and the store is known to be away.
    Until(Instant),
    /// The store is not asked. Set when it would have been.
    KeptOnly(Arc<AtomicBool>),
}

struct Cached {
    /// Of the thread pool that serves the store's requests.
    runtime: Handle,
    store: Arc<dyn ObjectStore>,
    ring: Arc<KeyRing>,
    cache: Mutex<NodeCache>,
    listener: Option<Listener>,
    /// What the store failed with, if it has not answered since.
    failure: Mutex<Option<String>>,
    is_stopping: watch::Sender<bool>,
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
        Self::of(runtime, store, ring, None)
    }

    /// For a gateway that serves: `listener` hears of each failure, and of the first answer after it.
    pub fn told_to(runtime: Handle, store: Arc<dyn ObjectStore>, ring: Arc<KeyRing>, listener: Listener) -> Self {
        Self::of(runtime, store, ring, Some(listener))
    }

    fn of(runtime: Handle, store: Arc<dyn ObjectStore>, ring: Arc<KeyRing>, listener: Option<Listener>) -> Self {
        Self::from(Source::Store(Arc::new(Cached {
            runtime,
            store,
            ring,
            cache: Mutex::default(),
            listener,
            failure: Mutex::default(),
            is_stopping: watch::Sender::new(false),
        })))
    }

    /// None can be read.
    pub fn away() -> Self {
        Source::Away.into()
    }

    /// None can be read, because the store does not answer.
    pub fn unreachable(reason: &str) -> Self {
        Source::Unreachable(reason.into()).into()
    }

    /// Those that are kept, without a wait. The flag says afterwards whether any other was asked for.
    pub fn kept_only(&self) -> (Self, Arc<AtomicBool>) {
        let is_lacking = Arc::new(AtomicBool::new(false));
        let patience = Patience::KeptOnly(is_lacking.clone());
        let source = self.source.clone();
        (Self { source, patience }, is_lacking)
    }

    /// For one who may have had to wait until he could ask.
    pub fn until(&self, until: Instant) -> Self {
        let (source, patience) = (self.source.clone(), Patience::Until(until));
        Self { source, patience }
    }

    /// From now on nobody waits long for the store.
    pub fn stop(&self) {
        if let Source::Store(cached) = &self.source {
            cached.is_stopping.send_replace(true);
        }
    }
}

impl From<Source> for CachedNodes {
    fn from(source: Source) -> Self {
        let patience = Patience::OneRequest;
        Self { source, patience }
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

    fn read(&self, pointer: &Pointer, patience: &Patience) -> Result<Vec<u8>, NodesError> {
        let known = {
            let cache = self.cache();
            if let Some(node) = cache.nodes.get(&(pointer.object, pointer.message)) {
                return Ok(node.clone());
            }
            cache.heads.get(&pointer.object).cloned()
        };
        match patience {
            Patience::KeptOnly(is_lacking) => {
                is_lacking.store(true, Ordering::Relaxed);
                return Err(NodesError::NotKept);
            }
            Patience::Until(until) if Instant::now() >= *until => {
                if let Some(reason) = self.failure().clone() {
                    return Err(NodesError::Overdue(reason));
                }
            }
            Patience::Until(_) | Patience::OneRequest => {}
        }
        let (head, node) = self.runtime.block_on(self.fetch(*pointer, known))?;
        self.take(pointer, head, &node)
    }

    async fn fetch(&self, pointer: Pointer, known: Option<Vec<u8>>) -> Result<(Vec<u8>, Vec<u8>), NodesError> {
        let mut is_stopping = self.is_stopping.subscribe();
        let stopped = async {
            let _ = is_stopping.wait_for(|is_stopping| *is_stopping).await;
            tokio::time::sleep(STOPPING_PATIENCE).await;
        };
        tokio::select! {
            fetched = fetch(self.store.clone(), pointer, known) => {
                self.note(fetched.as_ref().map(|_| ()));
                Ok(fetched?)
            }
            () = stopped => Err(NodesError::Stopping),
        }
    }

    fn failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, answer: Result<(), &StoreError>) {
        let away = answer.err().filter(|error| store_failure(error).retryable);
        let before = std::mem::replace(&mut *self.failure(), away.map(ToString::to_string));
        if let Some(listener) = self.listener.as_ref().filter(|_| answer.is_err() || before.is_some()) {
            listener(answer);
        }
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
        match &self.source {
            Source::Store(cached) => cached.read(pointer, &self.patience),
            Source::Away => Err(NodesError::Away),
            Source::Unreachable(reason) => Err(NodesError::Unreachable(reason.to_string())),
        }
    }

    /// What fails is asked for again when it is read, unless the store is away: that was waited for.
    fn announce(&mut self, pointers: &[Pointer]) {
        let (Source::Store(cached), Patience::OneRequest | Patience::Until(_)) = (&self.source, &self.patience) else {
            return;
        };
        let lacking = cached.lacking(pointers);
        if lacking.len() < 2 {
            return;
        }
        let handle = cached.runtime.clone();
        let fetches = lacking.into_iter().map(|(pointer, known)| {
            let cached = cached.clone();
            let fetch = async move { cached.fetch(pointer, known).await };
            (pointer, handle.spawn(fetch))
        });
        let mut has_failed = false;
        for (pointer, fetched) in fetches.collect::<Vec<_>>() {
            match cached.runtime.block_on(fetched) {
                Ok(Ok((head, node))) => drop(cached.take(&pointer, head, &node)),
                _ => has_failed = true,
            }
        }
        if has_failed {
            self.patience = Patience::Until(Instant::now());
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
