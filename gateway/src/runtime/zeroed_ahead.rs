//! Zeroes ahead of the data in a preallocated file.
//!
//! Blocks that are allocated but were never written make a sync slow: the file system has to note in its own journal
//! that they hold something now. So whoever first writes beyond what was written puts a stretch of zeroes behind his
//! data, and of the syncs only the one that follows such a stretch pays; the others write a few blocks in place.
//!
//! Invariant: nobody has written beyond `written_to`, since everybody passes [`ZeroedAhead::prepare`] before he writes. So
//! zeroes, which go there only, never fall on data, whatever the order in which threads come.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Zeroes at a time: some hundred of the journal's records, or 64 slots, and less time to write than a sync takes.
const STRETCH_BYTES: u64 = 256 << 10;
/// Written one by one: Linux takes the length of a write as a hint and would hold a whole stretch in one large piece of
/// its cache, all of which ext4 walks through whenever a little is written into it.
const ZEROES: [u8; 4096] = [0; 4096];

#[derive(Debug)]
pub struct ZeroedAhead {
    /// Bytes below were written, or are being written by their owners.
    written_to: AtomicU64,
    growing: Mutex<()>,
    file_bytes: u64,
}

impl ZeroedAhead {
    /// Of a file of `file_bytes` in which nothing lies from `written_to` on.
    pub fn new(written_to: u64, file_bytes: u64) -> Self {
        Self {
            written_to: AtomicU64::new(written_to),
            growing: Mutex::new(()),
            file_bytes,
        }
    }

    pub fn written_to(&self) -> u64 {
        self.written_to.load(Ordering::Acquire)
    }

    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// To be called before anything is written that ends at `end`.
    pub fn prepare(&self, file: &File, end: u64) -> io::Result<()> {
        if end <= self.written_to() {
            return Ok(());
        }
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if end <= self.written_to() {
            return Ok(());
        }
        let to = end.next_multiple_of(STRETCH_BYTES).min(self.file_bytes);
        let mut at = end;
        while at < to {
            let bytes = ZEROES.len().min((to - at) as usize);
            file.write_all_at(&ZEROES[..bytes], at)?;
            at += bytes as u64;
        }
        self.written_to.store(at, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const FILE_BYTES: u64 = 5 << 20;

    /// Pieces of one file, written by several threads in any order.
    #[test]
    fn zeroes_never_fall_on_data() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_len(FILE_BYTES).unwrap();
        let zeroed_ahead = ZeroedAhead::new(0, FILE_BYTES);
        let (piece, count) = (100_000, 50);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (file, zeroed_ahead) = (&file, &zeroed_ahead);
                scope.spawn(move || {
                    let mut own: Vec<u64> = (0..count).filter(|index| index % 4 == thread).collect();
                    if thread % 2 == 0 {
                        own.reverse();
                    }
                    for index in own {
                        zeroed_ahead.prepare(file, (index + 1) * piece).unwrap();
                        let bytes = vec![index as u8 + 1; piece as usize];
                        file.write_all_at(&bytes, index * piece).unwrap();
                    }
                });
            }
        });
        let held = fs::read(&path).unwrap();
        assert_eq!(held.len() as u64, FILE_BYTES, "no longer than it was");
        for (index, bytes) in held.chunks(piece as usize).take(count as usize).enumerate() {
            assert!(bytes.iter().all(|byte| *byte == index as u8 + 1), "piece {index}");
        }
        assert!(held[(count * piece) as usize..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_was_written_before_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, vec![7; 10_000]).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let zeroed_ahead = ZeroedAhead::new(10_000, 20_000);
        zeroed_ahead.prepare(&file, 5_000).unwrap();
        assert_eq!(fs::read(&path).unwrap(), vec![7; 10_000]);
        zeroed_ahead.prepare(&file, 10_001).unwrap();
        let held = fs::read(&path).unwrap();
        assert_eq!(held.len(), 20_000);
        assert!(held[..10_000].iter().all(|byte| *byte == 7) && held[10_000..].iter().all(|byte| *byte == 0));
    }
}
