//! A decorator that counts requests, bytes, failures and latencies per operation, for metrics.
//!
//! Plain relaxed atomics: the counters are monotonic and each is read on its own, so a snapshot may be off by the
//! requests that end while it is taken.

use crate::store::{ETag, ListedObject, ObjectMeta, ObjectStore, PutMode, Result};
use crate::{ErrorKind, Operation, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Buckets of the latency histogram: bucket `index` counts requests of at most [`latency_bucket_micros`]`(index)`, the last
/// one all slower ones.
pub const LATENCY_BUCKETS: usize = 20;

/// Upper bound of a bucket: 128 µs (a directory on a fast disk) doubled each time; the last but one is 33.5 s. `None` is infinity.
pub const fn latency_bucket_micros(index: usize) -> Option<u64> {
    if index + 1 < LATENCY_BUCKETS {
        Some(128 << index)
    } else {
        None
    }
}

fn latency_bucket(micros: u64) -> usize {
    (0..LATENCY_BUCKETS - 1)
        .find(|index| latency_bucket_micros(*index).is_some_and(|bound| micros <= bound))
        .unwrap_or(LATENCY_BUCKETS - 1)
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
    micros: AtomicU64,
    failures: [AtomicU64; ErrorKind::ALL.len()],
    latencies: [AtomicU64; LATENCY_BUCKETS],
}

/// One operation, all its requests so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationCounts {
    /// What was asked of the store.
    pub operation: Operation,
    /// Ended requests, failed ones included.
    pub requests: u64,
    /// Payload of the successful ones: sent by put, received by get.
    pub bytes: u64,
    /// Sum of the latencies.
    pub micros: u64,
    /// Failed requests by kind, kinds that never occurred left out.
    pub failures: Vec<(ErrorKind, u64)>,
    /// Not cumulative.
    pub latencies: [u64; LATENCY_BUCKETS],
}

/// The shared counters; keep a clone to read them.
#[derive(Clone, Debug, Default)]
pub struct StoreCounts(Arc<[Counters; Operation::ALL.len()]>);

impl StoreCounts {
    /// One for each operation, in the order of [`Operation::ALL`].
    pub fn snapshot(&self) -> Vec<OperationCounts> {
        Operation::ALL.into_iter().map(|operation| self.of(operation)).collect()
    }

    /// The counts of one operation.
    pub fn of(&self, operation: Operation) -> OperationCounts {
        let counters = &self.0[operation as usize];
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        OperationCounts {
            operation,
            requests: read(&counters.requests),
            bytes: read(&counters.bytes),
            micros: read(&counters.micros),
            failures: ErrorKind::ALL
                .into_iter()
                .zip(counters.failures.iter().map(read))
                .filter(|(_, count)| *count > 0)
                .collect(),
            latencies: std::array::from_fn(|index| read(&counters.latencies[index])),
        }
    }

    fn record(&self, operation: Operation, micros: u64, outcome: Result<u64, &StoreError>) {
        let add = |counter: &AtomicU64, amount| {
            counter.fetch_add(amount, Ordering::Relaxed);
        };
        let counters = &self.0[operation as usize];
        add(&counters.requests, 1);
        add(&counters.micros, micros);
        add(&counters.latencies[latency_bucket(micros)], 1);
        match outcome {
            Ok(bytes) => add(&counters.bytes, bytes),
            Err(error) => {
                let kind = error.kind();
                let index = ErrorKind::ALL.iter().position(|known| *known == kind);
                add(&counters.failures[index.expect("every kind has a counter")], 1);
            }
        }
    }
}

/// Put it below [`crate::Retrying`] to count attempts, above to count what callers see.
#[derive(Debug)]
pub struct Counting {
    inner: Arc<dyn ObjectStore>,
    counts: StoreCounts,
}

impl Counting {
    /// Counts what goes through it from now on.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            counts: StoreCounts::default(),
        }
    }

    /// A handle on the counts, which live as long as somebody holds one.
    pub fn counts(&self) -> StoreCounts {
        self.counts.clone()
    }

    async fn timed<T>(
        &self,
        operation: Operation,
        request: impl Future<Output = Result<T>>,
        payload_bytes: impl FnOnce(&T) -> usize,
    ) -> Result<T> {
        let begun = Instant::now();
        let outcome = request.await;
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let recorded = outcome.as_ref().map(|value| payload_bytes(value) as u64);
        self.counts.record(operation, micros, recorded);
        outcome
    }
}

#[async_trait]
impl ObjectStore for Counting {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        let payload_bytes = bytes.len();
        self.timed(Operation::Put, self.inner.put(key, bytes, mode), |_| payload_bytes)
            .await
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        self.timed(Operation::Get, self.inner.get(key, range), Bytes::len).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        self.timed(Operation::Head, self.inner.head(key), |_| 0).await
    }

    async fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>> {
        self.timed(Operation::List, self.inner.list(prefix, start_after, limit), |_| 0)
            .await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.timed(Operation::Delete, self.inner.delete(key), |()| 0).await
    }

    async fn check(&self) -> Result<()> {
        self.timed(Operation::Check, self.inner.check(), |()| 0).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    #[test]
    fn buckets_cover_everything_once() {
        assert_eq!(latency_bucket(0), 0);
        assert_eq!(latency_bucket(128), 0);
        assert_eq!(latency_bucket(129), 1);
        assert_eq!(latency_bucket(33_554_432), LATENCY_BUCKETS - 2);
        assert_eq!(latency_bucket(u64::MAX), LATENCY_BUCKETS - 1);
    }

    #[test]
    fn every_operation_has_its_own_place() {
        for (index, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, index);
        }
    }

    #[tokio::test]
    async fn requests_bytes_and_failures_are_counted() {
        let store = Counting::new(Arc::new(MemoryStore::new()));
        store
            .put("a", Bytes::from_static(b"12345"), PutMode::Overwrite)
            .await
            .unwrap();
        store
            .put("a", Bytes::from_static(b"1"), PutMode::IfAbsent)
            .await
            .unwrap_err();
        store.get("a", Some(1..3)).await.unwrap();
        store.get("b", None).await.unwrap_err();
        let counts = store.counts();
        let puts = counts.of(Operation::Put);
        assert_eq!((puts.requests, puts.bytes), (2, 5));
        assert_eq!(puts.failures, [(ErrorKind::Precondition, 1)]);
        assert_eq!(puts.latencies.iter().sum::<u64>(), 2);
        let gets = counts.of(Operation::Get);
        assert_eq!((gets.requests, gets.bytes), (2, 2));
        assert_eq!(gets.failures, [(ErrorKind::NotFound, 1)]);
        assert_eq!(counts.of(Operation::List).requests, 0);
    }
}
