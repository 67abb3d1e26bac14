//! Lines of numbers for block requests: the ARC paper's traces (Megiddo and Modha, FAST 2003) and MQSim's.

use super::{Decoder, Raw};
use crate::error::Fault;
use crate::input::Input;
use crate::record::Operation;
use crate::text::{Fields, malformed};

const SECTOR_BYTES: u32 = 512;

/// `start count 0 number`: reads of `count` sectors. The paper calls a sector a page. No times.
pub struct Arc;

impl Decoder for Arc {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        let Some(line) = input.line()? else { return Ok(false) };
        let mut fields = Fields::words(line);
        raw.address = fields.number("start")?;
        let count = fields.number("count")?;
        raw.units = Some(count);
        raw.bytes = count.saturating_mul(u64::from(SECTOR_BYTES));
        fields.number("reserved field")?;
        fields.number("request number")?;
        Ok(true)
    }

    fn unit_bytes(&self) -> u32 {
        SECTOR_BYTES
    }
}

/// `time_ns device sector count type`, type 0 a write and 1 a read.
pub struct Mqsim;

impl Decoder for Mqsim {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        let Some(line) = input.line()? else { return Ok(false) };
        let mut fields = Fields::words(line);
        raw.time_us = fields.number("time")? / 1_000;
        raw.volume = fields.number("device")?;
        raw.address = fields.number("sector")?;
        let count = fields.number("count")?;
        raw.units = Some(count);
        raw.bytes = count.saturating_mul(u64::from(SECTOR_BYTES));
        raw.operation = match fields.need("type")? {
            b"0" => Operation::Write,
            b"1" => Operation::Read,
            other => return Err(malformed(other, "type", "0 (write) or 1 (read)")),
        };
        Ok(true)
    }

    fn unit_bytes(&self) -> u32 {
        SECTOR_BYTES
    }

    fn has_absolute_time(&self) -> bool {
        true
    }
}
