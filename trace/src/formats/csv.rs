//! Comma-separated values: columns named by the first line, and the Microsoft Research traces, which have no such line.

use super::{Decoder, Raw, capture::contents, scsi_operation};
use crate::error::Fault;
use crate::input::Input;
use crate::record::Operation;
use crate::text::{Fields, hexadecimal, malformed, number, time_us};
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    /// What one is, in nanoseconds.
    Time(u64),
    Operation,
    Address,
    Bytes,
    Count,
    Volume,
    Client,
    Contents,
    Other,
}

/// Columns in any order: `time` (seconds; `time_ms`, `time_us`, `time_ns`), `op`, one of `lbn` (sectors), `offset`
/// (bytes), `block` (4 KiB) and `id`, one of `size` (bytes) and `count` (of the address's unit), `volume`, `client`,
/// `contents` (names of what a write's blocks contain, as in captures; may be empty).
/// Others are passed over. Without `op` all are reads.
pub struct Csv {
    columns: Vec<Column>,
    unit_bytes: u32,
    names: Names,
}

/// Columns beyond these are not looked at.
const COLUMNS_MAX: usize = 64;

impl Csv {
    pub fn open(input: &mut Input) -> Result<Self, Fault> {
        let line = input.line()?.ok_or(Fault::Truncated("the line of names"))?;
        let mut unit_bytes = None;
        let mut columns = Vec::new();
        for name in Fields::values(line).take(COLUMNS_MAX) {
            let name = String::from_utf8_lossy(name).to_lowercase();
            let (column, unit) = column_of(&name);
            columns.push(column);
            unit_bytes = unit_bytes.or(unit);
        }
        let Some(unit_bytes) = unit_bytes else {
            return Err(Fault::Missing {
                field: "a column lbn, offset, block or id",
            });
        };
        Ok(Self {
            columns,
            unit_bytes,
            names: Names::default(),
        })
    }
}

fn column_of(name: &str) -> (Column, Option<u32>) {
    match name {
        "time" | "timestamp" | "time_s" | "ts" => (Column::Time(1_000_000_000), None),
        "time_ms" => (Column::Time(1_000_000), None),
        "time_us" => (Column::Time(1_000), None),
        "time_ns" => (Column::Time(1), None),
        "op" | "operation" | "type" | "cmd" => (Column::Operation, None),
        "lbn" | "lba" | "sector" => (Column::Address, Some(512)),
        "offset" => (Column::Address, Some(1)),
        "block" | "id" | "obj_id" => (Column::Address, Some(4096)),
        "size" | "bytes" | "length" | "obj_size" => (Column::Bytes, None),
        "count" | "blocks" | "sectors" => (Column::Count, None),
        "volume" | "disk" | "device" | "lun" | "file" => (Column::Volume, None),
        "client" | "host" | "process" | "pid" => (Column::Client, None),
        "contents" => (Column::Contents, None),
        _ => (Column::Other, None),
    }
}

impl Decoder for Csv {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        let Some(line) = input.line()? else { return Ok(false) };
        let mut fields = Fields::values(line);
        for column in &self.columns {
            let field = fields.need("a column")?;
            match column {
                Column::Time(unit_ns) => raw.time_us = time_us(field, *unit_ns)?,
                Column::Operation => raw.operation = operation(field)?,
                Column::Address => raw.address = number(field, "address")?,
                Column::Bytes => raw.bytes = number(field, "size")?,
                Column::Count => raw.units = Some(number(field, "count")?),
                Column::Volume => raw.volume = self.names.number_of(field),
                Column::Client => raw.client = self.names.number_of(field) as u32,
                Column::Contents if field.is_empty() => {}
                Column::Contents => contents(field, &mut raw.contents)?,
                Column::Other => {}
            }
        }
        if let Some(units) = raw.units
            && raw.bytes == 0
        {
            raw.bytes = units.saturating_mul(u64::from(self.unit_bytes));
        }
        Ok(true)
    }

    fn unit_bytes(&self) -> u32 {
        self.unit_bytes
    }

    fn has_absolute_time(&self) -> bool {
        true
    }
}

/// Words, or SCSI's commands in hexadecimal.
fn operation(field: &[u8]) -> Result<Operation, Fault> {
    let lower = field.to_ascii_lowercase();
    let by_word = match &lower[..] {
        b"r" | b"read" | b"get" => Some(Operation::Read),
        b"w" | b"write" | b"put" | b"set" => Some(Operation::Write),
        b"d" | b"t" | b"discard" | b"trim" | b"unmap" | b"delete" => Some(Operation::Discard),
        b"f" | b"flush" | b"sync" => Some(Operation::Flush),
        _ => None,
    };
    let by_command = || scsi_operation(u8::try_from(hexadecimal(field, "operation").ok()?).ok()?);
    by_word
        .or_else(by_command)
        .ok_or_else(|| malformed(field, "operation", "a word for read, write, discard or flush"))
}

/// `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: times in 100 ns since 1601, offset and size in bytes.
#[derive(Default)]
pub struct Msr {
    names: Names,
}

impl Decoder for Msr {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        let Some(line) = input.line()? else { return Ok(false) };
        let mut fields = Fields::values(line);
        raw.time_us = fields.number("time")? / 10;
        let host = fields.need("host")?;
        raw.client = self.names.number_of(host) as u32;
        let disk = fields.number("disk")?;
        raw.volume = (u64::from(raw.client) << 32) | (disk & 0xffff_ffff);
        raw.operation = operation(fields.need("type")?)?;
        raw.address = fields.number("offset")?;
        raw.bytes = fields.number("size")?;
        Ok(true)
    }

    fn unit_bytes(&self) -> u32 {
        1
    }

    fn has_absolute_time(&self) -> bool {
        true
    }
}

/// Numbers for names: a number is its own, words are numbered as they come.
#[derive(Default)]
pub struct Names {
    numbers: HashMap<Vec<u8>, u64>,
}

impl Names {
    pub fn number_of(&mut self, name: &[u8]) -> u64 {
        if let Ok(number) = number(name, "name") {
            return number;
        }
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let next = self.numbers.len() as u64;
        self.numbers.insert(name.to_vec(), next);
        next
    }
}
