//! Units and identifiers that every crate shares: blocks, PVBNs, LCBNs, fingerprints, checksums, virtual
//! instants, seeded pseudo-randomness, distributions, enumerations with names, and a bounds-checked byte codec for every
//! format on disk and in the cloud.
//!
//! Pure: no clock, no I/O, no allocation beyond what a caller asks for.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
#![warn(missing_docs, clippy::unwrap_used)]
extern crate alloc;

pub mod codec;
pub mod descriptor;
mod entry;
mod flush;
mod histogram;
mod ids;
mod names;
mod prng;
mod span;
mod time;

pub use codec::{DecodeError, Reader, Writer};
pub use descriptor::{BlockEncoding, KeyId, OBJECT_HEAD_BYTES, ObjectDescriptor, ObjectId, PackedBlock, TAG_BYTES};
pub use entry::{ENTRY_KEY_BYTES_MAX, ENTRY_VALUE_BYTES_MAX, EntryChange};
pub use flush::FlushMode;
pub use histogram::{Distribution, Histogram};
pub use ids::{BlockSum, Fingerprint, Lcbn, Pvbn, VolumeId};
pub use names::{NameError, Named};
pub use prng::Prng;
pub use span::{MetadataChange, Span};
pub use time::{Instant, WallTime};

/// The unit of mapping, deduplication and caching.
pub const BLOCK_BYTES: usize = 4096;
/// Blocks in one pack (Tombolo paper, section 3: 64 blocks of 4 KiB).
pub const PACK_BLOCKS: usize = 64;
/// Packs that one object may hold at the most.
pub const OBJECT_PACKS_MAX: usize = 16;
/// Blocks that one object may hold at the most.
pub const OBJECT_BLOCKS_MAX: usize = PACK_BLOCKS * OBJECT_PACKS_MAX;

/// True when every byte is zero; such a block is a hole and is never stored.
pub fn is_zero(bytes: &[u8]) -> bool {
    // Chunked so that the compiler vectorises the OR; a plain `all` stops at each byte.
    let mut chunks = bytes.chunks_exact(64);
    for chunk in &mut chunks {
        if chunk.iter().fold(0u8, |folded, byte| folded | byte) != 0 {
            return false;
        }
    }
    chunks.remainder().iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_set_bit_anywhere_is_not_zero() {
        let mut block = vec![0u8; BLOCK_BYTES + 3];
        assert!(is_zero(&block));
        for index in 0..block.len() {
            block[index] = 1;
            assert!(!is_zero(&block), "byte {index}");
            block[index] = 0;
        }
        assert!(is_zero(&[]));
    }
}
