//! Local metadata in LMDB: one environment, a database per table of the core, one for the fingerprint index's manifest. Of a
//! state directory that was recovered a part may still be in the store; it is read there ([`tombolo_core::backing`]).

use super::durable_file;
use super::metadata_file::{self, DATA_FILE, MetadataFileError};
use super::tree_nodes::{CachedNodes, NodesError};
use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions, RoTxn, RwTxn, WithTls};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;
use tombolo_base::DecodeError;
use tombolo_core::backing::{Backed, BackedError, Backing, Behind, load_backing};
use tombolo_core::bucket_tree::BucketTreeError;
use tombolo_core::local_metadata::{MetadataFault, MetadataRead, MetadataTransaction, Table};
use tombolo_core::sealed::{seal, unseal};
use tombolo_core::{MetadataError, Superblock};
use tombolo_files::storage::Entry;
use tombolo_metadata_tree::TreeError;

type Data = Database<Bytes, Bytes>;

#[derive(Clone, Debug)]
pub struct Metadata {
    env: Env<WithTls>,
    tables: Tables,
    /// What it lacks; `None`: nothing.
    behind: Arc<RwLock<Option<Behind<CachedNodes>>>>,
}

#[derive(Clone, Copy, Debug)]
struct Tables {
    superblock: Data,
    map: Data,
    references: Data,
    objects: Data,
    slots: Data,
    entries: Data,
    counters: Data,
    index: Data,
    /// Of a state directory that was recovered.
    backing: Option<Data>,
}

impl Tables {
    fn of(&self, table: Table) -> Option<Data> {
        Some(match table {
            Table::Super => self.superblock,
            Table::Map => self.map,
            Table::References => self.references,
            Table::Objects => self.objects,
            Table::Slots => self.slots,
            Table::Entries => self.entries,
            Table::Counters => self.counters,
            Table::Backing => return self.backing,
        })
    }
}

/// LMDB knows no empty key; the superblock and the manifest lie under this one.
const SINGLE_KEY: &[u8] = b"0";
const SUPER: &str = "super";
const BACKING: &str = "backing";
/// Every connection thread and worker may read at once.
const READERS_MAX: u32 = 1024;

/// Why local metadata cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum MetadataOpenError {
    #[error(transparent)]
    File(#[from] MetadataFileError),
    #[error(
        "{path}: {error}; do not remove it, it says where all data lies: put it back as it was, or restore the state \
         directory from a copy"
    )]
    Lmdb { path: PathBuf, error: heed::Error },
    #[error("{path}: the table {table:?} is missing; restore the state directory from a copy")]
    Table { path: PathBuf, table: &'static str },
    #[error("{path}: {error}")]
    Backing {
        path: PathBuf,
        error: MetadataFault<String>,
    },
}

fn open_environment(directory: &Path, map_bytes: u64) -> Result<Env<WithTls>, heed::Error> {
    durable_file::make_directory(directory)?;
    let mut options = EnvOpenOptions::new();
    options
        .map_size(map_bytes as usize)
        .max_dbs(16)
        .max_readers(READERS_MAX);
    // SAFETY: the state directory's lock keeps other processes of ours away, and no part of this one opens the
    // environment twice or changes its files by other means.
    unsafe { options.open(directory) }
}

impl Metadata {
    /// Makes one that holds a superblock and nothing else, durably.
    pub fn make(directory: &Path, map_bytes: u64, superblock: &Superblock) -> Result<(), heed::Error> {
        let env = open_environment(directory, map_bytes)?;
        let mut transaction = env.write_txn()?;
        let mut create = |name| env.create_database::<Bytes, Bytes>(&mut transaction, Some(name));
        for name in [
            "map",
            "references",
            "objects",
            "slots",
            "entries",
            "counters",
            "index",
            BACKING,
        ] {
            create(name)?;
        }
        let data = create(SUPER)?;
        data.put(&mut transaction, SINGLE_KEY, &superblock.encode())?;
        transaction.commit()?;
        env.prepare_for_closing().wait();
        std::fs::File::open(directory.join(DATA_FILE))?.sync_all()?;
        Ok(durable_file::sync_directory(directory)?)
    }

    /// `noted_bytes`: how long the file was known to be, if that is known.
    pub fn open(directory: &Path, map_bytes: u64, noted_bytes: Option<u64>) -> Result<Self, MetadataOpenError> {
        metadata_file::check(directory, noted_bytes)?;
        let path = || directory.to_owned();
        let failed = |error| MetadataOpenError::Lmdb { path: path(), error };
        let env = open_environment(directory, map_bytes).map_err(failed)?;
        let transaction = env.read_txn().map_err(failed)?;
        let open = |table: &'static str| {
            let found = env.open_database(&transaction, Some(table)).map_err(failed)?;
            found.ok_or_else(|| MetadataOpenError::Table { path: path(), table })
        };
        let tables = Tables {
            superblock: open(SUPER)?,
            map: open("map")?,
            references: open("references")?,
            objects: open("objects")?,
            slots: open("slots")?,
            entries: open("entries")?,
            counters: open("counters")?,
            index: open("index")?,
            // State directories were made without it.
            backing: env.open_database(&transaction, Some(BACKING)).map_err(failed)?,
        };
        // The handles outlive the transaction that opened them when it commits.
        transaction.commit().map_err(failed)?;
        let behind = Arc::default();
        let metadata = Self { env, tables, behind };
        let local = LocalReading {
            transaction: metadata.env.read_txn().map_err(failed)?,
            tables,
        };
        let backing = load_backing(&local).map_err(|error| MetadataOpenError::Backing { path: path(), error })?;
        drop(local);
        metadata.set_behind(backing, CachedNodes::away());
        Ok(metadata)
    }

    /// Reads what it lacks from there.
    pub fn attach(&self, nodes: CachedNodes) {
        if let Some(behind) = &mut *self.behind.write().unwrap_or_else(PoisonError::into_inner) {
            behind.nodes = nodes;
        }
    }

    /// From now on it lacks what `backing` has; `None`: nothing any more.
    pub fn set_behind(&self, backing: Option<Backing>, nodes: CachedNodes) {
        let behind = backing.map(Arc::new).map(|backing| Behind { backing, nodes });
        *self.behind.write().unwrap_or_else(PoisonError::into_inner) = behind;
    }

    /// What it lacks.
    pub fn behind(&self) -> Option<Behind<CachedNodes>> {
        self.behind.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives the file up, which may be moved then.
    pub fn close(self) {
        self.env.prepare_for_closing().wait();
    }

    pub fn read(&self) -> Result<Reading<'_>, heed::Error> {
        // Before the transaction begins: what is brought here after that is not looked for here.
        self.read_before(self.behind())
    }

    /// The same, but the store is not asked: what only it has cannot be read. The flag says whether anything was such.
    pub fn read_kept(&self) -> Result<(Reading<'_>, Arc<AtomicBool>), heed::Error> {
        let Some(Behind { backing, nodes }) = self.behind() else {
            return Ok((self.read_before(None)?, Arc::default()));
        };
        let (nodes, is_lacking) = nodes.kept_only();
        let reading = self.read_before(Some(Behind { backing, nodes }))?;
        Ok((reading, is_lacking))
    }

    /// The same, for one who may have waited before he could ask: when the store is away, only until then.
    pub fn read_until(&self, until: Instant) -> Result<Reading<'_>, heed::Error> {
        let behind = self.behind().map(|Behind { backing, nodes }| Behind {
            backing,
            nodes: nodes.until(until),
        });
        self.read_before(behind)
    }

    fn read_before(&self, behind: Option<Behind<CachedNodes>>) -> Result<Reading<'_>, heed::Error> {
        let local = LocalReading {
            transaction: self.env.read_txn()?,
            tables: self.tables,
        };
        Ok(Reading(Backed::new(local, behind)))
    }

    pub fn write(&self) -> Result<Writing<'_>, heed::Error> {
        let behind = self.behind();
        Ok(Writing(Backed::new(self.write_local()?, behind)))
    }

    /// To change what is here and nothing else.
    pub fn write_local(&self) -> Result<LocalWriting<'_>, heed::Error> {
        Ok(LocalWriting {
            transaction: self.env.write_txn()?,
            tables: self.tables,
        })
    }

    /// An entry of the file service.
    pub fn entry(&self, key: &[u8]) -> Result<Option<Arc<[u8]>>, RecordError> {
        if self.behind().is_some() {
            let found = self.read()?.get(Table::Entries, key);
            return Ok(found.map_err(RecordError::Behind)?.map(Arc::from));
        }
        let transaction = self.env.read_txn()?;
        let found = self.tables.find(&transaction, Table::Entries, key)?;
        Ok(found.map(Arc::from))
    }

    /// The entries with `from <= key < end`, at most `limit` of them, ascending.
    pub fn entries(&self, from: &[u8], end: &[u8], limit: usize) -> Result<Vec<Entry>, RecordError> {
        if self.behind().is_some() {
            let found = self.read()?.0.entries(from, end, limit);
            let found = found.map_err(|error| RecordError::Behind(error_behind(error)))?;
            return Ok(found.into_iter().map(|(key, value)| (key, Arc::from(value))).collect());
        }
        let transaction = self.env.read_txn()?;
        self.tables.around(&transaction, Table::Entries, from)?;
        let mut entries: Vec<Entry> = Vec::new();
        let bounds = (Bound::Included(from), Bound::Unbounded);
        for entry in self.tables.entries.range(&transaction, &bounds)?.take(limit) {
            let (key, stored) = entry?;
            let least = entries.last().map_or(from, |(last, _)| last.as_slice());
            // The one that ends the range is looked at too: a key that was altered must not cut it short.
            let Some((key, value)) = neighbour(Table::Entries, least, |key| key >= least, Some((key, stored)))? else {
                break;
            };
            if key.as_slice() >= end {
                break;
            }
            entries.push((key, Arc::from(value)));
        }
        Ok(entries)
    }

    pub fn manifest(&self) -> Result<Option<Vec<u8>>, heed::Error> {
        let transaction = self.env.read_txn()?;
        Ok(self.tables.index.get(&transaction, SINGLE_KEY)?.map(<[u8]>::to_vec))
    }

    /// Length of the environment's file.
    pub fn file_bytes(&self) -> u64 {
        self.env.real_disk_size().unwrap_or(0)
    }
}

/// What is here.
pub struct LocalReading<'e> {
    transaction: RoTxn<'e, WithTls>,
    tables: Tables,
}

/// What is here, to be changed.
pub struct LocalWriting<'e> {
    transaction: RwTxn<'e>,
    tables: Tables,
}

/// All that there is.
pub struct Reading<'e>(Backed<LocalReading<'e>, CachedNodes>);

/// All that there is, to be changed.
pub struct Writing<'e>(Backed<LocalWriting<'e>, CachedNodes>);

impl LocalWriting<'_> {
    pub fn put_manifest(&mut self, bytes: &[u8]) -> Result<(), heed::Error> {
        self.tables.index.put(&mut self.transaction, SINGLE_KEY, bytes)
    }

    /// Durable when it returns.
    pub fn commit(self) -> Result<(), heed::Error> {
        self.transaction.commit()
    }
}

impl Writing<'_> {
    pub fn put_manifest(&mut self, bytes: &[u8]) -> Result<(), heed::Error> {
        self.0.local.put_manifest(bytes)
    }

    /// Durable when it returns.
    pub fn commit(self) -> Result<(), heed::Error> {
        self.0.local.commit()
    }
}

fn key_of(table: Table, key: &[u8]) -> &[u8] {
    match table {
        Table::Super => SINGLE_KEY,
        // An empty key asks for the beginning.
        _ if key.is_empty() => &[0],
        _ => key,
    }
}

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{0}")]
    Lmdb(#[from] heed::Error),
    /// Of metadata that is not all here.
    #[error("{0}")]
    Behind(MetadataError),
    #[error(
        "table {table:?}, key {key:02x?}: {error}; local metadata is damaged: restore the state directory from a copy"
    )]
    Damaged {
        table: Table,
        key: Vec<u8>,
        error: DecodeError,
    },
    #[error(
        "table {table:?}: found key {found:02x?} in the place of {wanted:02x?}; local metadata is damaged: restore the \
         state directory from a copy"
    )]
    Misplaced {
        table: Table,
        found: Vec<u8>,
        wanted: Vec<u8>,
    },
}

impl From<RecordError> for MetadataError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Behind(error) => error,
            error => Self::Local(error.to_string()),
        }
    }
}

/// Of metadata with a tree behind it.
fn error_behind(error: BackedError<String, NodesError>) -> MetadataError {
    match error {
        BackedError::Local(reason) => MetadataError::Local(reason),
        BackedError::Tree(BucketTreeError::Tree(TreeError::Nodes(error))) => error.into(),
        BackedError::Tree(error) => MetadataError::Altered(error.to_string()),
        BackedError::Progress(error) => MetadataError::Local(error.to_string()),
    }
}

fn unsealed<'v>(table: Table, key: &[u8], stored: &'v [u8]) -> Result<&'v [u8], RecordError> {
    unseal(table, key, stored).map_err(|error| RecordError::Damaged {
        table,
        key: key.to_vec(),
        error,
    })
}

type Found = Option<(Vec<u8>, Vec<u8>)>;

/// A neighbour of `wanted`, if it is whole and lies on this side of it.
fn neighbour(
    table: Table,
    wanted: &[u8],
    lies_right: impl Fn(&[u8]) -> bool,
    found: Option<(&[u8], &[u8])>,
) -> Result<Found, RecordError> {
    let Some((key, stored)) = found else { return Ok(None) };
    if !lies_right(key) {
        let (found, wanted) = (key.to_vec(), wanted.to_vec());
        return Err(RecordError::Misplaced { table, found, wanted });
    }
    let value = unsealed(table, key, stored)?;
    Ok(Some((key.to_vec(), value.to_vec())))
}

impl Tables {
    /// The record below `key`, and the one at or above it. A key that was altered, or a page that lies where another
    /// should, shows in one of the two: so what seems to be absent is looked for between neighbours.
    fn around(&self, transaction: &RoTxn<'_>, table: Table, key: &[u8]) -> Result<(Found, Found), RecordError> {
        let Some(data) = self.of(table) else {
            return Ok((None, None));
        };
        let below = data.get_lower_than(transaction, key)?;
        let from = data.get_greater_than_or_equal_to(transaction, key)?;
        Ok((
            neighbour(table, key, |found| found < key, below)?,
            neighbour(table, key, |found| found >= key, from)?,
        ))
    }

    fn find(&self, transaction: &RoTxn<'_>, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, RecordError> {
        let stored = self.of(table).map(|data| data.get(transaction, key)).transpose()?;
        if let Some(stored) = stored.flatten() {
            return Ok(Some(unsealed(table, key, stored)?.to_vec()));
        }
        match self.around(transaction, table, key)? {
            (_, Some((found, _))) if found == key => Err(RecordError::Misplaced {
                table,
                wanted: key.to_vec(),
                found,
            }),
            _ => Ok(None),
        }
    }
}

macro_rules! reads {
    ($kind:ident) => {
        impl $kind<'_> {
            fn around(&self, table: Table, key: &[u8]) -> Result<(Found, Found), String> {
                let around = self.tables.around(&self.transaction, table, key_of(table, key));
                around.map_err(|error| error.to_string())
            }
        }

        impl MetadataRead for $kind<'_> {
            type Error = String;

            fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
                let found = self.tables.find(&self.transaction, table, key_of(table, key));
                found.map_err(|error| error.to_string())
            }

            fn ceiling(&self, table: Table, key: &[u8]) -> Result<Found, String> {
                Ok(self.around(table, key)?.1)
            }

            fn floor(&self, table: Table, key: &[u8]) -> Result<Found, String> {
                let (below, from) = self.around(table, key)?;
                Ok(from.filter(|(found, _)| found == key).or(below))
            }
        }
    };
}

reads!(LocalReading);
reads!(LocalWriting);

macro_rules! reads_all {
    ($kind:ident) => {
        impl MetadataRead for $kind<'_> {
            type Error = MetadataError;

            fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, MetadataError> {
                self.0.get(table, key).map_err(error_behind)
            }

            fn ceiling(&self, table: Table, key: &[u8]) -> Result<Found, MetadataError> {
                self.0.ceiling(table, key).map_err(error_behind)
            }

            fn floor(&self, table: Table, key: &[u8]) -> Result<Found, MetadataError> {
                self.0.floor(table, key).map_err(error_behind)
            }
        }
    };
}

reads_all!(Reading);
reads_all!(Writing);

impl MetadataTransaction for Writing<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), MetadataError> {
        self.0.put(table, key, value).map_err(error_behind)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), MetadataError> {
        self.0.delete(table, key).map_err(error_behind)
    }

    fn is_counted(&self, page: &[u8]) -> Result<bool, MetadataError> {
        self.0.is_counted(page).map_err(error_behind)
    }
}

fn no_table() -> String {
    "this state directory has no table of what is in the store in its place".into()
}

impl MetadataTransaction for LocalWriting<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), String> {
        let stored = seal(table, key, value.to_vec());
        let data = self.tables.of(table).ok_or_else(no_table)?;
        let put = data.put(&mut self.transaction, key_of(table, key), &stored);
        put.map_err(|error| error.to_string())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), String> {
        let data = self.tables.of(table).ok_or_else(no_table)?;
        let deleted = data.delete(&mut self.transaction, key_of(table, key));
        deleted.map(|_| ()).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(directory: &Path) -> Metadata {
        let path = directory.join("metadata");
        if !path.exists() {
            Metadata::make(&path, 1 << 20, &Superblock::first(7, 64)).unwrap();
        }
        Metadata::open(&path, 1 << 20, None).unwrap()
    }

    /// Puts bytes under a key past the sums.
    fn put_raw(metadata: &Metadata, table: Table, key: &[u8], stored: &[u8]) {
        let mut transaction = metadata.env.write_txn().unwrap();
        metadata
            .tables
            .of(table)
            .unwrap()
            .put(&mut transaction, key, stored)
            .unwrap();
        transaction.commit().unwrap();
    }

    fn put(metadata: &Metadata, table: Table, key: &[u8], value: &[u8]) {
        let mut writing = metadata.write().unwrap();
        writing.put(table, key, value).unwrap();
        writing.commit().unwrap();
    }

    #[test]
    fn what_was_put_under_a_key_is_found_there_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let metadata = open(directory.path());
        put(&metadata, Table::Entries, b"one", b"value");
        put(&metadata, Table::Map, b"one", b"page");
        let reading = metadata.read().unwrap();
        assert_eq!(reading.get(Table::Map, b"one"), Ok(Some(b"page".to_vec())));
        let stored = metadata
            .tables
            .map
            .get(&reading.0.local.transaction, b"one")
            .unwrap()
            .unwrap()
            .to_vec();
        drop(reading);
        assert_eq!(metadata.entry(b"one").unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(metadata.entries(b"a", b"z", 9).unwrap().len(), 1);
        // The same bytes under another key, in another table, and with a bit flipped.
        put_raw(&metadata, Table::Map, b"two", &stored);
        put_raw(&metadata, Table::Entries, b"one", &stored);
        let mut flipped = stored;
        flipped[1] ^= 4;
        put_raw(&metadata, Table::Map, b"one", &flipped);
        let reading = metadata.read().unwrap();
        for key in [b"one", b"two"] {
            let said = reading.get(Table::Map, key).unwrap_err().to_string();
            assert!(said.contains("restore the state directory"), "{said}");
            assert!(reading.ceiling(Table::Map, key).is_err() && reading.floor(Table::Map, key).is_err());
        }
        drop(reading);
        assert!(metadata.entry(b"one").is_err() && metadata.entries(b"a", b"z", 9).is_err());
    }

    #[test]
    fn what_is_absent_is_looked_for_between_neighbours() {
        let directory = tempfile::tempdir().unwrap();
        let metadata = open(directory.path());
        for key in [b"b", b"d", b"f"] {
            put(&metadata, Table::Entries, key, b"value");
            put(&metadata, Table::Map, key, b"value");
        }
        assert_eq!(metadata.entry(b"c").unwrap(), None);
        assert_eq!(metadata.entries(b"c", b"e", 9).unwrap().len(), 1);
        let reading = metadata.read().unwrap();
        assert_eq!(reading.get(Table::Map, b"c"), Ok(None));
        let keys = |found: Result<Found, MetadataError>| found.unwrap().map(|(key, _)| key[0]);
        assert_eq!(
            [b"c", b"d", b"g"].map(|key| keys(reading.ceiling(Table::Map, key))),
            [Some(b'd'), Some(b'd'), None]
        );
        assert_eq!(
            [b"a", b"d", b"g"].map(|key| keys(reading.floor(Table::Map, key))),
            [None, Some(b'd'), Some(b'f')]
        );
        drop(reading);
        // As if a bit of the key had flipped: "d" is gone, "c" is there with the sum of "d".
        let transaction = metadata.env.read_txn().unwrap();
        let stored = metadata.tables.map.get(&transaction, b"d").unwrap().unwrap().to_vec();
        drop(transaction);
        for (table, data) in [
            (Table::Map, metadata.tables.map),
            (Table::Entries, metadata.tables.entries),
        ] {
            let mut transaction = metadata.env.write_txn().unwrap();
            data.delete(&mut transaction, b"d").unwrap();
            transaction.commit().unwrap();
            put_raw(&metadata, table, b"c", &stored);
        }
        let reading = metadata.read().unwrap();
        assert!(reading.get(Table::Map, b"d").is_err() && reading.ceiling(Table::Map, b"d").is_err());
        drop(reading);
        assert!(metadata.entry(b"d").is_err() && metadata.entries(b"d", b"e", 9).is_err());
        assert!(
            metadata.entries(b"a", b"c", 9).is_err(),
            "what ends the range is not whole"
        );
    }

    #[test]
    fn a_neighbour_on_the_wrong_side_is_refused() {
        let stored = seal(Table::Map, b"a", Vec::new());
        let found = neighbour(Table::Map, b"m", |key| key >= b"m".as_slice(), Some((b"a", &stored)));
        assert!(matches!(found, Err(RecordError::Misplaced { .. })));
    }
}
