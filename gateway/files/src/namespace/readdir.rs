//! Listing a directory, in the order of its cookies: the order in which the names were made.

use crate::error::FileError;
use crate::keys;
use crate::node::Node;
use crate::records::CookieRecord;
use crate::service::FileService;
use crate::storage::Storage;
use crate::types::{Caller, DirectoryEntry, FileType, Positions};

const COOKIE_SELF: u64 = 1;
const COOKIE_PARENT: u64 = 2;

impl<S: Storage> FileService<S> {
    /// At most `entries_max` entries of those positions, `.` and `..` first; none at the end. What is there all the while
    /// is listed once, whatever else comes and goes, also if it is renamed; any cookie of the directory's can be gone on
    /// from at any time. What comes new comes behind [`FileService::directory_end`].
    pub fn readdir(
        &self,
        caller: &Caller,
        directory: u64,
        positions: impl Into<Positions>,
        entries_max: usize,
        with_attributes: bool,
    ) -> Result<Vec<DirectoryEntry>, FileError> {
        let Positions { after: cookie, end } = positions.into();
        let _names = self.reading();
        let node = self.node(caller, directory)?;
        let mut entries = dots(&node, cookie, with_attributes)?;
        entries.truncate(entries_max);
        let from = cookie.max(COOKIE_PARENT).saturating_add(1);
        if from >= end {
            return Ok(entries);
        }
        let (from, end) = (keys::cookie(node.inode, from), keys::cookie(node.inode, end));
        for (key, value) in self.storage.scan(&from, &end, entries_max - entries.len())? {
            let (_, cookie) = keys::split_cookie(&key)?;
            let record = CookieRecord::decode(&value)?;
            let attributes = match with_attributes {
                true => Some(self.node(caller, record.inode)?.attributes()),
                false => None,
            };
            entries.push(DirectoryEntry {
                name: record.name,
                inode: record.inode,
                file_type: record.file_type,
                cookie,
                attributes,
            });
        }
        Ok(entries)
    }

    /// The cookie that the next new name gets: a listing that ends there ends, whatever is made meanwhile.
    pub fn directory_end(&self, caller: &Caller, directory: u64) -> Result<u64, FileError> {
        let _names = self.reading();
        Ok(self.node(caller, directory)?.directory()?.cookie_next)
    }
}

fn dots(node: &Node, cookie: u64, with_attributes: bool) -> Result<Vec<DirectoryEntry>, FileError> {
    let dot = |name: &[u8], inode, cookie| DirectoryEntry {
        name: name.to_vec(),
        inode,
        file_type: FileType::Directory,
        cookie,
        attributes: None,
    };
    let parent = node.directory()?.parent;
    let mut entries = Vec::new();
    if node.record.links == 0 {
        return Ok(entries);
    }
    if cookie < COOKIE_SELF {
        entries.push(DirectoryEntry {
            attributes: with_attributes.then(|| node.attributes()),
            ..dot(b".", node.inode, COOKIE_SELF)
        });
    }
    if cookie < COOKIE_PARENT {
        entries.push(dot(b"..", parent, COOKIE_PARENT));
    }
    Ok(entries)
}
