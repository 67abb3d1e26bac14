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

mod backed;
mod laying;
mod tree;

pub use backed::{Backed, BackedError, Behind};
pub use laying::lay;

use crate::bucket_tree::{BucketTree, BucketTreeError, Dataset, TreeContents, TreeRecord, record_of};
use crate::format::local_metadata::{MetadataFault, MetadataRead, MetadataTransaction, Table, map_key};
use crate::format::superblock::{Volume, decode_size};
use crate::state::overlay::Frozen;
use alloc::vec::Vec;
use tombolo_base::{DecodeError, Reader, VolumeId, Writer};
use tombolo_metadata_tree::{Entries, Nodes, Root, Scan};

const TREES: &[u8] = &[1];
const PROGRESS: &[u8] = &[2];
const MASK: u8 = 3;
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

#[cfg(test)]
#[path = "backing_tests.rs"]
mod tests;
