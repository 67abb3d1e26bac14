//! Journal records and batches: the only way in which the gateway's state changes, live and in recovery alike.
//!
//! ```text
//! segment header, 64 bytes          batch header, 48 bytes              record
//!   0 magic "TMBJRNL1"                0 magic "TJB1"                      kind u8, then its fields:
//!   8 format version     u32 = 4      4 payload bytes      u32            1 Write     volume u64, first block u64,
//!  12 reserved           u32 = 0      8 LSN                u64                        first PVBN u64, count u32,
//!  16 segment number     u64         16 durable LSN        u64                        slot runs u32, then
//!  24 LSN of first batch u64         24 journal identity   u64                        (slot u32, count u32) each,
//!  32 journal identity   u64         32 record count       u32                        count sums of u64
//!  40 bytes allocated    u64         36 time, s since 1970 u32          2 Hole      volume u64, first u64, count u64
//!  48 XXH3-64 of 0..48   u64         40 XXH3-64 of bytes   u64          3 Redirect  volume u64, first u64, count u32,
//!                                       0..40 and payload                           from PVBN u64, to PVBN u64
//!                                    48 payload                         4 Object    bytes u32, object descriptor
//!                                                                       5 Create    volume u64, size u64, name length
//!                                                                                   u8, name
//!                                                                       6 Resize    volume u64, size u64
//!                                                                       7 Delete    volume u64
//!                                                                       8 Entries   count u32, then each: kind u8
//!                                                                         (1 put, 2 delete, 3 add), key length
//!                                                                         u16, key, and put: value length u32,
//!                                                                         value; add: amount i64
//!                                                                       9 Link      volume u64, first u64, count u64,
//!                                                                                   PVBN u64
//! ```
//! An LSN counts batch bytes from the beginning of time, segment headers left out: a batch at LSN `a` with header and
//! payload of `n` bytes is followed by the batch at LSN `a + n`. "Durable LSN" says up to where cache file and journal
//! were known to be on stable storage when the batch was made. A size is a volume's blocks; its highest bit says that its
//! flushes wait for the bucket. The time is the machine's then: it tells how old what is
//! dirty is, nothing else.

use crate::format::superblock::{decode_size, encode_size};
use alloc::{string::String, vec::Vec};
use tombolo_base::{
    BlockSum, DecodeError, ENTRY_KEY_BYTES_MAX, EntryChange, FlushMode, Lcbn, ObjectDescriptor, Pvbn, Reader, Span,
    VolumeId, WallTime, Writer,
};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// A position in the journal, in batch bytes since the beginning of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// Where the first batch begins in a segment.
pub const SEGMENT_HEADER_BYTES: usize = 64;
/// Where its payload begins in a batch.
pub const BATCH_HEADER_BYTES: usize = 48;
/// A batch is one request's records; no request is larger than 32 MiB, so nothing near this is ever written.
pub(crate) const BATCH_PAYLOAD_BYTES_MAX: usize = 16 << 20;
/// The largest volume or file: 256 TiB.
pub const VOLUME_BLOCKS_MAX: u64 = 1 << 36;

const SEGMENT_MAGIC: &[u8; 8] = b"TMBJRNL1";
const BATCH_MAGIC: &[u8; 4] = b"TJB1";
const VERSION: u32 = 5;

/// Consecutive slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRun {
    /// The lowest number.
    pub first: Lcbn,
    /// At least one, but where it was read from a damaged disk.
    pub count: u32,
}

impl SlotRun {
    /// Behind the last; wide enough for what a damaged disk may say.
    pub fn end(&self) -> u64 {
        u64::from(self.first.0) + u64::from(self.count)
    }

    /// Each of the slots. A run that was read from a damaged disk may say that it ends beyond the last number: no slot does.
    pub fn slots(self) -> impl Iterator<Item = Lcbn> {
        (self.first.0..self.first.0.saturating_add(self.count)).map(Lcbn)
    }
}

/// One change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Blocks were written: one for each sum, with consecutive PVBNs.
    Write {
        /// Whose blocks.
        volume: VolumeId,
        /// The first of them.
        first: u64,
        /// The first one's; given out in the journal's order.
        pvbn: Pvbn,
        /// Where they lie, in their order.
        slots: Vec<SlotRun>,
        /// Of the bytes, in their order.
        sums: Vec<BlockSum>,
    },
    /// Blocks were turned into holes.
    Hole {
        /// Whose blocks.
        volume: VolumeId,
        /// The first of them.
        first: u64,
        /// Blocks, at least one.
        count: u64,
    },
    /// Blocks map to stored blocks of the same contents from here on.
    Redirect {
        /// Whose blocks.
        volume: VolumeId,
        /// The first of them.
        first: u64,
        /// Blocks, and PVBNs on either side, which run on one by one.
        count: u32,
        /// What the first mapped to.
        from: Pvbn,
        /// What it maps to now.
        to: Pvbn,
    },
    /// An object is in the store; the slots of its blocks are clean.
    Object(ObjectDescriptor),
    /// A volume was made, of holes.
    Create {
        /// Its number, never used before.
        volume: VolumeId,
        /// Its size.
        blocks: u64,
        /// What its flushes wait for.
        flush: FlushMode,
        /// At most 255 bytes.
        name: String,
    },
    /// A volume has another size, or its flushes wait for something else; what it lost is in a [`Record::Hole`] of the same
    /// batch.
    Resize {
        /// Which one.
        volume: VolumeId,
        /// The new size, or the old one.
        blocks: u64,
        /// What its flushes wait for from here on.
        flush: FlushMode,
    },
    /// A volume is gone, and all of its blocks with it.
    Delete {
        /// Which one.
        volume: VolumeId,
    },
    /// In the order in which they count.
    Entries(Vec<EntryChange>),
    /// Blocks were linked, in place of what they mapped to.
    Link(LinkRun),
}

/// Blocks that become the same as blocks in the cloud, whose PVBNs are consecutive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRun {
    /// Whose blocks become so.
    pub volume: VolumeId,
    /// The first of them.
    pub first: u64,
    /// Blocks, and PVBNs.
    pub count: u64,
    /// What the first maps to.
    pub pvbn: Pvbn,
}

impl LinkRun {
    pub(crate) fn span(&self) -> Span {
        Span {
            volume: self.volume,
            first: self.first,
            count: self.count,
        }
    }
}

impl Record {
    fn encode(&self, out: &mut Writer) {
        match self {
            Self::Write {
                volume,
                first,
                pvbn,
                slots,
                sums,
            } => {
                out.u8(1)
                    .u64(volume.0)
                    .u64(*first)
                    .u64(pvbn.0)
                    .u32(sums.len() as u32)
                    .u32(slots.len() as u32);
                for run in slots {
                    out.u32(run.first.0).u32(run.count);
                }
                for sum in sums {
                    out.u64(sum.0);
                }
            }
            Self::Hole { volume, first, count } => {
                out.u8(2).u64(volume.0).u64(*first).u64(*count);
            }
            Self::Redirect {
                volume,
                first,
                count,
                from,
                to,
            } => {
                out.u8(3).u64(volume.0).u64(*first).u32(*count).u64(from.0).u64(to.0);
            }
            Self::Object(descriptor) => {
                let bytes = descriptor.encode();
                out.u8(4).u32(bytes.len() as u32).bytes(&bytes);
            }
            Self::Create {
                volume,
                blocks,
                flush,
                name,
            } => {
                out.u8(5)
                    .u64(volume.0)
                    .u64(encode_size(*blocks, *flush))
                    .u8(name.len() as u8)
                    .bytes(name.as_bytes());
            }
            Self::Resize { volume, blocks, flush } => {
                out.u8(6).u64(volume.0).u64(encode_size(*blocks, *flush));
            }
            Self::Delete { volume } => {
                out.u8(7).u64(volume.0);
            }
            Self::Entries(changes) => {
                out.u8(8).u32(changes.len() as u32);
                for change in changes {
                    encode_change(change, out);
                }
            }
            Self::Link(LinkRun {
                volume,
                first,
                count,
                pvbn,
            }) => {
                out.u8(9).u64(volume.0).u64(*first).u64(*count).u64(pvbn.0);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = reader.u8("record kind")?;
        Ok(match kind {
            1 => Self::decode_write(reader)?,
            2 => {
                let (volume, first) = (volume_id(reader)?, reader.u64("hole first block")?);
                Self::Hole {
                    volume,
                    first,
                    count: block_span("hole block count", first, reader.u64("hole block count")?)?,
                }
            }
            3 => {
                let (volume, first) = (volume_id(reader)?, reader.u64("redirect first block")?);
                let count = reader.u32("redirect block count")?;
                block_span("redirect block count", first, u64::from(count))?;
                let (from, to) = (Pvbn(reader.u64("redirect PVBN")?), Pvbn(reader.u64("redirect PVBN")?));
                Self::Redirect {
                    volume,
                    first,
                    count,
                    from,
                    to,
                }
            }
            4 => {
                let bytes = reader.u32("object record bytes")? as usize;
                Self::Object(ObjectDescriptor::decode(reader.bytes("object record", bytes)?)?)
            }
            5 => {
                let volume = volume_id(reader)?;
                let (blocks, flush) = volume_size(reader)?;
                let length = usize::from(reader.u8("volume name length")?);
                let name =
                    core::str::from_utf8(reader.bytes("volume name", length)?).map_err(|_| DecodeError::Invalid {
                        what: "volume name",
                        value: length as u64,
                    })?;
                Self::Create {
                    volume,
                    blocks,
                    flush,
                    name: name.into(),
                }
            }
            6 => {
                let volume = volume_id(reader)?;
                let (blocks, flush) = volume_size(reader)?;
                Self::Resize { volume, blocks, flush }
            }
            7 => Self::Delete {
                volume: volume_id(reader)?,
            },
            8 => {
                let count = reader.u32("entry change count")?;
                let changes = (0..count).map(|_| decode_change(reader));
                Self::Entries(changes.collect::<Result<_, _>>()?)
            }
            9 => {
                let (volume, first) = (volume_id(reader)?, reader.u64("link first block")?);
                Self::Link(LinkRun {
                    volume,
                    first,
                    count: block_span("link block count", first, reader.u64("link block count")?)?,
                    pvbn: Pvbn(reader.u64("link PVBN")?),
                })
            }
            other => {
                return Err(DecodeError::Invalid {
                    what: "record kind",
                    value: u64::from(other),
                });
            }
        })
    }

    fn decode_write(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (volume, first) = (volume_id(reader)?, reader.u64("write first block")?);
        let pvbn = Pvbn(reader.u64("write PVBN")?);
        let count = reader.u32("write block count")?;
        block_span("write block count", first, u64::from(count))?;
        let run_count = reader.u32("write slot runs")? as usize;
        if run_count > count as usize || reader.remaining() < run_count * 8 {
            return Err(DecodeError::Invalid {
                what: "write slot runs",
                value: run_count as u64,
            });
        }
        let mut slots = Vec::with_capacity(run_count);
        let mut slot_count = 0u64;
        for _ in 0..run_count {
            let run = SlotRun {
                first: Lcbn(reader.u32("write slot")?),
                count: reader.u32("write slot count")?,
            };
            slot_count += u64::from(run.count);
            slots.push(run);
        }
        if slot_count != u64::from(count) || reader.remaining() < count as usize * 8 {
            return Err(DecodeError::Invalid {
                what: "write slot count",
                value: slot_count,
            });
        }
        let sums = (0..count)
            .map(|_| reader.u64("write sum").map(BlockSum))
            .collect::<Result<_, _>>()?;
        Ok(Self::Write {
            volume,
            first,
            pvbn,
            slots,
            sums,
        })
    }
}

fn encode_change(change: &EntryChange, out: &mut Writer) {
    let (kind, key) = match change {
        EntryChange::Put { key, .. } => (1, key),
        EntryChange::Delete { key } => (2, key),
        EntryChange::Add { key, .. } => (3, key),
    };
    // What could not be read back must never reach the journal.
    assert!(
        (1..=ENTRY_KEY_BYTES_MAX).contains(&key.len()),
        "an entry's key is 1 to {ENTRY_KEY_BYTES_MAX} bytes long"
    );
    out.u8(kind).u16(key.len() as u16).bytes(key);
    match change {
        EntryChange::Put { value, .. } => {
            out.u32(value.len() as u32).bytes(value);
        }
        EntryChange::Delete { .. } => {}
        EntryChange::Add { amount, .. } => {
            out.u64(*amount as u64);
        }
    }
}

fn decode_change(reader: &mut Reader<'_>) -> Result<EntryChange, DecodeError> {
    let kind = reader.u8("entry change kind")?;
    let length = usize::from(reader.u16("entry key length")?);
    if length == 0 || length > ENTRY_KEY_BYTES_MAX {
        return Err(DecodeError::Invalid {
            what: "entry key length",
            value: length as u64,
        });
    }
    let key = reader.bytes("entry key", length)?.to_vec();
    match kind {
        1 => {
            let length = reader.u32("entry value length")? as usize;
            let value = reader.bytes("entry value", length)?.to_vec();
            Ok(EntryChange::Put { key, value })
        }
        2 => Ok(EntryChange::Delete { key }),
        3 => {
            let amount = reader.u64("counter amount")? as i64;
            Ok(EntryChange::Add { key, amount })
        }
        other => Err(DecodeError::Invalid {
            what: "entry change kind",
            value: u64::from(other),
        }),
    }
}

fn volume_id(reader: &mut Reader<'_>) -> Result<VolumeId, DecodeError> {
    Ok(VolumeId(reader.u64("record volume")?))
}

fn volume_size(reader: &mut Reader<'_>) -> Result<(u64, FlushMode), DecodeError> {
    let (blocks, flush) = decode_size(reader.u64("volume size")?);
    Ok((block_span("volume blocks", 0, blocks)?, flush))
}

fn block_span(what: &'static str, first: u64, count: u64) -> Result<u64, DecodeError> {
    match first.checked_add(count) {
        Some(end) if end <= VOLUME_BLOCKS_MAX && (count > 0 || first == 0) => Ok(count),
        _ => Err(DecodeError::Invalid { what, value: count }),
    }
}

/// What heads every journal segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Its number, above those of all before; its file is named after it.
    pub segment: u64,
    /// Of the batch behind the header.
    pub first_lsn: Lsn,
    /// The superblock's: whose journal it is.
    pub journal_identity: u64,
    /// The file was made this long, and durably so, before anything was written to it: a shorter one was cut.
    pub allocated_bytes: u64,
}

impl SegmentHeader {
    /// As it stands at the segment's beginning, padded with zeroes.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = Writer::with_capacity(SEGMENT_HEADER_BYTES);
        out.bytes(SEGMENT_MAGIC)
            .u32(VERSION)
            .u32(0)
            .u64(self.segment)
            .u64(self.first_lsn.0)
            .u64(self.journal_identity)
            .u64(self.allocated_bytes);
        let sum = xxh3_64(&out.0);
        out.u64(sum);
        let mut header = [0; SEGMENT_HEADER_BYTES];
        header[..out.0.len()].copy_from_slice(&out.0);
        header
    }

    /// From the beginning of a segment.
    ///
    /// # Errors
    /// When the bytes are too few, are no header of this version, or do not have its sum.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let magic = reader.bytes("segment magic", 8)?;
        if magic != SEGMENT_MAGIC {
            return Err(DecodeError::Invalid {
                what: "segment magic",
                value: u64::from(magic[0]),
            });
        }
        let version = reader.u32("segment version")?;
        if version != VERSION {
            return Err(DecodeError::Invalid {
                what: "segment version",
                value: u64::from(version),
            });
        }
        reader.u32("segment reserved field")?;
        let header = Self {
            segment: reader.u64("segment number")?,
            first_lsn: Lsn(reader.u64("segment LSN")?),
            journal_identity: reader.u64("segment journal identity")?,
            allocated_bytes: reader.u64("segment allocated bytes")?,
        };
        let computed = xxh3_64(&bytes[..reader.offset()]);
        let found = reader.u64("segment checksum")?;
        if found != computed {
            return Err(DecodeError::Checksum {
                what: "segment header",
                found,
                computed,
            });
        }
        Ok(header)
    }
}

/// Records that reach the journal together: recovery applies all of them or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Where it begins.
    pub lsn: Lsn,
    /// Up to where cache file and journal were known to be on stable storage when it was made.
    pub durable_lsn: Lsn,
    /// When it was made.
    pub time: WallTime,
    /// In the order in which they are applied.
    pub records: Vec<Record>,
}

impl Batch {
    /// Header and payload.
    ///
    /// # Panics
    /// When the payload passes what recovery reads (16 MiB), or an entry's key has no length that is permitted.
    pub fn encode(&self, journal_identity: u64) -> Vec<u8> {
        let mut out = Writer::with_capacity(BATCH_HEADER_BYTES + 64 * self.records.len());
        out.bytes(BATCH_MAGIC)
            .u32(0)
            .u64(self.lsn.0)
            .u64(self.durable_lsn.0)
            .u64(journal_identity);
        out.u32(self.records.len() as u32).u32(self.time.0).u64(0);
        for record in &self.records {
            record.encode(&mut out);
        }
        let mut bytes = out.0;
        let payload_bytes = bytes.len() - BATCH_HEADER_BYTES;
        assert!(
            payload_bytes <= BATCH_PAYLOAD_BYTES_MAX,
            "a batch is bounded, or recovery could not read it"
        );
        let payload_bytes = payload_bytes as u32;
        bytes[4..8].copy_from_slice(&payload_bytes.to_le_bytes());
        let sum = batch_sum(&bytes);
        bytes[40..48].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the batch at the head of `bytes` and says how many bytes it takes.
    ///
    /// # Errors
    /// When there is none, it was cut short or altered, or belongs to another journal.
    pub fn decode(bytes: &[u8], journal_identity: u64) -> Result<(Self, usize), DecodeError> {
        let mut reader = Reader::new(bytes);
        let magic = reader.bytes("batch magic", 4)?;
        if magic != BATCH_MAGIC {
            return Err(DecodeError::Invalid {
                what: "batch magic",
                value: u64::from(magic[0]),
            });
        }
        let payload_bytes = reader.u32("batch payload bytes")? as usize;
        if payload_bytes > BATCH_PAYLOAD_BYTES_MAX {
            return Err(DecodeError::Invalid {
                what: "batch payload bytes",
                value: payload_bytes as u64,
            });
        }
        let lsn = Lsn(reader.u64("batch LSN")?);
        let durable_lsn = Lsn(reader.u64("batch durable LSN")?);
        let identity = reader.u64("batch journal identity")?;
        if identity != journal_identity {
            return Err(DecodeError::Invalid {
                what: "batch journal identity",
                value: identity,
            });
        }
        let record_count = reader.u32("batch record count")?;
        let time = WallTime(reader.u32("batch time")?);
        let found = reader.u64("batch checksum")?;
        let payload = reader.bytes("batch payload", payload_bytes)?;
        let whole = BATCH_HEADER_BYTES + payload_bytes;
        let computed = batch_sum(&bytes[..whole]);
        if found != computed {
            return Err(DecodeError::Checksum {
                what: "batch",
                found,
                computed,
            });
        }
        let mut payload = Reader::new(payload);
        let mut records = Vec::new();
        for _ in 0..record_count {
            records.push(Record::decode(&mut payload)?);
        }
        payload.finish("batch payload")?;
        Ok((
            Self {
                lsn,
                durable_lsn,
                time,
                records,
            },
            whole,
        ))
    }
}

fn batch_sum(bytes: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&bytes[..40]);
    hasher.update(&bytes[BATCH_HEADER_BYTES..]);
    hasher.digest()
}

pub(crate) fn hole_records(holes: impl IntoIterator<Item = Span>) -> Vec<Record> {
    let holes = holes.into_iter().filter(|hole| hole.count > 0);
    holes
        .map(|Span { volume, first, count }| Record::Hole { volume, first, count })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tombolo_base::{BlockEncoding, Fingerprint};

    fn samples() -> Vec<Record> {
        let volume = VolumeId(7);
        vec![
            Record::Write {
                volume,
                first: 5,
                pvbn: Pvbn(100),
                slots: vec![
                    SlotRun {
                        first: Lcbn(3),
                        count: 2,
                    },
                    SlotRun {
                        first: Lcbn(9),
                        count: 1,
                    },
                ],
                sums: vec![BlockSum(1), BlockSum(2), BlockSum(3)],
            },
            Record::Hole {
                volume,
                first: 0,
                count: VOLUME_BLOCKS_MAX,
            },
            Record::Redirect {
                volume,
                first: 8,
                count: 2,
                from: Pvbn(101),
                to: Pvbn(50),
            },
            Record::Object(ObjectDescriptor::unnamed([(
                Pvbn(1),
                Fingerprint([9; 32]),
                4096,
                BlockEncoding::Plain,
            )])),
            Record::Create {
                volume,
                blocks: 1024,
                flush: FlushMode::Bucket,
                name: "disk-1".into(),
            },
            Record::Resize {
                volume,
                blocks: 2048,
                flush: FlushMode::Local,
            },
            Record::Delete { volume },
            Record::Entries(vec![
                EntryChange::Put {
                    key: b"key".to_vec(),
                    value: vec![1, 2, 3],
                },
                EntryChange::Delete { key: b"gone".to_vec() },
                EntryChange::Add {
                    key: b"count".to_vec(),
                    amount: -5,
                },
            ]),
            Record::Link(LinkRun {
                volume: VolumeId::of_inode(9),
                first: 4,
                count: 12,
                pvbn: Pvbn(77),
            }),
        ]
    }

    #[test]
    fn every_record_round_trips() {
        let batch = Batch {
            lsn: Lsn(77),
            durable_lsn: Lsn(11),
            time: WallTime(12),
            records: samples(),
        };
        let mut bytes = batch.encode(42);
        let length = bytes.len();
        bytes.extend_from_slice(&[0; 9]);
        assert_eq!(Batch::decode(&bytes, 42).unwrap(), (batch, length));
        assert!(matches!(
            Batch::decode(&bytes, 43),
            Err(DecodeError::Invalid {
                what: "batch journal identity",
                value: 42
            })
        ));
    }

    #[test]
    fn golden_bytes() {
        let batch = Batch {
            lsn: Lsn(0x1122),
            durable_lsn: Lsn(0x33),
            time: WallTime(0x6543_2100),
            records: vec![Record::Hole {
                volume: VolumeId(2),
                first: 3,
                count: 4,
            }],
        };
        let bytes = batch.encode(0x0102_0304_0506_0708);
        assert_eq!(&bytes[..4], b"TJB1");
        assert_eq!(&bytes[4..8], &[25, 0, 0, 0]);
        assert_eq!(&bytes[8..16], &[0x22, 0x11, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[24..32], &[8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(&bytes[32..40], &[1, 0, 0, 0, 0, 0x21, 0x43, 0x65]);
        assert_eq!(
            &bytes[48..],
            &[
                2, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0
            ]
        );
        let header = SegmentHeader {
            segment: 5,
            first_lsn: Lsn(6),
            journal_identity: 7,
            allocated_bytes: 0x80,
        };
        let encoded = header.encode();
        assert_eq!(&encoded[..12], b"TMBJRNL1\x05\0\0\0");
        assert_eq!(&encoded[40..48], &[0x80, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(SegmentHeader::decode(&encoded), Ok(header));
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_never_accepted(position in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = Batch { lsn: Lsn(77), durable_lsn: Lsn(11), time: WallTime(12), records: samples() }.encode(42);
            let index = position.index(bytes.len());
            bytes[index] ^= 1 << bit;
            prop_assert!(Batch::decode(&bytes, 42).is_err());
            let header = SegmentHeader { segment: 5, first_lsn: Lsn(6), journal_identity: 7, allocated_bytes: 80 };
            let mut header = header.encode();
            let index = position.index(56);
            header[index] ^= 1 << bit;
            prop_assert!(SegmentHeader::decode(&header).is_err());
        }

        #[test]
        fn arbitrary_payloads_never_panic(payload in prop::collection::vec(any::<u8>(), 0..200), count in 0u32..5) {
            // A right checksum around wrong records, as a faulty writer would make it.
            let mut bytes = Batch { lsn: Lsn(0), durable_lsn: Lsn(0), time: WallTime(0), records: vec![] }.encode(1);
            bytes.extend_from_slice(&payload);
            bytes[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
            bytes[32..36].copy_from_slice(&count.to_le_bytes());
            let sum = batch_sum(&bytes);
            bytes[40..48].copy_from_slice(&sum.to_le_bytes());
            let _ = Batch::decode(&bytes, 1);
        }
    }
}
