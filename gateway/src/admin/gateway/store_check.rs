//! One check of the store at a time: the store's metadata against local metadata, reference counts against maps, maps against
//! objects and slots, the fingerprint index against objects; then the names in the store, and every object is read, decrypted,
//! decoded and verified. What costs nothing comes first.
//!
//! How far it is lies in a file in the state directory, so that it can go on after a restart. The store is listed first and the
//! table of objects is read after the next checkpoint, so that an object that is put meanwhile is not called an orphan. Sixteen
//! bytes for each name are kept in memory while names are compared; nothing else grows with the store.

mod findings;
mod progress;

use crate::admin::model::{
    CHECK_FINDINGS_KEPT_MAX, CheckState, ReplicaCheck, StoreCheckStage, StoreCheckStatus, StoreFinding,
    StoreFindingKind,
};
use crate::runtime::{CheckedCopies, CheckedObject, FingerprintFinding, Gateway, MetadataFinding};
use findings::{audit_finding, fingerprint_finding, metadata_finding, object_finding};
use progress::{KEEP_INTERVAL, Progress, ProgressFile};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tombolo_base::{ObjectDescriptor, ObjectId};
use tombolo_cloud_driver::ComparedMetadata;
use tombolo_cloud_driver::keys::KEYS_NAME;
use tombolo_cloud_driver::metadata_object::JOURNAL_PREFIX;
use tombolo_cloud_driver::node_object::NODES_PREFIX;
use tombolo_core::Event;

const LISTED_AT_ONCE: usize = 1_000;
/// Of the table of objects.
const DESCRIPTORS_AT_ONCE: usize = 64;
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(300);
const CHECKPOINT_POLL: Duration = Duration::from_millis(50);

pub(super) struct StoreCheck {
    latest: Mutex<StoreCheckStatus>,
    file: ProgressFile,
}

/// One check, on its thread.
struct Run<'c> {
    check: &'c StoreCheck,
    gateway: &'c Arc<Gateway>,
    /// In the stage that is under way; what it counts is the stage's affair.
    next: u64,
    kept_at: Instant,
    began_at: Instant,
    /// Read before this run.
    bytes_before: u64,
}

impl StoreCheck {
    pub fn new(state_directory: &Path) -> Self {
        Self {
            latest: Mutex::default(),
            file: ProgressFile::of(state_directory),
        }
    }

    pub fn status(&self) -> StoreCheckStatus {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, StoreCheckStatus> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins on a thread of its own, or joins the check that is under way.
    pub fn start(self: &Arc<Self>, gateway: &Arc<Gateway>, resume: bool) -> StoreCheckStatus {
        let mut status = self.lock();
        if status.state != CheckState::Running {
            let kept = if resume {
                self.file.read(gateway.identity())
            } else {
                self.file.remove();
                None
            };
            let is_resumed = kept.is_some();
            let Progress {
                next, status: before, ..
            } = kept.unwrap_or_default();
            let totals = gateway.snapshot().totals;
            *status = StoreCheckStatus {
                run: status.run + 1,
                state: CheckState::Running,
                resumed: is_resumed,
                objects: totals.objects.max(before.objects_checked),
                bytes: totals.object_bytes.max(before.bytes_read),
                bytes_per_s: 0.0,
                error: None,
                ..before
            };
            let (check, gateway) = (self.clone(), gateway.clone());
            let run = move || check.end(check.run(&gateway, next));
            if let Err(error) = thread::Builder::new().name("check-store".into()).spawn(run) {
                status.state = CheckState::Failed;
                status.error = Some(error.to_string());
            }
        }
        status.clone()
    }

    fn end(&self, result: Result<(), String>) {
        if result.is_ok() {
            self.file.remove();
        }
        let mut status = self.lock();
        status.state = match &result {
            Ok(()) => CheckState::Finished,
            Err(_) => CheckState::Failed,
        };
        status.error = result.err();
    }

    fn run(&self, gateway: &Arc<Gateway>, next: u64) -> Result<(), String> {
        if !gateway.is_metadata_complete() {
            return Err(
                "local metadata is still being loaded; run the check again when `tombolo status` says that it is \
                 complete"
                    .into(),
            );
        }
        let now = Instant::now();
        let mut run = Run {
            check: self,
            gateway,
            next,
            kept_at: now,
            began_at: now,
            bytes_before: self.lock().bytes_read,
        };
        loop {
            let stage = self.lock().stage;
            let following = match stage {
                StoreCheckStage::StoreMetadata => {
                    run.check_metadata()?;
                    StoreCheckStage::References
                }
                StoreCheckStage::References => {
                    run.check_references()?;
                    StoreCheckStage::Index
                }
                StoreCheckStage::Index => {
                    run.check_index()?;
                    StoreCheckStage::Listing
                }
                StoreCheckStage::Listing => {
                    run.check_names()?;
                    StoreCheckStage::Objects
                }
                StoreCheckStage::Objects => {
                    run.check_objects()?;
                    return run.check_replica_metadata();
                }
            };
            self.lock().stage = following;
            run.next = 0;
            run.keep();
        }
    }
}

impl Run<'_> {
    fn status(&self) -> MutexGuard<'_, StoreCheckStatus> {
        self.check.lock()
    }

    fn find(&self, finding: StoreFinding) {
        tracing::warn!(
            kind = ?finding.kind,
            object = finding.object,
            volume = finding.volume,
            first_block = finding.first_block,
            first_pvbn = finding.first_pvbn,
            last_pvbn = finding.last_pvbn,
            blocks = finding.blocks,
            "check of the store: {}",
            finding.message
        );
        let mut status = self.status();
        status.findings_count += 1;
        if status.findings.len() < CHECK_FINDINGS_KEPT_MAX {
            status.findings.push(finding);
        }
    }

    fn find_fingerprint(&self, wrong: &FingerprintFinding) {
        self.find(fingerprint_finding(wrong));
    }

    /// Where it would go on.
    fn keep(&mut self) {
        self.kept_at = Instant::now();
        let progress = Progress::of(self.gateway.identity(), self.next, &self.status());
        self.check.file.keep(&progress);
    }

    fn keep_sometimes(&mut self) {
        if self.kept_at.elapsed() >= KEEP_INTERVAL {
            self.keep();
        }
    }

    fn check_metadata(&self) -> Result<(), String> {
        // So that little is on its way and all else is compared.
        checkpoint(self.gateway)?;
        let find = &mut |finding: MetadataFinding| self.find(metadata_finding(self.gateway, finding));
        let tell = &mut |compared| self.status().records_compared = compared;
        let checked = self.gateway.check_metadata(find, tell)?;
        let mut status = self.status();
        status.records_compared = checked.compared;
        status.remarks.extend(checked.remark.map(str::to_owned));
        Ok(())
    }

    fn check_references(&mut self) -> Result<(), String> {
        let mut waited_until = None;
        loop {
            self.keep_sometimes();
            let looked = match self.gateway.check_local_window(self.next) {
                Ok(Some(looked)) => looked,
                Ok(None) => {
                    let until = *waited_until.get_or_insert_with(|| Instant::now() + CHECKPOINT_PATIENCE);
                    if Instant::now() >= until {
                        return Err(NO_CHECKPOINT.into());
                    }
                    checkpoint(self.gateway)?;
                    continue;
                }
                Err(error) => {
                    self.find(metadata_finding(self.gateway, MetadataFinding::Local(error)));
                    return Ok(());
                }
            };
            waited_until = None;
            for finding in looked.findings {
                self.find(audit_finding(self.gateway, finding));
            }
            self.status().references_checked += looked.window.pvbns;
            match looked.window.next {
                Some(next) => self.next = next,
                None => return Ok(()),
            }
        }
    }

    fn check_index(&mut self) -> Result<(), String> {
        {
            // Begun anew if it was interrupted.
            let mut status = self.status();
            (status.index_entries_checked, status.index_entries_nowhere) = (0, 0);
        }
        let mut scan = self.gateway.scan_index();
        checkpoint(self.gateway)?;
        while let Some(found) = self.gateway.check_index(&mut scan)? {
            for reason in found.faults {
                self.find(StoreFinding {
                    kind: StoreFindingKind::IndexDamaged,
                    message: reason,
                    advice: "no data is lost by it: blocks that only this file knows are stored again when equal ones are written"
                        .into(),
                    ..StoreFinding::default()
                });
            }
            found.wrong.iter().for_each(|wrong| self.find_fingerprint(wrong));
            let mut status = self.status();
            status.index_entries_checked += found.checked;
            status.index_entries_nowhere += found.nowhere;
        }
        Ok(())
    }

    /// What was listed and is in the table afterwards was confirmed meanwhile.
    fn check_names(&self) -> Result<(), String> {
        let mut listed = Listed::of(self.gateway)?;
        checkpoint(self.gateway)?;
        let mut from = 0;
        loop {
            let descriptors = self.gateway.objects_from(from, DESCRIPTORS_AT_ONCE)?;
            let Some(last) = descriptors.last() else { break };
            from = last.first_pvbn().0 + 1;
            for descriptor in &descriptors {
                listed.strike_out(descriptor.id());
            }
        }
        self.name_orphans(listed)
    }

    fn name_orphans(&self, listed: Listed) -> Result<(), String> {
        let (prefixes, mut orphans) = (listed.left(), listed.unknown);
        let mut count = (prefixes.len() + orphans.len()) as u64;
        for prefix in prefixes.into_iter().take(CHECK_FINDINGS_KEPT_MAX) {
            let key = ObjectId::key_prefix(prefix);
            let found = self
                .gateway
                .list_store(&key, None, 1)
                .map_err(|error| error.to_string())?;
            match found.into_iter().next() {
                Some(object) if !self.gateway.has_put(&object.key)? => orphans.push(object.key),
                _ => count -= 1,
            }
        }
        orphans.truncate(CHECK_FINDINGS_KEPT_MAX);
        let mut status = self.status();
        status.orphans_count = count;
        status.orphans = orphans;
        Ok(())
    }

    fn check_objects(&mut self) -> Result<(), String> {
        self.began_at = Instant::now();
        loop {
            let descriptors = self.gateway.objects_from(self.next, self.gateway.objects_at_once())?;
            let Some(last) = descriptors.last() else {
                return Ok(());
            };
            let checked = self.gateway.check_objects(&descriptors);
            // Nothing is counted twice when it goes on after a store that did not answer.
            if let Some(error) = checked.iter().find_map(|copies| copies.object.unknown()) {
                return Err(error.to_owned());
            }
            for (descriptor, copies) in descriptors.iter().zip(checked) {
                self.note_copies(&copies);
                self.note(descriptor, copies.object)?;
            }
            self.next = last.first_pvbn().0 + 1;
            self.keep_sometimes();
        }
    }

    /// The store's own was compared with local metadata, so it is known which of two is wrong, unless that has found something.
    fn check_replica_metadata(&self) -> Result<(), String> {
        if self.gateway.replicas().is_empty() {
            return Ok(());
        }
        let is_good = {
            let status = self.status();
            let is_of_metadata = |finding: &StoreFinding| finding.kind == StoreFindingKind::StoreMetadata;
            !status.findings.iter().any(is_of_metadata)
        };
        let keys = self.gateway.compare_metadata(KEYS_NAME, is_good);
        self.note_metadata(&keys.map_err(|error| error.to_string())?, is_good);
        for prefix in [NODES_PREFIX, JOURNAL_PREFIX] {
            let mut after: Option<String> = None;
            loop {
                let page = self.gateway.list_store(prefix, after.as_deref(), LISTED_AT_ONCE);
                let page = page.map_err(|error| error.to_string())?;
                for object in &page {
                    let compared = self.gateway.compare_metadata(&object.key, is_good);
                    self.note_metadata(&compared.map_err(|error| error.to_string())?, is_good);
                }
                match page.into_iter().next_back() {
                    Some(last) => after = Some(last.key),
                    None => break,
                }
            }
        }
        Ok(())
    }

    fn note_metadata(&self, compared: &[Option<ComparedMetadata>], is_mended: bool) {
        let mut status = self.replicas_told();
        for (replica, found) in status.replicas.iter_mut().zip(compared) {
            match found {
                Some(ComparedMetadata::Same) => replica.metadata_whole += 1,
                Some(ComparedMetadata::Altered) => replica.altered += 1,
                Some(ComparedMetadata::Missing) => replica.missing += 1,
                Some(ComparedMetadata::Unknown) => replica.unknown += 1,
                None => {}
            }
            let is_bad = matches!(found, Some(ComparedMetadata::Altered | ComparedMetadata::Missing));
            replica.healed += u64::from(is_bad && is_mended);
        }
    }

    /// The status with an entry for each replica.
    fn replicas_told(&self) -> MutexGuard<'_, StoreCheckStatus> {
        let replicas = self.gateway.replicas();
        let mut status = self.status();
        if status.replicas.len() != replicas.len() {
            let named = |name: String| ReplicaCheck {
                name,
                ..ReplicaCheck::default()
            };
            status.replicas = replicas.into_iter().map(|replica| named(replica.status.name)).collect();
        }
        status
    }

    /// What was mended is no finding, but it is told.
    fn note_copies(&self, copies: &CheckedCopies) {
        let mut status = self.replicas_told();
        let healed = |place: usize| u64::from(copies.healed.get(place) == Some(&true));
        status.objects_healed += healed(0);
        for (place, copy) in copies.copies.iter().enumerate().skip(1) {
            let Some(replica) = status.replicas.get_mut(place - 1) else {
                continue;
            };
            match copy {
                CheckedObject::Whole => replica.whole += 1,
                CheckedObject::Missing => replica.missing += 1,
                CheckedObject::Altered(_) => replica.altered += 1,
                CheckedObject::Unknown(_) => replica.unknown += 1,
            }
            replica.healed += healed(place);
        }
    }

    fn note(&self, descriptor: &ObjectDescriptor, object: CheckedObject) -> Result<(), String> {
        if let Some(finding) = object_finding(descriptor, &object) {
            self.find(finding);
        }
        let is_whole = matches!(object, CheckedObject::Whole);
        let (unknown, wrong) = match is_whole {
            true => self.gateway.check_fingerprints(descriptor)?,
            false => (0, Vec::new()),
        };
        wrong.iter().for_each(|wrong| self.find_fingerprint(wrong));
        let mut status = self.status();
        status.blocks_not_indexed += unknown;
        status.objects_checked += 1;
        status.objects = status.objects.max(status.objects_checked);
        if is_whole {
            status.bytes_read += descriptor.object_bytes() as u64;
            status.bytes = status.bytes.max(status.bytes_read);
        }
        let seconds = self.began_at.elapsed().as_secs_f64().max(0.001);
        status.bytes_per_s = (status.bytes_read - self.bytes_before) as f64 / seconds;
        Ok(())
    }
}

const NO_CHECKPOINT: &str = "no checkpoint could be made; see `tombolo status`";

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
            return Err(NO_CHECKPOINT.into());
        }
        gateway.submit(Event::CheckpointNow);
        thread::sleep(CHECKPOINT_POLL);
    }
    Ok(())
}
