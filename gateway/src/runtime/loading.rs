//! Brings what local metadata lacks after a recovery from the store, portion by portion, while clients are served.

use super::Gateway;
use super::tree_nodes::{CachedNodes, Listener, WholeObjects};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;
use tombolo_core::Event;
use tombolo_core::backing::{Backing, Portion, lay, load_progress};

/// Pages, entries or objects that one transaction takes.
const RECORDS_MAX: u64 = 2048;
/// Between two looks at whether a checkpoint has been made.
const CHECKPOINT_LOOK: Duration = Duration::from_millis(10);
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
        let listener = self.listener();
        let nodes = CachedNodes::told_to(
            handle.clone(),
            self.cloud.recovery.clone(),
            ring.clone(),
            listener.clone(),
        );
        self.metadata.attach(nodes);
        if is_read_only {
            return Ok(());
        }
        tracing::info!("local metadata is not all here yet; what is not is read in the store, and brought here");
        // What the tree has is needed, though no root may name it any more.
        let hold = self.publishing.state().removal.hold();
        let gateway = Arc::downgrade(self);
        let nodes = WholeObjects::new(handle.clone(), self.cloud.loading.clone(), ring);
        let mut nodes = nodes.told_to(listener);
        let run = move || {
            run(&gateway, &behind.backing, &mut nodes);
            drop(hold);
        };
        thread::Builder::new().name("load-metadata".into()).spawn(run).map(drop)
    }

    /// So that the store's state follows from what it says of metadata too.
    fn listener(self: &Arc<Self>) -> Listener {
        let gateway = Arc::downgrade(self);
        Arc::new(move |answer| {
            let Some(gateway) = gateway.upgrade() else { return };
            let result = answer.map_err(|error| gateway.store_failure(error));
            let worker = gateway.clone();
            // Not here: the core may ask for metadata then, and a thread may have one transaction at a time.
            gateway.io.run(move || worker.submit(Event::StoreAsked { result }));
        })
    }

    fn read_portion(&self, backing: &Backing, nodes: &mut WholeObjects) -> Result<Portion, String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let progress = {
            let reading = self.metadata.read().map_err(|error| failed(&error))?;
            load_progress(&reading).map_err(|error| failed(&error))?
        };
        // Half of the room that the index has in memory, at the most.
        let blocks_max = (self.core().fingerprints_max() / 2).max(1);
        let portion = backing.read(nodes, &progress, RECORDS_MAX, blocks_max);
        portion.map_err(|error| failed(&error))
    }

    /// Brings it here; true: it was the last.
    fn lay_portion(&self, portion: &Portion) -> Result<bool, String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let mut writing = self.metadata.write_local().map_err(|error| failed(&error))?;
        let is_last = lay(&mut writing, portion).map_err(|error| failed(&error))?;
        writing.commit().map_err(|error| failed(&error))?;
        self.cache.note_metadata(self.metadata.file_bytes());
        self.loading.records.fetch_add(portion.records, Ordering::Relaxed);
        if is_last {
            self.metadata.set_behind(None, CachedNodes::away());
        }
        Ok(is_last)
    }

    /// So that what is written again is found. Returns the number of the checkpoint that makes it durable; `None`: there is no
    /// room now.
    fn index_objects(&self, portion: &Portion) -> Option<u64> {
        let objects = portion.contents.objects.values();
        let count = objects.clone().map(|descriptor| descriptor.blocks().len()).sum();
        // No checkpoint begins before all of them are there.
        let mut core = self.core();
        if !core.reserve_fingerprints(count) {
            return None;
        }
        let mut index = self.index();
        for block in objects.flat_map(|descriptor| descriptor.blocks()) {
            if index.insert(block.fingerprint, block.pvbn).is_err() {
                self.index_entries_dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        Some(core.next_checkpoint())
    }

    /// One step; true: there is nothing more to do.
    fn load(
        self: &Arc<Self>,
        backing: &Backing,
        nodes: &mut WholeObjects,
        open: &mut Option<Open>,
    ) -> Result<bool, String> {
        let mut next = match open.take() {
            Some(next) => next,
            None => Open {
                portion: self.read_portion(backing, nodes)?,
                checkpoint: None,
            },
        };
        let is_of_objects = !next.portion.contents.objects.is_empty();
        if is_of_objects && next.checkpoint.is_none() {
            next.checkpoint = self.index_objects(&next.portion);
        }
        let made = self.core().checkpoints_made();
        if is_of_objects && next.checkpoint.is_none_or(|checkpoint| made < checkpoint) {
            // Objects that are here are not read again, so their fingerprints are durable first.
            *open = Some(next);
            if let Some(reason) = self.core().snapshot().failed {
                return Err(reason.to_string());
            }
            self.submit(Event::CheckpointNow);
            thread::sleep(CHECKPOINT_LOOK);
            return Ok(false);
        }
        self.lay_portion(&next.portion)
    }
}

/// A portion that was read and is not here yet.
struct Open {
    portion: Portion,
    /// The one that makes its fingerprints durable; `None`: they are not in the index yet, if it has any.
    checkpoint: Option<u64>,
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
    let mut open = None;
    loop {
        let Some(gateway) = gateway.upgrade() else { return };
        let loaded = gateway.load(backing, nodes, &mut open);
        gateway.loading.note(loaded.as_ref().err().cloned());
        drop(gateway);
        match loaded {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!("all local metadata is here");
                return;
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}
