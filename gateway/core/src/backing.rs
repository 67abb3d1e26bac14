//! Local metadata that is not all here: what it lacks is in a tree in the bucket, which is read where it is asked for and
//! brought here part by part. So a gateway serves from a recovery's first moment on, however much there is.
//!
//! [`Backed`] is local metadata with the tree behind it. What is here under a key counts; what the tree has under a key that was
//! deleted since is *masked*. Both say what they say of one key, so neither order nor number of changes, reads and parts matters.
//!
//! In the table [`Table::Backing`], as long as anything is lacking:
//!
//! | key                       | value                                                       |
//! |---------------------------|-------------------------------------------------------------|
//! | 1                         | [`Backing`]: where the trees begin                          |
//! | 2                         | [`Progress`]: what is here                                  |
//! | 3, number of a table, key | nothing: what the tree has under this key is there no more  |

use crate::bucket_tree::{BucketTree, BucketTreeError, Dataset, TreeContents, TreeRecord, record_of};
use crate::format::local_metadata::{Entry, MetadataFault, MetadataRead, MetadataTransaction, Table, map_key};
use crate::format::page::{MapPage, PAGE_ENTRIES};
use crate::format::superblock::{Volume, decode_size};
use crate::merge::ReferenceChanges;
use crate::state::extent_map::{Extent, Target};
use crate::state::overlay::Frozen;
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use tombolo_base::{DecodeError, Pvbn, Reader, VolumeId, Writer};
use tombolo_metadata_tree::{Entries, MapKey, Nodes, Root, Run, Runs, Scan, TreeError, get, last_below};

const TREES: &[u8] = &[1];
const PROGRESS: &[u8] = &[2];
const MASK: u8 = 3;
/// Masks that one transaction deletes.
const MASKS_MAX: usize = 4096;
/// Maps of files, behind those of all volumes.
const FILES: u64 = 1 << 63;

/// Where the trees begin that have what is lacking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backing {
    /// Of maps; each has those of the volumes from its number on. Ascending.
    maps: Vec<(u64, Root)>,
    entries: Root,
    /// The tree above all others, which has the table of objects.
    top: Root,
}

/// What the tree above all others has, but for the table of objects, and how the rest is found.
#[derive(Clone, Debug)]
pub struct TreeHead {
    /// The rest.
    pub backing: Backing,
    /// Volumes and totals.
    pub contents: TreeContents,
    /// Counters, as a change.
    pub counters: Frozen,
}

/// What is here of it. Maps come first, then entries, then the table of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Of the maps all that is before this page.
    Maps(VolumeId, u64),
    /// The maps, and the entries before this key.
    Entries(Vec<u8>),
    /// Maps, entries, and objects that begin before this PVBN.
    Objects(u64),
    /// Everything; the table is cleared.
    Clearing,
}

/// What comes next of it.
#[derive(Clone, Debug)]
pub struct Portion {
    from: Progress,
    /// What will be here with it.
    pub next: Progress,
    /// What the tree has.
    pub contents: Frozen,
    /// Runs, entries and objects.
    pub records: u64,
}

type TreeResult<T, N> = Result<T, BucketTreeError<<N as Nodes>::Error>>;

/// Reads of a tree all but its maps, entries and objects.
///
/// # Errors
/// When a node cannot be read.
pub fn read_head<N: Nodes>(nodes: &mut N, tree: &BucketTree) -> TreeResult<TreeHead, N> {
    let mut head = TreeHead {
        backing: Backing {
            top: tree.root.clone(),
            ..Backing::default()
        },
        contents: TreeContents::default(),
        counters: Frozen::default(),
    };
    let [before, behind] = BucketTree::ranges_beside_objects();
    for (from, to) in [before, behind] {
        let mut scan = Scan::<Entries>::new(&tree.root, from, to);
        while let Some(entry) = scan.next(nodes)? {
            head.take(record_of(&entry)?);
        }
    }
    // Ascending by what they hold: a file's number is above each volume's.
    head.backing.maps.sort_by_key(|(first, _)| *first);
    Ok(head)
}

impl TreeHead {
    fn take(&mut self, record: TreeRecord) {
        match record {
            TreeRecord::Dataset(number, Dataset::Volume { size, name, map }) => {
                let id = VolumeId(number);
                let (blocks, flush) = decode_size(size);
                let volume = Volume {
                    id,
                    name,
                    blocks,
                    flush,
                };
                self.contents.volumes.insert(id, volume);
                self.backing.maps.push((number, map));
            }
            TreeRecord::Dataset(_, Dataset::Shares { maps, entries }) => {
                self.backing.maps.push((FILES, maps));
                self.backing.entries = entries;
            }
            TreeRecord::Counter(key, value) => self.counters.entries.set_counter(&key, value),
            TreeRecord::Totals(totals) => self.contents.totals = totals,
            TreeRecord::Object(_) => {}
        }
    }
}

impl Progress {
    /// Nothing is here.
    pub fn start() -> Self {
        Self::Maps(VolumeId(0), 0)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Maps(volume, page) => drop(out.u8(1).u64(volume.0).u64(*page)),
            Self::Entries(key) => drop(out.u8(2).bytes(key)),
            Self::Objects(first) => drop(out.u8(3).u64(*first)),
            Self::Clearing => drop(out.u8(4)),
        }
        out.0
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let progress = match reader.u8("progress")? {
            1 => Self::Maps(VolumeId(reader.u64("volume")?), reader.u64("page")?),
            2 => return Ok(Self::Entries(bytes[1..].to_vec())),
            3 => Self::Objects(reader.u64("first PVBN")?),
            4 => Self::Clearing,
            other => {
                return Err(DecodeError::Invalid {
                    what: "progress",
                    value: other.into(),
                });
            }
        };
        reader.finish("progress")?;
        Ok(progress)
    }

    /// The first key of the table that is not here; `None`: all are.
    fn lacking(&self, table: Table) -> Option<Vec<u8>> {
        match (table, self) {
            (Table::Map, Self::Maps(volume, page)) => Some(map_key(*volume, *page).to_vec()),
            (Table::Entries | Table::Objects, Self::Maps(..)) | (Table::Objects, Self::Entries(_)) => Some(Vec::new()),
            (Table::Entries, Self::Entries(key)) => Some(key.clone()),
            (Table::Objects, Self::Objects(first)) => Some(first.to_be_bytes().to_vec()),
            _ => None,
        }
    }
}

fn mask_key(table: Table, key: &[u8]) -> Vec<u8> {
    let mut mask = alloc::vec![MASK, table.number()];
    mask.extend_from_slice(key);
    mask
}

fn page_of(block: u64) -> u64 {
    block / PAGE_ENTRIES
}

/// The parts of a run in each page that it touches: number, first entry, entries, first PVBN.
fn parts_of(run: &Run) -> impl Iterator<Item = (u64, u16, u16, Pvbn)> {
    let (mut block, end) = (run.start.block, run.start.block + run.length);
    let (first, target) = (block, run.target);
    core::iter::from_fn(move || {
        let pvbn = target?.pvbn;
        (block < end).then(|| {
            let length = (PAGE_ENTRIES - block % PAGE_ENTRIES).min(end - block);
            let part = (page_of(block), (block % PAGE_ENTRIES) as u16, length as u16);
            let pvbn = pvbn.plus(block - first);
            block += length;
            (part.0, part.1, part.2, pvbn)
        })
    })
}

impl Backing {
    fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(self.maps.len() as u32);
        for (first, map) in &self.maps {
            out.u64(*first);
            map.encode(&mut out);
        }
        self.entries.encode(&mut out);
        self.top.encode(&mut out);
        out.0
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let count = reader.u32("maps")?;
        let mut maps: Vec<(u64, Root)> = Vec::new();
        for _ in 0..count {
            let first = reader.u64("first volume of a map")?;
            if maps.last().is_some_and(|(last, _)| *last >= first) {
                return Err(DecodeError::Invalid {
                    what: "first volume of a map",
                    value: first,
                });
            }
            maps.push((first, Root::decode(&mut reader)?));
        }
        let entries = Root::decode(&mut reader)?;
        let top = Root::decode(&mut reader)?;
        reader.finish("trees")?;
        Ok(Self { maps, entries, top })
    }

    /// The maps of the volumes that are not all below `volume`.
    fn maps_from(&self, volume: u64) -> &[(u64, Root)] {
        let behind = self.maps.partition_point(|(first, _)| *first <= volume);
        // Only that of files has those of more than one.
        let is_in_last = behind > 0 && (self.maps[behind - 1].0 == volume || self.maps[behind - 1].0 == FILES);
        &self.maps[behind - usize::from(is_in_last)..]
    }

    /// What the tree has under exactly this key.
    fn get<N: Nodes>(&self, nodes: &mut N, table: Table, key: &[u8]) -> TreeResult<Option<Vec<u8>>, N> {
        match table {
            Table::Map => Ok(self
                .ceiling_page(nodes, key)?
                .filter(|(found, _)| found == key)
                .map(|(_, page)| page)),
            Table::Entries => Ok(get::<Entries, N>(nodes, &self.entries, &key.to_vec())?),
            Table::Objects => {
                let found = get::<Entries, N>(nodes, &self.top, &BucketTree::object_key(key))?;
                Ok(found.map(descriptor_in))
            }
            _ => Ok(None),
        }
    }

    /// The least key not below this one.
    fn ceiling<N: Nodes>(&self, nodes: &mut N, table: Table, key: &[u8]) -> TreeResult<Option<Entry>, N> {
        let (root, from, to) = match table {
            Table::Map => return self.ceiling_page(nodes, key),
            Table::Entries => (&self.entries, key.to_vec(), None),
            Table::Objects => (&self.top, BucketTree::object_key(key), Some(BucketTree::objects_end())),
            _ => return Ok(None),
        };
        let found = Scan::<Entries>::new(root, from, to).next(nodes)?;
        Ok(found.and_then(|entry| local_entry(table, entry)))
    }

    /// The greatest key below this one.
    fn below<N: Nodes>(&self, nodes: &mut N, table: Table, end: &[u8]) -> TreeResult<Option<Entry>, N> {
        let found = match table {
            Table::Map => return self.page_below(nodes, end),
            Table::Entries => last_below::<Entries, N>(nodes, &self.entries, &end.to_vec())?,
            Table::Objects => {
                let found = last_below::<Entries, N>(nodes, &self.top, &BucketTree::object_key(end))?;
                found.filter(|entry| entry.key >= BucketTree::object_key(&[]))
            }
            _ => None,
        };
        Ok(found.and_then(|entry| local_entry(table, entry)))
    }

    fn ceiling_page<N: Nodes>(&self, nodes: &mut N, key: &[u8]) -> TreeResult<Option<Entry>, N> {
        let (volume, page) = place_of(key);
        for (first, map) in self.maps_from(volume) {
            let file = volume.max(*first);
            let block = if file == volume {
                page.saturating_mul(PAGE_ENTRIES)
            } else {
                0
            };
            let from = MapKey { file, block };
            if let Some(run) = Scan::<Runs>::new(map, from, None).next(nodes)? {
                let page = page_of(run.start.block);
                return self.read_page(nodes, map, run.start.file, page).map(Some);
            }
        }
        Ok(None)
    }

    fn page_below<N: Nodes>(&self, nodes: &mut N, end: &[u8]) -> TreeResult<Option<Entry>, N> {
        let (volume, page) = place_of(end);
        let end = MapKey {
            file: volume,
            block: page.saturating_mul(PAGE_ENTRIES),
        };
        for (first, map) in self.maps.iter().rev().filter(|(first, _)| *first <= volume) {
            if let Some(run) = last_below::<Runs, N>(nodes, map, &end)? {
                debug_assert!(run.start.file >= *first, "a map has its own volume's runs");
                let last = (run.start.block + run.length - 1).min(match run.start.file == volume {
                    true => end.block - 1,
                    false => u64::MAX,
                });
                return self.read_page(nodes, map, run.start.file, page_of(last)).map(Some);
            }
        }
        Ok(None)
    }

    fn read_page<N: Nodes>(&self, nodes: &mut N, map: &Root, file: u64, number: u64) -> TreeResult<Entry, N> {
        let first = number * PAGE_ENTRIES;
        let at = |block| MapKey { file, block };
        let mut scan = Scan::<Runs>::new(map, at(first), Some(at(first + PAGE_ENTRIES)));
        let mut page = MapPage::default();
        while let Some(run) = scan.next(nodes)? {
            for (_, start, length, pvbn) in parts_of(&run) {
                page.set(start, length, Some(pvbn));
            }
        }
        Ok((map_key(VolumeId(file), number).to_vec(), page.encode()))
    }

    /// What comes next, about `records_max` records of it.
    ///
    /// # Errors
    /// When a node cannot be read.
    pub fn read<N: Nodes>(&self, nodes: &mut N, from: &Progress, records_max: u64) -> TreeResult<Portion, N> {
        let mut portion = Portion {
            from: from.clone(),
            next: from.clone(),
            contents: Frozen::default(),
            records: 0,
        };
        match from {
            Progress::Maps(volume, page) => self.read_maps(nodes, &mut portion, *volume, *page, records_max)?,
            Progress::Entries(key) => {
                let mut scan = Scan::<Entries>::new(&self.entries, key.clone(), None);
                portion.next = Progress::Objects(0);
                while let Some(entry) = scan.next(nodes)? {
                    if portion.records == records_max {
                        portion.next = Progress::Entries(entry.key);
                        break;
                    }
                    portion.records += 1;
                    portion.contents.entries.set(&entry.key, entry.value.map(Into::into));
                }
            }
            Progress::Objects(first) => {
                let from = BucketTree::object_key(&first.to_be_bytes());
                let mut scan = Scan::<Entries>::new(&self.top, from, Some(BucketTree::objects_end()));
                portion.next = Progress::Clearing;
                while let Some(entry) = scan.next(nodes)? {
                    let TreeRecord::Object(descriptor) = record_of(&entry)? else {
                        continue;
                    };
                    let first = descriptor.first_pvbn().0;
                    if portion.records == records_max {
                        portion.next = Progress::Objects(first);
                        break;
                    }
                    portion.records += 1;
                    portion.contents.objects.insert(first, Arc::new(descriptor));
                }
            }
            Progress::Clearing => {}
        }
        Ok(portion)
    }

    /// Whole pages of maps. A run of many pages is cut.
    fn read_maps<N: Nodes>(
        &self,
        nodes: &mut N,
        portion: &mut Portion,
        volume: VolumeId,
        page: u64,
        pages_max: u64,
    ) -> TreeResult<(), N> {
        let mut pages = 0;
        // The last page of which there is something.
        let mut open = None;
        for (first, map) in self.maps_from(volume.0) {
            let file = volume.0.max(*first);
            let block = if file == volume.0 { page * PAGE_ENTRIES } else { 0 };
            let mut scan = Scan::<Runs>::new(map, MapKey { file, block }, None);
            while let Some(run) = scan.next(nodes)? {
                for (number, start, length, pvbn) in parts_of(&run) {
                    let volume = VolumeId(run.start.file);
                    if open != Some((volume, number)) {
                        if pages == pages_max {
                            portion.next = Progress::Maps(volume, number);
                            return Ok(());
                        }
                        pages += 1;
                        portion.records += 1;
                        open = Some((volume, number));
                    }
                    portion.contents.map.insert(Extent {
                        volume,
                        first: number * PAGE_ENTRIES + u64::from(start),
                        count: length.into(),
                        target: Target::At(pvbn),
                    });
                }
            }
        }
        portion.next = Progress::Entries(Vec::new());
        Ok(())
    }
}

/// As local metadata keys it; the tree's value of an object has one byte in front.
fn local_entry(table: Table, entry: tombolo_metadata_tree::Entry) -> Option<Entry> {
    let value = entry.value?;
    Some(match table {
        Table::Objects => (entry.key.get(1..)?.to_vec(), descriptor_in(value)),
        _ => (entry.key, value),
    })
}

fn descriptor_in(value: Vec<u8>) -> Vec<u8> {
    value.get(1..).unwrap_or_default().to_vec()
}

/// What a key of the table of maps names, be it whole or not.
fn place_of(key: &[u8]) -> (u64, u64) {
    let mut whole = [0; 16];
    let length = key.len().min(16);
    whole[..length].copy_from_slice(&key[..length]);
    let part = |from: usize| {
        whole[from..from + 8]
            .iter()
            .fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    // A longer key comes behind that page.
    (part(0), part(8).saturating_add(u64::from(key.len() > whole.len())))
}

/// Says that local metadata lacks what the tree has; in the same transaction as all else that it begins with.
///
/// # Errors
/// When the transaction fails.
pub fn begin<T: MetadataTransaction>(local: &mut T, backing: &Backing) -> Result<(), T::Error> {
    local.put(Table::Backing, TREES, &backing.encode())?;
    local.put(Table::Backing, PROGRESS, &Progress::start().encode())
}

/// What local metadata lacks; `None`: nothing.
///
/// # Errors
/// When it cannot be read or decoded.
pub fn load_backing<R: MetadataRead>(local: &R) -> Result<Option<Backing>, MetadataFault<R::Error>> {
    let found = local.get(Table::Backing, TREES).map_err(MetadataFault::Store)?;
    found.map(|bytes| decoded(TREES, Backing::decode(&bytes))).transpose()
}

/// How much of it is here.
///
/// # Errors
/// When it cannot be read or decoded.
pub fn load_progress<R: MetadataRead>(local: &R) -> Result<Progress, MetadataFault<R::Error>> {
    match local.get(Table::Backing, PROGRESS).map_err(MetadataFault::Store)? {
        Some(bytes) => decoded(PROGRESS, Progress::decode(&bytes)),
        None => Ok(Progress::Clearing),
    }
}

fn decoded<T, E>(key: &[u8], result: Result<T, DecodeError>) -> Result<T, MetadataFault<E>> {
    result.map_err(|error| MetadataFault::Corrupt {
        table: Table::Backing,
        key: key.to_vec(),
        error,
    })
}

/// Brings a portion into local metadata, in one transaction of the caller's. What is here, or masked, stays as it is. True:
/// nothing is lacking any more, and nothing tells that it ever was.
///
/// # Errors
/// When the transaction fails.
pub fn lay<T: MetadataTransaction>(local: &mut T, portion: &Portion) -> Result<bool, MetadataFault<T::Error>> {
    if load_progress(local)? != portion.from {
        return Ok(false);
    }
    if portion.from == Progress::Clearing {
        return clear(local).map_err(MetadataFault::Store);
    }
    let contents = &portion.contents;
    let mut references = ReferenceChanges::default();
    let mut open: Option<(VolumeId, u64, MapPage)> = None;
    for extent in contents.map.iter() {
        let Target::At(pvbn) = extent.target else { continue };
        let run = Run {
            start: MapKey {
                file: extent.volume.0,
                block: extent.first,
            },
            length: extent.count,
            target: Some(tombolo_metadata_tree::Target { pvbn, birth: None }),
        };
        for (number, start, length, pvbn) in parts_of(&run) {
            match &mut open {
                Some((volume, page, contents)) if (*volume, *page) == (extent.volume, number) => {
                    contents.set(start, length, Some(pvbn));
                }
                _ => {
                    lay_page(local, open.take(), &mut references)?;
                    let mut page = MapPage::default();
                    page.set(start, length, Some(pvbn));
                    open = Some((extent.volume, number, page));
                }
            }
        }
    }
    lay_page(local, open, &mut references)?;
    references.apply(local)?;
    for (key, value) in contents.entries.iter_from(&[]) {
        if let Some(value) = value {
            lay_record(local, Table::Entries, key, value).map_err(MetadataFault::Store)?;
        }
    }
    for (first, descriptor) in &contents.objects {
        let key = first.to_be_bytes();
        lay_record(local, Table::Objects, &key, &descriptor.encode()).map_err(MetadataFault::Store)?;
    }
    let next = portion.next.encode();
    local
        .put(Table::Backing, PROGRESS, &next)
        .map_err(MetadataFault::Store)?;
    Ok(false)
}

fn is_known<T: MetadataRead>(local: &T, table: Table, key: &[u8]) -> Result<bool, T::Error> {
    Ok(local.get(table, key)?.is_some() || is_masked(local, table, key)?)
}

fn is_masked<T: MetadataRead>(local: &T, table: Table, key: &[u8]) -> Result<bool, T::Error> {
    Ok(local.get(Table::Backing, &mask_key(table, key))?.is_some())
}

fn lay_record<T: MetadataTransaction>(local: &mut T, table: Table, key: &[u8], value: &[u8]) -> Result<(), T::Error> {
    match is_known(local, table, key)? {
        true => Ok(()),
        false => local.put(table, key, value),
    }
}

fn lay_page<T: MetadataTransaction>(
    local: &mut T,
    page: Option<(VolumeId, u64, MapPage)>,
    references: &mut ReferenceChanges,
) -> Result<(), MetadataFault<T::Error>> {
    let Some((volume, number, page)) = page else {
        return Ok(());
    };
    let key = map_key(volume, number);
    if is_known(local, Table::Map, &key).map_err(MetadataFault::Store)? {
        return Ok(());
    }
    references.count(&page);
    local
        .put(Table::Map, &key, &page.encode())
        .map_err(MetadataFault::Store)
}

fn clear<T: MetadataTransaction>(local: &mut T) -> Result<bool, T::Error> {
    for _ in 0..MASKS_MAX {
        match local.ceiling(Table::Backing, &[MASK])? {
            Some((key, _)) => local.delete(Table::Backing, &key)?,
            None => {
                local.delete(Table::Backing, TREES)?;
                local.delete(Table::Backing, PROGRESS)?;
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Why metadata that is not all here cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackedError<L, N> {
    /// What is here.
    #[error("{0}")]
    Local(L),
    /// What is in the bucket.
    #[error("{0}")]
    Tree(BucketTreeError<N>),
    /// How much is here.
    #[error("{0}")]
    Progress(MetadataFault<L>),
}

impl<L, N> From<BucketTreeError<N>> for BackedError<L, N> {
    fn from(error: BucketTreeError<N>) -> Self {
        Self::Tree(error)
    }
}

impl<L, N> From<TreeError<N>> for BackedError<L, N> {
    fn from(error: TreeError<N>) -> Self {
        Self::Tree(error.into())
    }
}

/// Local metadata, read or changed, with the tree behind it that has what it lacks.
#[derive(Clone, Debug)]
pub struct Backed<L, N> {
    /// What is here.
    pub local: L,
    tree: Option<Behind<N>>,
}

/// The tree, and who reads its nodes.
#[derive(Clone, Debug)]
pub struct Behind<N> {
    /// As [`load_backing`] gave it.
    pub backing: Arc<Backing>,
    /// Cloned for each read.
    pub nodes: N,
}

type BackedResult<T, L, N> = Result<T, BackedError<<L as MetadataRead>::Error, <N as Nodes>::Error>>;

impl<L: MetadataRead, N: Nodes + Clone> Backed<L, N> {
    /// `tree`: nothing, if nothing is lacking. How much of it is here is read where it matters.
    pub fn new(local: L, tree: Option<Behind<N>>) -> Self {
        Self { local, tree }
    }

    /// The tree, if it may have what is asked for, and the first key of the table that it has and that is not here.
    fn behind(&self, table: Table) -> BackedResult<Option<(&Behind<N>, Vec<u8>)>, L, N> {
        let Some(tree) = self
            .tree
            .as_ref()
            .filter(|_| Progress::start().lacking(table).is_some())
        else {
            return Ok(None);
        };
        let progress = load_progress(&self.local).map_err(BackedError::Progress)?;
        Ok(progress.lacking(table).map(|lacking| (tree, lacking)))
    }

    fn is_lacking(&self, table: Table, key: &[u8]) -> BackedResult<Option<&Behind<N>>, L, N> {
        let behind = self.behind(table)?;
        Ok(behind.filter(|(_, lacking)| key >= &lacking[..]).map(|(tree, _)| tree))
    }

    /// Entries with `from <= key < end`, at most `limit` of them, ascending.
    ///
    /// # Errors
    /// When local metadata or the tree cannot be read.
    pub fn entries(&self, from: &[u8], end: &[u8], limit: usize) -> BackedResult<Vec<Entry>, L, N> {
        let mut found = BTreeMap::new();
        let mut key = from.to_vec();
        while found.len() < limit {
            let here = self.local.ceiling(Table::Entries, &key).map_err(BackedError::Local)?;
            let Some((here, value)) = here.filter(|(here, _)| &here[..] < end) else {
                break;
            };
            key.clone_from(&here);
            key.push(0);
            found.insert(here, value);
        }
        if let Some((tree, lacking)) = self.behind(Table::Entries)? {
            let mut scan = Scan::<Entries>::new(&tree.backing.entries, lacking.max(from.to_vec()), Some(end.to_vec()));
            let (mut nodes, mut count) = (tree.nodes.clone(), 0);
            while count < limit
                && let Some(entry) = scan.next(&mut nodes)?
            {
                let Some((key, value)) = local_entry(Table::Entries, entry) else {
                    continue;
                };
                if !is_known(&self.local, Table::Entries, &key).map_err(BackedError::Local)? {
                    found.insert(key, value);
                    count += 1;
                }
            }
        }
        Ok(found.into_iter().take(limit).collect())
    }

    fn is_masked(&self, table: Table, key: &[u8]) -> BackedResult<bool, L, N> {
        is_masked(&self.local, table, key).map_err(BackedError::Local)
    }
}

impl<L: MetadataRead, N: Nodes + Clone> MetadataRead for Backed<L, N> {
    type Error = BackedError<L::Error, N::Error>;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Self::Error> {
        let here = self.local.get(table, key).map_err(BackedError::Local)?;
        match self.is_lacking(table, key)? {
            Some(tree) if here.is_none() && !self.is_masked(table, key)? => {
                Ok(tree.backing.get(&mut tree.nodes.clone(), table, key)?)
            }
            _ => Ok(here),
        }
    }

    fn ceiling(&self, table: Table, key: &[u8]) -> Result<Option<Entry>, Self::Error> {
        let here = self.local.ceiling(table, key).map_err(BackedError::Local)?;
        let Some((tree, lacking)) = self.behind(table)? else {
            return Ok(here);
        };
        let mut from = lacking.max(key.to_vec());
        // What is here under a key counts, so the tree is not asked for what lies behind it.
        while here.as_ref().is_none_or(|(found, _)| from < *found) {
            let Some((found, value)) = tree.backing.ceiling(&mut tree.nodes.clone(), table, &from)? else {
                break;
            };
            if here.as_ref().is_some_and(|(here, _)| *here <= found) {
                break;
            }
            if !self.is_masked(table, &found)? {
                return Ok(Some((found, value)));
            }
            from = found;
            from.push(0);
        }
        Ok(here)
    }

    fn floor(&self, table: Table, key: &[u8]) -> Result<Option<Entry>, Self::Error> {
        let here = self.local.floor(table, key).map_err(BackedError::Local)?;
        let Some((tree, lacking)) = self.behind(table)? else {
            return Ok(here);
        };
        let mut end = key.to_vec();
        end.push(0);
        while end > lacking && here.as_ref().is_none_or(|(found, _)| end > *found) {
            let Some((found, value)) = tree.backing.below(&mut tree.nodes.clone(), table, &end)? else {
                break;
            };
            if found < lacking || here.as_ref().is_some_and(|(here, _)| *here >= found) {
                break;
            }
            if !self.is_masked(table, &found)? {
                return Ok(Some((found, value)));
            }
            end = found;
        }
        Ok(here)
    }
}

impl<L: MetadataTransaction, N: Nodes + Clone> MetadataTransaction for Backed<L, N> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Self::Error> {
        self.local.put(table, key, value).map_err(BackedError::Local)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), Self::Error> {
        if self.is_lacking(table, key)?.is_some() {
            let masked = self.local.put(Table::Backing, &mask_key(table, key), &[]);
            masked.map_err(BackedError::Local)?;
        }
        self.local.delete(table, key).map_err(BackedError::Local)
    }

    fn is_counted(&self, page: &[u8]) -> Result<bool, Self::Error> {
        if self.is_lacking(Table::Map, page)?.is_none() {
            return Ok(true);
        }
        is_known(&self.local, Table::Map, page).map_err(BackedError::Local)
    }
}

#[cfg(test)]
#[path = "backing_tests.rs"]
mod tests;
