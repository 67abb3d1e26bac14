//! fallocate: longer files, holes and zeroes. An allocation reserves nothing: room is taken when data come.

use super::write::check_end;
use super::{BLOCK, DataFile};
use crate::error::FileError;
use crate::records::Outcome;
use crate::service::FileService;
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::{Allocate, Caller, Changed, Place, Timestamp};
use std::ops::Range;

impl<S: Storage> FileService<S> {
    /// Setuid and the like go as with a write, unless root asks. When it fails midway, a part of the range may be
    /// zeroes already.
    pub fn fallocate(&self, caller: &Caller, at: Place, bytes: u64, mode: Allocate) -> Result<(), FileError> {
        if bytes == 0 {
            return Err(FileError::Invalid("nothing to allocate"));
        }
        check_end(at.offset, bytes)?;
        if self.is_done_before(caller)? {
            return Ok(());
        }
        let inode = self.number(caller, at.inode)?;
        let (guard, file) = self.hold(caller, inode)?;
        let mut file = self.without_privileges(caller, file, caller.uid != 0)?;
        let range = at.offset..at.offset + bytes;
        // The last change of the request notes it.
        let noted = self.noted(caller, Outcome::Done);
        let grows = range.end > file.record.size;
        match mode {
            Allocate::KeepSize => return Ok(()),
            Allocate::Extend if !grows => return Ok(()),
            Allocate::Extend => self.extend(&mut file, range.end, caller.now, noted)?,
            Allocate::ZeroRange if grows => {
                self.clear(&mut file, range.clone(), caller.now, Transaction::default())?;
                self.extend(&mut file, range.end, caller.now, noted)?;
            }
            Allocate::PunchHole | Allocate::ZeroRange | Allocate::ZeroRangeKeepSize => {
                self.clear(&mut file, range, caller.now, noted)?;
            }
        }
        self.drop_late_note(caller)?;
        drop(guard);
        let changed = Changed::Data {
            inode,
            offset: at.offset,
            length: bytes,
        };
        self.notify(self.invalidations(caller, vec![changed]));
        Ok(())
    }

    fn extend(
        &self,
        file: &mut DataFile,
        size: u64,
        now: Timestamp,
        transaction: Transaction,
    ) -> Result<(), FileError> {
        self.zero_tail(file)?;
        let mut record = file.modified(now);
        record.size = size;
        self.commit_data(file, transaction, record)
    }

    /// Makes the range zeroes as far as the file goes: parts of blocks first, then holes.
    fn clear(
        &self,
        file: &mut DataFile,
        range: Range<u64>,
        now: Timestamp,
        mut transaction: Transaction,
    ) -> Result<(), FileError> {
        let end = range.end.min(file.record.blocks() * BLOCK);
        let (first, last) = (range.start.div_ceil(BLOCK), end / BLOCK);
        if range.start >= end {
            let record = file.modified(now);
            return self.commit_data(file, transaction, record);
        }
        if first > last {
            // All within one block.
            self.clear_in_block(file, last, range.start % BLOCK..end % BLOCK)?;
        } else {
            if !range.start.is_multiple_of(BLOCK) {
                self.clear_in_block(file, first - 1, range.start % BLOCK..BLOCK)?;
            }
            if !end.is_multiple_of(BLOCK) {
                self.clear_in_block(file, last, 0..end % BLOCK)?;
            }
        }
        let span = file.span(first, last.saturating_sub(first));
        let freed = self.mapped_before_end(file, span)?;
        let mut record = file.modified(now);
        record.allocated_blocks = record.allocated_blocks.saturating_sub(freed);
        transaction.punch(span);
        self.commit_data(file, transaction, record)
    }

    fn clear_in_block(&self, file: &mut DataFile, block: u64, range: Range<u64>) -> Result<(), FileError> {
        let mut bytes = self.read_block(file, block)?;
        let part = &mut bytes[range.start as usize..range.end as usize];
        if tombolo_base::is_zero(part) {
            return Ok(());
        }
        part.fill(0);
        let record = file.record.clone();
        self.write_blocks(file, block, bytes.into(), record, Transaction::default())
    }
}
