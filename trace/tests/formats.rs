//! What each format means: exact records.

mod common;

use common::{data, examples, of, read, read_well, sample};
use tombolo_trace::{Fault, Format, Operation, Place, Record, Source, TimeOrder, View, open};

fn short(record: &Record) -> (u64, Operation, u64, u64, u64) {
    let Record {
        time_us,
        operation,
        first,
        count,
        bytes,
        ..
    } = record;
    (*time_us, *operation, *first, *count, *bytes)
}

fn shorts(format: Format, bytes: &[u8]) -> Vec<(u64, Operation, u64, u64, u64)> {
    read_well(bytes, &of(format)).iter().map(short).collect()
}

fn example(format: Format) -> Vec<u8> {
    examples().into_iter().find(|(found, _)| *found == format).unwrap().1
}

use Operation::{Discard, Flush, Read, Write};

#[test]
fn every_format_is_told_by_its_contents() {
    for (format, bytes) in examples() {
        let mut source = of(Format::Auto);
        if matches!(format, Format::U32Le | Format::U32Be) {
            assert!(matches!(read(&bytes, &source).1.unwrap().fault, Fault::UnknownFormat));
            continue;
        }
        let told = read_well(&bytes, &source);
        source.format = format;
        assert_eq!(told, read_well(&bytes, &source), "{format:?}");
        assert!(told.len() > 1, "{format:?}");
    }
}

#[test]
fn arc_counts_sectors() {
    let bytes = b"7 1 0 0\n8 17 0 1\n";
    assert_eq!(
        shorts(Format::Arc, bytes),
        [(0, Read, 0, 1, 512), (0, Read, 1, 3, 17 * 512)]
    );
    let source = Source {
        view: View::Units,
        ..of(Format::Arc)
    };
    let units: Vec<_> = read_well(bytes, &source).iter().map(short).collect();
    assert_eq!(units, [(0, Read, 7, 1, 512), (0, Read, 8, 17, 17 * 512)]);
    let source = Source {
        view: View::Ids,
        ..source
    };
    let ids: Vec<_> = read_well(bytes, &source).iter().map(short).collect();
    assert_eq!(ids, [(0, Read, 7, 1, 512), (0, Read, 8, 1, 17 * 512)]);
}

#[test]
fn binary_records_mean_what_they_say() {
    let vscsi = [(0, Read, 0, 1, 4096), (1, Write, 1, 1, 4096), (3, Read, 3, 1, 4096)];
    assert_eq!(shorts(Format::Vscsi, &example(Format::Vscsi)), vscsi);
    let oracle = shorts(Format::OracleGeneral, &example(Format::OracleGeneral));
    assert_eq!(oracle[1], (1_000_000, Read, 1, 2, 8192));
    let trace = [
        (0, Write, 8, 1, 4096),
        (2, Read, 8, 2, 8192),
        (3, Discard, 8, 256, 1 << 20),
        (4, Flush, 8, 0, 0),
    ];
    for (_, bytes) in examples().iter().filter(|(format, _)| *format == Format::Blktrace) {
        assert_eq!(shorts(Format::Blktrace, bytes), trace);
    }
}

#[test]
fn lines_mean_what_they_say() {
    let msr = [(0, Read, 93627, 8, 32768), (1_332_053, Write, 689, 1, 4096)];
    assert_eq!(shorts(Format::Msr, &example(Format::Msr)), msr);
    let csv = [(0, Read, 1, 1, 4096), (500_000, Write, 2, 1, 512)];
    assert_eq!(shorts(Format::Csv, &example(Format::Csv)), csv);
    let records = read_well(&example(Format::Blkparse), &of(Format::Blkparse));
    assert_eq!(short(&records[0]), (0, Write, 27936, 2, 4096));
    assert_eq!(short(&records[1]), (500_000, Read, 2, 3, 12288));
    assert_eq!(
        (records[0].client, records[0].volume, records[1].volume),
        (697, 8 << 20, 8 << 20 | 16)
    );
    assert_eq!(
        shorts(Format::Mqsim, &example(Format::Mqsim)),
        [(0, Write, 2, 1, 4096), (2, Read, 3, 2, 8192)]
    );
    assert_eq!(
        shorts(Format::Ids, &example(Format::Ids)),
        [(0, Read, 5, 1, 4096), (0, Read, 7, 1, 4096)]
    );
    assert_eq!(shorts(Format::U32Le, &example(Format::U32Le))[1].2, 256);
    assert_eq!(shorts(Format::U32Be, &example(Format::U32Be))[1].2, 256);
}

#[test]
fn csv_may_name_contents() {
    let text = b"op,block,count,contents\nW,8,3,7;9+2\nR,8,3,\n";
    let records = read_well(text, &of(Format::Csv));
    assert_eq!(
        (&records[0].contents[..], &records[1].contents[..]),
        (&[7, 9, 10][..], &[][..])
    );
    let (_, error) = read(b"op,block,count,contents\nW,8,3,7\n", &of(Format::Csv));
    assert!(error.is_some(), "one for three blocks");
}

#[test]
fn captures_name_contents() {
    let records = read_well(b"5 W 10 4 7;9+2;0\n6 W 20 3 4*3\n7 D 1 2\n", &of(Format::Blocks));
    assert_eq!(records[0].contents, [7, 9, 10, 0]);
    assert_eq!(records[1].contents, [4, 4, 4]);
    assert_eq!(short(&records[2]), (7, Discard, 1, 2, 8192));
    let (_, error) = read(b"5 W 10 4 7\n", &of(Format::Blocks));
    let error = error.unwrap();
    assert!(matches!(error.fault, Fault::Contents { found: 1, count: 4 }), "{error}");
    assert_eq!(error.place, Place::Line(1));
}

#[test]
fn files_are_cut_and_removed() {
    let text = b"1 W 3 0 9000 1+3\n2 T 3 5000 0\n3 O 3 0 0\n4 T 3 9000 0\n5 D 3 3 0\n6 R 3 4095 2\n";
    let records: Vec<_> = read_well(text, &of(Format::Files)).iter().map(short).collect();
    let expected = [
        (1, Write, 0, 3, 9000),
        (2, Discard, 2, 1, 808),
        (5, Discard, 0, 2, 8192),
        (6, Read, 0, 2, 2),
    ];
    assert_eq!(records, expected);
}

#[test]
fn nfs_numbers_are_hexadecimal() {
    let records = read_well(&sample("nfsdump.txt"), &of(Format::Nfsdump));
    let at = |offset: u64| records.iter().find(|record| record.first == offset / 4096).unwrap();
    assert_eq!((at(0x6000).count, at(0x6000).bytes), (2, 0x2000));
    let client = records[0].client;
    assert!(records.iter().all(|record| record.bytes <= 0x8000));
    assert!(records.iter().any(|record| record.client != client));
}

#[test]
fn compression_is_told_by_its_magic() {
    let plain = read_well(&sample("blocks.txt"), &of(Format::Auto));
    for suffix in ["gz", "xz", "zst"] {
        let mut reader = open(&Source::of(data(&format!("blocks.txt.{suffix}")))).unwrap();
        assert_eq!(reader.format(), Format::Blocks);
        let mut record = Record::default();
        for expected in &plain {
            assert!(reader.next(&mut record).unwrap());
            assert_eq!(record, *expected);
        }
        assert!(!reader.next(&mut record).unwrap());
    }
}

#[test]
fn time_that_goes_back_is_told_clamped_or_sorted() {
    let text = b"5 R 1 1\n9 R 2 1\n7 R 3 1\n8 R 4 1\n";
    let with = |time_order| Source {
        time_order,
        ..of(Format::Blocks)
    };
    let (records, error) = read(text, &with(TimeOrder::Error));
    let error = error.unwrap();
    assert_eq!((records.len(), error.place), (2, Place::Line(3)));
    assert!(matches!(error.fault, Fault::TimeGoesBack { before: 9, time: 7 }));
    let times = |time_order| -> Vec<(u64, u64)> {
        let records = read_well(text, &with(time_order));
        records.iter().map(|record| (record.time_us, record.first)).collect()
    };
    assert_eq!(times(TimeOrder::Clamp), [(5, 1), (9, 2), (9, 3), (9, 4)]);
    assert_eq!(times(TimeOrder::Sort), [(5, 1), (7, 3), (8, 4), (9, 2)]);
}

#[test]
fn impossible_sizes_are_refused() {
    let cases: [(Format, &[u8]); 5] = [
        (Format::Arc, b"1 99999999999 0 0\n"),
        (Format::Blocks, b"1 R 0 1048577\n"),
        (Format::Blocks, b"1 R 4611686018427387905 1\n"),
        (Format::Blocks, b"1 W 0 2 1+9999999999999\n"),
        (Format::Mqsim, b"1 0 18446744073709551615 1 1\n"),
    ];
    for (format, bytes) in cases {
        let (records, error) = read(bytes, &of(format));
        assert!(records.is_empty() && error.is_some(), "{format:?}");
    }
    let limited = Source {
        limit: Some(1),
        ..of(Format::Blocks)
    };
    assert_eq!(read_well(b"1 R 0 1\n2 R 0 1048577\n", &limited).len(), 1);
}

#[test]
fn a_missing_file_is_named() {
    let error = open(&Source::of("/nowhere/trace")).err().unwrap();
    assert_eq!((error.place, error.file.as_str()), (Place::File, "/nowhere/trace"));
}
