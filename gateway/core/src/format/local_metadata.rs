//! Local metadata: its tables, what a checkpoint brings into them ([`crate::Frozen`], merged by [`crate::Merge`]), and how the
//! core reads them.
//!
//! | table      | key                          | value                                             |
//! |------------|------------------------------|---------------------------------------------------|
//! | Super      | empty                        | [`crate::Superblock`]                             |
//! | Map        | volume u64 BE, page u64 BE   | map page, 256 blocks of the volume                |
//! | References | page u64 BE                  | count page, references to 256 PVBNs               |
//! | Objects    | first PVBN u64 BE            | object descriptor (the Cloud-DB)                  |
//! | Slots      | page u32 BE                  | slot page, 64 slots of the cache file             |
//! | Entries    | as the file service chose    | likewise                                          |
//! | Counters   | likewise                     | i64                                               |
//! | Backing    | [`crate::backing`]           | what is not here yet, and where it is             |

use crate::format::page::MapPage;
use alloc::vec::Vec;
use tombolo_base::{DecodeError, ObjectDescriptor, Pvbn, VolumeId};

/// The tables of local metadata; keys and values are those of the list above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// The superblock alone, under an empty key.
    Super,
    /// What blocks map to, by volume and page.
    Map,
    /// How often PVBNs are mapped to, by page.
    References,
    /// Descriptors of the objects in the store, by their first PVBN.
    Objects,
    /// What the slots of the cache file held at the last checkpoint, by page.
    Slots,
    /// Metadata of shares, under keys of the file service's own making.
    Entries,
    /// Sums that the file service keeps, likewise.
    Counters,
    /// Of a state directory that was recovered: where the rest is.
    Backing,
}

impl Table {
    /// Part of what a record's sum is made of ([`crate::sealed`]).
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Super => 0,
            Self::Map => 1,
            Self::References => 2,
            Self::Objects => 3,
            Self::Slots => 4,
            Self::Entries => 5,
            Self::Counters => 6,
            Self::Backing => 7,
        }
    }
}

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Reads of local metadata. A value is told only when it is the one that was put under its key, and a key only when it
/// lies where it was looked for ([`crate::sealed`]).
pub trait MetadataRead {
    /// Why a read, or a change, failed.
    type Error;
    /// The value under exactly this key; `None`: there is no such key.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Self::Error>;
    /// The entry with the least key not below `key`.
    fn ceiling(&self, table: Table, key: &[u8]) -> Result<Option<Entry>, Self::Error>;
    /// The entry with the greatest key not above `key`.
    fn floor(&self, table: Table, key: &[u8]) -> Result<Option<Entry>, Self::Error>;
}

/// One transaction: takes effect whole, or not at all.
pub trait MetadataTransaction: MetadataRead {
    /// In place of whatever was there.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Self::Error>;
    /// Also of a key that is not there.
    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), Self::Error>;
    /// Whether the references of the map's page under this key are among those that are counted: not if it is not here yet.
    fn is_counted(&self, _page: &[u8]) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

/// Why metadata cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataFault<E> {
    /// The database failed.
    #[error("{0}")]
    Store(E),
    /// A value that is not what it should be.
    #[error("table {table:?}, key {key:02x?}: {error}")]
    Corrupt {
        /// Where it was found.
        table: Table,
        /// As it is stored.
        key: Vec<u8>,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// The maps gave up more references to a block than are counted: one of the two tables is wrong.
    #[error("PVBN {pvbn} would have {count} references")]
    NegativeReferences {
        /// The block.
        pvbn: u64,
        /// Below zero.
        count: i64,
    },
}

/// Big endian, so that the pages of a volume follow each other.
pub fn map_key(volume: VolumeId, page: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&volume.0.to_be_bytes());
    key[8..].copy_from_slice(&page.to_be_bytes());
    key
}

/// A page of a volume's map; an absent one is empty.
///
/// # Errors
/// When it cannot be read or decoded.
pub fn load_map_page<R: MetadataRead>(
    reader: &R,
    volume: VolumeId,
    page: u64,
) -> Result<MapPage, MetadataFault<R::Error>> {
    let key = map_key(volume, page);
    match get(reader, Table::Map, &key)? {
        Some(bytes) => decode(Table::Map, &key, MapPage::decode(&bytes)),
        None => Ok(MapPage::default()),
    }
}

/// The first and last PVBN of an object are less than this apart. Objects may interleave: a block that was left over by
/// a crash or a failed read is uploaded after those around it. So the object of a PVBN is not always the nearest one
/// below, and this bounds the search: 64 unique blocks of a stream with 99 % duplicates still fit.
pub const OBJECT_SPAN_MAX: u64 = 1 << 14;

/// The least first PVBN of an object that can hold `pvbn`.
pub(crate) fn least_first(pvbn: Pvbn) -> u64 {
    (pvbn.0 + 1).saturating_sub(OBJECT_SPAN_MAX)
}

/// The object that holds `pvbn`.
///
/// # Errors
/// When a descriptor on the way to it cannot be read or decoded.
pub fn load_descriptor<R: MetadataRead>(
    reader: &R,
    pvbn: Pvbn,
) -> Result<Option<ObjectDescriptor>, MetadataFault<R::Error>> {
    let mut first = pvbn.0;
    loop {
        let found = reader.floor(Table::Objects, &first.to_be_bytes());
        let Some((key, bytes)) = found.map_err(MetadataFault::Store)? else {
            return Ok(None);
        };
        let descriptor = decode(Table::Objects, &key, ObjectDescriptor::decode(&bytes))?;
        if descriptor.find(pvbn).is_some() {
            return Ok(Some(descriptor));
        }
        let next = descriptor.first_pvbn().0.min(first).checked_sub(1);
        match next.filter(|next| *next >= least_first(pvbn)) {
            Some(next) => first = next,
            None => return Ok(None),
        }
    }
}

pub(crate) fn get<R: MetadataRead>(
    reader: &R,
    table: Table,
    key: &[u8],
) -> Result<Option<Vec<u8>>, MetadataFault<R::Error>> {
    reader.get(table, key).map_err(MetadataFault::Store)
}

pub(crate) fn put<T: MetadataTransaction>(
    transaction: &mut T,
    table: Table,
    key: &[u8],
    value: &[u8],
) -> Result<(), MetadataFault<T::Error>> {
    transaction.put(table, key, value).map_err(MetadataFault::Store)
}

pub(crate) fn decode<T, E>(table: Table, key: &[u8], result: Result<T, DecodeError>) -> Result<T, MetadataFault<E>> {
    result.map_err(|error| MetadataFault::Corrupt {
        table,
        key: key.to_vec(),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use core::convert::Infallible;
    use tombolo_base::{BlockEncoding, Fingerprint};

    struct Objects(BTreeMap<Vec<u8>, Vec<u8>>);

    impl MetadataRead for Objects {
        type Error = Infallible;
        fn get(&self, _table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
            Ok(self.0.get(key).cloned())
        }
        fn ceiling(&self, _table: Table, key: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, Infallible> {
            let found = self.0.range(key.to_vec()..).next();
            Ok(found.map(|(key, value)| (key.clone(), value.clone())))
        }
        fn floor(&self, _table: Table, key: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, Infallible> {
            let found = self.0.range(..=key.to_vec()).next_back();
            Ok(found.map(|(key, value)| (key.clone(), value.clone())))
        }
    }

    #[test]
    fn blocks_are_found_in_objects_that_interleave() {
        let packs: [&[u64]; 4] = [&[3, 9, 40], &[5], &[7, 41], &[OBJECT_SPAN_MAX + 50]];
        let objects = packs.map(|pvbns| {
            let stored = |pvbn: &u64| (Pvbn(*pvbn), Fingerprint([0; 32]), 4096, BlockEncoding::Plain);
            let descriptor = ObjectDescriptor::unnamed(pvbns.iter().map(stored));
            (pvbns[0].to_be_bytes().to_vec(), descriptor.encode())
        });
        let reader = Objects(objects.into());
        for pvbn in packs.concat() {
            let found = load_descriptor(&reader, Pvbn(pvbn)).unwrap();
            assert!(
                found.is_some_and(|found| found.find(Pvbn(pvbn)).is_some()),
                "PVBN {pvbn}"
            );
        }
        for pvbn in [0, 4, 8, 42, OBJECT_SPAN_MAX + 49] {
            assert_eq!(load_descriptor(&reader, Pvbn(pvbn)), Ok(None), "PVBN {pvbn}");
        }
    }

    #[test]
    fn an_object_is_looked_for_as_far_below_as_it_may_begin() {
        assert_eq!(least_first(Pvbn(0)), 0);
        assert_eq!(least_first(Pvbn(OBJECT_SPAN_MAX - 1)), 0);
        assert_eq!(least_first(Pvbn(OBJECT_SPAN_MAX)), 1);
    }
}
