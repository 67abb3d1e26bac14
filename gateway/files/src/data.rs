//! Contents of regular files.
//!
//! Whole blocks are read and written; a part of a block is read, filled in and written whole, under the file's lock.
//! What is behind the end in the last block means nothing: whoever makes a file longer past an end within a block first
//! fills the rest of that block with zeroes ([`FileService::zero_tail`]), and nobody shows it before. So a file is cut
//! without touching its last block.

mod allocate;
mod copy;
mod read;
mod resize;
mod seek;
mod write;

pub use read::ReadReply;

use crate::error::FileError;
use crate::exclusion::FileGuard;
use crate::keys;
use crate::node::stamped;
use crate::records::FileRecord;
use crate::service::{FileService, add_counters};
use crate::storage::{NO_SESSION, Storage, StorageError};
use crate::transaction::{FILE_BLOCKS_MAX, Transaction};
use crate::types::{Caller, FileType, Timestamp};
use crate::usage::Share;
use bytes::Bytes;
use std::sync::{Arc, mpsc};
use tombolo_base::{BLOCK_BYTES, BlockSum, Span, is_zero};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A regular file whose lock is held.
struct DataFile {
    inode: u64,
    record: FileRecord,
    share: Arc<Share>,
}

impl DataFile {
    fn span(&self, first: u64, count: u64) -> Span {
        Span::of_file(self.inode, first, count)
    }

    /// The record after a change of the contents.
    fn modified(&self, now: Timestamp) -> FileRecord {
        let ctime = stamped(self.record.ctime, now);
        FileRecord {
            ctime,
            mtime: ctime,
            ..self.record.clone()
        }
    }

    /// Number of bytes of the block that count.
    fn valid_bytes(&self, block: u64) -> usize {
        let left = self.record.size.saturating_sub(block * BLOCK);
        left.min(BLOCK) as usize
    }
}

/// A read that is under way.
struct Reading(mpsc::Receiver<Result<Vec<u8>, StorageError>>);

impl Reading {
    fn wait(self) -> Result<Vec<u8>, FileError> {
        match self.0.recv() {
            Ok(read) => Ok(read?),
            Err(mpsc::RecvError) => Err(FileError::Failed("storage gave no answer".into())),
        }
    }
}

/// The blocks that `bytes` from `offset` on touch: the first, and how many.
fn blocks_around(offset: u64, bytes: u64) -> (u64, u64) {
    let first = offset / BLOCK;
    (first, (offset + bytes).div_ceil(BLOCK) - first)
}

impl<S: Storage> FileService<S> {
    /// Locks the file for a change of its data.
    fn hold(&self, caller: &Caller, inode: u64) -> Result<(FileGuard<'_>, DataFile), FileError> {
        let guard = self.files.lock(inode);
        let file = self.held_file(caller, inode)?;
        Ok((guard, file))
    }

    /// The file, its lock held.
    fn held_file(&self, caller: &Caller, inode: u64) -> Result<DataFile, FileError> {
        let mut file = DataFile {
            inode,
            record: self.data_record(caller, inode)?,
            share: self.share(caller)?,
        };
        if file.record.is_unsettled {
            self.finish_copy(&mut file)?;
        }
        Ok(file)
    }

    fn data_record(&self, caller: &Caller, inode: u64) -> Result<FileRecord, FileError> {
        match self.file_record(inode)? {
            Some(record) if record.share == caller.share => Ok(record),
            Some(_) => Err(FileError::Stale),
            None => {
                let _names = self.reading();
                Err(match self.node(caller, inode)?.file_type() {
                    FileType::Directory => FileError::IsDirectory,
                    _ => FileError::Invalid("not a regular file"),
                })
            }
        }
    }

    /// After a copy by reference that was cut short: counts what is mapped, whatever the quota says to that, and takes
    /// away what is beyond the end.
    fn finish_copy(&self, file: &mut DataFile) -> Result<(), FileError> {
        let mut record = file.record.clone();
        record.allocated_blocks = self.mapped(file.span(0, record.blocks()))?;
        record.is_unsettled = false;
        let mut transaction = Transaction::default();
        transaction.punch(file.span(record.blocks(), FILE_BLOCKS_MAX - record.blocks()));
        let grown = self.put_record(&mut transaction, file, &record);
        let _change = self.begin_change();
        self.storage.commit(transaction.change)?;
        self.count_usage(record.share, grown, 0);
        file.record = record;
        Ok(())
    }

    fn mapped(&self, span: Span) -> Result<u64, FileError> {
        if span.count == 0 {
            return Ok(0);
        }
        let runs = self.storage.map(span)?;
        Ok(runs.iter().filter(|run| run.mapped).map(|run| run.count).sum())
    }

    /// Blocks of the span that are mapped; none are behind the end.
    fn mapped_before_end(&self, file: &DataFile, span: Span) -> Result<u64, FileError> {
        let record = &file.record;
        let end = (span.first + span.count).min(record.blocks());
        let count = end.saturating_sub(span.first);
        // Storage is asked of a file without holes too: with that part of the map in memory it knows, when the write comes,
        // which cached blocks it replaces.
        match record.allocated_blocks {
            0 => Ok(0),
            _ => self.mapped(Span { count, ..span }),
        }
    }

    /// Makes a change without data, the file's new record and the counters with it.
    fn commit_data(
        &self,
        file: &mut DataFile,
        mut transaction: Transaction,
        record: FileRecord,
    ) -> Result<(), FileError> {
        let grown = self.put_record(&mut transaction, file, &record);
        let _change = self.begin_change();
        let room = file.share.reserve(grown)?;
        self.storage.commit(transaction.change)?;
        room.keep();
        file.record = record;
        Ok(())
    }

    /// Adds the new record to the change; blocks that the file grows by.
    fn put_record(&self, transaction: &mut Transaction, file: &DataFile, record: &FileRecord) -> i64 {
        transaction.put(keys::file(file.inode), record.encode());
        transaction.blocks = record.allocated_blocks.cast_signed() - file.record.allocated_blocks.cast_signed();
        add_counters(record.share, transaction);
        transaction.blocks
    }

    /// Writes whole blocks, and commits the transaction with them. The record is the file's new one but for the
    /// count of blocks, which is set here.
    fn write_blocks(
        &self,
        file: &mut DataFile,
        first: u64,
        data: Bytes,
        mut record: FileRecord,
        mut transaction: Transaction,
    ) -> Result<(), FileError> {
        let sums = BlockSum::of_blocks(&data);
        let span = file.span(first, sums.len() as u64);
        let before = self.mapped_before_end(file, span)?;
        let after = sums.iter().flatten().count() as u64;
        record.allocated_blocks = (record.allocated_blocks + after).saturating_sub(before);
        let grown = self.put_record(&mut transaction, file, &record);
        let _change = self.begin_change();
        let room = file.share.reserve(grown)?;
        self.storage.write(span, data, sums, transaction.change)?;
        room.keep();
        file.record = record;
        Ok(())
    }

    fn start_reading(&self, span: Span) -> Reading {
        let (done, reading) = mpsc::channel();
        // The receiver is gone only if this thread panicked.
        self.storage
            .read(NO_SESSION, span, Box::new(move |read| drop(done.send(read))));
        Reading(reading)
    }

    /// One block, zeroes behind the end.
    fn finish_block(&self, file: &DataFile, block: u64, reading: Reading) -> Result<Vec<u8>, FileError> {
        let mut bytes = reading.wait()?;
        bytes.resize(BLOCK_BYTES, 0);
        bytes[file.valid_bytes(block)..].fill(0);
        Ok(bytes)
    }

    fn read_block(&self, file: &DataFile, block: u64) -> Result<Vec<u8>, FileError> {
        let reading = self.start_reading(file.span(block, 1));
        self.finish_block(file, block, reading)
    }

    /// Makes what is behind the end in the last block zeroes, so that the file can grow.
    fn zero_tail(&self, file: &mut DataFile) -> Result<(), FileError> {
        let block = file.record.size / BLOCK;
        let valid = file.valid_bytes(block);
        if valid == 0 {
            return Ok(());
        }
        let mut bytes = self.start_reading(file.span(block, 1)).wait()?;
        bytes.resize(BLOCK_BYTES, 0);
        if is_zero(&bytes[valid..]) {
            return Ok(());
        }
        bytes[valid..].fill(0);
        let record = file.record.clone();
        self.write_blocks(file, block, bytes.into(), record, Transaction::default())
    }
}
