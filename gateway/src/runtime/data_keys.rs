//! The data keys of the store: made at the first start, kept in the store and in the state directory, both times encrypted
//! by the master key, and exchanged while the gateway runs.
//!
//! A data key encrypts nothing before the store has it, so whoever has bucket and master key can read every object. The
//! copy in the state directory lets a gateway start while the store does not answer. At a start the two are compared: the
//! store may have one more key, if a rotation was interrupted.
//!
//! It owns where keys come from and when they change. It does not own their form (`tombolo_cloud_driver::keys`).

use super::durable_file;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;
use tombolo_base::KeyId;
use tombolo_cloud_driver::encryption::{KeyRing, NoRandomness, SecretKey};
use tombolo_cloud_driver::keys::{KEYS_NAME, KeysError, NotAMasterKey, StoreKeys, master_key_text, parse_master_key};
use tombolo_cloud_driver::{ErrorKind, ObjectStore, PutMode, StoreError};

/// How long a start waits for the store's copy, when it has one of its own.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// A master key is 65 bytes; more is something else.
const MASTER_KEY_BYTES_MAX: u64 = 4096;
/// A directory of objects that is not empty belongs to somebody.
const OBJECTS_PREFIX: &str = "objects/";

/// Where the master key is kept. It is read at a start, and never written but for a file that is not there yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterKeySource {
    File(PathBuf),
    /// The name of an environment variable.
    Environment(String),
    /// A program and its arguments; it writes the key to its standard output.
    Command(Vec<String>),
}

impl std::fmt::Display for MasterKeySource {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(out, "{}", path.display()),
            Self::Environment(name) => write!(out, "environment variable {name}"),
            Self::Command(words) => write!(out, "command {:?}", words.join(" ")),
        }
    }
}

/// How objects are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionOptions {
    /// Off: new objects lie in the store as they are; keys of earlier ones are still read.
    pub is_on: bool,
    pub master_key: MasterKeySource,
}

/// Why the data keys cannot be had or changed. Nothing was changed in the store.
#[derive(Debug, thiserror::Error)]
pub enum DataKeysError {
    #[error("master key: {origin}: {error}")]
    Unreadable { origin: MasterKeySource, error: io::Error },
    #[error("master key: {origin} is not set")]
    NotSet { origin: MasterKeySource },
    #[error("master key: {origin} failed: {said}")]
    Command { origin: MasterKeySource, said: String },
    #[error("master key: {origin}: {error}")]
    NotAKey {
        origin: MasterKeySource,
        error: NotAMasterKey,
    },
    #[error(
        "master key: {path} can be read by others (mode {mode:o}); chmod 600 it, and rotate the key if it was shared"
    )]
    OpenToOthers { path: PathBuf, mode: u32 },
    #[error(
        "master key: {path} is missing, and the data keys in {keys} need master key {needed}; put back the copy that was \
         kept, or name it in [store] master_key_file: without it nothing in the store can be read"
    )]
    Missing {
        path: PathBuf,
        keys: String,
        needed: String,
    },
    #[error("{keys}: {error}{}", if matches!(error, KeysError::WrongMasterKey { .. }) {
        "; name the right one in [store] master_key_file, master_key_environment or master_key_command"
    } else { "" })]
    Keys { keys: String, error: KeysError },
    #[error(
        "{path} and {KEYS_NAME} in the store are the keys of two different stores; correct [store] url, or put back the \
         state directory that belongs to it"
    )]
    TwoStores { path: PathBuf },
    #[error(
        "the store has data of a gateway already, and {state} is not its state directory: put that back, or name another \
         prefix or directory in [store] url; one gateway serves one prefix"
    )]
    Occupied { state: PathBuf },
    #[error(
        "store: {0}; it must have the data keys before it gets any data, so a first start needs it: start again when it \
         answers"
    )]
    NoAnswer(StoreError),
    #[error("store: {0}")]
    Store(#[from] StoreError),
    #[error("{path}: {error}")]
    Disk { path: PathBuf, error: io::Error },
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    #[error("nothing is encrypted here; set [store] encryption = \"aes-256-gcm\" and restart")]
    Off,
    #[error("the keys in the store have changed since this gateway looked; restart it to take them over")]
    ChangedMeanwhile,
}

type Result<T, E = DataKeysError> = std::result::Result<T, E>;

/// What `status` says of one data key. Never the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataKeyInfo {
    pub id: KeyId,
    /// Seconds since 1970.
    pub made_s: u64,
}

/// What `status` says of encryption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncryptionInfo {
    /// Of new objects.
    pub is_on: bool,
    /// Which master key encrypts the data keys.
    pub master_key: Option<KeyId>,
    /// Oldest first.
    pub data_keys: Vec<DataKeyInfo>,
}

struct Held {
    keys: StoreKeys,
    master: SecretKey,
}

/// The keys of a running gateway.
pub struct DataKeys {
    path: PathBuf,
    is_on: bool,
    /// `None`: nothing was ever encrypted.
    held: Mutex<Option<Held>>,
    ring: RwLock<Arc<KeyRing>>,
}

/// The store as a start finds it: bare, and whether it answers.
pub struct StoreAtStart<'s> {
    pub runtime: &'s Runtime,
    pub store: &'s Arc<dyn ObjectStore>,
    pub answers: bool,
    /// What it holds already is taken for this gateway's.
    pub accept_foreign: bool,
}

impl DataKeys {
    /// `is_new`: the state directory is about to be made. Then the store must be empty, and gets the keys.
    pub fn open(state: &Path, options: &EncryptionOptions, store: &StoreAtStart<'_>, is_new: bool) -> Result<Self> {
        let path = state.join(KEYS_NAME);
        let held = match read_if_there(&path)? {
            Some(bytes) => Some(compared(&path, &bytes, &options.master_key, store)?),
            None => {
                if is_new && !store.accept_foreign {
                    refuse_occupied(state, store)?;
                }
                match options.is_on {
                    true => Some(first(&path, &options.master_key, store)?),
                    false => None,
                }
            }
        };
        let keys = Self {
            path,
            is_on: options.is_on,
            ring: RwLock::default(),
            held: Mutex::new(held),
        };
        keys.publish(keys.held().as_ref());
        Ok(keys)
    }

    /// Of now. One upload or download uses one.
    pub fn ring(&self) -> Arc<KeyRing> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn info(&self) -> EncryptionInfo {
        let held = self.held();
        let keys = held.as_ref().map_or(&[][..], |held| held.keys.keys());
        EncryptionInfo {
            is_on: self.is_on,
            master_key: held.as_ref().map(|held| held.master.id()),
            data_keys: keys
                .iter()
                .map(|made| DataKeyInfo {
                    id: made.key.id(),
                    made_s: made.made_s,
                })
                .collect(),
        }
    }

    /// Another data key for new objects. Those that are there stay as they are.
    pub fn rotate_data_key(&self, runtime: &Runtime, store: &Arc<dyn ObjectStore>) -> Result<()> {
        self.change(runtime, store, |held| {
            let keys = held.keys.with_new_key(now_s())?;
            let master = held.master.clone();
            Ok(Held { keys, master })
        })
    }

    /// Another master key for the same data keys. The one before opens them no longer.
    pub fn rotate_master_key(&self, runtime: &Runtime, store: &Arc<dyn ObjectStore>, file: &Path) -> Result<()> {
        let master = read_master(&MasterKeySource::File(file.to_owned()))?;
        self.change(runtime, store, |held| {
            let keys = held.keys.clone();
            Ok(Held { keys, master })
        })
    }

    /// In the store first: what it does not have must not encrypt. A kill in between is mended by the next start.
    fn change(
        &self,
        runtime: &Runtime,
        store: &Arc<dyn ObjectStore>,
        change: impl FnOnce(&Held) -> Result<Held>,
    ) -> Result<()> {
        let mut held = self.held();
        let Some(before) = held.as_ref().filter(|_| self.is_on) else {
            return Err(DataKeysError::Off);
        };
        let after = change(before)?;
        let (old, new) = (before.keys.encode(&before.master), after.keys.encode(&after.master));
        runtime.block_on(replace(store, &old, &new))?;
        write(&self.path, &new)?;
        self.publish(Some(&after));
        *held = Some(after);
        Ok(())
    }

    fn publish(&self, held: Option<&Held>) {
        let ring = held.map(|held| held.keys.ring()).unwrap_or_default();
        let ring = if self.is_on { ring } else { ring.reading_only() };
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys in the state directory, and those in the store if it answers.
fn compared(path: &Path, bytes: &[u8], source: &MasterKeySource, store: &StoreAtStart<'_>) -> Result<Held> {
    let master = master_for(source, &path.display().to_string(), bytes)?;
    let local = decode(&path.display().to_string(), bytes, &master);
    let stored = match ask(store) {
        Stored::Unknown => return Ok(Held { keys: local?, master }),
        Stored::Keys(stored) if stored == bytes => return Ok(Held { keys: local?, master }),
        Stored::Keys(stored) => stored,
        Stored::Nothing => {
            let keys = local?;
            tracing::warn!("the store has lost its data keys; they are put there again");
            put_new(store, bytes)?;
            return Ok(Held { keys, master });
        }
    };
    // The store's are those of a rotation that was interrupted here; or the state directory's are damaged.
    let keys = decode("keys in the store", &stored, &master)?;
    if let Ok(local) = local
        && !keys.hold_all_of(&local)
    {
        if !local.hold_all_of(&keys) {
            return Err(DataKeysError::TwoStores { path: path.to_owned() });
        }
        tracing::warn!("the store has older data keys than the state directory; these are put there again");
        store.runtime.block_on(replace(store.store, &stored, bytes))?;
        return Ok(Held { keys: local, master });
    }
    tracing::warn!("the data keys are taken from the store, which has other ones than the state directory");
    write(path, &stored)?;
    Ok(Held { keys, master })
}

/// There are none in the state directory yet, or no more.
fn first(path: &Path, source: &MasterKeySource, store: &StoreAtStart<'_>) -> Result<Held> {
    let stored = store.runtime.block_on(store.store.get(KEYS_NAME, None));
    let held = match stored {
        Ok(stored) => {
            let master = master_for(source, "keys in the store", &stored)?;
            let keys = decode("keys in the store", &stored, &master)?;
            Held { keys, master }
        }
        Err(StoreError::NotFound { .. }) => {
            let held = Held {
                master: master_or_new(source)?,
                keys: StoreKeys::generate(now_s())?,
            };
            put_new(store, &held.keys.encode(&held.master))?;
            held
        }
        Err(error) => return Err(DataKeysError::NoAnswer(error)),
    };
    write(path, &held.keys.encode(&held.master))?;
    Ok(held)
}

/// Puts `new` in place of `old`, and of nothing else.
async fn replace(store: &Arc<dyn ObjectStore>, old: &[u8], new: &[u8]) -> Result<()> {
    let found = store.head(KEYS_NAME).await?;
    if store.get(KEYS_NAME, None).await? != old {
        return Err(DataKeysError::ChangedMeanwhile);
    }
    let put = store.put(KEYS_NAME, new.to_vec().into(), PutMode::IfMatch(found.etag));
    match put.await {
        Err(error) if error.kind() == ErrorKind::Precondition => Err(DataKeysError::ChangedMeanwhile),
        put => Ok(put.map(drop)?),
    }
}

/// In place of nothing: another gateway may be about to do the same.
fn put_new(store: &StoreAtStart<'_>, bytes: &[u8]) -> Result<()> {
    let put = store.store.put(KEYS_NAME, bytes.to_vec().into(), PutMode::IfAbsent);
    match store.runtime.block_on(put) {
        Err(error) if error.kind() == ErrorKind::Precondition => Err(DataKeysError::ChangedMeanwhile),
        put => Ok(put.map(drop)?),
    }
}

/// What the store has under the name of the keys.
enum Stored {
    /// It does not answer.
    Unknown,
    Nothing,
    Keys(Vec<u8>),
}

fn ask(store: &StoreAtStart<'_>) -> Stored {
    if !store.answers {
        return Stored::Unknown;
    }
    let get = store.store.get(KEYS_NAME, None);
    match store
        .runtime
        .block_on(async { tokio::time::timeout(START_PATIENCE, get).await })
    {
        Ok(Ok(bytes)) => Stored::Keys(bytes.to_vec()),
        Ok(Err(StoreError::NotFound { .. })) => Stored::Nothing,
        Ok(Err(error)) => {
            tracing::warn!(%error, "the store's data keys cannot be compared with those of the state directory");
            Stored::Unknown
        }
        Err(_) => {
            tracing::warn!("the store takes long to show its data keys; those of the state directory are used");
            Stored::Unknown
        }
    }
}

/// Objects that are there before this gateway has put any are another's, or those of a state directory that is lost.
fn refuse_occupied(state: &Path, store: &StoreAtStart<'_>) -> Result<()> {
    if !store.answers {
        return Ok(());
    }
    let found = store.runtime.block_on(store.store.list(OBJECTS_PREFIX, None, 1))?;
    match found.is_empty() {
        true => Ok(()),
        false => Err(DataKeysError::Occupied {
            state: state.to_owned(),
        }),
    }
}

/// The master key that opens `bytes`; `keys` says what they are.
fn master_for(source: &MasterKeySource, keys: &str, bytes: &[u8]) -> Result<SecretKey> {
    match source {
        MasterKeySource::File(path) if !path.exists() => Err(DataKeysError::Missing {
            path: path.clone(),
            keys: keys.to_owned(),
            needed: tombolo_cloud_driver::keys::master_key_of(bytes).map_or("unknown".into(), |id| id.to_string()),
        }),
        source => read_master(source),
    }
}

fn master_or_new(source: &MasterKeySource) -> Result<SecretKey> {
    match source {
        MasterKeySource::File(path) if !path.exists() => make_master(path),
        source => read_master(source),
    }
}

/// Where there is none. It is on stable storage in full before it has its name, and before anything is encrypted with it.
fn make_master(path: &Path) -> Result<SecretKey> {
    let disk = |error| DataKeysError::Disk {
        path: path.to_owned(),
        error,
    };
    let master = SecretKey::generate()?;
    let text = master_key_text(&master);
    durable_file::replace(path, |mut file| file.write_all(text.as_bytes())).map_err(disk)?;
    tracing::warn!(
        file = %path.display(),
        "a master key was made. COPY THIS FILE TO A SAFE PLACE, away from this machine and from the store: without it nothing \
         in the store can be read or recovered"
    );
    Ok(master)
}

fn read_master(source: &MasterKeySource) -> Result<SecretKey> {
    let origin = || source.clone();
    let unreadable = |error| DataKeysError::Unreadable {
        origin: origin(),
        error,
    };
    let text = match source {
        MasterKeySource::File(path) => {
            let about = fs::metadata(path).map_err(unreadable)?;
            if about.mode() & 0o077 != 0 {
                let (path, mode) = (path.clone(), about.mode() & 0o777);
                return Err(DataKeysError::OpenToOthers { path, mode });
            }
            if about.len() > MASTER_KEY_BYTES_MAX {
                let (origin, error) = (origin(), NotAMasterKey);
                return Err(DataKeysError::NotAKey { origin, error });
            }
            fs::read(path).map_err(unreadable)?
        }
        MasterKeySource::Environment(name) => match std::env::var_os(name) {
            Some(text) => text.into_encoded_bytes(),
            None => return Err(DataKeysError::NotSet { origin: origin() }),
        },
        MasterKeySource::Command(words) => run(source, words)?,
    };
    parse_master_key(&String::from_utf8_lossy(&text)).map_err(|error| DataKeysError::NotAKey {
        origin: origin(),
        error,
    })
}

fn run(source: &MasterKeySource, words: &[String]) -> Result<Vec<u8>> {
    let failed = |said: String| DataKeysError::Command {
        origin: source.clone(),
        said,
    };
    let [program, arguments @ ..] = words else {
        return Err(failed("it is empty".into()));
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, said.trim())));
    }
    Ok(output.stdout)
}

fn decode(keys: &str, bytes: &[u8], master: &SecretKey) -> Result<StoreKeys> {
    StoreKeys::decode(bytes, master).map_err(|error| DataKeysError::Keys {
        keys: keys.to_owned(),
        error,
    })
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DataKeysError::Disk {
            path: path.to_owned(),
            error,
        }),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    durable_file::replace(path, |mut file| file.write_all(bytes)).map_err(|error| DataKeysError::Disk {
        path: path.to_owned(),
        error,
    })
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

#[cfg(test)]
#[path = "data_keys/tests.rs"]
mod tests;
