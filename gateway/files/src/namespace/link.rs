//! Another name for an inode.

use super::check_new_name;
use crate::error::FileError;
use crate::keys;
use crate::records::Outcome;
use crate::service::FileService;
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::{Caller, Entry, LINKS_MAX, NameIn};

impl<S: Storage> FileService<S> {
    /// Gives the inode another name; the first one, if it has none and is open.
    pub fn link(&self, caller: &Caller, inode: u64, at: NameIn<'_>) -> Result<Entry, FileError> {
        check_new_name(at.name)?;
        if let Some(entry) = self.entry_before(caller)? {
            return Ok(entry);
        }
        let inode = self.number(caller, inode)?;
        let file = self.files.lock(inode);
        let names = self.changing();
        let mut parent = self.directory(caller, at.parent)?;
        let mut node = self.node(caller, inode)?;
        if node.is_directory() {
            return Err(FileError::NotPermitted("a hard link to a directory"));
        }
        if self.name(parent.inode, at.name)?.is_some() {
            return Err(FileError::Exists);
        }
        if node.record.links >= LINKS_MAX {
            return Err(FileError::TooManyLinks);
        }
        let mut transaction = Transaction::default();
        if node.record.links == 0 {
            transaction.delete(keys::orphan(inode));
            transaction.named.push(inode);
        }
        node.record.links += 1;
        node.stamp(caller.now);
        transaction.put_node(&mut node);
        transaction.tell_attributes(inode);
        transaction.add_name(&mut parent, at.name, inode, node.file_type())?;
        parent.modify(caller.now);
        transaction.put_node(&mut parent);
        let invalidations = self.commit(caller, transaction, Outcome::Entry(inode))?;
        drop(names);
        drop(file);
        self.notify(invalidations);
        Ok(Entry {
            inode,
            attributes: node.attributes(),
        })
    }
}
