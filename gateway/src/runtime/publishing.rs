//! The bucket's root and journal: puts recovery points there, keeps the local copy of the root, and finds out whether the
//! bucket is still this gateway's.
//!
//! Which root comes next and what a root that was found means is the core's to say ([`tombolo_core::publisher`]); here are the
//! requests, the file and the order of the two.

use super::Gateway;
use super::cloud::store_failure;
use super::durable_file;
use super::removal::Removal;
use super::tree_nodes::StoreNodes;
use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant as RealInstant};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tombolo_base::{DecodeError, KeyId};
use tombolo_cloud_driver::encryption::KeyRing;
use tombolo_cloud_driver::metadata_object::{
    MetadataKind, MetadataObjectError, decode_metadata, encode_metadata, object_key_id, salt_of_object,
};
use tombolo_cloud_driver::{ETag, ErrorKind, ObjectStore, PutMode, Result as StoreResult, StoreError};
use tombolo_core::bucket_journal::{PART_BYTES_MAX, Part, Parts, Salt};
use tombolo_core::bucket_tree::{BucketTree, FoldBase, JournalChanges, fold};
use tombolo_core::publisher::{Journaled, KnownRoot, NotTheWriter, Publisher, RootWriter};
use tombolo_core::root::{ROOT_BYTES_MAX, ROOT_NAME, Root};
use tombolo_core::{Event, PublishFailure, RecoveryPoint, StopReason, StoreFailure};
use tombolo_metadata_tree::Shape;

/// A journal of so many bytes is folded into the tree at once.
const FOLD_BYTES: u64 = 16 << 20;
/// Parts of a point on their way at once.
const JOURNAL_PUTS_MAX: usize = 4;
/// How long a start waits for the root.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// How long the end of a gateway waits to say that it has stopped.
const RELEASE_PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at a root.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Asked for with a condition, to see whether the store knows conditions.
const PROBE_NAME: &str = "conditions";

/// Who the writer is, and how it sees to it that there is no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// Another root is put before so much has passed.
    pub lease_ms: u32,
    /// The journal in the bucket is folded into its tree after so long, or when it is long.
    pub checkpoint_interval: Duration,
    /// Earlier roots that are kept, and the time between two of them.
    pub roots_kept: usize,
    pub kept_root_interval: Duration,
    /// What no root needs any more is removed after so long: a recovery that began before may be reading it.
    pub removal_delay: Duration,
    /// Take it on trust that no other gateway has this bucket: for stores without conditional puts.
    pub is_trusted: bool,
}

/// Why the bucket cannot be written to.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("{path}: {error}")]
    Disk { path: PathBuf, error: io::Error },
    #[error(
        "{path}: {error}; put it back from a copy of the state directory. If there is none, `tombolo salvage` copies out what the store \
         lacks, and `tombolo recover` makes a new state directory of what it has"
    )]
    Kept { path: PathBuf, error: DecodeError },
    #[error(
        "{path} is missing, so it is not known whether the store's root, of {writer}, is this state directory's; put it back from a \
         copy. If there is none, `tombolo salvage` copies out what the store lacks, and `tombolo recover` makes a new state directory"
    )]
    KeptMissing { path: PathBuf, writer: String },
    #[error("store: {0}")]
    Store(#[from] StoreError),
    #[error("the object `root` in the store: {0}")]
    Root(#[from] MetadataObjectError),
    #[error("the object `root` in the store: {0}")]
    RootContents(#[from] DecodeError),
    #[error(
        "the store's writer is {0}; one gateway serves one prefix. If that one is gone for good, `tombolo recover` brings its \
         data to a new state directory; this one is a copy of its, or older, and must not be used any more"
    )]
    OtherWriter(String),
    #[error(
        "the store shows root {0} of this gateway, which has put root {1} since: the store was set back, or shows what is old. This \
         state directory is newer, so do not recover from the store. Put the newest version of the object `root` back; if there is \
         none, remove the object, and the next start tells the store everything anew"
    )]
    Older(u64, u64),
    #[error(
        "the store's writer is {0}, which has put a root a moment ago: this state directory is in use there, under that name"
    )]
    Elsewhere(String),
    #[error(
        "the store ignores the conditions of a put ({0}), so two gateways could not be kept from writing to it; use another \
         store, or set [store] single_writer = \"trusted\" and make sure yourself that there is only one"
    )]
    NoConditions(&'static str),
}

/// The root as it was found in the store.
#[derive(Clone, Debug)]
pub struct FoundRoot {
    pub salt: Salt,
    pub etag: ETag,
    pub bytes: Vec<u8>,
}

impl FoundRoot {
    /// Whether only a holder of the data key can have made it.
    pub fn is_encrypted(&self) -> Result<bool, RootError> {
        Ok(object_key_id(MetadataKind::Root, &self.bytes)? != KeyId::NONE)
    }
}

/// What the store says of the root.
pub enum RootInStore {
    /// It does not answer.
    Unknown,
    Nothing,
    Found(FoundRoot),
}

/// The machine and the state directory, for people.
pub fn writer_name(state: &Path) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let state = fs::canonicalize(state).unwrap_or_else(|_| state.to_owned());
    format!("{}:{}", host.trim(), state.display())
}

/// Head, then get: a change in between makes a put fail that takes the place of what was seen.
pub async fn find_root(store: &Arc<dyn ObjectStore>) -> Result<Option<FoundRoot>, RootError> {
    let etag = match store.head(ROOT_NAME).await {
        Ok(found) => found.etag,
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let bytes = match store.get(ROOT_NAME, Some(0..ROOT_BYTES_MAX as u64 + 1)).await {
        Ok(bytes) => bytes.to_vec(),
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(StoreError::RangeOutside { .. }) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let salt = Salt(salt_of_object(MetadataKind::Root, &bytes)?);
    Ok(Some(FoundRoot { salt, etag, bytes }))
}

/// For a start: a store that gives no answer does not keep a gateway from starting.
pub fn ask_for_root(runtime: &Runtime, store: &Arc<dyn ObjectStore>) -> Result<RootInStore, RootError> {
    match runtime.block_on(async { tokio::time::timeout(START_PATIENCE, find_root(store)).await }) {
        Ok(Ok(Some(found))) => Ok(RootInStore::Found(found)),
        Ok(Ok(None)) => Ok(RootInStore::Nothing),
        Ok(Err(RootError::Store(error))) => {
            tracing::warn!(%error, "the store does not show its root; it is asked again");
            Ok(RootInStore::Unknown)
        }
        Ok(Err(error)) => Err(error),
        Err(_) => {
            tracing::warn!("the store takes long to show its root; it is asked again");
            Ok(RootInStore::Unknown)
        }
    }
}

/// True: the root stayed as it is for so long, so nobody renews it.
pub async fn watch_root(
    store: &Arc<dyn ObjectStore>,
    found: &FoundRoot,
    duration: Duration,
) -> Result<bool, RootError> {
    let end = RealInstant::now() + duration;
    loop {
        let now = find_root(store).await?;
        if now.is_none_or(|now| now.salt != found.salt) {
            return Ok(false);
        }
        let left = end.saturating_duration_since(RealInstant::now());
        if left.is_zero() {
            return Ok(true);
        }
        tokio::time::sleep(left.min(WATCH_INTERVAL)).await;
    }
}

/// What the root says.
pub fn read_root(found: &FoundRoot, ring: &KeyRing) -> Result<Root, RootError> {
    let (_, contents) = decode_metadata(MetadataKind::Root, ROOT_NAME, &found.bytes, ROOT_BYTES_MAX, ring)?;
    Ok(Root::decode(&contents)?)
}

/// A root of the same gateway that comes before what is known. Each root takes the place of the one before, so the store
/// itself has gone back.
pub fn is_older(found: &Root, known: &Root) -> bool {
    (found.identity, found.epoch) == (known.identity, known.epoch) && found.sequence < known.sequence
}

/// Whether the store heeds the conditions of a put. Leaves a small object there.
pub async fn check_conditions(store: &Arc<dyn ObjectStore>) -> Result<(), RootError> {
    let put = |text: &'static str, mode| store.put(PROBE_NAME, text.as_bytes().into(), mode);
    let is_refused = |result: Result<ETag, StoreError>| match result {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::Precondition => Ok(true),
        Err(error) if error.kind() == ErrorKind::Invalid => Ok(false),
        Err(error) => Err(error),
    };
    // Whether it is there now or was before makes no difference.
    is_refused(put("first\n", PutMode::IfAbsent).await)?;
    if !is_refused(put("second\n", PutMode::IfAbsent).await)? {
        return Err(RootError::NoConditions("If-None-Match"));
    }
    let other = ETag("\"00000000000000000000000000000000\"".into());
    if !is_refused(put("third\n", PutMode::IfMatch(other)).await)? {
        return Err(RootError::NoConditions("If-Match"));
    }
    Ok(())
}

/// The local copy of the root, and what was put in its place.
#[derive(Debug)]
pub struct KeptRoot {
    pub path: PathBuf,
    pub publisher: Publisher,
}

impl KeptRoot {
    pub fn path(state: &Path) -> PathBuf {
        state.join(ROOT_NAME)
    }

    /// As the state directory has it; nothing before the first root.
    pub fn read(state: &Path, writer: RootWriter) -> Result<Self, RootError> {
        let path = Self::path(state);
        let publisher = match fs::read(&path) {
            Ok(bytes) => Publisher::decode(&bytes, writer).map_err(|error| {
                let path = path.clone();
                RootError::Kept { path, error }
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Publisher::new(writer, None, Vec::new()),
            Err(error) => return Err(RootError::Disk { path, error }),
        };
        Ok(Self { path, publisher })
    }

    /// Durably.
    pub fn keep(&self) -> Result<(), RootError> {
        let bytes = self.publisher.encode();
        let kept = durable_file::replace(&self.path, |mut file| file.write_all(&bytes));
        kept.map_err(|error| RootError::Disk {
            path: self.path.clone(),
            error,
        })
    }
}

/// The writing side of the bucket's metadata.
pub struct Publishing {
    state: Mutex<State>,
    options: WriterOptions,
}

pub(super) struct State {
    pub(super) kept: KeptRoot,
    /// Of the current root in the store; `None`: it has to be asked for.
    pub(super) etag: Option<ETag>,
    /// When a root was put last.
    put_at: RealInstant,
    /// When the journal was folded into the tree last, or that was tried.
    folded_at: RealInstant,
    /// When a copy of the root was put last.
    root_kept_at: Option<RealInstant>,
    pub(super) removal: Removal,
    has_stopped: bool,
}

/// Why a root was not put.
#[derive(Debug, thiserror::Error)]
pub(super) enum PutError {
    #[error("{0}")]
    Retry(String),
    /// One that the root names.
    #[error("the object `{name}` in the store: {reason}")]
    Object { name: String, reason: String },
    /// By this writer.
    #[error("{0} has taken over the store")]
    Fenced(String),
}

/// Whether the store has answered, and what it has is not what was put.
pub(super) fn is_of_the_object(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::NotFound { .. } | StoreError::RangeOutside { .. } | StoreError::Corrupt { .. }
    )
}

impl From<RootError> for PutError {
    fn from(error: RootError) -> Self {
        Self::Retry(error.to_string())
    }
}

impl From<StoreError> for PutError {
    fn from(error: StoreError) -> Self {
        Self::Retry(store_failure(&error).reason)
    }
}

impl Publishing {
    pub fn new(kept: KeptRoot, options: WriterOptions) -> Self {
        Self {
            state: Mutex::new(State {
                kept,
                etag: None,
                put_at: RealInstant::now(),
                folded_at: RealInstant::now(),
                root_kept_at: None,
                removal: Removal::default(),
                has_stopped: false,
            }),
            options,
        }
    }

    pub(super) fn options(&self) -> &WriterOptions {
        &self.options
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gateway {
    pub(super) fn publish(self: &Arc<Self>, point: Arc<RecoveryPoint>) {
        let gateway = self.clone();
        self.publisher.run(move || {
            let result = gateway.put_point(&point).map_err(|error| match error {
                PutError::Fenced(writer) => PublishFailure::Fenced(writer),
                error @ (PutError::Retry(_) | PutError::Object { .. }) => {
                    let reason = error.to_string();
                    tracing::warn!(
                        reason,
                        "the store could not be told of a recovery point; it will be tried again"
                    );
                    let retryable = true;
                    PublishFailure::Retry(StoreFailure { retryable, reason })
                }
            });
            gateway.submit(Event::Published { result });
            gateway.fold_if_due(&mut gateway.publishing.state());
        });
    }

    fn put_point(&self, point: &RecoveryPoint) -> Result<(), PutError> {
        let state = &mut *self.publishing.state();
        self.find_own_root(state)?;
        let journaled = self.put_journal(&state.kept.publisher, point)?;
        let root = state.kept.publisher.root_of(point, &journaled, random());
        self.put_root(state, &root)
    }

    /// Brings the bucket's journal into its tree now and then, so that a recovery has little of it to read. What fails is tried
    /// again at the next point.
    fn fold_if_due(&self, state: &mut State) {
        let Some(known) = state.kept.publisher.current() else {
            return;
        };
        let is_long = known.root.journal_bytes >= FOLD_BYTES;
        let is_due = is_long || state.folded_at.elapsed() >= self.publishing.options.checkpoint_interval;
        if known.root.journal_first == 0 || !is_due {
            return;
        }
        state.folded_at = RealInstant::now();
        match self.fold(state) {
            Ok(()) => self.remove_unneeded(state),
            // The next root that is put finds it too, and tells.
            Err(PutError::Fenced(_)) => state.etag = None,
            Err(error) => {
                tracing::warn!(%error, "the store's journal could not be folded into its tree; it is tried again");
            }
        }
    }

    fn fold(&self, state: &mut State) -> Result<(), PutError> {
        let Some(KnownRoot { root, .. }) = state.kept.publisher.current().cloned() else {
            return Ok(());
        };
        let ring = self.data_keys.ring();
        let retry = |error: &dyn std::fmt::Display| PutError::Retry(error.to_string());
        let mut changes = JournalChanges::default();
        for part in self.journal_of(&self.cloud.tree, &root)? {
            changes.lay(part);
        }
        let (mut usage, usage_at) = self.usage_of(&self.cloud.tree, &root)?;
        for object in state.removal.removed() {
            usage.remove(*object);
        }
        let base = FoldBase {
            tree: BucketTree::decode(&root.tree).map_err(|error| retry(&error))?,
            usage,
            usage_at,
            next_root: root.sequence + 1,
            shape: Shape::default(),
        };
        let (runtime, store) = (&self.cloud.runtime, &self.cloud.tree);
        let mut nodes = StoreNodes::new(runtime, store, &ring);
        let folded = fold(&mut nodes, base, &changes).map_err(|error| retry(&error))?;
        let bytes = nodes.put().map_err(|error| retry(&error))?;
        let root = state.kept.publisher.folded(&folded, random());
        self.put_root(state, &root)?;
        tracing::debug!(
            checkpoint = folded.tree.checkpoint,
            bytes,
            objects = folded.usage.objects().count(),
            "the store's journal is folded into its tree"
        );
        state.removal.folded(&root);
        self.keep_root(state, &root, &ring);
        Ok(())
    }

    /// A copy of a root that names no journal, now and then. Nothing that it names is removed as long as the root says that it is
    /// kept, which the next one does.
    fn keep_root(&self, state: &mut State, root: &Root, ring: &KeyRing) {
        let options = &self.publishing.options;
        let is_due = state
            .root_kept_at
            .is_none_or(|at| at.elapsed() >= options.kept_root_interval);
        if options.roots_kept == 0 || !is_due {
            return;
        }
        let object = encode_metadata(MetadataKind::KeptRoot(root.sequence), &root.encode(), ring);
        let put = self
            .cloud
            .root
            .put(&object.name, object.bytes.into(), PutMode::Overwrite);
        match self.cloud.runtime.block_on(put) {
            Ok(_) => {
                state.kept.publisher.copied();
                state.root_kept_at = Some(RealInstant::now());
            }
            Err(error) => tracing::debug!(%error, "a root could not be kept; the next one is"),
        }
    }

    /// The parts that the root names, in their order.
    pub(super) fn journal_of(&self, store: &Arc<dyn ObjectStore>, root: &Root) -> Result<Vec<Part>, PutError> {
        let ring = self.data_keys.ring();
        let altered = |name: &str, error: &dyn std::fmt::Display| PutError::Object {
            name: name.to_owned(),
            reason: error.to_string(),
        };
        let mut parts = Vec::new();
        let mut salt = root.journal_salt;
        for sequence in root.journal().rev() {
            let kind = MetadataKind::Journal(sequence);
            let name = kind.name(&salt.0);
            let object = match self.cloud.runtime.block_on(store.get(&name, None)) {
                Err(error) if is_of_the_object(&error) => return Err(altered(&name, &error)),
                object => object?,
            };
            let read = decode_metadata(kind, &name, &object, PART_BYTES_MAX, &ring);
            let (_, contents) = read.map_err(|error| altered(&name, &error))?;
            let part = Part::decode(&contents).map_err(|error| altered(&name, &error))?;
            salt = part.header.before;
            parts.push(part);
        }
        parts.reverse();
        Ok(parts)
    }

    /// Before anything is put: is the bucket still ours, and has an earlier attempt arrived?
    pub(super) fn find_own_root(&self, state: &mut State) -> Result<(), PutError> {
        if state.etag.is_some() && state.kept.publisher.attempts().is_empty() {
            return Ok(());
        }
        let found = self.cloud.runtime.block_on(find_root(&self.cloud.root))?;
        match state.kept.publisher.found(found.as_ref().map(|found| found.salt)) {
            Ok(()) => {
                state.etag = found.map(|found| found.etag);
                Ok(state.kept.keep()?)
            }
            Err(NotTheWriter::Other) => {
                let root = found.and_then(|found| read_root(&found, &self.data_keys.ring()).ok());
                match (root, state.kept.publisher.current()) {
                    (Some(older), Some(known)) if is_older(&older, &known.root) => {
                        Err(RootError::Older(older.sequence, known.root.sequence).into())
                    }
                    (Some(root), _) => Err(PutError::Fenced(root.writer)),
                    (None, _) => Err(PutError::Fenced("another gateway".into())),
                }
            }
            Err(error @ NotTheWriter::RootMissing) => Err(PutError::Retry(format!("store: {error}"))),
        }
    }

    /// All parts of the point, each under a name that tells its contents: one that comes late does no harm, and they may
    /// arrive in any order, since the root that names them waits for all.
    fn put_journal(&self, publisher: &Publisher, point: &RecoveryPoint) -> Result<Journaled, PutError> {
        let ring = self.data_keys.ring();
        let (first, mut salt) = publisher.next_journal();
        let (mut next, mut bytes) = (first, 0);
        let mut parts = Parts::new(point);
        let mut puts = VecDeque::new();
        while let Some(part) = parts.next(next, publisher.epoch(), salt) {
            let object = encode_metadata(MetadataKind::Journal(next), &part, &ring);
            bytes += object.bytes.len() as u64;
            salt = Salt(object.salt);
            next += 1;
            if puts.len() >= JOURNAL_PUTS_MAX
                && let Some(first) = puts.pop_front()
            {
                self.wait_for_put(first)?;
            }
            let store = self.cloud.journal.clone();
            let put = async move { store.put(&object.name, object.bytes.into(), PutMode::Overwrite).await };
            puts.push_back(self.cloud.runtime.spawn(put));
        }
        puts.into_iter().try_for_each(|put| self.wait_for_put(put))?;
        Ok(Journaled {
            first,
            last: next - 1,
            salt,
            bytes,
        })
    }

    fn wait_for_put(&self, put: JoinHandle<StoreResult<ETag>>) -> Result<(), PutError> {
        let ended = self.cloud.runtime.block_on(put);
        let put = ended.map_err(|error| PutError::Retry(error.to_string()))?;
        Ok(put.map(|_| ())?)
    }

    fn put_root(&self, state: &mut State, root: &Root) -> Result<(), PutError> {
        let object = encode_metadata(MetadataKind::Root, &root.encode(), &self.data_keys.ring());
        let (root, salt) = (root.clone(), Salt(object.salt));
        state.kept.publisher.attempt(KnownRoot { root, salt });
        state.kept.keep()?;
        let mode = match (&state.etag, self.publishing.options.is_trusted) {
            (_, true) => PutMode::Overwrite,
            (Some(etag), false) => PutMode::IfMatch(etag.clone()),
            (None, false) => PutMode::IfAbsent,
        };
        let put = self.cloud.root.put(ROOT_NAME, object.bytes.into(), mode);
        let put = self.cloud.runtime.block_on(put);
        // Whatever comes of it, the next put begins with a look unless this one is known to have arrived.
        state.etag = None;
        match put {
            Ok(etag) => {
                let arrived = state.kept.publisher.found(Some(salt));
                assert_eq!(arrived, Ok(()), "what was put was an attempt");
                state.etag = Some(etag);
            }
            Err(error) if error.kind() == ErrorKind::Precondition => {
                self.find_own_root(state)?;
                if state.kept.publisher.current().map(|known| known.salt) != Some(salt) {
                    return Err(PutError::Retry("another root of this gateway's came before".into()));
                }
            }
            Err(error) => return Err(error.into()),
        }
        state.put_at = RealInstant::now();
        Ok(state.kept.keep()?)
    }

    /// Now and then, so that others see that this gateway is there, and it sees them.
    pub(super) fn start_renewing(self: &Arc<Self>) {
        let (gateway, interval) = (
            Arc::downgrade(self),
            Duration::from_millis(u64::from(self.publishing.options.lease_ms) / 3),
        );
        self.cloud.runtime.spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                let Some(gateway) = gateway.upgrade() else { return };
                let worker = gateway.clone();
                gateway.publisher.run(move || worker.renew(interval));
            }
        });
    }

    fn renew(self: &Arc<Self>, interval: Duration) {
        let state = &mut *self.publishing.state();
        if state.kept.publisher.current().is_none() || state.has_stopped || state.put_at.elapsed() < interval {
            return;
        }
        let renewed = self.find_own_root(state).and_then(|()| {
            let root = state.kept.publisher.renewed(random(), false);
            self.put_root(state, &root)?;
            self.fold_if_due(state);
            Ok(())
        });
        match renewed {
            Ok(()) => self.remove_unneeded(state),
            Err(PutError::Fenced(writer)) => {
                state.has_stopped = true;
                tracing::error!(
                    writer,
                    "another gateway has taken over the store; nothing is changed any more"
                );
                let reason = StopReason::Fenced(writer);
                self.submit(Event::Stop { reason });
            }
            Err(error) => tracing::debug!(%error, "the store's root could not be renewed"),
        }
    }

    /// So that nobody who takes the bucket over has to wait. A store that does not answer is left alone.
    pub(super) fn release_root(self: &Arc<Self>) {
        let gateway = self.clone();
        let (sender, receiver) = std::sync::mpsc::channel();
        let release = move || {
            let state = &mut *gateway.publishing.state();
            if state.kept.publisher.current().is_some() && !state.has_stopped {
                let released = gateway.find_own_root(state).and_then(|()| {
                    let root = state.kept.publisher.renewed(random(), true);
                    gateway.put_root(state, &root)
                });
                if let Err(error) = released {
                    tracing::debug!(%error, "the store was not told that the gateway has stopped");
                }
            }
            state.has_stopped = true;
            let _ = sender.send(());
        };
        self.publisher.run(release);
        let _ = receiver.recv_timeout(RELEASE_PATIENCE);
    }
}

/// Makes roots differ from each other.
pub fn random() -> u64 {
    super::fresh_identity()
}
