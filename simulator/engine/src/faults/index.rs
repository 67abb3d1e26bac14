//! The fingerprint index of the product over files in memory, whose unsynced part a power loss takes away.
//!
//! The protocol that the crash argument needs: the memtable is frozen when the checkpoint *command* is carried out,
//! before any later `Remember`. So the durable index never knows a block whose confirmation the journal might lose.

use std::cell::RefCell;
use std::collections::BTreeMap;
use tombolo_base::{Fingerprint, ObjectDescriptor, Prng, Pvbn};
use tombolo_core::Lsn;
use tombolo_dedup::{Config, Index, IndexError, InsertError, Manifest, OnBadRun, RunFile, RunId, RunStorage};

#[derive(Debug, Default)]
struct File {
    bytes: Vec<u8>,
    durable_bytes: usize,
    is_durable: bool,
}

#[derive(Debug, Default)]
pub struct RunFiles(RefCell<BTreeMap<RunFile, File>>);

#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct RunFileError(RunFile, &'static str);

impl RunStorage for RunFiles {
    type Error = RunFileError;

    fn create(&self, file: RunFile) -> Result<(), RunFileError> {
        self.0.borrow_mut().insert(file, File::default());
        Ok(())
    }

    fn append(&self, file: RunFile, bytes: &[u8]) -> Result<(), RunFileError> {
        let mut files = self.0.borrow_mut();
        let found = files.get_mut(&file).ok_or(RunFileError(file, "absent"))?;
        found.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&self, file: RunFile) -> Result<(), RunFileError> {
        let mut files = self.0.borrow_mut();
        let found = files.get_mut(&file).ok_or(RunFileError(file, "absent"))?;
        found.durable_bytes = found.bytes.len();
        found.is_durable = true;
        Ok(())
    }

    fn read(&self, file: RunFile, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), RunFileError> {
        let files = self.0.borrow();
        let found = files.get(&file).ok_or(RunFileError(file, "absent"))?;
        let start = offset_bytes as usize;
        let part = found.bytes.get(start..start + bytes.len());
        bytes.copy_from_slice(part.ok_or(RunFileError(file, "ends too early"))?);
        Ok(())
    }

    fn length(&self, file: RunFile) -> Result<u64, RunFileError> {
        let files = self.0.borrow();
        let found = files.get(&file).ok_or(RunFileError(file, "absent"))?;
        Ok(found.bytes.len() as u64)
    }

    fn delete(&self, run: RunId) -> Result<(), RunFileError> {
        self.0.borrow_mut().retain(|file, _| file.run != run);
        Ok(())
    }
}

impl RunFiles {
    pub fn power_loss(&self, prng: &mut Prng) {
        self.0.borrow_mut().retain(|_, file| {
            if prng.chance(500) {
                file.bytes.truncate(file.durable_bytes);
            }
            file.is_durable || prng.chance(300)
        });
    }

    fn runs(&self) -> Vec<RunId> {
        let mut runs: Vec<RunId> = self.0.borrow().keys().map(|file| file.run).collect();
        runs.dedup();
        runs
    }
}

pub struct FingerprintIndex {
    index: Index,
    /// Of the checkpoint under way.
    frozen: Option<(Lsn, Manifest)>,
    /// The memtable holds removals.
    has_forgotten: bool,
}

impl FingerprintIndex {
    /// Small enough that runs and merges occur within one simulated life.
    fn config(memtable_entries_max: usize) -> Config {
        Config {
            memtable_entries_max,
            filter_bytes_max: 1 << 16,
            filter_bits_per_entry: 12,
            fence_bytes_max: 1 << 14,
            runs_max: 3,
            merge_buffer_bytes: 64 << 10,
        }
    }

    pub fn open(files: &RunFiles, manifest: Option<&[u8]>, memtable_entries_max: usize) -> Self {
        let manifest = manifest.map_or_else(Manifest::default, |bytes| {
            Manifest::decode(bytes).expect("metadata keeps the manifest whole")
        });
        let config = Self::config(memtable_entries_max);
        let (mut index, bad_runs) = Index::open(files, &manifest, config, OnBadRun::Refuse)
            .expect("runs that a durable manifest names are durable");
        assert!(bad_runs.is_empty());
        for orphan in index.orphans(&files.runs()) {
            files.delete(orphan).expect("deletion in memory");
        }
        Self {
            index,
            frozen: None,
            has_forgotten: false,
        }
    }

    /// The core holds uploads back, so that there is room, unless losses were found during an upload. Returns those for
    /// which there is none.
    pub fn remember(&mut self, descriptor: &ObjectDescriptor) -> Vec<Fingerprint> {
        let mut dropped = Vec::new();
        for packed in descriptor.blocks() {
            if let Err(error) = self.index.insert(packed.fingerprint, packed.pvbn) {
                assert!(
                    self.has_forgotten,
                    "the memtable has room for what is confirmed: {error}"
                );
                dropped.push(packed.fingerprint);
            }
        }
        dropped
    }

    pub fn forget(&mut self, files: &RunFiles, blocks: &[(Fingerprint, Pvbn)]) {
        self.has_forgotten = true;
        for (fingerprint, pvbn) in blocks {
            if let Err(error) = self.index.remove(files, *fingerprint, *pvbn) {
                // Losses are not held back; an entry that stays is one that the core does not trust.
                assert!(
                    matches!(error, IndexError::Insert(InsertError::MemtableFull { .. })),
                    "{error}"
                );
            }
        }
    }

    /// In recovery there may be more than the memtable holds.
    pub fn recover(&mut self, files: &RunFiles, descriptor: &ObjectDescriptor) {
        for packed in descriptor.blocks() {
            loop {
                match self.index.insert(packed.fingerprint, packed.pvbn) {
                    Ok(()) => break,
                    Err(InsertError::MemtableFull { .. }) => self.flush(files),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    pub fn lookup(&self, files: &RunFiles, fingerprint: &Fingerprint) -> Option<Pvbn> {
        self.index
            .lookup(files, fingerprint)
            .expect("files in memory do not fail")
    }

    /// What the checkpoint up to `lsn` is to commit: the same again when it is repeated after a failure.
    pub fn freeze(&mut self, files: &RunFiles, lsn: Lsn) -> Manifest {
        if let Some((frozen, manifest)) = &self.frozen
            && *frozen == lsn
        {
            return manifest.clone();
        }
        let manifest = self.freeze_anew(files);
        self.frozen = Some((lsn, manifest.clone()));
        manifest
    }

    /// What the index holds now.
    pub fn freeze_anew(&mut self, files: &RunFiles) -> Manifest {
        self.flush(files);
        self.compact(files);
        self.index.manifest()
    }

    pub fn manifest_is_durable(&mut self, files: &RunFiles, manifest: &Manifest) {
        self.index.manifest_is_durable(manifest);
        for run in self.index.obsolete_runs() {
            files.delete(run).expect("deletion in memory");
        }
    }

    fn flush(&mut self, files: &RunFiles) {
        self.has_forgotten = false;
        if let Some(flush) = self.index.freeze() {
            let flushed = flush.write(files).expect("files in memory do not fail");
            self.index.adopt_flush(flushed).expect("the flush was just made");
        }
    }

    fn compact(&mut self, files: &RunFiles) {
        while let Some(plan) = self.index.plan_compaction() {
            let Some(mut merge) = self.index.start_merge(&plan) else {
                return;
            };
            let merged = loop {
                if let Some(merged) = merge.step(files, 4).expect("files in memory do not fail") {
                    break merged;
                }
            };
            self.index.adopt_merge(merged).expect("the merge was just made");
        }
        while let Some(load) = self.index.next_filter_load() {
            let loaded = load.read(files).expect("files in memory do not fail");
            self.index.install_filter(loaded);
        }
    }
}
