//! Reading, and making stable what was written.

use super::{BLOCK, blocks_around};
use crate::error::FileError;
use crate::locking::Reply;
use crate::service::FileService;
use crate::storage::{Storage, StorageError};
use crate::types::{Caller, Place};
use tombolo_base::{FlushMode, Span};

/// Takes the bytes that were read, once.
pub type ReadReply = Box<dyn FnOnce(Result<Vec<u8>, FileError>) + Send>;

impl<S: Storage> FileService<S> {
    /// At most `bytes_max` bytes: fewer at the file's end, none behind it. `reply` may run before the call returns, or
    /// later on a thread of the storage's.
    pub fn read(&self, caller: &Caller, from: Place, bytes_max: usize, reply: ReadReply) {
        let (size, inode) = match self.readable(caller, from.inode) {
            Ok(readable) => readable,
            Err(error) => return reply(Err(error)),
        };
        let bytes = size.saturating_sub(from.offset).min(bytes_max as u64);
        if bytes == 0 {
            return reply(Ok(Vec::new()));
        }
        let (first, count) = blocks_around(from.offset, bytes);
        let head = (from.offset % BLOCK) as usize;
        let done = move |read: Result<Vec<u8>, StorageError>| {
            reply(
                read.map_err(FileError::from)
                    .and_then(|blocks| cut(blocks, head, bytes as usize)),
            );
        };
        let span = Span::of_file(inode, first, count);
        self.storage.read(caller.session, span, Box::new(done));
    }

    fn readable(&self, caller: &Caller, inode: u64) -> Result<(u64, u64), FileError> {
        let inode = self.number(caller, inode)?;
        Ok((self.data_record(caller, inode)?.size, inode))
    }

    /// Everything that was answered before this is called is where the mode says when `reply` runs. For what the clients of a
    /// share ask, that is [`FileService::flush_mode`].
    pub fn sync(&self, mode: FlushMode, reply: Reply) {
        let done = Box::new(move |synced: Result<(), StorageError>| reply(synced.map_err(FileError::from)));
        self.storage.sync(mode, done);
    }
}

/// The part that was asked for.
fn cut(mut blocks: Vec<u8>, head: usize, bytes: usize) -> Result<Vec<u8>, FileError> {
    if blocks.len() < head + bytes {
        return Err(FileError::Failed(
            "storage gave fewer blocks than it was asked for".into(),
        ));
    }
    blocks.truncate(head + bytes);
    blocks.drain(..head);
    Ok(blocks)
}
