//! Runs as files of one directory.

use crate::Failure;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tombolo_dedup::{RunFile, RunId, RunPart, RunStorage};

const PAGE_BYTES: usize = 4096;

/// A buffer that the kernel accepts for reads past the page cache.
#[repr(align(4096))]
struct AlignedPage([u8; PAGE_BYTES]);

pub struct FileStorage {
    directory: PathBuf,
    open: RwLock<HashMap<RunFile, Arc<File>>>,
    direct: RwLock<bool>,
    reads: AtomicU64,
    written: AtomicU64,
}

impl FileStorage {
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.into(),
            open: RwLock::default(),
            direct: RwLock::new(false),
            reads: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    pub fn read_count(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub fn bytes_on_disk(&self) -> Result<u64, Failure> {
        let mut bytes = 0;
        for entry in std::fs::read_dir(&self.directory)? {
            bytes += entry?.metadata()?.len();
        }
        Ok(bytes)
    }

    /// From here on every page read goes to the disk.
    pub fn bypass_page_cache(&self) -> Result<(), Failure> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        for (file, handle) in open.iter_mut() {
            if file.part == RunPart::Entries {
                let options = OpenOptions::new()
                    .read(true)
                    .custom_flags(libc::O_DIRECT)
                    .open(self.path(*file))?;
                *handle = Arc::new(options);
            }
        }
        *self.direct.write().unwrap_or_else(PoisonError::into_inner) = true;
        Ok(())
    }

    fn path(&self, file: RunFile) -> PathBuf {
        let part = match file.part {
            RunPart::Entries => "entries",
            RunPart::Guide => "guide",
        };
        self.directory.join(format!("{:016x}.{part}", file.run.0))
    }

    fn handle(&self, file: RunFile) -> Result<Arc<File>, Error> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&file).cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl RunStorage for FileStorage {
    type Error = Error;

    fn create(&self, file: RunFile) -> Result<(), Error> {
        let mut options = OpenOptions::new();
        let handle = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.path(file))?;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(file, Arc::new(handle));
        Ok(())
    }

    fn append(&self, file: RunFile, bytes: &[u8]) -> Result<(), Error> {
        self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        (&*self.handle(file)?).write_all(bytes)
    }

    fn sync(&self, file: RunFile) -> Result<(), Error> {
        self.handle(file)?.sync_all()?;
        File::open(&self.directory)?.sync_all()
    }

    fn read(&self, file: RunFile, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let handle = self.handle(file)?;
        if file.part == RunPart::Entries {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        let direct = *self.direct.read().unwrap_or_else(PoisonError::into_inner);
        if direct && file.part == RunPart::Entries {
            let mut page = AlignedPage([0; PAGE_BYTES]);
            handle.read_exact_at(&mut page.0, offset_bytes)?;
            bytes.copy_from_slice(&page.0);
            return Ok(());
        }
        handle.read_exact_at(bytes, offset_bytes)
    }

    fn length(&self, file: RunFile) -> Result<u64, Error> {
        Ok(self.handle(file)?.metadata()?.len())
    }

    fn delete(&self, run: RunId) -> Result<(), Error> {
        for part in [RunPart::Entries, RunPart::Guide] {
            let file = RunFile { run, part };
            self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&file);
            match std::fs::remove_file(self.path(file)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
