//! What is left of a local disk of which a part is lost: with which state to begin, how far the journal leads from there,
//! and what is gone for good. Pure; it changes nothing, and what it finds is told before anything is changed.
//!
//! Local metadata and the bucket each hold a prefix of the journal's order whole. So the state to begin with is the one of
//! the two from which what is left of the journal leads further. What was durable beyond that is lost, and so are dirty
//! blocks whose slot does not hold what its sum says.

use crate::core_state::Core;
use crate::format::cache_header::{CacheHeader, JournalMark, Mark};
use crate::format::record::{Lsn, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::format::superblock::Superblock;
use crate::recovery::disk::LocalDisk;
use crate::recovery::rebuild::VOLUMES_SKIPPED;
use crate::recovery::segment::{Batches, Segment, read_segment};
use crate::recovery::tail::segment_limits;
use crate::state::overlay::Frozen;
use alloc::{collections::BTreeMap, string::String, vec::Vec};
use tombolo_base::{BlockSum, DecodeError, Lcbn, Pvbn, VolumeId, WallTime};

/// Journal bytes that the lost part cannot have had: a journal segment that turns up again lies before all new ones.
const LSN_GAP: u64 = 1 << LSN_GAP_BITS;
/// So positions before a loss and after it differ in the bits from this one on.
pub const LSN_GAP_BITS: u32 = 40;
/// PVBNs that the lost part cannot have given out. Few enough that an epoch of the bucket has room for many such losses.
const LOST_PVBNS_MAX: u64 = 1 << 36;

/// Where local metadata is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// As it is in the state directory.
    Local,
    /// Made again of what the bucket holds.
    Bucket,
}

/// What the superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalBase {
    /// Its position.
    pub lsn: Lsn,
    /// The segment that holds it, or the next to be made.
    pub segment: u64,
    /// Local metadata is no state of any moment unless the journal leads at least here.
    pub merging_to: Option<Lsn>,
}

impl From<&Superblock> for LocalBase {
    fn from(superblock: &Superblock) -> Self {
        let Superblock {
            lsn,
            segment,
            merging_to,
            ..
        } = *superblock;
        Self {
            lsn,
            segment,
            merging_to,
        }
    }
}

/// The states that there are to begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bases {
    /// Local metadata, if it can be read.
    pub local: Option<LocalBase>,
    /// Position of the bucket's root, if this state directory has put it.
    pub bucket: Option<Lsn>,
}

/// How far what is left leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remains {
    /// What to begin with.
    pub base: Base,
    /// Its position: replay begins here.
    pub lsn: Lsn,
    /// The segment that holds it, or the next to be made.
    pub segment: u64,
    /// Behind the last batch that can be replayed.
    pub reached: Lsn,
    /// When that batch was made, if it is there.
    pub reached_time: Option<WallTime>,
    /// What was durable, as far as anything says that is left.
    pub durable: Lsn,
    /// No position or segment that anything left speaks of lies behind these.
    pub last: JournalMark,
    /// The newest batch that is left, whether it can be replayed or not.
    pub newest_time: Option<WallTime>,
    /// Segments are gone or cut, or what is left ends before what was durable.
    pub journal_is_damaged: bool,
    /// A checkpoint was being made of which the journal is lost, and there is nothing else to begin with: of the changes up to
    /// here some are there.
    pub mixed_to: Option<Lsn>,
}

impl Remains {
    /// `None`: there is nothing to begin with. `mark` is what the cache file notes, if that can be read.
    ///
    /// # Errors
    /// When a segment cannot be read.
    pub fn find(
        disk: &impl LocalDisk,
        identity: u64,
        bases: &Bases,
        mark: Option<Mark>,
    ) -> Result<Option<Self>, String> {
        let mut segments = BTreeMap::new();
        let mut is_cut = BTreeMap::new();
        for number in disk.segments()? {
            let bytes = disk.read_segment(number)?;
            let segment = read_segment(&bytes, number, identity);
            let allocated = segment.as_ref().map_or(0, |segment| segment.header.allocated_bytes);
            is_cut.insert(number, (bytes.len() as u64) < allocated);
            segments.insert(number, segment);
        }
        let noted = [mark.unwrap_or_default().journal, disk.noted_beside(identity)];
        let mark = noted.into_iter().max_by_key(|mark| mark.lsn).unwrap_or_default();
        let whole: Vec<&Segment> = segments.values().flatten().collect();
        let last = JournalMark {
            segment: segments.keys().next_back().copied().unwrap_or(0).max(mark.segment),
            lsn: whole.iter().map(|segment| segment.end).fold(mark.lsn, Lsn::max),
        };
        let claimed = whole.iter().map(|segment| segment.durable).fold(mark.lsn, Lsn::max);
        let candidates = [
            bases
                .bucket
                .map(|lsn| (Base::Bucket, lsn, segment_of(&segments, lsn), None)),
            bases
                .local
                .map(|local| (Base::Local, local.lsn, Some(local.segment), local.merging_to)),
        ];
        let furthest = candidates
            .into_iter()
            .flatten()
            .map(|(base, lsn, segment, merging_to)| {
                let segment = segment.unwrap_or(last.segment + 1);
                let reached = reach(&segments, segment, lsn);
                let mixed_to = merging_to.filter(|end| reached < *end);
                (reached, base, lsn, segment, mixed_to)
            })
            // Of two that lead equally far the last: what is here need not be fetched.
            .max_by_key(|(reached, .., mixed_to)| (mixed_to.is_none(), *reached));
        let Some((reached, base, lsn, segment, mixed_to)) = furthest else {
            return Ok(None);
        };
        let known = candidates
            .into_iter()
            .flatten()
            .map(|(_, lsn, _, merging_to)| merging_to.unwrap_or_default().max(lsn));
        let durable = known.fold(claimed, Lsn::max);
        let ends_there = whole
            .iter()
            .rfind(|segment| segment.end == reached && segment.batches > 0);
        Ok(Some(Self {
            base,
            lsn,
            segment,
            reached,
            reached_time: ends_there.map(|segment| segment.last_time),
            durable,
            last: JournalMark {
                segment: last.segment.max(segment),
                lsn: last.lsn.max(durable),
            },
            newest_time: whole.iter().map(|segment| segment.last_time).max(),
            journal_is_damaged: reached < durable
                || segments.is_empty()
                || is_cut.range(segment..).any(|(_, is_cut)| *is_cut),
            mixed_to,
        }))
    }
}

/// The segment that holds the position.
fn segment_of(segments: &BTreeMap<u64, Result<Segment, DecodeError>>, lsn: Lsn) -> Option<u64> {
    let mut holding = segments.iter().rev().filter_map(|(number, segment)| {
        let segment = segment.as_ref().ok()?;
        (segment.header.first_lsn <= lsn).then_some(*number)
    });
    holding.next()
}

/// How far batches follow each other from a position on.
fn reach(segments: &BTreeMap<u64, Result<Segment, DecodeError>>, first: u64, from: Lsn) -> Lsn {
    let limits = segment_limits(segments);
    let mut position = from;
    for (number, segment) in segments.range(first..) {
        let Ok(segment) = segment else { continue };
        if segment.header.first_lsn <= position {
            position = position.max(segment.end.min(limits[number]));
        }
    }
    position
}

/// The local disk without what is lost, so that recovery takes what is left for whole.
pub struct WhatIsLeft<'d, D> {
    disk: &'d D,
    remains: Remains,
    header: CacheHeader,
}

impl<'d, D: LocalDisk> WhatIsLeft<'d, D> {
    /// `mark` is what the cache file notes, if that can be read.
    pub fn new(disk: &'d D, remains: Remains, identity: u64, slot_count: u32, mark: Option<Mark>) -> Self {
        // All that is replayed counts as durable: a block that is missing is lost, and no end of the journal.
        let journal = JournalMark {
            segment: remains.segment,
            lsn: remains.reached,
        };
        let header = CacheHeader {
            identity,
            slot_count,
            mark: Mark {
                journal,
                // It may be made again, and shorter.
                metadata_bytes: 0,
                ..mark.unwrap_or_default()
            },
        };
        Self { disk, remains, header }
    }

    /// What the cache file has to note, so that a start takes what is left for whole.
    pub fn cache_file_header(&self) -> CacheHeader {
        self.header
    }

    fn header_of(&self, bytes: &[u8]) -> Option<SegmentHeader> {
        let header = SegmentHeader::decode(bytes).ok();
        header.filter(|header| header.journal_identity == self.header.identity)
    }
}

impl<D: LocalDisk> LocalDisk for WhatIsLeft<'_, D> {
    fn segments(&self) -> Result<Vec<u64>, String> {
        let mut segments = self.disk.segments()?;
        if self.remains.journal_is_damaged {
            let mut kept = Vec::new();
            for number in segments {
                let header = self.header_of(&self.disk.read_segment(number)?);
                if header.is_some_and(|header| header.first_lsn < self.remains.reached) {
                    kept.push(number);
                }
            }
            segments = kept;
        }
        Ok(segments)
    }

    /// One that was cut has its length again, and ends where what can be replayed ends.
    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String> {
        let mut bytes = self.disk.read_segment(segment)?;
        if let Some(header) = self.header_of(&bytes).filter(|_| self.remains.journal_is_damaged) {
            let mut batches = Batches::new(&bytes, &header);
            while batches.next < self.remains.reached && batches.next().is_some() {}
            let end = batches.offset.max(SEGMENT_HEADER_BYTES);
            bytes.truncate(end);
            bytes.resize(end.max(header.allocated_bytes as usize), 0);
        }
        Ok(bytes)
    }

    fn cache_header(&self) -> Result<Option<Vec<u8>>, String> {
        Ok(Some(self.header.encode()))
    }

    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        self.disk.sum_slot(slot)
    }
}

/// Blocks of a volume whose only copy is gone. They read as errors until they are overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostBlocks {
    /// Whose blocks: a volume, or a file of a share.
    pub volume: VolumeId,
    /// The first of them.
    pub first: u64,
    /// Blocks, at least one.
    pub count: u64,
    /// The first of them was written then or later.
    pub since: WallTime,
}

/// The dirty blocks whose slot does not hold them, in the order of volumes and blocks. It reads all dirty slots.
pub fn lost_blocks(core: &Core, disk: &impl LocalDisk) -> Vec<LostBlocks> {
    let lost = core.dirty.live_blocks().filter(|block| {
        let sum = core.slots.sum(block.slot);
        !disk.sum_slot(block.slot).is_ok_and(|found| found == sum)
    });
    let mut blocks: Vec<LostBlocks> = lost
        .map(|block| LostBlocks {
            volume: block.volume,
            first: block.block,
            count: 1,
            since: core
                .dirty
                .written_at(block.pvbn)
                .map_or(WallTime(0), |at| core.wall.time_of(at)),
        })
        .collect();
    blocks.sort_unstable_by_key(|block| (block.volume, block.first));
    let mut runs: Vec<LostBlocks> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(last) if last.volume == block.volume && last.first + last.count == block.first => {
                last.count += 1;
                last.since = last.since.min(block.since);
            }
            _ => runs.push(block),
        }
    }
    runs
}

/// The change of local metadata where the cache file's mark is lost, which said which PVBNs were given to writes that crashes
/// undid: new ones begin far behind those that are known. `core` is what was recovered.
pub fn skip_pvbns(before: Superblock, core: &Core) -> Frozen {
    Frozen {
        superblock: Superblock {
            next_pvbn: core.next_pvbn().0 + LOST_PVBNS_MAX,
            ..before
        },
        ..Frozen::default()
    }
}

/// Everything that a core has recovered, as a change of local metadata that needs no journal any more.
pub fn settle(mut core: Core) -> Frozen {
    core.take_frozen()
}

/// The change of local metadata that follows it where the journal has lost its end. Positions and numbers go on far behind
/// those that the lost part may have used: what it wrote, here or into the bucket, never comes to mean something else, and a
/// segment that turns up again is never replayed.
///
/// `entry` is one more entry to be set. `next_pvbn` and `next_volume` are the highest that are known besides.
pub fn go_on_behind(
    settled: Superblock,
    remains: &Remains,
    (next_pvbn, next_volume): (Pvbn, u64),
    entry: Option<(&[u8], &[u8])>,
) -> Frozen {
    let mut frozen = Frozen::default();
    if let Some((key, value)) = entry {
        frozen.entries.set(key, Some(value.into()));
    }
    frozen.superblock = Superblock {
        lsn: Lsn(remains.last.lsn.0 + LSN_GAP),
        segment: settled.segment.max(remains.last.segment + 1),
        next_pvbn: settled.next_pvbn.max(next_pvbn.0) + LOST_PVBNS_MAX,
        next_volume: settled.next_volume.max(next_volume) + VOLUMES_SKIPPED,
        ..settled
    };
    frozen
}
