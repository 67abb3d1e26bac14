//! Directory entries: by name and by position, against each other, the directory and the inode.

use super::{Check, hash};
use crate::error::FileError;
use crate::keys::{self, tag};
use crate::records::{CookieRecord, InodeRecord, Kind, NameRecord};
use crate::storage::Storage;
use crate::types::FileType;

/// What has been seen of a directory's names, which come one after the other.
struct Seen {
    inode: u64,
    /// The directory as it was when its first name was seen.
    record: Option<InodeRecord>,
    names: u64,
    subdirectories: u32,
}

impl<S: Storage> Check<'_, S> {
    pub(super) fn names(&mut self) -> Result<(), FileError> {
        let mut seen: Option<Seen> = None;
        self.pages("names", tag::NAME, |check, key, value| {
            let (directory, name) = keys::split(key)?;
            if seen.as_ref().is_none_or(|seen| seen.inode != directory) {
                let before = seen.replace(Seen {
                    inode: directory,
                    record: check.inode(directory)?,
                    names: 0,
                    subdirectories: 0,
                });
                check.directory_seen(before)?;
            }
            let record = NameRecord::decode(value)?;
            check.report.names += 1;
            check.named = check.named.wrapping_add(hash(record.inode));
            if let Some(seen) = &mut seen {
                seen.names += 1;
                seen.subdirectories += u32::from(record.file_type == FileType::Directory);
                check.name_of(seen, name, &record)?;
            }
            Ok(())
        })?;
        self.directory_seen(seen)?;
        self.positions()
    }

    fn name_of(&mut self, seen: &Seen, name: &[u8], record: &NameRecord) -> Result<(), FileError> {
        let directory = seen.inode;
        let position = self.service.storage.get(&keys::cookie(directory, record.cookie))?;
        let expected = CookieRecord {
            inode: record.inode,
            file_type: record.file_type,
            name: name.to_vec(),
        };
        let agrees = position.is_some_and(|value| *value == *expected.encode());
        self.expect(agrees, directory, "a name without its position");
        let Some(child) = self.inode(record.inode)? else {
            self.find(
                directory,
                format!("a name of inode {}, which is not there", record.inode),
            );
            return Ok(());
        };
        let share = seen.record.as_ref().map(|record| record.share);
        self.expect(
            share.is_none_or(|share| share == child.share),
            directory,
            "a name of an inode of another share",
        );
        self.expect(
            child.file_type() == record.file_type,
            directory,
            "a name with another type than its inode",
        );
        self.expect(child.links > 0, record.inode, "a name of an inode without links");
        if let Kind::Directory(state) = child.kind {
            self.expect(
                state.parent == directory,
                record.inode,
                "a directory with another parent",
            );
        }
        Ok(())
    }

    /// All names of the directory were seen. If it changed meanwhile there is nothing to compare.
    fn directory_seen(&mut self, seen: Option<Seen>) -> Result<(), FileError> {
        let Some(seen) = seen else {
            return Ok(());
        };
        let record = self.inode(seen.inode)?;
        if record != seen.record {
            return Ok(());
        }
        let Some((links, Kind::Directory(state))) = record.map(|record| (record.links, record.kind)) else {
            self.find(seen.inode, "names in what is not a directory");
            return Ok(());
        };
        self.expect(
            state.entries == seen.names,
            seen.inode,
            "a directory with a wrong count of entries",
        );
        let expected = seen.subdirectories.saturating_add(2);
        self.expect(links == expected, seen.inode, "a directory with a wrong count of links");
        Ok(())
    }

    fn positions(&mut self) -> Result<(), FileError> {
        self.pages("positions", tag::COOKIE, |check, key, value| {
            let (directory, cookie) = keys::split_cookie(key)?;
            let record = CookieRecord::decode(value)?;
            let name = check.service.name(directory, &record.name)?;
            let agrees = name.is_some_and(|name| name.cookie == cookie);
            check.expect(agrees, directory, "a position without its name");
            if let Some(Kind::Directory(state)) = check.inode(directory)?.map(|record| record.kind) {
                check.expect(
                    cookie < state.cookie_next,
                    directory,
                    "a position that was not given out",
                );
            }
            Ok(())
        })
    }
}
