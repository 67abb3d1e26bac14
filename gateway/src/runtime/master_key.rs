//! Where the master key is kept, and how it is had from there.

use super::durable_file;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tombolo_cloud_driver::encryption::{NoRandomness, SecretKey};
use tombolo_cloud_driver::keys::{NotAMasterKey, WrappedKey, Wrapping, master_key_text, parse_master_key};
use tombolo_cloud_driver::kms::{Kms, KmsError, KmsSettings};

/// A master key is 65 bytes; more than this is something else.
const TEXT_BYTES_MAX: u64 = 4096;
/// A key service on the other side of the world answers in seconds.
const COMMAND_PATIENCE: Duration = Duration::from_secs(30);
const COMMAND_POLL: Duration = Duration::from_millis(20);

impl From<SecretKey> for MasterKey {
    fn from(key: SecretKey) -> Self {
        Self { key, wrapped: None }
    }
}

/// Where the master key is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterKeySource {
    /// The gateway's own, which a first start makes.
    OwnFile(PathBuf),
    /// One that a person has named; never made or changed.
    File(PathBuf),
    /// The name of an environment variable.
    Environment(String),
    /// A program and its arguments; it writes the key to its standard output.
    Command(Vec<String>),
    /// A key of AWS KMS that wraps it. It lies beside the data keys, and only the service can unwrap it.
    Kms(Box<KmsSettings>),
}

/// A master key, and what a key service needs to unwrap it, if one has it.
#[derive(Clone)]
pub struct MasterKey {
    pub key: SecretKey,
    pub wrapped: Option<WrappedKey>,
}

impl std::fmt::Display for MasterKeySource {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OwnFile(path) | Self::File(path) => write!(out, "{}", path.display()),
            Self::Environment(name) => write!(out, "environment variable {name}"),
            Self::Command(words) => write!(out, "command {:?}", words.join(" ")),
            Self::Kms(settings) => write!(out, "AWS KMS key {:?}", settings.key),
        }
    }
}

/// Why there is no master key. No text of a key is ever part of it.
#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    #[error("master key: {path}: {error}")]
    Disk { path: PathBuf, error: io::Error },
    #[error(
        "master key: {path} does not exist; a file that the settings name is never made: put it there, mode 0600, for \
         instance with `openssl rand -hex 32`"
    )]
    Absent { path: PathBuf },
    #[error("master key: {path} is not a regular file")]
    NotAFile { path: PathBuf },
    #[error(
        "master key: {path} can be read by others (mode {mode:o}); chmod 600 it, and rotate the key if it was shared"
    )]
    OpenToOthers { path: PathBuf, mode: u32 },
    #[error("master key: {origin} is not set")]
    NotSet { origin: MasterKeySource },
    #[error("master key: {origin} {said}; what it wrote is not shown, since it may hold the key")]
    Command { origin: MasterKeySource, said: String },
    #[error("master key: {origin}: {error}")]
    NotAKey {
        origin: MasterKeySource,
        error: NotAMasterKey,
    },
    #[error("master key: {0}")]
    Kms(Box<KmsError>),
    #[error("master key: {origin} wraps none here")]
    NotWrapped { origin: MasterKeySource },
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

impl From<KmsError> for MasterKeyError {
    fn from(error: KmsError) -> Self {
        Self::Kms(Box::new(error))
    }
}

type Result<T> = std::result::Result<T, MasterKeyError>;

impl MasterKeySource {
    /// The file, if it is one and not there.
    pub fn missing_file(&self) -> Option<&Path> {
        match self {
            Self::OwnFile(path) | Self::File(path) if !path.exists() => Some(path),
            _ => None,
        }
    }

    /// `wrapping`: what the data keys that it is read for say of it.
    pub fn read(&self, runtime: &Runtime, wrapping: Option<&Wrapping>) -> Result<SecretKey> {
        match (self, wrapping) {
            (Self::Kms(settings), Some(wrapping)) => {
                let unwrapped = async { Kms::open(settings).await?.unwrap(wrapping).await };
                Ok(runtime.block_on(unwrapped)?)
            }
            _ => self.read_text(),
        }
    }

    fn read_text(&self) -> Result<SecretKey> {
        let text = match self {
            Self::OwnFile(path) | Self::File(path) => read_file(path)?,
            Self::Environment(name) => match std::env::var_os(name) {
                Some(text) => text.into_encoded_bytes(),
                None => return Err(MasterKeyError::NotSet { origin: self.clone() }),
            },
            Self::Command(words) => run(words).map_err(|said| {
                let origin = self.clone();
                MasterKeyError::Command { origin, said }
            })?,
            Self::Kms(_) => return Err(MasterKeyError::NotWrapped { origin: self.clone() }),
        };
        parse_master_key(&String::from_utf8_lossy(&text)).map_err(|error| MasterKeyError::NotAKey {
            origin: self.clone(),
            error,
        })
    }

    /// For data keys that are new, of the store with this identity. A file that is made is on stable storage in full before
    /// it has its name, and before anything is encrypted with it.
    pub fn read_or_make(&self, runtime: &Runtime, identity: u64) -> Result<MasterKey> {
        match self {
            Self::Kms(settings) => {
                let key = SecretKey::generate()?;
                let wrap = async { Kms::open(settings).await?.wrap(&key, identity).await };
                let wrapped = runtime.block_on(wrap)?;
                tracing::warn!(
                    wrapped_by = %wrapped.wrapping_key,
                    "a master key was made, which only this key of AWS KMS can unwrap: never delete it, without it nothing \
                     in the store can be read or recovered"
                );
                let wrapped = Some(wrapped);
                Ok(MasterKey { key, wrapped })
            }
            Self::OwnFile(path) if !path.exists() => make(path),
            _ => self.read_text().map(MasterKey::from),
        }
    }
}

fn make(path: &Path) -> Result<MasterKey> {
    let master = SecretKey::generate()?;
    let text = master_key_text(&master);
    durable_file::replace(path, |mut file| file.write_all(text.as_bytes())).map_err(|error| {
        let path = path.to_owned();
        MasterKeyError::Disk { path, error }
    })?;
    tracing::warn!(
        file = %path.display(),
        "a master key was made. COPY THIS FILE TO A SAFE PLACE, away from this machine and from the store: without it \
         nothing in the store can be read or recovered"
    );
    Ok(master.into())
}

/// Brings a file that somebody else has written to stable storage, before anything depends on it.
pub fn sync(path: &Path) -> Result<()> {
    let synced = File::open(path)
        .and_then(|file| file.sync_all())
        .and_then(|()| durable_file::sync_directory_of(path));
    synced.map_err(|error| MasterKeyError::Disk {
        path: path.to_owned(),
        error,
    })
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let disk = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => MasterKeyError::Absent { path: path.to_owned() },
        _ => MasterKeyError::Disk {
            path: path.to_owned(),
            error,
        },
    };
    let about = fs::metadata(path).map_err(disk)?;
    if !about.is_file() {
        return Err(MasterKeyError::NotAFile { path: path.to_owned() });
    }
    if about.mode() & 0o077 != 0 {
        let (path, mode) = (path.to_owned(), about.mode() & 0o777);
        return Err(MasterKeyError::OpenToOthers { path, mode });
    }
    let mut text = Vec::new();
    let file = File::open(path).map_err(disk)?;
    file.take(TEXT_BYTES_MAX).read_to_end(&mut text).map_err(disk)?;
    Ok(text)
}

/// In a process group of its own, so that what the program has started ends with it when it takes too long.
fn run(words: &[String]) -> std::result::Result<Vec<u8>, String> {
    let [program, arguments @ ..] = words else {
        return Err("is empty".into());
    };
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("cannot be run: {error}"))?;
    let answered = wait_for_answer(&mut child);
    if answered.is_err() {
        // SAFETY: the group is the child's own; it has not been waited for, so its number is nobody else's.
        unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
        let _ = child.wait();
    }
    answered
}

fn wait_for_answer(child: &mut Child) -> std::result::Result<Vec<u8>, String> {
    let deadline = Instant::now() + COMMAND_PATIENCE;
    let too_slow = || format!("has not ended within {} s", COMMAND_PATIENCE.as_secs());
    let Some(output) = child.stdout.take() else {
        return Err("has no output".into());
    };
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = output.take(TEXT_BYTES_MAX + 1).read_to_end(&mut text);
        let _ = sender.send(read.map(|_| text));
    });
    let text = receiver.recv_timeout(COMMAND_PATIENCE).map_err(|_| too_slow())?;
    let text = text.map_err(|error| error.to_string())?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        return Err("writes more than a key".into());
    }
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(text),
            Some(status) => return Err(format!("failed: {status}")),
            None if Instant::now() >= deadline => return Err(too_slow()),
            None => thread::sleep(COMMAND_POLL),
        }
    }
}
