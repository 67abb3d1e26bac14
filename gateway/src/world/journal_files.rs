//! The journal's segments as files, `journal/0000000000000001.log`. Each is allocated when it is made, so that the
//! disk cannot be found full in the middle of one. Zeroes go ahead of the records ([`Stretch`]); recovery sees zeroes
//! either way.

use super::cache_file::{FailedSync, allocate};
use super::stretch::Stretch;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tombolo_core::JournalWrite;

#[derive(Debug)]
pub struct JournalFiles {
    directory: PathBuf,
    segment_bytes: u64,
    segments: Mutex<BTreeMap<u64, Arc<Segment>>>,
    directory_changed: AtomicBool,
    failed_sync: FailedSync,
    /// One sync at a time: what one has begun to bring to the disk another must not take for brought.
    syncing: Mutex<()>,
}

#[derive(Debug)]
struct Segment {
    file: File,
    unsynced: AtomicBool,
    stretch: Stretch,
}

/// Beyond the size at which the core begins a new segment: the last batch may pass it.
const SLACK_BYTES: u64 = 1 << 20;

impl JournalFiles {
    pub fn open(directory: PathBuf, segment_bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        Ok(Self {
            directory,
            segment_bytes,
            segments: Mutex::new(BTreeMap::new()),
            directory_changed: AtomicBool::new(false),
            failed_sync: FailedSync::default(),
            syncing: Mutex::default(),
        })
    }

    pub fn list(&self) -> io::Result<Vec<u64>> {
        let mut segments = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
            segments.extend(number.and_then(|digits| u64::from_str_radix(digits, 16).ok()));
        }
        Ok(segments)
    }

    pub fn read(&self, segment: u64) -> io::Result<Vec<u8>> {
        fs::read(self.path(segment))
    }

    pub fn write(&self, write: &JournalWrite) -> io::Result<()> {
        let segment = self.segment(write.segment)?;
        let end = write.offset + write.bytes.len() as u64;
        segment.stretch.prepare(&segment.file, end)?;
        segment.file.write_all_at(&write.bytes, write.offset)?;
        segment.unsynced.store(true, Ordering::Release);
        Ok(())
    }

    /// Everything written before the call to stable storage.
    pub fn sync(&self) -> io::Result<()> {
        let _turn = self.syncing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.failed_sync.guard(|| self.sync_changed())
    }

    fn sync_changed(&self) -> io::Result<()> {
        let segments: Vec<Arc<Segment>> = self.lock().values().cloned().collect();
        for segment in segments {
            if segment.unsynced.swap(false, Ordering::AcqRel) {
                segment.file.sync_data()?;
            }
        }
        if self.directory_changed.swap(false, Ordering::AcqRel) {
            File::open(&self.directory)?.sync_all()?;
        }
        Ok(())
    }

    /// After recovery: whatever lies in the files to stable storage.
    pub fn sync_existing(&self) -> io::Result<()> {
        for segment in self.list()? {
            File::open(self.path(segment))?.sync_all()?;
        }
        File::open(&self.directory)?.sync_all()
    }

    pub fn remove_below(&self, keep_from: u64) -> io::Result<()> {
        for segment in self.list()?.into_iter().filter(|segment| *segment < keep_from) {
            self.remove(segment)?;
        }
        Ok(())
    }

    /// Ends a segment where recovery stopped reading it.
    pub fn truncate(&self, segment: u64, length_bytes: u64) -> io::Result<()> {
        OpenOptions::new()
            .write(true)
            .open(self.path(segment))?
            .set_len(length_bytes)
    }

    pub fn remove(&self, segment: u64) -> io::Result<()> {
        self.lock().remove(&segment);
        fs::remove_file(self.path(segment))
    }

    fn segment(&self, number: u64) -> io::Result<Arc<Segment>> {
        let mut segments = self.lock();
        if let Some(segment) = segments.get(&number) {
            return Ok(segment.clone());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.path(number))?;
        // A segment that is there already has records, which zeroes must not touch.
        let is_new = file.metadata()?.len() == 0;
        let bytes = self.segment_bytes + SLACK_BYTES;
        allocate(&file, bytes)?;
        self.directory_changed.store(true, Ordering::Release);
        let segment = Arc::new(Segment {
            file,
            unsynced: AtomicBool::new(true),
            stretch: Stretch::new(if is_new { 0 } else { bytes }, bytes),
        });
        segments.insert(number, segment.clone());
        Ok(segment)
    }

    fn path(&self, segment: u64) -> PathBuf {
        self.directory.join(format!("{segment:016x}.log"))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Segment>>> {
        self.segments.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_core::Lsn;

    fn write(offset: u64, bytes: Vec<u8>) -> JournalWrite {
        JournalWrite {
            segment: 1,
            offset,
            bytes,
            lsn: Lsn(0),
            end: Lsn(0),
        }
    }

    #[test]
    fn a_segment_that_is_there_is_not_zeroed() {
        let directory = tempfile::tempdir().unwrap();
        let open = || JournalFiles::open(directory.path().to_owned(), 1 << 20).unwrap();
        open().write(&write(5000, vec![7; 3])).unwrap();
        open().write(&write(0, vec![8; 3])).unwrap();
        let held = open().read(1).unwrap();
        assert_eq!(
            (&held[..4], &held[4999..5004]),
            (&[8, 8, 8, 0][..], &[0, 7, 7, 7, 0][..])
        );
    }
}
