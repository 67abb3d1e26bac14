//! The system under test as a benchmark meets it: a folder, a proxy, commands, and waits that end.

use super::Options;
use crate::error::BenchError;
use crate::method::traffic::Traffic;
use crate::method::workloads::{Contents, File, Seeds};
use crate::proxy::Proxy;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(20);
/// A second client is asked again after so long.
const SECOND_POLL: Duration = Duration::from_millis(100);
/// A download has ended with the last file; a prefetcher goes on for a moment.
const DOWNLOAD_QUIET: Duration = Duration::from_secs(1);
const FIRST_FILE_BYTES: u64 = 1_000_000;
const FIRST_FILE_PURPOSE: u64 = 1 << 34;

pub(super) struct Session<'a> {
    options: &'a Options,
    tell: &'a dyn Fn(&str),
    proxy: Proxy,
    second: Option<(Proxy, PathBuf)>,
    /// Of this run alone, below the system's folder.
    root: PathBuf,
}

/// What passed from the first file until the silence.
pub(super) struct Upload {
    pub begun_us: u64,
    pub traffic: Traffic,
}

impl<'a> Session<'a> {
    /// Brings the system up, and sees whether its traffic comes this way.
    pub(super) fn open(options: &'a Options, tell: &'a dyn Fn(&str)) -> Result<Self, BenchError> {
        let begun = Instant::now();
        let proxy = Proxy::start(&options.listen, options.store, begun)?;
        let name = format!("bench-cloud-{}", options.seed);
        let second = match &options.second {
            None => None,
            Some(second) => Some((
                Proxy::start(&second.listen, options.store, begun)?,
                second.folder.join(&name),
            )),
        };
        tell(&format!(
            "counting between {} and the store at {}",
            proxy.address(),
            options.store
        ));
        let session = Self {
            options,
            tell,
            proxy,
            second,
            root: options.folder.join(name),
        };
        if let Some(command) = &options.start {
            session.command(command)?;
        }
        let root = session.root.clone();
        session.within("a new folder", move || match fs::create_dir(&root) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(BenchError::Used(root)),
            made => made.map_err(|error| failed("create", &root, error)),
        })?;
        let first = session.wait_quiet(options.quiet).and_then(|()| session.first_file());
        match first {
            Ok(()) => Ok(session),
            Err(error) => {
                // Whether that succeeds or not, why it failed at first is what matters.
                let _ = session.close();
                Err(error)
            }
        }
    }

    fn first_file(&self) -> Result<(), BenchError> {
        let file = File {
            path: "first/file.bin".into(),
            contents: Contents::Binary,
            bytes: FIRST_FILE_BYTES,
            seed: Seeds::of(self.options.seed, FIRST_FILE_PURPOSE).take(),
        };
        let sent_bytes = self.upload(std::slice::from_ref(&file))?.traffic.sent_bytes;
        if sent_bytes < FIRST_FILE_BYTES / 2 {
            return Err(BenchError::NotBehindProxy {
                folder: self.options.folder.clone(),
                written_bytes: FIRST_FILE_BYTES,
                sent_bytes,
            });
        }
        self.remove(&[file])
    }

    pub(super) fn tell(&self, text: &str) {
        (self.tell)(text);
    }

    pub(super) fn has_second(&self) -> bool {
        self.second.is_some()
    }

    /// Leaves nothing behind.
    pub(super) fn close(self) -> Result<(), BenchError> {
        let root = self.root.clone();
        self.within("the removal of all files", move || {
            fs::remove_dir_all(&root).map_err(|error| failed("remove", &root, error))
        })
    }

    /// Writes files whole, in the place of others with their names, and waits until the system is silent.
    pub(super) fn upload(&self, files: &[File]) -> Result<Upload, BenchError> {
        self.place(
            files
                .iter()
                .map(|file| (self.root.join(&file.path), file.make()))
                .collect(),
        )
    }

    pub(super) fn replace(&self, file: &File, bytes: Vec<u8>) -> Result<Upload, BenchError> {
        self.place(vec![(self.root.join(&file.path), bytes)])
    }

    fn place(&self, writes: Vec<(PathBuf, Vec<u8>)>) -> Result<Upload, BenchError> {
        self.proxy.take();
        let begun_us = self.proxy.now_us();
        let root = self.root.clone();
        self.within("writing files", move || {
            let folders: BTreeSet<&Path> = writes.iter().filter_map(|(path, _)| path.parent()).collect();
            for folder in folders {
                fs::create_dir_all(folder).map_err(|error| failed("create", folder, error))?;
            }
            for (path, bytes) in &writes {
                fs::write(path, bytes).map_err(|error| failed("write", path, error))?;
            }
            // Once for all, or no client could put files together.
            sync(&root)
        })?;
        self.wait_quiet(self.options.quiet)?;
        Ok(Upload {
            begun_us,
            traffic: self.proxy.take(),
        })
    }

    /// Nothing without a command that empties caches.
    pub(super) fn download(&self, files: &[File]) -> Result<Option<Traffic>, BenchError> {
        self.forget()?.then(|| self.read(files)).transpose()
    }

    /// Empties caches; false when nobody has said how.
    pub(super) fn forget(&self) -> Result<bool, BenchError> {
        let Some(command) = &self.options.remount else {
            return Ok(false);
        };
        self.command(command)?;
        self.wait_quiet(self.options.quiet)?;
        Ok(true)
    }

    /// Reads files to their ends, and compares them.
    pub(super) fn read(&self, files: &[File]) -> Result<Traffic, BenchError> {
        self.proxy.take();
        let (root, files) = (self.root.clone(), files.to_vec());
        self.within("reading files", move || {
            for file in &files {
                let path = root.join(&file.path);
                let found = fs::read(&path).map_err(|error| failed("read", &path, error))?;
                if found != file.make() {
                    return Err(BenchError::Damaged(path));
                }
            }
            Ok(())
        })?;
        self.wait_quiet(DOWNLOAD_QUIET)?;
        Ok(self.proxy.take())
    }

    pub(super) fn remove(&self, files: &[File]) -> Result<(), BenchError> {
        let paths: Vec<PathBuf> = files.iter().map(|file| self.root.join(&file.path)).collect();
        let root = self.root.clone();
        self.within("removing files", move || {
            for path in &paths {
                fs::remove_file(path).map_err(|error| failed("remove", path, error))?;
            }
            sync(&root)
        })?;
        self.wait_quiet(self.options.quiet)
    }

    /// Begins to look for files at the second client, which reads them as soon as it sees them.
    pub(super) fn watch_second(&self, files: &[File]) -> Option<Watched> {
        let (proxy, root) = self.second.as_ref()?;
        proxy.take();
        let (root, files, limit) = (root.clone(), files.to_vec(), self.options.limit);
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let deadline = Instant::now() + limit;
            let is_there = |file: &File| {
                let expected = file.make();
                while fs::read(root.join(&file.path)).map_or(true, |found| found != expected) {
                    if Instant::now() > deadline {
                        return false;
                    }
                    thread::sleep(SECOND_POLL);
                }
                true
            };
            let _ = sender.send(files.iter().all(is_there));
        });
        Some(Watched(receiver))
    }

    /// Until no more than noise has passed for so long.
    fn wait_quiet(&self, quiet: Duration) -> Result<(), BenchError> {
        let deadline = Instant::now() + self.options.limit + quiet;
        let (mut since, mut bytes) = (Instant::now(), self.proxy.bytes());
        while since.elapsed() < quiet {
            if Instant::now() > deadline {
                return Err(self.late("silence on the wire"));
            }
            thread::sleep(POLL);
            let now = self.proxy.bytes();
            if now > bytes + self.options.noise_bytes {
                (since, bytes) = (Instant::now(), now);
            }
        }
        Ok(())
    }

    /// In a thread of its own: a system that hangs holds whoever asks it.
    fn within<T: Send + 'static>(
        &self,
        what: &str,
        action: impl FnOnce() -> Result<T, BenchError> + Send + 'static,
    ) -> Result<T, BenchError> {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let _ = sender.send(action());
        });
        receiver
            .recv_timeout(self.options.limit)
            .unwrap_or_else(|_| Err(self.late(what)))
    }

    fn command(&self, command: &str) -> Result<(), BenchError> {
        let said = |said: String| BenchError::Command {
            command: command.to_owned(),
            said,
        };
        self.tell(&format!("running {command}"));
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = shell.spawn().map_err(|error| said(format!("cannot be run: {error}")))?;
        let deadline = Instant::now() + self.options.limit;
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(said(format!("ended with {status}"))),
                Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
                Ok(None) => {
                    let _ = child.kill();
                    return Err(self.late(command));
                }
                Err(error) => return Err(said(error.to_string())),
            }
        }
    }

    fn late(&self, what: &str) -> BenchError {
        BenchError::Late {
            what: what.to_owned(),
            limit: self.options.limit,
        }
    }
}

/// Files that are looked for at the second client.
pub(super) struct Watched(Receiver<bool>);

/// What the second client did.
pub(super) struct SecondSeen {
    pub has_all: bool,
    pub traffic: Traffic,
}

impl Watched {
    pub(super) fn wait(self, session: &Session) -> Result<SecondSeen, BenchError> {
        let has_all = match self.0.recv_timeout(session.options.limit + SECOND_POLL) {
            Ok(has_all) => has_all,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(session.late("the second client"));
            }
        };
        let traffic = session
            .second
            .as_ref()
            .map(|(proxy, _)| proxy.take())
            .unwrap_or_default();
        Ok(SecondSeen { has_all, traffic })
    }
}

fn failed(action: &'static str, path: &Path, error: io::Error) -> BenchError {
    BenchError::File {
        action,
        path: path.to_owned(),
        error,
    }
}

/// The whole file system: what is written behind a block device leaves the kernel only then.
fn sync(folder: &Path) -> Result<(), BenchError> {
    let done = Command::new("sync").arg("--file-system").arg(folder).status();
    match done {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed("sync", folder, io::Error::other(status.to_string()))),
        Err(error) => Err(failed("sync", folder, error)),
    }
}
