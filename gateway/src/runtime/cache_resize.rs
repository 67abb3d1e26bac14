//! Another size for the cache file, without the store and without losing anything: blocks that the store does not have move,
//! others may go. Interrupted at any point it is run again; until it has ended, nothing is served.

use super::Gateway;
use super::cache_file;
use super::first_start::{Paths, is_new};
use super::metadata::{Metadata, MetadataOpenError};
use super::open::{OpenError, Options, lock};
use async_trait::async_trait;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tombolo_base::BLOCK_BYTES;
use tombolo_cloud_driver::{ETag, ListedObject, ObjectMeta, ObjectStore, PutMode, StoreError};
use tombolo_core::cache_header::{CacheHeader, HEADER_BYTES};
use tombolo_core::recovery::load_superblock;
use tombolo_core::{MetadataError, ResizeError, resize};

/// For the checkpoint that brings local metadata up to the journal.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(600);

/// Why the cache keeps its size.
#[derive(Debug, thiserror::Error)]
pub enum CacheResizeError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Metadata(#[from] MetadataOpenError),
    #[error(
        "local metadata is not complete since the last recovery: set [cache] size back, start the gateway, and resize when `tombolo \
         status` says no more that it is not complete"
    )]
    NotComplete,
    #[error("local metadata could not be brought up to the journal{}", .0.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    NoCheckpoint(Option<String>),
    #[error(transparent)]
    Resize(#[from] ResizeError<MetadataError>),
    #[error("local metadata: {0}")]
    Transaction(String),
    #[error("{path}: {action}: {error}")]
    Disk {
        path: PathBuf,
        action: &'static str,
        error: io::Error,
    },
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizedCache {
    pub bytes_before: u64,
    pub bytes: u64,
    /// Blocks that only the cache has, which lie elsewhere in it now.
    pub blocks_moved: u64,
    /// Blocks that the store has too, which the cache does not have any more.
    pub blocks_dropped: u64,
}

/// Makes the cache of the state directory as large as the settings say.
pub fn resize_cache(mut options: Options) -> Result<ResizedCache, CacheResizeError> {
    let state = options.state_directory.clone();
    let paths = Paths::new(&state);
    if is_new(&paths) {
        return Err(OpenError::NoState(state).into());
    }
    let slot_count = options.core.slot_count;
    let bytes = |slots: u32| u64::from(slots) * BLOCK_BYTES as u64;
    let before = {
        let _lock = lock(&state)?;
        finish_interrupted(&paths, options.metadata_map_bytes)?
    };
    let done = ResizedCache {
        bytes_before: bytes(before),
        bytes: bytes(slot_count),
        blocks_moved: 0,
        blocks_dropped: 0,
    };
    if before == slot_count {
        return Ok(done);
    }
    options.core.slot_count = before;
    options.core.dirty_blocks_max = options.core.dirty_blocks_max.min(before / 2);
    // What is uploaded meanwhile would be told of in the journal.
    options.store = Arc::new(NoStore);
    let gateway = Gateway::open(options)?;
    gateway.stop(CHECKPOINT_PATIENCE);
    if !gateway.core().is_checkpointed() {
        let failed = gateway.snapshot().failed;
        return Err(CacheResizeError::NoCheckpoint(failed.map(|reason| reason.to_string())));
    }
    let disk = |action: &'static str| {
        let path = paths.cache.clone();
        move |error| CacheResizeError::Disk { path, action, error }
    };
    gateway.cache.reserve(slot_count).map_err(disk("cannot grow"))?;
    let transaction_error = |error: heed::Error| CacheResizeError::Transaction(error.to_string());
    let mut transaction = gateway.metadata.write().map_err(transaction_error)?;
    let resized = resize(&mut transaction, slot_count)?;
    for moved in &resized.moves {
        gateway
            .cache
            .copy(moved.from, moved.to)
            .map_err(disk("cannot move blocks"))?;
    }
    gateway.cache.sync().map_err(disk("sync"))?;
    transaction.commit().map_err(transaction_error)?;
    // From here on another run ends it.
    cache_file::set_slot_count(&paths.cache, slot_count).map_err(disk("cannot note the size"))?;
    Ok(ResizedCache {
        blocks_moved: resized.moves.len() as u64,
        blocks_dropped: resized.clean_dropped,
        ..done
    })
}

/// Brings the cache file in line with local metadata. Returns how many slots there are then.
fn finish_interrupted(paths: &Paths, map_bytes: u64) -> Result<u32, CacheResizeError> {
    let noted = header_of(&paths.cache).map(|header| header.mark.metadata_bytes);
    let metadata = Metadata::open(&paths.metadata, map_bytes, noted)?;
    if metadata.behind().is_some() {
        return Err(CacheResizeError::NotComplete);
    }
    let superblock = {
        let reading = metadata.read();
        let reading = reading.map_err(|error| CacheResizeError::Transaction(error.to_string()))?;
        load_superblock(&reading).map_err(ResizeError::Metadata)?
    };
    metadata.close();
    let slot_count = superblock.ok_or(ResizeError::SuperblockMissing)?.slot_count;
    // What is wrong with it otherwise is said when the gateway is opened.
    if header_of(&paths.cache).is_some_and(|header| header.slot_count != slot_count) {
        let set = cache_file::set_slot_count(&paths.cache, slot_count);
        set.map_err(|error| CacheResizeError::Disk {
            path: paths.cache.clone(),
            action: "cannot note the size",
            error,
        })?;
    }
    Ok(slot_count)
}

fn header_of(path: &Path) -> Option<CacheHeader> {
    let mut header = vec![0; HEADER_BYTES];
    File::open(path).ok()?.read_exact_at(&mut header, 0).ok()?;
    CacheHeader::decode(&header).ok()
}

/// In place of the store, which is left alone.
#[derive(Debug)]
struct NoStore;

impl NoStore {
    fn refusal<T>() -> Result<T, StoreError> {
        let (store, detail) = ("the store".into(), "it is left alone while the cache is resized".into());
        Err(StoreError::Unreachable { store, detail })
    }
}

#[async_trait]
impl ObjectStore for NoStore {
    async fn put(&self, _key: &str, _bytes: Bytes, _mode: PutMode) -> Result<ETag, StoreError> {
        Self::refusal()
    }

    async fn get(&self, _key: &str, _range: Option<Range<u64>>) -> Result<Bytes, StoreError> {
        Self::refusal()
    }

    async fn head(&self, _key: &str) -> Result<ObjectMeta, StoreError> {
        Self::refusal()
    }

    async fn list(
        &self,
        _prefix: &str,
        _start_after: Option<&str>,
        _limit: usize,
    ) -> Result<Vec<ListedObject>, StoreError> {
        Self::refusal()
    }

    async fn delete(&self, _key: &str) -> Result<(), StoreError> {
        Self::refusal()
    }

    async fn check(&self) -> Result<(), StoreError> {
        Self::refusal()
    }
}
