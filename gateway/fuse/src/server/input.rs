//! The messages of one connection, one after the other.

use crate::protocol::abi::{IN_HEADER_BYTES, InHeader, WRITE_HEAD_BYTES};
use crate::protocol::opcode::Opcode;
use crate::protocol::wire::Wire;
use std::io;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tombolo_transport::Input as Buffered;
use tombolo_transport::input::BUFFER_BYTES;

/// Why no more requests can be read.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("a message of {bytes} bytes, opcode {opcode}")]
    AbsurdLength { bytes: usize, opcode: u32 },
    #[error("the stream ended in the middle of a message")]
    Truncated,
    #[error("socket")]
    Io(#[source] io::Error),
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            _ => Self::Io(error),
        }
    }
}

/// One message: header, where its arguments lie in the buffer, and the data of a WRITE.
pub struct Message {
    pub header: InHeader,
    arguments: Range<usize>,
    pub data: Vec<u8>,
}

pub struct Input {
    buffered: Buffered<Arc<UnixStream>>,
    data_bytes_max: usize,
}

impl Input {
    /// Takes no more than `data_bytes_max` in one WRITE.
    pub fn new(socket: Arc<UnixStream>, data_bytes_max: usize) -> Self {
        Self {
            buffered: Buffered::new(socket),
            data_bytes_max,
        }
    }

    /// The next message; `None` at the end of the stream. `before_wait` runs before each call that may wait.
    pub fn next(&mut self, mut before_wait: impl FnMut()) -> Result<Option<Message>, StreamError> {
        if !self.buffered.fill(IN_HEADER_BYTES, &mut before_wait)? {
            return match self.buffered.unread().is_empty() {
                true => Ok(None),
                false => Err(StreamError::Truncated),
            };
        }
        let header = InHeader::get(&self.buffered.unread()[..IN_HEADER_BYTES]);
        let (head_bytes, data_bytes) = self.lengths(&header)?;
        if !self.buffered.fill(head_bytes, &mut before_wait)? {
            return Err(StreamError::Truncated);
        }
        self.buffered.consume(IN_HEADER_BYTES);
        let arguments = self.buffered.consume(head_bytes - IN_HEADER_BYTES);
        let data = match data_bytes {
            0 => Vec::new(),
            count => self.buffered.payload(count, before_wait)?,
        };
        Ok(Some(Message {
            header,
            arguments,
            data,
        }))
    }

    /// Valid until the next message is read.
    pub fn arguments(&self, message: &Message) -> &[u8] {
        self.buffered.consumed(message.arguments.clone())
    }

    /// Bytes of the message up to a WRITE's data, and of that. Whatever comes before such data fits the buffer, the largest
    /// extended attribute included.
    fn lengths(&self, header: &InHeader) -> Result<(usize, usize), StreamError> {
        let bytes = header.len as usize;
        let is_write = header.opcode == Opcode::Write.number() && bytes > WRITE_HEAD_BYTES;
        let head_bytes = if is_write { WRITE_HEAD_BYTES } else { bytes };
        let data_bytes = bytes - head_bytes;
        if bytes < IN_HEADER_BYTES || head_bytes > BUFFER_BYTES || data_bytes > self.data_bytes_max {
            let opcode = header.opcode;
            return Err(StreamError::AbsurdLength { bytes, opcode });
        }
        Ok((head_bytes, data_bytes))
    }
}
