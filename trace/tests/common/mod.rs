//! Traces read from memory.
#![allow(dead_code, reason = "each test uses a part")]

use std::io::Cursor;
use std::path::PathBuf;
use tombolo_trace::{Format, Record, Source, TraceError, open_stream};

pub fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub fn sample(name: &str) -> Vec<u8> {
    std::fs::read(data(name)).unwrap()
}

/// The records up to the end or the first error.
pub fn read(bytes: &[u8], source: &Source) -> (Vec<Record>, Option<TraceError>) {
    let mut reader = match open_stream(Cursor::new(bytes.to_vec()), source) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let (mut records, mut record) = (Vec::new(), Record::default());
    loop {
        match reader.next(&mut record) {
            Ok(true) => records.push(record.clone()),
            Ok(false) => return (records, None),
            Err(error) => return (records, Some(error)),
        }
    }
}

pub fn of(format: Format) -> Source {
    Source {
        path: "memory".into(),
        format,
        ..Source::default()
    }
}

/// Reads what must be whole.
pub fn read_well(bytes: &[u8], source: &Source) -> Vec<Record> {
    let (records, error) = read(bytes, source);
    assert!(error.is_none(), "{}", error.unwrap());
    records
}

/// Bytes in every format, valid each.
pub fn examples() -> Vec<(Format, Vec<u8>)> {
    vec![
        (Format::Arc, sample("arc_p3.lis")),
        (Format::Blocks, sample("blocks.txt")),
        (Format::Files, sample("files.txt")),
        (Format::Nfsdump, sample("nfsdump.txt")),
        (Format::OracleGeneral, oracle()),
        (Format::Vscsi, vscsi_1()),
        (Format::Vscsi, vscsi_2()),
        (Format::Csv, b"time,op,lbn,size\n1,r,8,4096\n1.5,2a,16,512\n".to_vec()),
        (
            Format::Msr,
            b"128166372003061629,hm,1,Read,383496192,32768,413\n128166372016382155,hm,1,Write,2822144,4096,7\n"
                .to_vec(),
        ),
        (Format::Blktrace, blktrace(false)),
        (Format::Blktrace, blktrace(true)),
        (
            Format::Blkparse,
            b"  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n\
              \x20 8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]\n\
              \x20 8,16   1        3     0.500000000    12  Q RAM 16 + 24 [ls]\n"
                .to_vec(),
        ),
        (Format::Mqsim, b"5000 1 16 8 0\n7000 1 24 16 1\n".to_vec()),
        (Format::Objects, b"1 7 100\n2 8 5000\n".to_vec()),
        (Format::Ids, b"5\n*\n7\n".to_vec()),
        (Format::U32Le, vec![1, 0, 0, 0, 0, 1, 0, 0]),
        (Format::U32Be, vec![0, 0, 0, 1, 0, 0, 1, 0]),
    ]
}

fn oracle() -> Vec<u8> {
    (0..12u32)
        .flat_map(|index| {
            let mut record = (100 + index).to_le_bytes().to_vec();
            record.extend(u64::from(index % 5).to_le_bytes());
            record.extend(8192u32.to_le_bytes());
            record.extend((if index < 7 { i64::from(index) + 5 } else { -1 }).to_le_bytes());
            record
        })
        .collect()
}

fn vscsi_1() -> Vec<u8> {
    let commands = [0x28u16, 0x2a, 0x12, 0x28];
    let record = |(index, command): (usize, &u16)| {
        let mut record = (index as u32).to_le_bytes().to_vec();
        record.extend(4096u32.to_le_bytes());
        record.extend(1u32.to_le_bytes());
        record.extend(command.to_le_bytes());
        record.extend(0x0100u16.to_le_bytes());
        record.extend((index as u64 * 8).to_le_bytes());
        record.extend((1_000_000 + index as u64).to_le_bytes());
        record
    };
    commands.iter().enumerate().flat_map(record).collect()
}

fn vscsi_2() -> Vec<u8> {
    (0..3u64)
        .flat_map(|index| {
            let mut record = 0x2au16.to_le_bytes().to_vec();
            record.extend(0x0200u16.to_le_bytes());
            record.extend((index as u32).to_le_bytes());
            record.extend(512u32.to_le_bytes());
            record.extend(1u32.to_le_bytes());
            record.extend((index + 7).to_le_bytes());
            record.extend((5_000 + index).to_le_bytes());
            record.extend(9u64.to_le_bytes());
            record
        })
        .collect()
}

/// A queued write with a payload, its completion, a queued read, a discard and a flush.
fn blktrace(is_big_endian: bool) -> Vec<u8> {
    let actions = [
        (0x0002_0001u32, 4096u32, 6u16),
        (0x0002_0008, 4096, 0),
        (0x0001_0001, 8192, 0),
        (0x2002_0001, 1 << 20, 0),
        (0x0006_0001, 0, 0),
    ];
    let mut bytes = Vec::new();
    for (index, (action, length, follows)) in actions.into_iter().enumerate() {
        let words = |word: u32| match is_big_endian {
            true => word.to_be_bytes(),
            false => word.to_le_bytes(),
        };
        let longs = |long: u64| match is_big_endian {
            true => long.to_be_bytes(),
            false => long.to_le_bytes(),
        };
        bytes.extend(words(0x6561_7407));
        bytes.extend(words(index as u32));
        bytes.extend(longs(index as u64 * 1_000));
        bytes.extend(longs(64));
        for word in [length, action, 77, 0x0080_0010, 0] {
            bytes.extend(words(word));
        }
        let last = u32::from(follows);
        bytes.extend(words(if is_big_endian { last } else { last << 16 }));
        bytes.extend(std::iter::repeat_n(0xee, usize::from(follows)));
    }
    bytes
}
