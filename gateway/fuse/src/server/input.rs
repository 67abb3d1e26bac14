//! Buffered input of one connection: many small pipelined requests arrive with one system call; what the data of a
//! WRITE lacks in the buffer is received straight into the vector that is handed on.

use super::socket::receive_payload;
use crate::protocol::abi::{IN_HEADER_BYTES, InHeader, WRITE_HEAD_BYTES};
use crate::protocol::opcode::Opcode;
use crate::protocol::wire::Wire;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// A message without a WRITE's data fits, the largest extended attribute included.
pub const BUFFER_BYTES: usize = 128 * 1024;
/// After data of this size the next message is probably another such one, whose data had better go straight to its
/// vector: then little more than a header is received ahead.
const LARGE_PAYLOAD_BYTES: usize = 64 * 1024;
const READ_AHEAD_BYTES_MIN: usize = 1024;

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
    socket: Arc<UnixStream>,
    data_bytes_max: usize,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    read_ahead_bytes: usize,
}

impl Input {
    /// Takes no more than `data_bytes_max` in one WRITE.
    pub fn new(socket: Arc<UnixStream>, data_bytes_max: usize) -> Self {
        Self {
            socket,
            data_bytes_max,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            read_ahead_bytes: BUFFER_BYTES,
        }
    }

    /// The next message; `None` at the end of the stream. `before_wait` runs before each call that may wait.
    pub fn next(&mut self, mut before_wait: impl FnMut()) -> Result<Option<Message>, StreamError> {
        if !self.fill(IN_HEADER_BYTES, &mut before_wait)? {
            return match self.start == self.end {
                true => Ok(None),
                false => Err(StreamError::Truncated),
            };
        }
        let header = InHeader::get(&self.buffer[self.start..self.start + IN_HEADER_BYTES]);
        let (head_bytes, data_bytes) = self.lengths(&header)?;
        if !self.fill(head_bytes, &mut before_wait)? {
            return Err(StreamError::Truncated);
        }
        let arguments = self.start + IN_HEADER_BYTES..self.start + head_bytes;
        self.start += head_bytes;
        let data = match data_bytes {
            0 => Vec::new(),
            count => self.payload(count, before_wait)?,
        };
        Ok(Some(Message {
            header,
            arguments,
            data,
        }))
    }

    /// Valid until the next message is read.
    pub fn arguments(&self, message: &Message) -> &[u8] {
        &self.buffer[message.arguments.clone()]
    }

    /// Bytes of the message up to a WRITE's data, and of that.
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

    /// Receives until `count` bytes (at most [`BUFFER_BYTES`]) are unread; false when the stream ends before.
    fn fill(&mut self, count: usize, before_wait: &mut impl FnMut()) -> io::Result<bool> {
        while self.end - self.start < count {
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            } else if self.start + count > BUFFER_BYTES {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            before_wait();
            let limit = BUFFER_BYTES.min(self.start + count.max(self.read_ahead_bytes));
            match (&*self.socket).read(&mut self.buffer[self.end..limit]) {
                Ok(0) => return Ok(false),
                Ok(received) => self.end += received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Exactly `count` bytes as a vector of their own. What the buffer holds before them stays where it is.
    fn payload(&mut self, count: usize, mut before_wait: impl FnMut()) -> io::Result<Vec<u8>> {
        self.read_ahead_bytes = match count >= LARGE_PAYLOAD_BYTES {
            true => READ_AHEAD_BYTES_MIN,
            false => BUFFER_BYTES,
        };
        let mut payload = Vec::with_capacity(count);
        let buffered = count.min(self.end - self.start);
        payload.extend_from_slice(&self.buffer[self.start..self.start + buffered]);
        self.start += buffered;
        if buffered < count {
            before_wait();
            receive_payload(&self.socket, &mut payload, count - buffered)?;
        }
        Ok(payload)
    }
}
