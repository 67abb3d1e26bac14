//! The fingerprint index's runs as files, `index/0000000000000001.run` and `.guide`.

use super::durable_file;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tombolo_dedup::{RunFile, RunId, RunPart, RunStorage};

#[derive(Debug)]
pub struct IndexFiles {
    directory: PathBuf,
    open: Mutex<HashMap<RunFile, Arc<File>>>,
}

impl IndexFiles {
    pub fn open(directory: PathBuf) -> io::Result<Self> {
        durable_file::make_directory(&directory)?;
        Ok(Self {
            directory,
            open: Mutex::new(HashMap::new()),
        })
    }

    pub fn list(&self) -> io::Result<Vec<RunId>> {
        let mut runs = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let digits = name
                .to_str()
                .and_then(|name| name.split_once('.'))
                .map(|(digits, _)| digits);
            runs.extend(
                digits
                    .and_then(|digits| u64::from_str_radix(digits, 16).ok())
                    .map(RunId),
            );
        }
        runs.sort_unstable();
        runs.dedup();
        Ok(runs)
    }

    fn path(&self, file: RunFile) -> PathBuf {
        let extension = match file.part {
            RunPart::Entries => "run",
            RunPart::Guide => "guide",
        };
        self.directory.join(format!("{:016x}.{extension}", file.run.0))
    }

    fn file(&self, file: RunFile) -> io::Result<Arc<File>> {
        let mut open = self.lock();
        if let Some(found) = open.get(&file) {
            return Ok(found.clone());
        }
        let opened = Arc::new(File::open(self.path(file))?);
        open.insert(file, opened.clone());
        Ok(opened)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RunFile, Arc<File>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunStorage for IndexFiles {
    type Error = io::Error;

    fn create(&self, file: RunFile) -> io::Result<()> {
        let created = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.path(file))?;
        self.lock().insert(file, Arc::new(created));
        Ok(())
    }

    fn append(&self, file: RunFile, bytes: &[u8]) -> io::Result<()> {
        let opened = self.file(file)?;
        (&*opened).write_all(bytes)
    }

    fn sync(&self, file: RunFile) -> io::Result<()> {
        self.file(file)?.sync_all()?;
        durable_file::sync_directory(&self.directory)
    }

    fn read(&self, file: RunFile, offset_bytes: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file(file)?.read_exact_at(bytes, offset_bytes)
    }

    fn length(&self, file: RunFile) -> io::Result<u64> {
        Ok(self.file(file)?.metadata()?.len())
    }

    fn delete(&self, run: RunId) -> io::Result<()> {
        for part in [RunPart::Entries, RunPart::Guide] {
            let file = RunFile { run, part };
            self.lock().remove(&file);
            match fs::remove_file(self.path(file)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
