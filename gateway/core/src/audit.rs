//! What must agree within local metadata, and between local metadata and the bucket's; for `tombolo check --store`. Pure over
//! [`MetadataRead`], and the memory that it takes does not grow with what there is.

mod bucket;
mod references;

pub use bucket::{BucketAudit, Moving};
pub use references::{Window, audit_window};

use crate::format::local_metadata::{MetadataFault, MetadataRead, Table, decode, map_key};
use crate::format::page::{MapPage, PAGE_ENTRIES};
use crate::state::extent_map::{Extent, Target};
use alloc::vec::Vec;
use tombolo_base::{DecodeError, Pvbn, VolumeId};

/// Something that contradicts something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditFinding {
    /// Blocks of which local metadata counts more or fewer references than its maps have.
    References {
        /// The first of them.
        pvbn: Pvbn,
        /// How many follow each other.
        blocks: u64,
        /// References to each, as they are counted.
        counted: u64,
        /// References to each that the maps have.
        named: u64,
    },
    /// A map names blocks that are neither in an object nor in a slot.
    NoObject {
        /// The blocks, and what they map to.
        run: Extent,
        /// A slot has them, and is known to be damaged.
        is_damaged_slot: bool,
    },
    /// An object is listed under another PVBN than its first.
    MisplacedObject {
        /// Under which it is listed.
        key: Vec<u8>,
        /// Its first.
        first: Pvbn,
    },
    /// Blocks map to something else than the bucket's metadata says.
    Map {
        /// The blocks, and what local metadata maps them to.
        local: Extent,
        /// What the first maps to in the bucket.
        bucket: Target,
    },
    /// An object that only one of the two lists, or of which they say different things.
    Object {
        /// Its first PVBN.
        first: Pvbn,
        /// Which of the two lists it.
        listed: Listed,
    },
    /// Likewise, an entry or counter of the file service.
    Record {
        /// Where.
        table: Table,
        /// Its key.
        key: Vec<u8>,
        /// Which of the two has it.
        listed: Listed,
    },
    /// Likewise, a volume.
    Volume {
        /// Its number.
        volume: VolumeId,
        /// Which of the two has it.
        listed: Listed,
    },
}

/// Who has what should be the same in local metadata and in the bucket's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// The bucket lacks it.
    Locally,
    /// Local metadata lacks it.
    InBucket,
    /// Both, and not the same.
    Differently,
}

/// The runs of all maps from a block on, in the order of volumes and blocks. A run ends with its page.
pub(crate) struct MapRuns<'r, R> {
    reader: &'r R,
    volume: VolumeId,
    block: u64,
    page: Option<MapPage>,
}

impl<'r, R: MetadataRead> MapRuns<'r, R> {
    pub fn new(reader: &'r R, volume: VolumeId, block: u64) -> Self {
        Self {
            reader,
            volume,
            block,
            page: None,
        }
    }

    pub fn next(&mut self) -> Result<Option<Extent>, MetadataFault<R::Error>> {
        loop {
            if self.page.is_none() && !self.load()? {
                return Ok(None);
            }
            let Some(page) = &self.page else { continue };
            let (target, count) = page.get((self.block % PAGE_ENTRIES) as u16);
            let (volume, first, count) = (self.volume, self.block, u64::from(count));
            self.block += count;
            if self.block.is_multiple_of(PAGE_ENTRIES) {
                self.page = None;
            }
            if let Some(pvbn) = target {
                let target = Target::At(pvbn);
                return Ok(Some(Extent {
                    volume,
                    first,
                    count,
                    target,
                }));
            }
        }
    }

    /// The page that has the block, or the next one that there is.
    fn load(&mut self) -> Result<bool, MetadataFault<R::Error>> {
        let page = self.block / PAGE_ENTRIES;
        let found = self.reader.ceiling(Table::Map, &map_key(self.volume, page));
        let Some((key, bytes)) = found.map_err(MetadataFault::Store)? else {
            return Ok(false);
        };
        let (volume, number) = numbers_of(&key)?;
        self.page = Some(decode(Table::Map, &key, MapPage::decode(&bytes))?);
        if (volume, number) != (self.volume, page) {
            (self.volume, self.block) = (volume, number * PAGE_ENTRIES);
        }
        Ok(true)
    }
}

/// Volume and page of a map's key.
fn numbers_of<E>(key: &[u8]) -> Result<(VolumeId, u64), MetadataFault<E>> {
    let halves = key.split_at_checked(8);
    let numbers = halves.and_then(|(volume, page)| Some((volume.try_into().ok()?, page.try_into().ok()?)));
    let (volume, page) = numbers.ok_or_else(|| wrong_key(Table::Map, key))?;
    Ok((VolumeId(u64::from_be_bytes(volume)), u64::from_be_bytes(page)))
}

fn number_of<E>(table: Table, key: &[u8]) -> Result<u64, MetadataFault<E>> {
    let number = key.try_into().map_err(|_| wrong_key(table, key))?;
    Ok(u64::from_be_bytes(number))
}

fn wrong_key<E>(table: Table, key: &[u8]) -> MetadataFault<E> {
    let error = DecodeError::Invalid {
        what: "key length",
        value: key.len() as u64,
    };
    let key = key.to_vec();
    MetadataFault::Corrupt { table, key, error }
}

#[cfg(test)]
mod tests;
