//! Finding inodes by name.

use super::check_name;
use crate::error::FileError;
use crate::service::FileService;
use crate::storage::Storage;
use crate::types::{Attributes, Caller, Entry, NameIn};

impl<S: Storage> FileService<S> {
    /// Finds a name; `.` and `..` too, the latter of a share's root being the root.
    pub fn lookup(&self, caller: &Caller, at: NameIn<'_>) -> Result<Entry, FileError> {
        check_name(at.name)?;
        let parent = self.number(caller, at.parent)?;
        let _names = self.reading();
        let inode = match at.name {
            b"." => self.node(caller, parent)?.directory().map(|_| parent)?,
            b".." => self.node(caller, parent)?.directory()?.parent,
            name => match self.name(parent, name)? {
                Some(record) => record.inode,
                None => return Err(self.why_no_name(caller, parent)),
            },
        };
        self.entry(caller, inode)
    }

    /// A directory that does not have the name, or something else.
    fn why_no_name(&self, caller: &Caller, parent: u64) -> FileError {
        match self.node(caller, parent).and_then(|node| node.directory().copied()) {
            Ok(_) => FileError::NotFound,
            Err(error) => error,
        }
    }

    /// The attributes of an inode, named or not.
    pub fn getattr(&self, caller: &Caller, inode: u64) -> Result<Attributes, FileError> {
        let _names = self.reading();
        Ok(self.node(caller, inode)?.attributes())
    }

    /// With the namespace lock held.
    pub(crate) fn entry(&self, caller: &Caller, inode: u64) -> Result<Entry, FileError> {
        let node = self.node(caller, inode)?;
        Ok(Entry {
            inode: node.inode,
            attributes: node.attributes(),
        })
    }
}
