//! Files' second records, against the block maps.

use super::Check;
use crate::error::FileError;
use crate::keys::{self, tag};
use crate::records::FileRecord;
use crate::storage::Storage;
use crate::transaction::FILE_BLOCKS_MAX;
use crate::types::FileType;
use tombolo_base::Span;

impl<S: Storage> Check<'_, S> {
    pub(super) fn data(&mut self) -> Result<(), FileError> {
        self.unlocked_pages("files", tag::FILE, |check, key, _| {
            let (inode, _) = keys::split(key)?;
            check.file(inode)
        })?;
        self.maps_without_file()
    }

    fn file(&mut self, inode: u64) -> Result<(), FileError> {
        let service = self.service;
        let _file = service.files.lock(inode);
        // It may have gone since the page was read.
        let Some(record) = service.file_record(inode)? else {
            return Ok(());
        };
        let file_type = self.inode(inode)?.map(|record| record.file_type());
        self.expect(
            file_type == Some(FileType::Regular),
            inode,
            "a file's second record without the first",
        );
        if let Some(totals) = self.shares.get_mut(&record.share) {
            totals.blocks += record.allocated_blocks.cast_signed();
        }
        match record.is_unsettled {
            // A copy was cut short; the next change of the file's data puts that right.
            true => Ok(()),
            false => self.map_of(inode, &record),
        }
    }

    fn map_of(&mut self, inode: u64, record: &FileRecord) -> Result<(), FileError> {
        let blocks = record.blocks();
        let allocated = self.mapped(inode, 0, blocks)?;
        self.expect(
            allocated == record.allocated_blocks,
            inode,
            "a file with a wrong count of blocks",
        );
        let behind = self.mapped(inode, blocks, FILE_BLOCKS_MAX - blocks)?;
        self.expect(behind == 0, inode, "a file with blocks behind its end");
        Ok(())
    }

    fn mapped(&self, inode: u64, first: u64, count: u64) -> Result<u64, FileError> {
        if count == 0 {
            return Ok(0);
        }
        let runs = self.service.storage.map(Span::of_file(inode, first, count))?;
        Ok(runs.iter().filter(|run| run.mapped).map(|run| run.count).sum())
    }

    fn maps_without_file(&mut self) -> Result<(), FileError> {
        let mut from = 0;
        while let Some(inode) = self.service.storage.next_mapped(from)? {
            let _file = self.service.files.lock(inode);
            if !self.has(&keys::file(inode))? && self.service.storage.next_mapped(inode)? == Some(inode) {
                self.find(inode, "data of a file that is not there");
            }
            from = inode + 1;
        }
        Ok(())
    }
}
