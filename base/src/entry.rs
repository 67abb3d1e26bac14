//! Entries: ordered keys with values, in which the file service keeps inodes, directories, locks and all else that is
//! not a file's contents. They are journaled and checkpointed with the data, in one order.

use alloc::vec::Vec;

/// Longest key. A directory entry's is 9 bytes and a name of at most 255; LMDB takes 511.
pub const ENTRY_KEY_BYTES_MAX: usize = 400;
/// Longest value: an extended attribute of 64 KiB and what goes with it.
pub const ENTRY_VALUE_BYTES_MAX: usize = 72 << 10;

/// One change of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// Sets the value, whether the key was there or not.
    Put {
        /// At most [`ENTRY_KEY_BYTES_MAX`].
        key: Vec<u8>,
        /// At most [`ENTRY_VALUE_BYTES_MAX`].
        value: Vec<u8>,
    },
    /// Removes the key, if it is there.
    Delete {
        /// At most [`ENTRY_KEY_BYTES_MAX`].
        key: Vec<u8>,
    },
    /// Adds to a counter, an entry whose value is an `i64` (little endian); an absent one counts as nothing. A key is
    /// either a counter or put and deleted, never both.
    Add {
        /// At most [`ENTRY_KEY_BYTES_MAX`].
        key: Vec<u8>,
        /// Negative to subtract.
        amount: i64,
    },
}

impl EntryChange {
    /// The key that is changed.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put { key, .. } | Self::Delete { key } | Self::Add { key, .. } => key,
        }
    }
}
