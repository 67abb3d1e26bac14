//! The kernel's block traces: what `blktrace` writes for each CPU (`struct blk_io_trace`, linux/blktrace_api.h, version
//! 7) and what `blkparse` prints. Taken are the requests as they were queued, action `Q`. Times count from the trace's
//! beginning; several CPUs' files are merged by `blkparse`, not here.

use super::{Decoder, Raw, u16_at, u32_at, u64_at};
use crate::error::Fault;
use crate::input::Input;
use crate::record::Operation;
use crate::text::{Fields, malformed, number, time_us};

pub const BLKTRACE_BYTES: usize = 48;
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const SECTOR_BYTES: u32 = 512;
const ACTION_QUEUE: u32 = 1;
const CATEGORY_WRITE: u32 = 1 << 1;
const CATEGORY_FLUSH: u32 = 1 << 2;
const CATEGORY_NOTIFY: u32 = 1 << 10;
const CATEGORY_DISCARD: u32 = 1 << 13;

/// Magic and version u32, number u32, time u64 in nanoseconds, sector u64, bytes u32, action u32 (categories in the
/// high half), process u32, device u32, CPU u32, error u16, length of what follows u16.
pub struct Blktrace {
    is_big_endian: bool,
}

/// Whether the records are big-endian; `None`: it is no such trace.
pub fn blktrace_order(head: &[u8]) -> Option<bool> {
    let head: [u8; 4] = head.get(..4)?.try_into().ok()?;
    if u32::from_le_bytes(head) == MAGIC | VERSION {
        Some(false)
    } else if u32::from_be_bytes(head) == MAGIC | VERSION {
        Some(true)
    } else {
        None
    }
}

impl Blktrace {
    pub fn open(input: &mut Input) -> Result<Self, Fault> {
        let is_big_endian = blktrace_order(input.peek(4)?).ok_or(Fault::Missing { field: "the magic" })?;
        Ok(Self { is_big_endian })
    }

    fn header(&self, bytes: &[u8]) -> Header {
        let word = |offset| match self.is_big_endian {
            true => u32_at(bytes, offset).swap_bytes(),
            false => u32_at(bytes, offset),
        };
        let long = |offset| match self.is_big_endian {
            true => u64_at(bytes, offset).swap_bytes(),
            false => u64_at(bytes, offset),
        };
        let follows = match self.is_big_endian {
            true => u16_at(bytes, 46).swap_bytes(),
            false => u16_at(bytes, 46),
        };
        Header {
            magic: word(0),
            time_ns: long(8),
            sector: long(16),
            bytes: word(24),
            action: word(28),
            process: word(32),
            device: word(36),
            follows,
        }
    }
}

struct Header {
    magic: u32,
    time_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    process: u32,
    device: u32,
    follows: u16,
}

impl Decoder for Blktrace {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        loop {
            let Some(bytes) = input.take(BLKTRACE_BYTES, "a record")? else {
                return Ok(false);
            };
            let header = self.header(bytes);
            if header.magic != MAGIC | VERSION {
                return Err(Fault::OutOfRange {
                    field: "magic",
                    value: u64::from(header.magic),
                    permitted: "that of a record of version 7",
                });
            }
            input.more(usize::from(header.follows), "a record's payload")?;
            let category = header.action >> 16;
            if header.action & 0xffff != ACTION_QUEUE || category & CATEGORY_NOTIFY != 0 {
                continue;
            }
            raw.operation = if category & CATEGORY_DISCARD != 0 {
                Operation::Discard
            } else if header.bytes == 0 && category & CATEGORY_FLUSH != 0 {
                Operation::Flush
            } else if category & CATEGORY_WRITE != 0 {
                Operation::Write
            } else {
                Operation::Read
            };
            raw.time_us = header.time_ns / 1_000;
            raw.client = header.process;
            raw.volume = u64::from(header.device);
            raw.address = header.sector;
            raw.bytes = u64::from(header.bytes);
            return Ok(true);
        }
    }

    fn unit_bytes(&self) -> u32 {
        SECTOR_BYTES
    }
}

/// `major,minor cpu number seconds process action kind sector + count [command]`; other lines are passed over.
pub struct Blkparse;

impl Decoder for Blkparse {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        loop {
            let Some(line) = input.line()? else { return Ok(false) };
            let mut fields = Fields::words(line);
            let Some(device) = fields.next().and_then(device_of) else {
                continue;
            };
            fields.need("CPU")?;
            fields.need("number")?;
            let time = fields.need("time")?;
            let process = fields.need("process")?;
            if fields.need("action")? != b"Q" {
                continue;
            }
            raw.operation = kind(fields.need("kind")?)?;
            raw.time_us = time_us(time, 1_000_000_000)?;
            raw.client = number(process, "process")? as u32;
            raw.volume = device;
            if raw.operation == Operation::Flush {
                return Ok(true);
            }
            raw.address = fields.number("sector")?;
            match fields.need("plus sign")? {
                b"+" => {}
                other => return Err(malformed(other, "plus sign", "+")),
            }
            let count = fields.number("count")?;
            raw.units = Some(count);
            raw.bytes = count.saturating_mul(u64::from(SECTOR_BYTES));
            return Ok(true);
        }
    }

    fn unit_bytes(&self) -> u32 {
        SECTOR_BYTES
    }
}

/// `major,minor` as the kernel's number.
fn device_of(word: &[u8]) -> Option<u64> {
    let comma = word.iter().position(|byte| *byte == b',')?;
    let major = number(&word[..comma], "device").ok()?;
    let minor = number(&word[comma + 1..], "device").ok()?;
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

/// Letters of `blkparse`: D discard, W write, R read, F flush; the others (S, M, A, N) qualify. A write may carry a
/// flush before or behind it.
fn kind(word: &[u8]) -> Result<Operation, Fault> {
    let has = |letter| word.contains(&letter);
    if has(b'D') {
        Ok(Operation::Discard)
    } else if has(b'W') {
        Ok(Operation::Write)
    } else if has(b'R') {
        Ok(Operation::Read)
    } else if has(b'F') || has(b'N') {
        Ok(Operation::Flush)
    } else {
        Err(malformed(word, "kind", "made of the letters R W D F S M A N"))
    }
}
