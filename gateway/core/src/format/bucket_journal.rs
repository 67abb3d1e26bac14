//! The journal in the bucket: what changed from one recovery point to the next, in parts of a few MiB. A part is what one
//! object holds.
//!
//! ```text
//!  0  magic "TMBBJ001"            8
//!  8  sequence                    u64   1, 2, … without gaps
//! 16  epoch of the writer         u64
//! 24  object before               32    its salt; zeroes: there is none
//! 56  flags                       u32   1 nothing before this point counts; 2 the last part of its point
//! 60  time of the point           u32   seconds since 1970, by the writer's clock
//! 64  next PVBN                   u64
//! 72  next volume                 u64
//! 80  totals                      6 × u64   as in the superblock
//! 128 items, to the end: kind u8, then its fields
//!       1 volume                  number u64, size u64, name length u8, name
//!       2 no volume any more      number u64
//!       3 run of blocks           volume u64, first u64, count u64, first PVBN u64
//!       4 holes                   volume u64, first u64, count u64
//!       5 object                  object descriptor
//!       6 entry                   key length u16, key, value length u32, value
//!       7 no entry any more       key length u16, key
//!       8 counter                 key length u16, key, value i64
//! ```
//!
//! Items are laid over what was known, in their order. A size is as in the local journal ([`crate::format::record`]).

use crate::format::record::VOLUME_BLOCKS_MAX;
use crate::format::superblock::{Totals, Volume, decode_size, encode_size};
use crate::state::extent_map::{Extent, Target};
use crate::state::unpublished::RecoveryPoint;
use alloc::{boxed::Box, string::String, vec::Vec};
use core::iter::Peekable;
use tombolo_base::{DecodeError, ENTRY_KEY_BYTES_MAX, ObjectDescriptor, Pvbn, Reader, VolumeId, WallTime, Writer};

const MAGIC: &[u8; 8] = b"TMBBJ001";
const IS_WHOLE: u32 = 1;
const IS_LAST: u32 = 2;
/// A part is closed when it has reached this; its last item may pass it.
const PART_BYTES: usize = 4 << 20;
/// More than this is no part: the last item is at most an entry of 64 KiB and its key, or a descriptor.
pub const PART_BYTES_MAX: usize = 2 * PART_BYTES;

/// The salt of an object in the bucket: tells its contents from all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Salt(pub [u8; 32]);

impl Salt {
    /// There is no such object.
    pub const NONE: Self = Self([0; 32]);
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A volume, made or resized.
    Volume(Volume),
    /// One that was deleted.
    NoVolume(VolumeId),
    /// What blocks map to.
    Run(Extent),
    /// An object that the store has.
    Object(ObjectDescriptor),
    /// An entry, changed or new.
    Entry(Vec<u8>, Vec<u8>),
    /// One that was deleted.
    NoEntry(Vec<u8>),
    /// A counter's new value.
    Counter(Vec<u8>, i64),
}

/// What heads a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartHeader {
    /// One more than that of the object before.
    pub sequence: u64,
    /// Of the writer.
    pub epoch: u64,
    /// The object before.
    pub before: Salt,
    /// What came before this point does not count any more.
    pub is_whole: bool,
    /// The point ends with this part.
    pub is_last: bool,
    /// When the point was frozen.
    pub time: WallTime,
    /// No block of the point has a PVBN from here on.
    pub next_pvbn: u64,
    /// No volume of the point has a number from here on.
    pub next_volume: u64,
    /// As they stood at the point.
    pub totals: Totals,
}

/// A part as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which one.
    pub header: PartHeader,
    /// In the order in which they are laid over what was known.
    pub items: Vec<Item>,
}

/// The parts of a point, one after another; there is at least one.
pub struct Parts<'p> {
    point: &'p RecoveryPoint,
    items: Peekable<Box<dyn Iterator<Item = Item> + Send + 'p>>,
    is_done: bool,
}

impl<'p> Parts<'p> {
    /// Of this point.
    pub fn new(point: &'p RecoveryPoint) -> Self {
        let volumes = point.volumes.iter().map(|(id, volume)| match volume {
            Some(volume) => Item::Volume(volume.clone()),
            None => Item::NoVolume(*id),
        });
        let objects = point.objects.values().map(|object| Item::Object((**object).clone()));
        let entries = point.entries.iter_from(&[]).map(|(key, value)| match value {
            Some(value) => Item::Entry(key.clone(), value.to_vec()),
            None => Item::NoEntry(key.clone()),
        });
        let counters = point.entries.counters();
        let counters = counters.map(|(key, value)| Item::Counter(key.clone(), value));
        let runs = point.map.iter().map(Item::Run);
        let items = volumes.chain(objects).chain(runs).chain(entries).chain(counters);
        let items: Box<dyn Iterator<Item = Item> + Send + 'p> = Box::new(items);
        Self {
            point,
            items: items.peekable(),
            is_done: false,
        }
    }

    /// The contents of the next part; `None`: that was all.
    pub fn next(&mut self, sequence: u64, epoch: u64, before: Salt) -> Option<Vec<u8>> {
        if self.is_done {
            return None;
        }
        let mut body = Writer::default();
        while body.0.len() < PART_BYTES
            && let Some(item) = self.items.next()
        {
            encode_item(&item, &mut body);
        }
        self.is_done = self.items.peek().is_none();
        let header = PartHeader {
            sequence,
            epoch,
            before,
            is_whole: self.point.is_whole,
            is_last: self.is_done,
            time: self.point.time,
            next_pvbn: self.point.next_pvbn.0,
            next_volume: self.point.next_volume,
            totals: self.point.totals,
        };
        let mut out = header.encode();
        out.extend_from_slice(&body.0);
        Some(out)
    }
}

impl PartHeader {
    fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        let flags = if self.is_whole { IS_WHOLE } else { 0 } | if self.is_last { IS_LAST } else { 0 };
        out.bytes(MAGIC)
            .u64(self.sequence)
            .u64(self.epoch)
            .bytes(&self.before.0)
            .u32(flags)
            .u32(self.time.0)
            .u64(self.next_pvbn)
            .u64(self.next_volume);
        self.totals.encode(&mut out);
        out.0
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        expect_magic(reader, "bucket journal magic", MAGIC)?;
        let sequence = reader.u64("bucket journal sequence")?;
        let epoch = reader.u64("bucket journal epoch")?;
        let before = Salt(reader.digest("bucket journal object before")?);
        let flags = reader.u32("bucket journal flags")?;
        if flags & !(IS_WHOLE | IS_LAST) != 0 {
            return Err(DecodeError::Invalid {
                what: "bucket journal flags",
                value: u64::from(flags),
            });
        }
        Ok(Self {
            sequence,
            epoch,
            before,
            is_whole: flags & IS_WHOLE != 0,
            is_last: flags & IS_LAST != 0,
            time: WallTime(reader.u32("bucket journal time")?),
            next_pvbn: reader.u64("bucket journal next PVBN")?,
            next_volume: reader.u64("bucket journal next volume")?,
            totals: Totals::decode(reader)?,
        })
    }
}

impl Part {
    /// The inverse of [`Parts::next`].
    ///
    /// # Errors
    /// When the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let header = PartHeader::decode(&mut reader)?;
        let mut items = Vec::new();
        while reader.remaining() > 0 {
            items.push(decode_item(&mut reader, bytes)?);
        }
        Ok(Self { header, items })
    }
}

pub(crate) fn expect_magic(reader: &mut Reader<'_>, what: &'static str, magic: &[u8; 8]) -> Result<(), DecodeError> {
    let found = reader.bytes(what, magic.len())?;
    if found != magic {
        return Err(DecodeError::Invalid {
            what,
            value: u64::from(found[0]),
        });
    }
    Ok(())
}

fn encode_item(item: &Item, out: &mut Writer) {
    match item {
        Item::Volume(volume) => {
            out.u8(1)
                .u64(volume.id.0)
                .u64(encode_size(volume.blocks, volume.flush))
                .u8(volume.name.len() as u8)
                .bytes(volume.name.as_bytes());
        }
        Item::NoVolume(volume) => {
            out.u8(2).u64(volume.0);
        }
        Item::Run(extent) => {
            out.u8(match extent.target {
                Target::At(_) => 3,
                Target::Hole => 4,
            });
            out.u64(extent.volume.0).u64(extent.first).u64(extent.count);
            if let Target::At(pvbn) = extent.target {
                out.u64(pvbn.0);
            }
        }
        Item::Object(descriptor) => {
            out.u8(5).bytes(&descriptor.encode());
        }
        Item::Entry(key, value) => {
            out.u8(6).u16(key.len() as u16).bytes(key);
            out.u32(value.len() as u32).bytes(value);
        }
        Item::NoEntry(key) => {
            out.u8(7).u16(key.len() as u16).bytes(key);
        }
        Item::Counter(key, value) => {
            out.u8(8).u16(key.len() as u16).bytes(key).u64(value.cast_unsigned());
        }
    }
}

fn decode_item(reader: &mut Reader<'_>, bytes: &[u8]) -> Result<Item, DecodeError> {
    match reader.u8("bucket journal item kind")? {
        1 => {
            let id = VolumeId(reader.u64("volume number")?);
            let (blocks, flush) = decode_size(reader.u64("volume size")?);
            let length = usize::from(reader.u8("volume name length")?);
            let name =
                core::str::from_utf8(reader.bytes("volume name", length)?).map_err(|_| DecodeError::Invalid {
                    what: "volume name",
                    value: length as u64,
                })?;
            let name = String::from(name);
            Ok(Item::Volume(Volume {
                id,
                name,
                blocks,
                flush,
            }))
        }
        2 => Ok(Item::NoVolume(VolumeId(reader.u64("volume number")?))),
        kind @ (3 | 4) => {
            let volume = VolumeId(reader.u64("run volume")?);
            let first = reader.u64("run first block")?;
            let count = reader.u64("run blocks")?;
            let end = first.checked_add(count);
            if count == 0 || end.is_none_or(|end| end > VOLUME_BLOCKS_MAX) {
                return Err(DecodeError::Invalid {
                    what: "run blocks",
                    value: count,
                });
            }
            let target = match kind {
                3 => Target::At(Pvbn(reader.u64("run PVBN")?)),
                _ => Target::Hole,
            };
            Ok(Item::Run(Extent {
                volume,
                first,
                count,
                target,
            }))
        }
        5 => {
            let descriptor = ObjectDescriptor::decode(&bytes[reader.offset()..])?;
            reader.bytes("object descriptor", descriptor.encoded_bytes())?;
            Ok(Item::Object(descriptor))
        }
        6 => {
            let key = decode_key(reader)?;
            let length = reader.u32("entry value length")? as usize;
            Ok(Item::Entry(key, reader.bytes("entry value", length)?.to_vec()))
        }
        7 => Ok(Item::NoEntry(decode_key(reader)?)),
        8 => {
            let key = decode_key(reader)?;
            Ok(Item::Counter(key, reader.u64("counter value")?.cast_signed()))
        }
        other => Err(DecodeError::Invalid {
            what: "bucket journal item kind",
            value: u64::from(other),
        }),
    }
}

fn decode_key(reader: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
    let length = usize::from(reader.u16("entry key length")?);
    if length == 0 || length > ENTRY_KEY_BYTES_MAX {
        return Err(DecodeError::Invalid {
            what: "entry key length",
            value: length as u64,
        });
    }
    Ok(reader.bytes("entry key", length)?.to_vec())
}

#[cfg(test)]
#[path = "bucket_journal_tests.rs"]
mod tests;
