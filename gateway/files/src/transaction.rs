//! A change as a request puts it together: entries, holes, the counters' share of it, and the news for others.

use crate::error::FileError;
use crate::keys;
use crate::node::Node;
use crate::records::{CookieRecord, NameRecord, OrphanRecord};
use crate::types::{Changed, FILE_BYTES_MAX, FileType};
use tombolo_base::{BLOCK_BYTES, EntryChange, MetadataChange, Span};

/// Blocks of the largest file.
pub const FILE_BLOCKS_MAX: u64 = FILE_BYTES_MAX / BLOCK_BYTES as u64;

#[derive(Debug, Default)]
pub struct Transaction {
    pub change: MetadataChange,
    /// Allocated blocks, and inodes, that the change adds to its share.
    pub blocks: i64,
    pub inodes: i64,
    pub invalidations: Vec<Changed>,
    /// Inodes that lose their last name but stay, with the sessions that hold them.
    pub orphaned: Vec<(u64, Vec<u64>)>,
    /// Orphans that get a name.
    pub named: Vec<u64>,
    /// Inodes that go.
    pub erased: Vec<u64>,
}

impl Transaction {
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.change.entries.push(EntryChange::Put { key, value });
    }

    pub fn delete(&mut self, key: Vec<u8>) {
        self.change.entries.push(EntryChange::Delete { key });
    }

    pub fn punch(&mut self, span: Span) {
        if span.count > 0 {
            self.change.holes.push(span);
        }
    }

    pub fn put_node(&mut self, node: &mut Node) {
        self.put(keys::inode(node.inode), node.record.encode());
        if let Some(file) = &mut node.file {
            file.is_privileged = node.record.is_privileged();
            self.put(keys::file(node.inode), file.encode());
        }
    }

    /// Adds a name that is not there yet, at the end of the directory, which the caller puts.
    pub fn add_name(
        &mut self,
        parent: &mut Node,
        name: &[u8],
        inode: u64,
        file_type: FileType,
    ) -> Result<(), FileError> {
        let directory = parent.directory_mut()?;
        let cookie = directory.cookie_next;
        directory.cookie_next += 1;
        directory.entries += 1;
        let record = NameRecord {
            inode,
            file_type,
            cookie,
        };
        self.put_name(parent.inode, name, record);
        self.tell_name(parent.inode, name, 0);
        Ok(())
    }

    /// Puts the name at the position that the record says.
    pub fn put_name(&mut self, directory: u64, name: &[u8], record: NameRecord) {
        let position = CookieRecord {
            inode: record.inode,
            file_type: record.file_type,
            name: name.to_vec(),
        };
        self.put(keys::name(directory, name), record.encode());
        self.put(keys::cookie(directory, record.cookie), position.encode());
    }

    /// Takes a name out of the directory, which the caller puts.
    pub fn remove_name(&mut self, parent: &mut Node, name: &[u8], record: NameRecord) -> Result<(), FileError> {
        let directory = parent.directory_mut()?;
        directory.entries = directory.entries.saturating_sub(1);
        self.delete(keys::name(parent.inode, name));
        self.delete(keys::cookie(parent.inode, record.cookie));
        self.tell_name(parent.inode, name, record.inode);
        Ok(())
    }

    /// Another name at the same position, in place of one that is there.
    pub fn change_name(&mut self, directory: u64, name: &[u8], new: &[u8], record: NameRecord) {
        self.delete(keys::name(directory, name));
        self.put_name(directory, new, record);
        self.tell_name(directory, name, record.inode);
        self.tell_name(directory, new, 0);
    }

    pub fn tell_name(&mut self, parent: u64, name: &[u8], before: u64) {
        self.invalidations.push(Changed::Name {
            parent,
            name: name.to_vec(),
            inode: before,
        });
        self.tell_attributes(parent);
    }

    pub fn tell_attributes(&mut self, inode: u64) {
        self.invalidations.push(Changed::Attributes { inode });
    }

    /// The inode stays without a name until its holders are done with it.
    pub fn orphan(&mut self, node: &mut Node, holders: Vec<u64>) {
        self.put_node(node);
        let record = OrphanRecord {
            holders: holders.clone(),
        };
        self.put(keys::orphan(node.inode), record.encode());
        self.tell_attributes(node.inode);
        self.orphaned.push((node.inode, holders));
    }

    /// Removes the inode's own records and its data. Names, extended attributes and locks are the caller's.
    pub fn erase(&mut self, node: &Node) {
        self.delete(keys::inode(node.inode));
        if let Some(file) = &node.file {
            self.delete(keys::file(node.inode));
            // Nothing is mapped behind the end, unless a copy was cut short.
            let count = if file.is_unsettled {
                FILE_BLOCKS_MAX
            } else {
                file.blocks()
            };
            self.punch(Span::of_file(node.inode, 0, count));
            self.blocks -= file.allocated_blocks.cast_signed();
        }
        self.inodes -= 1;
        self.erased.push(node.inode);
        self.tell_attributes(node.inode);
    }
}
