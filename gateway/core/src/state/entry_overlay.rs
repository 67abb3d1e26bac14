//! Entries that have changed since the last checkpoint, with the counters, laid over those in local metadata.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use core::ops::Bound;

/// A changed entry's value; `None` when it was deleted.
pub type EntryValue = Option<Arc<[u8]>>;

/// What memory knows of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryLookup {
    /// It has changed since the last checkpoint, to this.
    Known(EntryValue),
    /// As local metadata has it.
    Stored,
}

/// The entries and counters of one overlay.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    changed: BTreeMap<Vec<u8>, EntryValue>,
    /// New values of the counters that changed.
    counters: BTreeMap<Vec<u8>, i64>,
    bytes: usize,
}

/// What an entry costs in memory beside its bytes, roughly.
const ENTRY_OVERHEAD_BYTES: usize = 96;

impl Entries {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, key: &[u8]) -> EntryLookup {
        self.changed
            .get(key)
            .map_or(EntryLookup::Stored, |value| EntryLookup::Known(value.clone()))
    }

    /// Changed entries from a key on, in order of their keys.
    pub fn iter_from<'s>(&'s self, from: &[u8]) -> impl Iterator<Item = (&'s Vec<u8>, &'s EntryValue)> + use<'s> {
        self.changed.range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
    }

    /// Counters that changed, with their new values.
    pub fn counters(&self) -> impl Iterator<Item = (&Vec<u8>, i64)> {
        self.counters.iter().map(|(key, value)| (key, *value))
    }

    pub(crate) fn counter(&self, key: &[u8]) -> Option<i64> {
        self.counters.get(key).copied()
    }

    /// Changed entries with `from <= key < end`, in order of their keys.
    pub(crate) fn range<'s>(&'s self, from: &[u8], end: &[u8]) -> impl Iterator<Item = (&'s Vec<u8>, &'s EntryValue)> {
        self.changed
            .range::<[u8], _>((Bound::Included(from), Bound::Excluded(end)))
    }

    pub(crate) fn set_counter(&mut self, key: &[u8], value: i64) {
        self.counters.insert(key.to_vec(), value);
    }

    /// Lays newer ones over these.
    pub(crate) fn append(&mut self, newer: Self) {
        for (key, value) in newer.changed {
            self.set(&key, value);
        }
        self.counters.extend(newer.counters);
    }

    /// Sets an entry, or deletes it with `None`.
    pub(crate) fn set(&mut self, key: &[u8], value: EntryValue) {
        let size = |value: &EntryValue| value.as_ref().map_or(0, |bytes| bytes.len());
        self.bytes += size(&value);
        match self.changed.get_mut(key) {
            Some(found) => {
                self.bytes -= size(found);
                *found = value;
            }
            None => {
                self.bytes += key.len() + ENTRY_OVERHEAD_BYTES;
                self.changed.insert(key.to_vec(), value);
            }
        }
    }
}

impl EntryLookup {
    /// The value, read from local metadata if the core does not know it.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn or_stored<E>(self, read: impl FnOnce() -> Result<EntryValue, E>) -> Result<EntryValue, E> {
        match self {
            Self::Known(value) => Ok(value),
            Self::Stored => read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(byte: u8) -> Arc<[u8]> {
        Arc::from([byte].as_slice())
    }

    #[test]
    fn later_values_replace_earlier_ones_and_bytes_follow() {
        let mut entries = Entries::default();
        entries.set(b"a", Some(value(1)));
        let one = entries.bytes();
        entries.set(b"a", None);
        assert_eq!(entries.bytes(), one - 1);
        assert_eq!(entries.get(b"a"), EntryLookup::Known(None));
        assert_eq!(entries.get(b"b"), EntryLookup::Stored);
        entries.set(b"a", Some(value(2)));
        assert_eq!(
            (entries.bytes(), entries.get(b"a")),
            (one, EntryLookup::Known(Some(value(2))))
        );
    }

    #[test]
    fn a_range_is_half_open() {
        let mut entries = Entries::default();
        for key in [b"a", b"b", b"c"] {
            entries.set(key, Some(value(0)));
        }
        let keys: Vec<&Vec<u8>> = entries.range(b"a", b"c").map(|(key, _)| key).collect();
        assert_eq!(keys, [b"a", b"b"]);
    }
}
