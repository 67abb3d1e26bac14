//! Entries in memory: a hash table, sorted only when it is written.

use crate::entry::{ENTRY_BYTES, Entry, Target, array};
use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hasher};
use hashbrown::HashMap;
use tombolo_base::Fingerprint;

/// A SHA-256 digest is as good a hash as any: its last 8 bytes are taken (the filter uses earlier ones).
#[derive(Default)]
struct TailHasher(u64);

impl Hasher for TailHasher {
    fn write(&mut self, bytes: &[u8]) {
        // The array's length is written too; only the 32 bytes themselves count.
        if let Some(tail) = bytes.get(24..32) {
            self.0 = u64::from_le_bytes(array(tail));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Default)]
pub(crate) struct Memtable(HashMap<Fingerprint, Target, BuildHasherDefault<TailHasher>>);

impl Memtable {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, key: &Fingerprint) -> Option<Target> {
        self.0.get(key).copied()
    }

    pub fn insert(&mut self, key: Fingerprint, target: Target) {
        self.0.insert(key, target);
    }

    #[expect(clippy::disallowed_methods, reason = "sorted before it is used")]
    pub fn sorted(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.0.iter().map(|(&key, &target)| Entry { key, target }).collect();
        entries.sort_unstable_by_key(|entry| entry.key);
        entries
    }

    pub fn memory_bytes(&self) -> u64 {
        self.0.allocation_size() as u64
    }

    /// What [`Memtable::sorted`] takes.
    pub fn sorted_bytes(&self) -> u64 {
        (self.len() * ENTRY_BYTES) as u64
    }
}
