//! Entries: byte strings with values, in ascending order of their bytes.
//!
//! ```text
//! key    bytes shared with the key before: varint | bytes that follow: varint | these
//! entry  key | 0 for a deletion, else bytes of the value + 1: varint | the value
//! ```

use crate::codec::Codec;
use crate::varint;
use alloc::vec::Vec;
use tombolo_base::{DecodeError, ENTRY_KEY_BYTES_MAX, Reader, Writer};

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// At most [`ENTRY_KEY_BYTES_MAX`] bytes.
    pub key: Vec<u8>,
    /// None for a deletion, which takes away what lies below.
    pub value: Option<Vec<u8>>,
}

/// Trees of entries.
#[derive(Clone, Copy, Debug)]
pub struct Entries;

fn put_suffix(out: &mut Writer, before: &[u8], key: &[u8]) {
    let shared = before.iter().zip(key).take_while(|(left, right)| left == right).count();
    varint::put(out, shared as u64);
    varint::put(out, (key.len() - shared) as u64);
    out.bytes(&key[shared..]);
}

fn get_suffix(reader: &mut Reader<'_>, before: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let shared = varint::get(reader, "shared bytes of a key")?;
    let follow = varint::get(reader, "bytes of a key")?;
    let bytes = shared.saturating_add(follow);
    if shared > before.len() as u64 || bytes > ENTRY_KEY_BYTES_MAX as u64 {
        return Err(DecodeError::Invalid {
            what: "bytes of a key",
            value: bytes,
        });
    }
    let (prefix, rest) = before.split_at(shared as usize);
    let suffix = reader.bytes("key", follow as usize)?;
    // More could have been shared: not what the encoder writes.
    if let (Some(left), Some(right)) = (rest.first(), suffix.first())
        && left == right
    {
        return Err(DecodeError::Invalid {
            what: "shared bytes of a key",
            value: shared,
        });
    }
    Ok([prefix, suffix].concat())
}

impl Codec for Entries {
    type Key = Vec<u8>;
    type Record = Entry;
    type Value = Vec<u8>;
    /// The key before.
    type Position = Option<Vec<u8>>;
    const LEAF_KIND: u8 = 4;

    fn lowest_key() -> Vec<u8> {
        Vec::new()
    }

    fn put_key(out: &mut Writer, before: Option<&Vec<u8>>, key: &Vec<u8>) {
        put_suffix(out, before.map_or(&[], Vec::as_slice), key);
    }

    fn get_key(reader: &mut Reader<'_>, before: Option<&Vec<u8>>) -> Result<Vec<u8>, DecodeError> {
        get_suffix(reader, before.map_or(&[], Vec::as_slice))
    }

    fn put_record(out: &mut Writer, before: &mut Option<Vec<u8>>, entry: &Entry) {
        Self::put_key(out, before.as_ref(), &entry.key);
        match &entry.value {
            Some(value) => {
                varint::put(out, value.len() as u64 + 1);
                out.bytes(value);
            }
            None => varint::put(out, 0),
        }
        *before = Some(entry.key.clone());
    }

    fn get_record(reader: &mut Reader<'_>, before: &mut Option<Vec<u8>>) -> Result<Entry, DecodeError> {
        let key = Self::get_key(reader, before.as_ref())?;
        if before.as_ref().is_some_and(|before| key <= *before) {
            return Err(DecodeError::Invalid {
                what: "bytes of a key that does not ascend",
                value: key.len() as u64,
            });
        }
        let value = match varint::get(reader, "bytes of a value")? {
            0 => None,
            // A length that no memory has is refused like any other that the node has not.
            bytes => {
                let bytes = usize::try_from(bytes - 1).unwrap_or(usize::MAX);
                Some(reader.bytes("value", bytes)?.to_vec())
            }
        };
        *before = Some(key.clone());
        Ok(Entry { key, value })
    }

    fn start(entry: &Entry) -> Vec<u8> {
        entry.key.clone()
    }

    fn is_deletion(entry: &Entry) -> bool {
        entry.value.is_none()
    }

    /// An inode has some 100 bytes, a name 30, the record of an object 200.
    fn hidden_bytes(entry: &Entry) -> u32 {
        if entry.value.is_some() { 0 } else { 100 }
    }

    fn check(entries: &[Entry]) -> Result<(), DecodeError> {
        let ascends = |index: usize| index == 0 || entries[index - 1].key < entries[index].key;
        for (index, entry) in entries.iter().enumerate() {
            if entry.key.len() > ENTRY_KEY_BYTES_MAX || !ascends(index) {
                return Err(DecodeError::Invalid {
                    what: "index of an entry whose key is too long or out of order",
                    value: index as u64,
                });
            }
        }
        Ok(())
    }

    fn find<'a>(entries: &'a [Entry], key: &Vec<u8>) -> Option<&'a Entry> {
        let index = entries.binary_search_by(|entry| entry.key.cmp(key)).ok()?;
        entries.get(index)
    }

    fn value(entry: &Entry, _key: &Vec<u8>) -> Option<Vec<u8>> {
        entry.value.clone()
    }

    fn lay_over(older: Vec<Entry>, newer: Vec<Entry>) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(older.len() + newer.len());
        let mut older = older.into_iter().peekable();
        for new in newer {
            while let Some(old) = older.next_if(|old| old.key < new.key) {
                entries.push(old);
            }
            older.next_if(|old| old.key == new.key);
            entries.push(new);
        }
        entries.extend(older);
        entries
    }

    fn cut(entries: &[Entry], low: &Vec<u8>, high: Option<&Vec<u8>>) -> Vec<Entry> {
        let from = entries.partition_point(|entry| entry.key < *low);
        let to = high.map_or(entries.len(), |high| entries.partition_point(|entry| entry.key < *high));
        entries[from..to.max(from)].to_vec()
    }

    fn is_within(entries: &[Entry], low: &Vec<u8>, high: Option<&Vec<u8>>) -> bool {
        let is_above = entries.first().is_none_or(|entry| entry.key >= *low);
        is_above
            && entries
                .last()
                .is_none_or(|entry| high.is_none_or(|high| entry.key < *high))
    }

    /// Between two keys there is always room for another.
    fn covers(_entries: &[Entry], _low: &Vec<u8>, _high: Option<&Vec<u8>>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
