//! Records, the pointers that name sealed nodes, and their bytes.

use crate::Failure;

/// A run of blocks that map to as many PVBNs, or one key of another kind with the number that its payload is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub start: u64,
    pub value: u64,
    pub length: u32,
    /// The checkpoint that wrote it; only runs with versions use it.
    pub version: u32,
}

impl Record {
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.length)
    }

    /// What is left of it from `start` on.
    pub fn from(&self, start: u64) -> Self {
        let skipped = start - self.start;
        Self {
            start,
            value: self.value + skipped,
            length: self.length - skipped as u32,
            ..*self
        }
    }

    /// What is left of it below `end`.
    pub fn until(&self, end: u64) -> Self {
        Self {
            length: (end - self.start) as u32,
            ..*self
        }
    }
}

/// What names a sealed node: where it lies, when it was born, and the tag that it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    pub object: u32,
    pub offset: u32,
    pub bytes: u32,
    pub birth: u32,
    pub tag: [u8; 16],
}

pub fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

pub fn varint_bytes(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

fn zigzag(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

pub struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    pub fn varint(&mut self) -> Result<u64, Failure> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or("a node ends within a number")?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number of more than 64 bits".into())
    }

    pub fn skip(&mut self, count: usize) -> Result<&[u8], Failure> {
        let (skipped, rest) = self.0.split_at_checked(count).ok_or("a node ends within a field")?;
        self.0 = rest;
        Ok(skipped)
    }
}

pub fn put_pointer(bytes: &mut Vec<u8>, pointer: &Pointer) {
    for number in [pointer.object, pointer.offset, pointer.bytes, pointer.birth] {
        put_varint(bytes, number.into());
    }
    bytes.extend_from_slice(&pointer.tag);
}

pub fn pointer(reader: &mut Reader) -> Result<Pointer, Failure> {
    Ok(Pointer {
        object: reader.varint()? as u32,
        offset: reader.varint()? as u32,
        bytes: reader.varint()? as u32,
        birth: reader.varint()? as u32,
        tag: reader.skip(16)?.try_into()?,
    })
}

/// How records are written: each relative to where the one before ends, in key and in value.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordCodec {
    /// Bytes of incompressible payload behind each record, as entries and descriptors have them.
    pub payload_bytes: usize,
    pub has_versions: bool,
}

/// What the next record is written relative to.
#[derive(Clone, Copy, Default)]
struct Position {
    key: u64,
    value: u64,
    version: u64,
}

impl Position {
    fn after(record: &Record) -> Self {
        // Versions of one key follow each other, so the key starts where the one before does.
        Self {
            key: record.start,
            value: record.value + u64::from(record.length),
            version: record.version.into(),
        }
    }
}

impl RecordCodec {
    fn fields(self, position: Position, record: &Record) -> [u64; 4] {
        [
            record.start.wrapping_sub(position.key),
            record.length.into(),
            zigzag(record.value.wrapping_sub(position.value) as i64),
            zigzag(u64::from(record.version).wrapping_sub(position.version) as i64),
        ]
    }

    fn field_count(self) -> usize {
        if self.has_versions { 4 } else { 3 }
    }

    /// Bytes of each record in turn.
    pub fn sizes(self, records: &[Record]) -> impl Iterator<Item = usize> {
        let mut position = Position::default();
        records.iter().map(move |record| {
            let fields = self.fields(position, record);
            position = Position::after(record);
            let numbers = fields[..self.field_count()].iter();
            numbers.map(|&number| varint_bytes(number)).sum::<usize>() + self.payload_bytes
        })
    }

    pub fn encode(self, records: &[Record]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(records.len() * (10 + self.payload_bytes));
        put_varint(&mut bytes, records.len() as u64);
        let mut position = Position::default();
        for record in records {
            for &number in &self.fields(position, record)[..self.field_count()] {
                put_varint(&mut bytes, number);
            }
            position = Position::after(record);
            let from = bytes.len();
            bytes.resize(from + self.payload_bytes, 0);
            if self.payload_bytes > 0 {
                tombolo_base::Prng::new(record.value).fill(&mut bytes[from..]);
            }
        }
        bytes
    }

    pub fn decode(self, bytes: &[u8]) -> Result<Vec<Record>, Failure> {
        let mut reader = Reader(bytes);
        let count = reader.varint()?;
        let mut records = Vec::with_capacity(count as usize);
        let mut position = Position::default();
        for _ in 0..count {
            let start = position.key.wrapping_add(reader.varint()?);
            let length = reader.varint()? as u32;
            let value = position.value.wrapping_add(unzigzag(reader.varint()?));
            let version = if self.has_versions {
                position.version.wrapping_add(unzigzag(reader.varint()?)) as u32
            } else {
                0
            };
            reader.skip(self.payload_bytes)?;
            let record = Record {
                start,
                value,
                length,
                version,
            };
            position = Position::after(&record);
            records.push(record);
        }
        Ok(records)
    }
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// Lays `newer` over `older`; both sorted, neither overlapping itself.
pub fn merge(older: &[Record], newer: &[Record]) -> Vec<Record> {
    let mut merged: Vec<Record> = Vec::with_capacity(older.len() + newer.len());
    let mut rest = older.iter().copied();
    let mut current = rest.next();
    for new in newer {
        while let Some(old) = current {
            if old.start >= new.end() {
                break;
            }
            if old.start < new.start {
                merged.push(old.until(old.end().min(new.start)));
            }
            if old.end() > new.end() {
                current = Some(old.from(new.end()));
                break;
            }
            current = rest.next();
        }
        merged.push(*new);
    }
    merged.extend(current);
    merged.extend(rest);
    merged
}

/// The record that covers `key`, if any.
pub fn find(records: &[Record], key: u64) -> Option<u64> {
    let after = records.partition_point(|record| record.start <= key);
    let record = records.get(after.checked_sub(1)?)?;
    (key < record.end()).then(|| record.from(key).value)
}

/// The part of `records` from `low` to below `high`, records across a border cut.
pub fn range(records: &[Record], low: u64, high: u64) -> Vec<Record> {
    let from = records.partition_point(|record| record.end() <= low);
    let to = records.partition_point(|record| record.start < high);
    let mut part = records[from..to.max(from)].to_vec();
    if let Some(first) = part.first_mut()
        && first.start < low
    {
        *first = first.from(low);
    }
    if let Some(last) = part.last_mut()
        && last.end() > high
    {
        *last = last.until(high);
    }
    part
}
