//! The object descriptor: what an object in the bucket holds. The same bytes head the object itself, travel in
//! the journal when the object is confirmed, and lie in the Cloud-DB, so one parser serves all three.
//!
//! ```text
//!  0  magic "TMBOBJ01"            8
//!  8  block count                 u16   1..=1024
//! 10  reserved, zero              u16
//! 12  header bytes in all         u32   = 20 + 48 * count + 8
//! 16  reserved, zero              u32
//! 20  per block, ascending PVBN, 48 bytes each:
//!       PVBN                      u64
//!       fingerprint (SHA-256)     32
//!       offset in the object      u32   from the object's first byte
//!       stored bytes              u16   1..=4096
//!       encoding                  u8    0 plain, 1 zstd
//!       reserved, zero            u8
//!  ..  XXH3-64 of all before      u64
//!  ..  the stored blocks, in the same order, without gaps
//! ```

use crate::{BLOCK_BYTES, DecodeError, Fingerprint, OBJECT_BLOCKS_MAX, Pvbn, Reader, Writer};
use alloc::{string::String, vec::Vec};
use core::fmt::Write as _;
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"TMBOBJ01";
const FIXED_BYTES: usize = 20;
const ENTRY_BYTES: usize = 48;
const SUM_BYTES: usize = 8;

/// How one block is stored in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockEncoding {
    /// The block's 4,096 bytes themselves.
    Plain,
    /// One zstd frame of the block, which is smaller.
    Zstd,
}

impl BlockEncoding {
    fn code(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Zstd => 1,
        }
    }
}

/// One block's place in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedBlock {
    /// The block's name, by which maps refer to it.
    pub pvbn: Pvbn,
    /// Of the block before it was compressed.
    pub fingerprint: Fingerprint,
    /// Where its stored bytes begin, from the object's first byte.
    pub offset_bytes: u32,
    /// How many bytes are stored: 1 to 4,096.
    pub stored_bytes: u16,
    /// How they are stored.
    pub encoding: BlockEncoding,
}

/// The name of an object: SHA-256 over PVBN, fingerprint, stored bytes and encoding of each block in turn. A PUT of
/// the name, however late it comes and with whatever settings of compression, leaves every block where the descriptor
/// says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 32]);

impl ObjectId {
    fn of(blocks: &[PackedBlock]) -> Self {
        let mut hasher = Sha256::new();
        for block in blocks {
            hasher.update(block.pvbn.0.to_le_bytes());
            hasher.update(block.fingerprint.0);
            hasher.update(block.stored_bytes.to_le_bytes());
            hasher.update([block.encoding.code()]);
        }
        Self(hasher.finalize().into())
    }

    /// The key in the bucket, below the store's prefix: `objects/ab/cdef…`.
    pub fn key(&self) -> String {
        let mut key = String::from("objects/");
        for (index, byte) in self.0.iter().enumerate() {
            let _ = write!(key, "{byte:02x}");
            if index == 0 {
                key.push('/');
            }
        }
        key
    }
}

/// The blocks of one object, PVBNs strictly ascending, offsets without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectDescriptor {
    blocks: Vec<PackedBlock>,
}

impl ObjectDescriptor {
    /// `stored` is what each block occupies; offsets follow from it.
    ///
    /// # Panics
    /// When the blocks are none, too many, or not in ascending order: a broken invariant of the caller.
    pub fn new(stored: impl IntoIterator<Item = (Pvbn, Fingerprint, u16, BlockEncoding)>) -> Self {
        let mut blocks: Vec<PackedBlock> = stored
            .into_iter()
            .map(|(pvbn, fingerprint, stored_bytes, encoding)| PackedBlock {
                pvbn,
                fingerprint,
                offset_bytes: 0,
                stored_bytes,
                encoding,
            })
            .collect();
        assert!(
            (1..=OBJECT_BLOCKS_MAX).contains(&blocks.len()),
            "an object holds 1 to {OBJECT_BLOCKS_MAX} blocks"
        );
        assert!(
            blocks.is_sorted_by(|left, right| left.pvbn < right.pvbn),
            "PVBNs ascend within an object"
        );
        let mut offset_bytes = Self::header_bytes_for(blocks.len()) as u32;
        for block in &mut blocks {
            block.offset_bytes = offset_bytes;
            offset_bytes += u32::from(block.stored_bytes);
        }
        Self { blocks }
    }

    /// Encoded length of a descriptor of so many blocks, in bytes.
    pub const fn header_bytes_for(block_count: usize) -> usize {
        FIXED_BYTES + block_count * ENTRY_BYTES + SUM_BYTES
    }

    /// Encoded length of this descriptor, which is where the first block's bytes begin.
    pub fn header_bytes(&self) -> usize {
        Self::header_bytes_for(self.blocks.len())
    }

    /// Size of the whole object.
    pub fn object_bytes(&self) -> usize {
        let last = &self.blocks[self.blocks.len() - 1];
        last.offset_bytes as usize + usize::from(last.stored_bytes)
    }

    /// In ascending order of their PVBNs; at least one.
    pub fn blocks(&self) -> &[PackedBlock] {
        &self.blocks
    }

    /// The lowest PVBN, which is the object's key in the Cloud-DB.
    pub fn first_pvbn(&self) -> Pvbn {
        self.blocks[0].pvbn
    }

    /// The highest PVBN.
    pub fn last_pvbn(&self) -> Pvbn {
        self.blocks[self.blocks.len() - 1].pvbn
    }

    /// The block of this name, if the object holds it.
    pub fn find(&self, pvbn: Pvbn) -> Option<&PackedBlock> {
        let index = self.blocks.binary_search_by_key(&pvbn, |block| block.pvbn).ok()?;
        Some(&self.blocks[index])
    }

    /// Computed anew each time.
    pub fn id(&self) -> ObjectId {
        ObjectId::of(&self.blocks)
    }

    /// As the table at the head of this module has it.
    pub fn encode(&self) -> Vec<u8> {
        let header_bytes = self.header_bytes();
        let mut out = Writer::with_capacity(header_bytes);
        out.bytes(MAGIC)
            .u16(self.blocks.len() as u16)
            .u16(0)
            .u32(header_bytes as u32)
            .u32(0);
        for block in &self.blocks {
            out.u64(block.pvbn.0)
                .bytes(&block.fingerprint.0)
                .u32(block.offset_bytes)
                .u16(block.stored_bytes);
            out.u8(block.encoding.code()).u8(0);
        }
        let sum = xxh3_64(&out.0);
        out.u64(sum);
        out.0
    }

    /// Reads a descriptor from the head of `bytes`; what follows it is not looked at.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let magic = reader.bytes("object magic", MAGIC.len())?;
        if magic != MAGIC {
            return Err(DecodeError::Invalid {
                what: "object magic",
                value: u64::from(magic[0]),
            });
        }
        let count = usize::from(reader.u16("object block count")?);
        if !(1..=OBJECT_BLOCKS_MAX).contains(&count) {
            return Err(DecodeError::Invalid {
                what: "object block count",
                value: count as u64,
            });
        }
        expect_zero("object reserved field", u64::from(reader.u16("object reserved field")?))?;
        let header_bytes = reader.u32("object header bytes")?;
        if header_bytes as usize != Self::header_bytes_for(count) {
            return Err(DecodeError::Invalid {
                what: "object header bytes",
                value: u64::from(header_bytes),
            });
        }
        expect_zero("object reserved field", u64::from(reader.u32("object reserved field")?))?;
        let mut blocks = Vec::with_capacity(count);
        let mut offset_next = header_bytes;
        for _ in 0..count {
            let block = decode_entry(&mut reader, offset_next)?;
            if blocks
                .last()
                .is_some_and(|previous: &PackedBlock| previous.pvbn >= block.pvbn)
            {
                return Err(DecodeError::Invalid {
                    what: "object block order",
                    value: block.pvbn.0,
                });
            }
            offset_next += u32::from(block.stored_bytes);
            blocks.push(block);
        }
        let computed = xxh3_64(&bytes[..reader.offset()]);
        let found = reader.u64("object header checksum")?;
        if found != computed {
            return Err(DecodeError::Checksum {
                what: "object header",
                found,
                computed,
            });
        }
        Ok(Self { blocks })
    }
}

fn expect_zero(what: &'static str, value: u64) -> Result<(), DecodeError> {
    if value == 0 {
        Ok(())
    } else {
        Err(DecodeError::Invalid { what, value })
    }
}

fn decode_entry(reader: &mut Reader<'_>, offset_expected: u32) -> Result<PackedBlock, DecodeError> {
    let pvbn = Pvbn(reader.u64("object block PVBN")?);
    let fingerprint = Fingerprint(reader.digest("object block fingerprint")?);
    let offset_bytes = reader.u32("object block offset")?;
    if offset_bytes != offset_expected {
        return Err(DecodeError::Invalid {
            what: "object block offset",
            value: u64::from(offset_bytes),
        });
    }
    let stored_bytes = reader.u16("object block stored bytes")?;
    if stored_bytes == 0 || usize::from(stored_bytes) > BLOCK_BYTES {
        return Err(DecodeError::Invalid {
            what: "object block stored bytes",
            value: u64::from(stored_bytes),
        });
    }
    let encoding = match reader.u8("object block encoding")? {
        0 if usize::from(stored_bytes) == BLOCK_BYTES => BlockEncoding::Plain,
        1 => BlockEncoding::Zstd,
        other => {
            return Err(DecodeError::Invalid {
                what: "object block encoding",
                value: u64::from(other),
            });
        }
    };
    expect_zero("object reserved field", u64::from(reader.u8("object reserved field")?))?;
    Ok(PackedBlock {
        pvbn,
        fingerprint,
        offset_bytes,
        stored_bytes,
        encoding,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(count: usize) -> ObjectDescriptor {
        ObjectDescriptor::new((0..count).map(|index| {
            let stored = if index % 2 == 0 { 4096 } else { 100 };
            let encoding = if index % 2 == 0 {
                BlockEncoding::Plain
            } else {
                BlockEncoding::Zstd
            };
            (
                Pvbn(10 + 3 * index as u64),
                Fingerprint::of(&[index as u8]),
                stored,
                encoding,
            )
        }))
    }

    #[test]
    fn the_key_tells_the_layout() {
        let of = |stored, encoding| ObjectDescriptor::new([(Pvbn(1), Fingerprint::of(b"1"), stored, encoding)]).id();
        assert_eq!(of(100, BlockEncoding::Zstd), of(100, BlockEncoding::Zstd));
        assert_ne!(of(100, BlockEncoding::Zstd), of(101, BlockEncoding::Zstd));
        assert_ne!(of(4096, BlockEncoding::Zstd), of(4096, BlockEncoding::Plain));
    }

    #[test]
    fn round_trip_and_golden_layout() {
        let descriptor = sample(3);
        let bytes = descriptor.encode();
        assert_eq!(&bytes[..8], MAGIC);
        assert_eq!(bytes.len(), 20 + 3 * 48 + 8);
        assert_eq!(u64::from_le_bytes(bytes[20..28].try_into().unwrap()), 10);
        assert_eq!(
            u32::from_le_bytes(bytes[60..64].try_into().unwrap()) as usize,
            bytes.len()
        );
        assert_eq!(ObjectDescriptor::decode(&bytes).unwrap(), descriptor);
        assert_eq!(descriptor.object_bytes(), bytes.len() + 4096 + 100 + 4096);
        assert_eq!(descriptor.find(Pvbn(13)).unwrap().stored_bytes, 100);
        assert_eq!(descriptor.find(Pvbn(14)), None);
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_found(count in 1usize..8, position in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = sample(count).encode();
            let index = position.index(bytes.len());
            bytes[index] ^= 1 << bit;
            prop_assert!(ObjectDescriptor::decode(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = ObjectDescriptor::decode(&bytes);
        }
    }
}
