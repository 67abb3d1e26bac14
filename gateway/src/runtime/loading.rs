//! Brings what local metadata lacks after a recovery from the store, portion by portion, while clients are served.

use super::Gateway;
use super::tree_nodes::{CachedNodes, WholeObjects};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;
use tombolo_base::ObjectDescriptor;
use tombolo_core::backing::{Backing, lay, load_progress};

/// Pages, entries or objects that one transaction takes.
const RECORDS_MAX: u64 = 2048;
/// Fingerprints in memory from which on they are written to a file.
const FINGERPRINTS_MAX: usize = 1 << 17;
/// Before what failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// How far it has come.
#[derive(Debug, Default)]
pub struct Loading {
    records: AtomicU64,
    failure: Mutex<Option<String>>,
}

/// What people are told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadingInfo {
    pub is_complete: bool,
    /// Since the start.
    pub records: u64,
    /// Why the last portion could not be had, if it could not.
    pub failure: Option<String>,
}

/// What becomes of a portion.
enum Loaded {
    Portion,
    Last,
}

impl Gateway {
    /// Whether all local metadata is here.
    pub fn is_metadata_complete(&self) -> bool {
        self.metadata.behind().is_none()
    }

    pub fn loading(&self) -> LoadingInfo {
        LoadingInfo {
            is_complete: self.is_metadata_complete(),
            records: self.loading.records.load(Ordering::Relaxed),
            failure: self.loading.failure().clone(),
        }
    }

    /// From now on what is not here is read in the store; and it is brought here.
    pub(super) fn start_loading(self: &Arc<Self>, is_read_only: bool) -> std::io::Result<()> {
        let Some(behind) = self.metadata.behind() else {
            return Ok(());
        };
        let (handle, ring) = (self.cloud.runtime.handle(), self.data_keys.ring());
        let nodes = CachedNodes::new(handle.clone(), self.cloud.demand.clone(), ring.clone());
        self.metadata.attach(nodes);
        if is_read_only {
            return Ok(());
        }
        tracing::info!("local metadata is not all here yet; what is not is read in the store, and brought here");
        // What the tree has is needed, though no root may name it any more.
        let hold = self.publishing.state().removal.hold();
        let gateway = Arc::downgrade(self);
        let mut nodes = WholeObjects::new(handle.clone(), self.cloud.prefetch.clone(), ring);
        let run = move || {
            run(&gateway, &behind.backing, &mut nodes);
            drop(hold);
        };
        thread::Builder::new().name("load-metadata".into()).spawn(run).map(drop)
    }

    fn load_portion(self: &Arc<Self>, backing: &Backing, nodes: &mut WholeObjects) -> Result<Loaded, String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let progress = {
            let reading = self.metadata.read().map_err(|error| failed(&error))?;
            load_progress(&reading).map_err(|error| failed(&error))?
        };
        let portion = backing.read(nodes, &progress, RECORDS_MAX);
        let portion = portion.map_err(|error| failed(&error))?;
        let mut writing = self.metadata.write_local().map_err(|error| failed(&error))?;
        let is_last = lay(&mut writing, &portion).map_err(|error| failed(&error))?;
        writing.commit().map_err(|error| failed(&error))?;
        self.cache.note_metadata(self.metadata.file_bytes());
        self.loading.records.fetch_add(portion.records, Ordering::Relaxed);
        self.index_objects(portion.contents.objects.values());
        if is_last {
            self.metadata.set_behind(None, CachedNodes::away());
            return Ok(Loaded::Last);
        }
        Ok(Loaded::Portion)
    }

    /// So that what is written again is found. Those that a crash takes away are lost for deduplication alone.
    fn index_objects<'d>(self: &Arc<Self>, objects: impl Iterator<Item = &'d Arc<ObjectDescriptor>>) {
        let mut is_written = false;
        for descriptor in objects {
            let mut index = self.index();
            for block in descriptor.blocks() {
                let is_full = index.memtable_entry_count() >= FINGERPRINTS_MAX;
                if is_full && let Err(error) = index.flush_memtable(&self.index_files) {
                    tracing::warn!(%error, "the fingerprint index could not be written");
                    return;
                }
                is_written |= is_full;
                if index.insert(block.fingerprint, block.pvbn).is_err() {
                    self.index_entries_dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        if is_written {
            self.compact();
        }
    }
}

impl Loading {
    fn failure(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, failure: Option<String>) {
        let mut noted = self.failure();
        if let Some(reason) = failure.as_ref().filter(|_| noted.is_none()) {
            tracing::warn!(
                reason,
                "metadata could not be brought from the store; it is tried again"
            );
        }
        *noted = failure;
    }
}

fn run(gateway: &Weak<Gateway>, backing: &Backing, nodes: &mut WholeObjects) {
    loop {
        let Some(gateway) = gateway.upgrade() else { return };
        let loaded = gateway.load_portion(backing, nodes);
        gateway.loading.note(loaded.as_ref().err().cloned());
        drop(gateway);
        match loaded {
            Ok(Loaded::Portion) => {}
            Ok(Loaded::Last) => {
                tracing::info!("all local metadata is here");
                return;
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}
