//! Traces of names: what is asked for has no address, so neighbours need not be neighbours. Seen as blocks, a name is
//! a block's number.

use super::{Decoder, Raw};
use crate::error::Fault;
use crate::input::Input;
use crate::reader::BLOCK_BYTES;
use crate::text::{Fields, number, time_us};

/// One number a line. A line `*`, which ends a run of the LIRS paper's traces, is passed over.
pub struct Ids;

impl Decoder for Ids {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        loop {
            let Some(line) = input.line()? else { return Ok(false) };
            match line.trim_ascii() {
                b"" | b"*" => {}
                word => {
                    one_block(number(word, "id")?, raw);
                    return Ok(true);
                }
            }
        }
    }

    fn unit_bytes(&self) -> u32 {
        BLOCK_BYTES as u32
    }
}

/// Numbers of four bytes.
pub struct Words(pub fn([u8; 4]) -> u32);

impl Decoder for Words {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        let Some(bytes) = input.take(4, "a number")? else {
            return Ok(false);
        };
        let mut word = [0; 4];
        word.copy_from_slice(bytes);
        one_block(u64::from(self.0(word)), raw);
        Ok(true)
    }

    fn unit_bytes(&self) -> u32 {
        BLOCK_BYTES as u32
    }
}

fn one_block(id: u64, raw: &mut Raw) {
    raw.address = id;
    raw.units = Some(1);
    raw.bytes = BLOCK_BYTES;
}

/// `time_s id bytes`.
pub struct Objects;

impl Decoder for Objects {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        let Some(line) = input.line()? else { return Ok(false) };
        let mut fields = Fields::words(line);
        raw.time_us = time_us(fields.need("time")?, 1_000_000_000)?;
        raw.address = fields.number("id")?;
        raw.bytes = fields.number("bytes")?;
        Ok(true)
    }

    fn unit_bytes(&self) -> u32 {
        BLOCK_BYTES as u32
    }

    fn has_absolute_time(&self) -> bool {
        true
    }
}
