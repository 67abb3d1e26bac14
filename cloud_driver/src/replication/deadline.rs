//! A decorator that gives a request up after a while. It stands below the gate of a replica, so that waiting for earlier requests
//! does not count: a store that is merely slow holds uploads up, and does not count as away for it.

use crate::store::{ETag, ListedObject, ObjectMeta, ObjectStore, PutMode, Result};
use crate::{Operation, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// See the head of this file.
#[derive(Debug)]
pub struct Deadline {
    inner: Arc<dyn ObjectStore>,
    name: String,
    after: Duration,
}

impl Deadline {
    /// `name` is the store's, for people.
    pub fn new(inner: Arc<dyn ObjectStore>, name: String, after: Duration) -> Self {
        Self { inner, name, after }
    }

    async fn within<T>(&self, operation: Operation, key: &str, request: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = timeout(self.after, request).await;
        answer.unwrap_or_else(|_| {
            Err(StoreError::Interrupted {
                store: self.name.clone(),
                operation,
                key: key.into(),
                detail: format!("it took more than {} ms", self.after.as_millis()),
            })
        })
    }
}

#[async_trait]
impl ObjectStore for Deadline {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        self.within(Operation::Put, key, self.inner.put(key, bytes, mode)).await
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        self.within(Operation::Get, key, self.inner.get(key, range)).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        self.within(Operation::Head, key, self.inner.head(key)).await
    }

    async fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>> {
        let list = self.inner.list(prefix, start_after, limit);
        self.within(Operation::List, prefix, list).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.within(Operation::Delete, key, self.inner.delete(key)).await
    }

    async fn check(&self) -> Result<()> {
        self.within(Operation::Check, "", self.inner.check()).await
    }
}
