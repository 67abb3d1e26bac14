//! The cache file: slots of 4 KiB, written in place, allocated in full when it is made so that a write never finds the
//! disk full.

use super::stretch::Stretch;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tombolo_base::{BLOCK_BYTES, BlockSum, Lcbn};

#[derive(Debug)]
pub struct CacheFile {
    file: File,
    is_new: bool,
    failed_sync: FailedSync,
    writes: WriteCount,
    stretch: Stretch,
}

/// Tells whether anything was written since the last sync: a change of names alone leaves the cache file as it is.
#[derive(Debug)]
struct WriteCount {
    completed: AtomicU64,
    /// All writes up to this one are on stable storage.
    synced: AtomicU64,
}

impl Default for WriteCount {
    /// What an earlier process wrote may not be on stable storage, so the first sync is a real one.
    fn default() -> Self {
        Self {
            completed: AtomicU64::new(1),
            synced: AtomicU64::new(0),
        }
    }
}

/// Remembers that a sync has failed: the kernel drops the pages that it could not write and lets the next sync
/// succeed, so after one failure none may be believed until a restart has looked at what the disk really holds.
#[derive(Debug, Default)]
pub struct FailedSync(AtomicBool);

impl FailedSync {
    fn has_failed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub fn guard(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if self.has_failed() {
            return Err(io::Error::other(
                "an earlier sync failed; restart the gateway when the disk is mended",
            ));
        }
        sync().inspect_err(|_| self.0.store(true, Ordering::Release))
    }
}

impl CacheFile {
    pub fn open(path: &Path, slot_count: u32) -> io::Result<Self> {
        let bytes = u64::from(slot_count) * BLOCK_BYTES as u64;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        let is_new = file.metadata()?.len() == 0;
        if file.metadata()?.len() != bytes {
            allocate(&file, bytes)?;
            file.set_len(bytes)?;
            file.sync_all()?;
        }
        // Slots are first used in their order. If the file system says otherwise, zeroes are not worth the risk.
        let written_to = end_of_only_data(&file)?.unwrap_or(bytes);
        Ok(Self {
            file,
            is_new,
            failed_sync: FailedSync::default(),
            writes: WriteCount::default(),
            stretch: Stretch::new(written_to, bytes),
        })
    }

    /// Slots below `end` may hold something, whatever the file system says of them. Before the first write.
    pub fn keep_below(&mut self, end: Lcbn) {
        self.stretch = Stretch::new(
            self.stretch.written_to().max(end.offset_bytes()),
            self.stretch.file_bytes(),
        );
    }

    /// The file was not there, so no slot holds anything.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    pub fn write(&self, slot: Lcbn, bytes: &[u8]) -> io::Result<()> {
        let start = slot.offset_bytes();
        self.stretch.prepare(&self.file, start + bytes.len() as u64)?;
        self.file.write_all_at(bytes, start)?;
        self.writes.completed.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub fn read(&self, slot: Lcbn, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, slot.offset_bytes())
    }

    /// Reads only what the kernel holds in memory; false when that is not all of it.
    pub fn try_read(&self, slot: Lcbn, bytes: &mut [u8]) -> io::Result<bool> {
        let vector = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: the vector describes `bytes`, which outlives the call, and the descriptor is open.
        let read = unsafe {
            libc::preadv2(
                self.file.as_raw_fd(),
                &vector,
                1,
                slot.offset_bytes() as libc::off_t,
                libc::RWF_NOWAIT,
            )
        };
        if read >= 0 {
            return Ok(read as usize == bytes.len());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EOPNOTSUPP | libc::EINTR) => Ok(false),
            _ => Err(error),
        }
    }

    pub fn sum(&self, slot: Lcbn) -> io::Result<BlockSum> {
        let mut block = [0; BLOCK_BYTES];
        self.read(slot, &mut block)?;
        Ok(BlockSum::of(&block))
    }

    /// False when a sync would change nothing: every write that has returned is on stable storage.
    pub fn needs_sync(&self) -> bool {
        let completed = self.writes.completed.load(Ordering::Acquire);
        self.failed_sync.has_failed() || completed != self.writes.synced.load(Ordering::Acquire)
    }

    /// Brings every write that has returned to stable storage.
    pub fn sync(&self) -> io::Result<()> {
        let completed = self.writes.completed.load(Ordering::Acquire);
        self.failed_sync.guard(|| self.file.sync_data())?;
        self.writes.synced.fetch_max(completed, Ordering::Release);
        Ok(())
    }
}

/// Where the data at the beginning of the file ends, if there is none behind. Space that was reserved and never written
/// is none.
fn end_of_only_data(file: &File) -> io::Result<Option<u64>> {
    let hole = match seek(file, 0, libc::SEEK_HOLE) {
        Ok(hole) => hole,
        // An empty file.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(Some(0)),
        Err(error) => return Err(error),
    };
    match seek(file, hole, libc::SEEK_DATA) {
        Ok(_) => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(Some(hole)),
        Err(error) => Err(error),
    }
}

fn seek(file: &File, from: u64, whence: libc::c_int) -> io::Result<u64> {
    // SAFETY: the descriptor is open; the call touches no memory of ours, and nobody uses the file's position.
    let found = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, whence) };
    u64::try_from(found).map_err(|_| io::Error::last_os_error())
}

/// Reserves the file's blocks on disk.
pub fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    // SAFETY: the descriptor is open; the call touches no memory of ours.
    let result = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) };
    match result {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_one_failed_sync_none_succeeds() {
        let syncs = FailedSync::default();
        assert!(syncs.guard(|| Ok(())).is_ok());
        assert!(syncs.guard(|| Err(io::Error::other("EIO"))).is_err());
        assert!(syncs.guard(|| Ok(())).is_err());
    }

    #[test]
    fn a_sync_is_needed_at_first_and_after_every_write() {
        let directory = tempfile::tempdir().unwrap();
        let file = CacheFile::open(&directory.path().join("cache"), 4).unwrap();
        assert!(file.needs_sync(), "an earlier process may have written");
        file.sync().unwrap();
        assert!(!file.needs_sync());
        file.write(Lcbn(2), &[7; BLOCK_BYTES]).unwrap();
        assert!(file.needs_sync());
        file.sync().unwrap();
        assert!(!file.needs_sync());
        file.failed_sync.guard(|| Err(io::Error::other("EIO"))).unwrap_err();
        assert!(file.needs_sync(), "after a failure no sync is left out");
    }

    #[test]
    fn slots_are_written_in_place_and_a_new_file_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let file = CacheFile::open(&path, 4).unwrap();
        assert!(file.is_new());
        file.write(Lcbn(2), &[7; BLOCK_BYTES]).unwrap();
        drop(file);
        let file = CacheFile::open(&path, 4).unwrap();
        assert!(!file.is_new());
        assert_eq!(file.sum(Lcbn(2)).unwrap(), BlockSum::of(&[7; BLOCK_BYTES]));
        assert_eq!(file.sum(Lcbn(1)).unwrap(), BlockSum::of(&[0; BLOCK_BYTES]));
        let mut bytes = [0; BLOCK_BYTES];
        assert!(file.try_read(Lcbn(2), &mut bytes).unwrap(), "fresh pages are in memory");
        assert_eq!(bytes, [7; BLOCK_BYTES]);
    }

    #[test]
    fn zeroes_ahead_of_new_slots_never_fall_on_used_ones() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let pattern = |slot: u32| [slot as u8 + 1; BLOCK_BYTES];
        let fill = |file: &CacheFile, slots: &[u32]| {
            for slot in slots {
                file.write(Lcbn(*slot), &pattern(*slot)).unwrap();
            }
        };
        let mut written: Vec<u32> = Vec::new();
        // Each time another process, which goes on where it likes.
        for slots in [&[2, 1, 0][..], &[70, 3], &[199, 5], &[150, 71]] {
            let file = CacheFile::open(&path, 200).unwrap();
            fill(&file, slots);
            written.extend(slots);
            for slot in &written {
                assert_eq!(
                    file.sum(Lcbn(*slot)).unwrap(),
                    BlockSum::of(&pattern(*slot)),
                    "slot {slot}"
                );
            }
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 200 * BLOCK_BYTES as u64);
    }

    #[test]
    fn slots_in_use_are_kept_whatever_the_file_system_says() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let mut file = CacheFile::open(&path, 200).unwrap();
        let behind = OpenOptions::new().write(true).open(&path).unwrap();
        behind.write_all_at(&[9; BLOCK_BYTES], Lcbn(20).offset_bytes()).unwrap();
        file.keep_below(Lcbn(21));
        file.write(Lcbn(3), &[1; BLOCK_BYTES]).unwrap();
        assert_eq!(file.sum(Lcbn(20)).unwrap(), BlockSum::of(&[9; BLOCK_BYTES]));
    }
}
