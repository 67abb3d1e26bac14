//! Values of all entries: version first, then fields in little-endian order. Decoders take any bytes and answer with a
//! record or a [`DecodeError`]; what they accept encodes to the same bytes again.

mod inode;
mod name;
mod session;
mod share;

pub use inode::{Directory, FileRecord, InodeRecord, Kind, inode_flag};
pub use name::{CookieRecord, NameRecord};
pub use session::{OrphanRecord, Outcome, ReplayRecord, SessionRecord};
pub use share::{IdAllocatorRecord, ShareRecord};

use crate::types::{FileType, Timestamp};
use tombolo_base::{DecodeError, Reader, Writer};

/// Version of every record so far.
const VERSION: u8 = 1;

fn begin<'a>(what: &'static str, bytes: &'a [u8]) -> Result<Reader<'a>, DecodeError> {
    let mut reader = Reader::new(bytes);
    match reader.u8(what)? {
        VERSION => Ok(reader),
        version => Err(DecodeError::Invalid {
            what,
            value: version.into(),
        }),
    }
}

fn writer(bytes: usize) -> Writer {
    let mut writer = Writer::with_capacity(bytes);
    writer.u8(VERSION);
    writer
}

fn write_time(writer: &mut Writer, time: Timestamp) {
    writer.u64(time.seconds.cast_unsigned()).u32(time.nanoseconds);
}

fn read_time(reader: &mut Reader<'_>, what: &'static str) -> Result<Timestamp, DecodeError> {
    let seconds = reader.u64(what)?.cast_signed();
    let nanoseconds = reader.u32(what)?;
    match nanoseconds < 1_000_000_000 {
        true => Ok(Timestamp::new(seconds, nanoseconds)),
        false => Err(DecodeError::Invalid {
            what,
            value: nanoseconds.into(),
        }),
    }
}

fn read_number(reader: &mut Reader<'_>, what: &'static str) -> Result<u64, DecodeError> {
    match reader.u64(what)? {
        number if number >> 63 == 0 => Ok(number),
        value => Err(DecodeError::Invalid { what, value }),
    }
}

fn read_type(reader: &mut Reader<'_>) -> Result<FileType, DecodeError> {
    let number = reader.u8("file type")?;
    FileType::of_directory_type(number).ok_or(DecodeError::Invalid {
        what: "file type",
        value: number.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tombolo_base::FlushMode;

    /// Gives the bytes to every decoder. Panics when one accepts what it would not have written.
    fn exercise_decoders(bytes: &[u8]) {
        canonical(bytes, InodeRecord::decode, InodeRecord::encode);
        canonical(bytes, FileRecord::decode, FileRecord::encode);
        canonical(bytes, NameRecord::decode, NameRecord::encode);
        canonical(bytes, CookieRecord::decode, CookieRecord::encode);
        canonical(bytes, SessionRecord::decode, SessionRecord::encode);
        canonical(bytes, OrphanRecord::decode, OrphanRecord::encode);
        canonical(bytes, ReplayRecord::decode, ReplayRecord::encode);
        canonical(bytes, ShareRecord::decode, ShareRecord::encode);
        canonical(bytes, IdAllocatorRecord::decode, IdAllocatorRecord::encode);
    }

    fn canonical<T>(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<T, DecodeError>, encode: impl Fn(&T) -> Vec<u8>) {
        if let Ok(record) = decode(bytes) {
            assert_eq!(encode(&record), bytes);
        }
    }

    fn samples() -> Vec<Vec<u8>> {
        let time = Timestamp::new(-5, 7);
        let inode = |mode, kind| InodeRecord {
            share: 3,
            mode,
            uid: 1,
            gid: 2,
            links: 4,
            device: 0,
            flags: inode_flag::ACCESS_ACL,
            xattr_name_bytes: 24,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            kind,
        };
        let directory = Kind::Directory(Directory {
            parent: 8,
            cookie_next: 9,
            entries: 2,
        });
        vec![
            inode(0o100_644, Kind::Other).encode(),
            inode(0o040_755, directory).encode(),
            inode(
                0o120_777,
                Kind::Symlink {
                    target: b"else".to_vec(),
                },
            )
            .encode(),
            FileRecord {
                share: 3,
                is_privileged: true,
                is_unsettled: false,
                size: 12,
                allocated_blocks: 1,
                mtime: time,
                ctime: time,
            }
            .encode(),
            NameRecord {
                inode: 5,
                file_type: FileType::Fifo,
                cookie: 6,
            }
            .encode(),
            CookieRecord {
                inode: 5,
                file_type: FileType::Socket,
                name: b"n".to_vec(),
            }
            .encode(),
            OrphanRecord { holders: vec![1, 2] }.encode(),
            ReplayRecord {
                number: 8,
                outcome: Outcome::Entry(4),
            }
            .encode(),
            IdAllocatorRecord {
                inode: 5,
                share: 6,
                session: 7,
            }
            .encode(),
            ShareRecord {
                id: 1,
                root: 16,
                quota_bytes: 0,
                created: time,
                being_deleted: true,
                flush: FlushMode::Bucket,
            }
            .encode(),
            SessionRecord {
                share: 3,
                incarnation: 99,
                kind: crate::types::SessionKind::Kernel,
                client: b"client".to_vec(),
            }
            .encode(),
        ]
    }

    #[test]
    fn every_record_is_read_as_it_was_written_and_no_shorter() {
        for sample in samples() {
            exercise_decoders(&sample);
            for cut in 0..sample.len() {
                exercise_decoders(&sample[..cut]);
            }
        }
        let decoded = samples()
            .iter()
            .filter(|sample| InodeRecord::decode(sample).is_ok())
            .count();
        assert!(decoded >= 3, "{decoded}");
    }

    /// What is in storage must be read by every later version, so its bytes are written out here.
    #[test]
    fn records_have_these_bytes() {
        let time = "fbffffffffffffff07000000";
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let head = |mode, kind| format!("0103000000{mode}01000000020000000400000000000000{kind}");
        let inode = |mode, tail: &str| head(mode, "0118000000") + &time.repeat(4) + tail;
        let expected = [
            inode("a4810000", ""),
            inode("ed410000", "080000000000000009000000000000000200000000000000"),
            inode("ffa10000", "656c7365"),
            format!("0103000000010c000000000000000100000000000000{time}{time}"),
            "010500000000000000010600000000000000".into(),
            "0105000000000000000c6e".into(),
            "0101000000000000000200000000000000".into(),
            "010800000000000000010400000000000000".into(),
            "010500000000000000060000000700000000000000".into(),
            format!("010100000010000000000000000000000000000000{time}03"),
            "0103000000630000000000000001636c69656e74".into(),
        ];
        let encoded: Vec<String> = samples().iter().map(|sample| hex(sample)).collect();
        assert_eq!(encoded, expected);
    }

    proptest! {
        #[test]
        fn decoders_take_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            exercise_decoders(&bytes);
        }

        #[test]
        fn decoders_take_records_with_flipped_bytes(
            index in 0usize..11, at in any::<prop::sample::Index>(), value in any::<u8>()
        ) {
            let mut sample = samples().swap_remove(index);
            let at = at.index(sample.len());
            sample[at] = value;
            exercise_decoders(&sample);
        }
    }
}
