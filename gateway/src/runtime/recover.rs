//! A state directory from the bucket alone: folds the journal there into the tree, takes the bucket over from the writer before
//! when that has succeeded, and makes local metadata that reads in the tree what it does not have yet. How much there is matters
//! to none of this: the gateway brings it here while it serves. The cache begins empty.
//!
//! An interrupted recovery is gone on with: the bucket is taken over once, and journal objects that were fetched are not fetched
//! again.
//! The state directory cannot be served from before the last step, which gives local metadata its name.

use super::data_keys::{AtStart, DataKeys, DataKeysError};
use super::durable_file;
use super::first_start::{Paths, has_files, is_new, make_cache};
use super::fresh_identity;
use super::from_store::{FromStore, decode_object, publish_metadata};
use super::open::{OpenError, Options, check_store, lock};
use super::publishing::{FoundRoot, KeptRoot, RootError, find_root, random, read_root, watch_root, writer_name};
use super::replicas::expect_root;
use super::tree_nodes::StoreNodes;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tombolo_base::DecodeError;
use tombolo_cloud_driver::encryption::KeyRing;
use tombolo_cloud_driver::metadata_object::{MetadataKind, MetadataObjectError, encode_metadata};
use tombolo_cloud_driver::{ETag, ErrorKind, ObjectStore, PutMode, Retrying, StoreError};
use tombolo_core::bucket_journal::Salt;
use tombolo_core::bucket_tree::{BucketTree, TreeContents, write_usage};
use tombolo_core::cache_header::{CacheHeader, Mark};
use tombolo_core::publisher::{KnownRoot, Publisher, RootWriter};
use tombolo_core::recovery::RebuildError;
use tombolo_core::root::{ROOT_BYTES_MAX, ROOT_NAME, Root};
use tombolo_metadata_tree::{Pointer, UsageTable};

/// To take over from a writer that is alive.
const TAKE_OVER_ATTEMPTS: u32 = 50;

/// Why nothing was recovered, or not all of it yet.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error("{0} is a state directory already; a recovery makes a new one: name an empty directory, or move this away")]
    NotEmpty(PathBuf),
    #[error(
        "the store has no object `root`: no gateway has told it yet what it holds, or the object was removed and has to be put back \
         from an older version, or [store] url names another place"
    )]
    NoRoot,
    #[error(
        "the store has no object `keys`, and its root is encrypted: put the object back, from an older version or from the file of \
         that name in a state directory of its gateway"
    )]
    NoKeys,
    #[error(
        "{0} is the store's writer and has put a root while it was watched: it is alive. Stop it, or take the store over from it \
         with --take-over; it then stops accepting changes, and what it has not uploaded stays in its state directory"
    )]
    WriterIsAlive(String),
    #[error(
        "the object `root` in the store is not encrypted, so anybody may have put it there, and the store has data keys; if its \
         gateway had [store] encryption = \"none\" at last, say so in the settings too"
    )]
    ClearRoot,
    #[error("the store has kept no such root; `tombolo recover --list` shows those that it has")]
    NoEarlierRoot,
    #[error("another gateway has taken the store over at this moment")]
    Overtaken,
    #[error("journal object {0} is missing in the store, and all that was written after it cannot be recovered")]
    JournalMissing(u64),
    #[error("the object `{name}` in the store: {error}")]
    Journal { name: String, error: MetadataObjectError },
    #[error("the object `{name}` in the store: {error}")]
    JournalContents { name: String, error: DecodeError },
    #[error("the metadata tree in the store: {0}")]
    Tree(String),
    #[error("the journal in the store: {0}")]
    Rebuild(#[from] RebuildError),
    #[error("the numbers of the file service: {0}")]
    Numbers(DecodeError),
    #[error("local metadata: {0}")]
    Metadata(String),
    #[error("fingerprint index: {0}")]
    Index(String),
    #[error("{path}: {error}")]
    Disk { path: PathBuf, error: io::Error },
    #[error("store: {0}")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Root(#[from] RootError),
    #[error(transparent)]
    DataKeys(#[from] DataKeysError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{0}")]
    Runtime(io::Error),
}

/// How far a recovery has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoverProgress {
    /// The writer before is watched for so long.
    Watching { writer: String, lease_ms: u32 },
    /// The store is this gateway's from now on.
    TakenOver { writer: String },
    /// Of the journal.
    Fetched { objects: u64, of: u64 },
    /// Of the tree, some thousand records each.
    ReadTree { pieces: u64 },
    /// Of the journal.
    Rebuilt { objects: u64, of: u64 },
    /// Of the table of objects.
    Indexed { objects: u64 },
}

/// What was recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Who had written it.
    pub writer: String,
    /// Everything that was acknowledged before this time is there, by that writer's clock; seconds since 1970.
    pub time_s: u64,
    pub volumes: u64,
    /// Packs that the store has.
    pub objects: u64,
    pub journal_objects: u64,
    pub journal_bytes: u64,
}

/// Where an unfinished recovery keeps what it has.
pub fn work_directory(state: &Path) -> PathBuf {
    state.join("recovery")
}

/// What an interrupted recovery has left in a state directory that has no local metadata yet.
pub fn unfinished(paths: &Paths) -> Option<PathBuf> {
    let state = paths.metadata.parent()?;
    [work_directory(state), KeptRoot::path(state)]
        .into_iter()
        .find(|path| path.exists())
}

pub fn at(path: &Path) -> impl FnOnce(io::Error) -> RecoverError {
    let path = path.to_owned();
    move |error| RecoverError::Disk { path, error }
}

/// How to recover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoverOptions {
    /// Do not watch whether the writer before is alive.
    pub take_over: bool,
    /// Not the newest state, but this or the last before it.
    pub at: Option<RecoverAt>,
}

/// An earlier root that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoverAt {
    /// By its sequence.
    Sequence(u64),
    /// The newest of which the time is not after this; seconds since 1970.
    Time(u64),
}

/// An earlier root, for a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRootInfo {
    pub sequence: u64,
    pub time_s: u64,
    pub epoch: u64,
    pub writer: String,
}

/// The roots that the store has kept, oldest first, and the newest one.
pub fn list_roots(options: Options) -> Result<Vec<KeptRootInfo>, RecoverError> {
    let runtime = runtime()?;
    let (store, keys) = open_store(&runtime, &options)?;
    let ring = keys.ring();
    let Some(found) = runtime.block_on(find_root(&store))? else {
        return Ok(Vec::new());
    };
    let newest = read_root(&found, &ring)?;
    let mut roots = kept_roots(&runtime, &store, &ring, &newest)?;
    roots.push(newest);
    let info = |root: Root| KeptRootInfo {
        sequence: root.sequence,
        time_s: root.time.0.into(),
        epoch: root.epoch,
        writer: root.writer,
    };
    Ok(roots.into_iter().map(info).collect())
}

pub fn runtime() -> Result<Runtime, RecoverError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(RecoverError::Runtime)
}

/// The store, and the keys that it holds.
pub fn open_store(runtime: &Runtime, options: &Options) -> Result<(Arc<dyn ObjectStore>, DataKeys), RecoverError> {
    check_store(runtime, &options.store)?;
    let store: Arc<dyn ObjectStore> = Arc::new(Retrying::new(options.store.clone(), options.retry));
    let start = AtStart {
        runtime,
        store: &store,
        answers: true,
        accept_foreign: false,
    };
    let keys = DataKeys::of_store(&options.state_directory, &options.encryption, &start)?;
    Ok((store, keys))
}

/// Those that the newest one keeps, oldest first.
fn kept_roots(
    runtime: &Runtime,
    store: &Arc<dyn ObjectStore>,
    ring: &KeyRing,
    newest: &Root,
) -> Result<Vec<Root>, RecoverError> {
    let mut roots = Vec::new();
    for sequence in &newest.kept {
        let kind = MetadataKind::KeptRoot(*sequence);
        let name = kind.name(&Salt::NONE.0);
        let bytes = runtime.block_on(store.get(&name, None))?;
        let (root, _) = decode_object(kind, &name, &bytes, ROOT_BYTES_MAX, ring, Root::decode)?;
        roots.push(root);
    }
    Ok(roots)
}

/// Makes the state directory that `options` name of what its store holds.
pub fn recover_from_store(
    options: Options,
    how: RecoverOptions,
    tell: &dyn Fn(RecoverProgress),
) -> Result<Recovered, RecoverError> {
    let state = options.state_directory.clone();
    let paths = Paths::new(&state);
    durable_file::make_directory_durably(&state).map_err(at(&state))?;
    let _lock = lock(&state)?;
    if !is_new(&paths) || paths.cache.exists() || has_files(&paths.journal).map_err(at(&paths.journal))? {
        return Err(RecoverError::NotEmpty(state));
    }
    let runtime = runtime()?;
    let (store, keys) = open_store(&runtime, &options)?;
    let recovery = Recovery {
        from_store: FromStore {
            runtime: &runtime,
            store,
            keys: &keys,
            work: work_directory(&state),
            paths: &paths,
            options: &options,
            tell,
        },
        state: &state,
    };
    recovery.run(&how)
}

struct Recovery<'r> {
    from_store: FromStore<'r>,
    state: &'r Path,
}

impl Recovery<'_> {
    /// The journal is fetched and folded into the tree before the store is taken over: what fails until then has harmed nobody.
    /// What the writer before has put meanwhile is brought in after it. Then there is a tree that has everything, and local
    /// metadata that says so.
    fn run(&self, how: &RecoverOptions) -> Result<Recovered, RecoverError> {
        let from_store = &self.from_store;
        let ring = from_store.keys.ring();
        let (found, newest) = from_store.find_root()?;
        let (mut kept, etag, before, folded) = match self.interrupted(&found, &newest)? {
            Some(kept) => (kept, found.etag, newest.writer.clone(), None),
            None => {
                let earlier = how.at.map(|at| self.earlier_root(at, &newest)).transpose()?;
                if !newest.is_released {
                    self.watch(&found, &newest, how.take_over)?;
                }
                let from = earlier.as_ref().unwrap_or(&newest);
                // One more than that of the root that takes over.
                let folded = from_store.fold(from, &ring, newest.sequence + 2)?;
                let (kept, etag, before) = self.take_over_from(&newest, earlier.as_ref())?;
                (kept, etag, before, folded.map(|folded| (newest, folded)))
            }
        };
        // Not before: a state directory that has keys, and no root, looks like one of a first start.
        from_store.keys.write()?;
        let Some(KnownRoot { root: taken, .. }) = kept.publisher.current().cloned() else {
            return Err(RecoverError::NoRoot);
        };
        let folded = match folded {
            Some((from, folded)) if is_followed_by(&from, &taken) => Some(folded),
            _ => from_store.fold(&taken, &ring, taken.sequence + 1)?,
        };
        if let Some((folded, nodes)) = folded {
            nodes.put().map_err(|error| RecoverError::Tree(error.to_string()))?;
            let root = kept.publisher.folded(&folded, random());
            self.put_root(&mut kept, root, etag)?;
        }
        let Some(KnownRoot { root, .. }) = kept.publisher.current() else {
            return Err(RecoverError::NoRoot);
        };
        let contents = self.make(root)?;
        let recovered = Recovered {
            writer: before,
            time_s: root.time.0.into(),
            volumes: contents.volumes.len() as u64,
            objects: contents.totals.objects,
            journal_objects: taken.journal().count() as u64,
            journal_bytes: taken.journal_bytes,
        };
        self.give_it_its_name()?;
        Ok(recovered)
    }

    fn writer(&self, identity: u64) -> RootWriter {
        RootWriter {
            identity,
            name: writer_name(self.state),
            lease_ms: self.from_store.options.writer.lease_ms,
            roots_kept: self.from_store.options.writer.roots_kept,
        }
    }

    /// The store's root is that of a recovery into this directory which was interrupted after it.
    fn interrupted(&self, found: &FoundRoot, root: &Root) -> Result<Option<KeptRoot>, RecoverError> {
        let mut kept = KeptRoot::read(self.state, self.writer(root.identity))?;
        let was_kept = kept.publisher.current().is_some();
        let is_own = root.lsn == 0 && root.writer == writer_name(self.state);
        if was_kept && is_own && kept.publisher.found(Some(found.salt)).is_ok() {
            kept.keep()?;
            return Ok(Some(kept));
        }
        Ok(None)
    }

    /// A writer that is alive may put its next root in the moment in which it is taken over from.
    fn take_over_from(&self, newest: &Root, earlier: Option<&Root>) -> Result<(KeptRoot, ETag, String), RecoverError> {
        let identity = fresh_identity();
        for _ in 1..TAKE_OVER_ATTEMPTS {
            match self.take_over(identity, earlier) {
                Err(RecoverError::Overtaken) => {}
                taken => return taken,
            }
            let (_, now) = self.from_store.find_root()?;
            if (now.identity, now.epoch) != (newest.identity, newest.epoch) {
                return Err(RecoverError::Overtaken);
            }
        }
        self.take_over(identity, earlier)
    }

    /// In place of whatever root is there now; and who had put that.
    fn take_over(&self, identity: u64, earlier: Option<&Root>) -> Result<(KeptRoot, ETag, String), RecoverError> {
        let (found, root) = self.from_store.find_root()?;
        let current = KnownRoot {
            root: root.clone(),
            salt: found.salt,
        };
        let mut kept = KeptRoot {
            path: KeptRoot::path(self.state),
            publisher: Publisher::new(self.writer(identity), Some(current), Vec::new()),
        };
        let own = self.own_root(&kept, earlier)?;
        let etag = self.put_root(&mut kept, own, found.etag)?;
        let replicas = &self.from_store.options.replicas;
        expect_root(self.state, replicas, found.salt).map_err(at(self.state))?;
        (self.from_store.tell)(RecoverProgress::TakenOver {
            writer: root.writer.clone(),
        });
        Ok((kept, etag, root.writer))
    }

    /// Once for each root: an interrupted recovery has found its writer gone, or was told not to ask.
    fn watch(&self, found: &FoundRoot, root: &Root, is_told: bool) -> Result<(), RecoverError> {
        let watched = self.from_store.work.join("watched");
        if fs::read(&watched).is_ok_and(|salt| salt == found.salt.0) {
            return Ok(());
        }
        let (writer, lease_ms) = (root.writer.clone(), root.lease_ms);
        if !is_told {
            (self.from_store.tell)(RecoverProgress::Watching { writer, lease_ms });
        }
        let lease = Duration::from_millis(lease_ms.into());
        match is_told
            || self
                .from_store
                .runtime
                .block_on(watch_root(&self.from_store.store, found, lease))?
        {
            true => durable_file::make_directory(&self.from_store.work)
                .and_then(|()| durable_file::replace(&watched, |mut file| file.write_all(&found.salt.0)))
                .map_err(at(&watched)),
            false => Err(RecoverError::WriterIsAlive(root.writer.clone())),
        }
    }

    fn earlier_root(&self, at: RecoverAt, newest: &Root) -> Result<Root, RecoverError> {
        let from = &self.from_store;
        let roots = kept_roots(from.runtime, &from.store, &from.keys.ring(), newest)?;
        let is_it = |root: &Root| match at {
            RecoverAt::Sequence(sequence) => root.sequence == sequence,
            RecoverAt::Time(time_s) => u64::from(root.time.0) <= time_s,
        };
        roots.into_iter().rfind(is_it).ok_or(RecoverError::NoEarlierRoot)
    }

    /// The root that takes the store over.
    fn own_root(&self, kept: &KeptRoot, earlier: Option<&Root>) -> Result<Root, RecoverError> {
        match earlier {
            // It was given up meanwhile, by the gateway that is taken over from.
            Some(earlier) if !kept.publisher.is_kept(earlier) => Err(RecoverError::NoEarlierRoot),
            Some(earlier) => {
                let usage = self.put_usage(kept, earlier)?;
                Ok(kept.publisher.taking_over_at(earlier, usage, random(), 0))
            }
            None => Ok(kept.publisher.taking_over(random(), 0)),
        }
    }

    /// In place of the one with this tag.
    fn put_root(&self, kept: &mut KeptRoot, root: Root, before: ETag) -> Result<ETag, RecoverError> {
        let object = encode_metadata(MetadataKind::Root, &root.encode(), &self.from_store.keys.ring());
        let salt = Salt(object.salt);
        kept.publisher.attempt(KnownRoot { root, salt });
        kept.keep()?;
        let mode = match self.from_store.options.writer.is_trusted {
            true => PutMode::Overwrite,
            false => PutMode::IfMatch(before),
        };
        let put = self.from_store.store.put(ROOT_NAME, object.bytes.into(), mode);
        let etag = match self.from_store.runtime.block_on(put) {
            Ok(etag) => etag,
            Err(error) if error.kind() == ErrorKind::Precondition => {
                // Nothing of this attempt is in the store, nor will it ever be.
                fs::remove_file(&kept.path).map_err(at(&kept.path))?;
                return Err(RecoverError::Overtaken);
            }
            Err(error) => return Err(error.into()),
        };
        let arrived = kept.publisher.found(Some(salt));
        assert_eq!(arrived, Ok(()), "what was put was an attempt");
        kept.keep()?;
        Ok(etag)
    }

    /// Which objects of nodes are needed when an earlier root comes back. If that cannot be found out, nothing that there is now
    /// is ever removed, but the data is there.
    fn put_usage(&self, kept: &KeptRoot, earlier: &Root) -> Result<Option<Pointer>, RecoverError> {
        let failed = |error: &dyn std::fmt::Display| RecoverError::Tree(error.to_string());
        let Some(KnownRoot { root: newest, .. }) = kept.publisher.current() else {
            return Ok(None);
        };
        let ring = self.from_store.keys.ring();
        let mut nodes = StoreNodes::new(self.from_store.runtime, &self.from_store.store, &ring);
        let (Some(newest_at), Some(earlier_at)) = (newest.usage, earlier.usage) else {
            return Ok(None);
        };
        let mut table = |at| UsageTable::read(&mut nodes, at);
        let (Ok(mut usage), Ok(before)) = (table(&newest_at), table(&earlier_at)) else {
            return Ok(None);
        };
        let next = newest.sequence + 1;
        usage.go_back(before, earlier_at.object, next);
        let tree = BucketTree::decode(&earlier.tree).map_err(|error| failed(&error))?;
        let pointer = write_usage(&mut nodes, &usage, next, tree.checkpoint).map_err(|error| failed(&error))?;
        nodes.put().map_err(|error| failed(&error))?;
        Ok(Some(pointer))
    }

    /// Local metadata, and an empty cache file that has no name yet either.
    fn make(&self, root: &Root) -> Result<TreeContents, RecoverError> {
        let paths = self.from_store.paths;
        let (superblock, contents) = self.from_store.make_backed(root)?;
        let header = CacheHeader {
            identity: superblock.journal_identity,
            slot_count: superblock.slot_count,
            mark: Mark::default(),
        };
        durable_file::make_directory(&paths.journal).map_err(at(&paths.journal))?;
        make_cache(paths, &header)?;
        Ok(contents)
    }

    /// From here on it is a state directory.
    fn give_it_its_name(&self) -> Result<(), RecoverError> {
        let (paths, work) = (self.from_store.paths, &self.from_store.work);
        publish_metadata(work, paths)?;
        let cache = &paths.cache;
        durable_file::publish(cache).map_err(at(cache))?;
        fs::remove_dir_all(work).map_err(at(work))
    }
}

/// Whether the root that took the store over names what this one did.
fn is_followed_by(from: &Root, taken: &Root) -> bool {
    let is_next = taken.sequence == from.sequence + 1 && taken.tree == from.tree && taken.usage == from.usage;
    is_next && taken.journal().eq(from.journal()) && taken.journal_salt == from.journal_salt
}
