//! One entry: a fingerprint and what it maps to, 40 bytes on storage.

use tombolo_base::{Fingerprint, Pvbn};

pub(crate) const FINGERPRINT_BYTES: usize = 32;
pub(crate) const ENTRY_BYTES: usize = FINGERPRINT_BYTES + 8;

/// Marks a removed entry. PVBNs are assigned upwards from zero and never reach it.
const REMOVED: u64 = u64::MAX;

/// What a fingerprint maps to in one memtable or run; a removal hides older entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target(pub u64);

impl Target {
    pub const REMOVED: Self = Self(REMOVED);

    /// `None` for the reserved PVBN.
    pub fn of(pvbn: Pvbn) -> Option<Self> {
        (pvbn.0 != REMOVED).then_some(Self(pvbn.0))
    }

    pub fn pvbn(self) -> Option<Pvbn> {
        (self.0 != REMOVED).then_some(Pvbn(self.0))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub key: Fingerprint,
    pub target: Target,
}

impl Entry {
    pub fn write(&self, slot: &mut [u8]) {
        slot[..FINGERPRINT_BYTES].copy_from_slice(&self.key.0);
        slot[FINGERPRINT_BYTES..ENTRY_BYTES].copy_from_slice(&self.target.0.to_le_bytes());
    }

    pub fn read(slot: &[u8]) -> Self {
        Self {
            key: Fingerprint(array(&slot[..FINGERPRINT_BYTES])),
            target: Target(u64::from_le_bytes(array(&slot[FINGERPRINT_BYTES..ENTRY_BYTES]))),
        }
    }
}

/// The leading 8 bytes as a number, which orders as the fingerprints do and is uniform over all of `u64`.
pub(crate) fn prefix(key: &Fingerprint) -> u64 {
    u64::from_be_bytes(array(&key.0[..8]))
}

/// Where a uniform `prefix` falls among `count` equal shares: `0..count`, monotonic in `prefix`.
pub(crate) fn share_of(prefix: u64, count: u64) -> u64 {
    ((u128::from(prefix) * u128::from(count)) >> 64) as u64
}

/// `bytes` must be `N` long.
pub(crate) fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}
