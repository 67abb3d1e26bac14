//! One bucket in several stores: a primary, whose root is the fence as ever, and replicas, which are whole buckets too.
//!
//! * A put has succeeded when the primary has the object, and each replica that is not away; what a replica lacks is noted durably
//!   before ([`backlog`]), and brought later ([`catch_up`]).
//! * A replica's root follows the primary's, conditionally, when everything that it names is there ([`replica`]). What the primary
//!   removes is removed there only after that. So each bucket is whole at every moment, as of its own root.
//! * Objects that are named by their contents are read where that is cheapest ([`read_choice`]), and elsewhere when one store is
//!   away, late, or has not got it. All else is asked of the primary alone: it says whose the bucket is.
//!
//! It owns no keys, so it does not know whether what it read is what was put; who finds that out asks for the copies one by one
//! ([`Replicated::copies`]) and puts the good one in place of the others ([`Replicated::heal`]).

mod backlog;
mod backlog_file;
mod catch_up;
mod comparison;
mod deadline;
mod path_load;
mod presence;
mod proof;
mod read_choice;
mod replica;

pub use backlog::Behind;
pub use backlog_file::BacklogFile;
pub use read_choice::ReadPrice;
pub use replica::{AcceptedRoot, ReplicaOptions, ReplicaState, ReplicaStatus};

use crate::cause::{Cause, because};
use crate::latency_table::Cells;
use crate::metadata_object::JOURNAL_PREFIX;
use crate::node_object::NODES_PREFIX;
use crate::store::{ETag, ListedObject, ObjectMeta, ObjectStore, PutMode, Result};
use crate::{ErrorKind, Operation, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use presence::Presence;
use read_choice::ReadChoice;
use replica::Replica;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Instant as RealInstant, sleep};
use tombolo_base::Instant;

/// The one object that says what the bucket holds.
const ROOT: &str = "root";
const PACKS_PREFIX: &str = "objects/";
/// What a start puts to see whether a store heeds conditions tells of that store alone.
const PROBE: &str = "conditions";
/// Objects that may be noted as lacking or to be removed, for each replica: some 10 MB of memory, and 256 GiB in large objects.
pub const BACKLOG_ENTRIES_MAX: usize = 65_536;
/// A store that is late so often in a row counts as away for reads.
const OVERDUE_MAX: u32 = 2;
/// Taken for the size of an object that is read whole.
const WHOLE_BYTES: u64 = 1 << 20;

/// What a name says about what lies there: always the same, so any copy will do.
fn is_named_by_contents(key: &str) -> bool {
    [PACKS_PREFIX, NODES_PREFIX, JOURNAL_PREFIX]
        .iter()
        .any(|prefix| key.starts_with(prefix))
}

/// The root goes its own way.
fn is_never_copied(key: &str) -> bool {
    key == ROOT || key == PROBE
}

fn unix_s() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.unwrap_or_default().as_secs()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Boxed<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// The first of them that comes to an end, which is taken out.
async fn first<T>(requests: &mut Vec<(usize, Boxed<'_, T>)>) -> (usize, T) {
    std::future::poll_fn(move |context| {
        for index in 0..requests.len() {
            if let Poll::Ready(answer) = requests[index].1.as_mut().poll(context) {
                let (place, _) = requests.swap_remove(index);
                return Poll::Ready((place, answer));
            }
        }
        Poll::Pending
    })
    .await
}

/// Keys that are being put.
#[derive(Debug, Default)]
struct InFlight(Mutex<HashMap<String, usize>>);

impl InFlight {
    fn enter(&self, key: &str) -> InFlightGuard<'_> {
        *locked(&self.0).entry(key.to_owned()).or_default() += 1;
        InFlightGuard {
            all: self,
            key: key.to_owned(),
        }
    }

    fn has(&self, key: &str) -> bool {
        locked(&self.0).contains_key(key)
    }
}

struct InFlightGuard<'a> {
    all: &'a InFlight,
    key: String,
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        let mut all = locked(&self.all.0);
        if let Some(count) = all.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.key);
            }
        }
    }
}

/// What a replica has of an object of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedMetadata {
    /// The same as the primary.
    Same,
    /// Something else.
    Altered,
    /// Nothing.
    Missing,
    /// It did not answer.
    Unknown,
}

/// What became of reads, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Answered by the primary, then by each replica.
    pub answered: Vec<u64>,
    /// Of each, those that it did not answer, or too late, so that another was asked.
    pub failed_over: Vec<u64>,
    /// Objects that were put into the primary anew as they were missing or altered there.
    pub healed: u64,
}

/// Of one store.
#[derive(Debug)]
struct Reads {
    answered: AtomicU64,
    failed_over: AtomicU64,
    /// For reads alone, and how many in a row another store has answered first.
    presence: Mutex<(Presence, u32)>,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Replicated {
    primary: Arc<dyn ObjectStore>,
    replicas: Vec<Arc<Replica>>,
    in_flight: Arc<InFlight>,
    choice: Mutex<ReadChoice>,
    reads: Vec<Reads>,
    healed: Arc<AtomicU64>,
    begun: RealInstant,
    catching_up: Mutex<Vec<AbortOnDrop>>,
}

/// A task that ends with its owner.
#[derive(Debug)]
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Replicated {
    /// The note of what a replica lacks, in the state directory. Of a file that is not there yet, everything has to be compared.
    pub fn open_backlog(path: &Path, url: &str, entries_max: usize) -> std::io::Result<Arc<BacklogFile>> {
        BacklogFile::open(path, url, entries_max, unix_s())
    }

    /// `prices`: of the primary, then of each replica; `second`: what a second of waiting for a read is worth. Nothing is brought
    /// before [`Self::start`].
    pub fn new(
        primary: Arc<dyn ObjectStore>,
        replicas: Vec<ReplicaOptions>,
        prices: &[ReadPrice],
        second: u64,
    ) -> Self {
        let replicas: Vec<_> = replicas
            .into_iter()
            .map(|options| Arc::new(Replica::new(options)))
            .collect();
        let reads = || Reads {
            answered: AtomicU64::new(0),
            failed_over: AtomicU64::new(0),
            presence: Mutex::new((Presence::new(Instant(0)), 0)),
        };
        Self {
            primary,
            choice: Mutex::new(ReadChoice::new(prices, second)),
            reads: (0..=replicas.len()).map(|_| reads()).collect(),
            replicas,
            in_flight: Arc::default(),
            healed: Arc::default(),
            begun: RealInstant::now(),
            catching_up: Mutex::default(),
        }
    }

    /// What reads of the store at `place`, 0 for the primary, were measured to take: until they have been seen here.
    pub fn expect_reads(&self, place: usize, gets: &Cells) {
        const MICROS_PER_MS: f64 = 1e3;
        locked(&self.choice).expect(place, |bytes| (gets.mean_ms(bytes, 1) * MICROS_PER_MS) as u64);
    }

    /// Brings the replicas what they lack from now on, as long as this lives. The primary MUST be known to be this gateway's.
    pub fn start(&self, runtime: &tokio::runtime::Handle) {
        for replica in &self.replicas {
            let (primary, in_flight) = (self.primary.clone(), self.in_flight.clone());
            let run = catch_up::run(replica.clone(), primary, in_flight);
            let task = runtime.spawn(because(Cause::Replication, run));
            locked(&self.catching_up).push(AbortOnDrop(task));
        }
    }

    /// Of each replica.
    pub fn status(&self) -> Vec<ReplicaStatus> {
        self.replicas.iter().map(|replica| replica.status()).collect()
    }

    /// Since the start.
    pub fn read_counts(&self) -> ReadCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ReadCounts {
            answered: self.reads.iter().map(|reads| read(&reads.answered)).collect(),
            failed_over: self.reads.iter().map(|reads| read(&reads.failed_over)).collect(),
            healed: read(&self.healed),
        }
    }

    /// Every copy: the primary's, then each replica's. An error says nothing of the other copies.
    pub async fn copies(&self, key: &str, cause: Cause) -> Vec<Result<Bytes>> {
        let copies = (0..=self.replicas.len()).map(|place| async move {
            match place {
                0 => self.primary.get(key, None).await,
                place => self.read_replica(place, key, None).await,
            }
        });
        because(cause, join_all(copies)).await
    }

    /// Whether a copy may be missing, as it is noted that it is to be brought: of the primary, then of each replica.
    pub fn is_to_come(&self, key: &str) -> Vec<bool> {
        let is_to_come = |replica: &Arc<Replica>| {
            let backlog = replica.backlog.backlog();
            backlog.is_to_compare() || backlog.task(key).is_some()
        };
        std::iter::once(false)
            .chain(self.replicas.iter().map(is_to_come))
            .collect()
    }

    /// Puts what was found whole elsewhere in place of one copy: 0 is the primary's.
    pub async fn heal(&self, place: usize, key: &str, bytes: Bytes, cause: Cause) -> Result<()> {
        match place {
            0 => {
                because(cause, self.primary.put(key, bytes, PutMode::Overwrite)).await?;
                self.healed.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            place => because(cause, self.replicas[place - 1].heal(key, bytes)).await,
        }
    }

    /// Compares one object of metadata in each replica with the primary's, and puts that in place of what differs, if told so.
    /// Nothing for a replica that is to be brought it, does not answer, or has no business with it any more.
    pub async fn compare_metadata(
        &self,
        key: &str,
        is_mended: bool,
        cause: Cause,
    ) -> Result<Vec<Option<ComparedMetadata>>> {
        because(cause, async {
            let bytes = self.primary.get(key, None).await?;
            let mut compared = Vec::new();
            for (place, replica) in (1..).zip(&self.replicas) {
                let there = match replica.has(key) {
                    true => Some(self.read_replica(place, key, None).await),
                    false => None,
                };
                compared.push(match there {
                    Some(Ok(there)) if there == bytes => Some(ComparedMetadata::Same),
                    Some(Ok(_)) => Some(ComparedMetadata::Altered),
                    // What was removed meanwhile is not missing.
                    Some(Err(StoreError::NotFound { .. }))
                        if self.primary.head(key).await.is_ok() && replica.has(key) =>
                    {
                        Some(ComparedMetadata::Missing)
                    }
                    Some(Err(StoreError::NotFound { .. })) | None => None,
                    Some(Err(_)) => Some(ComparedMetadata::Unknown),
                });
                let is_bad = matches!(
                    compared.last(),
                    Some(Some(ComparedMetadata::Altered | ComparedMetadata::Missing))
                );
                if is_bad && is_mended {
                    replica.heal(key, bytes.clone()).await?;
                }
            }
            Ok(compared)
        })
        .await
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// The copies in the order in which they are asked: such as are there and can be relied on, of packs the best first, of
    /// metadata the primary's; then the others.
    fn read_order(&self, key: &str, bytes: u64) -> Vec<usize> {
        let now = self.now();
        let is_good = |place: &usize| {
            let presence = locked(&self.reads[*place].presence).0;
            let is_in_time = presence.is_here() || presence.is_probe_due(now);
            is_in_time && (*place == 0 || self.replicas[*place - 1].has(key))
        };
        let (good, others): (Vec<usize>, Vec<usize>) = (0..=self.replicas.len()).partition(is_good);
        // Metadata is little, and nobody looks for another copy of it when it turns out to be altered.
        let mut order = match key.starts_with(PACKS_PREFIX) {
            true => locked(&self.choice).order(bytes, &good),
            false => good,
        };
        order.extend(others);
        order
    }

    async fn read_copy(&self, place: usize, key: &str, range: Option<Range<u64>>) -> (Instant, Result<Bytes>) {
        let sent = self.now();
        let answer = match place {
            0 => self.primary.get(key, range).await,
            place => self.read_replica(place, key, range).await,
        };
        let now = self.now();
        let (presence, overdue) = &mut *locked(&self.reads[place].presence);
        if answer.as_ref().is_err_and(|error| error.kind().is_retryable()) {
            presence.failed(now);
        } else {
            *overdue = 0;
            presence.answered(sent, now);
        }
        (sent, answer)
    }

    async fn read_replica(&self, place: usize, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        let replica = &self.replicas[place - 1];
        if !replica.recognise().await {
            return Err(replica.unreachable());
        }
        let get = replica.store.get(key, range);
        replica.ask(Operation::Get, key, get).await
    }

    /// Another store has answered before this one.
    fn overdue(&self, place: usize) {
        let now = self.now();
        self.reads[place].failed_over.fetch_add(1, Ordering::Relaxed);
        let (presence, overdue) = &mut *locked(&self.reads[place].presence);
        *overdue += 1;
        if *overdue >= OVERDUE_MAX {
            presence.failed(now);
        }
    }

    /// Some copy is there, so those that are not are put again.
    fn heal_missing(&self, missing: &[usize], found: usize, key: &str) {
        for place in missing {
            tracing::warn!(key, place, "a store lacks an object that another has; it gets it");
            let key = key.to_owned();
            match place {
                0 => {
                    let (primary, healed) = (self.primary.clone(), self.healed.clone());
                    let replica = self.replicas[found - 1].clone();
                    let heal = async move {
                        let get = replica.ask(Operation::Get, &key, replica.store.get(&key, None));
                        // Whoever reads it verifies it.
                        let healed_now = match get.await {
                            Ok(bytes) => primary.put(&key, bytes, PutMode::IfAbsent).await.is_ok(),
                            Err(_) => false,
                        };
                        healed.fetch_add(healed_now.into(), Ordering::Relaxed);
                    };
                    tokio::spawn(because(Cause::Replication, heal));
                }
                place => {
                    let replica = self.replicas[place - 1].clone();
                    tokio::spawn(async move {
                        if let Err(error) = replica.note_lacking(&key, 0).await {
                            tracing::warn!(%error, "what a replica lacks cannot be noted");
                        }
                    });
                }
            }
        }
    }

    async fn put_root(&self, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        self.replicas.iter().for_each(|replica| replica.root_begins());
        let etag = self.primary.put(ROOT, bytes.clone(), mode.clone()).await?;
        self.replicas
            .iter()
            .for_each(|replica| replica.want_root(&bytes, &mode));
        // Those that lack nothing get it at once, so that what waits for the bucket is in all of them.
        let moves = self.replicas.iter().map(|replica| async {
            if let Err(error) = replica.move_root(&*self.primary).await {
                tracing::debug!(replica = replica.name, %error, "a replica's root could not be moved; it is tried again");
            }
            replica.wake.notify_one();
        });
        join_all(moves).await;
        Ok(etag)
    }
}

/// Of several errors the one to act upon: unless all say that it is not there, it may be.
fn worst(errors: Vec<(usize, StoreError)>) -> StoreError {
    let known_absent = |error: &StoreError| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid);
    let (absent, unknown): (Vec<_>, Vec<_>) = errors.into_iter().partition(|(_, error)| known_absent(error));
    let first = |errors: Vec<(usize, StoreError)>| errors.into_iter().min_by_key(|(place, _)| *place);
    let (_, error) = first(unknown)
        .or_else(|| first(absent))
        .expect("every read asks somebody");
    error
}

#[async_trait]
impl ObjectStore for Replicated {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        if key == ROOT {
            return self.put_root(bytes, mode).await;
        }
        if key == PROBE {
            return self.primary.put(key, bytes, mode).await;
        }
        let _in_flight = self.in_flight.enter(key);
        let write = || join_all(self.replicas.iter().map(|replica| replica.write(key, &bytes)));
        let (etag, written) = if is_named_by_contents(key) {
            let (etag, written) = tokio::join!(self.primary.put(key, bytes.clone(), mode), write());
            (etag?, written)
        } else {
            let etag = self.primary.put(key, bytes.clone(), mode).await?;
            (etag, write().await)
        };
        for (replica, is_written) in self.replicas.iter().zip(written) {
            if !is_written {
                replica.note_lacking(key, bytes.len() as u64).await?;
            }
        }
        Ok(etag)
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        if !is_named_by_contents(key) {
            return self.primary.get(key, range).await;
        }
        let bytes = range
            .as_ref()
            .map_or(WHOLE_BYTES, |range| range.end.saturating_sub(range.start));
        let order = self.read_order(key, bytes);
        let (mut next, mut errors) = (0, Vec::new());
        let mut waiting: Vec<(usize, Boxed<'_, (Instant, Result<Bytes>)>)> = Vec::new();
        loop {
            if waiting.is_empty() {
                let Some(place) = order.get(next) else {
                    return Err(worst(errors));
                };
                waiting.push((*place, Box::pin(self.read_copy(*place, key, range.clone()))));
                next += 1;
            }
            let latest = waiting.last().map_or(0, |(place, _)| *place);
            let patience = locked(&self.choice).overdue_after_micros(latest, bytes);
            let (place, (sent, answer)) = tokio::select! {
                answer = first(&mut waiting) => answer,
                () = sleep(Duration::from_micros(patience)), if next < order.len() => {
                    let place = order[next];
                    waiting.push((place, Box::pin(self.read_copy(place, key, range.clone()))));
                    next += 1;
                    continue;
                }
            };
            match answer {
                Ok(found) => {
                    let micros = self.now().micros_since(sent);
                    locked(&self.choice).measured(place, bytes, micros);
                    self.reads[place].answered.fetch_add(1, Ordering::Relaxed);
                    let asked_before = order.iter().take_while(|asked| **asked != place);
                    asked_before
                        .filter(|asked| waiting.iter().any(|(late, _)| late == *asked))
                        .for_each(|late| self.overdue(*late));
                    let is_missing = |(_, error): &&(usize, StoreError)| error.kind() == ErrorKind::NotFound;
                    let missing: Vec<usize> = errors.iter().filter(is_missing).map(|(place, _)| *place).collect();
                    // Metadata may have been removed on purpose.
                    if key.starts_with(PACKS_PREFIX) {
                        self.heal_missing(&missing, place, key);
                    }
                    return Ok(found);
                }
                Err(error) => {
                    self.reads[place].failed_over.fetch_add(1, Ordering::Relaxed);
                    errors.push((place, error));
                }
            }
        }
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        self.primary.head(key).await
    }

    async fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>> {
        self.primary.list(prefix, start_after, limit).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let deleted = self.primary.delete(key).await;
        // It may be gone although it failed, and then nobody asks for it again.
        let is_gone = deleted.is_ok();
        for noted in join_all(self.replicas.iter().map(|replica| replica.delete(key, is_gone))).await {
            noted?;
        }
        deleted
    }

    async fn check(&self) -> Result<()> {
        self.primary.check().await
    }
}

#[cfg(test)]
mod tests;
