//! Directory entries packed into the answer to READDIR or READDIRPLUS, each padded to a multiple of eight bytes.

use super::abi::{Dirent, EntryOut};
use super::reply::{Entry, Reply, entry_out};
use super::wire::Wire;

/// One name of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// What it names.
    pub node: u64,
    /// Where to go on after this entry; not 0.
    pub cookie: u64,
    /// `DT_REG` and the like; the type bits of a mode shifted right by 12.
    pub kind: u8,
    /// Without a NUL.
    pub name: &'a [u8],
}

/// Takes entries until one does not fit.
#[derive(Debug)]
pub struct DirectoryBuffer {
    bytes: Vec<u8>,
    room: usize,
}

impl DirectoryBuffer {
    /// For a request with this `size`.
    pub fn new(size: u32) -> Self {
        Self {
            bytes: Vec::new(),
            room: size as usize,
        }
    }

    /// For READDIR; false, and nothing is taken, when there is no more room.
    #[must_use]
    pub fn push(&mut self, entry: &DirectoryEntry<'_>) -> bool {
        self.push_parts(None, entry)
    }

    /// For READDIRPLUS. Each one counts as a lookup of its node, except for "." and "..", whose `Entry` has node 0 to
    /// say that nothing was looked up.
    #[must_use]
    pub fn push_plus(&mut self, found: &Entry, entry: &DirectoryEntry<'_>) -> bool {
        self.push_parts(Some(found), entry)
    }

    fn push_parts(&mut self, found: Option<&Entry>, entry: &DirectoryEntry<'_>) -> bool {
        let fixed_bytes = Dirent::BYTES + found.map_or(0, |_| EntryOut::BYTES);
        let bytes = (fixed_bytes + entry.name.len()).next_multiple_of(8);
        if self.bytes.len() + bytes > self.room {
            return false;
        }
        let end = self.bytes.len() + bytes;
        if let Some(found) = found {
            entry_out(found).put(&mut self.bytes);
        }
        let fixed = Dirent {
            ino: entry.node,
            off: entry.cookie,
            namelen: entry.name.len() as u32,
            r#type: entry.kind.into(),
        };
        fixed.put(&mut self.bytes);
        self.bytes.extend_from_slice(entry.name);
        self.bytes.resize(end, 0);
        true
    }

    /// Nothing fitted, or there was nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What a READDIR is answered.
    pub fn into_reply(self) -> Reply {
        Reply::Data(self.bytes)
    }
}
