//! Removing names, and with the last one the inode.

use super::check_name;
use crate::error::FileError;
use crate::exclusion::FileGuards;
use crate::node::Node;
use crate::records::{NameRecord, Outcome};
use crate::service::FileService;
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::{Caller, FileType, NameIn};

impl<S: Storage> FileService<S> {
    /// Takes a name away from what is not a directory, which goes when nobody has it open.
    pub fn unlink(&self, caller: &Caller, at: NameIn<'_>) -> Result<(), FileError> {
        check_name(at.name)?;
        if matches!(at.name, b"." | b"..") {
            return Err(FileError::IsDirectory);
        }
        if self.is_done_before(caller)? {
            return Ok(());
        }
        loop {
            let files = self.lock_named(caller, &[at])?;
            let names = self.changing();
            let mut parent = self.directory(caller, at.parent)?;
            let record = self.name(parent.inode, at.name)?.ok_or(FileError::NotFound)?;
            if record.file_type == FileType::Directory {
                return Err(FileError::IsDirectory);
            }
            // Another file has got the name since it was looked at.
            if !files.cover(record.inode) {
                continue;
            }
            let mut transaction = Transaction::default();
            let mut node = self.node(caller, record.inode)?;
            transaction.remove_name(&mut parent, at.name, record)?;
            parent.modify(caller.now);
            transaction.put_node(&mut parent);
            self.drop_link(caller, &mut transaction, &mut node)?;
            let invalidations = self.commit(caller, transaction, Outcome::Done)?;
            drop(names);
            drop(files);
            self.notify(invalidations);
            return Ok(());
        }
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Caller, at: NameIn<'_>) -> Result<(), FileError> {
        check_name(at.name)?;
        match at.name {
            b"." => return Err(FileError::Invalid("the directory itself")),
            b".." => return Err(FileError::NotEmpty),
            _ => (),
        }
        if self.is_done_before(caller)? {
            return Ok(());
        }
        let names = self.changing();
        let mut parent = self.directory(caller, at.parent)?;
        let record = self.name(parent.inode, at.name)?.ok_or(FileError::NotFound)?;
        let mut node = self.empty_directory(caller, record)?;
        let mut transaction = Transaction::default();
        transaction.remove_name(&mut parent, at.name, record)?;
        parent.remove_subdirectory();
        parent.modify(caller.now);
        transaction.put_node(&mut parent);
        self.drop_link(caller, &mut transaction, &mut node)?;
        let invalidations = self.commit(caller, transaction, Outcome::Done)?;
        drop(names);
        self.notify(invalidations);
        Ok(())
    }

    pub(crate) fn empty_directory(&self, caller: &Caller, record: NameRecord) -> Result<Node, FileError> {
        if record.file_type != FileType::Directory {
            return Err(FileError::NotDirectory);
        }
        let node = self.node(caller, record.inode)?;
        match node.directory()?.entries {
            0 => Ok(node),
            _ => Err(FileError::NotEmpty),
        }
    }

    /// One name less. A directory has but one.
    pub(crate) fn drop_link(
        &self,
        caller: &Caller,
        transaction: &mut Transaction,
        node: &mut Node,
    ) -> Result<(), FileError> {
        node.record.links = match node.is_directory() {
            true => 0,
            false => node.record.links.saturating_sub(1),
        };
        node.stamp(caller.now);
        if node.record.links == 0 {
            return self.unnamed(transaction, node);
        }
        transaction.put_node(node);
        transaction.tell_attributes(node.inode);
        Ok(())
    }

    /// Locks the files that the names stand for now. Their locks come before the namespace lock, so whoever has that
    /// one then must look whether the names still stand for the same.
    pub(crate) fn lock_named(&self, caller: &Caller, names: &[NameIn<'_>]) -> Result<FileGuards<'_>, FileError> {
        let mut inodes = Vec::new();
        {
            let _names = self.reading();
            for at in names {
                let found = self.name(self.number(caller, at.parent)?, at.name)?;
                inodes.extend(
                    found
                        .filter(|record| record.file_type != FileType::Directory)
                        .map(|record| record.inode),
                );
            }
        }
        Ok(self.files.lock_all(inodes))
    }
}
