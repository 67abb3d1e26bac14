//! Objects to and from the store: the driver's decorators in the order that the gateway wants them, and the way of
//! fetched blocks into their slots.

use super::Gateway;
use super::execute::disk_error;
use super::open::Options;
use super::replicas::{CheckedCopies, Replicas};
use super::warm_connections::WarmConnections;
use bytes::Bytes;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tombolo_base::{BLOCK_BYTES, BlockSum, OBJECT_BLOCKS_MAX, ObjectDescriptor, ObjectId, PACK_BLOCKS};
use tombolo_cloud_driver::PooledBuffer;
use tombolo_cloud_driver::object::{Compression, ObjectReader, byte_range, decode_object};
use tombolo_cloud_driver::{
    Cause, Connections, ErrorKind, GateDepth, Limited, ListedObject, ObjectStore, Pace, PaceState, Paced, Priority,
    PutMode, RetryCounts, Retrying, StoreCounts, StoreError,
};
use tombolo_core::local_metadata::{MetadataRead, Table};
use tombolo_core::{BlockLoss, Event, FetchItem, JobId, Lanes, Loss, LossCause, StoreFailure, UploadFailure};

/// Whole objects that are read at the same time, where the path carries them.
const OBJECTS_AT_ONCE: u64 = 8;

/// Blocks that are decoded and written to the cache file in one go: they are still in the processor's cache then.
const STORED_AT_ONCE_BLOCKS: usize = 64;

/// The store, by why it is asked ([`Cause`]).
pub struct Cloud {
    pub demand: Arc<dyn ObjectStore>,
    pub prefetch: Arc<dyn ObjectStore>,
    pub flush: Arc<dyn ObjectStore>,
    pub journal: Arc<dyn ObjectStore>,
    pub tree: Arc<dyn ObjectStore>,
    pub root: Arc<dyn ObjectStore>,
    pub removal: Arc<dyn ObjectStore>,
    pub recovery: Arc<dyn ObjectStore>,
    /// The same, for what nobody waits for.
    pub loading: Arc<dyn ObjectStore>,
    pub check: Arc<dyn ObjectStore>,
    pub other: Arc<dyn ObjectStore>,
    pub counts: StoreCounts,
    /// Of the store itself.
    pub warm: WarmConnections,
    /// The other stores that hold the same, if there are any.
    pub replicas: Option<Replicas>,
    retrying: Arc<Retrying>,
    limited: Arc<Limited>,
    pace: Arc<Pace>,
    /// Blocks of uploads that there is memory for.
    upload_blocks_max: usize,
    /// Likewise of downloads.
    fetch_blocks_max: usize,
    /// What the core was told of last.
    lanes_told: Mutex<Lanes>,
    pub compression: Compression,
    pub runtime: tokio::runtime::Runtime,
    /// So long after its first attempt a request may still be repeated.
    pub patience: Duration,
    /// What kind of failure was the last.
    pub last_failure: Mutex<Option<ErrorKind>>,
}

impl Cloud {
    /// `counts` are those of `store`: counting is at the very bottom, so it sees every attempt, those of a start too, as the pace
    /// does. The gate is outside the retries, so a request that waits to be repeated keeps its place and the store is not overrun.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        counts: StoreCounts,
        options: &Options,
        runtime: tokio::runtime::Runtime,
    ) -> io::Result<Self> {
        let (pace, policy, compression) = (options.pace.clone(), options.retry, options.compression);
        let warm = WarmConnections {
            connections: Connections::new(store.clone(), counts.clone()),
            count: options.warm_connections,
        };
        let paced = Paced::new(store, pace.clone());
        let retrying = Arc::new(Retrying::new(Arc::new(paced), policy));
        // Who only reads has no use for what would be written to them.
        let replicas = match options.replicas.stores.is_empty() || options.read_only {
            true => None,
            false => Some(Replicas::open(
                &options.state_directory,
                retrying.clone(),
                &options.replicas,
            )?),
        };
        let all: Arc<dyn ObjectStore> = match &replicas {
            None => retrying.clone(),
            Some(replicas) => replicas.replicated.clone(),
        };
        let limits = pace.clone();
        let limited = Arc::new(Limited::new(all, move || limits.limits()));
        let handle =
            |priority, cause| -> Arc<dyn ObjectStore> { Arc::new(limited.with_priority(priority).with_cause(cause)) };
        Ok(Self {
            demand: handle(Priority::Demand, Cause::Demand),
            prefetch: handle(Priority::Prefetch, Cause::Prefetch),
            flush: handle(Priority::Prefetch, Cause::Flush),
            journal: handle(Priority::Demand, Cause::Journal),
            tree: handle(Priority::Demand, Cause::Tree),
            root: handle(Priority::Demand, Cause::Root),
            removal: handle(Priority::Prefetch, Cause::Removal),
            recovery: handle(Priority::Demand, Cause::Recovery),
            loading: handle(Priority::Prefetch, Cause::Recovery),
            check: handle(Priority::Prefetch, Cause::Check),
            other: handle(Priority::Demand, Cause::Other),
            counts,
            warm,
            retrying,
            limited,
            pace,
            upload_blocks_max: options.core.upload_blocks_max,
            fetch_blocks_max: options.core.fetch_blocks_max,
            lanes_told: Mutex::default(),
            compression,
            runtime,
            patience: policy.deadline,
            last_failure: Mutex::default(),
            replicas,
        })
    }
}

impl Cloud {
    /// Once the store is known to be this gateway's.
    pub fn start_replicating(&self) {
        if let Some(replicas) = &self.replicas {
            replicas.replicated.start(self.runtime.handle());
        }
    }
}

impl Gateway {
    /// Of the last request that failed; whether later ones succeeded is the core's to say.
    pub fn last_store_failure(&self) -> Option<ErrorKind> {
        *self.cloud.last_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was repeated since the start, and what waits to be admitted now.
    pub fn store_load(&self) -> (RetryCounts, GateDepth, PaceState) {
        let cloud = &self.cloud;
        (cloud.retrying.counts(), cloud.limited.depth(), cloud.pace.state())
    }

    /// Tells the core how many requests suit the store, if that has changed.
    pub(super) fn tell_lanes(self: &Arc<Self>) {
        let limits = self.cloud.pace.limits();
        // By packs, and nothing beyond what memory permits: they change with each request.
        let blocks = |window_bytes: u64, blocks_max: usize| {
            let blocks = usize::try_from(window_bytes / BLOCK_BYTES as u64).unwrap_or(usize::MAX);
            blocks.min(blocks_max).next_multiple_of(PACK_BLOCKS)
        };
        let cloud = &self.cloud;
        let lanes = Lanes {
            uploads: limits.puts_max,
            upload_blocks: blocks(cloud.pace.upload_window_bytes(), cloud.upload_blocks_max),
            fetches: limits.gets_max,
            fetch_blocks: blocks(limits.get_bytes_max, cloud.fetch_blocks_max),
        };
        let told = std::mem::replace(&mut *self.lanes_told(), lanes);
        if told != lanes {
            self.submit(Event::Lanes(lanes));
        }
    }

    fn lanes_told(&self) -> MutexGuard<'_, Lanes> {
        self.cloud.lanes_told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn store_failure(&self, error: &StoreError) -> StoreFailure {
        let mut last = self.cloud.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(error.kind());
        store_failure(error)
    }

    pub(super) fn fetch(
        self: &Arc<Self>,
        fetch: JobId,
        descriptor: Arc<ObjectDescriptor>,
        items: Vec<FetchItem>,
        demand: bool,
    ) {
        let gateway = self.clone();
        self.cloud.runtime.spawn(async move {
            let store = if demand {
                &gateway.cloud.demand
            } else {
                &gateway.cloud.prefetch
            };
            let blocks = usize::from(items[0].index)..usize::from(items[items.len() - 1].index) + 1;
            let range = match byte_range(&descriptor, blocks) {
                Ok(range) => range,
                Err(error) => unreachable!("the core asks for blocks of the object: {error}"),
            };
            let got = store.get(&descriptor.id().key(), Some(range.clone())).await;
            let worker = gateway.clone();
            gateway.io.run(move || {
                let result = got
                    .map_err(|error| worker.store_failure(&error))
                    .and_then(|bytes| worker.store_fetched(&descriptor, &items, range.start, &bytes));
                if worker.cloud.replicas.is_some() && is_altered(&result) {
                    return worker.fetch_whole(fetch, descriptor, items, result);
                }
                worker.fetched(fetch, result);
            });
        });
    }

    fn fetched(self: &Arc<Self>, fetch: JobId, result: Fetched) {
        self.submit(Event::Fetched { fetch, result });
        self.tell_lanes();
    }

    /// What came is not what was put: another store may have it whole, and then the bad copy is replaced.
    fn fetch_whole(
        self: &Arc<Self>,
        fetch: JobId,
        descriptor: Arc<ObjectDescriptor>,
        items: Vec<FetchItem>,
        altered: Fetched,
    ) {
        let gateway = self.clone();
        self.cloud.runtime.spawn(async move {
            let whole = gateway.whole_copy(&descriptor).await;
            let worker = gateway.clone();
            gateway.io.run(move || {
                let result = match whole {
                    Some(object) => worker.store_fetched(&descriptor, &items, 0, &object),
                    None => altered,
                };
                worker.fetched(fetch, result);
            });
        });
    }

    /// Decrypts, decodes and verifies blocks, and stores runs of consecutive slots with one write each: writers of one file
    /// take turns, so a write per block would have the threads wait for each other.
    fn store_fetched(&self, descriptor: &ObjectDescriptor, items: &[FetchItem], base: u64, bytes: &[u8]) -> Fetched {
        let reader = ObjectReader::new(descriptor, &self.data_keys.ring()).map_err(|_| key_missing(descriptor))?;
        let most = items.len().min(STORED_AT_ONCE_BLOCKS) * BLOCK_BYTES;
        let mut buffer = self.buffers.take(most).with_length(most);
        let mut results = Vec::with_capacity(items.len());
        for items in items.chunks(STORED_AT_ONCE_BLOCKS) {
            let begun = results.len();
            let blocks = items.iter().zip(buffer.bytes.chunks_exact_mut(BLOCK_BYTES));
            results.extend(blocks.map(|(item, block)| decode_fetched(descriptor, &reader, item, base, bytes, block)));
            self.store_decoded(items, &buffer.bytes, &mut results[begun..]);
        }
        Ok(results)
    }

    fn store_decoded(&self, items: &[FetchItem], blocks: &[u8], results: &mut [Result<BlockSum, BlockLoss>]) {
        let mut done = 0;
        for run in items.chunk_by(|left, right| left.slot.0 + 1 == right.slot.0) {
            let range = done..done + run.len();
            done = range.end;
            let bytes = &blocks[range.start * BLOCK_BYTES..range.end * BLOCK_BYTES];
            if let Err(error) = self.cache.write(run[0].slot, bytes) {
                let loss = BlockLoss::Disk(disk_error("cache file write", &error));
                results[range].fill(Err(loss));
            }
        }
    }

    /// Asks for the object without reading it.
    pub(super) fn verify(self: &Arc<Self>, job: JobId, descriptor: Arc<ObjectDescriptor>) {
        let gateway = self.clone();
        self.cloud.runtime.spawn(async move {
            let result = gateway.find_object(&descriptor).await;
            let worker = gateway.clone();
            gateway.io.run(move || worker.submit(Event::Verified { job, result }));
        });
    }

    /// Nothing is redirected to what is not there in full, or cannot be decrypted.
    async fn find_object(&self, descriptor: &ObjectDescriptor) -> Result<(), StoreFailure> {
        let key = descriptor.id().key();
        if self.data_keys.ring().lacks(descriptor.key_id()) {
            return Err(key_missing(descriptor));
        }
        match self.cloud.flush.head(&key).await {
            Ok(found) if found.size_bytes == descriptor.object_bytes() as u64 => Ok(()),
            Ok(found) => Err(StoreFailure {
                retryable: false,
                reason: format!(
                    "object {key} has {} bytes instead of {}",
                    found.size_bytes,
                    descriptor.object_bytes()
                ),
            }),
            Err(error) => Err(store_failure(&error)),
        }
    }

    /// One line for each loss of data.
    pub(super) fn tell_loss(&self, loss: &Loss) {
        let (object, reason) = match &loss.cause {
            LossCause::Stored { object, reason } => (object.id().key(), reason),
            LossCause::Local(reason) => ("none yet".into(), reason),
        };
        let Some((volume, first_block)) = loss.place else {
            return tracing::error!(
                object,
                reason,
                "an object is lost; its contents are uploaded again when they are written again"
            );
        };
        tracing::error!(
            volume = self.name_of(volume),
            first_block,
            blocks = loss.count,
            object,
            reason,
            "blocks are lost: they read as errors until they are overwritten"
        );
    }

    pub(super) fn put(self: &Arc<Self>, job: JobId, descriptor: ObjectDescriptor, object: PooledBuffer) {
        let gateway = self.clone();
        self.cloud.runtime.spawn(async move {
            let put = gateway
                .cloud
                .flush
                .put(&descriptor.id().key(), Bytes::from_owner(object), PutMode::Overwrite)
                .await;
            let result = match put {
                Ok(_) => Ok(descriptor),
                Err(error) => {
                    tracing::warn!(%error, "upload failed; it will be tried again");
                    Err(UploadFailure::Store(gateway.store_failure(&error)))
                }
            };
            let worker = gateway.clone();
            gateway.io.run(move || {
                worker.submit(Event::Uploaded { job, result });
                worker.tell_lanes();
            });
        });
    }
}

/// What became of each block that was asked for.
type Fetched = Result<Vec<Result<BlockSum, BlockLoss>>, StoreFailure>;

/// Whether a block is not what was put.
fn is_altered(fetched: &Fetched) -> bool {
    let blocks = fetched.as_ref().map_or(&[][..], Vec::as_slice);
    blocks.iter().any(|block| matches!(block, Err(BlockLoss::Altered(_))))
}

/// What a check finds of an object that the gateway has put.
#[derive(Debug)]
pub enum CheckedObject {
    Whole,
    Missing,
    /// It does not decrypt, decode or verify, or holds other blocks than were put there.
    Altered(String),
    /// The store does not answer, or the object's key is missing: nothing is known of the object.
    Unknown(String),
}

impl CheckedObject {
    /// Why nothing is known of it.
    pub fn unknown(&self) -> Option<&str> {
        match self {
            Self::Unknown(reason) => Some(reason),
            Self::Whole | Self::Missing | Self::Altered(_) => None,
        }
    }
}

/// For a check of the store, which waits for those who read and write.
impl Gateway {
    /// Of the state directory.
    pub fn identity(&self) -> u64 {
        self.core().identity()
    }

    /// Whether local metadata has all that the journal has.
    pub fn is_checkpointed(&self) -> bool {
        self.core().is_checkpointed()
    }

    pub fn list_store(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ListedObject>, StoreError> {
        let store = &self.cloud.check;
        self.cloud.runtime.block_on(store.list(prefix, start_after, limit))
    }

    /// Of the table of objects as the last checkpoint left it, those whose first PVBN is not below `first`.
    pub fn objects_from(&self, first: u64, limit: usize) -> Result<Vec<ObjectDescriptor>, String> {
        let reading = self.metadata.read().map_err(|error| error.to_string())?;
        let (mut first, mut descriptors) = (first, Vec::new());
        while descriptors.len() < limit {
            let found = reading.ceiling(Table::Objects, &first.to_be_bytes());
            let Some((_, bytes)) = found.map_err(|error| error.to_string())? else {
                break;
            };
            let descriptor = ObjectDescriptor::decode(&bytes).map_err(|error| error.to_string())?;
            first = descriptor.first_pvbn().0 + 1;
            descriptors.push(descriptor);
        }
        Ok(descriptors)
    }

    /// So many whole objects are read at the same time: over a thin path few, or none would come in the time that a request may take.
    pub fn objects_at_once(&self) -> usize {
        let object_bytes = (OBJECT_BLOCKS_MAX * BLOCK_BYTES) as u64;
        (self.cloud.pace.download_window_bytes() / object_bytes).clamp(1, OBJECTS_AT_ONCE) as usize
    }

    /// Reads objects at the same time, each as often as there are copies, and verifies them.
    pub fn check_objects(self: &Arc<Self>, descriptors: &[ObjectDescriptor]) -> Vec<CheckedCopies> {
        let checks: Vec<_> = descriptors
            .iter()
            .map(|descriptor| {
                let (gateway, descriptor) = (self.clone(), descriptor.clone());
                self.cloud
                    .runtime
                    .spawn(async move { gateway.check_copies(&descriptor).await })
            })
            .collect();
        let lost = |error: &dyn std::fmt::Display| CheckedCopies::unknown(error.to_string());
        let checks = checks
            .into_iter()
            .map(|check| self.cloud.runtime.block_on(check).unwrap_or_else(|error| lost(&error)));
        checks.collect()
    }

    /// Whether the table of objects has the one with this key. One that cannot be read is none of its.
    pub fn has_put(&self, key: &str) -> Result<bool, String> {
        let get = self.cloud.check.get(key, None);
        let object = match self.cloud.runtime.block_on(get) {
            Ok(object) => object,
            Err(StoreError::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(error.to_string()),
        };
        let id = ObjectId::from_key(key);
        let decoded = id.and_then(|id| decode_object(&object, id, &self.data_keys.ring()).ok());
        let Some((descriptor, _)) = decoded else {
            return Ok(false);
        };
        let put = self.objects_from(descriptor.first_pvbn().0, 1)?;
        Ok(put.first() == Some(&descriptor))
    }
}

fn decode_fetched(
    descriptor: &ObjectDescriptor,
    reader: &ObjectReader<'_>,
    item: &FetchItem,
    base: u64,
    bytes: &[u8],
    block: &mut [u8],
) -> Result<BlockSum, BlockLoss> {
    let packed = &descriptor.blocks()[usize::from(item.index)];
    let extent = descriptor.extent(packed);
    let base = base as usize;
    let key = || descriptor.id().key();
    let loss = |reason: String| BlockLoss::Altered(format!("object {}: {reason}", key()));
    let stored = bytes
        .get(extent.start - base..extent.end - base)
        .ok_or_else(|| loss("the object is shorter than its descriptor says".into()))?;
    let decoded = reader.decode_block(item.index.into(), stored, block);
    decoded.map_err(|error| loss(error.to_string()))?;
    Ok(BlockSum::of(block))
}

/// It says nothing about the object, so nothing is lost by it.
fn key_missing(descriptor: &ObjectDescriptor) -> StoreFailure {
    let (object, key) = (descriptor.id().key(), descriptor.key_id());
    tracing::warn!(object, %key, "the data key of an object is missing");
    StoreFailure {
        retryable: true,
        reason: format!(
            "object {object} is encrypted with data key {key}, which this gateway does not have; restart it if the store has \
             newer keys, or put them back"
        ),
    }
}

pub(super) fn store_failure(error: &StoreError) -> StoreFailure {
    let retryable = match error.kind() {
        ErrorKind::Retry
        | ErrorKind::Throttled
        | ErrorKind::Unreachable
        | ErrorKind::AccessDenied
        | ErrorKind::BucketMissing
        | ErrorKind::OutOfSpace
        | ErrorKind::Internal => true,
        ErrorKind::NotFound | ErrorKind::Precondition | ErrorKind::Invalid | ErrorKind::Corrupt => false,
    };
    StoreFailure {
        retryable,
        reason: error.to_string(),
    }
}
