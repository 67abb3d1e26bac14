//! A store in a local directory: the embedded default, and a target for any mounted file system.
//!
//! One file per object at the key's path. A put writes a temporary file on the same file system, fsyncs it, moves it
//! into place in one step (rename, or link where the object must be absent), and fsyncs the directory, and once every directory
//! above it, before it returns: after a crash the object is there whole, or not at all. Blocking work runs on
//! tokio's blocking threads.
//!
//! ```text
//! ROOT/objects/ab/cdef...     an object
//! ROOT/.tombolo-store/open     flock: shared by every process that has the store open
//! ROOT/.tombolo-store/commit   flock: shared around each rename, exclusive around a compare-and-rename
//! ROOT/.tombolo-store/tmp/     files not yet in place; swept by an opener that finds itself alone
//! ```
//!
//! It owns the layout and the crash argument. It does not own repeats (local errors are not transient) and does not
//! defend against others who write into the directory by hand.

mod files;
mod locks;
mod walk;

use crate::store::{ETag, ListedObject, ObjectMeta, ObjectStore, PutMode, Result};
use crate::{Operation, StoreError, validate_key};
use async_trait::async_trait;
use bytes::Bytes;
use files::Files;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A store in a local directory; see the head of this file for its layout.
#[derive(Debug)]
pub struct DirStore {
    files: Arc<Files>,
}

impl DirStore {
    /// Opens the store at `root`, an absolute path, and makes the directory (mode 0700) when its parent exists. Blocks.
    pub fn open(root: &Path) -> Result<Self> {
        Ok(Self {
            files: Arc::new(Files::open(root)?),
        })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        operation: Operation,
        key: &str,
        work: impl FnOnce(&Files, &str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let files = Arc::clone(&self.files);
        let owned_key = key.to_owned();
        match tokio::task::spawn_blocking(move || work(&files, &owned_key)).await {
            Ok(outcome) => outcome,
            // Only a panic in `work` or the end of the runtime comes here.
            Err(failed) => Err(StoreError::Local {
                store: self.files.name(),
                operation,
                key: key.into(),
                detail: failed.to_string(),
            }),
        }
    }
}

#[async_trait]
impl ObjectStore for DirStore {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        validate_key(key)?;
        self.blocking(Operation::Put, key, move |files, key| files.put(key, &bytes, &mode))
            .await
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        validate_key(key)?;
        self.blocking(Operation::Get, key, move |files, key| files.get(key, range))
            .await
    }

    /// Reads the whole object, since its tag is derived from its content.
    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        validate_key(key)?;
        self.blocking(Operation::Head, key, Files::head).await
    }

    async fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>> {
        let start_after = start_after.map(str::to_owned);
        self.blocking(Operation::List, prefix, move |files, prefix| {
            files.list(prefix, start_after.as_deref(), limit)
        })
        .await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        validate_key(key)?;
        self.blocking(Operation::Delete, key, Files::delete).await
    }

    async fn check(&self) -> Result<()> {
        self.blocking(Operation::Check, "", |files, _| files.check()).await
    }
}

#[cfg(test)]
#[path = "dir/tests.rs"]
mod tests;
