//! Inodes: each against what belongs to it.

use super::{Check, hash};
use crate::error::FileError;
use crate::keys::{self, tag};
use crate::records::{Directory, InodeRecord, Kind};
use crate::storage::Storage;
use crate::types::FileType;
use crate::xattr::special_flag;

/// Deeper than any tree that paths can reach.
const DEPTH_MAX: usize = 1 << 20;

impl<S: Storage> Check<'_, S> {
    pub(super) fn inodes(&mut self) -> Result<(), FileError> {
        let next = self.service.reading().next.inode;
        self.pages("inodes", tag::INODE, |check, key, value| {
            let (inode, _) = keys::split(key)?;
            let record = InodeRecord::decode(value)?;
            check.report.inodes += 1;
            match check.shares.get_mut(&record.share) {
                Some(totals) => totals.inodes += 1,
                // One made since the check began is not known to it.
                None if inode < next => check.find(inode, "an inode of a share that is not there"),
                None => (),
            }
            check.links_of(inode, &record)?;
            check.xattrs_of(inode, &record)?;
            let is_file = record.file_type() == FileType::Regular;
            let file = check.service.file_record(inode)?;
            check.expect(
                is_file == file.is_some(),
                inode,
                "a file's two records are not both there",
            );
            if let Some(file) = file {
                check.expect(
                    file.share == record.share,
                    inode,
                    "a file's two records name two shares",
                );
                let agrees = file.is_privileged == record.is_privileged();
                check.expect(agrees, inode, "a file's two records differ about privileges");
            }
            Ok(())
        })
    }

    fn links_of(&mut self, inode: u64, record: &InodeRecord) -> Result<(), FileError> {
        let is_orphan = self.has(&keys::orphan(inode))?;
        self.expect(
            is_orphan == (record.links == 0),
            inode,
            "an inode without links that nobody holds, or the reverse",
        );
        let names = match &record.kind {
            Kind::Directory(state) if record.links > 0 => self.directory_names(inode, record, *state)?,
            Kind::Directory(_) => 0,
            Kind::Symlink { .. } | Kind::Other => u64::from(record.links),
        };
        self.linked = self.linked.wrapping_add(hash(inode).wrapping_mul(names));
        Ok(())
    }

    /// How many names the directory has: one, but none if it is a root.
    fn directory_names(&mut self, inode: u64, record: &InodeRecord, state: Directory) -> Result<u64, FileError> {
        // Those that have names are compared with them when those are seen.
        let (from, end) = keys::all_of(tag::NAME, inode);
        let is_empty = self.service.storage.scan(&from, &end, 1)?.is_empty();
        let agrees = is_empty == (state.entries == 0) && (!is_empty || record.links == 2);
        self.expect(
            agrees,
            inode,
            "an empty directory that has names or links, or one without names that is not empty",
        );
        let root = self.root_above(inode, state)?;
        let share = self.service.shares.by_id(record.share);
        let is_right = root.is_some() && share.is_none_or(|share| root == Some(share.root));
        self.expect(is_right, inode, "a directory that is not below its share's root");
        Ok(u64::from(state.parent != inode))
    }

    fn root_above(&self, inode: u64, state: Directory) -> Result<Option<u64>, FileError> {
        let (mut at, mut above) = (inode, state.parent);
        for _ in 0..DEPTH_MAX {
            if at == above {
                return Ok(Some(at));
            }
            let Some(Kind::Directory(state)) = self.inode(above)?.map(|record| record.kind) else {
                return Ok(None);
            };
            (at, above) = (above, state.parent);
        }
        Ok(None)
    }

    fn xattrs_of(&mut self, inode: u64, record: &InodeRecord) -> Result<(), FileError> {
        let (mut bytes, mut flags) = (0, 0);
        for name in self.service.xattr_names(inode)? {
            bytes += name.len() + 1;
            flags |= special_flag(&name);
        }
        let agrees = bytes == record.xattr_name_bytes as usize && flags == record.flags;
        self.expect(
            agrees,
            inode,
            "extended attributes that are not those which the inode says",
        );
        Ok(())
    }
}
