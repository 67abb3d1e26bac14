//! How many requests may be in flight, learnt from how they end: a [`Concurrency`] for downloads and one for uploads, told of
//! every attempt by a decorator that stands below the retries. The same decorator gives attempts of uploads up that take far longer
//! than such attempts do ([`uploads`]).
//!
//! It owns the clock of the controllers and what counts as a sign of load. It holds nothing back itself: [`crate::Limited`] does,
//! and asks for the limits here.

mod uploads;

use crate::gate::Limits;
use crate::latency_table::Cells;
use crate::store::{ETag, ListedObject, ObjectMeta, ObjectStore, PutMode, Result, bytes_of};
use crate::{ErrorKind, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant as RealInstant;
use tombolo_base::Instant;
use tombolo_flow_control::byte_window::Sent;
use tombolo_flow_control::concurrency::{Completion, Outcome, Parameters, State};
use tombolo_flow_control::{ByteWindow, Concurrency, deadline};
use uploads::Uploads;

/// Of uploads that were measured, for their deadlines.
const SLOW_QUANTILE: f64 = 0.99;

/// Uploads under way before anything is known. Over 10 Mbit/s they take 13 seconds.
const UPLOAD_BYTES_INITIAL: u64 = 16 << 20;
/// Likewise downloads, which may take no longer than a request may: over 2 Mbit/s these take 17 seconds.
const DOWNLOAD_BYTES_INITIAL: u64 = 4 << 20;

/// What both controllers have found.
#[derive(Clone, Copy, Debug, Default)]
pub struct PaceState {
    /// Of downloads.
    pub gets: State,
    /// Of uploads.
    pub puts: State,
    /// Attempts of uploads that took far longer than such attempts do.
    pub uploads_given_up: u64,
    /// What uploads may have under way.
    pub upload_window_bytes: u64,
    /// What downloads may have under way.
    pub download_window_bytes: u64,
}

/// The limits of one store.
#[derive(Debug)]
pub struct Pace {
    begun: RealInstant,
    gets: Direction,
    puts: Direction,
    /// None: uploads take as long as they take.
    uploads: Option<Uploads>,
}

#[derive(Debug)]
struct Direction {
    in_flight: AtomicU32,
    concurrency: Mutex<Concurrency>,
    window: Mutex<ByteWindow>,
}

impl Direction {
    fn new(parameters: Parameters, window_bytes: u64) -> Self {
        Self {
            in_flight: AtomicU32::new(0),
            concurrency: Mutex::new(Concurrency::new(parameters, Instant(0))),
            window: Mutex::new(ByteWindow::new(window_bytes)),
        }
    }

    fn concurrency(&self) -> MutexGuard<'_, Concurrency> {
        self.concurrency.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn window(&self) -> MutexGuard<'_, ByteWindow> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that may be under way now; any number where the number of requests is set by hand.
    fn window_bytes(&self) -> u64 {
        match self.concurrency().is_pinned() {
            true => u64::MAX,
            false => self.window().bytes(),
        }
    }
}

impl Pace {
    /// Knows nothing of the store yet. `deadlines`: of attempts of uploads, if there are to be any.
    pub fn new(gets: Parameters, puts: Parameters, deadlines: Option<deadline::Parameters>) -> Arc<Self> {
        Arc::new(Self {
            begun: RealInstant::now(),
            gets: Direction::new(gets, DOWNLOAD_BYTES_INITIAL),
            puts: Direction::new(puts, UPLOAD_BYTES_INITIAL),
            uploads: deadlines.map(Uploads::new),
        })
    }

    /// What uploads were measured to take: deadlines follow from that until they have been seen here.
    pub fn expect_uploads(&self, puts: &Cells) {
        let Some(uploads) = &self.uploads else { return };
        for cell in puts.iter() {
            let slow_ms = puts.latency_ms(cell.size_bytes, cell.parallelism, SLOW_QUANTILE);
            uploads.expect(
                cell.size_bytes,
                cell.parallelism,
                Duration::from_secs_f64(slow_ms / 1e3),
            );
        }
    }

    /// What may be in flight now. A quarter of the downloads is kept for demand, on top of a limit that was found out: what is
    /// fetched ahead alone can use that up, and so show whether more would pay.
    pub fn limits(&self) -> Limits {
        let gets_max = {
            let gets = self.gets.concurrency();
            let limit = gets.limit() as usize;
            if gets.is_pinned() {
                limit
            } else {
                with_room_for_demand(limit)
            }
        };
        let puts_max = self.puts.concurrency().limit() as usize;
        Limits {
            puts_max,
            gets_max,
            prefetches_max: (gets_max * 3 / 4).max(1),
            total_max: puts_max + gets_max,
            get_bytes_max: self.download_window_bytes(),
        }
    }

    /// Bytes of uploads that may be under way now; any number where their number is set by hand.
    pub fn upload_window_bytes(&self) -> u64 {
        self.puts.window_bytes()
    }

    /// As [`Self::upload_window_bytes`].
    pub fn download_window_bytes(&self) -> u64 {
        self.gets.window_bytes()
    }

    /// For metrics.
    pub fn state(&self) -> PaceState {
        let (upload_window_bytes, download_window_bytes) = (self.upload_window_bytes(), self.download_window_bytes());
        PaceState {
            gets: self.gets.concurrency().state(),
            puts: self.puts.concurrency().state(),
            uploads_given_up: self.uploads.as_ref().map_or(0, Uploads::given_up),
            upload_window_bytes,
            download_window_bytes,
        }
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// A request that is given up by its caller tells the limit nothing, and the window that it failed. `expected_bytes`: as far as is
    /// known before it is answered.
    async fn watch<T>(
        &self,
        direction: &Direction,
        expected_bytes: u64,
        bytes_of: impl Fn(&T) -> u64,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut under_way = UnderWay::begin(self, direction, expected_bytes);
        let sent = self.now();
        let outcome = request.await;
        under_way.brought = outcome.as_ref().ok().map(bytes_of);
        let completion = Completion {
            sent,
            bytes: under_way.brought.unwrap_or(0),
            in_flight: under_way.at_entry,
            outcome: outcome.as_ref().map_or_else(outcome_of, |_| Outcome::Done),
        };
        direction.concurrency().on_completed(self.now(), &completion);
        outcome
    }
}

/// Downloads at once, three quarters of which come to this limit.
pub fn with_room_for_demand(limit: usize) -> usize {
    limit + limit.div_ceil(3)
}

fn outcome_of(error: &StoreError) -> Outcome {
    match error.kind() {
        ErrorKind::Throttled => Outcome::SlowDown,
        ErrorKind::Retry | ErrorKind::Unreachable => Outcome::Lost,
        ErrorKind::AccessDenied
        | ErrorKind::BucketMissing
        | ErrorKind::OutOfSpace
        | ErrorKind::Internal
        | ErrorKind::NotFound
        | ErrorKind::Precondition
        | ErrorKind::Invalid
        | ErrorKind::Corrupt => Outcome::Done,
    }
}

/// A request in flight, which the window is told of, also when its caller gives it up.
struct UnderWay<'p> {
    pace: &'p Pace,
    direction: &'p Direction,
    /// So many were in flight then, with it.
    at_entry: u32,
    sent: Sent,
    brought: Option<u64>,
}

impl<'p> UnderWay<'p> {
    fn begin(pace: &'p Pace, direction: &'p Direction, bytes: u64) -> Self {
        Self {
            pace,
            direction,
            at_entry: direction.in_flight.fetch_add(1, Ordering::Relaxed) + 1,
            sent: direction.window().on_sent(pace.now(), bytes),
            brought: None,
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.direction.in_flight.fetch_sub(1, Ordering::Relaxed);
        let now = self.pace.now();
        self.direction.window().on_ended(now, &self.sent, self.brought);
    }
}

/// A decorator that tells a [`Pace`] of every attempt. Requests without a body are too small to tell of load.
#[derive(Debug)]
pub struct Paced {
    inner: Arc<dyn ObjectStore>,
    pace: Arc<Pace>,
}

impl Paced {
    /// Tells `pace` from now on.
    pub fn new(inner: Arc<dyn ObjectStore>, pace: Arc<Pace>) -> Self {
        Self { inner, pace }
    }
}

#[async_trait]
impl ObjectStore for Paced {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        let size = bytes.len() as u64;
        let (pace, puts) = (&self.pace, &self.pace.puts);
        let request = self.inner.put(key, bytes, mode);
        match &pace.uploads {
            Some(uploads) => {
                let request = uploads.within_deadline(key, size, request);
                pace.watch(puts, size, |_| size, request).await
            }
            None => pace.watch(puts, size, |_| size, request).await,
        }
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        let expected = bytes_of(range.as_ref());
        let request = self.inner.get(key, range);
        let size = |bytes: &Bytes| bytes.len() as u64;
        self.pace.watch(&self.pace.gets, expected, size, request).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        self.inner.head(key).await
    }

    async fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>> {
        self.inner.list(prefix, start_after, limit).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(key).await
    }

    async fn check(&self) -> Result<()> {
        self.inner.check().await
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
