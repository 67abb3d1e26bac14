//! Changing attributes, the size among them.

use crate::error::FileError;
use crate::node::Node;
use crate::records::Outcome;
use crate::service::FileService;
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::{Attributes, Caller, Changed, FileType, Request, SetAttributes, SetTime};
use crate::xattr::remove_capability;

impl<S: Storage> FileService<S> {
    /// All of the changes, or none. The attributes afterwards.
    pub fn setattr(&self, caller: &Caller, inode: u64, set: &SetAttributes) -> Result<Attributes, FileError> {
        check_times(set)?;
        if self.is_done_before(caller)? {
            return self.getattr(caller, inode);
        }
        let inode = self.number(caller, inode)?;
        let file = self.files.lock(inode);
        // With the file's lock held its data stay as they are, so what the new size comes to can be found out before
        // the namespace is locked.
        let resize = match set.size {
            Some(size) => Some(self.plan_resize(caller, inode, size)?),
            None => None,
        };
        let names = self.changing();
        let mut node = self.node(caller, inode)?;
        if *set == SetAttributes::default() {
            return Ok(node.attributes());
        }
        let mut transaction = Transaction::default();
        if let Some(resize) = resize {
            resize.apply(&mut transaction, &mut node);
        }
        self.set_permissions(caller, &mut transaction, &mut node, set)?;
        set_times(caller, &mut node, set);
        transaction.put_node(&mut node);
        transaction.invalidations.push(invalidations(inode, set));
        let invalidations = self.commit(caller, transaction, Outcome::Done)?;
        drop(names);
        drop(file);
        self.notify(invalidations);
        Ok(node.attributes())
    }

    fn set_permissions(
        &self,
        caller: &Caller,
        transaction: &mut Transaction,
        node: &mut Node,
        set: &SetAttributes,
    ) -> Result<(), FileError> {
        let is_in_group = node.is_in_group(caller);
        let changes_hands = set.uid.is_some() || set.gid.is_some();
        node.record.uid = set.uid.unwrap_or(node.record.uid);
        node.record.gid = set.gid.unwrap_or(node.record.gid);
        let is_file = !node.is_directory();
        if is_file && (changes_hands || set.size.is_some()) {
            remove_capability(transaction, node);
        }
        if is_file && (changes_hands || set.size.is_some() && set.kill_privileges) {
            node.drop_setuid_and_setgid(is_in_group);
        }
        match set.mode {
            Some(_) if node.file_type() == FileType::Symlink => {
                Err(FileError::NotSupported("permissions of a symbolic link"))
            }
            Some(mode) => self.set_mode(transaction, node, mode),
            None => Ok(()),
        }
    }

    /// Takes away, before a file is written, what must not survive that: capabilities, and with `kill` setuid and
    /// setgid. With the file's lock held.
    pub(crate) fn drop_privileges(&self, caller: &Caller, inode: u64, kill: bool) -> Result<(), FileError> {
        let caller = &Caller {
            request: Request::Unnumbered,
            ..*caller
        };
        let invalidations = {
            let _names = self.changing();
            let before = self.node(caller, inode)?;
            let mut node = before.clone();
            let mut transaction = Transaction::default();
            remove_capability(&mut transaction, &mut node);
            if kill {
                let is_in_group = node.is_in_group(caller);
                node.drop_setuid_and_setgid(is_in_group);
            }
            if node == before {
                return Ok(());
            }
            node.stamp(caller.now);
            transaction.put_node(&mut node);
            transaction.tell_attributes(inode);
            self.commit(caller, transaction, Outcome::Done)?
        };
        self.notify(invalidations);
        Ok(())
    }
}

pub fn check_times(set: &SetAttributes) -> Result<(), FileError> {
    let is_time = |time: &SetTime| match time {
        SetTime::Now => true,
        SetTime::To(time) => time.nanoseconds < 1_000_000_000,
    };
    match [set.atime, set.mtime].iter().flatten().all(is_time) {
        true => Ok(()),
        false => Err(FileError::Invalid("a time with more than a second of nanoseconds")),
    }
}

fn set_times(caller: &Caller, node: &mut Node, set: &SetAttributes) {
    if set.size.is_some() {
        node.modify(caller.now);
        let stamp = node.attributes().ctime;
        node.set_times(set.atime, set.mtime, stamp);
    } else {
        let stamp = node.stamp(caller.now);
        node.set_times(set.atime, set.mtime, stamp);
    }
}

fn invalidations(inode: u64, set: &SetAttributes) -> Changed {
    match set.size {
        // Beyond the new size there are zeroes or nothing now, whichever way it changed.
        Some(size) => Changed::Data {
            inode,
            offset: size,
            length: 0,
        },
        None => Changed::Attributes { inode },
    }
}
