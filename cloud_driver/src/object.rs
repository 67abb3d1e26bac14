//! Objects: blocks packed behind an [`ObjectDescriptor`], each compressed on its own where that pays.
//!
//! Blocks are compressed one by one, so that a ranged GET of a few blocks can be decoded without the rest. A block is
//! stored compressed only when that saves at least an eighth; a cheap look at its bytes ([`looks_random`]) spares the
//! attempt on data that is already compressed or encrypted. The same blocks and setting always give the same bytes
//! (for one version of zstd), because an object's name is derived from its blocks and a PUT may be repeated.
//!
//! It owns the bytes after the descriptor and the verification of every block against its SHA-256. It does not own the
//! descriptor's layout (`tombolo_base::descriptor`).

mod probe;

pub use probe::looks_random;

use core::cell::RefCell;
use core::ops::Range;
use tombolo_base::{BLOCK_BYTES, BlockEncoding, DecodeError, Fingerprint, ObjectDescriptor, PackedBlock, Pvbn};
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

/// Packs blocks (ascending by PVBN) into one object.
///
/// # Panics
/// When a block is not [`BLOCK_BYTES`] long, or the blocks are none, too many or out of order: broken invariants of
/// the caller.
pub fn encode_object(blocks: &[(Pvbn, Fingerprint, &[u8])], compression: Compression) -> (ObjectDescriptor, Vec<u8>) {
    let header_bytes = ObjectDescriptor::header_bytes_for(blocks.len());
    let mut object = Vec::with_capacity(header_bytes + blocks.len() * BLOCK_BYTES);
    object.resize(header_bytes, 0);
    let stored: Vec<_> = blocks
        .iter()
        .map(|(pvbn, fingerprint, block)| {
            assert_eq!(block.len(), BLOCK_BYTES, "block PVBN {}", pvbn.0);
            let (stored_bytes, encoding) = append_block(block, compression, &mut object);
            (*pvbn, *fingerprint, stored_bytes, encoding)
        })
        .collect();
    let descriptor = ObjectDescriptor::new(stored);
    object[..header_bytes].copy_from_slice(&descriptor.encode());
    (descriptor, object)
}

fn append_block(block: &[u8], compression: Compression, object: &mut Vec<u8>) -> (u16, BlockEncoding) {
    let mut compressed = [0; COMPRESSED_BYTES_MAX];
    match compress(block, compression, &mut compressed) {
        Some(stored_bytes) => {
            object.extend_from_slice(&compressed[..stored_bytes]);
            (stored_bytes as u16, BlockEncoding::Zstd)
        }
        None => {
            object.extend_from_slice(block);
            (BLOCK_BYTES as u16, BlockEncoding::Plain)
        }
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

/// Decodes one block: `stored` is what the object holds at the block's place, `out` receives [`BLOCK_BYTES`].
/// On an error `out` holds nothing of use.
///
/// # Panics
/// When `out` is not [`BLOCK_BYTES`] long.
pub fn decode_block(packed: &PackedBlock, stored: &[u8], out: &mut [u8]) -> Result<(), ObjectError> {
    assert_eq!(out.len(), BLOCK_BYTES, "the buffer for a block");
    let pvbn = packed.pvbn;
    if stored.len() != usize::from(packed.stored_bytes) {
        return Err(ObjectError::StoredLength {
            pvbn,
            expected: packed.stored_bytes.into(),
            found: stored.len(),
        });
    }
    let found = match packed.encoding {
        BlockEncoding::Plain => {
            let copied = stored.len().min(BLOCK_BYTES);
            out[..copied].copy_from_slice(&stored[..copied]);
            copied
        }
        BlockEncoding::Zstd => decompress(stored, out).map_err(|detail| ObjectError::Decompress { pvbn, detail })?,
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
    let (first, last) = (&packed[0], &packed[packed.len() - 1]);
    Ok(u64::from(first.offset_bytes)..u64::from(last.offset_bytes) + u64::from(last.stored_bytes))
}

/// Decodes `blocks` from `stored`, the bytes that [`byte_range`] names. Returns the blocks one after the other.
pub fn decode_range(
    descriptor: &ObjectDescriptor,
    blocks: Range<usize>,
    stored: &[u8],
) -> Result<Vec<u8>, ObjectError> {
    let packed = select(descriptor, blocks)?;
    let base_bytes = packed[0].offset_bytes as usize;
    let last = &packed[packed.len() - 1];
    let expected = last.offset_bytes as usize + usize::from(last.stored_bytes) - base_bytes;
    if stored.len() != expected {
        return Err(ObjectError::ObjectLength {
            expected,
            found: stored.len(),
        });
    }
    let mut out = vec![0; packed.len() * BLOCK_BYTES];
    for (block, decoded) in packed.iter().zip(out.chunks_exact_mut(BLOCK_BYTES)) {
        let start = block.offset_bytes as usize - base_bytes;
        decode_block(block, &stored[start..start + usize::from(block.stored_bytes)], decoded)?;
    }
    Ok(out)
}

/// Decodes a whole object: its descriptor, and its blocks one after the other.
pub fn decode_object(object: &[u8]) -> Result<(ObjectDescriptor, Vec<u8>), ObjectError> {
    let descriptor = ObjectDescriptor::decode(object)?;
    if object.len() != descriptor.object_bytes() {
        return Err(ObjectError::ObjectLength {
            expected: descriptor.object_bytes(),
            found: object.len(),
        });
    }
    let blocks = decode_range(
        &descriptor,
        0..descriptor.blocks().len(),
        &object[descriptor.header_bytes()..],
    )?;
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
    if let Ok((descriptor, blocks)) = decode_object(bytes) {
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
            decode_block(&packed, bytes, &mut out).is_err(),
            "no input has a SHA-256 of zeros"
        );
    }
}

#[cfg(test)]
#[path = "object/tests.rs"]
mod tests;
