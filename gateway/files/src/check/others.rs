//! Shares, sessions, and what refers to them or to inodes.

use super::Check;
use crate::error::FileError;
use crate::keys::{self, tag};
use crate::locks::LockTable;
use crate::records::{Kind, OrphanRecord, ReplayRecord, SessionRecord, ShareRecord};
use crate::storage::Storage;

impl<S: Storage> Check<'_, S> {
    pub(super) fn others(&mut self) -> Result<(), FileError> {
        self.share_records()?;
        self.session_records()?;
        self.orphan_records()?;
        self.lock_records()?;
        self.pages("extended attributes", tag::XATTR, |check, key, _| {
            let (inode, _) = keys::split(key)?;
            let has_some = check.inode(inode)?.is_none_or(|record| record.xattr_name_bytes > 0);
            let is_there = check.has(&keys::inode(inode))?;
            check.expect(
                has_some && is_there,
                inode,
                "an extended attribute of an inode that has none",
            );
            Ok(())
        })
    }

    fn share_records(&mut self) -> Result<(), FileError> {
        self.pages("shares", tag::SHARE, |check, _, value| {
            let record = ShareRecord::decode(value)?;
            let root = check.inode(record.root)?;
            let is_root = root.is_some_and(|root| {
                let is_top = matches!(root.kind, Kind::Directory(state) if state.parent == record.root);
                is_top && root.share == record.id && root.links >= 2
            });
            check.expect(is_root, record.id.into(), "a share without a root");
            Ok(())
        })
    }

    fn session_records(&mut self) -> Result<(), FileError> {
        self.pages("sessions", tag::SESSION, |check, key, value| {
            let (session, _) = keys::split(key)?;
            let record = SessionRecord::decode(value)?;
            let has_share = check.service.shares.by_id(record.share).is_some();
            check.expect(has_share, session, "a session on a share that is not there");
            Ok(())
        })?;
        self.pages("requests", tag::REPLAY, |check, key, value| {
            let (session, _) = keys::split(key)?;
            ReplayRecord::decode(value)?;
            let has_session = check.has(&keys::session(session))?;
            check.expect(has_session, session, "a request of a session that is not there");
            Ok(())
        })
    }

    fn orphan_records(&mut self) -> Result<(), FileError> {
        self.pages("orphans", tag::ORPHAN, |check, key, value| {
            let (inode, _) = keys::split(key)?;
            let record = OrphanRecord::decode(value)?;
            let has_no_links = check.inode(inode)?.is_some_and(|inode| inode.links == 0);
            check.expect(has_no_links, inode, "an orphan that has names, or is not there");
            for holder in record.holders {
                let has_session = check.has(&keys::session(holder))?;
                check.expect(has_session, inode, "an orphan held by a session that is not there");
            }
            Ok(())
        })
    }

    fn lock_records(&mut self) -> Result<(), FileError> {
        self.pages("locks", tag::LOCKS, |check, key, value| {
            let (inode, _) = keys::split(key)?;
            let is_there = check.has(&keys::inode(inode))?;
            check.expect(is_there, inode, "locks of an inode that is not there");
            let mut table = LockTable::default();
            table.load(inode, value)?;
            for session in table.sessions_on(inode) {
                let has_session = check.has(&keys::session(session))?;
                check.expect(has_session, inode, "a lock of a session that is not there");
            }
            Ok(())
        })
    }
}
