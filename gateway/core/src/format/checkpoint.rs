//! Local metadata: its tables, what a checkpoint brings into them ([`Frozen`], merged by [`crate::Merge`]), and how the
//! core reads them.
//!
//! | table      | key                          | value                                             |
//! |------------|------------------------------|---------------------------------------------------|
//! | Super      | empty                        | [`Superblock`]                                    |
//! | Map        | volume u64 BE, page u64 BE   | map page, 256 blocks of the volume                |
//! | References | page u64 BE                  | count page, references to 256 PVBNs               |
//! | Objects    | first PVBN u64 BE            | object descriptor (the Cloud-DB)                  |
//! | Slots      | page u32 BE                  | slot page, 64 slots of the cache file             |
//! | Entries    | as the file service chose    | likewise                                          |
//! | Counters   | likewise                     | i64                                               |

use crate::format::page::MapPage;
use crate::format::record::Lsn;
use crate::state::extent_map::ExtentMap;
use crate::steps::entries::Entries;
use alloc::{collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use tombolo_base::{BlockSum, DecodeError, ObjectDescriptor, Pvbn, Reader, VolumeId, WallTime, Writer};
use xxhash_rust::xxh3::xxh3_64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    Super,
    Map,
    References,
    Objects,
    Slots,
    Entries,
    Counters,
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
        }
    }
}

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Reads of local metadata. A value is told only when it is the one that was put under its key, and a key only when it
/// lies where it was looked for ([`crate::sealed`]).
pub trait MetadataRead {
    type Error;
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Self::Error>;
    /// The entry with the least key not below `key`.
    fn ceiling(&self, table: Table, key: &[u8]) -> Result<Option<Entry>, Self::Error>;
    /// The entry with the greatest key not above `key`.
    fn floor(&self, table: Table, key: &[u8]) -> Result<Option<Entry>, Self::Error>;
}

/// One transaction: takes effect whole, or not at all.
pub trait MetadataTransaction: MetadataRead {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Self::Error>;
    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), Self::Error>;
}

/// Why metadata cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataFault<E> {
    #[error("{0}")]
    Store(E),
    #[error("table {table:?}, key {key:02x?}: {error}")]
    Corrupt {
        table: Table,
        key: Vec<u8>,
        error: DecodeError,
    },
    #[error("PVBN {pvbn} would have {count} references")]
    NegativeReferences { pvbn: u64, count: i64 },
}

/// A volume as local metadata and the core know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub id: VolumeId,
    pub name: String,
    pub blocks: u64,
}

/// Where the journal takes over from local metadata, and what must outlive it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Superblock {
    /// Of the state directory: journal and cache file carry it too.
    pub journal_identity: u64,
    pub slot_count: u32,
    /// Recovery replays from here.
    pub lsn: Lsn,
    /// The segment that holds `lsn`, or the next to be made.
    pub segment: u64,
    pub next_pvbn: u64,
    pub next_volume: u64,
    pub volumes: Vec<Volume>,
    pub totals: Totals,
    /// When what is dirty was written: blocks from each of these PVBNs on, up to the next, at that time or later.
    pub dirty_ages: Vec<(Pvbn, WallTime)>,
}

/// Counters that live as long as the state directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub blocks_written: u64,
    pub blocks_zero: u64,
    pub blocks_duplicate: u64,
    pub blocks_unique: u64,
    pub objects: u64,
    pub object_bytes: u64,
}

const SUPER_MAGIC: &[u8; 7] = b"TMBSUPR";
const SUPER_VERSION: u8 = b'4';

impl Superblock {
    /// Of a state directory that is just being made.
    pub fn first(identity: u64, slot_count: u32) -> Self {
        Self {
            journal_identity: identity,
            slot_count,
            segment: 1,
            next_pvbn: 1,
            next_volume: 1,
            ..Self::default()
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.bytes(SUPER_MAGIC)
            .u8(SUPER_VERSION)
            .u64(self.journal_identity)
            .u32(self.slot_count)
            .u64(self.lsn.0)
            .u64(self.segment);
        out.u64(self.next_pvbn).u64(self.next_volume);
        let totals = &self.totals;
        out.u64(totals.blocks_written)
            .u64(totals.blocks_zero)
            .u64(totals.blocks_duplicate);
        out.u64(totals.blocks_unique)
            .u64(totals.objects)
            .u64(totals.object_bytes);
        out.u32(self.volumes.len() as u32);
        for volume in &self.volumes {
            out.u64(volume.id.0)
                .u64(volume.blocks)
                .u8(volume.name.len() as u8)
                .bytes(volume.name.as_bytes());
        }
        out.u32(self.dirty_ages.len() as u32);
        for (first, time) in &self.dirty_ages {
            out.u64(first.0).u32(time.0);
        }
        let sum = xxh3_64(&out.0);
        out.u64(sum);
        out.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let magic = reader.bytes("superblock magic", 7)?;
        if magic != SUPER_MAGIC {
            return Err(DecodeError::Invalid {
                what: "superblock magic",
                value: u64::from(magic[0]),
            });
        }
        let version = reader.u8("superblock version")?;
        if version != SUPER_VERSION {
            return Err(DecodeError::Invalid {
                what: "superblock version",
                value: u64::from(version),
            });
        }
        let mut superblock = Self {
            journal_identity: reader.u64("superblock journal identity")?,
            slot_count: reader.u32("superblock slot count")?,
            lsn: Lsn(reader.u64("superblock LSN")?),
            segment: reader.u64("superblock segment")?,
            next_pvbn: reader.u64("superblock next PVBN")?,
            next_volume: reader.u64("superblock next volume")?,
            totals: Totals {
                blocks_written: reader.u64("superblock totals")?,
                blocks_zero: reader.u64("superblock totals")?,
                blocks_duplicate: reader.u64("superblock totals")?,
                blocks_unique: reader.u64("superblock totals")?,
                objects: reader.u64("superblock totals")?,
                object_bytes: reader.u64("superblock totals")?,
            },
            volumes: Vec::new(),
            dirty_ages: Vec::new(),
        };
        for _ in 0..reader.u32("superblock volume count")? {
            let id = VolumeId(reader.u64("superblock volume")?);
            let blocks = reader.u64("superblock volume blocks")?;
            let length = usize::from(reader.u8("superblock volume name")?);
            let name = core::str::from_utf8(reader.bytes("superblock volume name", length)?).map_err(|_| {
                DecodeError::Invalid {
                    what: "superblock volume name",
                    value: length as u64,
                }
            })?;
            superblock.volumes.push(Volume {
                id,
                name: name.into(),
                blocks,
            });
        }
        for _ in 0..reader.u32("superblock age count")? {
            let first = Pvbn(reader.u64("superblock age PVBN")?);
            let time = WallTime(reader.u32("superblock age")?);
            superblock.dirty_ages.push((first, time));
        }
        let computed = xxh3_64(&bytes[..reader.offset()]);
        let found = reader.u64("superblock checksum")?;
        if found != computed {
            return Err(DecodeError::Checksum {
                what: "superblock",
                found,
                computed,
            });
        }
        reader.finish("superblock")?;
        Ok(superblock)
    }
}

/// What one slot holds, as the persistent cache index says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotEntry {
    Free,
    Clean {
        pvbn: Pvbn,
        sum: BlockSum,
    },
    Dirty {
        pvbn: Pvbn,
        sum: BlockSum,
        volume: VolumeId,
        block: u64,
    },
    Corrupt {
        pvbn: Pvbn,
        sum: BlockSum,
        volume: VolumeId,
        block: u64,
    },
}

/// A slot page is its entries one after another: kind u8 (0 free, 1 clean, 2 dirty, 3 corrupt), then PVBN u64 and sum
/// u64 unless free, then volume u64 and block u64 if dirty or corrupt.
pub fn encode_slot_page(entries: impl Iterator<Item = SlotEntry>) -> Vec<u8> {
    let mut out = Writer::default();
    for entry in entries {
        match entry {
            SlotEntry::Free => out.u8(0),
            SlotEntry::Clean { pvbn, sum } => out.u8(1).u64(pvbn.0).u64(sum.0),
            SlotEntry::Dirty {
                pvbn,
                sum,
                volume,
                block,
            } => out.u8(2).u64(pvbn.0).u64(sum.0).u64(volume.0).u64(block),
            SlotEntry::Corrupt {
                pvbn,
                sum,
                volume,
                block,
            } => out.u8(3).u64(pvbn.0).u64(sum.0).u64(volume.0).u64(block),
        };
    }
    out.0
}

pub fn decode_slot_page(bytes: &[u8]) -> Result<Vec<SlotEntry>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut entries = Vec::with_capacity(crate::state::slots::SLOTS_PER_PAGE as usize);
    while reader.remaining() > 0 {
        let kind = reader.u8("slot kind")?;
        if kind == 0 {
            entries.push(SlotEntry::Free);
            continue;
        }
        let (pvbn, sum) = (Pvbn(reader.u64("slot PVBN")?), BlockSum(reader.u64("slot sum")?));
        entries.push(match kind {
            1 => SlotEntry::Clean { pvbn, sum },
            2 => {
                let volume = VolumeId(reader.u64("slot volume")?);
                SlotEntry::Dirty {
                    pvbn,
                    sum,
                    volume,
                    block: reader.u64("slot block")?,
                }
            }
            3 => SlotEntry::Corrupt {
                pvbn,
                sum,
                volume: VolumeId(reader.u64("slot volume")?),
                block: reader.u64("slot block")?,
            },
            other => {
                return Err(DecodeError::Invalid {
                    what: "slot kind",
                    value: u64::from(other),
                });
            }
        });
    }
    Ok(entries)
}

/// Everything that changed between two checkpoints.
#[derive(Clone, Debug, Default)]
pub struct Frozen {
    pub superblock: Superblock,
    pub map: ExtentMap,
    pub objects: BTreeMap<u64, Arc<ObjectDescriptor>>,
    pub entries: Entries,
    pub slot_pages: Vec<(u32, Vec<u8>)>,
}

pub fn map_key(volume: VolumeId, page: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&volume.0.to_be_bytes());
    key[8..].copy_from_slice(&page.to_be_bytes());
    key
}

/// A page of a volume's map; an absent one is empty.
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
            let descriptor = ObjectDescriptor::new(pvbns.iter().map(stored));
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

    fn superblock() -> Superblock {
        let volume = |id, name: &str, blocks| Volume {
            id: VolumeId(id),
            name: name.into(),
            blocks,
        };
        Superblock {
            journal_identity: 1,
            slot_count: 2,
            lsn: Lsn(3),
            segment: 4,
            next_pvbn: 5,
            next_volume: 6,
            volumes: [volume(7, "first", 8), volume(9, "", u64::MAX)].into(),
            totals: Totals {
                blocks_written: 10,
                blocks_zero: 11,
                blocks_duplicate: 12,
                blocks_unique: 13,
                objects: 14,
                object_bytes: 15,
            },
            dirty_ages: [(Pvbn(16), WallTime(17)), (Pvbn(18), WallTime(19))].into(),
        }
    }

    #[test]
    fn a_superblock_is_read_as_it_was_written() {
        let bytes = superblock().encode();
        assert_eq!(Superblock::decode(&bytes), Ok(superblock()));
        let longer = [&bytes[..], &[0]].concat();
        assert!(Superblock::decode(&longer).is_err());
        for length in 0..bytes.len() {
            assert!(Superblock::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_superblock_with_any_bit_flipped_is_refused() {
        let bytes = superblock().encode();
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&damaged).is_err(), "bit {bit}");
        }
    }

    /// Its sum is right, so that only what it says of itself is wrong.
    #[test]
    fn a_superblock_of_another_version_is_named_as_such() {
        let what_is_wrong = |index: usize| {
            let mut bytes = superblock().encode();
            bytes[index] += 1;
            let end = bytes.len() - 8;
            let sum = xxh3_64(&bytes[..end]);
            bytes[end..].copy_from_slice(&sum.to_le_bytes());
            match Superblock::decode(&bytes) {
                Err(DecodeError::Invalid { what, .. }) => what,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            [0, 6, 7].map(what_is_wrong),
            ["superblock magic", "superblock magic", "superblock version"]
        );
    }

    #[test]
    fn a_slot_page_is_read_as_it_was_written() {
        let (pvbn, sum) = (Pvbn(1), BlockSum(2));
        let (volume, block) = (VolumeId(3), 4);
        let entries = [
            SlotEntry::Dirty {
                pvbn,
                sum,
                volume,
                block,
            },
            SlotEntry::Free,
            SlotEntry::Corrupt {
                pvbn,
                sum,
                volume,
                block,
            },
            SlotEntry::Clean { pvbn, sum },
        ];
        let bytes = encode_slot_page(entries.into_iter());
        assert_eq!(decode_slot_page(&bytes), Ok(entries.to_vec()));
        assert!(decode_slot_page(&bytes[..bytes.len() - 1]).is_err());
        assert!(decode_slot_page(&[4; 40]).is_err());
    }

    #[test]
    fn an_object_is_looked_for_as_far_below_as_it_may_begin() {
        assert_eq!(least_first(Pvbn(0)), 0);
        assert_eq!(least_first(Pvbn(OBJECT_SPAN_MAX - 1)), 0);
        assert_eq!(least_first(Pvbn(OBJECT_SPAN_MAX)), 1);
    }
}
