//! Local metadata and the fingerprint index against themselves and each other, for `tombolo check --store`.

use super::Gateway;
use super::metadata::Reading;
use std::collections::VecDeque;
use std::sync::PoisonError;
use tombolo_base::{Fingerprint, ObjectDescriptor, Pvbn};
use tombolo_core::audit::{AuditFinding, Window, audit_window};
use tombolo_core::local_metadata::load_descriptor;
use tombolo_dedup::Scan;

/// 20 MiB, for 2 Mi PVBNs.
const PAGES_AT_ONCE: usize = 8192;
/// Entries of the index that are looked up together, in the order of their PVBNs: 10 MiB.
const ENTRIES_AT_ONCE: usize = 1 << 18;
/// Descriptors that are kept: objects may interleave.
const DESCRIPTORS_KEPT: usize = 4;

/// A range of PVBNs that was looked at.
pub struct LocalWindow {
    pub window: Window,
    pub findings: Vec<AuditFinding>,
}

/// An entry of the fingerprint index that leads to other contents than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FingerprintFinding {
    pub fingerprint: Fingerprint,
    pub pvbn: Pvbn,
}

/// What became of entries of the fingerprint index.
#[derive(Debug, Default)]
pub struct Fingerprints {
    pub checked: u64,
    /// They lead to no object.
    pub nowhere: u64,
    pub wrong: Vec<FingerprintFinding>,
    /// Of runs that cannot be read to their end.
    pub faults: Vec<String>,
}

impl Gateway {
    /// What one checkpoint has left, with nothing of the next. `None`: the latest was cut short.
    fn read_settled(&self) -> Result<Option<Reading<'_>>, String> {
        let is_settled = self.is_settled.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_settled && !self.is_checkpointed() {
            return Ok(None);
        }
        self.metadata.read().map(Some).map_err(|error| error.to_string())
    }

    /// Compares reference counts, maps, objects and slots from a PVBN on. `None`: not now, a checkpoint has to be made first.
    pub fn check_local_window(&self, from: u64) -> Result<Option<LocalWindow>, String> {
        let Some(reading) = self.read_settled()? else {
            return Ok(None);
        };
        let mut findings = Vec::new();
        let window = audit_window(&reading, from, PAGES_AT_ONCE, &mut |finding| findings.push(finding));
        let window = window.map_err(|error| error.to_string())?;
        Ok(Some(LocalWindow { window, findings }))
    }

    /// The runs as they are now: a checkpoint that begins after this has all objects that they know.
    pub fn scan_index(&self) -> Scan {
        self.index().scan()
    }

    /// Looks the next entries of a scan up. `None`: there are no more.
    pub fn check_index(&self, scan: &mut Scan) -> Result<Option<Fingerprints>, String> {
        let mut found = Fingerprints::default();
        let mut entries = Vec::new();
        while entries.len() < ENTRIES_AT_ONCE {
            match scan.next(&self.index_files) {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => break,
                Err(error) => found.faults.push(error.to_string()),
            }
        }
        if entries.is_empty() && found.faults.is_empty() {
            return Ok(None);
        }
        found.checked = entries.len() as u64;
        entries.sort_unstable_by_key(|(_, pvbn)| *pvbn);
        let mut objects = Objects {
            reading: self.metadata.read().map_err(|error| error.to_string())?,
            kept: VecDeque::new(),
        };
        for (fingerprint, pvbn) in entries {
            match objects.fingerprint_of(pvbn)? {
                None => found.nowhere += 1,
                Some(other) if other != fingerprint => found.wrong.push(FingerprintFinding { fingerprint, pvbn }),
                Some(_) => {}
            }
        }
        Ok(Some(found))
    }

    /// How many blocks of an object the index does not know, so that equal ones would be stored again; and where it leads to
    /// other contents.
    pub fn check_fingerprints(&self, descriptor: &ObjectDescriptor) -> Result<(u64, Vec<FingerprintFinding>), String> {
        let (mut unknown, mut elsewhere) = (0, Vec::new());
        for block in descriptor.blocks() {
            match self.find_fingerprint(&block.fingerprint) {
                None => unknown += 1,
                Some(pvbn) if pvbn != block.pvbn => elsewhere.push((block.fingerprint, pvbn)),
                Some(_) => {}
            }
        }
        let mut wrong = Vec::new();
        if !elsewhere.is_empty() {
            let reading = self.metadata.read().map_err(|error| error.to_string())?;
            let kept = VecDeque::new();
            let mut objects = Objects { reading, kept };
            for (fingerprint, pvbn) in elsewhere {
                // Of no object yet: confirmed since the last checkpoint.
                if objects.fingerprint_of(pvbn)?.is_some_and(|other| other != fingerprint) {
                    wrong.push(FingerprintFinding { fingerprint, pvbn });
                }
            }
        }
        Ok((unknown, wrong))
    }
}

/// The table of objects, for PVBNs that ascend.
struct Objects<'e> {
    reading: Reading<'e>,
    kept: VecDeque<ObjectDescriptor>,
}

impl Objects<'_> {
    fn fingerprint_of(&mut self, pvbn: Pvbn) -> Result<Option<Fingerprint>, String> {
        let fingerprint = |descriptor: &ObjectDescriptor| descriptor.find(pvbn).map(|block| block.fingerprint);
        if let Some(found) = self.kept.iter().find_map(fingerprint) {
            return Ok(Some(found));
        }
        let loaded = load_descriptor(&self.reading, pvbn).map_err(|error| error.to_string())?;
        let Some(descriptor) = loaded else { return Ok(None) };
        let found = fingerprint(&descriptor);
        self.kept.push_front(descriptor);
        self.kept.truncate(DESCRIPTORS_KEPT);
        Ok(found)
    }
}
