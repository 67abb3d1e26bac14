//! Writing: records are gathered into columns, and a chunk goes out when it is full.

use super::column::{put_varint, zigzag};
use super::{
    CHUNK_CONTENTS, CHUNK_HEADER_BYTES, CHUNK_MAGIC, CHUNK_RECORDS_MAX, CHUNK_SUM_OFFSET, COLUMNS, END_MAGIC,
    FILE_HEADER_BYTES, FILE_MAGIC, RECORD_CONTENTS_MAX, VERSION,
};
use crate::record::Record;
use std::io::{self, ErrorKind, Write};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const ZSTD_LEVEL: i32 = 3;
/// Headers of a chunk, of its columns and of their compression, and the end mark, generously.
const CHUNK_OVERHEAD_BYTES: usize = 2048;

/// What a file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// What `first` and `count` count.
    pub unit_bytes: u32,
    /// Tells traces apart; zero where nobody chose one.
    pub identity: u64,
    /// Microseconds since 1970 at time zero; zero where it is not known.
    pub began_us: u64,
}

impl Default for FileHeader {
    fn default() -> Self {
        Self {
            unit_bytes: crate::BLOCK_BYTES as u32,
            identity: 0,
            began_us: 0,
        }
    }
}

impl FileHeader {
    fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = [0; FILE_HEADER_BYTES];
        bytes[..8].copy_from_slice(FILE_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.unit_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.identity.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.began_us.to_le_bytes());
        let sum = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// Writes a trace. Dropped without [`Self::finish`] it leaves what [`crate::Source::allow_truncated`] can read.
pub struct Writer<W: Write> {
    out: W,
    unit_bytes: u64,
    columns: [Vec<u8>; COLUMNS],
    names: Vec<u64>,
    before: Record,
    records: u32,
    /// In chunks that went out.
    written: u64,
    dropped: u64,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// Those of `out`, as everywhere here.
    pub fn new(mut out: W, header: FileHeader) -> io::Result<Self> {
        out.write_all(&header.encode())?;
        Ok(Self {
            out,
            unit_bytes: u64::from(header.unit_bytes),
            columns: Default::default(),
            names: Vec::new(),
            before: Record::default(),
            records: 0,
            written: 0,
            dropped: 0,
            bytes: FILE_HEADER_BYTES as u64,
        })
    }

    /// Bytes written so far; what waits for its chunk is not in it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the file has at the most when it is finished now: what waits for its chunk counts as it is before
    /// compression.
    pub fn bytes_at_most(&self) -> u64 {
        let gathered = self.columns.iter().map(Vec::len).sum::<usize>() + self.names.len() * 8;
        self.bytes + (gathered + gathered / 128 + CHUNK_OVERHEAD_BYTES) as u64
    }

    /// What is written to; up to a chunk of what was pushed is not in it yet.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Records pushed so far.
    pub fn records(&self) -> u64 {
        self.written + u64::from(self.records)
    }

    /// Notes that records are missing from here on.
    pub fn dropped(&mut self, count: u64) {
        self.dropped += count;
    }

    /// Adds a record; times must not go back.
    pub fn push(&mut self, record: &Record) -> io::Result<()> {
        if record.contents.len() > RECORD_CONTENTS_MAX {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "a record names too many contents",
            ));
        }
        let [time, operation, client, volume, first, count, bytes, named, _] = &mut self.columns;
        let before = &self.before;
        put_varint(time, zigzag(record.time_us.wrapping_sub(before.time_us)));
        operation.push(record.operation as u8);
        put_varint(
            client,
            zigzag(u64::from(record.client).wrapping_sub(u64::from(before.client))),
        );
        put_varint(volume, zigzag(record.volume.wrapping_sub(before.volume)));
        let expected = before.first.wrapping_add(before.count);
        put_varint(first, zigzag(record.first.wrapping_sub(expected)));
        put_varint(count, record.count);
        let whole = record.count.wrapping_mul(self.unit_bytes);
        put_varint(bytes, zigzag(whole.wrapping_sub(record.bytes)));
        put_varint(named, record.contents.len() as u64);
        self.names.extend_from_slice(&record.contents);
        self.before = Record {
            contents: Vec::new(),
            ..*record
        };
        self.records += 1;
        if self.records as usize == CHUNK_RECORDS_MAX || self.names.len() >= CHUNK_CONTENTS {
            self.end_chunk()?;
        }
        Ok(())
    }

    /// Writes what was gathered, full or not: a reader of the unfinished file finds it.
    pub fn end_chunk(&mut self) -> io::Result<()> {
        if self.records == 0 {
            return Ok(());
        }
        self.columns[COLUMNS - 1] = encode_names(&self.names);
        let mut body = Vec::new();
        for column in &mut self.columns {
            let packed = zstd::bulk::compress(column, ZSTD_LEVEL)?;
            body.extend_from_slice(&(column.len() as u32).to_le_bytes());
            body.extend_from_slice(&(packed.len() as u32).to_le_bytes());
            body.extend_from_slice(&packed);
            column.clear();
        }
        self.put_chunk(CHUNK_MAGIC, self.records, &body)?;
        self.names.clear();
        self.before = Record::default();
        self.written += u64::from(self.records);
        self.records = 0;
        Ok(())
    }

    /// Writes the rest and the end mark.
    pub fn finish(mut self) -> io::Result<W> {
        self.end_chunk()?;
        self.put_chunk(END_MAGIC, 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn put_chunk(&mut self, magic: &[u8; 4], records: u32, body: &[u8]) -> io::Result<()> {
        let mut header = [0; CHUNK_HEADER_BYTES];
        header[..4].copy_from_slice(magic);
        header[4..8].copy_from_slice(&records.to_le_bytes());
        header[8..16].copy_from_slice(&self.written.to_le_bytes());
        header[16..24].copy_from_slice(&self.dropped.to_le_bytes());
        header[24..28].copy_from_slice(&(body.len() as u32).to_le_bytes());
        let mut sum = Xxh3::new();
        sum.update(&header[..CHUNK_SUM_OFFSET]);
        sum.update(body);
        header[CHUNK_SUM_OFFSET..].copy_from_slice(&sum.digest().to_le_bytes());
        self.out.write_all(&header)?;
        self.out.write_all(body)?;
        self.bytes += (header.len() + body.len()) as u64;
        Ok(())
    }
}

/// Differences where names follow one another, plain words where they are hashes.
fn encode_names(names: &[u64]) -> Vec<u8> {
    let mut out = vec![0];
    let mut expected = 0u64;
    for name in names {
        put_varint(&mut out, zigzag(name.wrapping_sub(expected)));
        expected = name.wrapping_add(1);
    }
    if out.len() > 1 + names.len() * 8 {
        out.clear();
        out.push(1);
        names.iter().for_each(|name| out.extend_from_slice(&name.to_le_bytes()));
    }
    out
}
