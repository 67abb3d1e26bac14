//! A decorator that counts requests, bytes, failures and latencies per operation, for metrics, and requests and bytes per operation
//! and [`Cause`], for the bill.
//!
//! Plain relaxed atomics: the counters are monotonic and each is read on its own, so a snapshot may be off by the
//! requests that end while it is taken.

use crate::cause::{self, Cause};
use crate::store::{ETag, ListedObject, ObjectMeta, ObjectStore, PutMode, Result};
use crate::{ErrorKind, Operation, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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

/// One operation for one cause, all its requests so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CauseCounts {
    /// Why it was asked for.
    pub cause: Cause,
    /// What was asked of the store.
    pub operation: Operation,
    /// Those that have ended, failed ones included.
    pub requests: u64,
    /// Those of them that a provider charges for ([`StoreError::is_charged`]).
    pub charged: u64,
    /// Payload of the successful ones: sent by put, received by get.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct CauseCounters {
    requests: AtomicU64,
    charged: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct AllCounters {
    operations: [Counters; Operation::ALL.len()],
    causes: [[CauseCounters; Operation::ALL.len()]; Cause::ALL.len()],
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

/// The shared counters; keep a clone to read them.
#[derive(Clone, Debug, Default)]
pub struct StoreCounts(Arc<AllCounters>);

impl StoreCounts {
    /// One for each cause and operation, in the order of [`Cause::ALL`], then [`Operation::ALL`].
    pub fn by_cause(&self) -> Vec<CauseCounts> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of = |cause: Cause| {
            Operation::ALL.into_iter().map(move |operation| {
                let counters = &self.0.causes[cause as usize][operation as usize];
                CauseCounts {
                    cause,
                    operation,
                    requests: read(&counters.requests),
                    charged: read(&counters.charged),
                    bytes: read(&counters.bytes),
                }
            })
        };
        Cause::ALL.into_iter().flat_map(of).collect()
    }

    /// The most requests that were under way at once since this was asked last.
    pub fn take_most_under_way(&self) -> usize {
        let present = self.0.under_way.load(Ordering::Relaxed);
        self.0.most_under_way.swap(present, Ordering::Relaxed)
    }

    /// One for each operation, in the order of [`Operation::ALL`].
    pub fn snapshot(&self) -> Vec<OperationCounts> {
        Operation::ALL.into_iter().map(|operation| self.of(operation)).collect()
    }

    /// The counts of one operation.
    pub fn of(&self, operation: Operation) -> OperationCounts {
        let counters = &self.0.operations[operation as usize];
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

    fn record(&self, cause: Cause, operation: Operation, micros: u64, outcome: std::result::Result<u64, Failed>) {
        let add = |counter: &AtomicU64, amount| {
            counter.fetch_add(amount, Ordering::Relaxed);
        };
        let counters = &self.0.operations[operation as usize];
        counters.micros.count(micros);
        let of_cause = &self.0.causes[cause as usize][operation as usize];
        add(&of_cause.requests, 1);
        add(
            &of_cause.charged,
            outcome.map_or_else(|failed| failed.is_charged, |_| true).into(),
        );
        match outcome {
            Ok(bytes) => {
                add(&counters.bytes, bytes);
                add(&of_cause.bytes, bytes);
            }
            Err(failed) => {
                let index = ErrorKind::ALL.iter().position(|known| *known == failed.kind);
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
    unnamed: Cause,
}

impl Counting {
    /// Counts what goes through it from now on, requests that no handle gave a cause as [`Cause::Other`].
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self::with_default(inner, Cause::Other)
    }

    /// As [`Self::new`], for requests without a cause with this one.
    pub fn with_default(inner: Arc<dyn ObjectStore>, unnamed: Cause) -> Self {
        Self {
            inner,
            unnamed,
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
        let mut request_sent = Sent::begin(&self.counts, cause::present().unwrap_or(self.unnamed), operation);
        let outcome = request.await;
        let recorded = outcome.as_ref().map(|value| payload_bytes(value) as u64);
        request_sent.outcome = recorded.map_err(Failed::from);
        outcome
    }
}

/// What counts of an error.
#[derive(Clone, Copy, Debug)]
struct Failed {
    kind: ErrorKind,
    is_charged: bool,
}

impl From<&StoreError> for Failed {
    fn from(error: &StoreError) -> Self {
        Self {
            kind: error.kind(),
            is_charged: error.is_charged(),
        }
    }
}

/// One request, which is counted when it ends in whatever way.
struct Sent<'c> {
    counts: &'c StoreCounts,
    cause: Cause,
    operation: Operation,
    begun: Instant,
    outcome: std::result::Result<u64, Failed>,
}

impl<'c> Sent<'c> {
    fn begin(counts: &'c StoreCounts, cause: Cause, operation: Operation) -> Self {
        let under_way = counts.0.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        counts.0.most_under_way.fetch_max(under_way, Ordering::Relaxed);
        Self {
            counts,
            cause,
            operation,
            begun: Instant::now(),
            // Its caller may give it up; it may have been carried out all the same.
            outcome: Err(Failed {
                kind: ErrorKind::Retry,
                is_charged: true,
            }),
        }
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        self.counts.0.under_way.fetch_sub(1, Ordering::Relaxed);
        let micros = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.counts.record(self.cause, self.operation, micros, self.outcome);
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
    use crate::retry::RetryPolicy;
    use crate::{Limited, Limits, MemoryStore, Priority, Retrying};

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

    #[test]
    fn every_cause_has_its_own_place() {
        for (index, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, index);
        }
    }

    #[tokio::test]
    async fn every_attempt_is_counted_for_the_cause_of_its_handle() {
        let memory = Arc::new(MemoryStore::new());
        let counting = Counting::with_default(memory, Cause::Recovery);
        let counts = counting.counts();
        let retrying = Arc::new(Retrying::new(Arc::new(counting), RetryPolicy::default()));
        let demand = Limited::new(retrying.clone(), Limits::default);
        let flush = demand.with_priority(Priority::Prefetch).with_cause(Cause::Flush);
        let bytes = Bytes::from_static(b"12345");
        flush.put("a", bytes.clone(), PutMode::IfAbsent).await.unwrap();
        flush.put("a", bytes, PutMode::IfAbsent).await.unwrap_err();
        tokio::join!(demand.get("a", Some(1..3)), flush.head("a")).0.unwrap();
        demand.get("b", None).await.unwrap_err();
        // Past all handles.
        retrying.delete("a").await.unwrap();
        let found: Vec<_> = counts
            .by_cause()
            .into_iter()
            .filter(|count| count.requests > 0)
            .collect();
        let count = |cause, operation, requests, bytes| CauseCounts {
            cause,
            operation,
            requests,
            // A refusal is charged.
            charged: requests,
            bytes,
        };
        let expected = [
            count(Cause::Demand, Operation::Get, 2, 2),
            count(Cause::Flush, Operation::Put, 2, 5),
            count(Cause::Flush, Operation::Head, 1, 0),
            count(Cause::Recovery, Operation::Delete, 1, 0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_most_requests_at_once_are_those_since_it_was_asked_last() {
        let counts = StoreCounts::default();
        let store_takes = |requests: usize| {
            let sent: Vec<_> = (0..requests)
                .map(|_| Sent::begin(&counts, Cause::Demand, Operation::Get))
                .collect();
            drop(sent);
        };
        assert_eq!(counts.take_most_under_way(), 0);
        store_takes(3);
        store_takes(2);
        assert_eq!(counts.take_most_under_way(), 3);
        assert_eq!(counts.take_most_under_way(), 0);
        let lasting = Sent::begin(&counts, Cause::Flush, Operation::Put);
        assert_eq!(counts.take_most_under_way(), 1);
        assert_eq!(counts.take_most_under_way(), 1, "it is still under way");
        drop(lasting);
    }

    #[test]
    fn what_was_not_sent_and_what_the_store_failed_at_is_not_charged() {
        let text = String::new;
        let (store, key, detail, operation) = (text(), text(), text(), Operation::Get);
        let failed = StoreError::Server {
            store: text(),
            operation,
            key: text(),
            status: 500,
            detail: text(),
        };
        let throttled = StoreError::Throttled {
            store: text(),
            operation,
            key: text(),
            retry_after: None,
            detail: text(),
        };
        let unreachable = StoreError::Unreachable {
            store: text(),
            detail: text(),
        };
        let lost = StoreError::Interrupted {
            store,
            operation,
            key,
            detail,
        };
        let counts = StoreCounts::default();
        for error in [failed, throttled, unreachable, lost] {
            counts.record(Cause::Demand, operation, 1, Err(Failed::from(&error)));
        }
        let found = counts.by_cause().into_iter().find(|count| count.operation == operation);
        // The answer that was lost.
        assert!(found.is_some_and(|found| (found.requests, found.charged) == (4, 1)));
    }

    #[tokio::test]
    async fn what_its_caller_gives_up_counts_and_is_charged() {
        let counting = Counting::new(Arc::new(MemoryStore::new()));
        let counts = counting.counts();
        let endless = counting.timed(Operation::Put, std::future::pending::<Result<()>>(), |()| 7);
        let given_up = tokio::time::timeout(std::time::Duration::from_millis(1), endless).await;
        assert!(given_up.is_err());
        let put = counts.of(Operation::Put);
        assert_eq!((put.bytes, put.micros.count()), (0, 1));
        assert_eq!(put.failures, [(ErrorKind::Retry, 1)]);
        let found = counts.by_cause().into_iter().find(|count| count.requests > 0).unwrap();
        assert_eq!((found.operation, found.requests, found.charged), (Operation::Put, 1, 1));
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
