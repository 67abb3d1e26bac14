//! The journal's segments as files, `journal/0000000000000001.log`. Each is allocated, durably, before it gets its
//! name, so that the disk cannot be found full in the middle of one, and a file that is shorter was cut. One is made
//! ahead, `journal/spare`. Zeroes go ahead of the records ([`ZeroedAhead`]); recovery sees zeroes either way.

use super::cache_file::{FailedSync, allocate, drop_pages};
use super::durable_file;
use super::zeroed_ahead::ZeroedAhead;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tombolo_core::{JournalWrite, allocated_bytes};

#[derive(Debug)]
pub struct JournalFiles {
    directory: PathBuf,
    allocated_bytes: u64,
    segments: Mutex<BTreeMap<u64, Arc<Segment>>>,
    making_spare: Mutex<()>,
    directory_changed: AtomicBool,
    failed_sync: FailedSync,
    /// One sync at a time: what one has begun to bring to the disk another must not take for brought.
    syncing: Mutex<()>,
}

#[derive(Debug)]
struct Segment {
    file: File,
    unsynced: AtomicBool,
    zeroed_ahead: ZeroedAhead,
}

/// The numbers of a journal's segments, in no order. A file of any other name is nothing of ours: were it a segment that
/// somebody renamed, that segment is missed, and recovery says so.
pub fn segments_in(directory: &Path) -> io::Result<Vec<u64>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
        let number = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        segments.extend(number.filter(|number| *name == *segment_name(*number)));
    }
    Ok(segments)
}

fn segment_name(segment: u64) -> String {
    format!("{segment:016x}.log")
}

impl JournalFiles {
    /// In a directory that is there: one that is not is a journal that is lost. What will be read is what the medium
    /// holds: what an earlier process wrote is brought there first, or it fails.
    pub fn open(directory: PathBuf, segment_bytes: u64) -> io::Result<Self> {
        let files = Self {
            directory,
            allocated_bytes: allocated_bytes(segment_bytes),
            segments: Mutex::new(BTreeMap::new()),
            making_spare: Mutex::new(()),
            directory_changed: AtomicBool::new(false),
            failed_sync: FailedSync::default(),
            syncing: Mutex::default(),
        };
        for segment in files.list()? {
            let file = File::open(files.path(segment))?;
            file.sync_data()?;
            drop_pages(&file)?;
        }
        Ok(files)
    }

    pub fn list(&self) -> io::Result<Vec<u64>> {
        segments_in(&self.directory)
    }

    pub fn read(&self, segment: u64) -> io::Result<Vec<u8>> {
        fs::read(self.path(segment))
    }

    pub fn write(&self, write: &JournalWrite) -> io::Result<()> {
        let segment = self.segment(write.segment)?;
        let end = write.offset + write.bytes.len() as u64;
        segment.zeroed_ahead.prepare(&segment.file, end)?;
        segment.file.write_all_at(&write.bytes, write.offset)?;
        segment.unsynced.store(true, Ordering::Release);
        Ok(())
    }

    /// Everything written before the call to stable storage.
    pub fn sync(&self) -> io::Result<()> {
        let _turn = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
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
            durable_file::sync_directory(&self.directory)?;
        }
        Ok(())
    }

    /// After recovery: whatever lies in the files to stable storage.
    pub fn sync_existing(&self) -> io::Result<()> {
        for segment in self.list()? {
            File::open(self.path(segment))?.sync_all()?;
        }
        durable_file::sync_directory(&self.directory)
    }

    pub fn remove_below(&self, keep_from: u64) -> io::Result<()> {
        for segment in self.list()?.into_iter().filter(|segment| *segment < keep_from) {
            self.remove(segment)?;
        }
        Ok(())
    }

    /// Ends a segment where recovery stopped reading it. The file keeps its length.
    pub fn zero_from(&self, segment: u64, offset: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.path(segment))?;
        let end = file.metadata()?.len();
        let zeroes = vec![0; 1 << 20];
        let mut at = offset;
        while at < end {
            let bytes = zeroes.len().min((end - at) as usize);
            file.write_all_at(&zeroes[..bytes], at)?;
            at += bytes as u64;
        }
        Ok(())
    }

    /// Makes the next segment ahead of its use, if there is none.
    pub fn make_spare(&self) -> io::Result<()> {
        let _making = self.making_spare.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = self.spare();
        if fs::metadata(&spare).is_ok_and(|found| found.len() == self.allocated_bytes) {
            return Ok(());
        }
        durable_file::make(&spare, |file| allocate(file, self.allocated_bytes))?;
        // Not published: one that a power failure takes is made again, and a segment's name is synced with its records.
        let new = durable_file::new_path(&spare);
        fs::rename(&new, &spare).inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })
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
        let path = self.path(number);
        let is_new = !path.exists();
        if is_new {
            self.make_spare()?;
            fs::rename(self.spare(), &path)?;
        }
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        self.directory_changed.store(true, Ordering::Release);
        // A segment that is there already has records, which zeroes must not touch.
        let bytes = file.metadata()?.len();
        let segment = Arc::new(Segment {
            file,
            unsynced: AtomicBool::new(true),
            zeroed_ahead: ZeroedAhead::new(if is_new { 0 } else { bytes }, bytes),
        });
        segments.insert(number, segment.clone());
        Ok(segment)
    }

    fn spare(&self) -> PathBuf {
        self.directory.join("spare")
    }

    fn path(&self, segment: u64) -> PathBuf {
        self.directory.join(segment_name(segment))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Segment>>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn a_file_of_another_name_is_not_a_segment() {
        let directory = tempfile::tempdir().unwrap();
        let files = JournalFiles::open(directory.path().to_owned(), 1 << 20).unwrap();
        files.write(&write(0, vec![7; 3])).unwrap();
        for name in [
            "2.log",
            "+000000000000002.log",
            "000000000000000A.log",
            "0000000000000003.log.old",
        ] {
            fs::write(directory.path().join(name), b"not ours").unwrap();
        }
        assert_eq!(files.list().unwrap(), [1]);
    }

    #[test]
    fn a_segment_ends_where_recovery_ended_it_and_keeps_its_length() {
        let directory = tempfile::tempdir().unwrap();
        let files = JournalFiles::open(directory.path().to_owned(), 1 << 20).unwrap();
        files.write(&write(0, vec![7; 3_000_000])).unwrap();
        let length = files.read(1).unwrap().len();
        files.zero_from(1, 1_234).unwrap();
        let held = files.read(1).unwrap();
        assert_eq!(held.len(), length);
        assert!(held[..1_234].iter().all(|byte| *byte == 7) && held[1_234..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_segment_is_made_ahead_once_and_has_its_length() {
        let directory = tempfile::tempdir().unwrap();
        let files = JournalFiles::open(directory.path().to_owned(), 1 << 20).unwrap();
        let length = |name: &str| fs::metadata(directory.path().join(name)).map(|found| found.len()).ok();
        files.make_spare().unwrap();
        files.make_spare().unwrap();
        assert_eq!(length("spare"), Some(allocated_bytes(1 << 20)));
        files.write(&write(0, vec![7; 3])).unwrap();
        assert_eq!(length("spare"), None, "taken");
        assert_eq!(length("0000000000000001.log"), Some(allocated_bytes(1 << 20)));
        files.make_spare().unwrap();
        // The setting has changed: a spare of another size does not do.
        JournalFiles::open(directory.path().to_owned(), 2 << 20)
            .unwrap()
            .make_spare()
            .unwrap();
        assert_eq!(length("spare"), Some(allocated_bytes(2 << 20)));
        assert_eq!(files.list().unwrap(), [1]);
    }
}
