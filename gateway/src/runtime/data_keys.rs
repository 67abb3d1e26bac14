//! The data keys of the store: made at the first start, kept in the store and in the state directory, both times encrypted
//! by the master key, and exchanged while the gateway runs.
//!
//! A data key encrypts nothing before the store has it, so whoever has bucket and master key can read every object. The
//! copy in the state directory lets a gateway start while the store does not answer. At a start the two are compared: the
//! store may have one more key, if a rotation was interrupted. Keys that objects need are never replaced by new ones.
//!
//! It owns when keys come and change. It does not own their form (`tombolo_cloud_driver::keys`) or where the master key is
//! kept ([`super::master_key`]).

use super::durable_file;
use super::master_key::{self, MasterKey, MasterKeyError, MasterKeySource};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;
use tombolo_base::KeyId;
use tombolo_cloud_driver::encryption::{KeyRing, NoRandomness, SecretKey};
use tombolo_cloud_driver::keys::{
    KEYS_BYTES_MAX, KEYS_NAME, KeysError, NewKeyError, StoreKeys, Wrapping, master_key_of, wrapping_of,
};
use tombolo_cloud_driver::kms::{KmsError, KmsSettings};
use tombolo_cloud_driver::{ErrorKind, ObjectStore, PutMode, StoreError};

/// How long a start waits for the store's copy, when it has one of its own.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// A prefix with objects belongs to somebody.
const OBJECTS_PREFIX: &str = "objects/";
const IN_THE_STORE: &str = "the object `keys` in the store";

/// How objects are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionOptions {
    /// Off: new objects lie in the store as they are; keys of earlier ones are still read.
    pub is_on: bool,
    pub master_key: MasterKeySource,
    /// How AWS KMS is reached when another key of it is named.
    pub kms: KmsSettings,
}

/// Which key takes the place of which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKey<'n> {
    /// A data key that is made.
    Data,
    /// The master key in a file.
    MasterFile(&'n Path),
    /// A master key that is made, and wrapped by this key of AWS KMS.
    MasterKms(&'n str),
}

/// Why the data keys cannot be had or changed.
#[derive(Debug, thiserror::Error)]
pub enum DataKeysError {
    #[error(transparent)]
    MasterKey(#[from] MasterKeyError),
    #[error(
        "master key: {path} is missing, and {keys} needs master key {needed}; put back the copy that was kept, or name it in \
         [store] master_key_file: without it nothing in the store can be read"
    )]
    MasterKeyMissing {
        path: PathBuf,
        keys: String,
        needed: String,
    },
    #[error("{keys}: {error}{}", if matches!(error, KeysError::WrongMasterKey { .. }) {
        "; name the right one in [store] master_key_file, master_key_environment or master_key_command"
    } else { "" })]
    Keys { keys: String, error: KeysError },
    #[error(
        "{keys}: the data keys are encrypted by master key {needed}, which AWS KMS key {wrapped_by} wraps; name that in \
         [store] master_key_kms"
    )]
    AtKms {
        keys: String,
        needed: KeyId,
        wrapped_by: String,
    },
    #[error(
        "{keys}: the data keys are encrypted by master key {needed}, which no key of AWS KMS wraps; name it in [store] \
         master_key_file, master_key_environment or master_key_command, and give it to AWS KMS with `tombolo key rotate \
         --master-key-kms KEY`"
    )]
    NotAtKms { keys: String, needed: String },
    #[error("{keys}: {error}")]
    NotUnwrapped { keys: String, error: Box<KmsError> },
    #[error(
        "{IN_THE_STORE}: {error}; {path} is whole: remove the object, and the next start puts these keys there again"
    )]
    StoredDamaged { path: PathBuf, error: KeysError },
    #[error(
        "objects in the store are encrypted with data key {key}, which is neither in {path} nor in {IN_THE_STORE}; put \
         back one of the two from a copy: without the key these objects cannot be read. If they are lost for good, set \
         [store] accept_foreign = true"
    )]
    KeyLost { key: KeyId, path: PathBuf },
    #[error(
        "{path} and {IN_THE_STORE} are the keys of two different stores; correct [store] url, or put back the state \
         directory that belongs to it"
    )]
    TwoStores { path: PathBuf },
    #[error(
        "{path} and {IN_THE_STORE} have each a data key that the other lacks: one of them was changed by another gateway, \
         on a copy of this state directory; put back the one that this gateway has written last"
    )]
    Diverged { path: PathBuf },
    #[error(
        "the store has data of a gateway already, and {state} is not its state directory: put that back, or name another \
         prefix or directory in [store] url; one gateway serves one prefix"
    )]
    Occupied { state: PathBuf },
    #[error(
        "store: {0}; it must have the data keys before it gets any data, so it is needed to begin with encryption: start \
         again when it answers"
    )]
    NoAnswer(StoreError),
    #[error("store: {0}; the change may be in force already: repeat the command when the store answers")]
    Unconfirmed(StoreError),
    #[error("store: {0}")]
    Store(StoreError),
    #[error("{path}: {error}")]
    Disk { path: PathBuf, error: io::Error },
    #[error("{path}: {error}; the store has the change already: repeat the command when this is mended")]
    HalfDone { path: PathBuf, error: io::Error },
    #[error(transparent)]
    NewKey(#[from] NewKeyError),
    #[error("nothing is encrypted here; set [store] encryption = \"aes-256-gcm\" and restart")]
    Off,
    #[error("another change of the keys is under way")]
    Busy,
    #[error("{IN_THE_STORE} is not this gateway's any more; restart it, and it says what is wrong")]
    ChangedMeanwhile,
}

impl From<NoRandomness> for DataKeysError {
    fn from(error: NoRandomness) -> Self {
        Self::NewKey(error.into())
    }
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
    /// The key of AWS KMS that wraps it, by its ARN.
    pub wrapped_by: Option<String>,
    /// Oldest first.
    pub data_keys: Vec<DataKeyInfo>,
}

#[derive(Clone)]
struct Held {
    keys: StoreKeys,
    master: MasterKey,
}

impl Held {
    /// The first keys of a store, under a master key that is there or made.
    fn generate(runtime: &Runtime, source: &MasterKeySource) -> Result<Self> {
        let keys = StoreKeys::generate(now_s())?;
        let master = source.read_or_make(runtime, keys.identity)?;
        Ok(Self { keys, master })
    }

    fn encode(&self) -> Vec<u8> {
        self.keys.encode(&self.master.key, self.master.wrapped.as_ref())
    }

    /// # Errors
    /// When another master key encrypted them, or they are damaged.
    fn decode(bytes: &[u8], key: &SecretKey) -> Result<Self, KeysError> {
        let keys = StoreKeys::decode(bytes, key)?;
        let wrapped = wrapping_of(bytes)?.map(|wrapping| wrapping.key);
        let master = MasterKey {
            key: key.clone(),
            wrapped,
        };
        Ok(Self { keys, master })
    }
}

/// Opens keys of one store, wherever they lie. A master key is asked for once, if it is not another one that is needed.
struct Opener<'o> {
    runtime: &'o Runtime,
    source: &'o MasterKeySource,
    master: Option<SecretKey>,
}

impl<'o> Opener<'o> {
    fn new(runtime: &'o Runtime, source: &'o MasterKeySource) -> Self {
        Self {
            runtime,
            source,
            master: None,
        }
    }

    /// `keys` says what the bytes are.
    fn open(&mut self, keys: &str, bytes: &[u8]) -> Result<Held> {
        let damaged = |error: KeysError| DataKeysError::Keys {
            keys: keys.to_owned(),
            error,
        };
        let is_kms = matches!(self.source, MasterKeySource::Kms(_));
        let wrapping = match wrapping_of(bytes) {
            Ok(wrapping) => wrapping,
            // Any master key finds that out, and a file that is missing is said first.
            Err(error) if is_kms => return Err(damaged(error.into())),
            Err(_) => None,
        };
        let needed = master_key_of(bytes);
        let is_known = self.master.as_ref().is_some_and(|master| Some(master.id()) == needed);
        let master = match &self.master {
            Some(master) if is_known || !is_kms => master.clone(),
            _ => self.read(keys, needed, wrapping.as_ref())?,
        };
        self.master = Some(master.clone());
        Held::decode(bytes, &master).map_err(|error| match (error, wrapping) {
            (KeysError::WrongMasterKey { .. }, Some(wrapping)) => at_kms(keys, wrapping),
            (error, _) => damaged(error),
        })
    }

    fn read(&self, keys: &str, needed: Option<KeyId>, wrapping: Option<&Wrapping>) -> Result<SecretKey> {
        let shown = || needed.map_or("of an id that cannot be read".into(), |id| id.to_string());
        match (self.source, self.source.missing_file(), wrapping) {
            (_, Some(_), Some(wrapping)) => Err(at_kms(keys, wrapping.clone())),
            (_, Some(path), None) => Err(DataKeysError::MasterKeyMissing {
                path: path.to_owned(),
                keys: keys.to_owned(),
                needed: shown(),
            }),
            (MasterKeySource::Kms(_), _, None) => Err(DataKeysError::NotAtKms {
                keys: keys.to_owned(),
                needed: shown(),
            }),
            _ => self.source.read(self.runtime, wrapping).map_err(|error| match error {
                MasterKeyError::Kms(error) if error.is_of_the_wrapped_key() => DataKeysError::NotUnwrapped {
                    keys: keys.to_owned(),
                    error,
                },
                error => error.into(),
            }),
        }
    }
}

fn at_kms(keys: &str, wrapping: Wrapping) -> DataKeysError {
    DataKeysError::AtKms {
        keys: keys.to_owned(),
        needed: wrapping.master_key,
        wrapped_by: wrapping.key.wrapping_key,
    }
}

impl DataKeysError {
    /// Whether it is about the keys that were to be opened, and others may open: not about where the master key comes from.
    fn is_of_the_keys(&self) -> bool {
        matches!(
            self,
            Self::Keys { .. } | Self::AtKms { .. } | Self::NotAtKms { .. } | Self::NotUnwrapped { .. }
        )
    }
}

/// The keys of a running gateway.
pub struct DataKeys {
    path: PathBuf,
    is_on: bool,
    kms: KmsSettings,
    /// `None`: nothing was ever encrypted.
    held: Mutex<Option<Held>>,
    /// One change at a time. It waits for the store, for which whoever asks for the status must not wait.
    changing: Mutex<()>,
    ring: RwLock<Arc<KeyRing>>,
}

/// What a start knows besides.
pub struct AtStart<'s> {
    pub runtime: &'s Runtime,
    /// Bare, without retries.
    pub store: &'s Arc<dyn ObjectStore>,
    /// Whether it answered a moment ago.
    pub answers: bool,
    /// What it holds already is taken for this gateway's, and what it lacks is given up.
    pub accept_foreign: bool,
}

impl DataKeys {
    /// Before there is a state directory: the store must be empty, and gets the keys.
    pub fn first(state: &Path, options: &EncryptionOptions, start: &AtStart<'_>) -> Result<Self> {
        let path = state.join(KEYS_NAME);
        let held = match read_file_if_there(&path)? {
            // They got their name when the store had them.
            Some(bytes) => Some(compared(&path, &bytes, &options.master_key, start)?),
            None => {
                refuse_occupied(state, options, start)?;
                let begin = || begun(state, &path, &options.master_key, start);
                options.is_on.then(begin).transpose()?
            }
        };
        Ok(Self::new(path, options, held))
    }

    /// `used`: keys of objects that this gateway has put, some of each time. `start.store` is its own.
    pub fn open(
        state: &Path,
        options: &EncryptionOptions,
        start: &AtStart<'_>,
        used: &BTreeSet<KeyId>,
    ) -> Result<Self> {
        let path = state.join(KEYS_NAME);
        let held = match read_file_if_there(&path)? {
            Some(bytes) => Some(compared(&path, &bytes, &options.master_key, start)?),
            None if options.is_on || !used.is_empty() => regained(&path, options, start, used)?,
            None => None,
        };
        let keys = Self::new(path, options, held);
        let ring = keys.ring();
        match used.iter().find(|id| ring.lacks(**id)) {
            Some(key) if start.accept_foreign => {
                tracing::warn!(%key, "a data key is lost, and with it the objects that it has encrypted");
                Ok(keys)
            }
            Some(key) => Err(DataKeysError::KeyLost {
                key: *key,
                path: keys.path,
            }),
            None => Ok(keys),
        }
    }

    /// For a recovery: those that the store has, if it has any. Nothing is written yet.
    pub fn of_store(state: &Path, options: &EncryptionOptions, start: &AtStart<'_>) -> Result<Self> {
        let stored = start.runtime.block_on(stored_keys(start.store));
        let mut opener = Opener::new(start.runtime, &options.master_key);
        let mut open = |stored: Vec<u8>| opener.open(IN_THE_STORE, &stored);
        let held = stored.map_err(DataKeysError::Store)?.map(&mut open).transpose()?;
        Ok(Self::new(state.join(KEYS_NAME), options, held))
    }

    /// Into the state directory.
    pub fn write(&self) -> Result<()> {
        match &*self.held() {
            Some(held) => write_at_start(&self.path, &held.encode()),
            None => Ok(()),
        }
    }

    fn new(path: PathBuf, options: &EncryptionOptions, held: Option<Held>) -> Self {
        let keys = Self {
            path,
            is_on: options.is_on,
            kms: options.kms.clone(),
            held: Mutex::default(),
            changing: Mutex::default(),
            ring: RwLock::default(),
        };
        if let Some(held) = held {
            keys.publish(held);
        }
        keys
    }

    /// What is wrong with those that the store has, if anything.
    pub fn stored_fault(
        &self,
        runtime: &Runtime,
        store: &Arc<dyn ObjectStore>,
    ) -> Result<Option<&'static str>, StoreError> {
        let _none_are_replaced = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = self.held().as_ref().map(Held::encode) else {
            return Ok(None);
        };
        Ok(match runtime.block_on(stored_keys(store))? {
            Some(stored) if stored == own => None,
            Some(_) => Some("it holds other data keys than this gateway has put there"),
            None => Some("the data keys are missing; the next start of the gateway puts them there again"),
        })
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
            master_key: held.as_ref().map(|held| held.master.key.id()),
            wrapped_by: held
                .as_ref()
                .and_then(|held| Some(held.master.wrapped.as_ref()?.wrapping_key.clone())),
            data_keys: keys
                .iter()
                .map(|made| DataKeyInfo {
                    id: made.key.id(),
                    made_s: made.made_s,
                })
                .collect(),
        }
    }

    /// A new data key encrypts new objects, and those that are there stay as they are. A new master key takes the same data keys,
    /// and the one before opens them no longer.
    pub fn rotate(&self, runtime: &Runtime, store: &Arc<dyn ObjectStore>, new: NewKey<'_>) -> Result<()> {
        match new {
            NewKey::Data => self.change(runtime, store, None),
            NewKey::MasterFile(file) => {
                let source = MasterKeySource::File(file.to_owned());
                let master = source.read(runtime, None)?;
                master_key::sync(file)?;
                self.change(runtime, store, Some((&source, Some(&master))))
            }
            NewKey::MasterKms(key) => {
                let settings = KmsSettings {
                    key: key.to_owned(),
                    ..self.kms.clone()
                };
                let source = MasterKeySource::Kms(Box::new(settings));
                self.change(runtime, store, Some((&source, None)))
            }
        }
    }

    /// In the store first: what it does not have must not encrypt. An attempt whose end nobody heard of is taken up by the
    /// next one, and by a start. Of a new master key it is known where it comes from, and which it is if it was there before.
    fn change(
        &self,
        runtime: &Runtime,
        store: &Arc<dyn ObjectStore>,
        new_master: Option<(&MasterKeySource, Option<&SecretKey>)>,
    ) -> Result<()> {
        let Ok(_changing) = self.changing.try_lock() else {
            return Err(DataKeysError::Busy);
        };
        let Some(mut before) = self.held().clone().filter(|_| self.is_on) else {
            return Err(DataKeysError::Off);
        };
        let stored = runtime.block_on(stored_keys(store)).map_err(DataKeysError::Store)?;
        if let Some(stored) = stored.as_deref().filter(|stored| *stored != before.encode()) {
            let earlier = earlier_attempt(runtime, &before, new_master.map(|(source, _)| source), stored)?;
            let earlier = earlier.ok_or(DataKeysError::ChangedMeanwhile)?;
            let was_this = new_master.is_some() && earlier.master.key.id() != before.master.key.id();
            before = earlier;
            self.keep(&before, stored)?;
            if was_this {
                return Ok(());
            }
        }
        let after = match new_master {
            Some((_, Some(key))) if key.id() == before.master.key.id() && before.master.wrapped.is_none() => {
                return Ok(());
            }
            Some((_, Some(key))) => Held {
                keys: before.keys.clone(),
                master: key.clone().into(),
            },
            Some((source, None)) => Held {
                keys: before.keys.clone(),
                master: source.read_or_make(runtime, before.keys.identity)?,
            },
            None => Held {
                keys: before.keys.with_new_key(now_s())?,
                master: before.master.clone(),
            },
        };
        let bytes = after.encode();
        let old = stored.is_some().then(|| before.encode());
        runtime.block_on(put_in_place_of(store, old.as_deref(), &bytes))?;
        self.keep(&after, &bytes)
    }

    /// The store has it.
    fn keep(&self, held: &Held, bytes: &[u8]) -> Result<()> {
        write(&self.path, bytes).map_err(|error| DataKeysError::HalfDone {
            path: self.path.clone(),
            error,
        })?;
        self.publish(held.clone());
        Ok(())
    }

    fn publish(&self, held: Held) {
        let ring = held.keys.ring();
        let ring = if self.is_on { ring } else { ring.reading_only() };
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
        *self.held() = Some(held);
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the store has may be what an earlier attempt put there, of which no answer came: then it lacks none of our keys.
fn earlier_attempt(
    runtime: &Runtime,
    before: &Held,
    new_master: Option<&MasterKeySource>,
    stored: &[u8],
) -> Result<Option<Held>> {
    let open_anew = |source| Opener::new(runtime, source).open(IN_THE_STORE, stored);
    let opened = match (Held::decode(stored, &before.master.key), new_master) {
        (Ok(held), _) => held,
        (Err(_), None) => return Ok(None),
        (Err(_), Some(source)) => match open_anew(source) {
            Ok(held) => held,
            Err(error) if error.is_of_the_keys() => return Ok(None),
            Err(error) => return Err(error),
        },
    };
    Ok(Some(opened).filter(|opened| opened.keys.hold_all_of(&before.keys)))
}

/// The keys in the state directory, and those in the store if it answers.
fn compared(path: &Path, bytes: &[u8], source: &MasterKeySource, start: &AtStart<'_>) -> Result<Held> {
    let mut opener = Opener::new(start.runtime, source);
    let local = match opener.open(&path.display().to_string(), bytes) {
        Err(error) if !error.is_of_the_keys() => return Err(error),
        local => local,
    };
    let stored_bytes = match ask(start) {
        Stored::Unknown => return local,
        Stored::Keys(stored) if stored == bytes => return local,
        Stored::Keys(stored) => stored,
        Stored::Nothing => {
            let local = local?;
            tracing::warn!("the store has lost its data keys; they are put there again");
            start.runtime.block_on(put_in_place_of(start.store, None, bytes))?;
            return Ok(local);
        }
    };
    let stored = match (opener.open(IN_THE_STORE, &stored_bytes), &local) {
        (Ok(stored), _) => stored,
        (Err(DataKeysError::Keys { error, .. }), Ok(_)) if !matches!(error, KeysError::WrongMasterKey { .. }) => {
            let path = path.to_owned();
            return Err(DataKeysError::StoredDamaged { path, error });
        }
        (Err(error), _) => return Err(error),
    };
    match local {
        Ok(local) if stored.keys.hold_all_of(&local.keys) => {}
        Ok(local) if local.keys.hold_all_of(&stored.keys) => {
            tracing::warn!("the store has older data keys than the state directory; these are put there again");
            start
                .runtime
                .block_on(put_in_place_of(start.store, Some(&stored_bytes), bytes))?;
            return Ok(local);
        }
        Ok(local) if local.keys.identity == stored.keys.identity => {
            return Err(DataKeysError::Diverged { path: path.to_owned() });
        }
        Ok(_) => return Err(DataKeysError::TwoStores { path: path.to_owned() }),
        // Damaged, or of a master key that was replaced.
        Err(_) => {}
    }
    tracing::warn!("the data keys are taken from the store, which has other ones than the state directory");
    write_at_start(path, &stored_bytes)?;
    Ok(stored)
}

/// The first keys of a store. They lie under another name until the store has them, so that a start that was cut short is
/// gone on with, and the keys of another gateway are told from ours.
fn begun(state: &Path, path: &Path, source: &MasterKeySource, start: &AtStart<'_>) -> Result<Held> {
    let left = match read_file_if_there(&durable_file::new_path(path))? {
        // A file that is missing had not been made then.
        Some(bytes) if source.missing_file().is_none() => {
            match Opener::new(start.runtime, source).open(&path.display().to_string(), &bytes) {
                Err(error) if !error.is_of_the_keys() => return Err(error),
                opened => opened.ok(),
            }
        }
        _ => None,
    };
    let held = match left {
        Some(held) => held,
        None => Held::generate(start.runtime, source)?,
    };
    let bytes = held.encode();
    durable_file::make(path, |mut file| file.write_all(&bytes)).map_err(at(path))?;
    match start
        .runtime
        .block_on(start.store.put(KEYS_NAME, bytes.clone().into(), PutMode::IfAbsent))
    {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Precondition => {
            let stored = start.runtime.block_on(stored_keys(start.store));
            if stored.map_err(DataKeysError::NoAnswer)?.as_deref() != Some(&bytes) {
                fs::remove_file(durable_file::new_path(path)).map_err(at(path))?;
                return Err(DataKeysError::Occupied {
                    state: state.to_owned(),
                });
            }
        }
        Err(error) => return Err(DataKeysError::NoAnswer(error)),
    }
    durable_file::publish(path).map_err(at(path))?;
    Ok(held)
}

/// The state directory has none. The store's, if it has any; new ones only where nothing was ever encrypted.
fn regained(
    path: &Path,
    options: &EncryptionOptions,
    start: &AtStart<'_>,
    used: &BTreeSet<KeyId>,
) -> Result<Option<Held>> {
    let stored = start.runtime.block_on(stored_keys(start.store));
    let held = match (stored.map_err(DataKeysError::NoAnswer)?, used.first()) {
        (Some(stored), _) => Opener::new(start.runtime, &options.master_key).open(IN_THE_STORE, &stored)?,
        (None, Some(_)) if start.accept_foreign && !options.is_on => return Ok(None),
        (None, Some(key)) if !start.accept_foreign => {
            let (key, path) = (*key, path.to_owned());
            return Err(DataKeysError::KeyLost { key, path });
        }
        (None, _) => {
            let held = Held::generate(start.runtime, &options.master_key)?;
            start
                .runtime
                .block_on(put_in_place_of(start.store, None, &held.encode()))?;
            held
        }
    };
    write_at_start(path, &held.encode())?;
    Ok(Some(held))
}

/// What the store has under the name of the keys.
enum Stored {
    /// It does not answer.
    Unknown,
    Nothing,
    Keys(Vec<u8>),
}

fn ask(start: &AtStart<'_>) -> Stored {
    if !start.answers {
        return Stored::Unknown;
    }
    let get = stored_keys(start.store);
    match start
        .runtime
        .block_on(async { tokio::time::timeout(START_PATIENCE, get).await })
    {
        Ok(Ok(Some(bytes))) => Stored::Keys(bytes),
        Ok(Ok(None)) => Stored::Nothing,
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

/// No more of the object than it can have, whatever lies there.
async fn stored_keys(store: &Arc<dyn ObjectStore>) -> Result<Option<Vec<u8>>, StoreError> {
    match store.get(KEYS_NAME, Some(0..KEYS_BYTES_MAX as u64 + 1)).await {
        Ok(bytes) => Ok(Some(bytes.to_vec())),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(StoreError::RangeOutside { .. }) => Ok(Some(Vec::new())),
        Err(error) => Err(error),
    }
}

/// In place of `old` (`None`: of nothing) and of nothing else: another gateway may be about to do the same.
async fn put_in_place_of(store: &Arc<dyn ObjectStore>, old: Option<&[u8]>, new: &[u8]) -> Result<()> {
    let mode = match old {
        None => PutMode::IfAbsent,
        Some(old) => {
            let found = store.head(KEYS_NAME).await.map_err(DataKeysError::Store)?;
            let stored = stored_keys(store).await.map_err(DataKeysError::Store)?;
            if stored.as_deref() != Some(old) {
                return Err(DataKeysError::ChangedMeanwhile);
            }
            PutMode::IfMatch(found.etag)
        }
    };
    match store.put(KEYS_NAME, new.to_vec().into(), mode).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::Precondition => Err(DataKeysError::ChangedMeanwhile),
        Err(error) => Err(DataKeysError::Unconfirmed(error)),
    }
}

/// Objects or keys that are there before this gateway has put any are another's, or those of a state directory that is lost.
fn refuse_occupied(state: &Path, options: &EncryptionOptions, start: &AtStart<'_>) -> Result<()> {
    if !start.answers || start.accept_foreign {
        return Ok(());
    }
    let list = start.store.list(OBJECTS_PREFIX, None, 1);
    let has_objects = !start.runtime.block_on(list).map_err(DataKeysError::Store)?.is_empty();
    let has_keys = || {
        let stored = start.runtime.block_on(stored_keys(start.store));
        Ok::<_, DataKeysError>(stored.map_err(DataKeysError::Store)?.is_some())
    };
    // With encryption the keys are compared with what an interrupted first start has left.
    if has_objects || (!options.is_on && has_keys()?) {
        return Err(DataKeysError::Occupied {
            state: state.to_owned(),
        });
    }
    Ok(())
}

fn read_file_if_there(path: &Path) -> Result<Option<Vec<u8>>> {
    let read = File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(KEYS_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path)(error)),
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    durable_file::replace(path, |mut file| file.write_all(bytes))
}

fn write_at_start(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes).map_err(at(path))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> DataKeysError {
    let path = path.to_owned();
    move |error| DataKeysError::Disk { path, error }
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
