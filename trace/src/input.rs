//! Bytes of a trace, decompressed as their first bytes say, with the position kept for errors.

use crate::error::{Fault, Place};
#[cfg(feature = "decompress")]
use std::io::BufReader;
use std::io::{self, ErrorKind, Read};

/// Longer lines are refused: no format has them, and a file of zeroes is one line.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Memory that a compressed file may ask its decompressor for: 128 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
#[cfg(feature = "decompress")]
const XZ_MEMORY_KIB_MAX: u32 = 1 << 17;
const READ_BYTES: usize = 1 << 16;

pub struct Input {
    reader: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    is_at_end: bool,
    /// Of the first byte in the buffer that was not consumed.
    offset: u64,
    /// Lines consumed.
    lines: u64,
    /// Where the record now being read began.
    record_offset: u64,
}

impl Input {
    pub fn new(mut source: impl Read + Send + 'static) -> io::Result<Self> {
        let mut head = [0; 6];
        let length = read_full(&mut source, &mut head)?;
        let whole = io::Cursor::new(head[..length].to_vec()).chain(source);
        let reader: Box<dyn Read + Send> = match &head[..length] {
            #[cfg(feature = "decompress")]
            [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::new(whole))),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let mut decoder = zstd::stream::read::Decoder::new(whole)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
            #[cfg(feature = "decompress")]
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Box::new(lzma_rust2::XzReader::new_mem_limit(
                BufReader::new(whole),
                true,
                XZ_MEMORY_KIB_MAX,
            )),
            _ => Box::new(whole),
        };
        Ok(Self {
            reader,
            buffer: Vec::new(),
            start: 0,
            is_at_end: false,
            offset: 0,
            lines: 0,
            record_offset: 0,
        })
    }

    /// The next bytes without consuming them: `count`, or fewer at the end.
    pub fn peek(&mut self, count: usize) -> Result<&[u8], Fault> {
        while self.buffer.len() - self.start < count && !self.is_at_end {
            self.read_more()?;
        }
        let end = self.buffer.len().min(self.start + count);
        Ok(&self.buffer[self.start..end])
    }

    /// The next `count` bytes; `None` at the end.
    #[inline]
    pub fn take(&mut self, count: usize, what: &'static str) -> Result<Option<&[u8]>, Fault> {
        self.record_offset = self.offset;
        self.part(count, what)
    }

    /// As [`Self::take`], but in the middle of a record: the end is not expected here.
    pub fn more(&mut self, count: usize, what: &'static str) -> Result<&[u8], Fault> {
        match self.part(count, what)? {
            Some(bytes) => Ok(bytes),
            None => Err(Fault::Truncated(what)),
        }
    }

    #[inline]
    fn part(&mut self, count: usize, what: &'static str) -> Result<Option<&[u8]>, Fault> {
        if self.buffer.len() - self.start < count {
            match self.peek(count)?.len() {
                0 => return Ok(None),
                available if available < count => return Err(Fault::Truncated(what)),
                _ => {}
            }
        }
        let from = self.start;
        self.consume(count);
        Ok(Some(&self.buffer[from..from + count]))
    }

    /// The next line without its end; `None` at the end. A last line that does not end is taken to be cut.
    pub fn line(&mut self) -> Result<Option<&[u8]>, Fault> {
        let mut searched = 0;
        let length = loop {
            let bytes = &self.buffer[self.start..];
            if let Some(found) = bytes[searched..].iter().position(|byte| *byte == b'\n') {
                break searched + found;
            }
            searched = bytes.len();
            if searched > LINE_BYTES_MAX {
                return Err(Fault::LineTooLong { max: LINE_BYTES_MAX });
            }
            if self.is_at_end {
                return if searched == 0 {
                    Ok(None)
                } else {
                    self.lines += 1;
                    Err(Fault::Truncated("a line"))
                };
            }
            self.read_more()?;
        };
        let from = self.start;
        self.consume(length + 1);
        self.lines += 1;
        let line = &self.buffer[from..from + length];
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// Where the latest record or line is.
    pub fn place(&self) -> Place {
        if self.lines > 0 {
            Place::Line(self.lines)
        } else {
            Place::Offset(self.record_offset)
        }
    }

    /// Where what could be had ends.
    pub fn end(&self) -> Place {
        Place::Offset(self.offset + (self.buffer.len() - self.start) as u64)
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        self.offset += count as u64;
    }

    fn read_more(&mut self) -> Result<(), Fault> {
        if self.start > READ_BYTES && self.start * 2 > self.buffer.len() {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let filled = self.buffer.len();
        self.buffer.resize(filled + READ_BYTES, 0);
        let result = loop {
            match self.reader.read(&mut self.buffer[filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let count = *result.as_ref().unwrap_or(&0);
        self.buffer.truncate(filled + count);
        match result {
            Ok(0) => self.is_at_end = true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(Fault::Truncated("compressed data")),
            Err(error) => return Err(Fault::Io(error)),
        }
        Ok(())
    }
}

fn read_full(source: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match source.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
