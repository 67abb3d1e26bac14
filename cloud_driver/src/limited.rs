//! A decorator that bounds the requests in flight (see [`crate::gate`]).

use crate::cause::{Cause, with_cause};
use crate::gate::{Class, Gate, GateDepth, Limits};
use crate::store::{ETag, ListedObject, ObjectMeta, ObjectStore, PutMode, Result, bytes_of};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// How urgent the reads through one handle are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// A client waits for it.
    Demand,
    /// A guess of what a client may want, or background work such as cleaning.
    Prefetch,
}

/// One handle on a gated store. [`Limited::with_priority`] and [`Limited::with_cause`] give another one at the same gate; priority
/// and cause belong to the handle, so that the interface of a store need not know of them.
#[derive(Clone, Debug)]
pub struct Limited {
    inner: Arc<dyn ObjectStore>,
    gate: Arc<Gate>,
    priority: Priority,
    /// None: that of the request, if it has one.
    cause: Option<Cause>,
}

impl Limited {
    /// A handle for demand reads. `limits` is asked before each admission.
    pub fn new(inner: Arc<dyn ObjectStore>, limits: impl Fn() -> Limits + Send + Sync + 'static) -> Self {
        Self {
            inner,
            gate: Gate::new(Box::new(limits)),
            priority: Priority::Demand,
            cause: Some(Cause::Demand),
        }
    }

    /// A handle that changes neither why it is asked nor, as it is one of several stores, what else waits.
    pub(crate) fn below(inner: Arc<dyn ObjectStore>, limits: impl Fn() -> Limits + Send + Sync + 'static) -> Self {
        Self {
            cause: None,
            ..Self::new(inner, limits)
        }
    }

    /// Another handle at the same gate, on the same store through other decorators.
    pub(crate) fn through(&self, inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, ..self.clone() }
    }

    /// Another handle at the same gate.
    pub fn with_priority(&self, priority: Priority) -> Self {
        Self {
            priority,
            ..self.clone()
        }
    }

    /// Another handle at the same gate.
    pub fn with_cause(&self, cause: Cause) -> Self {
        Self {
            cause: Some(cause),
            ..self.clone()
        }
    }

    /// What is in flight and what waits, through all handles.
    pub fn depth(&self) -> GateDepth {
        self.gate.depth()
    }

    fn read_class(&self) -> Class {
        match self.priority {
            Priority::Demand => Class::Demand,
            Priority::Prefetch => Class::Prefetch,
        }
    }
}

#[async_trait]
impl ObjectStore for Limited {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        let _permit = self.gate.admit(Class::Put, 0).await;
        with_cause(self.cause, self.inner.put(key, bytes, mode)).await
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        let bytes = bytes_of(range.as_ref());
        let _permit = self.gate.admit(self.read_class(), bytes).await;
        with_cause(self.cause, self.inner.get(key, range)).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        let _permit = self.gate.admit(self.read_class(), 0).await;
        with_cause(self.cause, self.inner.head(key)).await
    }

    async fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>> {
        let _permit = self.gate.admit(self.read_class(), 0).await;
        with_cause(self.cause, self.inner.list(prefix, start_after, limit)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let _permit = self.gate.admit(Class::Put, 0).await;
        with_cause(self.cause, self.inner.delete(key)).await
    }

    /// Not gated: an outage must be told from a full gate.
    async fn check(&self) -> Result<()> {
        with_cause(self.cause, self.inner.check()).await
    }
}
