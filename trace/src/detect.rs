//! What a trace's first bytes tell of its format.

use crate::columnar::FILE_MAGIC;
use crate::error::Fault;
use crate::formats::{binary_shapes, u32_at, u64_at};
use crate::input::Input;
use crate::source::Format;
use crate::text::{Fields, number};

/// Bytes looked at.
const HEAD_BYTES: usize = 1 << 14;

/// HP's container of typed records. Its files begin with a word and with 0x12345678 in the writer's order of bytes.
pub fn is_data_series(input: &mut Input) -> Result<bool, Fault> {
    let head = input.peek(8)?;
    let number = 0x1234_5678u32;
    Ok(head
        .strip_prefix(b"DSv1")
        .is_some_and(|rest| rest == number.to_le_bytes() || rest == number.to_be_bytes()))
}

pub fn detect(input: &mut Input, name: &str) -> Result<Format, Fault> {
    let head = input.peek(HEAD_BYTES)?;
    let found = if head.starts_with(FILE_MAGIC) {
        Some(Format::Tbtr)
    } else if is_text(head) {
        text(head)
    } else {
        binary(head, name)
    };
    found.ok_or(Fault::UnknownFormat)
}

fn is_text(head: &[u8]) -> bool {
    let printable = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    !head.is_empty() && head.iter().all(printable)
}

fn binary(head: &[u8], name: &str) -> Option<Format> {
    if binary_shapes::blktrace_order(head).is_some() {
        return Some(Format::Blktrace);
    }
    if binary_shapes::vscsi_version(head).is_some() {
        return Some(Format::Vscsi);
    }
    (is_oracle(head) || name.contains("oracleGeneral")).then_some(Format::OracleGeneral)
}

/// Times that do not fall, sizes, and next uses that lie ahead: chance does not make eight of them.
fn is_oracle(head: &[u8]) -> bool {
    const RECORDS: usize = 8;
    let records = head.chunks_exact(binary_shapes::ORACLE_BYTES).take(64);
    let mut time_before = 0;
    let mut count = 0;
    for (index, record) in records.enumerate() {
        let (time, size, next) = (u32_at(record, 0), u32_at(record, 12), u64_at(record, 16));
        let is_next = next == u64::MAX || (next > index as u64 && next < 1 << 40);
        if time < time_before || size == 0 || size >= 1 << 31 || !is_next {
            return false;
        }
        time_before = time;
        count += 1;
    }
    count >= RECORDS
}

fn text(head: &[u8]) -> Option<Format> {
    // The last line may be cut.
    let end = head.iter().rposition(|byte| *byte == b'\n')?;
    let mut lines = head[..end].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.clone().find(|line| !line.is_empty() && *line != b"*")?;
    let words: Vec<&[u8]> = Fields::words(first).collect();
    let is_number = |word: &&[u8]| number(word, "").is_ok();
    if first.contains(&b',') && !words[0].contains(&b',') || words.len() == 1 && words[0].contains(&b',') {
        return comma_separated(first);
    }
    if words[0].contains(&b',') {
        return (words.len() >= 6).then_some(Format::Blkparse);
    }
    if words.len() > 7 && matches!(words[4], b"C2" | b"C3" | b"R2" | b"R3") {
        return Some(Format::Nfsdump);
    }
    if words.len() >= 4 && words[1].len() == 1 && words[1][0].is_ascii_uppercase() {
        // Contents stand behind writes only, so the others tell the columns.
        let is_write = |line: &&[u8]| Fields::words(line).nth(1) == Some(b"W");
        let (columns, block_columns) = match lines.find(|line| !line.is_empty() && !is_write(line)) {
            Some(line) => (Fields::words(line).count(), 4),
            None => (words.len(), 5),
        };
        return Some(if columns <= block_columns {
            Format::Blocks
        } else {
            Format::Files
        });
    }
    match words.len() {
        1 if is_number(&words[0]) => Some(Format::Ids),
        3 if words[1..].iter().all(is_number) => Some(Format::Objects),
        4 if words.iter().all(is_number) => Some(Format::Arc),
        5 if words.iter().all(is_number) => Some(Format::Mqsim),
        _ => None,
    }
}

fn comma_separated(first: &[u8]) -> Option<Format> {
    let values: Vec<&[u8]> = Fields::values(first).collect();
    if values.len() == 7 && matches!(values[3], b"Read" | b"Write") {
        return Some(Format::Msr);
    }
    let is_name = |value: &&[u8]| value.first().is_some_and(u8::is_ascii_alphabetic);
    (values.len() > 1 && values.iter().all(is_name)).then_some(Format::Csv)
}
