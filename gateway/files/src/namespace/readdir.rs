//! Listing a directory, in the order of its cookies: the order in which the names were made.

use crate::error::FileError;
use crate::keys::{self, tag};
use crate::node::Node;
use crate::records::CookieRecord;
use crate::service::FileService;
use crate::storage::Storage;
use crate::types::{Caller, DirectoryEntry, FileType};

const COOKIE_SELF: u64 = 1;
const COOKIE_PARENT: u64 = 2;

impl<S: Storage> FileService<S> {
    /// At most `entries_max` entries after `cookie` (0: from the start), `.` and `..` first; none at the end. A name
    /// that is there all the while is listed once, whatever else comes and goes; any cookie of the directory's can be
    /// gone on from at any time.
    pub fn readdir(
        &self,
        caller: &Caller,
        directory: u64,
        cookie: u64,
        entries_max: usize,
        with_attributes: bool,
    ) -> Result<Vec<DirectoryEntry>, FileError> {
        let _names = self.reading();
        let node = self.node(caller, directory)?;
        let mut entries = dots(&node, cookie, with_attributes)?;
        entries.truncate(entries_max);
        let (_, end) = keys::all_of(tag::COOKIE, node.inode);
        let Some(from) = cookie.max(COOKIE_PARENT).checked_add(1) else {
            return Ok(entries);
        };
        let from = keys::cookie(node.inode, from);
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
