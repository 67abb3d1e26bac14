//! A decorator that gives a request up after a while. It stands below the gate of a replica, so that waiting for earlier requests
//! does not count: a store that is merely slow holds uploads up, and does not count as away for it.
//!
//! For a put that nobody waits for, [`Deadline::patient`] adds what all bytes that are on their way to the replica take at the least
//! rate that a path is expected to have: over a thin link nothing else would ever arrive.

use super::path_load::PathLoad;
use crate::store::{ETag, ListedObject, ObjectMeta, ObjectStore, PutMode, Result};
use crate::{Operation, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct Deadline {
    inner: Arc<dyn ObjectStore>,
    name: String,
    after: Duration,
    load: Arc<PathLoad>,
    is_patient: bool,
}

impl Deadline {
    /// `name` is the store's, for people; `load` is told of every put.
    pub fn new(inner: Arc<dyn ObjectStore>, name: String, after: Duration, load: Arc<PathLoad>) -> Self {
        Self {
            inner,
            name,
            after,
            load,
            is_patient: false,
        }
    }

    /// The same for what nobody waits for.
    pub fn patient(&self) -> Self {
        Self {
            is_patient: true,
            ..self.clone()
        }
    }

    fn too_late(&self, operation: Operation, key: &str, after: Duration) -> StoreError {
        StoreError::Interrupted {
            store: self.name.clone(),
            operation,
            key: key.into(),
            detail: format!("it took more than {} ms", after.as_millis()),
        }
    }

    async fn within<T>(&self, operation: Operation, key: &str, request: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = timeout(self.after, request).await;
        answer.unwrap_or_else(|_| Err(self.too_late(operation, key, self.after)))
    }

    fn allowed(&self, bytes: u64) -> Duration {
        match self.is_patient {
            true => self.after.saturating_add(PathLoad::carried(bytes)),
            false => self.after,
        }
    }
}

#[async_trait]
impl ObjectStore for Deadline {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        let under_way = self.load.enter(bytes.len() as u64);
        let (begun, mut most) = (Instant::now(), under_way.total());
        let mut put = pin!(self.inner.put(key, bytes, mode));
        loop {
            let allowed = self.allowed(most);
            if let Ok(answer) = timeout_at(begun + allowed, put.as_mut()).await {
                return answer;
            }
            // What began meanwhile shares the path.
            most = most.max(under_way.total());
            if self.allowed(most) == allowed {
                self.load.late();
                return Err(self.too_late(Operation::Put, key, allowed));
            }
        }
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
