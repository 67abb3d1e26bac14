//! Opens a state directory: lock, cache file, journal, metadata, index; recovers the core; starts the threads.

use super::Gateway;
use super::cache_file::{self, CacheFile};
use super::clock::{self, Clock};
use super::cloud::Cloud;
use super::data_keys::{AtStart, DataKeys, DataKeysError, EncryptionOptions};
use super::durable_file;
use super::first_start::{self, Paths, make_cache, make_if_new};
use super::generation::{Directories, Found, Generation};
use super::index_files::IndexFiles;
use super::journal_files::JournalFiles;
use super::loading::Loading;
use super::local_loss::{self, LocalLossError};
use super::loss_report::LossReport;
use super::metadata::{Metadata, MetadataOpenError, Reading};
use super::own_store::{ForeignStore, OwnStore, samples};
use super::policies::{self, HistoryFile};
use super::publishing::{
    KeptRoot, Publishing, RootError, RootInStore, WriterOptions, ask_for_root, check_conditions, is_older, read_root,
    watch_root, writer_name,
};
use super::replicas::{ReplicaSettings, check_replicas};
use super::requests::Requests;
use super::trace_recorder::Recorder;
use super::tree_nodes::CachedNodes;
use super::upload_buffers::UploadBuffers;
use super::workers::Workers;
use crate::metrics::requests::Meters;
use crate::settings::PolicySettings;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tombolo_base::{BlockSum, KeyId, Lcbn, ObjectDescriptor};
use tombolo_cloud_driver::BufferPool;
use tombolo_cloud_driver::encryption::KeyRing;
use tombolo_cloud_driver::object::Compression;
use tombolo_cloud_driver::retry::RetryPolicy;
use tombolo_cloud_driver::{Cause, Counting, ErrorKind, ObjectStore, Pace, Retrying, StoreCounts, StoreError};
use tombolo_core::cache_header::{CacheHeader, JournalMark, Mark, decode_marks};
use tombolo_core::local_metadata::MetadataFault;
use tombolo_core::publisher::{NotTheWriter, Publisher, RootWriter};
use tombolo_core::recovery::{LocalDisk, Parts, RecoveryError, Report, load_superblock, recover};
use tombolo_core::{Config, Core, Event, MetadataError, Policies, StopReason};
use tombolo_dedup::{Index, IndexError, Manifest, OlderRuns, OnBadRun, RunStorage};

/// What a gateway is made of.
#[derive(Clone)]
pub struct Options {
    /// Made if it is not there; held by a lock as long as the gateway lives.
    pub state_directory: PathBuf,
    /// Where what a kill leaves and a boot does not is kept.
    pub runtime_directory: PathBuf,
    /// Sizes, bounds and times of the data path.
    pub core: Config,
    pub policies: PolicySettings,
    /// Of the fingerprint index.
    pub index: tombolo_dedup::Config,
    /// The most that LMDB's file may grow to; address space, not memory.
    pub metadata_map_bytes: u64,
    /// Without retries and limits, which come from the two below.
    pub store: Arc<dyn ObjectStore>,
    /// Of the connections to it, those that are kept open while hosts are at work.
    pub warm_connections: usize,
    /// Other stores that hold the same.
    pub replicas: ReplicaSettings,
    /// Also one that has none of the objects that it should have.
    pub accept_foreign_store: bool,
    /// Also on what is left of a state directory of which a part is lost.
    pub accept_loss: bool,
    pub retry: RetryPolicy,
    pub pace: Arc<Pace>,
    /// Of blocks that are uploaded; others are read as they were stored.
    pub compression: Compression,
    /// Of objects that are uploaded.
    pub encryption: EncryptionOptions,
    /// Of the bucket's metadata.
    pub writer: WriterOptions,
    /// Accept no changes, put nothing into the store, and do not mind whose it is now.
    pub read_only: bool,
    /// For slots that have to be read from the disk, and for what arrives from the store.
    pub io_threads: usize,
    /// For hashing and compression, at low priority.
    pub hash_threads: usize,
    pub upload_buffer_bytes_max: usize,
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The local disk refused `action`.
    #[error("{path}: {action}: {error}")]
    Disk {
        path: PathBuf,
        action: &'static str,
        error: io::Error,
    },
    #[error("{0} holds no state of a gateway")]
    NoState(PathBuf),
    /// `holder` is what the lock file says, as text.
    #[error("{path} is in use by another gateway (process {holder}); one state directory serves one gateway")]
    InUse { path: PathBuf, holder: String },
    /// LMDB refused its file, or found in it what it did not write.
    #[error("{path}: {error}")]
    Metadata { path: PathBuf, error: heed::Error },
    #[error("local metadata: {0}")]
    MetadataOpen(#[from] MetadataOpenError),
    #[error(
        "{0} is missing, but the journal or the cache file is there; it says where all data lies: restore the state \
         directory from a copy, or move it away and run `tombolo recover`, which brings back what the store has"
    )]
    MetadataLost(PathBuf),
    #[error(
        "{0} is missing, and with it what was flushed lately; put it back, or restore the state directory from a copy"
    )]
    JournalLost(PathBuf),
    #[error(
        "{0} is there: the recovery of this state directory was interrupted; run `tombolo recover` again, which goes on"
    )]
    RecoveryUnfinished(PathBuf),
    #[error("{path} was cut: it has {found} of {made} bytes; put it back as it was")]
    CacheCut { path: PathBuf, found: u64, made: u64 },
    /// No part of the state that anything is lost with: another copy of it is in the cache file.
    #[error(
        "{path} has to be a file that the gateway can write ({error}), to note how far the journal was flushed; if \
         something else has that name, move it away: the gateway makes the file anew"
    )]
    Flushed { path: PathBuf, error: io::Error },
    #[error("fingerprint index in {path}: {error}")]
    Index {
        path: PathBuf,
        error: IndexError<io::Error>,
    },
    /// Nothing was changed yet, so what was lost can be put back and the start tried again.
    #[error("recovery of {path}: {error}")]
    Recovery {
        path: PathBuf,
        error: RecoveryError<MetadataError>,
    },
    /// One that cannot be reached; why, with its url.
    #[error(
        "local metadata is not complete since `tombolo recover`, and the store, which has the rest, does not answer: \
         {0}; nothing is wrong with the local disk: start again when the store can be reached"
    )]
    StoreNeeded(String),
    /// It refused for good. Without one that cannot be reached the gateway starts, if local metadata is complete.
    #[error("store: {0}")]
    Store(StoreError),
    #[error("replica {name}: {error}")]
    Replica { name: String, error: RootError },
    #[error(transparent)]
    ForeignStore(#[from] ForeignStore),
    #[error(transparent)]
    DataKeys(#[from] DataKeysError),
    #[error(transparent)]
    Root(#[from] RootError),
    /// Nothing was changed yet.
    #[error("{refused}\nwith --accept-loss the gateway starts on what is left:\n{report}")]
    Lost {
        refused: Box<OpenError>,
        report: Box<LossReport>,
    },
    #[error("{refused}\nwith --accept-loss it cannot start either: {error}")]
    NotLeft {
        refused: Box<OpenError>,
        error: Box<LocalLossError>,
    },
}

/// Some are found out only when others are whole again.
const LOST_PARTS_MAX: usize = 4;

/// Reads of what local metadata lacks, at the same time.
const LACKING_THREADS: usize = 8;

impl Gateway {
    pub fn open(options: Options) -> Result<Arc<Self>, OpenError> {
        let state = &options.state_directory;
        durable_file::make_directory_durably(state)
            .map_err(first_start::disk(state, "cannot make the state directory"))?;
        let lock = lock(state)?;
        let counting = Counting::with_default(options.store.clone(), Cause::Recovery);
        let counts = counting.counts();
        let options = Options {
            store: Arc::new(counting),
            ..options.clone()
        };
        let mut opened = Self::open_whole(options.clone(), &counts, &lock);
        for _ in 0..LOST_PARTS_MAX {
            let refused = match opened {
                Err(refused) if local_loss::is_one(&refused) => refused,
                opened => return opened,
            };
            let found = match options.accept_loss {
                true => local_loss::accept(&options, &refused),
                false => local_loss::examine(&options, &refused),
            };
            let refused = Box::new(refused);
            match found {
                Ok(_) if options.accept_loss => opened = Self::open_whole(options.clone(), &counts, &lock),
                Ok(report) => {
                    let report = Box::new(report);
                    return Err(OpenError::Lost { refused, report });
                }
                Err(error) => {
                    let error = Box::new(error);
                    return Err(OpenError::NotLeft { refused, error });
                }
            }
        }
        opened
    }

    /// On a state directory of which no part is lost.
    fn open_whole(options: Options, counts: &StoreCounts, lock: &File) -> Result<Arc<Self>, OpenError> {
        let state = options.state_directory.clone();
        let disk = |action: &'static str, path: &Path| {
            let path = path.to_owned();
            move |error| OpenError::Disk { path, action, error }
        };
        // As long as one of the two is open.
        let lock = lock.try_clone().map_err(disk("cannot keep the lock", &state))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("cloud")
            .enable_all()
            .build()
            .map_err(disk("cannot start threads", &state))?;
        let paths = Paths::new(&state);
        if options.read_only && first_start::is_new(&paths) {
            return Err(OpenError::NoState(state));
        }
        let silence = check_store(&runtime, &options.store)?;
        let store_answers = silence.is_none();
        let at_start = AtStart {
            runtime: &runtime,
            store: &options.store,
            // Who only reads brings neither side's keys to the other.
            answers: store_answers && !options.read_only,
            accept_foreign: options.accept_foreign_store,
        };
        let root_in_store = match store_answers {
            true => ask_for_root(&runtime, &options.store)?,
            false => RootInStore::Unknown,
        };
        if let (true, RootInStore::Found(_)) = (first_start::is_new(&paths), &root_in_store) {
            first_start::check_unfinished(&paths)?;
            return Err(DataKeysError::Occupied { state }.into());
        }
        let first_keys = match first_start::is_new(&paths) {
            true => Some(DataKeys::first(&state, &options.encryption, &at_start)?),
            // Of a state that is there it has to be known first that it can be read.
            false => None,
        };
        make_if_new(&paths, options.core.slot_count, options.metadata_map_bytes)?;
        let opened = CacheFile::open(&paths.cache).map_err(disk("cannot open the cache file", &paths.cache))?;
        if let Some((found, made)) = opened.as_ref().and_then(CacheFile::cut) {
            let path = paths.cache.clone();
            return Err(OpenError::CacheCut { path, found, made });
        }
        let marks_beside = cache_file::marks_beside(&paths.flushed);
        let journal_path = paths.journal.clone();
        let journal = JournalFiles::open(journal_path.clone(), options.core.segment_bytes)
            .map_err(disk("cannot open the journal", &journal_path))?;
        let metadata_path = paths.metadata.clone();
        let noted = opened.as_ref().and_then(CacheFile::noted_metadata_bytes);
        let metadata = Metadata::open(&metadata_path, options.metadata_map_bytes, noted)?;
        let metadata_fault = |error| OpenError::Metadata {
            path: metadata_path.clone(),
            error,
        };
        if let Some(error) = &silence {
            metadata.attach(CachedNodes::unreachable(&error.to_string()));
        } else if metadata.behind().is_some() {
            // Recovery reads it where the store has to be told everything anew.
            let keys = DataKeys::of_store(&state, &options.encryption, &at_start)?;
            let store: Arc<dyn ObjectStore> = Arc::new(Retrying::new(options.store.clone(), options.retry));
            metadata.attach(CachedNodes::new(runtime.handle().clone(), store, keys.ring()));
        }
        let index_path = paths.index.clone();
        let index_files = IndexFiles::open(index_path.clone()).map_err(disk("cannot open the index", &index_path))?;
        let manifest = metadata.manifest().map_err(metadata_fault)?;
        let mut index =
            open_index(&index_files, manifest, options.index.clone()).map_err(|error| OpenError::Index {
                path: index_path.clone(),
                error,
            })?;

        let clock = Arc::new(Clock::default());
        let history_file = HistoryFile::new(&state);
        let chosen = options.policies.clone();
        let policies = Policies {
            replacement: policies::replacement(chosen.replacement, options.core.slot_count),
            prefetcher: policies::prefetcher(&chosen.prefetch, history_file.path(), clock.now()),
            addressing: chosen.addressing,
            economy: chosen.economy,
        };
        let own_root = {
            let reading = metadata.read().map_err(metadata_fault)?;
            OwnRoot::find(&state, &options.writer, &reading, &root_in_store)?
        };
        let parts = Parts {
            config: options.core.clone(),
            wall_micros: clock::wall_micros(),
            policies,
            published: own_root.kept.publisher.published(),
        };
        let began = std::time::Instant::now();
        let (mut core, report, samples) = {
            let reading = metadata.read().map_err(metadata_fault)?;
            let (core, report) = recover(
                clock.now(),
                parts,
                &reading,
                &Disk {
                    cache: opened.as_ref(),
                    journal: Some(&journal),
                    marks_beside: &marks_beside,
                },
            )
            .map_err(|error| match error {
                RecoveryError::Metadata(MetadataFault::Store(MetadataError::Unanswered(reason))) => {
                    OpenError::StoreNeeded(reason)
                }
                error => OpenError::Recovery {
                    path: state.clone(),
                    error,
                },
            })?;
            let samples = samples(&reading, &report.objects);
            (core, report, samples)
        };
        core.learn_replay_cost(report.records, began.elapsed().as_micros() as u64);
        let wanted = match options.accept_foreign_store || options.read_only {
            true => &[][..],
            false => &samples,
        };
        let store = Arc::new(OwnStore::new(options.store.clone(), wanted));
        if store_answers {
            store.check_at_start(&runtime)?;
        }
        // Only now: a store that is not this gateway's gets no keys.
        let data_keys = match first_keys {
            Some(keys) => keys,
            None => {
                let used = samples.iter().map(ObjectDescriptor::key_id);
                let used = used.filter(|key| *key != KeyId::NONE).collect();
                DataKeys::open(&state, &options.encryption, &at_start, &used)?
            }
        };
        if !options.read_only {
            own_root.check(&runtime, &options.store, &root_in_store, &data_keys.ring())?;
        }
        if store_answers && !options.writer.is_trusted && !options.read_only {
            match runtime.block_on(check_conditions(&options.store)) {
                Err(RootError::Store(error)) => {
                    tracing::warn!(%error, "the store does not say whether it heeds conditions; the next start asks again");
                }
                checked => checked?,
            }
        }
        if !options.writer.is_trusted && !options.read_only {
            check_replicas(&runtime, &options.replicas)?;
        }
        let found = Found {
            identity: core.identity(),
            journal_end: core.journal_mark().lsn,
        };
        let directories = Directories {
            state: &state,
            runtime: &options.runtime_directory,
        };
        let generation = Generation::open(directories, found).map_err(disk(
            "cannot note what clients were answered",
            &options.runtime_directory,
        ))?;
        // From here on the state is ours to change.
        let mut cache = match opened {
            Some(cache) => cache,
            None => make_lost_cache(&paths, &core)?,
        };
        cache.keep_below(core.slots_used_to());
        cache.note_beside(&paths.flushed).map_err(|error| OpenError::Flushed {
            path: paths.flushed.clone(),
            error,
        })?;
        tidy_journal(&journal, &report).map_err(disk("cannot tidy up the journal", &journal_path))?;
        index_recovered(&index_files, &mut index, &report)
            .map_err(disk("cannot write the fingerprint index", &paths.index))?;
        // What was replayed counts as durable from here on, and so do the names of all that a first start has made.
        for folder in [&metadata_path, &state] {
            durable_file::sync_directory(folder).map_err(disk("sync", folder))?;
        }
        cache.note_pvbn(core.next_pvbn());
        cache.sync().map_err(disk("sync", &paths.cache))?;
        journal.sync_existing().map_err(disk("sync", &journal_path))?;
        cache.note_journal(core.journal_mark());
        cache.note_metadata(metadata.file_bytes());

        let cloud = Cloud::new(store, counts.clone(), &options, runtime)
            .map_err(disk("cannot note what a replica lacks", &state))?;
        let threads =
            |name, count, niceness| Workers::new(name, count, niceness).map_err(disk("cannot start threads", &state));
        let first_segment = core.journal_mark().segment;
        let lacking_threads = metadata.behind().map_or(0, |_| LACKING_THREADS);
        let gateway = Arc::new(Self {
            core: Mutex::new(core),
            clock,
            requests: Requests::default(),
            meters: Meters::default(),
            clients: Mutex::default(),
            connections_begun: AtomicU32::new(0),
            recorder: Recorder::default(),
            generation,
            history_file: Mutex::new(history_file),
            cache,
            journal,
            metadata,
            index: Mutex::new(index),
            index_files,
            index_is_full: AtomicBool::new(false),
            index_entries_dropped: AtomicU64::new(0),
            index_checkpoint: Mutex::default(),
            is_settled: Mutex::default(),
            data_keys,
            publishing: Publishing::new(own_root.kept, options.writer.clone()),
            loading: Loading::default(),
            cloud,
            io: threads("io", options.io_threads, 0)?,
            lacking: threads("lacking", lacking_threads, 0)?,
            hashing: threads("hash", options.hash_threads, 10)?,
            upload_buffers: UploadBuffers::new(options.upload_buffer_bytes_max),
            buffers: BufferPool::new(options.upload_buffer_bytes_max),
            syncing: threads("sync", 1, 0)?,
            cache_syncing: threads("sync-cache", 1, 0)?,
            journaling: threads("journal", 1, 0)?,
            checkpointing: threads("checkpoint", 1, 5)?,
            compacting: threads("compact", 1, 15)?,
            publisher: threads("publish", 1, 5)?,
            timer: Mutex::new(None),
            _lock: lock,
        });
        gateway.start_timer().map_err(disk("cannot start threads", &state))?;
        gateway.make_first_spare_segment(first_segment);
        let loading = gateway.start_loading(options.read_only);
        loading.map_err(disk("cannot start threads", &state))?;
        match options.read_only {
            true => gateway.submit(Event::Stop {
                reason: StopReason::ReadOnly,
            }),
            false => {
                gateway.start_renewing();
                gateway.cloud.start_replicating();
                gateway.start_keeping_warm();
            }
        }
        gateway.tell_lanes();
        // The recovered state gets a first checkpoint soon and the flush pipeline a first look.
        gateway.submit(Event::Tick);
        Ok(gateway)
    }
}

/// The local copy of the root, and what the store's root means for it.
struct OwnRoot {
    kept: KeptRoot,
    name: String,
    /// The store's root is none of this state directory's.
    is_other: bool,
}

impl OwnRoot {
    fn find(
        state: &Path,
        options: &WriterOptions,
        reading: &Reading<'_>,
        in_store: &RootInStore,
    ) -> Result<Self, OpenError> {
        // What is wrong with it is recovery's to say.
        let superblock = load_superblock(reading).ok().flatten();
        let name = writer_name(state);
        let writer = RootWriter {
            identity: superblock.map_or(0, |superblock| superblock.journal_identity),
            name: name.clone(),
            lease_ms: options.lease_ms,
            roots_kept: options.roots_kept,
        };
        let mut kept = KeptRoot::read(state, writer.clone())?;
        let found = match in_store {
            RootInStore::Unknown => Ok(()),
            RootInStore::Nothing => kept.publisher.found(None),
            RootInStore::Found(root) => kept.publisher.found(Some(root.salt)),
        };
        if found == Err(NotTheWriter::RootMissing) {
            tracing::warn!("the store has lost its root; it is told everything anew");
            kept.publisher = Publisher::new(writer, None, Vec::new());
        }
        let is_other = found == Err(NotTheWriter::Other);
        Ok(Self { kept, name, is_other })
    }

    /// Now that the root can be read: is the store this gateway's, and nobody else's at the moment?
    fn check(
        &self,
        runtime: &tokio::runtime::Runtime,
        store: &Arc<dyn ObjectStore>,
        in_store: &RootInStore,
        ring: &KeyRing,
    ) -> Result<(), OpenError> {
        let RootInStore::Found(found) = in_store else {
            return Ok(());
        };
        let root = read_root(found, ring)?;
        if self.is_other {
            return Err(match self.kept.publisher.current() {
                Some(known) if is_older(&root, &known.root) => RootError::Older(root.sequence, known.root.sequence),
                None if root.writer == self.name => RootError::KeptMissing {
                    path: self.kept.path.clone(),
                    writer: root.writer,
                },
                _ => RootError::OtherWriter(root.writer),
            }
            .into());
        }
        if root.writer == self.name || root.is_released {
            return Ok(());
        }
        tracing::warn!(
            before = root.writer,
            now = self.name,
            lease_ms = root.lease_ms,
            "this state directory was moved or copied; waiting whether it is in use where it was"
        );
        match runtime.block_on(watch_root(store, found, Duration::from_millis(root.lease_ms.into())))? {
            true => Ok(()),
            false => Err(RootError::Elsewhere(root.writer).into()),
        }
    }
}

/// Nothing that is dirty was in it, so an empty one does as well.
fn make_lost_cache(paths: &Paths, core: &Core) -> Result<CacheFile, OpenError> {
    let header = CacheHeader {
        identity: core.identity(),
        slot_count: core.slot_count(),
        mark: Mark::default(),
    };
    make_cache(paths, &header)?;
    durable_file::publish(&paths.cache).map_err(first_start::disk(&paths.cache, "cannot make the cache file"))?;
    let opened = CacheFile::open(&paths.cache);
    let opened = opened.and_then(|opened| opened.ok_or_else(|| io::ErrorKind::NotFound.into()));
    opened.map_err(first_start::disk(&paths.cache, "cannot open the cache file"))
}

/// Does it answer? A missing bucket or wrong credentials will not mend themselves; a store that cannot be reached may.
/// Returns why it does not, if it may later.
pub(super) fn check_store(
    runtime: &tokio::runtime::Runtime,
    store: &Arc<dyn ObjectStore>,
) -> Result<Option<StoreError>, OpenError> {
    match runtime.block_on(store.check()) {
        Ok(()) => Ok(None),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Retry | ErrorKind::Throttled | ErrorKind::Unreachable
            ) =>
        {
            tracing::warn!(%error, "the store does not answer; starting on the local cache alone");
            Ok(Some(error))
        }
        Err(error) => Err(OpenError::Store(error)),
    }
}

pub(super) fn lock(state: &Path) -> Result<File, OpenError> {
    let path = state.join("lock");
    let disk = |error| OpenError::Disk {
        path: path.clone(),
        action: "cannot open the lock file",
        error,
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(disk)?;
    // SAFETY: the descriptor is open; the call touches no memory of ours.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let holder = fs::read_to_string(&path).unwrap_or_default();
        return Err(OpenError::InUse {
            path: state.to_owned(),
            holder: holder.trim().to_owned(),
        });
    }
    file.set_len(0).map_err(disk)?;
    io::Write::write_all(&mut &file, std::process::id().to_string().as_bytes()).map_err(disk)?;
    Ok(file)
}

fn open_index(
    files: &IndexFiles,
    manifest: Option<Vec<u8>>,
    config: tombolo_dedup::Config,
) -> Result<Index, IndexError<io::Error>> {
    let manifest = manifest
        .map(|bytes| Manifest::decode(&bytes))
        .transpose()
        .unwrap_or_else(|error| {
            tracing::warn!(%error, "the fingerprint index's manifest is damaged; it begins anew");
            None
        });
    let policy = OnBadRun::Drop(OlderRuns::Keep);
    let (mut index, bad_runs) = Index::open(files, &manifest.unwrap_or_default(), config, policy)?;
    for bad in bad_runs {
        tracing::warn!(run = %bad.run, error = %bad.error, "a run of the fingerprint index is dropped; only dedup suffers");
    }
    for orphan in index.orphans(&files.list().unwrap_or_default()) {
        if let Err(error) = files.delete(orphan) {
            tracing::warn!(%error, run = %orphan, "an orphaned run of the fingerprint index could not be removed");
        }
    }
    Ok(index)
}

/// What recovery gave up must be gone before anything new is written, or a second crash could bring it back.
fn tidy_journal(journal: &JournalFiles, report: &Report) -> io::Result<()> {
    if let Some((segment, offset)) = report.cut {
        journal.zero_from(segment, offset)?;
    }
    for segment in &report.obsolete_segments {
        journal.remove(*segment)?;
    }
    if report.torn_bytes > 0 {
        tracing::warn!(
            bytes = report.torn_bytes,
            batches = report.given_up_batches,
            "the end of the journal is given up: it was never flushed, and not all of it had reached the disk"
        );
    }
    tracing::info!(
        batches = report.batches,
        records = report.records,
        torn_bytes = report.torn_bytes,
        clean_slots = report.clean_slots,
        dirty_blocks = report.dirty_blocks,
        "recovered"
    );
    Ok(())
}

/// Objects that the journal has and no checkpoint.
fn index_recovered(index_files: &IndexFiles, index: &mut Index, report: &Report) -> io::Result<()> {
    for block in report.objects.iter().flat_map(|descriptor| descriptor.blocks()) {
        if index.insert(block.fingerprint, block.pvbn).is_ok() {
            continue;
        }
        // The run that this writes is named by the first checkpoint, which holds these objects too.
        let flushed = index.flush_memtable(index_files).map_err(|error| match error {
            IndexError::Storage { source, .. } => source,
            error => io::Error::other(error.to_string()),
        })?;
        tracing::debug!(
            runs = flushed.runs.len(),
            "the fingerprint index is flushed in recovery"
        );
        let inserted = index.insert(block.fingerprint, block.pvbn);
        inserted.map_err(|error| io::Error::other(error.to_string()))?;
    }
    Ok(())
}

pub(crate) fn fresh_identity() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the buffer is ours and as long as said. Without entropy the time has to do.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == bytes.len() as isize {
        return u64::from_le_bytes(bytes);
    }
    let since_epoch = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    since_epoch.as_nanos() as u64
}

/// `None`: there is no such part.
pub(super) struct Disk<'w> {
    pub cache: Option<&'w CacheFile>,
    pub journal: Option<&'w JournalFiles>,
    /// The file that has the cache file's marks too, as it is.
    pub marks_beside: &'w [u8],
}

impl LocalDisk for Disk<'_> {
    fn segments(&self) -> Result<Vec<u64>, String> {
        let Some(journal) = self.journal else {
            return Ok(Vec::new());
        };
        let listed = journal.list();
        listed.map_err(|error| format!("{}: {error}", journal.directory().display()))
    }

    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String> {
        let journal = self.journal.ok_or_else(|| "there is no journal".to_owned())?;
        journal
            .read(segment)
            .map_err(|error| format!("journal segment {segment}: {error}"))
    }

    fn cache_header(&self) -> Result<Option<Vec<u8>>, String> {
        Ok(self.cache.map(|cache| cache.header().to_vec()))
    }

    fn noted_beside(&self, identity: u64) -> JournalMark {
        decode_marks(self.marks_beside, identity).journal
    }

    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        let cache = self.cache.ok_or_else(|| "there is no cache file".to_owned())?;
        cache
            .sum(slot)
            .map_err(|error| format!("cache file, slot {}: {error}", slot.0))
    }
}
