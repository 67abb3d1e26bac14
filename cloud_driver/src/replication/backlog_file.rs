//! The file of a replica's backlog, in the state directory:
//!
//! ```text
//! "TMBREPL1"; then records, each: length u32, the record (`backlog.rs`), sum u64 (XXH3-64 of length and record)
//! ```
//!
//! The first record is the store's URL: another URL is another replica, which begins anew. What was noted is on stable storage
//! when [`BacklogFile::note`] returns, unless it is only a relief. A file whose end cannot be read, as after a power failure, is
//! taken as far as it can be, and a comparison of the listings is asked for.

use super::backlog::{Backlog, Record, RootSalt, Task};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tombolo_base::{Reader, Writer};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"TMBREPL1";
const RECORD_BYTES_MAX: u32 = 4096;
/// The file is written anew when it is longer than this, and several times as long as it has to be.
const REWRITE_BYTES: u64 = 1 << 20;
const REWRITE_TIMES: u64 = 4;

/// The backlog and its file.
#[derive(Debug)]
pub struct BacklogFile {
    path: PathBuf,
    url: String,
    entries_max: usize,
    /// Held while something is written.
    file: Mutex<Written>,
    backlog: Mutex<Backlog>,
}

#[derive(Debug)]
struct Written {
    file: File,
    bytes: u64,
    bytes_when_new: u64,
}

/// Whether a note has to be on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before anybody relies on it.
    Now,
    /// If it is lost, something is done once more.
    Sometime,
}

impl BacklogFile {
    /// As it was left; of a replica that is not known yet, that everything has to be compared.
    pub(super) fn open(path: &Path, url: &str, entries_max: usize, now_s: u64) -> io::Result<Arc<Self>> {
        let (mut backlog, is_whole) = match fs::read(path) {
            Ok(bytes) => read(&bytes, url),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Backlog::default(), false),
            Err(error) => return Err(error),
        };
        if !is_whole {
            backlog.apply(&Record::Compare { time_s: now_s });
        }
        let written = write_anew(path, url, &backlog)?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            url: url.to_owned(),
            entries_max,
            file: Mutex::new(written),
            backlog: Mutex::new(backlog),
        }))
    }

    /// As it is now.
    pub(super) fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes, then counts. Blocks. What does not fit any more is given up for a comparison.
    pub(super) fn note(&self, records: &[Record], durability: Durability, now_s: u64) -> io::Result<()> {
        let mut written = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let added = records
            .iter()
            .filter(|record| matches!(record, Record::Bring { .. } | Record::Remove { .. }));
        let is_too_long = self.backlog().len() + added.count() > self.entries_max;
        let too_long = is_too_long.then_some(Record::Compare { time_s: now_s });
        // Roots and the like count besides. What is given up now no comparison has found.
        let is_given_up =
            |record: &Record| matches!(record, Record::Bring { .. } | Record::Remove { .. } | Record::Compared);
        let others = records.iter().filter(|record| !is_too_long || !is_given_up(record));
        let records: Vec<&Record> = too_long.iter().chain(others).collect();
        let mut bytes = Vec::new();
        records.iter().for_each(|record| frame(&mut bytes, &record.encode()));
        written.file.write_all(&bytes)?;
        written.bytes += bytes.len() as u64;
        if durability == Durability::Now {
            written.file.sync_data()?;
        }
        let mut backlog = self.backlog();
        records.iter().for_each(|record| backlog.apply(record));
        let is_long = written.bytes > REWRITE_BYTES + REWRITE_TIMES * written.bytes_when_new;
        if is_long || is_too_long {
            *written = write_anew(&self.path, &self.url, &backlog)?;
        }
        Ok(())
    }

    /// How many objects more can be noted.
    pub(super) fn room(&self) -> usize {
        self.entries_max.saturating_sub(self.backlog().len())
    }

    /// A replica with this root is this gateway's, which has taken the bucket over from it; what it lacks is to be found out.
    pub fn expect_root(&self, salt: RootSalt) -> io::Result<()> {
        self.note(&[Record::RootFound(salt)], Durability::Now, 0)
    }

    /// What is to be done for an object.
    pub(super) fn task(&self, key: &str) -> Option<Task> {
        self.backlog().task(key)
    }
}

fn frame(out: &mut Vec<u8>, record: &[u8]) {
    let mut writer = Writer::with_capacity(record.len() + 12);
    writer.u32(record.len() as u32).bytes(record);
    let sum = xxh3_64(&writer.0);
    writer.u64(sum);
    out.extend_from_slice(&writer.0);
}

/// Under another name first, so that it is there in full or as it was.
fn write_anew(path: &Path, url: &str, backlog: &Backlog) -> io::Result<Written> {
    let mut bytes = MAGIC.to_vec();
    frame(&mut bytes, url.as_bytes());
    backlog
        .records()
        .iter()
        .for_each(|record| frame(&mut bytes, &record.encode()));
    let new = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    let bytes = bytes.len() as u64;
    Ok(Written {
        file,
        bytes,
        bytes_when_new: bytes,
    })
}

/// As far as it can be read, and whether that is all.
fn read(bytes: &[u8], url: &str) -> (Backlog, bool) {
    let mut backlog = Backlog::default();
    let reader = &mut Reader::new(bytes);
    let is_ours = reader.bytes("magic", MAGIC.len()).is_ok_and(|magic| magic == MAGIC);
    if !is_ours || next(reader).is_none_or(|found| found != url.as_bytes()) {
        return (backlog, false);
    }
    while reader.remaining() > 0 {
        let Some(record) = next(reader).and_then(|bytes| Record::decode(bytes).ok()) else {
            return (backlog, false);
        };
        backlog.apply(&record);
    }
    (backlog, true)
}

fn next<'b>(reader: &mut Reader<'b>) -> Option<&'b [u8]> {
    let length = reader.u32("length").ok()?;
    if length > RECORD_BYTES_MAX {
        return None;
    }
    let record = reader.bytes("record", length as usize).ok()?;
    let mut framed = length.to_le_bytes().to_vec();
    framed.extend_from_slice(record);
    (reader.u64("sum").ok()? == xxh3_64(&framed)).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "s3://bucket";

    fn bring(key: usize) -> Record {
        Record::Bring {
            key: format!("objects/{key}"),
            bytes: 10,
            time_s: 5,
        }
    }

    fn open(path: &Path, entries_max: usize) -> Arc<BacklogFile> {
        BacklogFile::open(path, URL, entries_max, 100).unwrap()
    }

    fn compared(path: &Path, entries_max: usize) -> Arc<BacklogFile> {
        let file = open(path, entries_max);
        assert!(file.backlog().is_to_compare());
        file.note(&[Record::Compared], Durability::Now, 0).unwrap();
        file
    }

    #[test]
    fn what_was_noted_is_there_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("far");
        let file = compared(&path, 10);
        file.note(&[bring(1), bring(2), Record::RootFound([3; 32])], Durability::Now, 0)
            .unwrap();
        file.note(
            &[Record::Settled {
                key: "objects/1".into(),
            }],
            Durability::Sometime,
            0,
        )
        .unwrap();
        let before = file.backlog().records();
        drop(file);
        let file = open(&path, 10);
        assert_eq!(file.backlog().records(), before);
        assert_eq!(file.task("objects/2"), Some(Task::Bring));
        assert!(!file.backlog().is_to_compare());
        let other = BacklogFile::open(&path, "s3://other", 10, 100).unwrap();
        assert!(other.backlog().is_to_compare());
        assert!(!other.backlog().has_had_root());
    }

    #[test]
    fn an_end_that_cannot_be_read_asks_for_a_comparison_and_keeps_the_rest() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("far");
        let file = compared(&path, 10);
        file.note(&[Record::RootFound([3; 32]), bring(1), bring(2)], Durability::Now, 0)
            .unwrap();
        drop(file);
        let whole = fs::read(&path).unwrap();
        for cut in 1..30 {
            fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            let file = open(&path, 10);
            assert!(file.backlog().is_to_compare(), "{cut}");
            assert!(file.backlog().is_own_root(&[3; 32]), "{cut}");
        }
        let mut flipped = whole.clone();
        let last = flipped.len() - 20;
        flipped[last] ^= 1;
        fs::write(&path, &flipped).unwrap();
        assert!(open(&path, 10).backlog().is_to_compare());
    }

    #[test]
    fn what_does_not_fit_is_given_up_for_a_comparison_and_the_root_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("far");
        let file = compared(&path, 3);
        file.note(&[Record::RootFound([3; 32])], Durability::Now, 0).unwrap();
        for key in 0..3 {
            file.note(&[bring(key)], Durability::Now, 50).unwrap();
        }
        assert!(!file.backlog().is_to_compare());
        file.note(&[bring(3)], Durability::Now, 50).unwrap();
        for file in [file, open(&path, 3)] {
            let backlog = file.backlog();
            assert!(backlog.is_to_compare());
            assert_eq!((backlog.len(), backlog.is_own_root(&[3; 32])), (0, true));
            assert_eq!(backlog.behind().since_s, Some(5));
        }
    }

    #[test]
    fn a_comparison_whose_end_does_not_fit_has_to_begin_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = compared(&directory.path().join("far"), 3);
        let compare = Record::Compare { time_s: 4 };
        file.note(&[compare, bring(0), bring(1)], Durability::Now, 50).unwrap();
        assert_eq!(file.room(), 1);
        let removal = |key: &str| Record::Remove {
            key: key.into(),
            time_s: 5,
        };
        file.note(&[removal("a"), removal("b"), Record::Compared], Durability::Now, 50)
            .unwrap();
        assert!(file.backlog().is_to_compare());
    }

    #[test]
    fn the_file_stays_short() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("far");
        let file = compared(&path, 10);
        for round in 0..40_000 {
            let key = format!("objects/{:064}", round % 5);
            let noted = Record::Bring {
                key: key.clone(),
                bytes: 1,
                time_s: 1,
            };
            file.note(&[noted, Record::Settled { key }], Durability::Sometime, 0)
                .unwrap();
        }
        assert!(fs::metadata(&path).unwrap().len() < 2 * REWRITE_BYTES);
    }
}
