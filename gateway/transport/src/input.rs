//! Buffered input of one connection: many small pipelined requests arrive with one system call; what a payload lacks
//! in the buffer is received straight into the vector that is handed on.

use crate::socket::Source;
use std::io;
use std::ops::Range;

/// No message may be longer, its payload apart. Room for 31 writes of 4 KiB in flight.
pub const BUFFER_BYTES: usize = 128 * 1024;
/// After a payload of this size the next message is probably another such one, whose data had better go straight to
/// its vector: then little more than a header is received ahead.
const LARGE_PAYLOAD_BYTES: usize = 64 * 1024;
const READ_AHEAD_BYTES_MIN: usize = 1024;

/// Reads ahead from a connection; a large payload goes straight into its own vector.
pub struct Input<S> {
    /// Where the bytes come from.
    pub source: S,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    read_ahead_bytes: usize,
}

impl<S: Source> Input<S> {
    /// Nothing is read yet.
    pub fn new(source: S) -> Self {
        Self {
            source,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            read_ahead_bytes: BUFFER_BYTES,
        }
    }

    /// What has arrived and was not consumed.
    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Takes `count` of the unread bytes, and says where [`Input::consumed`] finds them.
    pub fn consume(&mut self, count: usize) -> Range<usize> {
        debug_assert!(count <= self.unread().len());
        let consumed = self.start..self.start + count;
        self.start = consumed.end;
        consumed
    }

    /// Bytes that were consumed after the last [`Input::fill`]; what [`Input::payload`] takes leaves them in their place.
    pub fn consumed(&self, consumed: Range<usize>) -> &[u8] {
        &self.buffer[consumed]
    }

    /// Receives until `count` bytes (at most [`BUFFER_BYTES`]) are unread; false when the stream ends before.
    /// `before_wait` runs before each call that may wait.
    pub fn fill(&mut self, count: usize, mut before_wait: impl FnMut()) -> io::Result<bool> {
        debug_assert!(count <= BUFFER_BYTES);
        while self.end - self.start < count {
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            } else if self.start + count > BUFFER_BYTES {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            before_wait();
            let limit = BUFFER_BYTES.min(self.start + count.max(self.read_ahead_bytes));
            match self.source.receive(&mut self.buffer[self.end..limit])? {
                0 => return Ok(false),
                received => self.end += received,
            }
        }
        Ok(true)
    }

    /// Exactly `count` bytes as a vector of their own.
    pub fn payload(&mut self, count: usize, before_wait: impl FnOnce()) -> io::Result<Vec<u8>> {
        self.read_ahead_bytes = match count >= LARGE_PAYLOAD_BYTES {
            true => READ_AHEAD_BYTES_MIN,
            false => BUFFER_BYTES,
        };
        let mut payload = Vec::with_capacity(count);
        let buffered = count.min(self.unread().len());
        payload.extend_from_slice(&self.unread()[..buffered]);
        self.consume(buffered);
        if buffered < count {
            before_wait();
            self.source.receive_payload(&mut payload, count - buffered)?;
        }
        Ok(payload)
    }

    /// Reads `count` bytes and forgets them.
    pub fn skip(&mut self, mut count: usize, mut before_wait: impl FnMut()) -> io::Result<()> {
        while count > 0 {
            if self.unread().is_empty() && !self.fill(1, &mut before_wait)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let skipped = count.min(self.unread().len());
            self.consume(skipped);
            count -= skipped;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives its bytes in pieces of the given sizes, again and again.
    struct Pieces {
        bytes: Vec<u8>,
        position: usize,
        sizes: Vec<usize>,
        calls: usize,
    }

    impl Source for Pieces {
        fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.sizes[self.calls % self.sizes.len()];
            self.calls += 1;
            let count = size.min(buffer.len()).min(self.bytes.len() - self.position);
            buffer[..count].copy_from_slice(&self.bytes[self.position..self.position + count]);
            self.position += count;
            Ok(count)
        }
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_or_doubled(
            sizes in prop::collection::vec(1usize..60_000, 1..6),
            operations in prop::collection::vec((0u8..3, 1usize..100_000), 1..12),
        ) {
            let bytes: Vec<u8> = (0..1_300_000u32).map(|index| (index ^ (index >> 8)) as u8).collect();
            let mut input = Input::new(Pieces { bytes: bytes.clone(), position: 0, sizes, calls: 0 });
            let mut position = 0;
            for (operation, count) in operations {
                match operation {
                    0 => {
                        prop_assert!(input.fill(count, || ()).unwrap());
                        prop_assert_eq!(&input.unread()[..count], &bytes[position..position + count]);
                        input.consume(count);
                    }
                    1 => {
                        prop_assert_eq!(input.payload(count, || ()).unwrap(), &bytes[position..position + count]);
                    }
                    _ => input.skip(count, || ()).unwrap(),
                }
                position += count;
            }
        }
    }

    #[test]
    fn the_end_of_the_stream_is_told() {
        let short = || {
            Input::new(Pieces {
                bytes: vec![1; 10],
                position: 0,
                sizes: vec![4],
                calls: 0,
            })
        };
        assert!(!short().fill(11, || ()).unwrap());
        assert!(short().payload(11, || ()).is_err());
        assert!(short().skip(11, || ()).is_err());
    }
}
