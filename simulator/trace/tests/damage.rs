//! Damaged and cut traces: an error or a shorter trace, never a panic, never a record that was not there.

mod common;

use common::{examples, of, read, read_well, sample};
use proptest::prelude::*;
use tombolo_trace::columnar::{FileHeader, Writer};
use tombolo_trace::{Fault, Format, Operation, Record, Source};

fn written(records: &[Record], chunk: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), FileHeader::default()).unwrap();
    for (index, record) in records.iter().enumerate() {
        writer.push(record).unwrap();
        if index % chunk == chunk - 1 {
            writer.end_chunk().unwrap();
        }
    }
    writer.finish().unwrap()
}

fn a_record() -> impl Strategy<Value = Record> {
    let operation = prop_oneof![
        3 => Just(Operation::Read),
        3 => Just(Operation::Write),
        1 => Just(Operation::Discard),
        1 => Just(Operation::Flush)
    ];
    let volume = prop_oneof![0u64..4, any::<u64>()];
    let names = prop_oneof![Just(None), (0u64..9).prop_map(Some), any::<u64>().prop_map(Some)];
    (
        operation,
        0u64..1 << 40,
        any::<u32>(),
        volume,
        0u64..1 << 49,
        0u64..40,
        0u64..4096,
        names,
    )
        .prop_map(|(operation, time_us, client, volume, first, count, less, name)| {
            let names = name.filter(|_| operation == Operation::Write);
            let contents = names.map_or(Vec::new(), |name| {
                (0..count).map(|index| name.wrapping_mul(index + 1)).collect()
            });
            let bytes = (count * 4096).saturating_sub(less);
            Record {
                time_us,
                operation,
                client,
                volume,
                first,
                count,
                bytes,
                contents,
            }
        })
}

fn some_records() -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec(a_record(), 0..120).prop_map(|mut records| {
        records.sort_by_key(|record| record.time_us);
        records
    })
}

proptest! {
    #[test]
    fn what_was_written_is_read(records in some_records(), chunk in 1usize..50) {
        prop_assert_eq!(read_well(&written(&records, chunk), &of(Format::Auto)), records);
    }

    #[test]
    fn a_cut_is_told_and_what_comes_before_is_whole(
        records in some_records(),
        chunk in 1usize..50,
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = written(&records, chunk);
        let cut = cut.index(bytes.len());
        let (found, error) = read(&bytes[..cut], &of(Format::Tbtr));
        prop_assert!(records.starts_with(&found));
        prop_assert!(matches!(error.unwrap().fault, Fault::Truncated(_)));
        let tolerant = Source { allow_truncated: true, ..of(Format::Tbtr) };
        if cut >= 64 {
            prop_assert_eq!(read_well(&bytes[..cut], &tolerant), found);
        }
    }

    #[test]
    fn a_flipped_bit_is_told(records in some_records(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = written(&records, 40);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let (found, error) = read(&bytes, &of(Format::Tbtr));
        prop_assert!(error.is_some() && records.starts_with(&found));
    }

    #[test]
    fn any_bytes_in_any_format_end(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        format in prop::sample::select(Format::ALL.to_vec()),
        example in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        from_example in any::<bool>(),
    ) {
        let mut whole = bytes;
        if from_example {
            let mut examples = examples();
            let (_, mut example) = examples.swap_remove(example.index(examples.len()));
            let at = at.index(example.len());
            let length = whole.len().min(example.len() - at).min(4);
            example[at..at + length].copy_from_slice(&whole[..length]);
            whole = example;
        }
        for record in read(&whole, &of(format)).0 {
            prop_assert!(record.first.checked_add(record.count).is_some());
            if matches!(record.operation, Operation::Read | Operation::Write) {
                prop_assert!(record.count <= 1 << 21);
            }
        }
    }
}

/// Text that is cut between two lines, and binary that is cut between two records, is a shorter trace; any other cut is
/// told.
#[test]
fn every_prefix_of_every_format_is_an_error_or_a_shorter_trace() {
    for (format, bytes) in examples() {
        let whole = read_well(&bytes, &of(format));
        for cut in 0..bytes.len() {
            let (found, error) = read(&bytes[..cut], &of(format));
            assert!(whole.starts_with(&found), "{format:?} cut at {cut}");
            let is_whole_line = cut == 0 || bytes[cut - 1] == b'\n';
            let is_text = !matches!(
                format,
                Format::OracleGeneral | Format::Vscsi | Format::Blktrace | Format::U32Le | Format::U32Be
            );
            assert!(error.is_some() || is_whole_line || !is_text, "{format:?} cut at {cut}");
        }
    }
}

#[test]
fn every_prefix_of_compressed_text_is_told() {
    for name in ["blocks.txt.gz", "blocks.txt.xz", "blocks.txt.zst"] {
        let bytes = sample(name);
        let whole = read_well(&bytes, &of(Format::Blocks));
        for cut in 1..bytes.len() {
            let (found, error) = read(&bytes[..cut], &of(Format::Blocks));
            assert!(whole.starts_with(&found) && error.is_some(), "{name} cut at {cut}");
        }
    }
}

#[test]
fn the_bytes_of_the_format_are_fixed() {
    let record = Record {
        time_us: 1_000,
        operation: Operation::Write,
        client: 3,
        volume: 2,
        first: 10,
        count: 2,
        bytes: 8192,
        contents: vec![5, 6],
    };
    let bytes = written(&[record], 9);
    assert_eq!(&bytes[..8], b"TMBTRAC1");
    assert_eq!(&bytes[8..16], [1, 0, 0, 0, 0, 16, 0, 0]);
    let chunk = &bytes[64..];
    assert_eq!(&chunk[..8], [b'T', b'B', b'C', b'H', 1, 0, 0, 0]);
    let mut columns = Vec::new();
    let mut at = 40;
    for _ in 0..9 {
        let word = |at: usize| u32::from_le_bytes(chunk[at..at + 4].try_into().unwrap()) as usize;
        let packed = &chunk[at + 8..at + 8 + word(at + 4)];
        columns.push(zstd::bulk::decompress(packed, word(at)).unwrap());
        at += 8 + packed.len();
    }
    let expected: [&[u8]; 9] = [&[0xd0, 0x0f], &[1], &[6], &[4], &[20], &[2], &[0], &[2], &[0, 10, 0]];
    assert_eq!(columns, expected);
    assert_eq!(
        &chunk[at..at + 16],
        [b'T', b'B', b'E', b'N', 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(chunk.len(), at + 40);
}
