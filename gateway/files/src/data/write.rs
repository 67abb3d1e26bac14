//! Writing.

use super::{BLOCK, DataFile, blocks_around};
use crate::error::FileError;
use crate::records::Outcome;
use crate::service::FileService;
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::{Caller, Changed, FILE_BYTES_MAX, Place, Timestamp};
use bytes::Bytes;
use tombolo_base::BLOCK_BYTES;

impl<S: Storage> FileService<S> {
    /// Writes all of the data, in one step; their number of bytes. May wait: for the rest of blocks that are written in
    /// part, and for room under the cap.
    pub fn write(&self, caller: &Caller, to: Place, data: Bytes, kill_privileges: bool) -> Result<usize, FileError> {
        let bytes = data.len();
        let inode = self.number(caller, to.inode)?;
        check_end(to.offset, bytes as u64)?;
        if self.is_done_before(caller)? {
            return Ok(bytes);
        }
        let (guard, file) = self.hold(caller, inode)?;
        if bytes == 0 {
            return Ok(0);
        }
        let mut file = self.without_privileges(caller, file, kill_privileges)?;
        let transaction = self.noted(caller, Outcome::Done);
        self.put_bytes(&mut file, to.offset, data, caller.now, transaction)?;
        self.drop_late_note(caller)?;
        drop(guard);
        let changed = Changed::Data {
            inode,
            offset: to.offset,
            length: bytes as u64,
        };
        self.notify(self.invalidations(caller, vec![changed]));
        Ok(bytes)
    }

    /// The file as it is when a write may not keep setuid and the like.
    pub(super) fn without_privileges(
        &self,
        caller: &Caller,
        file: DataFile,
        kill: bool,
    ) -> Result<DataFile, FileError> {
        if !file.record.is_privileged {
            return Ok(file);
        }
        self.drop_privileges(caller, file.inode, kill)?;
        self.held_file(caller, file.inode)
    }

    /// Writes bytes anywhere, and commits the transaction with them; the file grows to hold them.
    pub(super) fn put_bytes(
        &self,
        file: &mut DataFile,
        offset: u64,
        data: Bytes,
        now: Timestamp,
        transaction: Transaction,
    ) -> Result<(), FileError> {
        let end = offset + data.len() as u64;
        if offset / BLOCK > file.record.size / BLOCK {
            self.zero_tail(file)?;
        }
        let blocks = self.whole_blocks(file, offset, data)?;
        let mut record = file.modified(now);
        record.size = record.size.max(end);
        self.write_blocks(file, offset / BLOCK, blocks, record, transaction)
    }

    /// The data with what else is in their first and last block.
    fn whole_blocks(&self, file: &DataFile, offset: u64, data: Bytes) -> Result<Bytes, FileError> {
        let end = offset + data.len() as u64;
        let (first, count) = blocks_around(offset, data.len() as u64);
        let head = (offset % BLOCK) as usize;
        if head == 0 && end.is_multiple_of(BLOCK) {
            return Ok(data);
        }
        let last = first + count - 1;
        let size = file.record.size;
        let needs_first = head != 0 && first * BLOCK < size;
        let needs_last = !end.is_multiple_of(BLOCK) && end < size;
        let first_reading = needs_first.then(|| self.start_reading(file.span(first, 1)));
        let is_other = last != first || first_reading.is_none();
        let last_reading = (needs_last && is_other).then(|| self.start_reading(file.span(last, 1)));
        let mut blocks = vec![0; count as usize * BLOCK_BYTES];
        if let Some(reading) = first_reading {
            blocks[..BLOCK_BYTES].copy_from_slice(&self.finish_block(file, first, reading)?);
        }
        if let Some(reading) = last_reading {
            let at = blocks.len() - BLOCK_BYTES;
            blocks[at..].copy_from_slice(&self.finish_block(file, last, reading)?);
        }
        blocks[head..head + data.len()].copy_from_slice(&data);
        Ok(blocks.into())
    }
}

/// Refuses what no file can hold.
pub fn check_end(offset: u64, bytes: u64) -> Result<(), FileError> {
    match offset.checked_add(bytes) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(()),
        _ => Err(FileError::FileTooLarge),
    }
}
