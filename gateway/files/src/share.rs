//! Shares: making them, their quotas and flush modes, and removing them with everything in them.

use crate::error::FileError;
use crate::keys::{self, tag};
use crate::namespace::create::{new_directory, new_record};
use crate::node::Node;
use crate::records::{CookieRecord, Kind, Outcome, ShareRecord};
use crate::service::{FileService, PAGE, service_caller};
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::{
    Caller, FileType, FilesystemStatus, NAME_BYTES_MAX, NameIn, NewNode, SetAttributes, ShareStatus, Timestamp,
};
use crate::usage::Share;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use tombolo_base::FlushMode;

fn check_share_name(name: &str) -> Result<(), FileError> {
    match name {
        "" | "." | ".." => Err(FileError::Invalid("not a name for a share")),
        _ if name.len() > NAME_BYTES_MAX => Err(FileError::NameTooLong),
        _ if name.contains(['/', '\0']) => Err(FileError::Invalid("a name with a slash or a NUL")),
        _ => Ok(()),
    }
}

impl Share {
    fn record(&self) -> ShareRecord {
        ShareRecord {
            id: self.id,
            root: self.root,
            quota_bytes: self.quota_bytes.load(Ordering::Relaxed),
            created: self.created,
            being_deleted: self.being_deleted.load(Ordering::Relaxed),
            flush: self.flush_mode(),
        }
    }
}

impl<S: Storage> FileService<S> {
    /// Makes a share with an empty root directory of root's, mode 0755. A quota of 0 is none.
    pub fn create_share(
        &self,
        name: &str,
        quota_bytes: u64,
        flush: FlushMode,
        now: Timestamp,
    ) -> Result<ShareStatus, FileError> {
        check_share_name(name)?;
        let mut numbers = self.changing();
        if self.shares.by_name(name).is_some() {
            return Err(FileError::Exists);
        }
        let share = Share {
            id: numbers.next.share,
            root: self.take_inode(&mut numbers)?,
            name: name.to_string(),
            created: now,
            quota_bytes: AtomicU64::new(quota_bytes),
            used_bytes: AtomicI64::new(0),
            inodes: AtomicI64::new(1),
            being_deleted: AtomicBool::new(false),
            flushes_to_bucket: AtomicBool::new(flush == FlushMode::Bucket),
        };
        let mut next = numbers.next;
        next.share += 1;
        let mut transaction = Transaction::default();
        numbers.put_next(&mut transaction, next);
        transaction.put(keys::share(name), share.record().encode());
        transaction.put_node(&mut new_root(&share, now));
        transaction.inodes += 1;
        let caller = service_caller(share.id);
        // The share is not known yet, so its own count has the root already.
        self.notify(self.commit(&caller, transaction, Outcome::Done)?);
        numbers.next = next;
        let share = Arc::new(share);
        self.shares.insert(share.clone());
        Ok(self.share_status(&share))
    }

    /// All shares, in the order of their creation.
    pub fn shares(&self) -> Vec<ShareStatus> {
        self.shares.all().iter().map(|share| self.share_status(share)).collect()
    }

    /// `None`: there is none of this name.
    pub fn share_named(&self, name: &str) -> Option<ShareStatus> {
        self.shares.by_name(name).map(|share| self.share_status(&share))
    }

    fn share_status(&self, share: &Share) -> ShareStatus {
        let sessions = self.sessions();
        ShareStatus {
            name: share.name.clone(),
            id: share.id,
            root: share.root,
            quota_bytes: share.quota_bytes.load(Ordering::Relaxed),
            created: share.created,
            used_bytes: share.used_bytes(),
            inodes: share.inodes(),
            being_deleted: share.being_deleted.load(Ordering::Relaxed),
            flush: share.flush_mode(),
            sessions: sessions.iter().filter(|session| session.share == share.id).count(),
        }
    }

    /// 0 for none. A quota below what is used already stops what would use more.
    pub fn set_quota(&self, name: &str, quota_bytes: u64) -> Result<(), FileError> {
        let _names = self.changing();
        let share = self.shares.by_name(name).ok_or(FileError::NotFound)?;
        let record = ShareRecord {
            quota_bytes,
            ..share.record()
        };
        self.put_share(&share, record)?;
        share.quota_bytes.store(quota_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// For every flush that comes after this.
    pub fn set_flush_mode(&self, name: &str, flush: FlushMode) -> Result<(), FileError> {
        let _names = self.changing();
        let share = self.shares.by_name(name).ok_or(FileError::NotFound)?;
        let record = ShareRecord {
            flush,
            ..share.record()
        };
        self.put_share(&share, record)?;
        share
            .flushes_to_bucket
            .store(flush == FlushMode::Bucket, Ordering::Relaxed);
        Ok(())
    }

    /// What flushes of the share with this number wait for.
    pub fn flush_mode(&self, share: u32) -> FlushMode {
        let found = self.shares.by_id(share);
        found.map(|share| share.flush_mode()).unwrap_or_default()
    }

    fn put_share(&self, share: &Share, record: ShareRecord) -> Result<(), FileError> {
        let mut transaction = Transaction::default();
        transaction.put(keys::share(&share.name), record.encode());
        let invalidations = self.commit(&service_caller(share.id), transaction, Outcome::Done)?;
        self.notify(invalidations);
        Ok(())
    }

    /// What fits into the caller's share, and what is used.
    pub fn statfs(&self, caller: &Caller) -> Result<FilesystemStatus, FileError> {
        Ok(self.share(caller)?.filesystem_status())
    }

    /// Ends the share's sessions, then removes everything in it and the share itself. Takes its time; `progress` is
    /// told how many inodes are left. When it is cut short, the share takes no sessions any more and can be deleted
    /// again, which goes on where it was.
    ///
    /// # Errors
    /// [`FileError::InUse`] while a session has a connection.
    pub fn delete_share(&self, name: &str, progress: &mut dyn FnMut(u64)) -> Result<(), FileError> {
        let share = self.close_share(name)?;
        for session in self.sessions().iter().filter(|session| session.share == share.id) {
            self.end_session(session.session)?;
        }
        let caller = service_caller(share.id);
        self.empty(&caller, &share, progress)?;
        let mut transaction = Transaction::default();
        let _names = self.changing();
        let root = self.node(&caller, share.root)?;
        self.erase(&mut transaction, &root)?;
        transaction.delete(keys::share(name));
        let invalidations = self.commit(&caller, transaction, Outcome::Done)?;
        self.shares.remove(share.id);
        self.notify(invalidations);
        Ok(())
    }

    fn close_share(&self, name: &str) -> Result<Arc<Share>, FileError> {
        let _names = self.changing();
        let share = self.shares.by_name(name).ok_or(FileError::NotFound)?;
        let is_attached = self
            .sessions()
            .iter()
            .any(|session| session.share == share.id && session.attached > 0);
        if is_attached {
            return Err(FileError::InUse("a client is connected to the share"));
        }
        let record = ShareRecord {
            being_deleted: true,
            ..share.record()
        };
        self.put_share(&share, record)?;
        share.being_deleted.store(true, Ordering::Relaxed);
        Ok(share)
    }

    /// Removes all names, from the leaves to the root.
    fn empty(&self, caller: &Caller, share: &Share, progress: &mut dyn FnMut(u64)) -> Result<(), FileError> {
        let mut path = vec![share.root];
        while let Some(directory) = path.last().copied() {
            let (from, end) = keys::all_of(tag::COOKIE, directory);
            let page = self.storage.scan(&from, &end, PAGE)?;
            let mut below = None;
            for (_, value) in &page {
                let record = CookieRecord::decode(value)?;
                below = self.remove_or_enter(caller, directory, &record)?;
                if below.is_some() {
                    break;
                }
            }
            progress(share.inodes());
            match below {
                Some(inode) => path.push(inode),
                None if page.is_empty() => drop(path.pop()),
                None => (),
            }
        }
        Ok(())
    }

    /// Removes the entry; a directory that is not empty is to be emptied first.
    fn remove_or_enter(&self, caller: &Caller, parent: u64, record: &CookieRecord) -> Result<Option<u64>, FileError> {
        let at = NameIn {
            parent,
            name: &record.name,
        };
        if record.file_type != FileType::Directory {
            self.unlink(caller, at)?;
            return Ok(None);
        }
        match self.rmdir(caller, at) {
            Err(FileError::NotEmpty) => Ok(Some(record.inode)),
            removed => removed.map(|()| None),
        }
    }
}

fn new_root(share: &Share, now: Timestamp) -> Node {
    let caller = Caller {
        now,
        ..service_caller(share.id)
    };
    let node = NewNode {
        mode: 0o755,
        umask: 0,
        device: 0,
        attributes: SetAttributes::default(),
    };
    let mut record = new_record(&caller, FileType::Directory, node);
    record.kind = Kind::Directory(new_directory(share.root));
    Node {
        inode: share.root,
        record,
        file: None,
    }
}
