//! Local metadata in LMDB: one environment, a database per table of the core, one for the fingerprint index's manifest.

use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions, RoTxn, RwTxn, WithTls};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use tombolo_core::checkpoint::{MetadataRead, MetadataTransaction, Table};
use tombolo_files::storage::Entry;

type Data = Database<Bytes, Bytes>;

#[derive(Clone, Debug)]
pub struct Metadata {
    env: Env<WithTls>,
    tables: Tables,
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
}

impl Tables {
    fn of(&self, table: Table) -> Data {
        match table {
            Table::Super => self.superblock,
            Table::Map => self.map,
            Table::References => self.references,
            Table::Objects => self.objects,
            Table::Slots => self.slots,
            Table::Entries => self.entries,
            Table::Counters => self.counters,
        }
    }
}

/// LMDB knows no empty key; the superblock and the manifest lie under this one.
const SINGLE_KEY: &[u8] = b"0";
/// Every connection thread and worker may read at once.
const READERS_MAX: u32 = 1024;

impl Metadata {
    pub fn open(directory: &Path, map_bytes: u64) -> Result<Self, heed::Error> {
        std::fs::create_dir_all(directory)?;
        let mut options = EnvOpenOptions::new();
        options
            .map_size(map_bytes as usize)
            .max_dbs(16)
            .max_readers(READERS_MAX);
        // SAFETY: the state directory's lock keeps other processes of ours away, and no part of this one opens the
        // environment twice or changes its files by other means.
        let env = unsafe { options.open(directory)? };
        let mut transaction = env.write_txn()?;
        let mut create = |name: &str| env.create_database::<Bytes, Bytes>(&mut transaction, Some(name));
        let tables = Tables {
            superblock: create("super")?,
            map: create("map")?,
            references: create("references")?,
            objects: create("objects")?,
            slots: create("slots")?,
            entries: create("entries")?,
            counters: create("counters")?,
            index: create("index")?,
        };
        transaction.commit()?;
        Ok(Self { env, tables })
    }

    pub fn read(&self) -> Result<Reading<'_>, heed::Error> {
        Ok(Reading {
            transaction: self.env.read_txn()?,
            tables: self.tables,
        })
    }

    pub fn write(&self) -> Result<Writing<'_>, heed::Error> {
        Ok(Writing {
            transaction: self.env.write_txn()?,
            tables: self.tables,
        })
    }

    /// An entry of the file service.
    pub fn entry(&self, key: &[u8]) -> Result<Option<Arc<[u8]>>, heed::Error> {
        let transaction = self.env.read_txn()?;
        Ok(self.tables.entries.get(&transaction, key)?.map(Arc::from))
    }

    /// The entries with `from <= key < end`, at most `limit` of them, ascending.
    pub fn entries(&self, from: &[u8], end: &[u8], limit: usize) -> Result<Vec<Entry>, heed::Error> {
        let transaction = self.env.read_txn()?;
        let bounds = (Bound::Included(from), Bound::Excluded(end));
        let range = self.tables.entries.range(&transaction, &bounds)?;
        range
            .take(limit)
            .map(|entry| entry.map(|(key, value)| (key.to_vec(), Arc::from(value))))
            .collect()
    }

    pub fn manifest(&self) -> Result<Option<Vec<u8>>, heed::Error> {
        let transaction = self.env.read_txn()?;
        Ok(self.tables.index.get(&transaction, SINGLE_KEY)?.map(<[u8]>::to_vec))
    }

    /// Bytes of the environment's file in use.
    pub fn used_bytes(&self) -> u64 {
        self.env.real_disk_size().unwrap_or(0)
    }
}

pub struct Reading<'e> {
    transaction: RoTxn<'e, WithTls>,
    tables: Tables,
}

pub struct Writing<'e> {
    transaction: RwTxn<'e>,
    tables: Tables,
}

impl Writing<'_> {
    pub fn put_manifest(&mut self, bytes: &[u8]) -> Result<(), heed::Error> {
        self.tables.index.put(&mut self.transaction, SINGLE_KEY, bytes)
    }

    /// Durable when it returns.
    pub fn commit(self) -> Result<(), heed::Error> {
        self.transaction.commit()
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

macro_rules! reads {
    ($kind:ident) => {
        impl MetadataRead for $kind<'_> {
            type Error = String;

            fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
                let found = self.tables.of(table).get(&self.transaction, key_of(table, key));
                found
                    .map(|value| value.map(<[u8]>::to_vec))
                    .map_err(|error| error.to_string())
            }

            fn ceiling(&self, table: Table, key: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, String> {
                let data = self.tables.of(table);
                let found = data.get_greater_than_or_equal_to(&self.transaction, key_of(table, key));
                found.map(owned).map_err(|error| error.to_string())
            }

            fn floor(&self, table: Table, key: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, String> {
                let data = self.tables.of(table);
                let found = data.get_lower_than_or_equal_to(&self.transaction, key_of(table, key));
                found.map(owned).map_err(|error| error.to_string())
            }
        }
    };
}

reads!(Reading);
reads!(Writing);

fn owned(entry: Option<(&[u8], &[u8])>) -> Option<(Vec<u8>, Vec<u8>)> {
    entry.map(|(key, value)| (key.to_vec(), value.to_vec()))
}

impl MetadataTransaction for Writing<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), String> {
        let put = self
            .tables
            .of(table)
            .put(&mut self.transaction, key_of(table, key), value);
        put.map_err(|error| error.to_string())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), String> {
        let deleted = self.tables.of(table).delete(&mut self.transaction, key_of(table, key));
        deleted.map(|_| ()).map_err(|error| error.to_string())
    }
}
