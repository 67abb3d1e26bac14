//! The root: what the bucket holds, and whose it is. One object, replaced by a conditional PUT; everything that it refers to
//! was put before.
//!
//! ```text
//!   0  magic "TMBROOT1"           8
//!   8  epoch                      u64   of the writer; grows with each that takes over
//!  16  sequence                   u64   of this root; grows by one with each
//!  24  random number              u64   no two roots are the same bytes
//!  32  writer                     u64   identity of its state directory
//!  40  position                   u64   LSN in that directory's journal: all before it is in the bucket
//!  48  time of the point          u32   seconds since 1970, by the writer's clock
//!  52  lease                      u32   ms: the writer puts another root before so much has passed
//!  56  next PVBN                  u64
//!  64  next volume                u64
//!  72  first journal object       u64   sequence; zero: there is none to be read
//!  80  last journal object        u64   sequence, also of one that need not be read any more
//!  88  last journal object        32    salt
//! 120  root before                32    salt; zeroes: this is the first
//! 152  journal                    u64   bytes from first to last
//! 160  flags                      u32   1 the writer has stopped
//! 164  metadata tree              u32   length, zero: there is none yet; then its bytes
//!  ..  usage table                u8    1: the pointer of its node follows; 0: there is none
//!  ..  kept roots                 u16   count, then the sequence of each, ascending, u64
//!  ..  writer's name              u16 length, then UTF-8: its machine and state directory
//! ```

use crate::format::bucket_journal::{Salt, expect_magic};
use alloc::{string::String, vec::Vec};
use tombolo_base::{DecodeError, Reader, WallTime, Writer};
use tombolo_metadata_tree::{Pointer, PointerSequence};

const MAGIC: &[u8; 8] = b"TMBROOT1";
const IS_RELEASED: u32 = 1;
/// The key of the root in the bucket.
pub const ROOT_NAME: &str = "root";
/// More than this is no root.
pub const ROOT_BYTES_MAX: usize = 1 << 20;

/// What the bucket holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Of the writer.
    pub epoch: u64,
    /// Of the root itself.
    pub sequence: u64,
    /// Makes its bytes differ from those of all others.
    pub random: u64,
    /// Identity of the writer's state directory.
    pub identity: u64,
    /// In that directory's journal.
    pub lsn: u64,
    /// When the recovery point was frozen.
    pub time: WallTime,
    /// How long a reader has to watch the root before it may take the writer for gone.
    pub lease_ms: u32,
    /// No block that the bucket knows has a PVBN from here on.
    pub next_pvbn: u64,
    /// No volume that it knows has a number from here on.
    pub next_volume: u64,
    /// The journal object that recovery begins with; zero: there is none to be read.
    pub journal_first: u64,
    /// The one that it ends with.
    pub journal_last: u64,
    /// Its salt.
    pub journal_salt: Salt,
    /// Of the root before.
    pub before: Salt,
    /// From first to last, as they are stored.
    pub journal_bytes: u64,
    /// The writer has stopped, and nobody needs to wait for it.
    pub is_released: bool,
    /// The root of the metadata tree; empty: there is none yet.
    pub tree: Vec<u8>,
    /// Which objects of nodes are needed until when; `None`: it is not known, and none is deleted.
    pub usage: Option<Pointer>,
    /// Sequences of earlier roots, ascending. Nothing that they name is deleted.
    pub kept: Vec<u64>,
    /// The writer, for people: its machine and its state directory.
    pub writer: String,
}

impl Root {
    /// As the table at the head of this module has it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.bytes(MAGIC)
            .u64(self.epoch)
            .u64(self.sequence)
            .u64(self.random)
            .u64(self.identity)
            .u64(self.lsn)
            .u32(self.time.0)
            .u32(self.lease_ms)
            .u64(self.next_pvbn)
            .u64(self.next_volume)
            .u64(self.journal_first)
            .u64(self.journal_last)
            .bytes(&self.journal_salt.0)
            .bytes(&self.before.0)
            .u64(self.journal_bytes)
            .u32(if self.is_released { IS_RELEASED } else { 0 })
            .u32(self.tree.len() as u32)
            .bytes(&self.tree);
        out.u8(u8::from(self.usage.is_some()));
        if let Some(usage) = &self.usage {
            PointerSequence::default().put(&mut out, usage);
        }
        out.u16(self.kept.len() as u16);
        for sequence in &self.kept {
            out.u64(*sequence);
        }
        out.u16(self.writer.len() as u16).bytes(self.writer.as_bytes());
        out.0
    }

    /// The journal objects that are to be read, behind the tree.
    pub fn journal(&self) -> impl DoubleEndedIterator<Item = u64> + use<> {
        let first = match self.journal_first {
            0 => self.journal_last + 1,
            first => first,
        };
        first..self.journal_last + 1
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// When the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        expect_magic(&mut reader, "root magic", MAGIC)?;
        let mut root = Self {
            epoch: reader.u64("root epoch")?,
            sequence: reader.u64("root sequence")?,
            random: reader.u64("root random number")?,
            identity: reader.u64("root writer")?,
            lsn: reader.u64("root position")?,
            time: WallTime(reader.u32("root time")?),
            lease_ms: reader.u32("root lease")?,
            next_pvbn: reader.u64("root next PVBN")?,
            next_volume: reader.u64("root next volume")?,
            journal_first: reader.u64("root first journal object")?,
            journal_last: reader.u64("root last journal object")?,
            journal_salt: Salt(reader.digest("root last journal object")?),
            before: Salt(reader.digest("root before")?),
            journal_bytes: reader.u64("root journal bytes")?,
            ..Self::default()
        };
        if root.journal_first > root.journal_last {
            return Err(DecodeError::Invalid {
                what: "root first journal object",
                value: root.journal_first,
            });
        }
        let flags = reader.u32("root flags")?;
        if flags & !IS_RELEASED != 0 {
            return Err(DecodeError::Invalid {
                what: "root flags",
                value: u64::from(flags),
            });
        }
        root.is_released = flags & IS_RELEASED != 0;
        let length = reader.u32("root metadata tree length")? as usize;
        root.tree = reader.bytes("root metadata tree", length)?.to_vec();
        root.usage = match reader.u8("root usage table")? {
            0 => None,
            1 => Some(PointerSequence::default().get(&mut reader)?),
            other => {
                return Err(DecodeError::Invalid {
                    what: "root usage table",
                    value: other.into(),
                });
            }
        };
        for _ in 0..reader.u16("root kept roots")? {
            let sequence = reader.u64("root kept root")?;
            if root.kept.last().is_some_and(|last| *last >= sequence) {
                return Err(DecodeError::Invalid {
                    what: "root kept root",
                    value: sequence,
                });
            }
            root.kept.push(sequence);
        }
        let length = usize::from(reader.u16("root writer's name length")?);
        let name = core::str::from_utf8(reader.bytes("root writer's name", length)?);
        root.writer = String::from(name.map_err(|_| DecodeError::Invalid {
            what: "root writer's name",
            value: length as u64,
        })?);
        reader.finish("root")?;
        Ok(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Root {
        Root {
            epoch: 1,
            sequence: 2,
            random: 3,
            identity: 4,
            lsn: 5,
            time: WallTime(6),
            lease_ms: 7,
            next_pvbn: 8,
            next_volume: 9,
            journal_first: 10,
            journal_last: 11,
            journal_salt: Salt([12; 32]),
            before: Salt([13; 32]),
            journal_bytes: 14,
            is_released: true,
            tree: vec![15; 16],
            usage: Some(Pointer {
                object: 16,
                message: 17,
                offset: 18,
                bytes: 19,
                birth: 20,
                tag: [21; 16],
            }),
            kept: vec![1, 22],
            writer: "a machine:/a/directory".into(),
        }
    }

    #[test]
    fn a_root_is_read_as_it_was_written() {
        let bytes = sample().encode();
        assert_eq!(Root::decode(&bytes), Ok(sample()));
        assert_eq!((&bytes[..8], bytes[16], bytes[152]), (&b"TMBROOT1"[..], 2, 14));
        assert!(Root::decode(&[&bytes[..], &[0]].concat()).is_err());
        for length in 0..bytes.len() {
            assert!(Root::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_journal_ends_behind_its_beginning() {
        for (first, last, is_permitted) in [(2, 1, false), (0, 1, true), (1, 1, true), (0, 0, true)] {
            let root = Root {
                journal_first: first,
                journal_last: last,
                ..sample()
            };
            assert_eq!(Root::decode(&root.encode()).is_ok(), is_permitted, "{first} to {last}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_what_would_be_written(mut bytes in prop::collection::vec(any::<u8>(), 0..400), cut in any::<bool>()) {
            if cut {
                let sample = sample().encode();
                let from = bytes.len().min(sample.len());
                bytes.extend_from_slice(&sample[from..]);
                bytes[..8].copy_from_slice(MAGIC);
            }
            if let Ok(root) = Root::decode(&bytes) {
                prop_assert_eq!(root.encode(), bytes);
            }
        }
    }
}
