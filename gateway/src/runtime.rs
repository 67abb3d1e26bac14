//! The real world around the core: files, LMDB, threads, the cloud.
//!
//! The core has one owner at a time, a mutex held for microseconds and never across I/O. Whoever brings an event steps
//! the core and carries out what follows from it: a client's thread writes its own slots and journal batch and
//! answers its own request, without handing anything to another thread; only what would wait (syncs, the cloud,
//! hashing, checkpoints, reads that the kernel cannot serve from memory) goes to workers. docs/decisions/0005-threading.md
//! has the measurement.

mod cache_file;
mod cache_resize;
mod checkpointer;
mod clock;
mod cloud;
mod data_keys;
pub(crate) mod durable_file;
mod execute;
mod first_start;
mod flusher;
mod from_store;
mod generation;
mod index_files;
mod journal_files;
mod loading;
mod local_check;
mod local_loss;
mod loss_report;
mod master_key;
mod metadata;
mod metadata_check;
mod metadata_file;
mod open;
mod own_store;
mod policies;
mod publishing;
mod recover;
mod removal;
mod replicas;
pub(crate) mod requests;
mod trace_recorder;
mod tree_nodes;
mod upload_buffers;
mod warm_connections;
mod workers;
mod zeroed_ahead;

pub use cache_resize::{ResizedCache, resize_cache};
pub use cloud::CheckedObject;
pub use data_keys::{DataKeyInfo, DataKeysError, EncryptionInfo, EncryptionOptions, NewKey};
pub use generation::{Generation, TAG_BITS};
pub use local_check::FingerprintFinding;
pub use master_key::{MasterKeyError, MasterKeySource};
pub(crate) use metadata::RecordError;
pub use metadata_check::MetadataFinding;
pub(crate) use open::fresh_identity;
pub use open::{OpenError, Options};
pub use publishing::WriterOptions;
pub use recover::{
    KeptRootInfo, RecoverAt, RecoverOptions, RecoverProgress, Recovered, list_roots, recover_from_store,
};
pub use replicas::{CheckedCopies, ReplicaLook, ReplicaSettings, ReplicaStore};
pub use requests::Reply;
pub use trace_recorder::Recorder;

use crate::metrics::requests::{BlockOperation, Meters, OperationMetrics};
use cache_file::CacheFile;
use checkpointer::IndexCheckpoint;
use clock::Clock;
use cloud::Cloud;
use data_keys::DataKeys;
use index_files::IndexFiles;
use journal_files::JournalFiles;
use loading::Loading;
use metadata::Metadata;
use policies::HistoryFile;
use publishing::Publishing;
use requests::{Pending, Requests};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant as RealInstant};
use tombolo_base::{Instant, VolumeId};
use tombolo_cloud_driver::BufferPool;
use tombolo_cloud_driver::{CauseCounts, OperationCounts};
use tombolo_core::{Answer, Command, Core, Event, Refusal, Snapshot, Volume};
use tombolo_dedup::Index;
use upload_buffers::UploadBuffers;
use workers::Workers;

/// How long a stop tries to make its last checkpoint once one has failed, for want of a store that does not answer, or of
/// room: it is repeated once or twice within this. What it would have had is replayed at the next start.
const FAILING_PATIENCE: Duration = Duration::from_secs(3);

/// A running gateway without its protocol servers.
pub struct Gateway {
    core: Mutex<Core>,
    clock: Arc<Clock>,
    pub(crate) requests: Requests,
    pub(crate) meters: Meters<BlockOperation>,
    /// Connections of each volume.
    clients: Mutex<HashMap<VolumeId, u64>>,
    /// Numbers given to connections so far.
    pub(crate) connections_begun: AtomicU32,
    /// Another one than before if this start may have lost what clients had been answered.
    pub generation: Generation,
    pub(crate) cache: CacheFile,
    journal: JournalFiles,
    pub(crate) metadata: Metadata,
    index: Mutex<Index>,
    index_files: IndexFiles,
    index_is_full: AtomicBool,
    index_entries_dropped: AtomicU64,
    /// The index's part of the checkpoint under way.
    index_checkpoint: Mutex<Option<IndexCheckpoint>>,
    /// Whether local metadata has all of a checkpoint and nothing of the next; held while one is merged.
    is_settled: Mutex<bool>,
    pub(crate) recorder: Recorder,
    history_file: Mutex<HistoryFile>,
    cloud: Cloud,
    data_keys: DataKeys,
    publishing: Publishing,
    loading: Loading,
    pub(crate) io: Workers,
    /// Reads in the store what local metadata lacks; has threads only where it lacked something at the start.
    lacking: Workers,
    hashing: Workers,
    upload_buffers: UploadBuffers,
    buffers: Arc<BufferPool>,
    syncing: Workers,
    cache_syncing: Workers,
    /// Makes journal segments ahead, and writes what had to wait for room.
    journaling: Workers,
    checkpointing: Workers,
    compacting: Workers,
    publisher: Workers,
    timer: Mutex<Option<JoinHandle<()>>>,
    /// Held as long as the gateway lives.
    _lock: std::fs::File,
}

/// What local metadata and the index occupy.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalUse {
    /// Length of LMDB's file, which never shrinks.
    pub metadata_bytes: u64,
    pub index_memory_bytes: u64,
    /// In runs and memtable; one that stands in several counts as often.
    pub index_entries: u64,
    /// Sorted files on the disk.
    pub index_runs: u64,
    /// Since the start, because the index was full: their blocks are not found as duplicates.
    pub index_entries_dropped: u64,
}

impl Gateway {
    pub fn encryption(&self) -> EncryptionInfo {
        self.data_keys.info()
    }

    /// Replaces the data key or the master key.
    pub fn rotate_key(&self, new: NewKey<'_>) -> Result<(), DataKeysError> {
        self.data_keys.rotate(&self.cloud.runtime, &self.cloud.other, new)
    }

    /// Steps the core with `event` and everything that follows from it on this thread.
    pub fn submit(self: &Arc<Self>, event: Event) {
        let mut events = vec![event];
        let mut commands = Vec::new();
        while !events.is_empty() {
            self.step(&mut events, &mut commands);
            for command in commands.drain(..) {
                self.execute(command, &mut events);
            }
        }
    }

    fn step(self: &Arc<Self>, events: &mut Vec<Event>, commands: &mut Vec<Command>) {
        let mut core = self.core();
        for event in events.drain(..) {
            core.step(self.clock.now(), event, commands);
        }
        // Nobody is answered before `commands` are carried out.
        self.generation.note(core.journal_mark().lsn);
        // Under the core's lock, so in the order of the steps: no later step may begin a hash job that would not find
        // a confirmed block, and no block confirmed after a checkpoint may get into that checkpoint's index.
        for command in commands.iter() {
            match command {
                Command::Remember { descriptor } => self.remember(descriptor),
                Command::Checkpoint { frozen, .. } => self.freeze_index(frozen),
                _ => {}
            }
        }
        self.clock.set_alarm(core.next_deadline());
        let replaced = core.take_replaced();
        drop(core);
        // It may have had gigabytes, and the system takes them back page by page.
        drop(replaced);
    }

    fn start_timer(self: &Arc<Self>) -> std::io::Result<()> {
        let gateway = Arc::downgrade(self);
        let clock = self.clock.clone();
        let ring = move || {
            if let Some(gateway) = gateway.upgrade() {
                if let Some(micros) = gateway.clock.wall_micros_if_set() {
                    gateway.submit(Event::WallClock { micros });
                }
                gateway.submit(Event::Tick);
            }
        };
        let timer = thread::Builder::new()
            .name("timer".into())
            .spawn(move || clock.run(ring))?;
        *self.timer.lock().unwrap_or_else(PoisonError::into_inner) = Some(timer);
        Ok(())
    }

    /// Sends a request and waits for its answer; for the admin API.
    pub(crate) fn ask(self: &Arc<Self>, event: impl FnOnce(tombolo_core::Token) -> Event) -> Result<Answer, Refusal> {
        let (sender, receiver) = sync_channel(1);
        let token = self.requests.insert(Pending::plain(Reply::Channel(sender)));
        self.submit(event(token));
        receiver.recv().unwrap_or(Err(Refusal::Busy))
    }

    pub fn volume_named(&self, name: &str) -> Option<Volume> {
        self.core().volume_named(name).cloned()
    }

    /// For people: a volume's name, or which file it is.
    pub fn name_of(&self, volume: VolumeId) -> String {
        let name = self.core().volume(volume).map(|volume| volume.name.clone());
        name.unwrap_or_else(|| match volume.inode() {
            Some(inode) => format!("file with inode {inode}"),
            None => format!("volume {}", volume.0),
        })
    }

    pub fn snapshot(&self) -> Snapshot {
        self.core().snapshot()
    }

    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    pub fn local_use(&self) -> LocalUse {
        let index = self.index();
        LocalUse {
            metadata_bytes: self.metadata.file_bytes(),
            index_memory_bytes: index.memory_bytes(),
            index_entries: index.run_entry_count() + index.memtable_entry_count() as u64,
            index_runs: index.run_count() as u64,
            index_entries_dropped: self.index_entries_dropped.load(Ordering::Relaxed),
        }
    }

    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    pub fn drain(self: &Arc<Self>) {
        self.submit(Event::Drain);
    }

    /// The end is near: nobody waits long any more for what local metadata lacks and the store does not give.
    pub fn begin_stop(&self) {
        if let Some(behind) = self.metadata.behind() {
            behind.nodes.stop();
        }
    }

    /// Brings everything into local metadata and ends the threads. Clients must be gone. Dirty blocks stay dirty.
    pub fn stop(self: &Arc<Self>, patience: Duration) {
        let began = RealInstant::now();
        let until = began + patience;
        self.begin_stop();
        self.recorder.stop();
        self.submit(Event::CheckpointNow);
        // A core that has stopped makes no checkpoint.
        let may_go_on = || {
            let snapshot = self.core().snapshot();
            let is_failing = snapshot.metadata_error.is_some();
            let until = if is_failing { began + FAILING_PATIENCE } else { until };
            snapshot.failed.is_none() && RealInstant::now() < until
        };
        while !self.core().is_checkpointed() && may_go_on() {
            thread::sleep(Duration::from_millis(5));
            self.submit(Event::CheckpointNow);
        }
        if !self.core().is_checkpointed() {
            tracing::warn!("stopping without a last checkpoint; the journal will be replayed at the next start");
        }
        // Who takes over at once from a gateway that has stopped must not lose what that one has accepted.
        let now = self.core().snapshot();
        if now.oldest_unpublished.is_none() && now.failed.is_none() {
            self.release_root();
        }
        self.save_history();
        self.clock.stop();
        if let Some(timer) = self.timer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = timer.join();
        }
    }

    /// Clients' requests so far, by operation.
    pub fn operations(&self) -> Vec<OperationMetrics> {
        self.meters.snapshot()
    }

    pub fn store_counts(&self) -> Vec<OperationCounts> {
        self.cloud.counts.snapshot()
    }

    /// Requests to the store by why they were made, since the start of this process, the start itself included.
    pub fn cause_counts(&self) -> Vec<CauseCounts> {
        self.cloud.counts.by_cause()
    }

    pub fn connections(&self, volume: VolumeId) -> u64 {
        self.clients().get(&volume).copied().unwrap_or(0)
    }

    pub(crate) fn clients(&self) -> MutexGuard<'_, HashMap<VolumeId, u64>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        // A panic in the core leaves it in no known state: better to end than to go on.
        self.core.lock().expect("the core panicked earlier")
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
