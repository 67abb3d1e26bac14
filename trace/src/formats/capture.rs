//! Captures with the names of what was written: `time_us op block count [contents]` of a disk, and
//! `time_us op file offset bytes [contents]` of a file system.
//!
//! Contents are runs joined by `;`: `a` one block, `a+k` the names a to a+k-1, `a*k` the same name k times. The name 0
//! is a block of zeroes.

use super::{Decoder, Raw};
use crate::error::Fault;
use crate::input::Input;
use crate::reader::BLOCK_BYTES;
use crate::record::Operation;
use crate::text::{Fields, malformed, number};
use std::collections::HashMap;

/// Blocks that one request's contents are named of, at the most: 4 GiB.
const CONTENTS_MAX: u64 = 1 << 20;

/// Operations R, W, D (discard) and F (flush).
pub struct Blocks;

impl Decoder for Blocks {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        let Some(line) = input.line()? else { return Ok(false) };
        let mut fields = Fields::words(line);
        raw.time_us = fields.number("time")?;
        raw.operation = match fields.need("operation")? {
            b"R" => Operation::Read,
            b"W" => Operation::Write,
            b"D" => Operation::Discard,
            b"F" => Operation::Flush,
            other => return Err(malformed(other, "operation", "R, W, D or F")),
        };
        raw.address = fields.number("block")?;
        let count = fields.number("count")?;
        raw.units = Some(count);
        raw.bytes = count.saturating_mul(BLOCK_BYTES);
        if let Some(runs) = fields.next() {
            contents(runs, &mut raw.contents)?;
        }
        Ok(true)
    }

    fn unit_bytes(&self) -> u32 {
        BLOCK_BYTES as u32
    }
}

/// Operations R, W, D (file removed) and T (file cut at the offset); others change no data and are passed over.
#[derive(Default)]
pub struct Files {
    /// Where the data of each file that was seen ends, in bytes.
    ends: HashMap<u64, u64>,
}

impl Decoder for Files {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        loop {
            let Some(line) = input.line()? else { return Ok(false) };
            let mut fields = Fields::words(line);
            raw.time_us = fields.number("time")?;
            let operation = fields.need("operation")?;
            if !matches!(operation, b"R" | b"W" | b"D" | b"T") {
                continue;
            }
            raw.volume = fields.number("file")?;
            raw.address = fields.number("offset")?;
            raw.bytes = fields.number("length")?;
            if let Some(runs) = fields.next() {
                contents(runs, &mut raw.contents)?;
            }
            if self.finish(operation, raw) {
                return Ok(true);
            }
        }
    }

    fn unit_bytes(&self) -> u32 {
        1
    }
}

impl Files {
    /// False when nothing is changed: a cut behind the end.
    fn finish(&mut self, operation: &[u8], raw: &mut Raw) -> bool {
        let end = self.ends.entry(raw.volume).or_insert(0);
        match operation {
            b"R" | b"W" => {
                raw.operation = if operation == b"R" {
                    Operation::Read
                } else {
                    Operation::Write
                };
                *end = (*end).max(raw.address.saturating_add(raw.bytes));
                return true;
            }
            b"D" => raw.address = 0,
            _ => raw.address = raw.address.saturating_add(BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES,
        }
        raw.operation = Operation::Discard;
        raw.bytes = end.saturating_sub(raw.address);
        *end = (*end).min(raw.address);
        raw.bytes > 0
    }
}

pub(super) fn contents(runs: &[u8], names: &mut Vec<u64>) -> Result<(), Fault> {
    for run in runs.split(|byte| *byte == b';') {
        let sign = run.iter().position(|byte| matches!(byte, b'+' | b'*'));
        let (name, count) = match sign {
            Some(sign) => (&run[..sign], number(&run[sign + 1..], "contents")?),
            None => (run, 1),
        };
        let first = number(name, "contents")?;
        let step = u64::from(sign.is_none_or(|sign| run[sign] == b'+'));
        let last = first.checked_add(step.saturating_mul(count));
        if count == 0 || count > CONTENTS_MAX - names.len() as u64 || last.is_none() {
            return Err(malformed(run, "contents", "a run of 1 to 2^20 blocks' contents"));
        }
        names.extend((0..count).map(|index| first + step * index));
    }
    Ok(())
}
