//! A state directory from the bucket alone: fetches tree and journal, makes local metadata and the fingerprint index of them,
//! and takes the bucket over from the writer before when all that has succeeded. The cache begins empty.
//!
//! An interrupted recovery is gone on with: the bucket is taken over once, and journal objects that were fetched are not fetched
//! again.
//! The state directory cannot be served from before the last step, which gives local metadata its name.

use super::data_keys::{AtStart, DataKeys, DataKeysError};
use super::durable_file;
use super::first_start::{Paths, has_files, is_new, make_cache};
use super::fresh_identity;
use super::index_files::IndexFiles;
use super::metadata::Metadata;
use super::metadata_file::DATA_FILE;
use super::open::{OpenError, Options, check_store, lock};
use super::publishing::{FoundRoot, KeptRoot, RootError, find_root, random, read_root, watch_root, writer_name};
use super::tree_nodes::StoreNodes;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tombolo_base::{DecodeError, ObjectDescriptor};
use tombolo_cloud_driver::encryption::KeyRing;
use tombolo_cloud_driver::metadata_object::{
    JOURNAL_PREFIX, MetadataKind, MetadataObjectError, decode_metadata, encode_metadata, journal_sequence,
};
use tombolo_cloud_driver::{ErrorKind, ObjectStore, PutMode, Retrying, StoreError};
use tombolo_core::bucket_journal::{PART_BYTES_MAX, Part, Salt};
use tombolo_core::bucket_tree::{BucketTree, ReadTreeError, read_tree, write_usage};
use tombolo_core::cache_header::{CacheHeader, Mark};
use tombolo_core::local_metadata::{MetadataRead as _, Table};
use tombolo_core::publisher::{KnownRoot, Publisher, RootWriter};
use tombolo_core::recovery::{Rebuild, RebuildError};
use tombolo_core::root::{ROOT_BYTES_MAX, ROOT_NAME, Root};
use tombolo_core::{Frozen, Merge, Superblock};
use tombolo_dedup::{Index, Manifest, OlderRuns, OnBadRun};
use tombolo_metadata_tree::{Pointer, UsageTable};

/// Objects fetched at the same time.
const FETCHES: usize = 32;
/// What one LIST asks for.
const LIST_KEYS: usize = 1000;
/// Pages that one transaction changes.
const PAGES_MAX: usize = 4096;

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
fn work_directory(state: &Path) -> PathBuf {
    state.join("recovery")
}

/// What an interrupted recovery has left in a state directory that has no local metadata yet.
pub fn unfinished(paths: &Paths) -> Option<PathBuf> {
    let state = paths.metadata.parent()?;
    [work_directory(state), KeptRoot::path(state)]
        .into_iter()
        .find(|path| path.exists())
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> RecoverError {
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

fn runtime() -> Result<Runtime, RecoverError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(RecoverError::Runtime)
}

/// The store, and the keys that it holds.
fn open_store(runtime: &Runtime, options: &Options) -> Result<(Arc<dyn ObjectStore>, DataKeys), RecoverError> {
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

/// What an object of metadata holds, and its salt.
fn decode_object<T>(
    kind: MetadataKind,
    name: &str,
    bytes: &[u8],
    contents_bytes_max: usize,
    ring: &KeyRing,
    decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
) -> Result<(T, Salt), RecoverError> {
    let owned = || name.to_owned();
    let (salt, contents) = decode_metadata(kind, name, bytes, contents_bytes_max, ring)
        .map_err(|error| RecoverError::Journal { name: owned(), error })?;
    let decoded = decode(&contents).map_err(|error| RecoverError::JournalContents { name: owned(), error })?;
    Ok((decoded, Salt(salt)))
}

/// Makes the state directory that `options` name of what its store holds.
pub fn recover_from_store(
    options: Options,
    how: RecoverOptions,
    tell: &dyn Fn(RecoverProgress),
) -> Result<Recovered, RecoverError> {
    let state = options.state_directory.clone();
    let paths = Paths::new(&state);
    durable_file::make_directory(&state).map_err(at(&state))?;
    let _lock = lock(&state)?;
    if !is_new(&paths) || paths.cache.exists() || has_files(&paths.journal).map_err(at(&paths.journal))? {
        return Err(RecoverError::NotEmpty(state));
    }
    let runtime = runtime()?;
    let (store, keys) = open_store(&runtime, &options)?;
    let recovery = Recovery {
        runtime: &runtime,
        store,
        ring: keys.ring(),
        keys: &keys,
        work: work_directory(&state),
        state: &state,
        paths: &paths,
        options: &options,
        tell,
    };
    recovery.run(&how)
}

/// A state directory that has no name yet.
struct Made {
    superblock: Superblock,
    objects: u64,
    journal_objects: u64,
}

struct Recovery<'r> {
    runtime: &'r Runtime,
    store: Arc<dyn ObjectStore>,
    ring: Arc<KeyRing>,
    keys: &'r DataKeys,
    state: &'r Path,
    paths: &'r Paths,
    work: PathBuf,
    options: &'r Options,
    tell: &'r dyn Fn(RecoverProgress),
}

impl Recovery<'_> {
    /// Everything is fetched, verified and made before the store is taken over: what fails until then has harmed nobody. What the
    /// writer before has put meanwhile is brought in after it.
    fn run(&self, how: &RecoverOptions) -> Result<Recovered, RecoverError> {
        let (found, newest) = self.find_root()?;
        let (kept, before, made) = match self.interrupted(&found, &newest)? {
            Some(kept) => (kept, newest.writer.clone(), None),
            None => {
                let earlier = how.at.map(|at| self.earlier_root(at, &newest)).transpose()?;
                if !newest.is_released {
                    self.watch(&found, &newest, how.take_over)?;
                }
                let identity = fresh_identity();
                let from = earlier.clone().map_or_else(
                    || newest.clone(),
                    |earlier| Root {
                        next_pvbn: newest.next_pvbn,
                        next_volume: newest.next_volume,
                        ..earlier
                    },
                );
                let epoch = newest.epoch + 1;
                let made = self.make(&from, identity, epoch)?;
                let (kept, before) = self.take_over(identity, earlier.as_ref())?;
                (kept, before, Some((from, epoch, made)))
            }
        };
        let Some(KnownRoot { root, .. }) = kept.publisher.current() else {
            return Err(RecoverError::NoRoot);
        };
        // Not before: a state directory that has keys, and no root, looks like one of a first start.
        self.keys.write()?;
        let has_journal = root.journal().next().is_some();
        let is_same = |from: &Root| {
            let is_same_journal = !has_journal || from.journal_salt == root.journal_salt;
            from.tree == root.tree && from.journal().eq(root.journal()) && is_same_journal
        };
        let made = match made {
            Some((from, epoch, made)) if epoch == root.epoch && is_same(&from) => made,
            _ => self.make(root, root.identity, root.epoch)?,
        };
        let recovered = Recovered {
            writer: before,
            time_s: root.time.0.into(),
            volumes: made.superblock.volumes.len() as u64,
            objects: made.objects,
            journal_objects: made.journal_objects,
            journal_bytes: root.journal_bytes,
        };
        self.give_it_its_name()?;
        Ok(recovered)
    }

    /// Local metadata, index and cache file, under other names.
    fn make(&self, root: &Root, identity: u64, epoch: u64) -> Result<Made, RecoverError> {
        durable_file::make_directory(&self.work).map_err(at(&self.work))?;
        let names = self.fetch_journal(root)?;
        let superblock = self.rebuild(root, identity, epoch, &names)?;
        let objects = self.make_index_and_cache(&superblock)?;
        Ok(Made {
            superblock,
            objects,
            journal_objects: names.len() as u64,
        })
    }

    fn find_root(&self) -> Result<(FoundRoot, Root), RecoverError> {
        let found = self.runtime.block_on(find_root(&self.store))?;
        let found = found.ok_or(RecoverError::NoRoot)?;
        let has_keys = self.keys.info().master_key.is_some();
        match (found.is_encrypted()?, has_keys) {
            (true, false) => return Err(RecoverError::NoKeys),
            (false, true) if self.keys.info().is_on => return Err(RecoverError::ClearRoot),
            _ => {}
        }
        let root = read_root(&found, &self.ring)?;
        Ok((found, root))
    }

    fn writer(&self, identity: u64) -> RootWriter {
        RootWriter {
            identity,
            name: writer_name(self.state),
            lease_ms: self.options.writer.lease_ms,
            roots_kept: self.options.writer.roots_kept,
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

    /// In place of whatever root is there now; and who had put that.
    fn take_over(&self, identity: u64, earlier: Option<&Root>) -> Result<(KeptRoot, String), RecoverError> {
        let (found, root) = self.find_root()?;
        let current = KnownRoot {
            root: root.clone(),
            salt: found.salt,
        };
        let mut kept = KeptRoot {
            path: KeptRoot::path(self.state),
            publisher: Publisher::new(self.writer(identity), Some(current), Vec::new()),
        };
        self.put_own_root(&mut kept, &found, earlier)?;
        (self.tell)(RecoverProgress::TakenOver {
            writer: root.writer.clone(),
        });
        Ok((kept, root.writer))
    }

    /// Once for each root: an interrupted recovery has found its writer gone, or was told not to ask.
    fn watch(&self, found: &FoundRoot, root: &Root, is_told: bool) -> Result<(), RecoverError> {
        let watched = self.work.join("watched");
        if fs::read(&watched).is_ok_and(|salt| salt == found.salt.0) {
            return Ok(());
        }
        let (writer, lease_ms) = (root.writer.clone(), root.lease_ms);
        if !is_told {
            (self.tell)(RecoverProgress::Watching { writer, lease_ms });
        }
        let lease = Duration::from_millis(lease_ms.into());
        match is_told || self.runtime.block_on(watch_root(&self.store, found, lease))? {
            true => durable_file::make_directory(&self.work)
                .and_then(|()| durable_file::replace(&watched, |mut file| file.write_all(&found.salt.0)))
                .map_err(at(&watched)),
            false => Err(RecoverError::WriterIsAlive(root.writer.clone())),
        }
    }

    fn earlier_root(&self, at: RecoverAt, newest: &Root) -> Result<Root, RecoverError> {
        let roots = kept_roots(self.runtime, &self.store, &self.ring, newest)?;
        let is_it = |root: &Root| match at {
            RecoverAt::Sequence(sequence) => root.sequence == sequence,
            RecoverAt::Time(time_s) => u64::from(root.time.0) <= time_s,
        };
        roots.into_iter().rfind(is_it).ok_or(RecoverError::NoEarlierRoot)
    }

    fn put_own_root(&self, kept: &mut KeptRoot, found: &FoundRoot, earlier: Option<&Root>) -> Result<(), RecoverError> {
        let root = match earlier {
            // It was given up meanwhile, by the gateway that is taken over from.
            Some(earlier) if !kept.publisher.is_kept(earlier) => return Err(RecoverError::NoEarlierRoot),
            Some(earlier) => {
                let usage = self.put_usage(kept, earlier)?;
                kept.publisher.taking_over_at(earlier, usage, random(), 0)
            }
            None => kept.publisher.taking_over(random(), 0),
        };
        let object = encode_metadata(MetadataKind::Root, &root.encode(), &self.ring);
        let salt = Salt(object.salt);
        kept.publisher.attempt(KnownRoot { root, salt });
        kept.keep()?;
        let mode = match self.options.writer.is_trusted {
            true => PutMode::Overwrite,
            false => PutMode::IfMatch(found.etag.clone()),
        };
        match self
            .runtime
            .block_on(self.store.put(ROOT_NAME, object.bytes.into(), mode))
        {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Precondition => {
                // Nothing of this attempt is in the store, nor will it ever be.
                fs::remove_file(&kept.path).map_err(at(&kept.path))?;
                return Err(RecoverError::Overtaken);
            }
            Err(error) => return Err(error.into()),
        }
        let arrived = kept.publisher.found(Some(salt));
        assert_eq!(arrived, Ok(()), "what was put was an attempt");
        Ok(kept.keep()?)
    }

    /// Which objects of nodes are needed when an earlier root comes back. If that cannot be found out, nothing that there is now
    /// is ever removed, but the data is there.
    fn put_usage(&self, kept: &KeptRoot, earlier: &Root) -> Result<Option<Pointer>, RecoverError> {
        let failed = |error: &dyn std::fmt::Display| RecoverError::Tree(error.to_string());
        let Some(KnownRoot { root: newest, .. }) = kept.publisher.current() else {
            return Ok(None);
        };
        let mut nodes = StoreNodes::of_few(self.runtime, &self.store, &self.ring);
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

    fn journal_directory(&self) -> PathBuf {
        self.work.join("journal")
    }

    /// Brings the journal here, object by object, and finds out which of those with the same number are the root's. In their
    /// order.
    fn fetch_journal(&self, root: &Root) -> Result<Vec<String>, RecoverError> {
        let directory = self.journal_directory();
        durable_file::make_directory(&directory).map_err(at(&directory))?;
        if root.journal().next().is_none() {
            return Ok(Vec::new());
        }
        let candidates = self.list_journal(root)?;
        let of = candidates.values().map(|names| names.len() as u64).sum();
        let mut fetched = 0;
        let names: Vec<&String> = candidates.values().flatten().collect();
        for some in names.chunks(FETCHES) {
            self.fetch_objects(some)?;
            fetched += some.len() as u64;
            (self.tell)(RecoverProgress::Fetched { objects: fetched, of });
        }
        // The root names the last, and each the one before it.
        let mut chain = Vec::new();
        let mut salt = root.journal_salt;
        for sequence in root.journal().rev() {
            let name = MetadataKind::Journal(sequence).name(&salt.0);
            let is_there = candidates.get(&sequence).is_some_and(|names| names.contains(&name));
            if !is_there {
                return Err(RecoverError::JournalMissing(sequence));
            }
            let read = self.read_part(&name);
            if read.is_err() {
                // All are fetched again when it has been mended in the store.
                let path = self.journal_directory();
                fs::remove_dir_all(&path).map_err(at(&path))?;
            }
            let (part, found) = read?;
            if found != salt {
                return Err(RebuildError::Chain { sequence }.into());
            }
            salt = part.header.before;
            chain.push(name);
        }
        chain.reverse();
        Ok(chain)
    }

    fn list_journal(&self, root: &Root) -> Result<BTreeMap<u64, Vec<String>>, RecoverError> {
        let mut candidates: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        // Just before the first: no key ends so.
        let mut after = format!("{JOURNAL_PREFIX}{:016x}", root.journal_first);
        loop {
            let listed = self
                .runtime
                .block_on(self.store.list(JOURNAL_PREFIX, Some(&after), LIST_KEYS))?;
            for object in &listed {
                if let Some(sequence) = journal_sequence(&object.key).filter(|found| *found <= root.journal_last) {
                    candidates.entry(sequence).or_default().push(object.key.clone());
                }
            }
            match listed.last() {
                Some(last) if listed.len() == LIST_KEYS => after.clone_from(&last.key),
                _ => return Ok(candidates),
            }
        }
    }

    fn local_copy(&self, name: &str) -> PathBuf {
        self.journal_directory().join(name.trim_start_matches(JOURNAL_PREFIX))
    }

    fn fetch_objects(&self, names: &[&String]) -> Result<(), RecoverError> {
        let gets: Vec<_> = names
            .iter()
            .filter(|name| !self.local_copy(name).exists())
            .map(|name| {
                let (store, key) = (self.store.clone(), String::clone(name));
                self.runtime.spawn(async move {
                    let got = store.get(&key, None).await;
                    (key, got)
                })
            })
            .collect();
        for get in gets {
            let (key, got) = self
                .runtime
                .block_on(get)
                .map_err(|error| RecoverError::Runtime(error.into()))?;
            let (bytes, path) = (got?, self.local_copy(&key));
            durable_file::replace(&path, |mut file| file.write_all(&bytes)).map_err(at(&path))?;
        }
        Ok(())
    }

    fn read_part(&self, name: &str) -> Result<(Part, Salt), RecoverError> {
        let path = self.local_copy(name);
        let bytes = fs::read(&path).map_err(at(&path))?;
        let kind = MetadataKind::Journal(journal_sequence(name).unwrap_or_default());
        decode_object(kind, name, &bytes, PART_BYTES_MAX, &self.ring, Part::decode)
    }

    /// Local metadata, under another name. It is made anew each time: that takes no requests.
    fn rebuild(&self, root: &Root, identity: u64, epoch: u64, names: &[String]) -> Result<Superblock, RecoverError> {
        let directory = self.work.join("metadata");
        if directory.exists() {
            fs::remove_dir_all(&directory).map_err(at(&directory))?;
        }
        let slot_count = self.options.core.slot_count;
        let first = Superblock::first(identity, slot_count);
        let failed = |error: &dyn std::fmt::Display| RecoverError::Metadata(error.to_string());
        let map_bytes = self.options.metadata_map_bytes;
        Metadata::make(&directory, map_bytes, &first).map_err(|error| failed(&error))?;
        let metadata = Metadata::open(&directory, map_bytes, 0).map_err(|error| failed(&error))?;
        let mut rebuild = Rebuild::new(root.clone(), identity, slot_count);
        let tree = BucketTree::decode(&root.tree).map_err(|error| RecoverError::Tree(error.to_string()))?;
        let mut nodes = StoreNodes::of_all(self.runtime, &self.store, &self.ring);
        let mut pieces = 0;
        let contents = read_tree(&mut nodes, &tree, &mut |frozen| {
            pieces += 1;
            (self.tell)(RecoverProgress::ReadTree { pieces });
            merge(
                &metadata,
                Frozen {
                    superblock: first.clone(),
                    ..frozen
                },
            )
        });
        let contents = contents.map_err(|error| match error {
            ReadTreeError::Tree(error) => RecoverError::Tree(error.to_string()),
            ReadTreeError::Sink(error) => error,
        })?;
        merge(&metadata, rebuild.lay_tree(contents))?;
        for (done, name) in (1..).zip(names) {
            let (part, salt) = self.read_part(name)?;
            merge(&metadata, rebuild.lay(part, salt)?)?;
            let of = names.len() as u64;
            (self.tell)(RecoverProgress::Rebuilt { objects: done, of });
        }
        let key = tombolo_files::next_numbers_key();
        let numbers = metadata.entry(&key).map_err(|error| failed(&error))?;
        let numbers = numbers.map(|entry| tombolo_files::skip_numbers(&entry));
        let numbers = numbers.transpose().map_err(RecoverError::Numbers)?;
        let entry = numbers.as_ref().map(|value| (&key[..], &value[..]));
        let last = rebuild.finish(epoch, entry)?;
        let superblock = last.superblock.clone();
        merge(&metadata, last)?;
        metadata.close();
        Ok(superblock)
    }

    /// So that what is written again is found. Returns how many objects there are.
    fn make_index_and_cache(&self, superblock: &Superblock) -> Result<u64, RecoverError> {
        let failed = |error: &dyn std::fmt::Display| RecoverError::Index(error.to_string());
        let metadata = Metadata::open(&self.work.join("metadata"), self.options.metadata_map_bytes, 0)
            .map_err(|error| RecoverError::Metadata(error.to_string()))?;
        if self.paths.index.exists() {
            fs::remove_dir_all(&self.paths.index).map_err(at(&self.paths.index))?;
        }
        let files = IndexFiles::open(self.paths.index.clone()).map_err(at(&self.paths.index))?;
        let policy = OnBadRun::Drop(OlderRuns::Keep);
        let (mut index, _) = Index::open(&files, &Manifest::default(), self.options.index.clone(), policy)
            .map_err(|error| failed(&error))?;
        let mut count = 0;
        {
            let reading = metadata.read().map_err(|error| failed(&error))?;
            let mut key = vec![0; 8];
            while let Some((found, bytes)) = reading.ceiling(Table::Objects, &key).map_err(|error| failed(&error))? {
                let descriptor = ObjectDescriptor::decode(&bytes).map_err(|error| failed(&error))?;
                for block in descriptor.blocks() {
                    if index.insert(block.fingerprint, block.pvbn).is_err() {
                        index.flush_memtable(&files).map_err(|error| failed(&error))?;
                        index
                            .insert(block.fingerprint, block.pvbn)
                            .map_err(|error| failed(&error))?;
                    }
                }
                count += 1;
                if count % 1024 == 0 {
                    (self.tell)(RecoverProgress::Indexed { objects: count });
                }
                key = found;
                key.push(0);
            }
        }
        index.flush_memtable(&files).map_err(|error| failed(&error))?;
        let mut writing = metadata.write().map_err(|error| failed(&error))?;
        let manifest = index.manifest().encode();
        writing.put_manifest(&manifest).map_err(|error| failed(&error))?;
        writing.commit().map_err(|error| failed(&error))?;
        drop(index);
        metadata.close();
        let header = CacheHeader {
            identity: superblock.journal_identity,
            slot_count: superblock.slot_count,
            mark: Mark::default(),
        };
        durable_file::make_directory(&self.paths.journal).map_err(at(&self.paths.journal))?;
        make_cache(self.paths, &header)?;
        Ok(count)
    }

    /// From here on it is a state directory.
    fn give_it_its_name(&self) -> Result<(), RecoverError> {
        let (new, metadata) = (self.work.join("metadata"), &self.paths.metadata);
        let data = metadata.join(DATA_FILE);
        fs::File::open(new.join(DATA_FILE))
            .and_then(|file| file.sync_all())
            .and_then(|()| durable_file::make_directory(metadata))
            .and_then(|()| durable_file::sync_directory(self.state))
            .and_then(|()| durable_file::rename(&new.join(DATA_FILE), &data))
            .map_err(at(&data))?;
        durable_file::publish(&self.paths.cache).map_err(at(&self.paths.cache))?;
        fs::remove_dir_all(&self.work).map_err(at(&self.work))
    }
}

fn merge(metadata: &Metadata, frozen: Frozen) -> Result<(), RecoverError> {
    let failed = |error: &dyn std::fmt::Display| RecoverError::Metadata(error.to_string());
    let mut merge = Merge::new(Arc::new(frozen), PAGES_MAX);
    loop {
        let mut writing = metadata.write().map_err(|error| failed(&error))?;
        let is_last = merge.step(&mut writing).map_err(|error| failed(&error))?;
        writing.commit().map_err(|error| failed(&error))?;
        if is_last {
            return Ok(());
        }
    }
}
