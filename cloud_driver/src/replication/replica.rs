//! One replica: what goes there, what is noted as lacking, whose it is, and how its root follows.
//!
//! A replica takes nothing before its root has shown that it is this gateway's. Its root is put conditionally, and not before
//! everything that the root names is there; each root is noted before it is put, so whoever finds one knows whether it is one of
//! ours. So a bucket that another gateway has taken over, or that was exchanged, is left alone.

use super::backlog::{Behind, Record, RootSalt, Task};
use super::backlog_file::{BacklogFile, Durability};
use super::deadline::Deadline;
use super::path_load::PathLoad;
use super::presence::Presence;
use super::proof::Proof;
use super::{ROOT, is_named_by_contents, locked, unix_s};
use crate::metadata_object::{MetadataKind, salt_of_object};
use crate::store::{ETag, ObjectStore, PutMode, Result};
use crate::{ErrorKind, Limited, Limits, Operation, StoreError};
use bytes::Bytes;
use futures_util::future::join_all;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant as RealInstant;
use tombolo_base::Instant;

/// Longer than any root.
const ROOT_BYTES_MAX: u64 = 1 << 20;
/// What is brought with the first root of a life, if it is another there.
const KEYS: &str = "keys";

/// Which root may be replaced although it is not this gateway's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceptedRoot {
    /// None may be there.
    Absent,
    /// The one whose salt begins so, as 16 hexadecimal digits.
    Salt(String),
}

/// What a replica is made of.
pub struct ReplicaOptions {
    /// For people.
    pub name: String,
    /// Tells it from another store of the same name.
    pub url: String,
    /// With retries and counts of its own.
    pub store: Arc<dyn ObjectStore>,
    /// What may be in flight to it, asked before each admission.
    pub limits: Box<dyn Fn() -> Limits + Send + Sync>,
    /// See [`super::Replicated::open_backlog`].
    pub backlog: Arc<BacklogFile>,
    /// A root that may be replaced.
    pub accepted_root: Option<AcceptedRoot>,
    /// A request that takes longer, the time before its admission left out, makes it count as away. What is brought later may
    /// take as long besides as all that is on its way takes at the least rate of a path.
    pub away_after: Duration,
}

/// Whose the replica is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    /// It was not asked in this life, or since something went wrong.
    Unknown,
    /// Its root is this gateway's, or it has none yet.
    Ours,
    /// Why it is not.
    Foreign(String),
}

/// A root that the primary has and the replica is to have.
#[derive(Clone, Debug)]
struct WantedRoot {
    bytes: Bytes,
    salt: RootSalt,
    is_conditional: bool,
    /// What was noted below this number has to be there first.
    below: u64,
    /// Of [`Roots::begun`].
    number: u64,
}

/// What the next root takes the place of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum RootTag {
    /// It has to be asked for.
    #[default]
    Unknown,
    Absent,
    Present(ETag),
}

impl RootTag {
    /// The condition of a put in its place.
    fn mode(self) -> PutMode {
        match self {
            Self::Present(etag) => PutMode::IfMatch(etag),
            Self::Absent | Self::Unknown => PutMode::IfAbsent,
        }
    }
}

#[derive(Debug, Default)]
struct Roots {
    /// Roots that were about to be put in this life.
    begun: u64,
    /// Of those the one that the replica has.
    arrived: Option<u64>,
    wanted: Option<WantedRoot>,
    /// Of the replica's root.
    etag: RootTag,
    /// The replica has the primary's keys.
    has_keys: bool,
}

/// How a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// It has what the primary has.
    Even,
    /// It is here, and something is being brought.
    Behind,
    /// It does not answer, or refuses.
    Away,
    /// It has another root than this gateway has put there.
    Foreign,
}

impl ReplicaState {
    /// Each once.
    pub const ALL: [Self; 4] = [Self::Even, Self::Behind, Self::Away, Self::Foreign];

    /// As it stands in status and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Behind => "behind",
            Self::Away => "away",
            Self::Foreign => "foreign",
        }
    }
}

/// A replica at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// As it was given.
    pub name: String,
    /// As it was given.
    pub url: String,
    /// How it is.
    pub state: ReplicaState,
    /// Why it is away or foreign.
    pub reason: Option<String>,
    /// What it lacks.
    pub behind: Behind,
    /// For how long something has been lacking.
    pub behind_age_s: u64,
    /// Objects that were brought later, since the start.
    pub brought: u64,
    /// Objects that were put anew as they were missing or altered, since the start.
    pub healed: u64,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Replica {
    pub(super) name: String,
    url: String,
    pub(super) store: Arc<dyn ObjectStore>,
    /// The same, for puts that nobody waits for.
    patient: Arc<dyn ObjectStore>,
    pub(super) load: Arc<PathLoad>,
    away_after: Duration,
    pub(super) backlog: Arc<BacklogFile>,
    accepted_root: Option<AcceptedRoot>,
    begun: RealInstant,
    presence: Mutex<Presence>,
    /// True while it is away: whoever waits for it leaves.
    is_away: watch::Sender<bool>,
    reason: Mutex<Option<String>>,
    standing: Mutex<Standing>,
    pub(super) proof: Proof,
    roots: Mutex<Roots>,
    /// One at a time asks whose it is, or moves its root.
    moving: tokio::sync::Mutex<()>,
    /// There may be something to do.
    pub(super) wake: Notify,
    pub(super) brought: AtomicU64,
    healed: AtomicU64,
}

/// As settings name a root.
fn digits(salt: &RootSalt) -> String {
    salt[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the store did not do what it was asked for, so that nothing can be said of the object.
fn is_failure(error: &StoreError) -> bool {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Precondition | ErrorKind::Invalid => false,
        ErrorKind::Retry
        | ErrorKind::Throttled
        | ErrorKind::Unreachable
        | ErrorKind::AccessDenied
        | ErrorKind::BucketMissing
        | ErrorKind::Corrupt
        | ErrorKind::OutOfSpace
        | ErrorKind::Internal => true,
    }
}

impl Replica {
    pub(super) fn new(options: ReplicaOptions) -> Self {
        let load = Arc::new(PathLoad::default());
        let in_time = Deadline::new(options.store, options.url.clone(), options.away_after, load.clone());
        let patient = Arc::new(in_time.patient());
        let limited = Limited::below(Arc::new(in_time), options.limits);
        let unproven = options.backlog.backlog().unproven();
        Self {
            proof: Proof::after(unproven),
            name: options.name,
            url: options.url,
            patient: Arc::new(limited.through(patient)),
            store: Arc::new(limited),
            load,
            away_after: options.away_after,
            backlog: options.backlog,
            accepted_root: options.accepted_root,
            begun: RealInstant::now(),
            presence: Mutex::new(Presence::new(Instant(0))),
            is_away: watch::Sender::new(false),
            reason: Mutex::default(),
            standing: Mutex::new(Standing::Unknown),
            roots: Mutex::default(),
            moving: tokio::sync::Mutex::default(),
            wake: Notify::new(),
            brought: AtomicU64::new(0),
            healed: AtomicU64::new(0),
        }
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    pub(super) fn is_here(&self) -> bool {
        locked(&self.presence).is_here()
    }

    /// Until it is to be asked whether it is back; nothing while it is here.
    pub(super) fn until_probe(&self) -> Option<Duration> {
        let due = locked(&self.presence).probe_at()?;
        Some(Duration::from_micros(due.micros_since(self.now())))
    }

    pub(super) fn status(&self) -> ReplicaStatus {
        let behind = self.backlog.backlog().behind();
        let standing = locked(&self.standing).clone();
        let lacks_root = locked(&self.roots).wanted.is_some();
        let (state, reason) = match standing {
            Standing::Foreign(reason) => (ReplicaState::Foreign, Some(reason)),
            _ if !self.is_here() => (ReplicaState::Away, locked(&self.reason).clone()),
            Standing::Ours if behind == Behind::default() && !lacks_root => (ReplicaState::Even, None),
            _ => (ReplicaState::Behind, None),
        };
        ReplicaStatus {
            name: self.name.clone(),
            url: self.url.clone(),
            state,
            reason,
            behind_age_s: behind.since_s.map_or(0, |since_s| unix_s().saturating_sub(since_s)),
            behind,
            brought: self.brought.load(Ordering::Relaxed),
            healed: self.healed.load(Ordering::Relaxed),
        }
    }

    /// Whether what it has of this object can be relied on, as far as is known.
    pub(super) fn has(&self, key: &str) -> bool {
        let is_ours = *locked(&self.standing) == Standing::Ours;
        let backlog = self.backlog.backlog();
        is_ours && self.is_here() && !backlog.is_to_compare() && backlog.task(key).is_none()
    }

    /// One request, of which it is found out whether the replica is here. Nobody waits for one that is away.
    pub(super) async fn ask<T>(
        &self,
        operation: Operation,
        key: &str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let sent = self.now();
        let mut is_away = self.is_away.subscribe();
        let was_away = *is_away.borrow_and_update();
        let left = async {
            // Who asks one that is away wants to know whether it is back.
            if was_away || is_away.wait_for(|is_away| *is_away).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let answer = tokio::select! {
            answer = request => answer,
            () = left => {
                return Err(StoreError::Interrupted {
                    store: self.url.clone(),
                    operation,
                    key: key.into(),
                    detail: "the replica is away".into(),
                });
            }
        };
        match &answer {
            Err(error) if is_failure(error) => self.failed(error),
            _ => self.answered(sent),
        }
        answer
    }

    pub(super) fn unreachable(&self) -> StoreError {
        StoreError::Unreachable {
            store: self.url.clone(),
            detail: "the replica is away, or not this gateway's".into(),
        }
    }

    fn failed(&self, error: &StoreError) {
        *locked(&self.reason) = Some(error.to_string());
        if locked(&self.presence).failed(self.now()) {
            tracing::warn!(replica = self.name, %error, "a replica is away; what it lacks is noted and brought later");
            *locked(&self.standing) = Standing::Unknown;
            self.is_away.send_replace(true);
        }
        self.wake.notify_one();
    }

    fn answered(&self, sent: Instant) {
        if locked(&self.presence).answered(sent, self.now()) {
            tracing::info!(replica = self.name, "a replica is back");
            self.is_away.send_replace(false);
            self.wake.notify_one();
        }
    }

    /// True: the object is there, durably. What would not be in time is not tried.
    pub(super) async fn write(&self, key: &str, bytes: &Bytes) -> bool {
        if !self.is_here() || self.load.is_late() || !self.recognise().await {
            return false;
        }
        if self.put(&self.store, key, bytes.clone()).await.is_err() {
            return false;
        }
        if self.backlog.task(key).is_none() {
            return true;
        }
        let key = key.to_owned();
        self.note(vec![Record::Settled { key }], Durability::Sometime)
            .await
            .is_ok()
    }

    /// True for good only once a root has followed: see [`super::proof`].
    async fn put(&self, store: &Arc<dyn ObjectStore>, key: &str, bytes: Bytes) -> Result<()> {
        let put = store.put(key, bytes, PutMode::Overwrite);
        self.change(Operation::Put, key, put).await.map(drop)
    }

    /// As [`Self::put`].
    async fn erase(&self, key: &str) -> Result<()> {
        self.change(Operation::Delete, key, self.store.delete(key)).await
    }

    async fn change<T>(&self, operation: Operation, key: &str, request: impl Future<Output = Result<T>>) -> Result<T> {
        let refusals = self.proof.refusals();
        let done = self.ask(operation, key, request).await?;
        let round = self.proof.round();
        let is_noted = self.backlog.backlog().unproven() >= Some(round);
        if !is_noted {
            self.note(vec![Record::Unproven { round }], Durability::Now).await?;
        }
        // Whoever found another place meanwhile may not have seen that note.
        match self.proof.refusals() == refusals {
            true => Ok(done),
            false => Err(self.unreachable()),
        }
    }

    /// It lacks an object that the primary has: on stable storage when this returns.
    pub(super) async fn note_lacking(&self, key: &str, bytes: u64) -> Result<()> {
        let record = Record::Bring {
            key: key.into(),
            bytes,
            time_s: unix_s(),
        };
        self.note(vec![record], Durability::Now).await?;
        self.wake.notify_one();
        Ok(())
    }

    pub(super) async fn note(&self, records: Vec<Record>, durability: Durability) -> Result<()> {
        let backlog = self.backlog.clone();
        let noted = tokio::task::spawn_blocking(move || backlog.note(&records, durability, unix_s())).await;
        let noted = noted.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        noted.map_err(|error| StoreError::Local {
            store: self.url.clone(),
            operation: Operation::Put,
            key: String::new(),
            detail: format!("what replica {} lacks cannot be noted: {error}", self.name),
        })
    }

    /// The primary has it no more, or that is found out later. As long as the replica's root is an older one, that may need it.
    pub(super) async fn delete(&self, key: &str, is_gone: bool) -> Result<()> {
        let may_go = is_gone && self.is_even() && self.is_here();
        if may_go && self.recognise().await && self.erase(key).await.is_ok() {
            return match self.backlog.task(key) {
                Some(_) => {
                    self.note(vec![Record::Settled { key: key.into() }], Durability::Sometime)
                        .await
                }
                None => Ok(()),
            };
        }
        let record = Record::Remove {
            key: key.into(),
            time_s: unix_s(),
        };
        self.note(vec![record], Durability::Now).await?;
        self.wake.notify_one();
        Ok(())
    }

    /// Whether its root is the primary's newest.
    pub(super) fn is_even(&self) -> bool {
        let roots = locked(&self.roots);
        roots.arrived == Some(roots.begun) && roots.begun > 0
    }

    /// The primary is about to get a root; what comes of it may not be known.
    pub(super) fn root_begins(&self) {
        locked(&self.roots).begun += 1;
    }

    /// The primary has it.
    pub(super) fn want_root(&self, bytes: &Bytes, mode: &PutMode) {
        let Ok(salt) = salt_of_object(MetadataKind::Root, bytes) else {
            return;
        };
        let below = self.backlog.backlog().next();
        let mut roots = locked(&self.roots);
        roots.wanted = Some(WantedRoot {
            bytes: bytes.clone(),
            salt,
            is_conditional: *mode != PutMode::Overwrite,
            below,
            number: roots.begun,
        });
    }

    /// Whether a root waits, and all that it names is there.
    pub(super) fn can_move_root(&self) -> bool {
        let wanted = locked(&self.roots).wanted.as_ref().map(|wanted| wanted.below);
        wanted.is_some_and(|below| self.backlog.backlog().has_brought(below))
    }

    /// Brings the newest root, if everything that it names is there. What fails is tried again later.
    pub(super) async fn move_root(&self, primary: &dyn ObjectStore) -> Result<()> {
        let _moving = self.moving.lock().await;
        if !self.can_move_root() || !self.is_here() {
            return Ok(());
        }
        if locked(&self.roots).etag == RootTag::Unknown {
            *locked(&self.standing) = Standing::Unknown;
        }
        if !self.recognised().await? {
            return Ok(());
        }
        let has_keys = locked(&self.roots).has_keys;
        if !has_keys {
            self.bring_changing(primary, KEYS).await?;
            locked(&self.roots).has_keys = true;
        }
        let Some(wanted) = locked(&self.roots).wanted.clone() else {
            return Ok(());
        };
        if self.backlog.backlog().has_brought(wanted.below) {
            self.put_root(wanted).await?;
        }
        Ok(())
    }

    /// Noted before, so that it is known whenever it is found.
    async fn put_root(&self, wanted: WantedRoot) -> Result<()> {
        self.note(vec![Record::RootAttempt(wanted.salt)], Durability::Now)
            .await?;
        // Whatever comes of it, the next one begins with a look unless this one is known to have arrived.
        let before = std::mem::take(&mut locked(&self.roots).etag);
        let mode = match wanted.is_conditional {
            true => before.mode(),
            false => PutMode::Overwrite,
        };
        let below = self.proof.begin_round();
        let put = self.store.put(ROOT, wanted.bytes, mode);
        let etag = self.ask(Operation::Put, ROOT, put).await?;
        let mut records = vec![Record::RootFound(wanted.salt)];
        // Without a condition it may have gone anywhere.
        records.extend(wanted.is_conditional.then_some(Record::Proven { below }));
        self.note(records, Durability::Sometime).await?;
        let mut roots = locked(&self.roots);
        roots.etag = RootTag::Present(etag);
        roots.arrived = Some(wanted.number);
        roots.wanted.take_if(|newest| newest.number == wanted.number);
        self.wake.notify_one();
        Ok(())
    }

    /// Whose it is, if that is not known. True: it is ours. One that does not answer counts as away then.
    pub(super) async fn recognise(&self) -> bool {
        if *locked(&self.standing) == Standing::Ours {
            return true;
        }
        let _moving = self.moving.lock().await;
        self.recognised().await.unwrap_or_else(|error| {
            tracing::debug!(replica = self.name, %error, "a replica does not show its root");
            false
        })
    }

    /// For one who holds `moving`.
    async fn recognised(&self) -> Result<bool> {
        match *locked(&self.standing) {
            Standing::Ours => return Ok(true),
            Standing::Foreign(_) => return Ok(false),
            Standing::Unknown => {}
        }
        let found = self.find_root().await?;
        let salt = found.as_ref().map(|(salt, _)| *salt);
        let (is_known, has_had_root) = {
            let backlog = self.backlog.backlog();
            (
                salt.is_some_and(|salt| backlog.is_own_root(&salt)),
                backlog.has_had_root(),
            )
        };
        match salt {
            Some(salt) if is_known => self.note(vec![Record::RootFound(salt)], Durability::Sometime).await?,
            Some(salt) if self.accepted_root == Some(AcceptedRoot::Salt(digits(&salt))) => {
                self.accept(Record::RootFound(salt)).await?;
            }
            None if has_had_root && self.accepted_root == Some(AcceptedRoot::Absent) => {
                self.accept(Record::RootForgotten).await?;
            }
            None if !has_had_root => {}
            found => {
                self.refuse(found.as_ref());
                return Ok(false);
            }
        }
        self.compare_unproven().await?;
        locked(&self.roots).etag = found.map_or(RootTag::Absent, |(_, etag)| RootTag::Present(etag));
        *locked(&self.standing) = Standing::Ours;
        Ok(true)
    }

    /// It is ours, and may have been another place when something was put there.
    async fn compare_unproven(&self) -> Result<()> {
        let is_unproven = self.backlog.backlog().unproven().is_some();
        if self.proof.is_in_question() && is_unproven {
            let compare = Record::Compare { time_s: unix_s() };
            self.note(vec![compare], Durability::Now).await?;
        }
        self.proof.settled();
        Ok(())
    }

    /// It is left alone from now on, and looked at now and then.
    fn refuse(&self, found: Option<&RootSalt>) {
        let (what, accepted) = match found {
            Some(salt) => ("it has a root that this gateway has not put there", digits(salt)),
            None => (
                "it has no root any more: it is another store, an empty one, or a folder that is not mounted",
                "none".into(),
            ),
        };
        let reason = format!(
            "{what}; it is left alone. If it is to become a copy of this gateway's bucket all the same, set [store.replica.{}] \
             accept_root = \"{accepted}\"",
            self.name
        );
        let mut told = locked(&self.reason);
        if told.as_ref() != Some(&reason) {
            tracing::error!(replica = self.name, reason, "a replica is not this gateway's");
            *told = Some(reason.clone());
        }
        self.proof.refused();
        *locked(&self.standing) = Standing::Foreign(reason);
    }

    /// What lies there is to become a copy: what it lacks has to be found out.
    async fn accept(&self, root: Record) -> Result<()> {
        let compare = Record::Compare { time_s: unix_s() };
        self.note(vec![root, compare], Durability::Now).await
    }

    async fn find_root(&self) -> Result<Option<(RootSalt, ETag)>> {
        let head = self.ask(Operation::Head, ROOT, self.store.head(ROOT)).await;
        let etag = match head {
            Ok(found) => found.etag,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let get = self.store.get(ROOT, Some(0..ROOT_BYTES_MAX));
        let bytes = match self.ask(Operation::Get, ROOT, get).await {
            Err(StoreError::RangeOutside { .. }) => Bytes::new(),
            bytes => bytes?,
        };
        // One that is none is nobody's.
        let salt = salt_of_object(MetadataKind::Root, &bytes).unwrap_or_default();
        Ok(Some((salt, etag)))
    }

    /// Whether it is another's, as far as is known.
    pub(super) fn is_foreign(&self) -> bool {
        matches!(*locked(&self.standing), Standing::Foreign(_))
    }

    /// Looks whether it is back, or was mended.
    pub(super) async fn probe(&self) {
        let _moving = self.moving.lock().await;
        *locked(&self.standing) = Standing::Unknown;
        if let Err(error) = self.recognised().await {
            tracing::debug!(replica = self.name, %error, "a replica is still away");
        }
    }

    /// Brings some at once, as many as [`PathLoad::copies`] says.
    pub(super) async fn bring_together(&self, primary: &dyn ObjectStore, keys: &[&str]) -> Result<()> {
        let begun = RealInstant::now();
        let mut bytes = 0;
        for brought in join_all(keys.iter().map(|key| self.bring(primary, key))).await {
            bytes += brought?;
        }
        self.load.on_brought(bytes, begun.elapsed(), self.away_after);
        Ok(())
    }

    /// Brings an object that is noted as lacking, and says of how many bytes. One that the primary does not have any more is not
    /// lacking.
    async fn bring(&self, primary: &dyn ObjectStore, key: &str) -> Result<u64> {
        let mut size = 0;
        if is_named_by_contents(key) {
            match primary.get(key, None).await {
                Ok(bytes) => {
                    size = bytes.len() as u64;
                    self.put(&self.patient, key, bytes).await?;
                    self.brought.fetch_add(1, Ordering::Relaxed);
                }
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        } else {
            self.bring_changing(primary, key).await?;
        }
        if self.backlog.task(key) == Some(Task::Bring) {
            self.note(vec![Record::Settled { key: key.into() }], Durability::Sometime)
                .await?;
        }
        Ok(size)
    }

    /// One whose contents may be others under the same name.
    pub(super) async fn bring_changing(&self, primary: &dyn ObjectStore, key: &str) -> Result<()> {
        let bytes = match primary.get(key, None).await {
            Err(StoreError::NotFound { .. }) => return Ok(()),
            bytes => bytes?,
        };
        let there = self.ask(Operation::Get, key, self.store.get(key, None)).await;
        match there {
            Ok(there) if there == bytes => return Ok(()),
            Ok(_) | Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        self.put(&self.patient, key, bytes).await
    }

    /// Removes what the primary has no more, now that its root does not need it either. A comparison may have seen an object
    /// that was on its way to both.
    pub(super) async fn remove(&self, primary: &dyn ObjectStore, key: &str) -> Result<()> {
        match primary.head(key).await {
            Err(StoreError::NotFound { .. }) => {
                self.erase(key).await?;
            }
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        if self.backlog.task(key) == Some(Task::Remove) {
            self.note(vec![Record::Settled { key: key.into() }], Durability::Sometime)
                .await?;
        }
        Ok(())
    }

    /// Puts an object anew, which was found missing or altered there.
    pub(super) async fn heal(&self, key: &str, bytes: Bytes) -> Result<()> {
        if !self.recognise().await {
            return Err(self.unreachable());
        }
        self.put(&self.patient, key, bytes).await?;
        self.healed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
