//! Gives attempts of uploads up that take far longer than such attempts do, as [`Deadlines`] says: what is given up is repeated by
//! whoever stands above, in its own place. It owns what is in flight, and asks again whenever that tells something new.

use crate::store::{ETag, Result};
use crate::{Operation, StoreError};
use futures_util::future::select;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tombolo_flow_control::Deadlines;
use tombolo_flow_control::deadline::{Load, Parameters};

/// Uploads to one store.
#[derive(Debug)]
pub(super) struct Uploads {
    state: Mutex<State>,
    /// Something was answered, so that deadlines may be earlier.
    answered: Notify,
}

#[derive(Debug)]
struct State {
    deadlines: Deadlines,
    load: Load,
    given_up: u64,
}

impl Uploads {
    pub fn new(parameters: Parameters) -> Self {
        let state = State {
            deadlines: Deadlines::new(parameters),
            load: Load::default(),
            given_up: 0,
        };
        Self {
            state: Mutex::new(state),
            answered: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attempts since the start.
    pub fn given_up(&self) -> u64 {
        self.state().given_up
    }

    /// An attempt of so many bytes took so long, as it was measured before.
    pub fn expect(&self, bytes: u64, attempts: u32, latency: Duration) {
        let load = Load {
            attempts,
            bytes: bytes.saturating_mul(attempts.into()),
        };
        self.state().deadlines.on_answered(bytes, load, micros(latency));
    }

    /// The attempt, or that it took too long.
    pub async fn within_deadline(
        &self,
        key: &str,
        bytes: u64,
        attempt: impl Future<Output = Result<ETag>>,
    ) -> Result<ETag> {
        let place = Place::enter(self, bytes);
        let (begun, least) = (Instant::now(), self.state().load);
        let (mut most, mut attempt) = (least, pin!(attempt));
        loop {
            // Before the look at what is known, or an answer between both would be missed.
            let mut answered = pin!(self.answered.notified());
            answered.as_mut().enable();
            let after = {
                let mut state = self.state();
                most = larger(most, state.load);
                let after = Duration::from_micros(state.deadlines.after_us(bytes, most));
                if begun.elapsed() > after {
                    state.deadlines.on_given_up(bytes);
                    state.given_up += 1;
                    return Err(too_late(key, begun.elapsed()));
                }
                after
            };
            // What may not be waited for ends a moment behind the deadline, so that it is over then.
            let until = begun + after + Duration::from_millis(1);
            let outcome = match timeout_at(until, select(attempt.as_mut(), answered)).await {
                Ok(futures_util::future::Either::Left((outcome, _))) => outcome,
                Ok(futures_util::future::Either::Right(_)) | Err(_) => continue,
            };
            if outcome.is_ok() {
                place.answered(begun.elapsed(), least);
            }
            return outcome;
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn larger(left: Load, right: Load) -> Load {
    Load {
        attempts: left.attempts.max(right.attempts),
        bytes: left.bytes.max(right.bytes),
    }
}

fn too_late(key: &str, elapsed: Duration) -> StoreError {
    StoreError::Interrupted {
        store: "upload".into(),
        operation: Operation::Put,
        key: key.into(),
        detail: format!("given up after {} ms, as others take far less", elapsed.as_millis()),
    }
}

/// Of one attempt in flight.
struct Place<'u> {
    uploads: &'u Uploads,
    bytes: u64,
}

impl<'u> Place<'u> {
    fn enter(uploads: &'u Uploads, bytes: u64) -> Self {
        let load = &mut uploads.state().load;
        load.attempts += 1;
        load.bytes += bytes;
        Self { uploads, bytes }
    }

    fn answered(&self, elapsed: Duration, at_entry: Load) {
        let mut state = self.uploads.state();
        let least = Load {
            attempts: at_entry.attempts.min(state.load.attempts),
            bytes: at_entry.bytes.min(state.load.bytes),
        };
        state.deadlines.on_answered(self.bytes, least, micros(elapsed));
        drop(state);
        self.uploads.answered.notify_waiters();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let load = &mut self.uploads.state().load;
        load.attempts -= 1;
        load.bytes -= self.bytes;
    }
}
