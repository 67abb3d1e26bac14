//! One check of the store at a time: root, journal and metadata tree, and every object that the gateway has put there, are
//! read, decrypted, decoded and verified, and what lies among the objects besides is listed.
//!
//! The store is listed first and the table of objects is read after the next checkpoint, so that an object that is put
//! meanwhile is not called an orphan. Sixteen bytes for each name are kept in memory, and nothing else grows with the
//! store.

use crate::admin::model::{CHECK_FINDINGS_KEPT_MAX, CheckState, StoreCheckStatus, StoreFinding};
use crate::runtime::{CheckedObject, Gateway};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tombolo_base::{ObjectDescriptor, ObjectId};
use tombolo_core::Event;

const LISTED_AT_ONCE: usize = 1_000;
/// Each may hold 4 MiB.
const OBJECTS_AT_ONCE: usize = 8;
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(300);
const CHECKPOINT_POLL: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct StoreCheck {
    latest: Mutex<StoreCheckStatus>,
}

impl StoreCheck {
    pub fn status(&self) -> StoreCheckStatus {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, StoreCheckStatus> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins on a thread of its own, or joins the check that is under way.
    pub fn start(self: &Arc<Self>, gateway: &Arc<Gateway>) -> StoreCheckStatus {
        let mut status = self.lock();
        if status.state != CheckState::Running {
            *status = StoreCheckStatus {
                run: status.run + 1,
                state: CheckState::Running,
                objects: gateway.snapshot().totals.objects,
                ..StoreCheckStatus::default()
            };
            let (check, gateway) = (self.clone(), gateway.clone());
            let run = move || check.end(check.run(&gateway));
            if let Err(error) = thread::Builder::new().name("check-store".into()).spawn(run) {
                status.state = CheckState::Failed;
                status.error = Some(error.to_string());
            }
        }
        status.clone()
    }

    fn end(&self, result: Result<(), String>) {
        let mut status = self.lock();
        status.state = match &result {
            Ok(()) => CheckState::Finished,
            Err(_) => CheckState::Failed,
        };
        status.error = result.err();
    }

    fn run(&self, gateway: &Arc<Gateway>) -> Result<(), String> {
        let mut listed = Listed::of(gateway)?;
        checkpoint(gateway)?;
        for (object, message) in gateway.check_metadata()? {
            tracing::warn!(object, "check of the store: {message}");
            self.find(StoreFinding {
                object,
                message,
                ..StoreFinding::default()
            });
        }
        let mut from = 0;
        loop {
            let descriptors = gateway.objects_from(from, OBJECTS_AT_ONCE)?;
            let Some(last) = descriptors.last() else { break };
            from = last.first_pvbn().0 + 1;
            for (descriptor, object) in descriptors.iter().zip(gateway.check_objects(&descriptors)) {
                listed.strike_out(descriptor.id());
                self.note(descriptor, object)?;
            }
        }
        self.name_orphans(gateway, listed)
    }

    /// # Errors
    /// When the store does not answer: that says nothing about the object.
    fn note(&self, descriptor: &ObjectDescriptor, object: CheckedObject) -> Result<(), String> {
        let mut status = self.lock();
        status.objects_checked += 1;
        status.objects = status.objects.max(status.objects_checked);
        let what = match object {
            CheckedObject::Whole => {
                status.bytes_read += descriptor.object_bytes() as u64;
                return Ok(());
            }
            CheckedObject::Unknown(error) => return Err(error),
            CheckedObject::Missing => "it is missing".to_owned(),
            CheckedObject::Altered(reason) => reason,
        };
        let (object, blocks) = (descriptor.id().key(), descriptor.blocks().len() as u64);
        let (first_pvbn, last_pvbn) = (descriptor.first_pvbn().0, descriptor.last_pvbn().0);
        tracing::warn!(object, first_pvbn, last_pvbn, blocks, "check of the store: {what}");
        drop(status);
        self.find(StoreFinding {
            object,
            first_pvbn,
            last_pvbn,
            blocks,
            message: what,
        });
        Ok(())
    }

    fn find(&self, finding: StoreFinding) {
        let mut status = self.lock();
        status.findings_count += 1;
        if status.findings.len() < CHECK_FINDINGS_KEPT_MAX {
            status.findings.push(finding);
        }
    }

    /// What was listed and is in the table now was confirmed meanwhile.
    fn name_orphans(&self, gateway: &Arc<Gateway>, listed: Listed) -> Result<(), String> {
        let (prefixes, mut orphans) = (listed.left(), listed.unknown);
        let mut count = (prefixes.len() + orphans.len()) as u64;
        if !prefixes.is_empty() {
            checkpoint(gateway)?;
        }
        for prefix in prefixes.into_iter().take(CHECK_FINDINGS_KEPT_MAX) {
            let key = ObjectId::key_prefix(prefix);
            let found = gateway.list_store(&key, None, 1).map_err(|error| error.to_string())?;
            match found.into_iter().next() {
                Some(object) if !gateway.has_put(&object.key)? => orphans.push(object.key),
                _ => count -= 1,
            }
        }
        orphans.truncate(CHECK_FINDINGS_KEPT_MAX);
        let mut status = self.lock();
        status.orphans_count = count;
        status.orphans = orphans;
        Ok(())
    }
}

/// The names in the store.
struct Listed {
    /// The first eight bytes of each, ascending, and whether the table of objects has it.
    names: Vec<(u64, bool)>,
    /// What lies among the objects and has no name of one.
    unknown: Vec<String>,
}

impl Listed {
    fn of(gateway: &Gateway) -> Result<Self, String> {
        let (mut names, mut unknown) = (Vec::new(), Vec::new());
        let mut after: Option<String> = None;
        loop {
            let page = gateway.list_store("objects/", after.as_deref(), LISTED_AT_ONCE);
            let page = page.map_err(|error| error.to_string())?;
            for object in &page {
                match ObjectId::from_key(&object.key) {
                    Some(id) => names.push((id.prefix(), false)),
                    None if unknown.len() < CHECK_FINDINGS_KEPT_MAX => unknown.push(object.key.clone()),
                    None => {}
                }
            }
            if page.len() < LISTED_AT_ONCE {
                break;
            }
            after = page.into_iter().next_back().map(|object| object.key);
        }
        names.sort_unstable();
        Ok(Self { names, unknown })
    }

    fn strike_out(&mut self, id: ObjectId) {
        if let Ok(place) = self.names.binary_search_by_key(&id.prefix(), |(prefix, _)| *prefix) {
            self.names[place].1 = true;
        }
    }

    fn left(&self) -> Vec<u64> {
        let left = self.names.iter().filter(|(_, is_known)| !is_known);
        left.map(|(prefix, _)| *prefix).collect()
    }
}

/// Brings what is confirmed by now into the table of objects.
fn checkpoint(gateway: &Arc<Gateway>) -> Result<(), String> {
    // The first may have begun before.
    let enough = gateway.snapshot().counters.checkpoints + 2;
    let deadline = Instant::now() + CHECKPOINT_PATIENCE;
    while !gateway.is_checkpointed() && gateway.snapshot().counters.checkpoints < enough {
        if let Some(failure) = gateway.snapshot().failed {
            return Err(failure.to_string());
        }
        if Instant::now() >= deadline {
            return Err("no checkpoint could be made; see `tombolo status`".into());
        }
        gateway.submit(Event::CheckpointNow);
        thread::sleep(CHECKPOINT_POLL);
    }
    Ok(())
}
