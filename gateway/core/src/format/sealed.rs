//! Values in local metadata carry a sum that is bound to their place: a flipped bit, or a value that lies under
//! another key or in another table, is told from the right one.
//!
//! ```text
//! value | XXH3-64 over (table u8, key length u32, key, value) u64
//! ```
//! What it cannot tell is an older value of the same key, and that a key is absent which should be there. The superblock
//! stands as it is: it has a sum of its own.

use crate::format::local_metadata::Table;
use alloc::vec::Vec;
use tombolo_base::DecodeError;
use xxhash_rust::xxh3::Xxh3;

const SUM_BYTES: usize = 8;

fn sum(table: Table, key: &[u8], value: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&[table.number()]);
    hasher.update(&(key.len() as u32).to_le_bytes());
    hasher.update(key);
    hasher.update(value);
    hasher.digest()
}

/// The value as it is stored.
pub fn seal(table: Table, key: &[u8], mut value: Vec<u8>) -> Vec<u8> {
    if table != Table::Super {
        let sum = sum(table, key, &value);
        value.extend_from_slice(&sum.to_le_bytes());
    }
    value
}

/// The value of what is stored under `key`.
///
/// # Errors
/// When it was not stored under this key in this table, or has changed since.
pub fn unseal<'v>(table: Table, key: &[u8], stored: &'v [u8]) -> Result<&'v [u8], DecodeError> {
    if table == Table::Super {
        return Ok(stored);
    }
    let Some((value, found)) = stored.split_last_chunk::<SUM_BYTES>() else {
        return Err(DecodeError::Truncated {
            what: "record",
            offset: 0,
            needed: SUM_BYTES,
            available: stored.len(),
        });
    };
    let (found, computed) = (u64::from_le_bytes(*found), sum(table, key, value));
    if found != computed {
        return Err(DecodeError::Checksum {
            what: "record",
            found,
            computed,
        });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let stored = seal(Table::Map, b"key", vec![1, 2, 3]);
        assert_eq!(stored[..3], [1, 2, 3]);
        let hashed = [&[1, 3, 0, 0, 0][..], b"key", &[1, 2, 3]].concat();
        assert_eq!(stored[3..], xxhash_rust::xxh3::xxh3_64(&hashed).to_le_bytes());
        assert_eq!(seal(Table::Super, b"", vec![1]), [1]);
    }

    proptest! {
        #[test]
        fn only_what_was_stored_at_this_place_is_taken(
            key in prop::collection::vec(any::<u8>(), 1..20),
            other in prop::collection::vec(any::<u8>(), 1..20),
            value in prop::collection::vec(any::<u8>(), 0..50),
            place in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let mut stored = seal(Table::Objects, &key, value.clone());
            prop_assert_eq!(unseal(Table::Objects, &key, &stored), Ok(&value[..]));
            prop_assert!(unseal(Table::Entries, &key, &stored).is_err());
            prop_assert!(key == other || unseal(Table::Objects, &other, &stored).is_err());
            let index = place.index(stored.len());
            stored[index] ^= 1 << bit;
            prop_assert!(unseal(Table::Objects, &key, &stored).is_err());
            prop_assert!(unseal(Table::Objects, &key, &stored[..index]).is_err());
        }
    }
}
