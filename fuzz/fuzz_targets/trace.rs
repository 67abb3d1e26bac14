//! Traces in every format. The first byte names the format, the second how it is to be read. It ends in an error or at
//! the end, every record is one that can be, and what was read can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use tombolo_trace::columnar::{FileHeader, Writer};
use tombolo_trace::{ADDRESS_BYTES_MAX, BLOCK_BYTES, Format, Operation, Record, Source, TimeOrder, View, open_stream};

const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Records of one input that are kept to be written again.
const RECORDS_MAX: usize = 1 << 10;

fuzz_target!(|bytes: &[u8]| {
    let [format, how, trace @ ..] = bytes else { return };
    // Decompression of whole files is the affair of the library that does it.
    if trace.starts_with(ZSTD_MAGIC) {
        return;
    }
    let source = Source {
        format: Format::ALL[usize::from(*format) % Format::ALL.len()],
        view: [View::Blocks, View::Units, View::Ids][usize::from(how % 3)],
        time_order: [TimeOrder::Error, TimeOrder::Clamp, TimeOrder::Sort][usize::from(how / 3 % 3)],
        allow_truncated: how / 9 % 2 == 1,
        ..Source::of("input")
    };
    let records = read(trace.to_vec(), &source);
    if source.view == View::Blocks {
        let again = read(write(&records), &Source::of("again"));
        assert_eq!(again, records);
    }
});

fn read(trace: Vec<u8>, source: &Source) -> Vec<Record> {
    let Ok(mut reader) = open_stream(Cursor::new(trace), source) else {
        return Vec::new();
    };
    let (mut records, mut record, mut time_us) = (Vec::new(), Record::default(), 0);
    while let Ok(true) = reader.next(&mut record) {
        assert!(record.time_us >= time_us, "time goes back");
        time_us = record.time_us;
        if source.view == View::Blocks {
            assert!(record.end() <= 2 * ADDRESS_BYTES_MAX / BLOCK_BYTES);
            assert!(record.contents.is_empty() || record.contents.len() as u64 == record.count);
        }
        if matches!(record.operation, Operation::Read | Operation::Write) && source.view == View::Blocks {
            assert!(record.count <= (1 << 20) + 1);
        }
        if records.len() < RECORDS_MAX {
            records.push(record.clone());
        }
    }
    records
}

fn write(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), FileHeader::default()).expect("memory takes everything");
    records
        .iter()
        .for_each(|record| writer.push(record).expect("memory takes everything"));
    writer.finish().expect("memory takes everything")
}
