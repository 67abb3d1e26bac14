//! The metadata in the bucket as trees: what the journal there is folded into, and what a recovery begins with
//! (`docs/decisions/0016-bucket-metadata.md`). Pure over [`Nodes`].
//!
//! Each volume has a tree of its own for its map, all shares together have one for the maps of files and one for entries. One
//! tree above them names their roots, and has all else:
//!
//! ```text
//! key                             value
//! "D", dataset u64 BE             kind u8: 1 a volume, then size u64, name length u8, name, root of its map;
//!                                 2 the shares (dataset 0), then root of the maps, root of the entries
//! "O", first PVBN u64 BE          kind u8: 1, then the object descriptor
//! "K", a counter's key            i64
//! "T"                             totals: 6 × u64
//! ```
//!
//! A size is as in the journal ([`crate::format::record`]). In the root object: number of the checkpoint u32, then the root of that tree.

use crate::backing::{Progress, read_head};
use crate::format::bucket_journal::{Item, Part};
use crate::format::superblock::{Totals, Volume, encode_size};
use crate::state::extent_map::{Extent, ExtentMap, Target as BlockTarget};
use crate::state::overlay::Frozen;
use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    sync::Arc,
    vec::Vec,
};
use tombolo_base::{DecodeError, ObjectDescriptor, Reader, VolumeId, Writer};
use tombolo_metadata_tree::{
    Counting, Entries, Entry, MapKey, Nodes, Pointer, Root, Run, Runs, Scan, Shape, Target, TreeError, UsageTable,
    apply, get, visit,
};

const DATASET: u8 = b'D';
const OBJECT: u8 = b'O';
const COUNTER: u8 = b'K';
const TOTALS: u8 = b'T';
const VOLUME_KIND: u8 = 1;
const SHARES_KIND: u8 = 2;
const WHOLE_DESCRIPTOR: u8 = 1;
/// Files of all shares.
const SHARES: u64 = 0;
/// Records that a recovery takes out of a tree at a time.
const CHUNK: u64 = 1 << 14;

/// What the root object says of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketTree {
    /// Of the last checkpoint; zero: the tree is empty.
    pub checkpoint: u32,
    /// The tree above all others.
    pub root: Root,
}

/// A tree with the journal in it.
#[derive(Clone, Debug)]
pub struct Folded {
    /// The tree that has it.
    pub tree: BucketTree,
    /// Which objects of nodes its root needs.
    pub usage: UsageTable,
    /// Where that lies.
    pub usage_at: Pointer,
}

/// Why the journal cannot be folded in, or the tree not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketTreeError<E> {
    /// A tree cannot be read or changed.
    #[error("metadata tree: {0}")]
    Tree(TreeError<E>),
    /// What the tree has under a key is not what it should be.
    #[error("metadata tree, key {key:02x?}: {error}")]
    Record {
        /// In the tree above all others.
        key: Vec<u8>,
        /// What is wrong with it.
        error: DecodeError,
    },
}

impl<E> From<TreeError<E>> for BucketTreeError<E> {
    fn from(error: TreeError<E>) -> Self {
        Self::Tree(error)
    }
}

impl BucketTree {
    /// As the root object has it; nothing for an empty tree.
    pub fn encode(&self) -> Vec<u8> {
        if self.checkpoint == 0 {
            return Vec::new();
        }
        let mut out = Writer::default();
        out.u32(self.checkpoint);
        self.root.encode(&mut out);
        out.0
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// When the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut reader = Reader::new(bytes);
        let checkpoint = reader.u32("tree checkpoint")?;
        if checkpoint == 0 {
            return Err(DecodeError::Invalid {
                what: "tree checkpoint",
                value: 0,
            });
        }
        let root = Root::decode(&mut reader)?;
        reader.finish("tree")?;
        Ok(Self { checkpoint, root })
    }

    /// The key of the object that local metadata has under `key`.
    pub(crate) fn object_key(key: &[u8]) -> Vec<u8> {
        [&[OBJECT], key].concat()
    }

    /// From where on no key is that of an object.
    pub(crate) fn objects_end() -> Vec<u8> {
        alloc::vec![OBJECT + 1]
    }

    /// The keys before and behind those of objects.
    pub(crate) fn ranges_beside_objects() -> [(Vec<u8>, Option<Vec<u8>>); 2] {
        [(Vec::new(), Some(Self::object_key(&[]))), (Self::objects_end(), None)]
    }
}

/// What a dataset is, and where its trees begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dataset {
    Volume { size: u64, name: String, map: Root },
    Shares { maps: Root, entries: Root },
}

impl Dataset {
    fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Volume { size, name, map } => {
                out.u8(VOLUME_KIND)
                    .u64(*size)
                    .u8(name.len() as u8)
                    .bytes(name.as_bytes());
                map.encode(&mut out);
            }
            Self::Shares { maps, entries } => {
                out.u8(SHARES_KIND);
                maps.encode(&mut out);
                entries.encode(&mut out);
            }
        }
        out.0
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let dataset = match reader.u8("dataset kind")? {
            VOLUME_KIND => {
                let size = reader.u64("volume size")?;
                let length = usize::from(reader.u8("volume name length")?);
                let name = core::str::from_utf8(reader.bytes("volume name", length)?);
                let name = String::from(name.map_err(|_| DecodeError::Invalid {
                    what: "volume name",
                    value: length as u64,
                })?);
                let map = Root::decode(&mut reader)?;
                Self::Volume { size, name, map }
            }
            SHARES_KIND => Self::Shares {
                maps: Root::decode(&mut reader)?,
                entries: Root::decode(&mut reader)?,
            },
            other => {
                return Err(DecodeError::Invalid {
                    what: "dataset kind",
                    value: u64::from(other),
                });
            }
        };
        reader.finish("dataset")?;
        Ok(dataset)
    }
}

fn key_of(tag: u8, number: u64) -> Vec<u8> {
    let mut key = alloc::vec![tag];
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Changes of the journal, the last of each key, as they are folded in.
#[derive(Debug, Default)]
pub struct JournalChanges {
    is_whole: bool,
    pub(crate) map: ExtentMap,
    pub(crate) entries: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    pub(crate) counters: BTreeMap<Vec<u8>, i64>,
    pub(crate) objects: BTreeMap<u64, Arc<ObjectDescriptor>>,
    pub(crate) volumes: BTreeMap<VolumeId, Option<Volume>>,
    totals: Totals,
}

impl JournalChanges {
    /// Takes the next part in. A journal begins with the point that is whole, if it has one.
    pub fn lay(&mut self, part: Part) {
        self.is_whole |= part.header.is_whole;
        self.totals = part.header.totals;
        for item in part.items {
            match item {
                Item::Volume(volume) => {
                    self.volumes.insert(volume.id, Some(volume));
                }
                Item::NoVolume(volume) => {
                    self.volumes.insert(volume, None);
                }
                Item::Run(extent) => self.map.insert(extent),
                Item::Object(descriptor) => {
                    self.objects.insert(descriptor.first_pvbn().0, Arc::new(descriptor));
                }
                Item::Entry(key, value) => {
                    self.entries.insert(key, Some(value));
                }
                Item::NoEntry(key) => {
                    self.entries.insert(key, None);
                }
                Item::Counter(key, value) => {
                    self.counters.insert(key, value);
                }
            }
        }
    }

    /// The changed runs of maps, by dataset. What a volume that is gone mapped goes with it.
    fn runs_by_dataset(&self) -> BTreeMap<u64, Vec<Run>> {
        let mut runs: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
        for extent in self.map.iter() {
            let dataset = match extent.volume.inode() {
                Some(_) => SHARES,
                None if matches!(self.volumes.get(&extent.volume), Some(None)) => continue,
                None => extent.volume.0,
            };
            runs.entry(dataset).or_default().push(run_of(&extent));
        }
        runs
    }
}

fn run_of(extent: &Extent) -> Run {
    Run {
        start: MapKey {
            file: extent.volume.0,
            block: extent.first,
        },
        length: extent.count,
        target: match extent.target {
            BlockTarget::At(pvbn) => Some(Target { pvbn, birth: None }),
            BlockTarget::Hole => None,
        },
    }
}

/// A fold under way.
struct Fold<'n, N> {
    nodes: &'n mut N,
    birth: u32,
    shape: Shape,
    died: Vec<Pointer>,
}

/// What the journal is folded into.
#[derive(Clone, Debug, Default)]
pub struct FoldBase {
    /// The tree of the root that is current.
    pub tree: BucketTree,
    /// Which objects of nodes that root needs.
    pub usage: UsageTable,
    /// Where that lies; `None`: it is new.
    pub usage_at: Option<Pointer>,
    /// Sequence of the root that will have the journal in its tree.
    pub next_root: u64,
    /// Of nodes that are written.
    pub shape: Shape,
}

/// Folds the journal into the tree. The tree before stays readable.
///
/// # Errors
/// When a node cannot be read or written. What was written then belongs to no tree.
pub fn fold<N: Nodes>(
    nodes: &mut N,
    base: FoldBase,
    changes: &JournalChanges,
) -> Result<Folded, BucketTreeError<N::Error>> {
    let FoldBase {
        tree: before,
        mut usage,
        usage_at,
        next_root,
        shape,
    } = base;
    let birth = before.checkpoint + 1;
    let mut counting = Counting::new(nodes);
    let mut fold = Fold {
        nodes: &mut counting,
        birth,
        shape,
        died: Vec::new(),
    };
    let root = match changes.is_whole {
        true => fold.run(&Root::default(), changes)?,
        false => fold.run(&before.root, changes)?,
    };
    let died = fold.died;
    for died in died.iter().chain(&usage_at) {
        usage.subtract(died.object, next_root);
    }
    if changes.is_whole {
        usage.subtract_all(next_root);
    }
    for object in counting.written() {
        usage.add(object, next_root);
    }
    let usage_at = write_usage(nodes, &usage, next_root, birth)?;
    let tree = BucketTree {
        checkpoint: birth,
        root,
    };
    Ok(Folded { tree, usage, usage_at })
}

/// Writes the table for the root of this sequence.
///
/// # Errors
/// When it cannot be written.
pub fn write_usage<N: Nodes>(
    nodes: &mut N,
    usage: &UsageTable,
    root: u64,
    birth: u32,
) -> Result<Pointer, BucketTreeError<N::Error>> {
    let written = nodes.write(usage.encode(root)).map_err(TreeError::Nodes)?;
    Ok(written.born(birth))
}

type BucketTreeResult<T, N> = Result<T, BucketTreeError<<N as Nodes>::Error>>;

impl<N: Nodes> Fold<'_, N> {
    fn run(&mut self, root: &Root, changes: &JournalChanges) -> BucketTreeResult<Root, N> {
        let mut records: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        let mut runs = changes.runs_by_dataset();
        let mut datasets: BTreeSet<u64> = runs.keys().copied().collect();
        datasets.extend(changes.volumes.keys().map(|volume| volume.0));
        if !changes.entries.is_empty() {
            datasets.insert(SHARES);
        }
        for dataset in datasets {
            let key = key_of(DATASET, dataset);
            let found = dataset_at(self.nodes, root, &key)?;
            let runs = runs.remove(&dataset).unwrap_or_default();
            let after = match dataset {
                SHARES => Some(self.change_shares(found, runs, changes)?),
                number => self.change_volume(found, runs, changes.volumes.get(&VolumeId(number)))?,
            };
            records.insert(key, after.map(|after| after.encode()));
        }
        for (first, descriptor) in &changes.objects {
            let mut value = alloc::vec![WHOLE_DESCRIPTOR];
            value.extend_from_slice(&descriptor.encode());
            records.insert(key_of(OBJECT, *first), Some(value));
        }
        for (key, value) in &changes.counters {
            let mut long = alloc::vec![COUNTER];
            long.extend_from_slice(key);
            records.insert(long, (*value != 0).then(|| value.to_le_bytes().to_vec()));
        }
        let mut totals = Writer::default();
        changes.totals.encode(&mut totals);
        records.insert(alloc::vec![TOTALS], Some(totals.0));
        let records = records.into_iter().map(|(key, value)| Entry { key, value }).collect();
        let applied = apply::<Entries, N>(self.nodes, root, records, self.birth, &self.shape)?;
        self.died.extend(applied.died);
        Ok(applied.root)
    }

    fn change_map(&mut self, map: &Root, runs: Vec<Run>) -> BucketTreeResult<Root, N> {
        let applied = apply::<Runs, N>(self.nodes, map, runs, self.birth, &self.shape)?;
        self.died.extend(applied.died);
        Ok(applied.root)
    }

    fn change_shares(
        &mut self,
        before: Option<Dataset>,
        runs: Vec<Run>,
        changes: &JournalChanges,
    ) -> BucketTreeResult<Dataset, N> {
        let (maps, entries) = match before {
            Some(Dataset::Shares { maps, entries }) => (maps, entries),
            _ => (Root::default(), Root::default()),
        };
        let maps = self.change_map(&maps, runs)?;
        let changed = changes.entries.iter();
        let changed = changed.map(|(key, value)| Entry {
            key: key.clone(),
            value: value.clone(),
        });
        let applied = apply::<Entries, N>(self.nodes, &entries, changed.collect(), self.birth, &self.shape)?;
        self.died.extend(applied.died);
        let entries = applied.root;
        Ok(Dataset::Shares { maps, entries })
    }

    /// `None`: it was deleted.
    fn change_volume(
        &mut self,
        before: Option<Dataset>,
        runs: Vec<Run>,
        change: Option<&Option<Volume>>,
    ) -> BucketTreeResult<Option<Dataset>, N> {
        let (mut size, mut name, map) = match before {
            Some(Dataset::Volume { size, name, map }) => (size, name, map),
            _ => (0, String::new(), Root::default()),
        };
        match change {
            Some(None) => {
                self.give_up::<Runs>(&map)?;
                return Ok(None);
            }
            Some(Some(volume)) => {
                size = encode_size(volume.blocks, volume.flush);
                name.clone_from(&volume.name);
            }
            None => {}
        }
        let map = self.change_map(&map, runs)?;
        Ok(Some(Dataset::Volume { size, name, map }))
    }

    fn give_up<C: tombolo_metadata_tree::Codec>(&mut self, root: &Root) -> BucketTreeResult<(), N> {
        let died = &mut self.died;
        visit::<C, N>(self.nodes, root, &mut |pointer| {
            died.push(*pointer);
            true
        })?;
        Ok(())
    }

    fn give_all_up(&mut self, root: &Root) -> BucketTreeResult<(), N> {
        let mut scan = Scan::<Entries>::new(root, alloc::vec![DATASET], Some(alloc::vec![DATASET + 1]));
        while let Some(entry) = scan.next(self.nodes)? {
            match decoded(&entry)? {
                Dataset::Volume { map, .. } => self.give_up::<Runs>(&map)?,
                Dataset::Shares { maps, entries } => {
                    self.give_up::<Runs>(&maps)?;
                    self.give_up::<Entries>(&entries)?;
                }
            }
        }
        self.give_up::<Entries>(root)
    }
}

fn dataset_at<N: Nodes>(nodes: &mut N, root: &Root, key: &Vec<u8>) -> BucketTreeResult<Option<Dataset>, N> {
    let value = get::<Entries, N>(nodes, root, key)?;
    let decode = |value: Vec<u8>| {
        Dataset::decode(&value).map_err(|error| BucketTreeError::Record {
            key: key.clone(),
            error,
        })
    };
    value.map(decode).transpose()
}

fn decoded<E>(entry: &Entry) -> Result<Dataset, BucketTreeError<E>> {
    let value = entry.value.as_deref().unwrap_or_default();
    Dataset::decode(value).map_err(|error| wrong(entry, error))
}

fn wrong<E>(entry: &Entry, error: DecodeError) -> BucketTreeError<E> {
    BucketTreeError::Record {
        key: entry.key.clone(),
        error,
    }
}

/// The pointers of all nodes of the tree and of those below it.
///
/// # Errors
/// When a node cannot be read.
pub fn all_nodes<N: Nodes>(nodes: &mut N, tree: &BucketTree) -> Result<Vec<Pointer>, BucketTreeError<N::Error>> {
    let mut fold = Fold {
        nodes,
        birth: 0,
        shape: Shape::default(),
        died: Vec::new(),
    };
    fold.give_all_up(&tree.root)?;
    Ok(fold.died)
}

/// Volumes and totals. All else that the tree holds is read part by part, as states for a merge; their superblocks say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeContents {
    /// Of the datasets that are volumes.
    pub volumes: BTreeMap<VolumeId, Volume>,
    /// As they stood at the checkpoint.
    pub totals: Totals,
}

/// Why the contents of the tree were not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadTreeError<E, F> {
    /// It cannot be read.
    #[error("{0}")]
    Tree(BucketTreeError<E>),
    /// Whoever takes it failed.
    #[error("{0}")]
    Sink(F),
}

/// Reads the whole tree; `take` gets its parts one after another.
///
/// # Errors
/// Those of the tree, and of `take`.
pub fn read_tree<N: Nodes, F>(
    nodes: &mut N,
    tree: &BucketTree,
    take: &mut dyn FnMut(Frozen) -> Result<(), F>,
) -> Result<TreeContents, ReadTreeError<N::Error, F>> {
    let head = read_head(nodes, tree).map_err(ReadTreeError::Tree)?;
    take(head.counters).map_err(ReadTreeError::Sink)?;
    let mut progress = Progress::start();
    while progress != Progress::Clearing {
        let portion = head
            .backing
            .read(nodes, &progress, CHUNK, usize::MAX)
            .map_err(ReadTreeError::Tree)?;
        take(portion.contents).map_err(ReadTreeError::Sink)?;
        progress = portion.next;
    }
    Ok(head.contents)
}

/// A record of the tree above all others.
#[derive(Clone, Debug)]
pub(crate) enum TreeRecord {
    Dataset(u64, Dataset),
    Object(ObjectDescriptor),
    Counter(Vec<u8>, i64),
    Totals(Totals),
}

pub(crate) fn record_of<E>(entry: &Entry) -> Result<TreeRecord, BucketTreeError<E>> {
    let value = entry.value.as_deref().unwrap_or_default();
    decode_record(&entry.key, value).map_err(|error| wrong(entry, error))
}

fn decode_record(key: &[u8], value: &[u8]) -> Result<TreeRecord, DecodeError> {
    let mut reader = Reader::new(value);
    let Some((kind, rest)) = key.split_first() else {
        return Err(DecodeError::Invalid {
            what: "record kind",
            value: 0,
        });
    };
    match *kind {
        DATASET => {
            let number = <[u8; 8]>::try_from(rest).map_err(|_| DecodeError::Invalid {
                what: "dataset number",
                value: rest.len() as u64,
            })?;
            Ok(TreeRecord::Dataset(u64::from_be_bytes(number), Dataset::decode(value)?))
        }
        OBJECT => {
            reader.u8("object kind")?;
            Ok(TreeRecord::Object(ObjectDescriptor::decode(&value[1..])?))
        }
        COUNTER => {
            let value = reader.u64("counter value")?.cast_signed();
            Ok(TreeRecord::Counter(rest.to_vec(), value))
        }
        TOTALS => Ok(TreeRecord::Totals(Totals::decode(&mut reader)?)),
        other => Err(DecodeError::Invalid {
            what: "record kind",
            value: other.into(),
        }),
    }
}

#[cfg(test)]
#[path = "bucket_tree_tests.rs"]
pub(crate) mod tests;
