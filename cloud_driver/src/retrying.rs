//! A decorator that repeats what failed for a passing reason, as [`crate::retry::plan_retry`] says.
//!
//! A throttled request pauses the whole store: all requests through this decorator wait until the longest announced pause is over
//! and then start spread over a quarter of it, so that parallel requests do not return together. A conditional put
//! that is refused after an attempt without answer is settled by reading the object: our own content means that the lost attempt won.

use crate::retry::{Failure, RetryPolicy, jitter, plan_retry};
use crate::store::{ETag, ListedObject, ObjectMeta, ObjectStore, PutMode, Result};
use crate::{ErrorKind, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tombolo_base::Prng;

/// What the decorator has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryCounts {
    /// Requests sent to the store below.
    pub attempts: u64,
    /// Attempts beyond the first of each request.
    pub retries: u64,
    /// Attempts that the store throttled.
    pub throttles: u64,
    /// Requests that failed for good although repeating could have helped.
    pub gave_up: u64,
}

#[derive(Debug, Default)]
struct Counters {
    attempts: AtomicU64,
    retries: AtomicU64,
    throttles: AtomicU64,
    gave_up: AtomicU64,
}

/// The end of the longest announced pause and its length.
#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    length: Duration,
}

/// A decorator that repeats what failed for a passing reason.
#[derive(Debug)]
pub struct Retrying {
    inner: Arc<dyn ObjectStore>,
    policy: RetryPolicy,
    prng: Mutex<Prng>,
    pause: Mutex<Option<Pause>>,
    counters: Counters,
}

/// One request: its beginning, and what its attempts came to.
struct Attempts {
    begun: Instant,
    made: u32,
    outcome_unknown: bool,
}

impl Retrying {
    /// Repeats as `policy` says.
    pub fn new(inner: Arc<dyn ObjectStore>, policy: RetryPolicy) -> Self {
        // RandomState is seeded by the system, which is random enough for jitter.
        Self::with_seed(inner, policy, RandomState::new().hash_one(0))
    }

    /// As [`Self::new`], with jitter that can be replayed.
    pub fn with_seed(inner: Arc<dyn ObjectStore>, policy: RetryPolicy, seed: u64) -> Self {
        Self {
            inner,
            policy,
            prng: Mutex::new(Prng::new(seed)),
            pause: Mutex::new(None),
            counters: Counters::default(),
        }
    }

    /// Since it was made.
    pub fn counts(&self) -> RetryCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RetryCounts {
            attempts: read(&self.counters.attempts),
            retries: read(&self.counters.retries),
            throttles: read(&self.counters.throttles),
            gave_up: read(&self.counters.gave_up),
        }
    }

    fn begin(&self) -> Attempts {
        Attempts {
            begun: Instant::now(),
            made: 0,
            outcome_unknown: false,
        }
    }

    fn random(&self) -> u64 {
        self.prng.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }

    async fn repeat<T, F: Future<Output = Result<T>>>(&self, request: impl Fn() -> F) -> Result<T> {
        let mut attempts = self.begin();
        loop {
            match self.attempt(&mut attempts, request()).await {
                Ok(value) => return Ok(value),
                Err(error) => self.wait_or_give_up(&attempts, error).await?,
            }
        }
    }

    async fn attempt<T>(&self, attempts: &mut Attempts, request: impl Future<Output = Result<T>>) -> Result<T> {
        self.sit_out_pause(attempts).await;
        attempts.made += 1;
        self.counters.attempts.fetch_add(1, Ordering::Relaxed);
        if attempts.made > 1 {
            self.counters.retries.fetch_add(1, Ordering::Relaxed);
        }
        let outcome = request.await;
        if let Err(error) = &outcome {
            attempts.outcome_unknown |= error.outcome_unknown();
        }
        outcome
    }

    /// Returns after the delay when the request is to be repeated, else hands the error back.
    async fn wait_or_give_up(&self, attempts: &Attempts, error: StoreError) -> Result<()> {
        let throttled = error.kind() == ErrorKind::Throttled;
        if throttled {
            self.counters.throttles.fetch_add(1, Ordering::Relaxed);
        }
        let failure = Failure::from(&error);
        let elapsed = attempts.begun.elapsed();
        let Some(delay) = plan_retry(attempts.made, elapsed, failure, &self.policy, self.random()) else {
            if failure.kind.is_retryable() {
                self.counters.gave_up.fetch_add(1, Ordering::Relaxed);
            }
            return Err(error);
        };
        if throttled {
            self.announce_pause(delay);
        }
        sleep(delay).await;
        Ok(())
    }

    fn announce_pause(&self, length: Duration) {
        let until = Instant::now() + length;
        let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        if pause.is_none_or(|current| current.until < until) {
            *pause = Some(Pause { until, length });
        }
    }

    /// Waits for the pause in force now, at most until the request's deadline; a longer one announced meanwhile is met by
    /// the next attempt.
    async fn sit_out_pause(&self, attempts: &Attempts) {
        let pause = *self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pause) = pause.filter(|pause| pause.until > Instant::now()) else {
            return;
        };
        let until = pause.until + jitter(pause.length / 4, self.random());
        sleep_until(until.min(attempts.begun + self.policy.deadline)).await;
    }

    /// A conditional put was refused after an attempt without answer: was that attempt the one that won?
    async fn settle(&self, key: &str, bytes: &Bytes, refusal: StoreError) -> Result<ETag> {
        // `head` first: when its tag is stale by the time of `get`, the next conditional put fails, which is safe.
        let meta = match self.repeat(|| self.inner.head(key)).await {
            Ok(meta) => meta,
            Err(StoreError::NotFound { .. }) => return Err(after_unknown(refusal)),
            Err(error) => return Err(error),
        };
        if meta.size_bytes != bytes.len() as u64 {
            return Err(after_unknown(refusal));
        }
        match self.repeat(|| self.inner.get(key, None)).await {
            Ok(found) if found == bytes => Ok(meta.etag),
            Ok(_) | Err(StoreError::NotFound { .. }) => Err(after_unknown(refusal)),
            Err(error) => Err(error),
        }
    }
}

fn after_unknown(refusal: StoreError) -> StoreError {
    match refusal {
        StoreError::Precondition {
            store, key, condition, ..
        } => StoreError::Precondition {
            store,
            key,
            condition,
            earlier_attempt_unknown: true,
        },
        other => other,
    }
}

#[async_trait]
impl ObjectStore for Retrying {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        let mut attempts = self.begin();
        loop {
            let request = self.inner.put(key, bytes.clone(), mode.clone());
            match self.attempt(&mut attempts, request).await {
                Ok(etag) => return Ok(etag),
                Err(refusal @ StoreError::Precondition { .. }) if attempts.outcome_unknown => {
                    return self.settle(key, &bytes, refusal).await;
                }
                Err(error) => self.wait_or_give_up(&attempts, error).await?,
            }
        }
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        self.repeat(|| self.inner.get(key, range.clone())).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        self.repeat(|| self.inner.head(key)).await
    }

    async fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>> {
        self.repeat(|| self.inner.list(prefix, start_after, limit)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.repeat(|| self.inner.delete(key)).await
    }

    async fn check(&self) -> Result<()> {
        self.repeat(|| self.inner.check()).await
    }
}

#[cfg(test)]
#[path = "retrying/tests.rs"]
mod tests;
