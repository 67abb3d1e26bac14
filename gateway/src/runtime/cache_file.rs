//! The cache file: a header, then slots of 4 KiB, written in place, allocated in full when it is made so that a write
//! never finds the disk full. It is made under another name: a file of the right name is whole.

use super::durable_file;
use super::zeroed_ahead::ZeroedAhead;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use tombolo_base::{BLOCK_BYTES, BlockSum, Lcbn, Pvbn};
use tombolo_core::JournalMark;
use tombolo_core::cache_header::{
    CacheHeader, HEADER_BYTES, MARKS_BYTES, MARKS_OFFSET, Mark, encode_mark, file_bytes, slot_offset_bytes,
};

#[derive(Debug)]
pub struct CacheFile {
    file: File,
    header: Vec<u8>,
    failed_sync: FailedSync,
    /// One sync at a time: the kernel tells of a failed write once for each open file, so of two syncs at once one would hear
    /// nothing of what the other failed to bring to the disk.
    syncing: Mutex<()>,
    writes: WriteCount,
    zeroed_ahead: ZeroedAhead,
    marks: Mutex<Marks>,
    /// A file that has the marks too.
    beside: Option<File>,
    pages_dropped: Once,
}

/// What was noted last.
#[derive(Debug, Default)]
struct Marks {
    identity: u64,
    latest: Mark,
    turn: u64,
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

/// What [`CacheFile::note_beside`] has noted; nothing if it cannot be read.
pub fn marks_beside(path: &Path) -> Vec<u8> {
    let read = std::fs::read(path);
    read.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::warn!(path = %path.display(), %error, "what is noted there of what was flushed cannot be read");
        }
        Vec::new()
    })
}

/// Makes a cache file that has another name until [`durable_file::publish`] gives it its own.
pub fn make(path: &Path, header: &CacheHeader) -> io::Result<()> {
    durable_file::make(path, |file| {
        allocate(file, file_bytes(header.slot_count))?;
        file.write_all_at(&header.encode(), 0)
    })
}

/// Makes a cache file that is there one for so many slots, durably. It MUST have room for them, and be used by nobody.
pub fn set_slot_count(path: &Path, slot_count: u32) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut header = vec![0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    let header = CacheHeader::decode(&header).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let header = CacheHeader { slot_count, ..header };
    file.write_all_at(&header.encode(), 0)?;
    file.set_len(file_bytes(slot_count))?;
    file.sync_all()
}

/// Gives a cache file that was cut its length again, and a header. The header comes first: it says that what is replayed was
/// durable, so that slots which are gone are not taken for the end of the journal.
pub fn mend(path: &Path, header: &CacheHeader) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&header.encode(), 0)?;
    file.sync_all()?;
    allocate(&file, file_bytes(header.slot_count))?;
    file.sync_all()
}

/// Lets go of what memory holds of a file that has just been synced, so that the next look at it is one at the medium:
/// after a failed write Linux keeps the page as if it had been written.
pub fn drop_pages(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open; the call touches no memory of ours.
    let result = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    match result {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

impl CacheFile {
    /// `None`: there is none. What an earlier process wrote is brought to the medium first, or it fails.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        file.sync_data()?;
        let mut header = vec![0; HEADER_BYTES];
        let bytes = file.metadata()?.len();
        header.truncate(bytes.min(HEADER_BYTES as u64) as usize);
        file.read_exact_at(&mut header, 0)?;
        let marks = CacheHeader::decode(&header).map_or_else(
            |_| Marks::default(),
            |header| Marks {
                identity: header.identity,
                latest: header.mark,
                turn: 0,
            },
        );
        // Slots are first used in their order. If the file system says otherwise, zeroes are not worth the risk.
        let written_to = end_of_only_data(&file)?.unwrap_or(bytes);
        Ok(Some(Self {
            file,
            header,
            failed_sync: FailedSync::default(),
            syncing: Mutex::default(),
            writes: WriteCount::default(),
            zeroed_ahead: ZeroedAhead::new(written_to, bytes),
            marks: Mutex::new(marks),
            beside: None,
            pages_dropped: Once::new(),
        }))
    }

    /// Its first bytes.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// What its header notes of the length of local metadata's file; `None`: the header cannot be read.
    pub fn noted_metadata_bytes(&self) -> Option<u64> {
        let header = CacheHeader::decode(&self.header).ok();
        header.map(|header| header.mark.metadata_bytes)
    }

    /// How long it is and how long it was made, if it was cut.
    pub fn cut(&self) -> Option<(u64, u64)> {
        let (found, header) = (self.zeroed_ahead.file_bytes(), CacheHeader::decode(&self.header));
        let made = header.map_or(0, |header| file_bytes(header.slot_count));
        (found < made).then_some((found, made))
    }

    /// What is noted from here on is noted in this file too, by which an older copy of this one is told.
    pub fn note_beside(&mut self, path: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let opened = options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        opened.set_len(MARKS_BYTES as u64)?;
        self.beside = Some(opened);
        Ok(())
    }

    /// Notes that everything up to `mark` is on stable storage; the note is when the next sync has passed. Of two that
    /// overtake each other the higher counts.
    pub fn note_journal(&self, mark: JournalMark) {
        self.note(|latest| {
            if mark.lsn > latest.journal.lsn {
                latest.journal = mark;
            }
        });
    }

    /// Notes the length of local metadata's file.
    pub fn note_metadata(&self, bytes: u64) {
        self.note(|latest| latest.metadata_bytes = bytes);
    }

    /// Notes, durably, that the length of local metadata's file is not known: it is to be made again.
    pub fn forget_metadata(&self) -> io::Result<()> {
        // Of two marks the higher counts.
        for _ in 0..2 {
            self.note_metadata(0);
        }
        self.file.sync_data()
    }

    /// Notes where this life begins to give out PVBNs.
    pub fn note_pvbn(&self, next: Pvbn) {
        self.note(|latest| latest.next_pvbn = next.0);
    }

    #[cfg(test)]
    pub fn noted(&self) -> Mark {
        self.marks().latest
    }

    fn note(&self, change: impl FnOnce(&mut Mark)) {
        let mut marks = self.marks();
        change(&mut marks.latest);
        marks.turn += 1;
        let (offset, bytes) = encode_mark(marks.identity, &marks.latest, marks.turn);
        let beside = self.beside.as_ref();
        let written_beside = beside.map_or(Ok(()), |beside| beside.write_all_at(&bytes, offset - MARKS_OFFSET));
        if let Err(error) = self.file.write_all_at(&bytes, offset).and(written_beside) {
            tracing::warn!(%error, "the cache file's note of what is durable could not be written");
        }
    }

    fn marks(&self) -> std::sync::MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Slots below `end` may hold something, whatever the file system says of them. Before the first write.
    pub fn keep_below(&mut self, end: Lcbn) {
        self.zeroed_ahead = ZeroedAhead::new(
            self.zeroed_ahead.written_to().max(slot_offset_bytes(end)),
            self.zeroed_ahead.file_bytes(),
        );
    }

    pub fn write(&self, slot: Lcbn, bytes: &[u8]) -> io::Result<()> {
        let start = slot_offset_bytes(slot);
        self.zeroed_ahead.prepare(&self.file, start + bytes.len() as u64)?;
        self.file.write_all_at(bytes, start)?;
        self.writes.completed.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub fn read(&self, slot: Lcbn, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, slot_offset_bytes(slot))
    }

    /// Reads slots that may lie anywhere, those that follow each other at once. Where that fails each is tried alone.
    pub fn read_each(&self, slots: &[Lcbn], bytes: &mut [u8]) -> Vec<io::Result<()>> {
        let mut results = Vec::with_capacity(slots.len());
        let mut left = bytes;
        for run in slots.chunk_by(|slot, next| slot.0 + 1 == next.0) {
            let (bytes, rest) = left.split_at_mut(run.len() * BLOCK_BYTES);
            left = rest;
            match self.read(run[0], bytes) {
                Ok(()) => results.extend(run.iter().map(|_| Ok(()))),
                Err(_) => {
                    let blocks = run.iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES));
                    results.extend(blocks.map(|(slot, block)| self.read(*slot, block)));
                }
            }
        }
        results
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
                &raw const vector,
                1,
                slot_offset_bytes(slot) as libc::off_t,
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

    /// Of what the medium holds.
    pub fn sum(&self, slot: Lcbn) -> io::Result<BlockSum> {
        self.drop_pages_once()?;
        let mut block = [0; BLOCK_BYTES];
        self.read(slot, &mut block)?;
        Ok(BlockSum::of(&block))
    }

    /// All of them: the kernel passes over a large page of which it is asked to drop a part.
    fn drop_pages_once(&self) -> io::Result<()> {
        let mut result = Ok(());
        self.pages_dropped.call_once(|| result = drop_pages(&self.file));
        result
    }

    /// One slot's bytes to another.
    pub fn copy(&self, from: Lcbn, to: Lcbn) -> io::Result<()> {
        let mut block = [0; BLOCK_BYTES];
        self.read(from, &mut block)?;
        self.write(to, &block)
    }

    /// Reserves room for so many slots, if it has less. The header still says what it was made for.
    pub fn reserve(&self, slot_count: u32) -> io::Result<()> {
        let before = self.file.metadata()?.len();
        let reserved = match file_bytes(slot_count) {
            bytes if bytes > before => allocate(&self.file, bytes),
            _ => return Ok(()),
        };
        reserved.inspect_err(|_| drop(self.file.set_len(before)))
    }

    /// False when a sync would change nothing: every write that has returned is on stable storage.
    pub fn needs_sync(&self) -> bool {
        let completed = self.writes.completed.load(Ordering::Acquire);
        self.failed_sync.has_failed() || completed != self.writes.synced.load(Ordering::Acquire)
    }

    /// Brings every write that has returned to stable storage.
    pub fn sync(&self) -> io::Result<()> {
        let _alone = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
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
    use tombolo_core::cache_header::decode_marks;

    fn open(path: &Path, slot_count: u32) -> CacheFile {
        if !path.exists() {
            let header = CacheHeader {
                identity: 7,
                slot_count,
                mark: Mark::default(),
            };
            make(path, &header).unwrap();
            assert!(CacheFile::open(path).unwrap().is_none(), "not yet under its name");
            durable_file::publish(path).unwrap();
        }
        CacheFile::open(path).unwrap().unwrap()
    }

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
        let file = open(&directory.path().join("cache"), 4);
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
    fn slots_are_written_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let file = open(&path, 4);
        file.write(Lcbn(2), &[7; BLOCK_BYTES]).unwrap();
        drop(file);
        let file = open(&path, 4);
        assert_eq!(file.sum(Lcbn(2)).unwrap(), BlockSum::of(&[7; BLOCK_BYTES]));
        assert_eq!(file.sum(Lcbn(1)).unwrap(), BlockSum::of(&[0; BLOCK_BYTES]));
        let mut bytes = [0; BLOCK_BYTES];
        file.read(Lcbn(2), &mut bytes).unwrap();
        assert!(
            file.try_read(Lcbn(2), &mut bytes).unwrap(),
            "what was read is in memory"
        );
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
            let file = open(&path, 200);
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
        assert_eq!(std::fs::metadata(&path).unwrap().len(), file_bytes(200));
    }

    #[test]
    fn a_mark_is_found_by_the_next_process_and_a_cut_file_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let file = open(&path, 4);
        assert_eq!((file.noted(), file.cut()), (Mark::default(), None));
        for lsn in 1..=3 {
            file.note_journal(JournalMark {
                segment: 2,
                lsn: tombolo_core::Lsn(lsn),
            });
        }
        file.note_metadata(9);
        let noted = file.noted();
        assert_eq!((noted.journal.lsn.0, noted.metadata_bytes), (3, 9));
        assert_eq!(open(&path, 4).noted(), noted);
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(9_000)
            .unwrap();
        assert_eq!(open(&path, 4).cut(), Some((9_000, file_bytes(4))));
    }

    #[test]
    fn what_is_noted_is_noted_beside_the_file_too() {
        let directory = tempfile::tempdir().unwrap();
        let (path, beside) = (directory.path().join("cache"), directory.path().join("flushed"));
        assert!(marks_beside(&beside).is_empty());
        let mut file = open(&path, 4);
        file.note_beside(&beside).unwrap();
        for lsn in 1..=3 {
            file.note_journal(JournalMark {
                segment: 2,
                lsn: tombolo_core::Lsn(lsn),
            });
            let marks = marks_beside(&beside);
            assert_eq!((marks.len(), decode_marks(&marks, 7)), (MARKS_BYTES, file.noted()));
        }
    }

    #[test]
    fn a_mended_file_has_its_length_what_was_left_and_the_header_that_it_was_given() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let file = open(&path, 4);
        file.write(Lcbn(0), &[7; BLOCK_BYTES]).unwrap();
        drop(file);
        let cut = OpenOptions::new().write(true).open(&path).unwrap();
        cut.set_len(slot_offset_bytes(Lcbn(1))).unwrap();
        cut.write_all_at(&[0; 1024], 0).unwrap();
        let mut header = CacheHeader {
            identity: 7,
            slot_count: 4,
            mark: Mark::default(),
        };
        header.mark.journal.lsn = tombolo_core::Lsn(5);
        mend(&path, &header).unwrap();
        let file = open(&path, 4);
        assert_eq!((file.cut(), file.noted()), (None, header.mark));
        assert_eq!(CacheHeader::decode(file.header()), Ok(header));
        assert_eq!(file.sum(Lcbn(0)).unwrap(), BlockSum::of(&[7; BLOCK_BYTES]));
        assert_eq!(file.sum(Lcbn(3)).unwrap(), BlockSum::of(&[0; BLOCK_BYTES]));
    }

    #[test]
    fn the_length_of_local_metadata_is_forgotten_for_the_next_process_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let file = open(&path, 4);
        for bytes in [5, 9] {
            file.note_metadata(bytes);
        }
        file.forget_metadata().unwrap();
        assert_eq!(open(&path, 4).noted().metadata_bytes, 0);
    }

    #[test]
    fn slots_in_use_are_kept_whatever_the_file_system_says() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let mut file = open(&path, 200);
        let behind = OpenOptions::new().write(true).open(&path).unwrap();
        behind
            .write_all_at(&[9; BLOCK_BYTES], slot_offset_bytes(Lcbn(20)))
            .unwrap();
        file.keep_below(Lcbn(21));
        file.write(Lcbn(3), &[1; BLOCK_BYTES]).unwrap();
        assert_eq!(file.sum(Lcbn(20)).unwrap(), BlockSum::of(&[9; BLOCK_BYTES]));
    }
}
