//! The first 4096 bytes of the cache file: whose it is, and how far journal and local metadata were known to be on
//! stable storage. Slot `n` follows at `(n + 1) * 4096`.
//!
//! ```text
//! sectors 0 and 1, the same twice          sectors 2 and 3, written in turn
//!   0 magic "TMBCACHE"                       0 magic "TMBMARK1"
//!   8 format version     u32 = 1             8 identity            u64
//!  12 slot count         u32                16 journal segment     u64
//!  16 identity           u64                24 LSN                 u64
//!  24 XXH3-64 of 0..24   u64                32 metadata file bytes u64
//!                                           40 next PVBN           u64
//!                                           48 XXH3-64 of 0..48    u64
//! ```
//! The numbers of a mark only ever rise, so of two marks each has the truth where it is higher. A mark that was torn
//! or never written says nothing. A file beside the cache file has the two marks once more, as its sectors 0 and 1: an older
//! copy of the one is told by the other.

use crate::format::record::Lsn;
use alloc::vec::Vec;
use tombolo_base::{BLOCK_BYTES, DecodeError, Lcbn, Reader, Writer};
use xxhash_rust::xxh3::xxh3_64;

/// The header's length, where slot 0 begins.
pub const HEADER_BYTES: usize = BLOCK_BYTES;
const SECTOR_BYTES: usize = 512;
/// Where the marks begin in the cache file.
pub const MARKS_OFFSET: u64 = 2 * SECTOR_BYTES as u64;
/// The length of two marks, where they are a file.
pub const MARKS_BYTES: usize = 2 * SECTOR_BYTES;
const MAGIC: &[u8; 8] = b"TMBCACHE";
const VERSION: u32 = 1;
const MARK_MAGIC: &[u8; 8] = b"TMBMARK1";

/// Where a slot lies in the cache file.
pub fn slot_offset_bytes(slot: Lcbn) -> u64 {
    HEADER_BYTES as u64 + slot.offset_bytes()
}

/// Of a cache file with this many slots.
pub fn file_bytes(slot_count: u32) -> u64 {
    slot_offset_bytes(Lcbn(slot_count))
}

/// What was on stable storage when the mark was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// How far the journal, and the blocks that it speaks of, had come.
    pub journal: JournalMark,
    /// Length of local metadata's file, which never shrinks.
    pub metadata_bytes: u64,
    /// From here on the present life gives out PVBNs, whether or not any of its records ever reaches the disk.
    pub next_pvbn: u64,
}

/// Whose the cache file is, and what it notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheHeader {
    /// The superblock's.
    pub identity: u64,
    /// Slots that the file has room for, whatever its length.
    pub slot_count: u32,
    /// The two that the file has, as one: of each number the higher.
    pub mark: Mark,
}

impl CacheHeader {
    /// The header of a new file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(HEADER_BYTES);
        out.bytes(MAGIC).u32(VERSION).u32(self.slot_count).u64(self.identity);
        let sum = xxh3_64(&out.0);
        out.u64(sum);
        let copy = out.0;
        let mut bytes = alloc::vec![0; HEADER_BYTES];
        for sector in 0..2 {
            bytes[sector * SECTOR_BYTES..][..copy.len()].copy_from_slice(&copy);
        }
        for turn in 0..2 {
            let (offset, mark) = encode_mark(self.identity, &self.mark, turn);
            bytes[offset as usize..][..mark.len()].copy_from_slice(&mark);
        }
        bytes
    }

    /// From the file's first [`HEADER_BYTES`]. Marks that cannot be read are left out.
    ///
    /// # Errors
    /// When four sectors are not there, or neither copy of the first is whole and of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let sectors: Vec<&[u8]> = bytes.chunks(SECTOR_BYTES).take(4).collect();
        let [first, second, marks @ ..] = &sectors[..] else {
            return Err(DecodeError::Truncated {
                what: "cache file header",
                offset: 0,
                needed: HEADER_BYTES,
                available: bytes.len(),
            });
        };
        let (slot_count, identity) = decode_copy(first).or_else(|error| decode_copy(second).map_err(|_| error))?;
        Ok(Self {
            identity,
            slot_count,
            mark: highest(marks.iter().copied(), identity),
        })
    }
}

/// The marks of a file that has nothing else, as one. What cannot be read, or is another's, is left out.
pub fn decode_marks(bytes: &[u8], identity: u64) -> Mark {
    highest(bytes.chunks(SECTOR_BYTES).take(2), identity)
}

fn highest<'s>(sectors: impl Iterator<Item = &'s [u8]>, identity: u64) -> Mark {
    let mut mark = Mark::default();
    for found in sectors.filter_map(|sector| decode_mark(sector, identity).ok()) {
        if found.journal.lsn > mark.journal.lsn {
            mark.journal = found.journal;
        }
        mark.metadata_bytes = mark.metadata_bytes.max(found.metadata_bytes);
        mark.next_pvbn = mark.next_pvbn.max(found.next_pvbn);
    }
    mark
}

fn decode_copy(sector: &[u8]) -> Result<(u32, u64), DecodeError> {
    let mut reader = Reader::new(sector);
    let magic = reader.bytes("cache file magic", 8)?;
    if magic != MAGIC {
        return Err(DecodeError::Invalid {
            what: "cache file magic",
            value: u64::from(magic[0]),
        });
    }
    let version = reader.u32("cache file version")?;
    if version != VERSION {
        return Err(DecodeError::Invalid {
            what: "cache file version",
            value: u64::from(version),
        });
    }
    let found = (reader.u32("cache file slot count")?, reader.u64("cache file identity")?);
    check_sum("cache file header", sector, &mut reader)?;
    Ok(found)
}

/// Where the mark goes, and its bytes. `turn` counts marks, so that a torn one leaves the one before it whole.
pub fn encode_mark(identity: u64, mark: &Mark, turn: u64) -> (u64, Vec<u8>) {
    let mut out = Writer::with_capacity(SECTOR_BYTES);
    out.bytes(MARK_MAGIC)
        .u64(identity)
        .u64(mark.journal.segment)
        .u64(mark.journal.lsn.0)
        .u64(mark.metadata_bytes)
        .u64(mark.next_pvbn);
    let sum = xxh3_64(&out.0);
    out.u64(sum);
    (MARKS_OFFSET + (turn % 2) * SECTOR_BYTES as u64, out.0)
}

fn decode_mark(sector: &[u8], identity: u64) -> Result<Mark, DecodeError> {
    let mut reader = Reader::new(sector);
    let magic = reader.bytes("mark magic", 8)?;
    let found = reader.u64("mark identity")?;
    if magic != MARK_MAGIC || found != identity {
        return Err(DecodeError::Invalid {
            what: "mark identity",
            value: found,
        });
    }
    let mark = Mark {
        journal: JournalMark {
            segment: reader.u64("mark segment")?,
            lsn: Lsn(reader.u64("mark LSN")?),
        },
        metadata_bytes: reader.u64("mark metadata bytes")?,
        next_pvbn: reader.u64("mark next PVBN")?,
    };
    check_sum("mark", sector, &mut reader)?;
    Ok(mark)
}

fn check_sum(what: &'static str, bytes: &[u8], reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let computed = xxh3_64(&bytes[..reader.offset()]);
    let found = reader.u64(what)?;
    if found != computed {
        return Err(DecodeError::Checksum { what, found, computed });
    }
    Ok(())
}

/// A position up to which cache file and journal are on stable storage. It is noted outside the journal, so that a
/// journal whose end is gone is told from one that ends there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalMark {
    /// The segment that was being written then.
    pub segment: u64,
    /// Every batch below it.
    pub lsn: Lsn,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark(lsn: u64, metadata_bytes: u64) -> Mark {
        Mark {
            journal: JournalMark {
                segment: 3,
                lsn: Lsn(lsn),
            },
            metadata_bytes,
            next_pvbn: 4,
        }
    }

    fn header(mark: Mark) -> CacheHeader {
        CacheHeader {
            identity: 0x0102_0304_0506_0708,
            slot_count: 9,
            mark,
        }
    }

    #[test]
    fn golden_bytes() {
        let bytes = header(mark(5, 6)).encode();
        assert_eq!(bytes.len(), 4096);
        assert_eq!(
            &bytes[..24],
            b"TMBCACHE\x01\0\0\0\x09\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01"
        );
        assert_eq!(bytes[..512], bytes[512..1024]);
        assert_eq!(&bytes[1024..1040], b"TMBMARK1\x08\x07\x06\x05\x04\x03\x02\x01");
        assert_eq!([bytes[1040], bytes[1048], bytes[1056], bytes[1064]], [3, 5, 6, 4]);
        assert_eq!((slot_offset_bytes(Lcbn(0)), slot_offset_bytes(Lcbn(2))), (4096, 12_288));
        assert_eq!(CacheHeader::decode(&bytes), Ok(header(mark(5, 6))));
    }

    #[test]
    fn of_two_marks_the_higher_numbers_count() {
        let mut bytes = header(Mark::default()).encode();
        for (turn, mark) in [(0, mark(70, 10)), (1, mark(50, 20))] {
            let (offset, sector) = encode_mark(header(mark).identity, &mark, turn);
            bytes[offset as usize..][..sector.len()].copy_from_slice(&sector);
        }
        assert_eq!(CacheHeader::decode(&bytes), Ok(header(mark(70, 20))));
        bytes[1024 + 30] ^= 1;
        assert_eq!(
            CacheHeader::decode(&bytes),
            Ok(header(mark(50, 20))),
            "a torn mark says nothing"
        );
        bytes[1536] ^= 1;
        assert_eq!(CacheHeader::decode(&bytes), Ok(header(Mark::default())));
    }

    #[test]
    fn marks_are_read_without_the_rest_of_the_header() {
        let bytes = header(mark(5, 6)).encode();
        let mut marks = bytes[MARKS_OFFSET as usize..][..MARKS_BYTES].to_vec();
        let identity = header(mark(5, 6)).identity;
        assert_eq!(decode_marks(&marks, identity), mark(5, 6));
        assert_eq!(decode_marks(&marks, 1), Mark::default(), "another's");
        marks[40] ^= 1;
        assert_eq!(decode_marks(&marks, identity), mark(5, 6));
        assert_eq!(decode_marks(&marks[..700], identity), mark(5, 6));
        assert_eq!(decode_marks(&marks[..100], identity), Mark::default());
        assert_eq!(decode_marks(&[], identity), Mark::default());
    }

    proptest! {
        #[test]
        fn one_bad_sector_loses_nothing_but_its_mark(place in 0usize..2048, bit in 0u8..8) {
            let mut bytes = header(mark(5, 6)).encode();
            bytes[place] ^= 1 << bit;
            prop_assert_eq!(CacheHeader::decode(&bytes), Ok(header(mark(5, 6))));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
            let _ = CacheHeader::decode(&bytes);
            let _ = decode_marks(&bytes, 1);
        }
    }
}
