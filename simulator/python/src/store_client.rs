//! The gateway's own client of a store, for `tombolo-sim measure`: requests of one kind and size, many at a time, each timed.
//!
//! It sends what it is told and says what came of it. What is measured, how often, and what is removed afterwards is Python's.

use crate::watch::watched;
use crate::{parse, print, refused};
use bytes::Bytes;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tombolo_base::Prng;
use tombolo_cloud_driver::{ObjectStore, PutMode, StoreError, StoreSettings, StoreUrl, open_store};
use tombolo_engine::replay::{Error, Interrupted, Progress};

/// So often is the user asked whether to go on.
const ASKING_INTERVAL: Duration = Duration::from_millis(50);
/// After so many failures a run ends: they cost money too.
const FAILURES_MAX: u64 = 16;

/// Which store, and how it is reached; credentials come from the usual chain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    url: String,
    endpoint: Option<String>,
    region: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Operation {
    Get,
    Put,
}

/// Requests of one kind. They go to the keys `key_prefix` and eight digits, from `first` on; GETs begin again after
/// `objects` of them.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    operation: Operation,
    size_bytes: usize,
    parallelism: usize,
    key_prefix: String,
    first: u64,
    objects: u64,
    requests_max: u64,
    /// No request begins later.
    seconds: f64,
    /// Decides the contents.
    seed: u64,
}

/// What came of a run.
#[derive(Default, Serialize)]
struct Outcome {
    latencies_ms: Vec<f64>,
    /// From the first request to the last answer.
    elapsed_s: f64,
    /// Requests that were begun, so keys from `first` on that may be there.
    begun: u64,
    /// Messages, and how often each came.
    failures: BTreeMap<String, u64>,
}

/// What the workers of a run share.
struct Shared {
    run: Run,
    store: Arc<dyn ObjectStore>,
    begun_at: Instant,
    next: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    stopped: AtomicBool,
}

/// A store, opened, with its connections.
#[pyclass(frozen)]
pub struct StoreClient {
    store: Arc<dyn ObjectStore>,
    runtime: Runtime,
}

#[pymethods]
impl StoreClient {
    /// `{url, endpoint, region}`; sends nothing yet.
    #[new]
    fn new(place: &str) -> PyResult<Self> {
        let place: Place = parse(place)?;
        let url: StoreUrl = place.url.parse().map_err(|error: StoreError| refused(error))?;
        let mut settings = StoreSettings::default();
        settings.s3.allow_http = place
            .endpoint
            .as_ref()
            .is_some_and(|endpoint| endpoint.starts_with("http://"));
        settings.s3.endpoint = place.endpoint;
        settings.s3.region = place.region;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        Ok(Self {
            store: open_store(&url, &settings).map_err(refused)?,
            runtime: runtime.map_err(refused)?,
        })
    }

    /// Carries out a run: `Run` to `Outcome`. When Python raises, no request begins any more, and those that have begun are
    /// waited for, so that what was put is there to be removed.
    #[pyo3(signature = (run, progress=None))]
    fn run(&self, py: Python<'_>, run: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let run: Run = parse(run)?;
        print(&watched(py, progress.as_ref(), |progress| {
            self.runtime.block_on(carry_out(Arc::clone(&self.store), run, progress))
        })?)
    }
}

async fn carry_out(store: Arc<dyn ObjectStore>, run: Run, progress: Progress<'_>) -> Result<Outcome, Error> {
    let shared = Arc::new(Shared {
        run,
        store,
        begun_at: Instant::now(),
        next: AtomicU64::new(0),
        done: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
    });
    let mut workers = JoinSet::new();
    for worker in 0..shared.run.parallelism {
        workers.spawn(work(Arc::clone(&shared), worker as u64));
    }
    let mut outcome = Outcome::default();
    let mut answer = Ok(());
    loop {
        match tokio::time::timeout(ASKING_INTERVAL, workers.join_next()).await {
            Ok(None) => break,
            Ok(Some(Ok((latencies, failures)))) => {
                outcome.latencies_ms.extend(latencies);
                for message in failures {
                    *outcome.failures.entry(message).or_default() += 1;
                }
            }
            Ok(Some(Err(panic))) => return Err(Error::Store(panic.to_string())),
            Err(_) if answer.is_ok() => {
                answer = progress(shared.done.load(Ordering::Relaxed), shared.run.requests_max);
                shared.stopped.store(answer.is_err(), Ordering::Relaxed);
            }
            Err(_) => {}
        }
    }
    let Ok(()) = answer else {
        return Err(Interrupted.into());
    };
    outcome.elapsed_s = shared.begun_at.elapsed().as_secs_f64();
    outcome.begun = shared.next.load(Ordering::Relaxed).min(shared.run.requests_max);
    Ok(outcome)
}

/// One request after another, until there are enough.
async fn work(shared: Arc<Shared>, worker: u64) -> (Vec<f64>, Vec<String>) {
    let run = &shared.run;
    let mut content = match run.operation {
        Operation::Put => vec![0; run.size_bytes],
        Operation::Get => Vec::new(),
    };
    Prng::new(run.seed ^ worker).fill(&mut content);
    let (mut latencies, mut failures) = (Vec::new(), Vec::new());
    loop {
        let is_late = shared.begun_at.elapsed().as_secs_f64() >= run.seconds;
        let has_failed = shared.failed.load(Ordering::Relaxed) >= FAILURES_MAX;
        if is_late || has_failed || shared.stopped.load(Ordering::Relaxed) {
            return (latencies, failures);
        }
        let index = shared.next.fetch_add(1, Ordering::Relaxed);
        if index >= run.requests_max {
            return (latencies, failures);
        }
        let number = match run.operation {
            Operation::Put => run.first + index,
            Operation::Get => run.first + index % run.objects.max(1),
        };
        match request(&shared, number, &mut content).await {
            Ok(ms) => latencies.push(ms),
            Err(message) => {
                failures.push(message);
                shared.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        shared.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// The milliseconds that it took. Contents begin with the object's number, and are random after that, so that no server can
/// compress or deduplicate them.
async fn request(shared: &Shared, number: u64, content: &mut [u8]) -> Result<f64, String> {
    let run = &shared.run;
    let key = format!("{}{number:08}", run.key_prefix);
    let head = number.to_le_bytes();
    match run.operation {
        Operation::Put => {
            if let Some(place) = content.first_chunk_mut() {
                *place = head;
            }
            let payload = Bytes::copy_from_slice(content);
            let begun = Instant::now();
            shared
                .store
                .put(&key, payload, PutMode::Overwrite)
                .await
                .map_err(|error| error.to_string())?;
            Ok(begun.elapsed().as_secs_f64() * 1e3)
        }
        Operation::Get => {
            let begun = Instant::now();
            let found = shared.store.get(&key, None).await.map_err(|error| error.to_string())?;
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            if found.len() != run.size_bytes || !found.starts_with(&head[..head.len().min(run.size_bytes)]) {
                return Err("an object has other contents than were put".into());
            }
            Ok(ms)
        }
    }
}
