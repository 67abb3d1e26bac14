//! Readers for the formats that block traces come in. Blocks are named by 64-bit ids.

use std::fs;
use std::io;
use std::path::Path;

/// The ids of a trace, in order of access. The file's name tells the format:
/// `.lis` (first page, pages, ignored, number; in text, a line a request), `.oracleGeneral.bin` (24-byte records: time,
/// id, size, next access), `.u32` (one little-endian id after another). `.zst` is taken off first.
pub fn read(path: &Path) -> io::Result<Vec<u64>> {
    let mut bytes = fs::read(path)?;
    let mut name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(inner) = name.strip_suffix(".zst") {
        bytes = zstd::decode_all(&bytes[..])?;
        name = inner.to_string();
    }
    match name.rsplit('.').next() {
        Some("lis") => lis(&bytes),
        Some("bin") => Ok(bytes.chunks_exact(24).map(|record| u64_at(record, 4)).collect()),
        Some("u32") => Ok(bytes.chunks_exact(4).map(|id| u64::from(u32_at(id, 0))).collect()),
        _ => Err(invalid(&name)),
    }
}

fn lis(bytes: &[u8]) -> io::Result<Vec<u64>> {
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("not text"))?;
    let mut ids = Vec::new();
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(count))) = (fields.next(), fields.next()) else {
            return Err(invalid(line));
        };
        ids.extend(first..first + count);
    }
    Ok(ids)
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(field)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}
