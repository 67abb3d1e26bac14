//! The blocking half of the directory store: files, fsync and errors.

use super::locks::{Lock, lock, try_lock};
use super::walk::Walk;
use crate::memory::clip_range;
use crate::store::{ETag, ListedObject, ObjectMeta, PutMode, Result};
use crate::{Condition, Operation, StoreError};
use bytes::Bytes;
use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind as Io, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use xxhash_rust::xxh3::xxh3_128;

const OWN_DIRECTORY: &str = ".tombolo-store";
/// Directories remembered as durable; when full the memory starts anew, which costs only fsyncs.
const DURABLE_DIRECTORIES_MAX: usize = 65_536;

#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    /// Held shared for as long as the store is open.
    _open: File,
    commit_path: PathBuf,
    temporary: PathBuf,
    /// Other openers, in this process or another PID namespace, may count alike: files are created exclusively and a
    /// taken number is skipped.
    temporary_next: AtomicU64,
    /// Directories whose names are known to be on stable storage, up to the root, as long as nobody removes them.
    durable: Mutex<HashSet<PathBuf>>,
}

/// What an I/O error is to be reported about.
struct Context<'a> {
    files: &'a Files,
    operation: Operation,
    key: &'a str,
}

/// A temporary file, removed in the end unless it was renamed: from then on its old name may be another opener's.
struct Temporary {
    path: PathBuf,
    renamed: bool,
}

impl Temporary {
    fn rename(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.renamed = true;
        Ok(())
    }

    fn link(self, target: &Path) -> io::Result<()> {
        fs::hard_link(&self.path, target)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            // What stays behind is swept by the next opener.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Files {
    pub(super) fn open(root: &Path) -> Result<Self> {
        let name = format!("dir:{}", root.display());
        Self::open_io(root).map_err(|error| classify(name, Operation::Check, "", &error))
    }

    fn open_io(root: &Path) -> io::Result<Self> {
        make_directory(root)?;
        if let Some(parent) = root.parent() {
            sync_directory(parent)?;
        }
        let own = root.join(OWN_DIRECTORY);
        let temporary = own.join("tmp");
        make_directory(&own)?;
        make_directory(&temporary)?;
        let open = open_lock_file(&own.join("open"))?;
        if try_lock(&open, Lock::Exclusive)? {
            sweep(&temporary)?;
        }
        lock(&open, Lock::Shared)?;
        let commit_path = own.join("commit");
        open_lock_file(&commit_path)?;
        sync_directory(&own)?;
        sync_directory(root)?;
        Ok(Self {
            root: root.into(),
            _open: open,
            commit_path,
            temporary,
            temporary_next: AtomicU64::new(0),
            durable: Mutex::default(),
        })
    }

    pub(super) fn name(&self) -> String {
        format!("dir:{}", self.root.display())
    }

    pub(super) fn put(&self, key: &str, bytes: &[u8], mode: &PutMode) -> Result<ETag> {
        match self.put_once(key, bytes, mode) {
            // Someone may have removed directories that were made before: nothing is known of them any more, and a second
            // attempt makes them again. Where the whole store is gone, as on a disk that is not mounted, that attempt
            // ends as the first did, at the temporary file, before it makes anything.
            Err(StoreError::BucketMissing { .. }) => {
                self.durable().clear();
                self.put_once(key, bytes, mode)
            }
            outcome => outcome,
        }
    }

    fn put_once(&self, key: &str, bytes: &[u8], mode: &PutMode) -> Result<ETag> {
        let context = self.context(Operation::Put, key);
        let target = self.root.join(key);
        let temporary = context.io(self.write_temporary(bytes))?;
        let parent = target.parent().expect("a key lies below the root");
        context.io(self.make_parents(parent))?;
        {
            let commit = context.io(open_lock_file(&self.commit_path))?;
            let exclusive = matches!(mode, PutMode::IfMatch(_));
            context.io(lock(&commit, if exclusive { Lock::Exclusive } else { Lock::Shared }))?;
            move_into_place(&context, temporary, &target, mode)?;
        }
        context.io(sync_directory(parent))?;
        Ok(etag_of(bytes))
    }

    fn write_temporary(&self, bytes: &[u8]) -> io::Result<Temporary> {
        loop {
            let number = self.temporary_next.fetch_add(1, Ordering::Relaxed);
            let path = self.temporary.join(format!("{}-{number}", std::process::id()));
            let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Err(error) if error.kind() == Io::AlreadyExists => continue,
                outcome => outcome?,
            };
            let temporary = Temporary { path, renamed: false };
            file.write_all(bytes)?;
            file.sync_all()?;
            return Ok(temporary);
        }
    }

    /// Makes `directory` exist with its name on stable storage. A directory that someone else made may not be durable
    /// yet, so the first use of each one here fsyncs the way up to the root.
    fn make_parents(&self, directory: &Path) -> io::Result<()> {
        if directory == self.root || self.durable().contains(directory) {
            return Ok(());
        }
        let parent = directory.parent().expect("a directory below the root");
        self.make_parents(parent)?;
        make_directory(directory)?;
        sync_directory(parent)?;
        let mut durable = self.durable();
        if durable.len() >= DURABLE_DIRECTORIES_MAX {
            durable.clear();
        }
        durable.insert(directory.into());
        Ok(())
    }

    fn durable(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        let context = self.context(Operation::Get, key);
        let mut file = context.io(File::open(self.root.join(key)))?;
        let metadata = context.io(file.metadata())?;
        if !metadata.is_file() {
            return Err(context.not_found());
        }
        let range = match range {
            None => 0..metadata.len(),
            Some(range) => clip_range(&self.name(), key, range, metadata.len())?,
        };
        if range.start > 0 {
            context.io(file.seek(SeekFrom::Start(range.start)))?;
        }
        // The file is never changed once in place, so its length holds until the end of the read.
        let mut bytes = vec![0; (range.end - range.start) as usize];
        context.io(file.read_exact(&mut bytes))?;
        Ok(bytes.into())
    }

    pub(super) fn head(&self, key: &str) -> Result<ObjectMeta> {
        let bytes = self.get(key, None).map_err(as_head)?;
        Ok(ObjectMeta {
            size_bytes: bytes.len() as u64,
            etag: etag_of(&bytes),
        })
    }

    pub(super) fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>> {
        let mut walk = Walk {
            root: &self.root,
            prefix,
            start_after: start_after.unwrap_or(""),
            limit,
            found: Vec::new(),
        };
        match walk.visit("") {
            Ok(()) => Ok(walk.found),
            Err(error) => Err(self.context(Operation::List, prefix).error(&error)),
        }
    }

    pub(super) fn delete(&self, key: &str) -> Result<()> {
        let context = self.context(Operation::Delete, key);
        let target = self.root.join(key);
        // Shared with puts, so that no compare-and-rename is under way.
        let commit = context.io(open_lock_file(&self.commit_path))?;
        context.io(lock(&commit, Lock::Shared))?;
        match fs::remove_file(&target) {
            Ok(()) => context.io(sync_directory(target.parent().expect("a key lies below the root"))),
            // A directory is no object: unlink says EISDIR.
            Err(error) if is_absent(&error) || error.kind() == Io::IsADirectory => Ok(()),
            Err(error) => Err(context.error(&error)),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let context = self.context(Operation::Check, "");
        context.io(fs::read_dir(&self.root))?;
        context.io(fs::metadata(&self.temporary))?;
        Ok(())
    }

    fn context<'a>(&'a self, operation: Operation, key: &'a str) -> Context<'a> {
        Context {
            files: self,
            operation,
            key,
        }
    }
}

impl Context<'_> {
    fn io<T>(&self, outcome: io::Result<T>) -> Result<T> {
        outcome.map_err(|error| self.error(&error))
    }

    fn error(&self, error: &io::Error) -> StoreError {
        if is_absent(error) && self.files.temporary.is_dir() && matches!(self.operation, Operation::Get) {
            return self.not_found();
        }
        classify(self.files.name(), self.operation, self.key, error)
    }

    fn not_found(&self) -> StoreError {
        StoreError::NotFound {
            store: self.files.name(),
            key: self.key.into(),
        }
    }

    fn refused(&self, condition: Condition) -> StoreError {
        StoreError::Precondition {
            store: self.files.name(),
            key: self.key.into(),
            condition,
            earlier_attempt_unknown: false,
        }
    }
}

fn move_into_place(context: &Context<'_>, temporary: Temporary, target: &Path, mode: &PutMode) -> Result<()> {
    match mode {
        PutMode::Overwrite => context.io(temporary.rename(target)),
        PutMode::IfAbsent => match temporary.link(target) {
            Err(error) if error.kind() == Io::AlreadyExists => Err(context.refused(Condition::Absent)),
            outcome => context.io(outcome),
        },
        PutMode::IfMatch(expected) => match fs::read(target) {
            Ok(current) if etag_of(&current) == *expected => context.io(temporary.rename(target)),
            Ok(_) => Err(context.refused(Condition::ETagMatches)),
            Err(error) if is_absent(&error) => Err(context.refused(Condition::ETagMatches)),
            Err(error) => Err(context.error(&error)),
        },
    }
}

/// Reading for `head` is reported as such.
fn as_head(error: StoreError) -> StoreError {
    match error {
        StoreError::Local { store, key, detail, .. } => StoreError::Local {
            store,
            operation: Operation::Head,
            key,
            detail,
        },
        other => other,
    }
}

pub(super) fn classify(store: String, operation: Operation, key: &str, error: &io::Error) -> StoreError {
    let key = key.to_owned();
    let detail = error.to_string();
    match error.kind() {
        Io::StorageFull | Io::QuotaExceeded => StoreError::OutOfSpace {
            store,
            operation,
            key,
            detail,
        },
        Io::PermissionDenied | Io::ReadOnlyFilesystem => StoreError::AccessDenied {
            store,
            operation,
            key,
            detail,
        },
        Io::NotFound => StoreError::BucketMissing { store },
        Io::NotADirectory | Io::IsADirectory | Io::AlreadyExists | Io::InvalidFilename | Io::DirectoryNotEmpty => {
            StoreError::Rejected {
                store,
                operation,
                key,
                status: 409,
                detail: format!("{detail}; a key cannot also be a directory of another key"),
            }
        }
        _ => StoreError::Local {
            store,
            operation,
            key,
            detail,
        },
    }
}

/// Also when a component of the path is a file: then the longer key cannot exist.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), Io::NotFound | Io::NotADirectory)
}

/// Tells contents apart; it is no defence against forgers, who could as well change the file.
fn etag_of(bytes: &[u8]) -> ETag {
    ETag(format!("{:032x}-{}", xxh3_128(bytes), bytes.len()))
}

fn make_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == Io::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) if error.kind() == Io::AlreadyExists => Err(Io::NotADirectory.into()),
        outcome => outcome,
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(path)?
        .sync_all()
}

fn open_lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

fn sweep(temporary: &Path) -> io::Result<()> {
    for entry in fs::read_dir(temporary)? {
        fs::remove_file(entry?.path())?;
    }
    Ok(())
}
