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
use tombolo_base::{Distribution, Histogram};

/// Bounds of latencies, in microseconds: from a directory on a fast disk to 33.5 s, doubled each time.
static LATENCY_BOUNDS_US: [u64; 19] = latency_bounds_us();

const fn latency_bounds_us() -> [u64; 19] {
    let mut bounds = [128; 19];
    let mut index = 1;
    while index < bounds.len() {
        bounds[index] = 2 * bounds[index - 1];
        index += 1;
    }
    bounds
}

#[derive(Debug)]
struct Counters {
    bytes: AtomicU64,
    failures: [AtomicU64; ErrorKind::ALL.len()],
    micros: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            failures: Default::default(),
            micros: Histogram::new(&LATENCY_BOUNDS_US),
        }
    }
}

/// One operation, all its requests so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationCounts {
    /// What was asked of the store.
    pub operation: Operation,
    /// How long those took that have ended, failed ones included.
    pub micros: Distribution,
    /// Payload of the successful ones: sent by put, received by get.
    pub bytes: u64,
    /// Failed requests by kind, kinds that never occurred left out.
    pub failures: Vec<(ErrorKind, u64)>,
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
            micros: counters.micros.distribution(),
            bytes: read(&counters.bytes),
            failures: ErrorKind::ALL
                .into_iter()
                .zip(counters.failures.iter().map(read))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }

    fn record(&self, operation: Operation, micros: u64, outcome: Result<u64, &StoreError>) {
        let add = |counter: &AtomicU64, amount| {
            counter.fetch_add(amount, Ordering::Relaxed);
        };
        let counters = &self.0[operation as usize];
        counters.micros.count(micros);
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
    fn bounds_reach_from_a_fast_disk_to_half_a_minute() {
        assert_eq!(LATENCY_BOUNDS_US[..2], [128, 256]);
        assert_eq!(LATENCY_BOUNDS_US[18], 33_554_432);
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
        assert_eq!((puts.micros.count(), puts.bytes), (2, 5));
        assert_eq!(puts.failures, [(ErrorKind::Precondition, 1)]);
        let gets = counts.of(Operation::Get);
        assert_eq!((gets.micros.count(), gets.bytes), (2, 2));
        assert_eq!(gets.failures, [(ErrorKind::NotFound, 1)]);
        assert_eq!(counts.of(Operation::List).micros.count(), 0);
    }
}
