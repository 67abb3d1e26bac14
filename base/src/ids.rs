use alloc::vec::Vec;
use core::fmt;
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_64;

/// Physical volume block number: monotonic, never reused, assigned to each block as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pvbn(pub u64);

impl Pvbn {
    /// The PVBN `count` places further on.
    pub fn plus(self, count: u64) -> Self {
        Self(self.0 + count)
    }
}

/// Local cache block number: a slot of [`crate::BLOCK_BYTES`] in the cache file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lcbn(pub u32);

impl Lcbn {
    /// Where the slot begins in the cache file, in bytes.
    pub fn offset_bytes(self) -> u64 {
        u64::from(self.0) * crate::BLOCK_BYTES as u64
    }
}

/// What has a block map of its own: a volume, or a file of a share. Never reused within one state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u64);

impl VolumeId {
    const FILE: u64 = 1 << 63;

    /// The map of the file with this inode number, which is below 2^63.
    pub fn of_inode(inode: u64) -> Self {
        Self(Self::FILE | inode)
    }

    /// The inode number, if this is a file's map.
    pub fn inode(self) -> Option<u64> {
        (self.0 & Self::FILE != 0).then_some(self.0 & !Self::FILE)
    }
}

/// SHA-256 of one block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Hashes the bytes of one block.
    pub fn of(block: &[u8]) -> Self {
        Self(Sha256::digest(block).into())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// XXH3-64 of one block: detects torn writes, stale slots and bit rot in the local cache. It is not a
/// cryptographic digest and never decides deduplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSum(pub u64);

impl BlockSum {
    /// Sums the bytes of one block.
    pub fn of(block: &[u8]) -> Self {
        Self(xxh3_64(block))
    }

    /// One per whole block; `None` for a block of zeroes, which is stored nowhere.
    pub fn of_blocks(bytes: &[u8]) -> Vec<Option<Self>> {
        let sum = |block: &[u8]| (!crate::is_zero(block)).then(|| Self::of(block));
        bytes.chunks_exact(crate::BLOCK_BYTES).map(sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_is_sha256() {
        assert_eq!(
            Fingerprint::of(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
