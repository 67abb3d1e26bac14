//! Damaged and cut traces: an error or a shorter trace, never a panic, never a record that was not there.

mod common;

use common::{examples, of, read, read_well, sample};
use proptest::prelude::*;
use tombolo_trace::columnar::{FileHeader, Writer};
use tombolo_trace::{Fault, Format, Operation, Place, Record, Source, TimeOrder};

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

/// HP's container, whose header is a word and 0x12345678 in either order of bytes.
#[test]
fn a_data_series_file_is_refused_by_name() {
    for number in [0x1234_5678u32.to_le_bytes(), 0x1234_5678u32.to_be_bytes()] {
        let bytes = [&b"DSv1"[..], &number, &[0; 100]].concat();
        for format in [Format::Auto, Format::Nfsdump, Format::Csv, Format::OracleGeneral] {
            let (_, error) = read(&bytes, &of(format));
            let text = error.unwrap().to_string();
            assert!(
                text.starts_with("memory: file: it is a DataSeries file, which is not read: "),
                "{text}"
            );
            assert!(text.contains("dstotxt") && text.contains("ds2ellardnfs"), "{text}");
        }
    }
    assert_eq!(
        read_well(b"DSv1,id\n7,9\n", &of(Format::Csv)).len(),
        1,
        "a name of a column"
    );
}

#[test]
fn every_cut_names_a_byte_or_a_line() {
    let placed = |bytes: &[u8], format| {
        let (found, error) = read(bytes, &of(format));
        (found.len(), error.map(|error| error.place))
    };
    let (_, oracle) = examples()
        .into_iter()
        .find(|(format, _)| *format == Format::OracleGeneral)
        .unwrap();
    for cut in (0..oracle.len()).filter(|cut| cut % 24 != 0) {
        let whole = cut / 24;
        assert_eq!(
            placed(&oracle[..cut], Format::OracleGeneral),
            (whole, Some(Place::Offset(whole as u64 * 24)))
        );
    }
    let records: Vec<Record> = (0..90)
        .map(|time_us| Record {
            time_us,
            count: 1,
            bytes: 4096,
            ..Record::default()
        })
        .collect();
    let bytes = written(&records, 30);
    for cut in 1..bytes.len() {
        let (_, place) = placed(&bytes[..cut], Format::Tbtr);
        let Some(Place::Offset(offset)) = place else {
            panic!("cut at {cut}: {place:?}");
        };
        assert!(offset <= cut as u64);
    }
    for name in ["blocks.txt.gz", "blocks.txt.xz", "blocks.txt.zst"] {
        let bytes = sample(name);
        for format in [Format::Auto, Format::Blocks] {
            for cut in 6..bytes.len() {
                let (_, place) = placed(&bytes[..cut], format);
                assert!(
                    matches!(place, Some(Place::Offset(_) | Place::Line(_))),
                    "{name} cut at {cut}: {place:?}"
                );
            }
        }
    }
}

/// Sorting reads far ahead; what comes too late is named by its own line.
#[test]
fn what_cannot_be_sorted_names_its_line() {
    let mut text: String = (0..70_000).map(|time| format!("{} R 8 1\n", time + 100)).collect();
    text += "5 R 8 1\n";
    text += &(0..70_000)
        .map(|time| format!("{} R 8 1\n", time + 80_000))
        .collect::<String>();
    let sorted = Source {
        time_order: TimeOrder::Sort,
        ..of(Format::Blocks)
    };
    let (_, error) = read(text.as_bytes(), &sorted);
    let error = error.unwrap();
    assert!(matches!(error.fault, Fault::TimeGoesBack { time: 5, .. }), "{error}");
    assert_eq!(error.place, Place::Line(70_001));
}
