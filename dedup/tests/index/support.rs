//! A hostile storage in memory: what was not synced is lost in a crash, and pages can be made to rot.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use tombolo_dedup::{RunFile, RunId, RunPart, RunStorage};

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    #[error("no such file")]
    Missing,
    #[error("end of file")]
    End,
    #[error("no space left")]
    NoSpace,
}

#[derive(Clone, Default)]
struct MemoryFile {
    bytes: Vec<u8>,
    /// What a crash leaves.
    synced: Option<Vec<u8>>,
}

#[derive(Default)]
pub struct MemoryStorage {
    files: RefCell<BTreeMap<RunFile, MemoryFile>>,
    page_reads: Cell<u64>,
    /// Appends that still succeed.
    appends_left: Cell<Option<u64>>,
}

pub const BOTH: [RunPart; 2] = [RunPart::Entries, RunPart::Guide];

impl MemoryStorage {
    pub fn crash(&self) {
        let mut files = self.files.borrow_mut();
        files.retain(|_, file| file.synced.is_some());
        for file in files.values_mut() {
            file.bytes = file.synced.clone().unwrap_or_default();
        }
    }

    pub fn runs(&self) -> Vec<RunId> {
        let mut runs: Vec<RunId> = self.files.borrow().keys().map(|file| file.run).collect();
        runs.dedup();
        runs
    }

    pub fn bytes(&self, run: RunId, part: RunPart) -> Vec<u8> {
        self.files.borrow()[&RunFile { run, part }].bytes.clone()
    }

    /// Changes one bit for good.
    pub fn rot(&self, run: RunId, part: RunPart, offset: usize) {
        let mut files = self.files.borrow_mut();
        let file = files.get_mut(&RunFile { run, part }).expect("the file exists");
        file.bytes[offset] ^= 0x10;
        file.synced = Some(file.bytes.clone());
    }

    pub fn cut(&self, run: RunId, part: RunPart, length: usize) {
        let mut files = self.files.borrow_mut();
        let file = files.get_mut(&RunFile { run, part }).expect("the file exists");
        file.bytes.truncate(length);
        file.synced = Some(file.bytes.clone());
    }

    pub fn page_reads(&self) -> u64 {
        self.page_reads.get()
    }

    /// Appends fail after `count` more; `None` ends that.
    pub fn fail_appends_after(&self, count: Option<u64>) {
        self.appends_left.set(count);
    }
}

impl RunStorage for MemoryStorage {
    type Error = MemoryError;

    fn create(&self, file: RunFile) -> Result<(), MemoryError> {
        self.files.borrow_mut().insert(file, MemoryFile::default());
        Ok(())
    }

    fn append(&self, file: RunFile, bytes: &[u8]) -> Result<(), MemoryError> {
        let mut files = self.files.borrow_mut();
        let held = &mut files.get_mut(&file).ok_or(MemoryError::Missing)?.bytes;
        match self.appends_left.get() {
            Some(0) => {
                // A torn append, the worst kind of failure.
                held.extend_from_slice(&bytes[..bytes.len() / 2]);
                return Err(MemoryError::NoSpace);
            }
            Some(left) => self.appends_left.set(Some(left - 1)),
            None => {}
        }
        held.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&self, file: RunFile) -> Result<(), MemoryError> {
        let mut files = self.files.borrow_mut();
        let held = files.get_mut(&file).ok_or(MemoryError::Missing)?;
        held.synced = Some(held.bytes.clone());
        Ok(())
    }

    fn read(&self, file: RunFile, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        if file.part == RunPart::Entries {
            self.page_reads.set(self.page_reads.get() + (bytes.len() / 4096) as u64);
        }
        let files = self.files.borrow();
        let held = &files.get(&file).ok_or(MemoryError::Missing)?.bytes;
        let start = offset_bytes as usize;
        let found = held.get(start..start + bytes.len()).ok_or(MemoryError::End)?;
        bytes.copy_from_slice(found);
        Ok(())
    }

    fn length(&self, file: RunFile) -> Result<u64, MemoryError> {
        let files = self.files.borrow();
        Ok(files.get(&file).ok_or(MemoryError::Missing)?.bytes.len() as u64)
    }

    fn delete(&self, run: RunId) -> Result<(), MemoryError> {
        for part in BOTH {
            self.files.borrow_mut().remove(&RunFile { run, part });
        }
        Ok(())
    }
}
