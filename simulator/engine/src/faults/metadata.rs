//! Local metadata as LMDB gives it: ordered tables, transactions that take effect whole and durably, or not at all.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Bound;
use tombolo_core::Superblock;
use tombolo_core::local_metadata::{MetadataRead, MetadataTransaction, Table};

type Key = (Table, Vec<u8>);

#[derive(Debug)]
pub struct Metadata {
    entries: BTreeMap<Key, Vec<u8>>,
    /// The fingerprint index's manifest, committed with the rest.
    pub manifest: Option<Vec<u8>>,
}

/// The changes of one transaction over what is committed.
pub struct Transaction<'a> {
    base: &'a Metadata,
    changes: BTreeMap<Key, Option<Vec<u8>>>,
}

/// What a finished transaction will change.
pub struct Changes(BTreeMap<Key, Option<Vec<u8>>>);

impl Metadata {
    /// Of a state directory that has just been made.
    pub fn first(superblock: &Superblock) -> Self {
        let mut entries = BTreeMap::new();
        entries.insert((Table::Super, Vec::new()), superblock.encode());
        Self {
            entries,
            manifest: None,
        }
    }

    pub fn begin(&self) -> Transaction<'_> {
        Transaction {
            base: self,
            changes: BTreeMap::new(),
        }
    }

    pub fn install(&mut self, changes: Changes, manifest: Option<Vec<u8>>) {
        for (key, value) in changes.0 {
            match value {
                Some(value) => self.entries.insert(key, value),
                None => self.entries.remove(&key),
            };
        }
        if manifest.is_some() {
            self.manifest = manifest;
        }
    }

    pub fn table(&self, table: Table) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries
            .range((table, Vec::new())..)
            .take_while(move |((found, _), _)| *found == table)
            .map(|((_, key), value)| (&key[..], &value[..]))
    }
}

impl Metadata {
    /// The file service's entries in `from..end`.
    pub fn entries(&self, from: &[u8], end: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &[u8])> {
        let key = |key: &[u8]| (Table::Entries, key.to_vec());
        let found = (from < end).then(|| self.entries.range(key(from)..key(end)));
        found.into_iter().flatten().map(|((_, key), value)| (key, &value[..]))
    }
}

impl Transaction<'_> {
    pub fn finish(self) -> Changes {
        Changes(self.changes)
    }
}

type Entry = Option<(Vec<u8>, Vec<u8>)>;

impl MetadataRead for Metadata {
    type Error = Infallible;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.entries.get(&(table, key.to_vec())).cloned())
    }

    fn ceiling(&self, table: Table, key: &[u8]) -> Result<Entry, Infallible> {
        let found = self.entries.range((table, key.to_vec())..).next();
        Ok(found
            .filter(|((found, _), _)| *found == table)
            .map(|((_, key), value)| (key.clone(), value.clone())))
    }

    fn floor(&self, table: Table, key: &[u8]) -> Result<Entry, Infallible> {
        let found = self.entries.range(..=(table, key.to_vec())).next_back();
        Ok(found
            .filter(|((found, _), _)| *found == table)
            .map(|((_, key), value)| (key.clone(), value.clone())))
    }
}

impl MetadataRead for Transaction<'_> {
    type Error = Infallible;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        match self.changes.get(&(table, key.to_vec())) {
            Some(changed) => Ok(changed.clone()),
            None => self.base.get(table, key),
        }
    }

    fn ceiling(&self, table: Table, key: &[u8]) -> Result<Entry, Infallible> {
        let mut from = Bound::Included((table, key.to_vec()));
        loop {
            let range = (from.clone(), Bound::Unbounded);
            let committed = self.base.entries.range(range.clone()).next().map(|(key, _)| key);
            let changed = self.changes.range(range).next().map(|(key, _)| key);
            let Some(least) = committed.into_iter().chain(changed).min() else {
                return Ok(None);
            };
            if least.0 != table {
                return Ok(None);
            }
            if let Some(value) = self.get(table, &least.1)? {
                return Ok(Some((least.1.clone(), value)));
            }
            from = Bound::Excluded(least.clone());
        }
    }

    fn floor(&self, table: Table, key: &[u8]) -> Result<Entry, Infallible> {
        let mut to = Bound::Included((table, key.to_vec()));
        loop {
            let range = (Bound::Unbounded, to.clone());
            let committed = self.base.entries.range(range.clone()).next_back().map(|(key, _)| key);
            let changed = self.changes.range(range).next_back().map(|(key, _)| key);
            let Some(greatest) = committed.into_iter().chain(changed).max() else {
                return Ok(None);
            };
            if greatest.0 != table {
                return Ok(None);
            }
            if let Some(value) = self.get(table, &greatest.1)? {
                return Ok(Some((greatest.1.clone(), value)));
            }
            to = Bound::Excluded(greatest.clone());
        }
    }
}

impl MetadataTransaction for Transaction<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Infallible> {
        self.changes.insert((table, key.to_vec()), Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), Infallible> {
        self.changes.insert((table, key.to_vec()), None);
        Ok(())
    }
}
