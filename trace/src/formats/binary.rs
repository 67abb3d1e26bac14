//! Records of fixed length: libCacheSim's `oracleGeneral` and VMware's `vscsiStats`.

use super::{Decoder, Raw, scsi_operation, u16_at, u32_at, u64_at};
use crate::error::Fault;
use crate::input::Input;
use crate::reader::BLOCK_BYTES;

pub const ORACLE_BYTES: usize = 24;
pub const VSCSI_1_BYTES: usize = 32;
pub const VSCSI_2_BYTES: usize = 40;

/// Time u32 in seconds, id u64, bytes u32, number of the next request for the id i64; all of them reads.
pub struct OracleGeneral;

impl Decoder for OracleGeneral {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        let Some(bytes) = input.take(ORACLE_BYTES, "a record")? else {
            return Ok(false);
        };
        raw.time_us = u64::from(u32_at(bytes, 0)) * 1_000_000;
        raw.address = u64_at(bytes, 4);
        raw.bytes = u64::from(u32_at(bytes, 12));
        Ok(true)
    }

    fn unit_bytes(&self) -> u32 {
        BLOCK_BYTES as u32
    }

    fn has_absolute_time(&self) -> bool {
        true
    }
}

/// Version 1: number u32, bytes u32, elements u32, command u16, version u16, sector u64, time u64 in microseconds.
/// Version 2: command u16, version u16, number u32, bytes u32, elements u32, sector u64, time u64, duration u64.
/// The version is the high byte of its field. Commands that move no data are passed over.
pub struct Vscsi {
    version: u8,
}

impl Vscsi {
    pub fn open(input: &mut Input) -> Result<Self, Fault> {
        let head = input.peek(VSCSI_2_BYTES)?;
        let version = vscsi_version(head).ok_or(Fault::Missing { field: "the version" })?;
        Ok(Self { version })
    }
}

/// The version of the records that `head` begins with.
pub fn vscsi_version(head: &[u8]) -> Option<u8> {
    if head.len() >= VSCSI_1_BYTES && head[15] == 1 && scsi_operation(head[12]).is_some() {
        Some(1)
    } else if head.len() >= VSCSI_2_BYTES && head[3] == 2 && scsi_operation(head[0]).is_some() {
        Some(2)
    } else {
        None
    }
}

impl Decoder for Vscsi {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        loop {
            let length = if self.version == 1 {
                VSCSI_1_BYTES
            } else {
                VSCSI_2_BYTES
            };
            let Some(bytes) = input.take(length, "a record")? else {
                return Ok(false);
            };
            let (command, version, size) = match self.version {
                1 => (u16_at(bytes, 12), bytes[15], u32_at(bytes, 4)),
                _ => (u16_at(bytes, 0), bytes[3], u32_at(bytes, 8)),
            };
            if version != self.version {
                return Err(Fault::OutOfRange {
                    field: "version",
                    value: u64::from(version),
                    permitted: "the version of the first record",
                });
            }
            let Some(operation) = scsi_operation(command as u8) else {
                continue;
            };
            raw.operation = operation;
            raw.bytes = u64::from(size);
            raw.address = u64_at(bytes, 16);
            raw.time_us = u64_at(bytes, 24);
            return Ok(true);
        }
    }

    fn unit_bytes(&self) -> u32 {
        512
    }

    fn has_absolute_time(&self) -> bool {
        true
    }
}
