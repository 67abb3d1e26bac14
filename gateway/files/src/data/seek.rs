//! Where data are and where holes.

use super::BLOCK;
use crate::error::FileError;
use crate::service::FileService;
use crate::storage::Storage;
use crate::types::{Caller, Place, Seek};
use tombolo_base::Span;

/// Blocks whose map is asked for at once.
const SPAN_BLOCKS: u64 = 1 << 16;

impl<S: Storage> FileService<S> {
    /// The least offset from `from` on that is in data, or in a hole; behind the end there is a hole.
    pub fn seek(&self, caller: &Caller, from: Place, what: Seek) -> Result<u64, FileError> {
        let inode = self.number(caller, from.inode)?;
        let record = self.data_record(caller, inode)?;
        if from.offset >= record.size {
            return Err(FileError::NoSuchPosition);
        }
        let found = self.seek_block(inode, from.offset / BLOCK, record.blocks(), what)?;
        let found = found
            .map(|block| from.offset.max(block * BLOCK))
            .filter(|offset| *offset < record.size);
        match (found, what) {
            (Some(offset), _) => Ok(offset),
            (None, Seek::Hole) => Ok(record.size),
            (None, Seek::Data) => Err(FileError::NoSuchPosition),
        }
    }

    fn seek_block(&self, inode: u64, first: u64, end: u64, what: Seek) -> Result<Option<u64>, FileError> {
        let mut at = first;
        while at < end {
            let span = Span::of_file(inode, at, (end - at).min(SPAN_BLOCKS));
            for run in self.storage.map(span)? {
                if run.mapped == (what == Seek::Data) {
                    return Ok(Some(at));
                }
                at += run.count;
            }
        }
        Ok(None)
    }
}
