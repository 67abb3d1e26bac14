//! Whether this start has found all that earlier ones had answered. As long as each does, the *generation* goes on; a
//! start that may have lost something has another one, and clients that lived through it hear of that.
//!
//! Mechanism: a small file in the runtime directory, mapped, says up to where the journal had been written when changes
//! were answered. It is never synced: what of it a power failure loses does not matter, for then no client of this
//! machine lives on. A kill loses nothing of it, as it loses nothing of the journal. So a journal that ends below it has
//! lost what was answered: a sync had failed, or an older copy of the state directory was put back.
//!
//! A state directory that has been served with another runtime directory meanwhile may have lost as much and grown past it
//! again. So its file `generation` holds the number of the last one, which has to be the same.
//!
//! The file of another boot, an altered one and a missing one say nothing, and the generation is another one. A new
//! generation is *settled* once nothing is left of what clients held in the one before; a start that was killed before
//! that is followed by another new generation. docs/FORMAT.md has the bytes.

use super::fresh_identity;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use tombolo_base::BlockSum;
use tombolo_core::Lsn;
use tombolo_core::recovery::LSN_GAP_BITS;

const MAGIC: &[u8; 8] = b"TMBGENR1";
const LAST_MAGIC: &[u8; 8] = b"TMBLAST1";
const LAST_BYTES: usize = 24;
const BOOT_BYTES: usize = 16;
const SUM_AT: usize = 40;
const LSN_AT: usize = 48;
const SETTLED_AT: usize = 56;
const FILE_BYTES: usize = 64;
/// Anything else is not settled.
const SETTLED: u64 = u64::from_le_bytes(*b"SETTLED\0");
/// Bits of a generation's number that tell it from the one before, and are never all zero.
pub const TAG_BITS: u32 = 16;
const HISTORY_SHIFT: u32 = 32;

/// A number of the machine's present boot; zeroes if it cannot be told.
type Boot = [u8; BOOT_BYTES];

/// What a start has found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Of the state directory.
    pub identity: u64,
    pub journal_end: Lsn,
}

#[derive(Clone, Copy, Debug)]
pub struct Directories<'a> {
    pub state: &'a Path,
    /// Where clients that live through a restart of the gateway find it.
    pub runtime: &'a Path,
}

/// Why a generation does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Break {
    #[error("nothing is known of an earlier start of this boot")]
    Unknown,
    #[error("the gateway was killed at a start before it had served anybody, or a loss was accepted")]
    Unsettled,
    #[error("the state directory is a copy, or was served with another runtime directory meanwhile")]
    ServedElsewhere,
    #[error("the journal ends at LSN {}, but changes up to LSN {} had been answered", .end.0, .noted.0)]
    Lost { end: Lsn, noted: Lsn },
}

#[derive(Debug)]
pub struct Generation {
    note: Note,
    number: u64,
    is_new: bool,
}

impl Generation {
    /// Before this start changes anything else of what it has found. The runtime directory is made when it is missing.
    pub fn open(directories: Directories, found: Found) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directories.runtime)?;
        Self::open_in_boot(directories, found, boot())
    }

    fn open_in_boot(directories: Directories, found: Found, boot: Boot) -> io::Result<Self> {
        let path = directories.runtime.join(file_name(found.identity));
        let last = LastServed::read(directories.state)?;
        let before = Header::read(&path);
        let goes_on = match before.filter(|before| before.identity == found.identity && before.boot == boot) {
            Some(before) if !last.permits(before.number) => Err(Break::ServedElsewhere),
            Some(before) => go_on(&path, before, found.journal_end)?,
            None => Err(Break::Unknown),
        };
        let generation = match goes_on {
            Ok(same) => same,
            Err(reason) => {
                tell(reason);
                let number = fresh(before.map(|before| before.number), history(&found, reason));
                let identity = found.identity;
                let header = Header { identity, boot, number };
                Self {
                    note: header.publish(&path, found.journal_end)?,
                    number,
                    is_new: true,
                }
            }
        };
        // After the new one's file, which is not settled: a kill in between is followed by yet another generation.
        last.replace(directories.state, generation.number)?;
        Ok(generation)
    }

    /// What was answered is about to be given up, so the next start begins another generation, whenever that is.
    pub fn end(runtime: &Path, identity: u64) -> io::Result<()> {
        let path = runtime.join(file_name(identity));
        // One of which nothing can be read has ended.
        if Header::read(&path).is_some() {
            Note::open(&path)?.field(SETTLED_AT).store(0, Ordering::Release);
        }
        Ok(())
    }

    /// Another one after each start that may have lost what was answered; its lowest [`TAG_BITS`] too, and its upper half if
    /// it may have lost what was flushed.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What clients hold of earlier generations is to be ended before anybody is served.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// That has been done.
    pub fn settle(&self) {
        self.note.field(SETTLED_AT).store(SETTLED, Ordering::Release);
    }

    /// Everything below `written` is in the journal's files; before anybody is answered because of that.
    pub fn note(&self, written: Lsn) {
        self.note.field(LSN_AT).store(written.0, Ordering::Release);
    }
}

fn file_name(identity: u64) -> String {
    format!("generation-{identity:016x}")
}

fn go_on(path: &Path, before: Header, end: Lsn) -> io::Result<Result<Generation, Break>> {
    let note = Note::open(path)?;
    let noted = Lsn(note.field(LSN_AT).load(Ordering::Acquire));
    if noted > end {
        return Ok(Err(Break::Lost { end, noted }));
    }
    if note.field(SETTLED_AT).load(Ordering::Acquire) != SETTLED {
        return Ok(Err(Break::Unsettled));
    }
    note.field(LSN_AT).store(end.0, Ordering::Release);
    Ok(Ok(Generation {
        note,
        number: before.number,
        is_new: false,
    }))
}

fn tell(reason: Break) {
    match reason {
        Break::Lost { .. } => tracing::warn!(
            %reason,
            "what was answered and not flushed is lost; clients that lived through it get an error at their next sync"
        ),
        Break::ServedElsewhere => tracing::warn!(
            %reason,
            "what clients on this machine were answered may be lost; those that lived through it get an error at their next sync"
        ),
        Break::Unknown | Break::Unsettled => tracing::info!(
            %reason,
            "a new generation begins; mounts and targets that lived through this start hear of it"
        ),
    }
}

/// The upper half of the number: the same for generations of which none has lost what was flushed. A recovery has another
/// identity, an accepted loss of the journal other positions; of a copy nobody knows what it lacks.
fn history(found: &Found, reason: Break) -> u64 {
    let number = match reason {
        Break::ServedElsewhere => fresh_identity(),
        Break::Unknown | Break::Unsettled | Break::Lost { .. } => {
            let positions = found.journal_end.0 >> LSN_GAP_BITS;
            BlockSum::of(&[found.identity.to_le_bytes(), positions.to_le_bytes()].concat()).0
        }
    };
    number >> HISTORY_SHIFT
}

fn fresh(before: Option<u64>, history: u64) -> u64 {
    let tag = |number: u64| number & ((1 << TAG_BITS) - 1);
    loop {
        let number = history << HISTORY_SHIFT | fresh_identity() >> HISTORY_SHIFT;
        if tag(number) != 0 && before.is_none_or(|before| tag(before) != tag(number)) {
            return number;
        }
    }
}

/// The service may be kept from it, as by `ProcSubset=pid`; then the runtime directory, which a boot clears, has to do.
fn boot() -> Boot {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16)
        .map(u128::to_be_bytes)
        .unwrap_or_default()
}

/// What does not change as long as the generation goes on.
#[derive(Clone, Copy, Debug)]
struct Header {
    identity: u64,
    boot: Boot,
    number: u64,
}

impl Header {
    fn encode(&self) -> [u8; LSN_AT] {
        let mut bytes = [0; LSN_AT];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.identity.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.boot);
        bytes[32..SUM_AT].copy_from_slice(&self.number.to_le_bytes());
        let sum = BlockSum::of(&bytes[..SUM_AT]);
        bytes[SUM_AT..].copy_from_slice(&sum.0.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; FILE_BYTES]) -> Option<Self> {
        let number = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(field)
        };
        let mut boot = [0; BOOT_BYTES];
        boot.copy_from_slice(&bytes[16..32]);
        let header = Self {
            identity: number(8),
            boot,
            number: number(32),
        };
        (header.encode()[..] == bytes[..LSN_AT]).then_some(header)
    }

    fn read(path: &Path) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        Self::decode(bytes.as_slice().try_into().ok()?)
    }

    /// Not settled. It gets its name when it is whole, in place of the one before.
    fn publish(&self, path: &Path, lsn: Lsn) -> io::Result<Note> {
        let new = path.with_extension("new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&new)?;
        let mut bytes = [0; FILE_BYTES];
        bytes[..LSN_AT].copy_from_slice(&self.encode());
        bytes[LSN_AT..SETTLED_AT].copy_from_slice(&lsn.0.to_le_bytes());
        file.write_all_at(&bytes, 0)?;
        let note = Note::map(&file)?;
        fs::rename(&new, path)?;
        Ok(note)
    }
}

/// The number of the generation that served the state directory last, as its file `generation` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastServed {
    /// Of before that was noted.
    NotNoted,
    Unreadable,
    Generation(u64),
}

impl LastServed {
    const NAME: &str = "generation";

    fn read(state: &Path) -> io::Result<Self> {
        let bytes = match fs::read(state.join(Self::NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::NotNoted),
            other => other?,
        };
        let number = bytes
            .get(8..16)
            .and_then(|field| field.try_into().ok())
            .map(u64::from_le_bytes);
        Ok(match number {
            Some(number) if bytes == Self::encode(number) => Self::Generation(number),
            _ => Self::Unreadable,
        })
    }

    fn encode(number: u64) -> [u8; LAST_BYTES] {
        let mut bytes = [0; LAST_BYTES];
        bytes[..8].copy_from_slice(LAST_MAGIC);
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        let sum = BlockSum::of(&bytes[..16]);
        bytes[16..].copy_from_slice(&sum.0.to_le_bytes());
        bytes
    }

    fn permits(self, number: u64) -> bool {
        match self {
            Self::NotNoted => true,
            Self::Unreadable => false,
            Self::Generation(last) => last == number,
        }
    }

    /// Not synced: after a power failure each generation is another one.
    fn replace(self, state: &Path, number: u64) -> io::Result<()> {
        if self == Self::Generation(number) {
            return Ok(());
        }
        let path = state.join(Self::NAME);
        let new = path.with_extension("new");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&Self::encode(number))?;
        fs::rename(&new, &path)
    }
}

/// The file, mapped: a store into it costs no system call, and is there for the next process from then on.
#[derive(Debug)]
struct Note {
    start: NonNull<AtomicU64>,
}

// SAFETY: the mapping belongs to no thread, and is reached through atomics only.
unsafe impl Send for Note {}
// SAFETY: as above.
unsafe impl Sync for Note {}

impl Note {
    /// Never through a link.
    fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        Self::map(
            &options
                .read(true)
                .write(true)
                .custom_flags(libc::O_NOFOLLOW)
                .open(path)?,
        )
    }

    /// Of a file of [`FILE_BYTES`].
    fn map(file: &File) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                FILE_BYTES,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Self { start })
    }

    /// Little-endian, as this service's machines are.
    fn field(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at < FILE_BYTES && at.is_multiple_of(8));
        // SAFETY: within the mapping, which is aligned to a page and lives as long as `self`.
        unsafe { self.start.add(at / 8).as_ref() }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), FILE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const BOOT: Boot = [3; BOOT_BYTES];

    fn found(end: u64) -> Found {
        Found {
            identity: 7,
            journal_end: Lsn(end),
        }
    }

    /// The state directory lies in the runtime directory, under a name of its identity.
    fn open_in_boot(runtime: &Path, found: Found, boot: Boot) -> Generation {
        let state = &state(runtime, found.identity);
        fs::create_dir_all(state).unwrap();
        Generation::open_in_boot(Directories { state, runtime }, found, boot).unwrap()
    }

    fn state(runtime: &Path, identity: u64) -> PathBuf {
        runtime.join(format!("state-{identity}"))
    }

    fn open(folder: &Path, end: u64) -> Generation {
        open_in_boot(folder, found(end), BOOT)
    }

    /// A life that has answered changes up to `end`, settled.
    fn lived(folder: &Path, end: u64) -> u64 {
        let generation = open(folder, 0);
        generation.settle();
        generation.note(Lsn(end));
        generation.number()
    }

    fn path(folder: &Path) -> PathBuf {
        folder.join("generation-0000000000000007")
    }

    fn goes_on(folder: &Path, end: u64, before: u64) -> bool {
        let now = open(folder, end);
        assert_eq!(now.is_new(), now.number() != before);
        !now.is_new()
    }

    #[test]
    fn it_goes_on_where_nothing_was_lost() {
        let folder = tempfile::tempdir().unwrap();
        let number = lived(folder.path(), 100);
        assert!(goes_on(folder.path(), 100, number));
        assert!(goes_on(folder.path(), 150, number), "written, and not answered yet");
        assert!(
            !goes_on(folder.path(), 149, number),
            "what was found counts as answered"
        );
    }

    #[test]
    fn one_that_lost_something_is_another_and_stays_so() {
        let folder = tempfile::tempdir().unwrap();
        let number = lived(folder.path(), 100);
        let other = open(folder.path(), 99);
        assert!(other.is_new() && other.number() != number);
        other.settle();
        other.note(Lsn(500));
        assert!(goes_on(folder.path(), 500, other.number()));
    }

    #[test]
    fn one_that_was_killed_before_it_was_settled_is_followed_by_another() {
        let folder = tempfile::tempdir().unwrap();
        lived(folder.path(), 100);
        let killed = open(folder.path(), 50);
        killed.note(Lsn(120));
        assert!(!goes_on(folder.path(), 120, killed.number()));
    }

    #[test]
    fn one_that_was_ended_is_followed_by_another_whatever_the_journal_has() {
        let folder = tempfile::tempdir().unwrap();
        Generation::end(folder.path(), 7).unwrap();
        let number = lived(folder.path(), 100);
        Generation::end(folder.path(), 8).unwrap();
        assert!(
            goes_on(folder.path(), 100, number),
            "another state directory's was ended"
        );
        Generation::end(folder.path(), 7).unwrap();
        assert!(!goes_on(folder.path(), 150, number));
    }

    #[test]
    fn the_upper_half_is_another_when_what_was_flushed_may_be_lost() {
        let folder = tempfile::tempdir().unwrap();
        let history = |generation: &Generation| generation.number() >> HISTORY_SHIFT;
        let opened = |found| open_in_boot(folder.path(), found, BOOT);
        let number = lived(folder.path(), 100);
        let unflushed = opened(found(50));
        assert!(unflushed.is_new());
        assert_eq!(history(&unflushed), number >> HISTORY_SHIFT, "a sync had failed");
        let accepted = opened(found(50 + (1 << LSN_GAP_BITS)));
        assert!(accepted.is_new(), "the one before was not settled");
        assert_ne!(history(&accepted), history(&unflushed), "the journal was lost");
        let recovered = opened(Found {
            identity: 8,
            ..found(50)
        });
        assert_ne!(history(&recovered), history(&unflushed), "another state directory");
        accepted.settle();
        let served_elsewhere = Generation::open_in_boot(
            Directories {
                state: &state(folder.path(), 7),
                runtime: &folder.path().join("state-8"),
            },
            found(60 + (1 << LSN_GAP_BITS)),
            BOOT,
        );
        served_elsewhere.unwrap().settle();
        let copy = opened(found(70 + (1 << LSN_GAP_BITS)));
        assert!(copy.is_new());
        assert_ne!(history(&copy), history(&accepted), "nobody knows what it lacks");
    }

    #[test]
    fn a_first_one_is_new_and_has_a_tag() {
        let folder = tempfile::tempdir().unwrap();
        let directories = Directories {
            state: folder.path(),
            runtime: &folder.path().join("made"),
        };
        let first = Generation::open(directories, found(1)).unwrap();
        assert!(first.is_new());
        assert_ne!(first.number() & ((1 << TAG_BITS) - 1), 0);
    }

    #[test]
    fn another_boot_and_another_state_directory_have_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let number = lived(folder.path(), 100);
        let other = Found {
            identity: 8,
            ..found(100)
        };
        let other = open_in_boot(folder.path(), other, BOOT);
        assert!(other.is_new());
        assert!(goes_on(folder.path(), 100, number), "the one beside it is left alone");
        let booted = open_in_boot(folder.path(), found(100), [4; BOOT_BYTES]);
        assert!(booted.is_new());
    }

    #[test]
    fn a_copy_that_was_served_with_another_runtime_directory_has_another() {
        let (here, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let number = lived(here.path(), 100);
        let copied = state(elsewhere.path(), 7);
        fs::create_dir_all(&copied).unwrap();
        let file = |state: PathBuf| state.join(LastServed::NAME);
        fs::copy(file(state(here.path(), 7)), file(copied.clone())).unwrap();
        let other = lived(elsewhere.path(), 200);
        assert_ne!(other, number);
        assert!(goes_on(here.path(), 200, number), "the one that stayed here");
        fs::copy(file(copied), file(state(here.path(), 7))).unwrap();
        assert!(!goes_on(here.path(), 200, number));
    }

    #[test]
    fn a_state_directory_that_does_not_say_who_served_it_last() {
        let folder = tempfile::tempdir().unwrap();
        let number = lived(folder.path(), 100);
        let last = state(folder.path(), 7).join(LastServed::NAME);
        let expected = fs::read(&last).unwrap();
        assert_eq!(expected.len(), LAST_BYTES);
        fs::remove_file(&last).unwrap();
        assert!(goes_on(folder.path(), 100, number), "one of an older release");
        assert_eq!(fs::read(&last).unwrap(), expected);
        for at in 0..LAST_BYTES {
            let folder = tempfile::tempdir().unwrap();
            let number = lived(folder.path(), 100);
            let last = state(folder.path(), 7).join(LastServed::NAME);
            let mut bytes = fs::read(&last).unwrap();
            bytes[at] ^= 1;
            fs::write(&last, bytes).unwrap();
            assert!(!goes_on(folder.path(), 100, number), "byte {at}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_nothing() {
        let altered = |change: &dyn Fn(&mut Vec<u8>)| {
            let folder = tempfile::tempdir().unwrap();
            let number = lived(folder.path(), 100);
            let mut bytes = fs::read(path(folder.path())).unwrap();
            change(&mut bytes);
            fs::write(path(folder.path()), bytes).unwrap();
            fs::write(path(folder.path()).with_extension("new"), "left by a kill").unwrap();
            goes_on(folder.path(), 100, number)
        };
        assert!(altered(&|_| {}), "the test itself");
        for at in 0..LSN_AT {
            assert!(!altered(&|bytes| bytes[at] ^= 1), "byte {at}");
        }
        for length in [0, 1, FILE_BYTES - 1, FILE_BYTES + 1] {
            assert!(!altered(&|bytes| bytes.resize(length, 0)), "length {length}");
        }
        // A file of another state directory under this one's name.
        let folder = tempfile::tempdir().unwrap();
        let number = lived(folder.path(), 100);
        let foreign = Found {
            identity: 8,
            ..found(100)
        };
        drop(open_in_boot(folder.path(), foreign, BOOT));
        fs::rename(folder.path().join("generation-0000000000000008"), path(folder.path())).unwrap();
        assert!(!goes_on(folder.path(), 100, number));
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let folder = tempfile::tempdir().unwrap();
        let header = Header {
            identity: 7,
            boot: BOOT,
            number: 0x1122_3344_5566_7788,
        };
        let note = header.publish(&path(folder.path()), Lsn(0x99)).unwrap();
        note.field(SETTLED_AT).store(SETTLED, Ordering::Release);
        let bytes = fs::read(path(folder.path())).unwrap();
        let mut expected = b"TMBGENR1\x07\0\0\0\0\0\0\0".to_vec();
        expected.extend_from_slice(&BOOT);
        expected.extend_from_slice(b"\x88\x77\x66\x55\x44\x33\x22\x11");
        expected.extend_from_slice(&BlockSum::of(&expected).0.to_le_bytes());
        expected.extend_from_slice(b"\x99\0\0\0\0\0\0\0SETTLED\0");
        assert_eq!(bytes, expected);
    }
}
