//! copy_file_range: by reference where blocks lie alike in both files, else by reading and writing.

use super::write::check_end;
use super::{BLOCK, DataFile, blocks_around};
use crate::error::FileError;
use crate::keys;
use crate::records::{FileRecord, Outcome};
use crate::service::{FileService, add_counters};
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::{Caller, Changed, Place, Timestamp};
use bytes::Bytes;
use tombolo_base::Span;

/// Most bytes that one request copies by reading and writing, and that are in memory at once.
const COPIED_BYTES_MAX: u64 = 16 << 20;
const PIECE_BYTES: u64 = 1 << 20;
/// Most bytes that one request copies by reference.
const LINKED_BYTES_MAX: u64 = 1 << 30;

/// A copy within one file, or between two, as the offsets and bytes that are left.
#[derive(Clone, Copy)]
struct Copy {
    from: u64,
    to: u64,
    bytes: u64,
}

impl Copy {
    /// What can be copied in one step: whole blocks by reference, or a run of bytes.
    fn next_piece(self) -> Self {
        let is_alike = self.from % BLOCK == self.to % BLOCK;
        let whole = self.bytes - self.bytes % BLOCK;
        let bytes = match self.from % BLOCK {
            0 if is_alike && whole > 0 => whole.min(LINKED_BYTES_MAX),
            into_block if is_alike => BLOCK - into_block,
            _ => PIECE_BYTES,
        };
        Self {
            bytes: bytes.min(self.bytes),
            ..self
        }
    }

    fn is_whole_blocks(self) -> bool {
        [self.from, self.to, self.bytes]
            .iter()
            .all(|value| value.is_multiple_of(BLOCK))
    }

    fn after(self, bytes: u64) -> Self {
        Self {
            from: self.from + bytes,
            to: self.to + bytes,
            bytes: self.bytes - bytes,
        }
    }
}

/// The two files; `None` for a copy within one.
struct Files {
    source: Option<DataFile>,
    target: DataFile,
}

impl Files {
    fn source(&self) -> &DataFile {
        self.source.as_ref().unwrap_or(&self.target)
    }
}

impl<S: Storage> FileService<S> {
    /// Bytes copied: fewer than asked for at the source's end, and when there are very many. Setuid and the like go as
    /// with a write, unless root asks.
    pub fn copy_range(&self, caller: &Caller, from: Place, to: Place, bytes: u64) -> Result<u64, FileError> {
        if let Some(copied) = self.bytes_before(caller)? {
            return Ok(copied);
        }
        let source = self.number(caller, from.inode)?;
        let target = self.number(caller, to.inode)?;
        let guards = self.files.lock_all(vec![source, target]);
        let mut files = Files {
            source: (source != target).then(|| self.held_file(caller, source)).transpose()?,
            target: self.held_file(caller, target)?,
        };
        let copy = Copy {
            from: from.offset,
            to: to.offset,
            bytes: files.source().record.size.saturating_sub(from.offset).min(bytes),
        };
        if copy.bytes == 0 {
            return Ok(0);
        }
        check_end(copy.to, copy.bytes)?;
        if source == target && copy.from.abs_diff(copy.to) < copy.bytes {
            return Err(FileError::Invalid("the ranges overlap"));
        }
        files.target = self.without_privileges(caller, files.target, caller.uid != 0)?;
        let copied = self.copy_all(caller, &mut files, copy);
        self.drop_late_note(caller)?;
        let copied = copied?;
        drop(guards);
        let changed = Changed::Data {
            inode: target,
            offset: copy.to,
            length: copied,
        };
        self.notify(self.invalidations(caller, vec![changed]));
        Ok(copied)
    }

    /// An error after the first piece ends the copy early, which is a success; so does a crash. Each piece notes how far
    /// the request has come with it.
    fn copy_all(&self, caller: &Caller, files: &mut Files, copy: Copy) -> Result<u64, FileError> {
        let mut rest = copy;
        let mut budget = COPIED_BYTES_MAX;
        while rest.bytes > 0 && budget > 0 {
            let piece = rest.next_piece();
            let noted = self.noted(caller, Outcome::Bytes(piece.from + piece.bytes - copy.from));
            let done = match piece.is_whole_blocks() {
                true => self.link_blocks(files, piece, caller.now, noted),
                false => self.copy_bytes(files, piece, caller.now, noted),
            };
            match done {
                Ok(()) => rest = rest.after(piece.bytes),
                Err(error) if rest.bytes == copy.bytes => return Err(error),
                Err(_) => break,
            }
            // Very long copies are answered in parts, so that nobody waits too long for the files' locks.
            budget = match piece.is_whole_blocks() && piece.bytes < LINKED_BYTES_MAX {
                true => budget,
                false => budget.saturating_sub(piece.bytes),
            };
        }
        Ok(copy.bytes - rest.bytes)
    }

    fn copy_bytes(
        &self,
        files: &mut Files,
        copy: Copy,
        now: Timestamp,
        transaction: Transaction,
    ) -> Result<(), FileError> {
        let (first, count) = blocks_around(copy.from, copy.bytes);
        let read = self.start_reading(files.source().span(first, count)).wait()?;
        let head = (copy.from % BLOCK) as usize;
        let bytes = read.get(head..head + copy.bytes as usize);
        let bytes = bytes.ok_or(FileError::Failed(
            "storage gave fewer blocks than it was asked for".into(),
        ))?;
        self.put_bytes(
            &mut files.target,
            copy.to,
            Bytes::copy_from_slice(bytes),
            now,
            transaction,
        )
    }

    /// Copies whole blocks by reference. The last of them come with the target's new record; until then the record says
    /// that its count cannot be trusted.
    fn link_blocks(
        &self,
        files: &mut Files,
        copy: Copy,
        now: Timestamp,
        transaction: Transaction,
    ) -> Result<(), FileError> {
        let from = files.source().span(copy.from / BLOCK, copy.bytes / BLOCK);
        let file = &mut files.target;
        if copy.to > file.record.size {
            self.zero_tail(file)?;
        }
        let to = file.span(copy.to / BLOCK, copy.bytes / BLOCK);
        let added = self.mapped(from)?;
        let replaced = self.mapped_before_end(file, to)?;
        let mut record = file.modified(now);
        record.size = record.size.max(copy.to + copy.bytes);
        record.allocated_blocks = (record.allocated_blocks + added).saturating_sub(replaced);
        let share = file.share.clone();
        let _change = self.begin_change();
        let room = share.reserve(added.cast_signed() - replaced.cast_signed())?;
        self.link_and_record(file, from, to, record, transaction)?;
        room.keep();
        Ok(())
    }

    fn link_and_record(
        &self,
        file: &mut DataFile,
        from: Span,
        to: Span,
        record: FileRecord,
        mut transaction: Transaction,
    ) -> Result<(), FileError> {
        let mut unsettled = file.record.clone();
        unsettled.is_unsettled = true;
        self.commit_data(file, Transaction::default(), unsettled)?;
        transaction.put(keys::file(file.inode), record.encode());
        transaction.blocks = record.allocated_blocks.cast_signed() - file.record.allocated_blocks.cast_signed();
        add_counters(record.share, &mut transaction);
        self.storage.link(from, to, transaction.change)?;
        file.record = record;
        Ok(())
    }
}
