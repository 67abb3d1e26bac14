//! Cutting a file, and making it longer.

use super::BLOCK;
use crate::error::FileError;
use crate::node::Node;
use crate::service::FileService;
use crate::storage::Storage;
use crate::transaction::{FILE_BLOCKS_MAX, Transaction};
use crate::types::{Caller, FILE_BYTES_MAX};
use tombolo_base::Span;

/// What a new size comes to.
#[derive(Debug)]
pub struct Resize {
    size: u64,
    /// Mapped blocks behind the new end.
    freed: u64,
}

impl<S: Storage> FileService<S> {
    /// Finds out what is freed, and prepares the last block of a file that grows. With the file's lock held, which must
    /// stay so until the plan is carried out.
    pub(crate) fn plan_resize(&self, caller: &Caller, inode: u64, size: u64) -> Result<Resize, FileError> {
        if size > FILE_BYTES_MAX {
            return Err(FileError::FileTooLarge);
        }
        let mut file = self.held_file(caller, inode)?;
        if size > file.record.size {
            self.zero_tail(&mut file)?;
        }
        let first = size.div_ceil(BLOCK);
        let freed = self.mapped_before_end(&file, file.span(first, FILE_BLOCKS_MAX - first))?;
        Ok(Resize { size, freed })
    }
}

impl Resize {
    pub fn apply(self, transaction: &mut Transaction, node: &mut Node) {
        let Some(file) = &mut node.file else {
            return;
        };
        if self.freed > 0 {
            let first = self.size.div_ceil(BLOCK);
            transaction.punch(Span::of_file(node.inode, first, file.blocks().saturating_sub(first)));
        }
        file.size = self.size;
        file.allocated_blocks = file.allocated_blocks.saturating_sub(self.freed);
        transaction.blocks -= self.freed.cast_signed();
    }
}
