//! Opening and closing, and inodes that have lost their last name but are still open.
//!
//! An open is counted in memory only. When the last name of an inode goes, the sessions that have it open are written
//! down with it, in the same change; the inode goes when the last of them has let go of it. A kernel's mount that goes
//! on after a restart of the service does not open its files again, so it may hold any inode: it is written down for
//! every one, and lets go with FORGET.

use crate::error::FileError;
use crate::exclusion::locked;
use crate::keys::{self, tag};
use crate::node::Node;
use crate::records::{OrphanRecord, Outcome};
use crate::service::{FileService, service_caller};
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::{Caller, FileType, OpenFlags, SetAttributes};

impl<S: Storage> FileService<S> {
    pub(crate) fn load_orphans(&self) -> Result<(), FileError> {
        self.each(tag::ORPHAN, |key, value| {
            let (inode, _) = keys::split(key)?;
            let record = OrphanRecord::decode(value)?;
            locked(&self.open_files).set_orphan(inode, record.holders);
            Ok(())
        })
    }

    /// Counts an open of a file or directory: what is removed meanwhile stays until the last release.
    pub fn open_inode(&self, caller: &Caller, inode: u64, flags: OpenFlags) -> Result<(), FileError> {
        if flags.truncate {
            let set = SetAttributes {
                size: Some(0),
                kill_privileges: flags.kill_privileges,
                ..SetAttributes::default()
            };
            self.setattr(caller, inode, &set)?;
        }
        let inode = self.number(caller, inode)?;
        {
            let _names = self.reading();
            let node = self.node(caller, inode)?;
            if node.file_type() == FileType::Symlink {
                return Err(FileError::Loop);
            }
            self.must_have_session(caller.session)?;
            if node.record.links > 0 {
                locked(&self.open_files).open(inode, caller.session);
                return Ok(());
            }
        }
        self.open_orphan(caller, inode)
    }

    /// By number only: the session joins those that keep the inode.
    fn open_orphan(&self, caller: &Caller, inode: u64) -> Result<(), FileError> {
        let _names = self.changing();
        self.node(caller, inode)?;
        self.must_have_session(caller.session)?;
        let mut holders = locked(&self.open_files)
            .orphan_holders(inode)
            .unwrap_or_default()
            .to_vec();
        if !holders.contains(&caller.session) {
            holders.push(caller.session);
            self.put_holders(caller.share, inode, holders)?;
        }
        locked(&self.open_files).open(inode, caller.session);
        Ok(())
    }

    fn put_holders(&self, share: u32, inode: u64, holders: Vec<u64>) -> Result<(), FileError> {
        let mut transaction = Transaction::default();
        let record = OrphanRecord {
            holders: holders.clone(),
        };
        transaction.put(keys::orphan(inode), record.encode());
        transaction.orphaned.push((inode, holders));
        let invalidations = self.commit(&service_caller(share), transaction, Outcome::Done)?;
        self.notify(invalidations);
        Ok(())
    }

    /// Takes back one open. That of an inode which is gone is no error.
    pub fn release(&self, caller: &Caller, inode: u64) -> Result<(), FileError> {
        let inode = self.number(caller, inode)?;
        let is_done = {
            let _names = self.reading();
            let mut open_files = locked(&self.open_files);
            open_files.close(inode, caller.session) == 0 && open_files.is_kept_by(inode, caller.session)
        };
        match is_done && !self.may_hold_anything(caller.session) {
            true => self.let_go(inode, caller.session),
            false => Ok(()),
        }
    }

    /// The session's kernel has dropped the inode.
    pub fn forget(&self, session: u64, inode: u64) -> Result<(), FileError> {
        let is_kept = locked(&self.open_files).is_kept_by(inode, session);
        match is_kept {
            true => self.let_go(inode, session),
            false => Ok(()),
        }
    }

    /// Inodes without a name that stay because of the session. A kernel that has come back after a restart of the service
    /// may know nothing of some of them, and will never forget those: its front end asks it, and forgets them in its place.
    pub fn kept_by(&self, session: u64) -> Vec<u64> {
        locked(&self.open_files).orphans_of(session)
    }

    /// The session keeps the orphan no longer, unless it has it open again.
    pub(crate) fn let_go(&self, inode: u64, session: u64) -> Result<(), FileError> {
        let _file = self.files.lock(inode);
        let invalidations = {
            let _names = self.changing();
            let holders = {
                let open_files = locked(&self.open_files);
                match open_files.orphan_holders(inode) {
                    Some(holders) if !open_files.is_open(inode, session) => holders.to_vec(),
                    _ => return Ok(()),
                }
            };
            let holders: Vec<u64> = holders.into_iter().filter(|holder| *holder != session).collect();
            let node = self
                .find(inode)?
                .ok_or(FileError::Inconsistent("an orphan without an inode"))?;
            if !holders.is_empty() {
                return self.put_holders(node.record.share, inode, holders);
            }
            let mut transaction = Transaction::default();
            self.erase(&mut transaction, &node)?;
            transaction.delete(keys::orphan(inode));
            self.commit(&service_caller(node.record.share), transaction, Outcome::Done)?
        };
        self.notify(invalidations);
        Ok(())
    }

    /// The inode has lost its last name: it goes, or stays for those who hold it.
    pub(crate) fn unnamed(&self, transaction: &mut Transaction, node: &mut Node) -> Result<(), FileError> {
        let mut holders: Vec<u64> = locked(&self.open_files).holders(node.inode).collect();
        holders.extend(self.sessions_that_may_hold_anything(node.record.share));
        holders.sort_unstable();
        holders.dedup();
        match holders.is_empty() {
            true => self.erase(transaction, node)?,
            false => transaction.orphan(node, holders),
        }
        Ok(())
    }

    /// The inode goes with its data and extended attributes.
    pub(crate) fn erase(&self, transaction: &mut Transaction, node: &Node) -> Result<(), FileError> {
        transaction.erase(node);
        if node.record.xattr_name_bytes > 0 {
            for name in self.xattr_names(node.inode)? {
                transaction.delete(keys::xattr(node.inode, &name));
            }
        }
        Ok(())
    }
}
