//! Local metadata as LMDB gives it: ordered tables, transactions that take effect whole and durably, or not at all. After a
//! recovery from the bucket a part of it may be there still.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use tombolo_base::OBJECT_HEAD_BYTES;
use tombolo_cloud_driver::encryption::KeyRing;
use tombolo_cloud_driver::node_object::{PlacedNode, open_node};
use tombolo_core::backing::{Backed, BackedError, Backing, Behind, begin, lay, load_progress};
use tombolo_core::bucket_tree::BucketTreeError;
use tombolo_core::local_metadata::{MetadataFault, MetadataRead, MetadataTransaction, Table};
use tombolo_core::{MetadataError, Superblock};
use tombolo_metadata_tree::{Nodes, Pointer, TreeError, Written};

type Key = (Table, Vec<u8>);

#[derive(Clone, Debug)]
pub struct Metadata {
    entries: BTreeMap<Key, Vec<u8>>,
    /// What it lacks.
    behind: Option<Behind<BucketNodes>>,
    /// The fingerprint index's manifest, committed with the rest.
    pub manifest: Option<Vec<u8>>,
}

/// Objects of nodes, by number.
pub type NodeObjects = Arc<Mutex<BTreeMap<u64, Vec<u8>>>>;

/// Nodes as the bucket has them.
#[derive(Clone, Debug)]
pub struct BucketNodes {
    pub objects: NodeObjects,
    pub ring: Arc<KeyRing>,
    /// How many more are given before the store does not answer; `None`: all.
    pub answers: Option<Arc<AtomicU64>>,
}

const AWAY: &str = "503 Slow Down";

impl BucketNodes {
    pub fn objects(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<u8>>> {
        self.objects.lock().expect("nobody panics with it")
    }
}

impl Nodes for BucketNodes {
    type Error = String;

    fn read(&mut self, pointer: &Pointer) -> Result<Vec<u8>, String> {
        let less_one = |left: u64| left.checked_sub(1);
        if let Some(answers) = &self.answers
            && answers.fetch_update(Relaxed, Relaxed, less_one).is_err()
        {
            return Err(AWAY.to_string());
        }
        let objects = self.objects();
        let object = objects.get(&pointer.object).ok_or("there is no such object")?;
        let (from, end) = (
            pointer.offset as usize,
            pointer.offset as usize + pointer.bytes as usize,
        );
        let placed = PlacedNode {
            message: pointer.message,
            offset: pointer.offset,
            bytes: pointer.bytes,
            tag: pointer.tag,
        };
        let stored = object.get(from..end).ok_or("the object is too short")?;
        open_node(
            pointer.object,
            &object[..OBJECT_HEAD_BYTES],
            &placed,
            stored,
            &self.ring,
        )
        .map_err(|error| error.to_string())
    }

    fn write(&mut self, _: Vec<u8>) -> Result<Written, String> {
        Err("nothing is written".to_string())
    }
}

/// What is here.
pub struct Here<'a>(&'a Metadata);

/// The changes of one transaction over what is committed.
pub struct Changing<'a> {
    base: &'a Metadata,
    changes: BTreeMap<Key, Option<Vec<u8>>>,
}

/// What a gateway asks for in the middle of its work: the store may not answer.
pub struct Asked<'t, L>(&'t mut Backed<L, BucketNodes>);

/// One transaction.
pub struct Transaction<'a>(Backed<Changing<'a>, BucketNodes>);

/// What a finished transaction will change.
pub struct Changes(BTreeMap<Key, Option<Vec<u8>>>);

impl Metadata {
    /// Of a state directory that has just been made.
    pub fn first(superblock: &Superblock) -> Self {
        let mut entries = BTreeMap::new();
        entries.insert((Table::Super, Vec::new()), superblock.encode());
        Self {
            entries,
            behind: None,
            manifest: None,
        }
    }

    /// All that the tree has is lacking.
    pub fn lack(&mut self, backing: Backing, nodes: BucketNodes) {
        let mut transaction = self.changing();
        let Ok(()) = begin(&mut transaction, &backing);
        let changes = Changes(transaction.changes);
        self.install(changes, None);
        let backing = Arc::new(backing);
        self.behind = Some(Behind { backing, nodes });
    }

    pub fn is_whole(&self) -> bool {
        self.behind.is_none()
    }

    /// Brings some of what is lacking here.
    pub fn load(&mut self, records_max: u64) {
        let Some(Behind { backing, nodes }) = self.behind.clone() else {
            return;
        };
        let mut transaction = self.changing();
        let progress = load_progress(&transaction).expect("metadata is whole");
        let portion = told(backing.read(&mut nodes.clone(), &progress, records_max, usize::MAX));
        let is_last = lay(&mut transaction, &portion).expect("metadata takes it");
        let changes = Changes(transaction.changes);
        self.install(changes, None);
        if is_last {
            self.behind = None;
            assert_eq!(
                self.table(Table::Backing).count(),
                0,
                "nothing tells that anything was lacking"
            );
        }
    }

    /// As it will be when nothing is lacking.
    pub fn whole(&self) -> Cow<'_, Self> {
        let mut whole = Cow::Borrowed(self);
        while !whole.is_whole() {
            whole.to_mut().load(1000);
        }
        whole
    }

    fn all(&self) -> Backed<Here<'_>, BucketNodes> {
        Backed::new(Here(self), self.behind.clone())
    }

    /// The same, where the store gives so many nodes and no more.
    fn behind_of(&self, answers: u64) -> Option<Behind<BucketNodes>> {
        let mut behind = self.behind.clone()?;
        behind.nodes.answers = Some(Arc::new(AtomicU64::new(answers)));
        Some(behind)
    }

    /// A look of the gateway, which is given so many nodes.
    pub fn ask<T>(
        &self,
        answers: u64,
        look: impl FnOnce(&Asked<'_, Here<'_>>) -> Result<T, MetadataFault<MetadataError>>,
    ) -> Result<T, MetadataError> {
        let mut all = Backed::new(Here(self), self.behind_of(answers));
        Ok(look(&Asked(&mut all))?)
    }

    fn changing(&self) -> Changing<'_> {
        Changing {
            base: self,
            changes: BTreeMap::new(),
        }
    }

    /// A transaction of the gateway, which is given so many nodes.
    pub fn begin_asking(&self, answers: u64) -> Transaction<'_> {
        Transaction(Backed::new(self.changing(), self.behind_of(answers)))
    }

    pub fn begin(&self) -> Transaction<'_> {
        Transaction(Backed::new(self.changing(), self.behind.clone()))
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

    /// Of what is here.
    pub fn table(&self, table: Table) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries
            .range((table, Vec::new())..)
            .take_while(move |((found, _), _)| *found == table)
            .map(|((_, key), value)| (&key[..], &value[..]))
    }
}

impl Metadata {
    /// The file service's entries in `from..end`, at most `limit` of them.
    pub fn entries(&self, from: &[u8], end: &[u8], limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        told(self.all().entries(from, end, limit))
    }
}

/// What was put into the bucket comes back.
fn told<T, E: Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("local metadata, or what it lacks: {error}"))
}

impl<'a> Transaction<'a> {
    pub fn asked(&mut self) -> Asked<'_, Changing<'a>> {
        Asked(&mut self.0)
    }

    pub fn finish(self) -> Changes {
        Changes(self.0.local.changes)
    }
}

type Entry = Option<(Vec<u8>, Vec<u8>)>;

/// What was put into the bucket comes back, when it answers.
fn asked<T>(result: Result<T, BackedError<Infallible, String>>) -> Result<T, MetadataError> {
    result.map_err(|error| match error {
        BackedError::Tree(BucketTreeError::Tree(TreeError::Nodes(reason))) if reason == AWAY => {
            MetadataError::Unanswered(reason)
        }
        error => panic!("local metadata, or what it lacks: {error}"),
    })
}

impl<L: MetadataRead<Error = Infallible>> MetadataRead for Asked<'_, L> {
    type Error = MetadataError;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, MetadataError> {
        asked(self.0.get(table, key))
    }

    fn ceiling(&self, table: Table, key: &[u8]) -> Result<Entry, MetadataError> {
        asked(self.0.ceiling(table, key))
    }

    fn floor(&self, table: Table, key: &[u8]) -> Result<Entry, MetadataError> {
        asked(self.0.floor(table, key))
    }
}

impl<L: MetadataTransaction<Error = Infallible>> MetadataTransaction for Asked<'_, L> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), MetadataError> {
        asked(self.0.put(table, key, value))
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), MetadataError> {
        asked(self.0.delete(table, key))
    }

    fn is_counted(&self, page: &[u8]) -> Result<bool, MetadataError> {
        asked(self.0.is_counted(page))
    }
}

impl MetadataRead for Metadata {
    type Error = Infallible;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(told(self.all().get(table, key)))
    }

    fn ceiling(&self, table: Table, key: &[u8]) -> Result<Entry, Infallible> {
        Ok(told(self.all().ceiling(table, key)))
    }

    fn floor(&self, table: Table, key: &[u8]) -> Result<Entry, Infallible> {
        Ok(told(self.all().floor(table, key)))
    }
}

impl MetadataRead for Transaction<'_> {
    type Error = Infallible;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(told(self.0.get(table, key)))
    }

    fn ceiling(&self, table: Table, key: &[u8]) -> Result<Entry, Infallible> {
        Ok(told(self.0.ceiling(table, key)))
    }

    fn floor(&self, table: Table, key: &[u8]) -> Result<Entry, Infallible> {
        Ok(told(self.0.floor(table, key)))
    }
}

impl MetadataTransaction for Transaction<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Infallible> {
        told(self.0.put(table, key, value));
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), Infallible> {
        told(self.0.delete(table, key));
        Ok(())
    }

    fn is_counted(&self, page: &[u8]) -> Result<bool, Infallible> {
        Ok(told(self.0.is_counted(page)))
    }
}

impl MetadataRead for Here<'_> {
    type Error = Infallible;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.0.entries.get(&(table, key.to_vec())).cloned())
    }

    fn ceiling(&self, table: Table, key: &[u8]) -> Result<Entry, Infallible> {
        let found = self.0.entries.range((table, key.to_vec())..).next();
        Ok(found
            .filter(|((found, _), _)| *found == table)
            .map(|((_, key), value)| (key.clone(), value.clone())))
    }

    fn floor(&self, table: Table, key: &[u8]) -> Result<Entry, Infallible> {
        let found = self.0.entries.range(..=(table, key.to_vec())).next_back();
        Ok(found
            .filter(|((found, _), _)| *found == table)
            .map(|((_, key), value)| (key.clone(), value.clone())))
    }
}

impl MetadataRead for Changing<'_> {
    type Error = Infallible;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        match self.changes.get(&(table, key.to_vec())) {
            Some(changed) => Ok(changed.clone()),
            None => Here(self.base).get(table, key),
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

impl MetadataTransaction for Changing<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Infallible> {
        self.changes.insert((table, key.to_vec()), Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), Infallible> {
        self.changes.insert((table, key.to_vec()), None);
        Ok(())
    }
}
