//! Moving a name, in one step: at every moment the target's name is there, standing for the old inode or the new one.
//!
//! Positions in directories are such that whoever lists one meanwhile sees what stays there once. A name that replaces
//! another takes its position over; two names that are exchanged keep theirs and change inodes; a name that becomes a new
//! one in the same directory keeps its own. Only in another directory a new name comes to the end.

use super::{check_name, check_new_name};
use crate::error::FileError;
use crate::exclusion::FileGuards;
use crate::node::Node;
use crate::records::{NameRecord, Outcome};
use crate::service::{FileService, PendingInvalidations};
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::{Caller, Changed, FileType, NameIn, RenameMode};

/// The directories of a rename, which may be one.
struct Parents {
    from: Node,
    /// `None` when it is the same.
    to: Option<Node>,
}

impl Parents {
    fn to(&mut self) -> &mut Node {
        self.to.as_mut().unwrap_or(&mut self.from)
    }

    fn to_inode(&self) -> u64 {
        self.to.as_ref().unwrap_or(&self.from).inode
    }

    /// Puts both, changed now.
    fn put(&mut self, transaction: &mut Transaction, caller: &Caller) {
        for parent in [Some(&mut self.from), self.to.as_mut()].into_iter().flatten() {
            parent.modify(caller.now);
            transaction.put_node(parent);
        }
    }
}

/// One name on its way.
struct Moving<'a> {
    caller: &'a Caller,
    from: NameIn<'a>,
    to: NameIn<'a>,
    source: NameRecord,
    transaction: Transaction,
    parents: Parents,
}

impl<S: Storage> FileService<S> {
    /// Gives what has one name the other, in one step.
    pub fn rename(&self, caller: &Caller, from: NameIn<'_>, to: NameIn<'_>, mode: RenameMode) -> Result<(), FileError> {
        for name in [from.name, to.name] {
            check_name(name)?;
            check_new_name(name).map_err(|_| FileError::Invalid("`.` and `..` stay where they are"))?;
        }
        if self.is_done_before(caller)? {
            return Ok(());
        }
        let invalidations = loop {
            let files = self.lock_named(caller, &[from, to])?;
            if let Some(invalidations) = self.rename_locked(caller, from, to, mode, &files)? {
                break invalidations;
            }
        };
        self.notify(invalidations);
        Ok(())
    }

    /// `None` when the names do not stand any more for the files that are locked.
    fn rename_locked(
        &self,
        caller: &Caller,
        from: NameIn<'_>,
        to: NameIn<'_>,
        mode: RenameMode,
        files: &FileGuards<'_>,
    ) -> Result<Option<PendingInvalidations>, FileError> {
        let _names = self.changing();
        let parents = self.parents(caller, from, to)?;
        let source = self.name(parents.from.inode, from.name)?.ok_or(FileError::NotFound)?;
        let target = self.name(parents.to_inode(), to.name)?;
        let is_covered = |record: &NameRecord| record.file_type == FileType::Directory || files.cover(record.inode);
        if !is_covered(&source) || !target.as_ref().is_none_or(is_covered) {
            return Ok(None);
        }
        let moving = Moving {
            caller,
            from,
            to,
            source,
            transaction: Transaction::default(),
            parents,
        };
        let transaction = match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(FileError::Exists),
            (RenameMode::Exchange, None) => return Err(FileError::NotFound),
            (_, Some(target)) if target.inode == source.inode => Transaction::default(),
            (RenameMode::Exchange, Some(target)) => self.exchange(moving, target)?,
            (RenameMode::Replace, Some(target)) => self.replace(moving, target)?,
            (RenameMode::Replace | RenameMode::NoReplace, None) => self.move_to_new(moving)?,
        };
        self.commit(caller, transaction, Outcome::Done).map(Some)
    }

    fn parents(&self, caller: &Caller, from: NameIn<'_>, to: NameIn<'_>) -> Result<Parents, FileError> {
        let from_parent = self.directory(caller, from.parent)?;
        let to_parent = self.directory(caller, to.parent)?;
        let is_one = from_parent.inode == to_parent.inode;
        Ok(Parents {
            from: from_parent,
            to: (!is_one).then_some(to_parent),
        })
    }

    fn move_to_new(&self, mut moving: Moving<'_>) -> Result<Transaction, FileError> {
        self.put_moved(&mut moving)?;
        let Moving {
            caller,
            from,
            to,
            source,
            ..
        } = moving;
        if moving.parents.to.is_none() {
            let directory = moving.parents.from.inode;
            moving.transaction.change_name(directory, from.name, to.name, source);
        } else {
            moving
                .transaction
                .remove_name(&mut moving.parents.from, from.name, source)?;
            moving
                .transaction
                .add_name(moving.parents.to(), to.name, source.inode, source.file_type)?;
        }
        moving.parents.put(&mut moving.transaction, caller);
        Ok(moving.transaction)
    }

    fn replace(&self, mut moving: Moving<'_>, target: NameRecord) -> Result<Transaction, FileError> {
        let mut victim = self.victim(&moving, target)?;
        self.put_moved(&mut moving)?;
        let Moving {
            caller,
            from,
            to,
            source,
            ..
        } = moving;
        let replacing = NameRecord {
            cookie: target.cookie,
            ..source
        };
        moving
            .transaction
            .remove_name(&mut moving.parents.from, from.name, source)?;
        let to_parent = moving.parents.to();
        moving.transaction.put_name(to_parent.inode, to.name, replacing);
        moving.transaction.tell_name(to_parent.inode, to.name, target.inode);
        if victim.is_directory() {
            to_parent.remove_subdirectory();
        }
        self.drop_link(caller, &mut moving.transaction, &mut victim)?;
        moving.parents.put(&mut moving.transaction, caller);
        Ok(moving.transaction)
    }

    /// What the target's name stands for, if it may be replaced.
    fn victim(&self, moving: &Moving<'_>, target: NameRecord) -> Result<Node, FileError> {
        let is_directory = |record: &NameRecord| record.file_type == FileType::Directory;
        match (is_directory(&moving.source), is_directory(&target)) {
            (true, false) => Err(FileError::NotDirectory),
            (false, true) => Err(FileError::IsDirectory),
            (false, false) => self.node(moving.caller, target.inode),
            (true, true) => {
                // Before the target is found not to be empty: a directory cannot move below itself in any case.
                self.check_not_below(moving, moving.source.inode, moving.parents.to_inode())?;
                self.empty_directory(moving.caller, target)
            }
        }
    }

    fn exchange(&self, mut moving: Moving<'_>, target: NameRecord) -> Result<Transaction, FileError> {
        self.put_moved(&mut moving)?;
        let from_parent = moving.parents.from.inode;
        let to_parent = moving.parents.to_inode();
        let Moving {
            caller,
            from,
            to,
            source,
            ..
        } = moving;
        if target.file_type == FileType::Directory && from_parent != to_parent {
            self.check_not_below(&moving, target.inode, from_parent)?;
            moving.parents.to().remove_subdirectory();
            moving.parents.from.add_subdirectory();
        }
        self.put_in_parent(&mut moving, target.inode, from_parent)?;
        for (parent, name, new, old) in [
            (from_parent, from.name, target, source),
            (to_parent, to.name, source, target),
        ] {
            let record = NameRecord {
                cookie: old.cookie,
                ..new
            };
            moving.transaction.put_name(parent, name, record);
            moving.transaction.invalidations.push(Changed::Name {
                parent,
                name: name.to_vec(),
                inode: old.inode,
            });
            moving.transaction.tell_attributes(parent);
        }
        moving.parents.put(&mut moving.transaction, caller);
        Ok(moving.transaction)
    }

    /// The source's inode, and the directories' link counts if it is a directory that changes places.
    fn put_moved(&self, moving: &mut Moving<'_>) -> Result<(), FileError> {
        let to_parent = moving.parents.to_inode();
        if moving.source.file_type == FileType::Directory && moving.parents.to.is_some() {
            self.check_not_below(moving, moving.source.inode, to_parent)?;
            moving.parents.from.remove_subdirectory();
            moving.parents.to().add_subdirectory();
        }
        self.put_in_parent(moving, moving.source.inode, to_parent)
    }

    fn put_in_parent(&self, moving: &mut Moving<'_>, inode: u64, parent: u64) -> Result<(), FileError> {
        let mut node = self.node(moving.caller, inode)?;
        if node.is_directory() {
            node.directory_mut()?.parent = parent;
        }
        node.stamp(moving.caller.now);
        moving.transaction.put_node(&mut node);
        moving.transaction.tell_attributes(inode);
        Ok(())
    }

    /// Refuses to put a directory below itself: walks up from where it shall be.
    fn check_not_below(&self, moving: &Moving<'_>, directory: u64, place: u64) -> Result<(), FileError> {
        let mut at = place;
        loop {
            if at == directory {
                return Err(FileError::Invalid("a directory below itself"));
            }
            let above = self.node(moving.caller, at)?.directory()?.parent;
            if above == at {
                return Ok(());
            }
            at = above;
        }
    }
}
