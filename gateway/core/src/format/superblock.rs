//! The superblock: from where recovery replays the journal, and what must outlive it.

use crate::format::record::Lsn;
use alloc::{string::String, vec::Vec};
use tombolo_base::{DecodeError, FlushMode, Pvbn, Reader, VolumeId, WallTime, Writer};
use xxhash_rust::xxh3::xxh3_64;

/// A volume as local metadata and the core know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Given once in a state directory.
    pub id: VolumeId,
    /// Unique among the volumes that exist; at most 255 bytes.
    pub name: String,
    /// The size.
    pub blocks: u64,
    /// What its flushes wait for.
    pub flush: FlushMode,
}

/// The highest bit of a volume's size, wherever that is stored: its flushes wait for the bucket.
const FLUSH_TO_BUCKET: u64 = 1 << 63;

/// A volume's size with its flush mode, as one number.
pub(crate) fn encode_size(blocks: u64, flush: FlushMode) -> u64 {
    match flush {
        FlushMode::Local => blocks,
        FlushMode::Bucket => blocks | FLUSH_TO_BUCKET,
    }
}

/// The inverse of [`encode_size`], of blocks below the highest bit.
pub(crate) fn decode_size(size: u64) -> (u64, FlushMode) {
    match size & FLUSH_TO_BUCKET {
        0 => (size, FlushMode::Local),
        _ => (size & !FLUSH_TO_BUCKET, FlushMode::Bucket),
    }
}

/// Where the journal takes over from local metadata, and what must outlive it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Superblock {
    /// Of the state directory: journal and cache file carry it too.
    pub journal_identity: u64,
    /// Of the cache file that the slot pages speak of.
    pub slot_count: u32,
    /// Recovery replays from here.
    pub lsn: Lsn,
    /// The segment that holds `lsn`, or the next to be made.
    pub segment: u64,
    /// No record below `lsn` has given out a PVBN from here on.
    pub next_pvbn: u64,
    /// The number of the next volume to be made.
    pub next_volume: u64,
    /// Those with a size of their own; files of shares have none.
    pub volumes: Vec<Volume>,
    /// As they stood at `lsn`.
    pub totals: Totals,
    /// A checkpoint up to here is being made: maps, objects and entries may have some of it already. Only the journal up to
    /// there makes them one state again.
    pub merging_to: Option<Lsn>,
    /// When what is dirty was written: blocks from each of these PVBNs on, up to the next, at that time or later.
    pub dirty_ages: Vec<(Pvbn, WallTime)>,
}

/// Counters over all lives of a state directory. A kill takes back which blocks were counted since the last checkpoint;
/// objects are counted again from the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Blocks that clients wrote, those of zeroes included; not what was unmapped.
    pub blocks_written: u64,
    /// Of those, blocks of zeroes.
    pub blocks_zero: u64,
    /// Blocks that were redirected to a stored one.
    pub blocks_duplicate: u64,
    /// Blocks that were packed for the store: one of each contents.
    pub blocks_unique: u64,
    /// Objects that were confirmed.
    pub objects: u64,
    /// Their length, as they are stored.
    pub object_bytes: u64,
}

impl Totals {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u64(self.blocks_written)
            .u64(self.blocks_zero)
            .u64(self.blocks_duplicate);
        out.u64(self.blocks_unique).u64(self.objects).u64(self.object_bytes);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            blocks_written: reader.u64("totals")?,
            blocks_zero: reader.u64("totals")?,
            blocks_duplicate: reader.u64("totals")?,
            blocks_unique: reader.u64("totals")?,
            objects: reader.u64("totals")?,
            object_bytes: reader.u64("totals")?,
        })
    }
}

const SUPER_MAGIC: &[u8; 7] = b"TMBSUPR";
/// The format of all that is in a state directory.
pub const SUPER_VERSION: u8 = b'5';
/// The same, while a checkpoint is being made.
const SUPER_VERSION_MERGING: u8 = b'6';

impl Superblock {
    /// The format of the state directory whose superblock this is, whatever else it holds.
    pub fn version(bytes: &[u8]) -> Option<u8> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let version = rest.first().copied().filter(|_| magic == SUPER_MAGIC)?;
        Some(match version {
            SUPER_VERSION_MERGING => SUPER_VERSION,
            version => version,
        })
    }

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

    /// With its sum at the end.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        let version = match self.merging_to {
            Some(_) => SUPER_VERSION_MERGING,
            None => SUPER_VERSION,
        };
        out.bytes(SUPER_MAGIC)
            .u8(version)
            .u64(self.journal_identity)
            .u32(self.slot_count)
            .u64(self.lsn.0)
            .u64(self.segment);
        out.u64(self.next_pvbn).u64(self.next_volume);
        self.totals.encode(&mut out);
        out.u32(self.volumes.len() as u32);
        for volume in &self.volumes {
            out.u64(volume.id.0)
                .u64(encode_size(volume.blocks, volume.flush))
                .u8(volume.name.len() as u8)
                .bytes(volume.name.as_bytes());
        }
        out.u32(self.dirty_ages.len() as u32);
        for (first, time) in &self.dirty_ages {
            out.u64(first.0).u32(time.0);
        }
        if let Some(lsn) = self.merging_to {
            out.u64(lsn.0);
        }
        let sum = xxh3_64(&out.0);
        out.u64(sum);
        out.0
    }

    /// The inverse of [`Superblock::encode`].
    ///
    /// # Errors
    /// When the bytes are not exactly one, of this version, with the right sum.
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
        if !matches!(version, SUPER_VERSION | SUPER_VERSION_MERGING) {
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
            totals: Totals::decode(&mut reader)?,
            volumes: Vec::new(),
            merging_to: None,
            dirty_ages: Vec::new(),
        };
        for _ in 0..reader.u32("superblock volume count")? {
            let id = VolumeId(reader.u64("superblock volume")?);
            let (blocks, flush) = decode_size(reader.u64("superblock volume size")?);
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
                flush,
            });
        }
        for _ in 0..reader.u32("superblock age count")? {
            let first = Pvbn(reader.u64("superblock age PVBN")?);
            let time = WallTime(reader.u32("superblock age")?);
            superblock.dirty_ages.push((first, time));
        }
        if version == SUPER_VERSION_MERGING {
            superblock.merging_to = Some(Lsn(reader.u64("superblock checkpoint under way")?));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock {
        let volume = |id, name: &str, blocks, flush| Volume {
            id: VolumeId(id),
            name: name.into(),
            blocks,
            flush,
        };
        Superblock {
            journal_identity: 1,
            slot_count: 2,
            lsn: Lsn(3),
            segment: 4,
            next_pvbn: 5,
            next_volume: 6,
            volumes: [
                volume(7, "first", 8, FlushMode::Local),
                volume(9, "", u64::MAX >> 1, FlushMode::Bucket),
            ]
            .into(),
            totals: Totals {
                blocks_written: 10,
                blocks_zero: 11,
                blocks_duplicate: 12,
                blocks_unique: 13,
                objects: 14,
                object_bytes: 15,
            },
            merging_to: None,
            dirty_ages: [(Pvbn(16), WallTime(17)), (Pvbn(18), WallTime(19))].into(),
        }
    }

    #[test]
    fn a_superblock_is_read_as_it_was_written() {
        let merging = Superblock {
            merging_to: Some(Lsn(20)),
            ..superblock()
        };
        for (superblock, version) in [(superblock(), b'5'), (merging, b'6')] {
            let bytes = superblock.encode();
            assert_eq!(bytes[7], version);
            assert_eq!(Superblock::version(&bytes), Some(SUPER_VERSION));
            assert_eq!(Superblock::decode(&bytes), Ok(superblock));
            let longer = [&bytes[..], &[0]].concat();
            assert!(Superblock::decode(&longer).is_err());
            for length in 0..bytes.len() {
                assert!(Superblock::decode(&bytes[..length]).is_err(), "{length} bytes");
            }
        }
    }

    #[test]
    fn a_size_has_the_flush_mode_in_its_highest_bit() {
        assert_eq!(encode_size(5, FlushMode::Local), 5);
        assert_eq!(encode_size(5, FlushMode::Bucket), 0x8000_0000_0000_0005);
        assert_eq!(decode_size(5), (5, FlushMode::Local), "as before there were modes");
        assert_eq!(decode_size(0x8000_0000_0000_0005), (5, FlushMode::Bucket));
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
            bytes[index] += 2;
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
}
