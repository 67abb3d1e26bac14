//! Objects: blocks packed behind an [`ObjectDescriptor`], each compressed on its own where that pays, and encrypted on
//! its own where the store is encrypted.
//!
//! Blocks are treated one by one, so that a ranged GET of a few blocks can be decoded without the rest. A block is
//! stored compressed only when that saves at least an eighth; a cheap look at its bytes ([`looks_random`]) spares the
//! attempt on data that is already compressed or encrypted. Equal stored blocks always give the same object under the same
//! name, so a PUT may be repeated.
//!
//! It owns the messages of a pack, its name, and the verification of every block against its SHA-256. It does not own the
//! descriptor's layout (`tombolo_base::descriptor`) nor head and encryption ([`crate::encryption`]).

mod probe;

pub use probe::looks_random;

use crate::encryption::{Digest, Head, KeyRing, MessageKey, NotAuthentic, ObjectKind, SecretKey};
use core::cell::RefCell;
use core::ops::Range;
use tombolo_base::{
    BLOCK_BYTES, BlockEncoding, DecodeError, Fingerprint, KeyId, OBJECT_BLOCKS_MAX, OBJECT_HEAD_BYTES,
    ObjectDescriptor, ObjectId, PackedBlock, Pvbn, TAG_BYTES,
};
use zstd::bulk::{Compressor, Decompressor};

/// A compressed block may fill at most 7/8 of a block; a smaller gain does not pay for decompressing it later.
pub const COMPRESSED_BYTES_MAX: usize = BLOCK_BYTES / 8 * 7;

/// Whether and how blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Blocks are stored as they are.
    Off,
    /// `level` as zstd numbers them: 1 is fast, 19 is dense, negative is faster still.
    Zstd {
        /// As zstd numbers them.
        level: i32,
    },
}

impl Default for Compression {
    /// Level 1: on blocks of 4 KiB, higher levels cost twice the time for a few percent.
    fn default() -> Self {
        Self::Zstd { level: 1 }
    }
}

/// Why the bytes of an object are not what they should be. Such bytes are never served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum ObjectError {
    #[error("object descriptor: {0}")]
    Descriptor(#[from] DecodeError),
    #[error("the object is encrypted with data key {0}, which is none of this store's")]
    KeyMissing(KeyId),
    #[error("{0}")]
    NotAuthentic(#[from] NotAuthentic),
    #[error("block PVBN {}: {error}", pvbn.0)]
    BlockNotAuthentic { pvbn: Pvbn, error: NotAuthentic },
    #[error("the object's head and its descriptor contradict each other")]
    Contradiction,
    #[error("object holds {found} bytes, its descriptor accounts for {expected}")]
    ObjectLength { expected: usize, found: usize },
    #[error("blocks {first}..{end} asked for, the object holds {count}")]
    BlockRange { first: usize, end: usize, count: usize },
    #[error("block PVBN {}: {found} stored bytes given, the descriptor says {expected}", pvbn.0)]
    StoredLength { pvbn: Pvbn, expected: usize, found: usize },
    #[error("block PVBN {}: not a zstd frame of one block: {detail}", pvbn.0)]
    Decompress { pvbn: Pvbn, detail: String },
    #[error("block PVBN {}: {found} bytes after decompression, expected {BLOCK_BYTES}", pvbn.0)]
    BlockLength { pvbn: Pvbn, found: usize },
    #[error("block PVBN {}: SHA-256 is {found}, expected {expected}", pvbn.0)]
    Fingerprint {
        pvbn: Pvbn,
        expected: Fingerprint,
        found: Fingerprint,
    },
}

/// Packs blocks (ascending by PVBN) into one object, encrypted with the ring's current key if it has one.
///
/// # Panics
/// As [`encode_object_into`].
pub fn encode_object(
    blocks: &[(Pvbn, Fingerprint, &[u8])],
    compression: Compression,
    ring: &KeyRing,
) -> (ObjectDescriptor, Vec<u8>) {
    let mut object = Vec::new();
    let descriptor = encode_object_into(blocks, compression, ring, &mut object);
    (descriptor, object)
}

/// The same into a buffer, whose contents it replaces.
///
/// # Panics
/// When a block is not [`BLOCK_BYTES`] long, or the blocks are none, too many or out of order: broken invariants of
/// the caller.
pub fn encode_object_into(
    blocks: &[(Pvbn, Fingerprint, &[u8])],
    compression: Compression,
    ring: &KeyRing,
    object: &mut Vec<u8>,
) -> ObjectDescriptor {
    let mut frames = Vec::new();
    let stored: Vec<_> = blocks
        .iter()
        .map(|(pvbn, fingerprint, block)| {
            assert_eq!(block.len(), BLOCK_BYTES, "block PVBN {}", pvbn.0);
            let (stored_bytes, encoding) = compress_block(block, compression, &mut frames);
            (*pvbn, *fingerprint, stored_bytes, encoding)
        })
        .collect();
    let key = ring.current();
    let id = name_of(key, &stored, &frames);
    let descriptor = ObjectDescriptor::new(id, key.map_or(KeyId::NONE, SecretKey::id), stored);
    let head = head_of(&descriptor);
    let messages = MessageKey::of(&head, &id.key(), key);

    object.clear();
    object.reserve(descriptor.object_bytes());
    object.extend_from_slice(&head.encode());
    object.extend_from_slice(&descriptor.encode());
    messages.encrypt(0, object, OBJECT_HEAD_BYTES);
    let mut frames = &frames[..];
    for ((packed, (_, _, block)), number) in descriptor.blocks().iter().zip(blocks).zip(1..) {
        let text = match packed.encoding {
            BlockEncoding::Plain => block,
            BlockEncoding::Zstd => next_frame(&mut frames, packed.stored_bytes),
        };
        let start = object.len();
        assert_eq!(
            start, packed.offset_bytes as usize,
            "the descriptor says where a block begins"
        );
        object.extend_from_slice(text);
        messages.encrypt(number, object, start);
    }
    descriptor
}

/// The digest of everything that is encrypted, as [`crate::encryption`] demands. A block that is stored as it is stands in it by
/// its SHA-256. A frame is digested itself: of one block different versions of zstd make different ones.
fn name_of(key: Option<&SecretKey>, stored: &[(Pvbn, Fingerprint, u16, BlockEncoding)], frames: &[u8]) -> ObjectId {
    let mut digest = Digest::new(key);
    let mut frames = frames;
    for (pvbn, fingerprint, stored_bytes, encoding) in stored {
        digest.update(&pvbn.0.to_le_bytes());
        digest.update(&fingerprint.0);
        digest.update(&stored_bytes.to_le_bytes());
        digest.update(&[encoding.code()]);
        if *encoding == BlockEncoding::Zstd {
            digest.update(next_frame(&mut frames, *stored_bytes));
        }
    }
    ObjectId(digest.finish())
}

/// Frames lie one after the other, in the order of their blocks.
fn next_frame<'f>(frames: &mut &'f [u8], stored_bytes: u16) -> &'f [u8] {
    let (frame, rest) = frames.split_at(stored_bytes.into());
    *frames = rest;
    frame
}

fn head_of(descriptor: &ObjectDescriptor) -> Head {
    Head {
        kind: ObjectKind::Pack,
        key: descriptor.key_id(),
        messages: descriptor.blocks().len() as u32 + 1,
        salt: descriptor.id().0,
    }
}

/// How the block is stored; its frame, if it has one, is appended.
fn compress_block(block: &[u8], compression: Compression, frames: &mut Vec<u8>) -> (u16, BlockEncoding) {
    let mut compressed = [0; COMPRESSED_BYTES_MAX];
    match compress(block, compression, &mut compressed) {
        Some(stored_bytes) => {
            frames.extend_from_slice(&compressed[..stored_bytes]);
            (stored_bytes as u16, BlockEncoding::Zstd)
        }
        None => (BLOCK_BYTES as u16, BlockEncoding::Plain),
    }
}

/// The compressed size, or `None` where the block is better stored as it is.
fn compress(block: &[u8], compression: Compression, out: &mut [u8; COMPRESSED_BYTES_MAX]) -> Option<usize> {
    let Compression::Zstd { level } = compression else {
        return None;
    };
    if looks_random(block) {
        return None;
    }
    // A result that does not fit into `out` is an error to zstd and the very case of not paying to us; so is a
    // context that could not be allocated. Storing the block plainly is right in either.
    with_compressor(level, |compressor| {
        compressor.compress_to_buffer(block, &mut out[..]).ok()
    })
}

fn with_compressor<T>(level: i32, compress: impl FnOnce(&mut Compressor<'static>) -> Option<T>) -> Option<T> {
    thread_local! {
        static CONTEXT: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    }
    CONTEXT.with_borrow_mut(|context| {
        if context.as_ref().is_none_or(|(held, _)| *held != level) {
            *context = Some((level, Compressor::new(level).ok()?));
        }
        compress(&mut context.as_mut()?.1)
    })
}

/// Decrypts, decodes and verifies blocks of one object.
pub struct ObjectReader<'d> {
    descriptor: &'d ObjectDescriptor,
    messages: MessageKey,
}

impl<'d> ObjectReader<'d> {
    /// # Errors
    /// [`ObjectError::KeyMissing`] when the ring lacks the object's key, which says nothing about the object.
    pub fn new(descriptor: &'d ObjectDescriptor, ring: &KeyRing) -> Result<Self, ObjectError> {
        let messages = MessageKey::new(&head_of(descriptor), &descriptor.id().key(), ring);
        Ok(Self {
            descriptor,
            messages: messages.ok_or(ObjectError::KeyMissing(descriptor.key_id()))?,
        })
    }

    /// Decodes one block: `stored` is what the object holds at the block's place, `out` receives [`BLOCK_BYTES`].
    /// On an error `out` holds nothing of use.
    ///
    /// # Panics
    /// When `out` is not [`BLOCK_BYTES`] long, or the object has no such block.
    pub fn decode_block(&self, index: usize, stored: &[u8], out: &mut [u8]) -> Result<(), ObjectError> {
        assert_eq!(out.len(), BLOCK_BYTES, "the buffer for a block");
        let packed = &self.descriptor.blocks()[index];
        let pvbn = packed.pvbn;
        let expected = usize::from(packed.stored_bytes) + self.messages.tag_bytes();
        if stored.len() != expected {
            return Err(ObjectError::StoredLength {
                pvbn,
                expected,
                found: stored.len(),
            });
        }
        let mut message = [0; BLOCK_BYTES + TAG_BYTES];
        let message = &mut message[..stored.len()];
        message.copy_from_slice(stored);
        let text = self.messages.decrypt(index as u32 + 1, message);
        let text = text.map_err(|error| ObjectError::BlockNotAuthentic { pvbn, error })?;
        decode_text(packed, text, out)
    }

    /// Decodes `blocks` from `stored`, the bytes that [`byte_range`] names. Returns the blocks one after the other.
    pub fn decode_range(&self, blocks: Range<usize>, stored: &[u8]) -> Result<Vec<u8>, ObjectError> {
        let packed = select(self.descriptor, blocks.clone())?;
        let base_bytes = packed[0].offset_bytes as usize;
        let expected = self.descriptor.extent(&packed[packed.len() - 1]).end - base_bytes;
        if stored.len() != expected {
            return Err(ObjectError::ObjectLength {
                expected,
                found: stored.len(),
            });
        }
        let mut out = vec![0; packed.len() * BLOCK_BYTES];
        for ((index, block), decoded) in blocks.zip(packed).zip(out.chunks_exact_mut(BLOCK_BYTES)) {
            let extent = self.descriptor.extent(block);
            self.decode_block(
                index,
                &stored[extent.start - base_bytes..extent.end - base_bytes],
                decoded,
            )?;
        }
        Ok(out)
    }
}

fn decode_text(packed: &PackedBlock, text: &[u8], out: &mut [u8]) -> Result<(), ObjectError> {
    let pvbn = packed.pvbn;
    let found = match packed.encoding {
        BlockEncoding::Plain => {
            let copied = text.len().min(BLOCK_BYTES);
            out[..copied].copy_from_slice(&text[..copied]);
            copied
        }
        BlockEncoding::Zstd => decompress(text, out).map_err(|detail| ObjectError::Decompress { pvbn, detail })?,
    };
    if found != BLOCK_BYTES {
        return Err(ObjectError::BlockLength { pvbn, found });
    }
    let found = Fingerprint::of(out);
    if found != packed.fingerprint {
        return Err(ObjectError::Fingerprint {
            pvbn,
            expected: packed.fingerprint,
            found,
        });
    }
    Ok(())
}

/// Writes into `out` and never past it, whatever size the frame claims.
fn decompress(stored: &[u8], out: &mut [u8]) -> Result<usize, String> {
    thread_local! {
        static CONTEXT: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    CONTEXT.with_borrow_mut(|context| {
        let decompressor = match context {
            Some(decompressor) => decompressor,
            None => context.insert(Decompressor::new().map_err(|error| error.to_string())?),
        };
        decompressor
            .decompress_to_buffer(stored, out)
            .map_err(|error| error.to_string())
    })
}

/// The bytes of the object that hold `blocks` (indices into the descriptor): what a ranged GET asks for.
pub fn byte_range(descriptor: &ObjectDescriptor, blocks: Range<usize>) -> Result<Range<u64>, ObjectError> {
    let packed = select(descriptor, blocks)?;
    let end = descriptor.extent(&packed[packed.len() - 1]).end;
    Ok(u64::from(packed[0].offset_bytes)..end as u64)
}

/// Decodes a whole object that is called `id`: its descriptor, and its blocks one after the other.
pub fn decode_object(object: &[u8], id: ObjectId, ring: &KeyRing) -> Result<(ObjectDescriptor, Vec<u8>), ObjectError> {
    let head = Head::decode(object, ObjectKind::Pack)?;
    let messages = MessageKey::new(&head, &id.key(), ring).ok_or(ObjectError::KeyMissing(head.key))?;
    let block_count = (head.messages as usize).saturating_sub(1).min(OBJECT_BLOCKS_MAX);
    let encrypted_bytes = ObjectDescriptor::encoded_bytes_for(block_count) + messages.tag_bytes();
    let encrypted = object.get(OBJECT_HEAD_BYTES..OBJECT_HEAD_BYTES + encrypted_bytes);
    let mut encrypted = encrypted
        .ok_or(ObjectError::ObjectLength {
            expected: OBJECT_HEAD_BYTES + encrypted_bytes,
            found: object.len(),
        })?
        .to_vec();
    let descriptor = ObjectDescriptor::decode(messages.decrypt(0, &mut encrypted)?)?;
    if head_of(&descriptor) != head || descriptor.id() != id {
        return Err(ObjectError::Contradiction);
    }
    if object.len() != descriptor.object_bytes() {
        return Err(ObjectError::ObjectLength {
            expected: descriptor.object_bytes(),
            found: object.len(),
        });
    }
    let reader = ObjectReader {
        descriptor: &descriptor,
        messages,
    };
    let first = descriptor.blocks()[0].offset_bytes as usize;
    let blocks = reader.decode_range(0..descriptor.blocks().len(), &object[first..])?;
    Ok((descriptor, blocks))
}

fn select(descriptor: &ObjectDescriptor, blocks: Range<usize>) -> Result<&[PackedBlock], ObjectError> {
    descriptor
        .blocks()
        .get(blocks.clone())
        .filter(|packed| !packed.is_empty())
        .ok_or(ObjectError::BlockRange {
            first: blocks.start,
            end: blocks.end,
            count: descriptor.blocks().len(),
        })
}

/// For fuzzing: decodes whatever it is given, and checks that what decodes is whole and verified.
pub fn fuzz_decode(bytes: &[u8]) {
    let id = bytes.get(OBJECT_HEAD_BYTES - 32..OBJECT_HEAD_BYTES);
    let id = ObjectId(id.and_then(|id| id.try_into().ok()).unwrap_or_default());
    let ring = KeyRing::default();
    if let Ok((descriptor, blocks)) = decode_object(bytes, id, &ring) {
        assert_eq!(blocks.len(), descriptor.blocks().len() * BLOCK_BYTES);
        for (packed, block) in descriptor.blocks().iter().zip(blocks.chunks_exact(BLOCK_BYTES)) {
            assert_eq!(packed.fingerprint, Fingerprint::of(block));
        }
    }
    // The same bytes as one stored block, under either encoding: a decoder of frames must survive anything.
    for encoding in [BlockEncoding::Plain, BlockEncoding::Zstd] {
        let packed = PackedBlock {
            pvbn: Pvbn(0),
            fingerprint: Fingerprint([0; 32]),
            offset_bytes: 0,
            stored_bytes: bytes.len().min(usize::from(u16::MAX)) as u16,
            encoding,
        };
        let mut out = [0; BLOCK_BYTES];
        assert!(
            decode_text(&packed, bytes, &mut out).is_err(),
            "no input has a SHA-256 of zeros"
        );
    }
}

#[cfg(test)]
#[path = "object/tests.rs"]
mod tests;
