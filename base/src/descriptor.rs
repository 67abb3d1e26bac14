//! The object descriptor: what an object in the bucket holds. The same bytes are the object's first message, travel in
//! the journal when the object is confirmed, and lie in the Cloud-DB, so one parser serves all three.
//!
//! ```text
//!  0  magic "TMBOBJ02"            8
//!  8  block count                 u16   1..=1024
//! 10  reserved, zero              u16
//! 12  descriptor bytes in all     u32   = 56 + 48 * count + 8
//! 16  data key                    u64   [`KeyId`]; zero: the object is not encrypted
//! 24  object's name               32    [`ObjectId`]
//! 56  per block, ascending PVBN, 48 bytes each:
//!       PVBN                      u64
//!       fingerprint (SHA-256)     32
//!       offset in the object      u32   from the object's first byte
//!       stored bytes              u16   1..=4096, before encryption
//!       encoding                  u8    0 plain, 1 zstd
//!       reserved, zero            u8
//!  ..  XXH3-64 of all before      u64
//! ```
//!
//! The object is a head of [`OBJECT_HEAD_BYTES`], then the descriptor, then the stored blocks in the same order without
//! gaps; each of these is followed by [`TAG_BYTES`] if the object is encrypted. Head, encryption and the making of
//! names are `tombolo_cloud_driver`'s.

use crate::{BLOCK_BYTES, DecodeError, Fingerprint, OBJECT_BLOCKS_MAX, Pvbn, Reader, Writer};
use alloc::{string::String, vec::Vec};
use core::fmt::{self, Write as _};
use core::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"TMBOBJ02";
const FIXED_BYTES: usize = 56;
const ENTRY_BYTES: usize = 48;
const SUM_BYTES: usize = 8;

/// What comes before the descriptor in an object: the part that is never encrypted.
pub const OBJECT_HEAD_BYTES: usize = 56;
/// What encryption adds to the descriptor and to each block: the tag that proves that they were not altered.
pub const TAG_BYTES: usize = 16;

/// How one block is stored in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockEncoding {
    /// The block's 4,096 bytes themselves.
    Plain,
    /// One zstd frame of the block, which is smaller.
    Zstd,
}

impl BlockEncoding {
    /// As it stands in the descriptor.
    pub const fn code(self) -> u8 {
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
    /// How many bytes are stored, before encryption: 1 to 4,096.
    pub stored_bytes: u16,
    /// How they are stored.
    pub encoding: BlockEncoding,
}

/// Which data key encrypts an object; derived from the key, so that no other key ever goes by it. Zero: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u64);

impl KeyId {
    /// Of objects that are not encrypted.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for KeyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

/// The name of an object: a keyed digest of everything in it, so that a PUT of the name, however late it comes and with
/// whatever settings of compression, changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 32]);

impl ObjectId {
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

    /// Its first eight bytes, in whose order a store lists objects.
    pub fn prefix(self) -> u64 {
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&self.0[..8]);
        u64::from_be_bytes(prefix)
    }

    /// What the keys of all names with this prefix begin with.
    pub fn key_prefix(prefix: u64) -> String {
        let mut id = Self([0; 32]);
        id.0[..8].copy_from_slice(&prefix.to_be_bytes());
        let mut key = id.key();
        key.truncate("objects/".len() + 2 * 8 + 1);
        key
    }

    /// The name with this key, if the key is one that [`Self::key`] gives.
    pub fn from_key(key: &str) -> Option<Self> {
        let digits = key.strip_prefix("objects/")?.as_bytes();
        let (first, rest) = digits.split_at_checked(2)?;
        let digits = [first, rest.strip_prefix(b"/")?].concat();
        let mut name = [0; 32];
        if digits.len() != 2 * name.len() {
            return None;
        }
        let value = |digit: u8| char::from(digit).to_digit(16).filter(|_| !digit.is_ascii_uppercase());
        for (byte, pair) in name.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
        }
        Some(Self(name))
    }
}

/// The blocks of one object, PVBNs strictly ascending, offsets without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectDescriptor {
    id: ObjectId,
    key: KeyId,
    blocks: Vec<PackedBlock>,
}

impl ObjectDescriptor {
    /// `stored` is what each block occupies before encryption; offsets follow from it.
    ///
    /// # Panics
    /// When the blocks are none, too many, or not in ascending order: a broken invariant of the caller.
    pub fn new(
        id: ObjectId,
        key: KeyId,
        stored: impl IntoIterator<Item = (Pvbn, Fingerprint, u16, BlockEncoding)>,
    ) -> Self {
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
        let mut offset_bytes = first_block_offset(key, blocks.len());
        for block in &mut blocks {
            block.offset_bytes = offset_bytes;
            offset_bytes += u32::from(block.stored_bytes) + tag_bytes(key);
        }
        Self { id, key, blocks }
    }

    /// Of an object that only a model holds: neither named nor encrypted.
    pub fn unnamed(stored: impl IntoIterator<Item = (Pvbn, Fingerprint, u16, BlockEncoding)>) -> Self {
        Self::new(ObjectId([0; 32]), KeyId::NONE, stored)
    }

    /// Encoded length of a descriptor of so many blocks, in bytes.
    pub const fn encoded_bytes_for(block_count: usize) -> usize {
        FIXED_BYTES + block_count * ENTRY_BYTES + SUM_BYTES
    }

    /// No object of so many blocks is longer, in bytes.
    pub const fn object_bytes_max(block_count: usize) -> usize {
        let tags = TAG_BYTES * (block_count + 1);
        OBJECT_HEAD_BYTES + Self::encoded_bytes_for(block_count) + block_count * BLOCK_BYTES + tags
    }

    /// Encoded length of this descriptor, in bytes.
    pub fn encoded_bytes(&self) -> usize {
        Self::encoded_bytes_for(self.blocks.len())
    }

    /// Size of the whole object.
    pub fn object_bytes(&self) -> usize {
        self.extent(&self.blocks[self.blocks.len() - 1]).end
    }

    /// Where the object holds one of its blocks, its tag included; in bytes from the object's first.
    pub fn extent(&self, block: &PackedBlock) -> Range<usize> {
        let start = block.offset_bytes as usize;
        start..start + usize::from(block.stored_bytes) + tag_bytes(self.key) as usize
    }

    /// The object's name.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The data key that the object is encrypted with.
    pub fn key_id(&self) -> KeyId {
        self.key
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
        // Objects may interleave, so that those below a block are asked in turn; most end before it.
        if self.last_pvbn() < pvbn {
            return None;
        }
        let index = self.blocks.binary_search_by_key(&pvbn, |block| block.pvbn).ok()?;
        Some(&self.blocks[index])
    }

    /// As the table at the head of this module has it.
    pub fn encode(&self) -> Vec<u8> {
        let encoded_bytes = self.encoded_bytes();
        let mut out = Writer::with_capacity(encoded_bytes);
        out.bytes(MAGIC)
            .u16(self.blocks.len() as u16)
            .u16(0)
            .u32(encoded_bytes as u32)
            .u64(self.key.0)
            .bytes(&self.id.0);
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
        let encoded_bytes = reader.u32("object descriptor bytes")?;
        if encoded_bytes as usize != Self::encoded_bytes_for(count) {
            return Err(DecodeError::Invalid {
                what: "object descriptor bytes",
                value: u64::from(encoded_bytes),
            });
        }
        let key = KeyId(reader.u64("object data key")?);
        let id = ObjectId(reader.digest("object name")?);
        let mut blocks = Vec::with_capacity(count);
        let mut offset_next = first_block_offset(key, count);
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
            offset_next += u32::from(block.stored_bytes) + tag_bytes(key);
            blocks.push(block);
        }
        let computed = xxh3_64(&bytes[..reader.offset()]);
        let found = reader.u64("object descriptor checksum")?;
        if found != computed {
            return Err(DecodeError::Checksum {
                what: "object descriptor",
                found,
                computed,
            });
        }
        Ok(Self { id, key, blocks })
    }
}

/// What encryption adds to each message of an object.
fn tag_bytes(key: KeyId) -> u32 {
    match key {
        KeyId::NONE => 0,
        _ => TAG_BYTES as u32,
    }
}

fn first_block_offset(key: KeyId, block_count: usize) -> u32 {
    (OBJECT_HEAD_BYTES + ObjectDescriptor::encoded_bytes_for(block_count)) as u32 + tag_bytes(key)
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

    fn sample(key: u64, count: usize) -> ObjectDescriptor {
        let stored = (0..count).map(|index| {
            let (stored, encoding) = match index % 2 {
                0 => (4096, BlockEncoding::Plain),
                _ => (100, BlockEncoding::Zstd),
            };
            let pvbn = Pvbn(10 + 3 * index as u64);
            (pvbn, Fingerprint::of(&[index as u8]), stored, encoding)
        });
        ObjectDescriptor::new(ObjectId([7; 32]), KeyId(key), stored)
    }

    #[test]
    fn round_trip_and_golden_layout() {
        let descriptor = sample(0x0102, 3);
        let bytes = descriptor.encode();
        assert_eq!(&bytes[..8], MAGIC);
        assert_eq!(bytes.len(), 56 + 3 * 48 + 8);
        assert_eq!(bytes[16..24], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[24..56], [7; 32]);
        assert_eq!(u64::from_le_bytes(bytes[56..64].try_into().unwrap()), 10);
        let first_offset = u32::from_le_bytes(bytes[96..100].try_into().unwrap());
        assert_eq!(first_offset as usize, 56 + bytes.len() + 16);
        assert_eq!(ObjectDescriptor::decode(&bytes).unwrap(), descriptor);
        assert_eq!(
            descriptor.object_bytes(),
            56 + bytes.len() + 16 + 4096 + 16 + 100 + 16 + 4096 + 16
        );
        assert_eq!(descriptor.find(Pvbn(13)).unwrap().stored_bytes, 100);
        assert_eq!(descriptor.find(Pvbn(14)), None);
    }

    #[test]
    fn a_name_comes_back_from_its_key() {
        let id = ObjectId(core::array::from_fn(|index| 0xf0 ^ index as u8));
        assert_eq!(ObjectId::from_key(&id.key()), Some(id));
        assert!(id.key().starts_with(&ObjectId::key_prefix(id.prefix())));
        assert_eq!(ObjectId::key_prefix(0x0102), "objects/00/00000000000102");
        for key in [
            "",
            "objects/",
            "objects/ab",
            "keys",
            &id.key()[..70],
            &id.key().to_uppercase(),
        ] {
            assert_eq!(ObjectId::from_key(key), None, "{key}");
        }
        assert_eq!(ObjectId::from_key(&id.key().replace("objects/f", "objects/F")), None);
    }

    #[test]
    fn without_a_key_nothing_is_added() {
        let descriptor = sample(0, 2);
        assert_eq!(descriptor.object_bytes(), 56 + descriptor.encoded_bytes() + 4096 + 100);
        assert_eq!(ObjectDescriptor::decode(&descriptor.encode()).unwrap(), descriptor);
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_found(count in 1usize..8, position in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = sample(9, count).encode();
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
