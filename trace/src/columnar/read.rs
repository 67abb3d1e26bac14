//! Reading: chunk by chunk, each checked as a whole before any record of it is handed out.

use super::column::Column;
use super::{
    BODY_BYTES_MAX, CHUNK_HEADER_BYTES, CHUNK_MAGIC, CHUNK_RECORDS_MAX, CHUNK_SUM_OFFSET, COLUMN_BYTES_MAX, COLUMNS,
    END_MAGIC, FILE_HEADER_BYTES, FILE_MAGIC, RECORD_CONTENTS_MAX, VERSION,
};
use crate::error::Fault;
use crate::formats::{Decoder, Raw, u32_at, u64_at};
use crate::input::Input;
use crate::record::Operation;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const UNIT_BYTES_MAX: u32 = 1 << 24;

pub struct Chunks {
    unit_bytes: u32,
    columns: [Column; COLUMNS],
    /// Of the chunk, not handed out yet.
    left: u32,
    /// Handed out or to be handed out from the chunks read.
    records: u64,
    dropped: u64,
    are_names_plain: bool,
    before: Before,
    is_over: bool,
}

/// What the differences are to.
#[derive(Default)]
struct Before {
    time_us: u64,
    client: u64,
    volume: u64,
    end: u64,
    /// One more than the last name.
    name: u64,
}

impl Chunks {
    pub fn open(input: &mut Input) -> Result<Self, Fault> {
        let bytes = match input.take(FILE_HEADER_BYTES, "the file's header")? {
            Some(bytes) if bytes.starts_with(FILE_MAGIC) => bytes,
            Some(_) => return Err(Fault::Missing { field: "the magic" }),
            None => return Err(Fault::Truncated("the file's header")),
        };
        if u64_at(bytes, 56) != xxh3_64(&bytes[..56]) {
            return Err(Fault::Checksum {
                what: "the file's header",
            });
        }
        bounded("version", u32_at(bytes, 8), VERSION, VERSION, "1")?;
        let unit_bytes = u32_at(bytes, 12);
        bounded("unit", unit_bytes, 1, UNIT_BYTES_MAX, "1 to 2^24 bytes")?;
        Ok(Self {
            unit_bytes,
            columns: Default::default(),
            left: 0,
            records: 0,
            dropped: 0,
            are_names_plain: false,
            before: Before::default(),
            is_over: false,
        })
    }

    /// False at the end mark.
    fn next_chunk(&mut self, input: &mut Input) -> Result<bool, Fault> {
        let Some(bytes) = input.take(CHUNK_HEADER_BYTES, "a chunk's header")? else {
            return Err(Fault::Truncated("the trace: it has no end mark"));
        };
        let mut header = [0; CHUNK_HEADER_BYTES];
        header.copy_from_slice(bytes);
        let is_end = &header[..4] == END_MAGIC;
        if !is_end && &header[..4] != CHUNK_MAGIC {
            return Err(Fault::Missing {
                field: "a chunk's magic",
            });
        }
        let body_bytes = u32_at(&header, 24);
        bounded("chunk", body_bytes, 0, BODY_BYTES_MAX as u32, "a chunk's length")?;
        let body = input.more(body_bytes as usize, "a chunk")?;
        let mut sum = Xxh3::new();
        sum.update(&header[..CHUNK_SUM_OFFSET]);
        sum.update(body);
        if sum.digest() != u64_at(&header, CHUNK_SUM_OFFSET) {
            return Err(Fault::Checksum { what: "a chunk" });
        }
        let (records, number) = (u32_at(&header, 4), u64_at(&header, 8));
        if number != self.records {
            return Err(Fault::OutOfRange {
                field: "number of the first record",
                value: number,
                permitted: "the one that follows",
            });
        }
        let (min, max) = if is_end { (0, 0) } else { (1, CHUNK_RECORDS_MAX as u32) };
        bounded("records", records, min, max, "the records of a chunk")?;
        self.dropped = u64_at(&header, 16);
        if is_end {
            return self.end(input);
        }
        self.columns = columns(body)?;
        self.are_names_plain = match self.columns[COLUMNS - 1].byte()? {
            0 => false,
            1 => true,
            other => return bounded("encoding of contents", u32::from(other), 0, 1, "0 or 1").map(|()| false),
        };
        self.before = Before::default();
        self.left = records;
        self.records += u64::from(records);
        Ok(true)
    }

    fn end(&mut self, input: &mut Input) -> Result<bool, Fault> {
        self.is_over = true;
        match input.peek(1)?.is_empty() {
            true => Ok(false),
            false => Err(Fault::OutOfRange {
                field: "length",
                value: self.records,
                permitted: "the file's: there is more behind its end mark",
            }),
        }
    }

    fn record(&mut self, raw: &mut Raw) -> Result<(), Fault> {
        let [time, operation, client, volume, first, count, bytes, named, names] = &mut self.columns;
        let before = &mut self.before;
        before.time_us = before.time_us.wrapping_add(time.difference()?);
        before.client = before.client.wrapping_add(client.difference()?);
        before.volume = before.volume.wrapping_add(volume.difference()?);
        raw.time_us = before.time_us;
        raw.operation = match operation.byte()? {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Discard,
            3 => Operation::Flush,
            other => return bounded("operation", u32::from(other), 0, 3, "0 to 3"),
        };
        raw.client = before.client as u32;
        raw.volume = before.volume;
        raw.address = before.end.wrapping_add(first.difference()?);
        let units = count.varint()?;
        raw.units = Some(units);
        raw.bytes = units
            .wrapping_mul(u64::from(self.unit_bytes))
            .wrapping_sub(bytes.difference()?);
        before.end = raw.address.wrapping_add(units);
        let named = named.varint()?;
        if named > RECORD_CONTENTS_MAX as u64 {
            return Err(Fault::OutOfRange {
                field: "contents",
                value: named,
                permitted: "2^20 at the most",
            });
        }
        for _ in 0..named {
            let name = match self.are_names_plain {
                true => names.word()?,
                false => before.name.wrapping_add(names.difference()?),
            };
            before.name = name.wrapping_add(1);
            raw.contents.push(name);
        }
        Ok(())
    }
}

impl Decoder for Chunks {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        if self.left == 0 && (self.is_over || !self.next_chunk(input)?) {
            return Ok(false);
        }
        self.record(raw)?;
        self.left -= 1;
        if self.left == 0 && !self.columns.iter().all(Column::is_empty) {
            return Err(Fault::OutOfRange {
                field: "length of a column",
                value: self.records,
                permitted: "that of the records",
            });
        }
        Ok(true)
    }

    fn unit_bytes(&self) -> u32 {
        self.unit_bytes
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn columns(mut body: &[u8]) -> Result<[Column; COLUMNS], Fault> {
    let mut columns: [Column; COLUMNS] = Default::default();
    for column in &mut columns {
        if body.len() < 8 {
            return Err(Fault::Truncated("a chunk's columns"));
        }
        let (length, packed) = (u32_at(body, 0), u32_at(body, 4) as usize);
        bounded("column", length, 0, COLUMN_BYTES_MAX as u32, "a column's length")?;
        body = &body[8..];
        if packed > body.len() {
            return Err(Fault::Truncated("a chunk's columns"));
        }
        let bytes = zstd::bulk::decompress(&body[..packed], length as usize)?;
        if bytes.len() != length as usize {
            return Err(Fault::Truncated("a column"));
        }
        *column = Column::new(bytes);
        body = &body[packed..];
    }
    match body.len() {
        0 => Ok(columns),
        left => bounded("chunk", left as u32, 0, 0, "as long as its columns").map(|()| columns),
    }
}

fn bounded(field: &'static str, value: u32, min: u32, max: u32, permitted: &'static str) -> Result<(), Fault> {
    match (min..=max).contains(&value) {
        true => Ok(()),
        false => Err(Fault::OutOfRange {
            field,
            value: u64::from(value),
            permitted,
        }),
    }
}
