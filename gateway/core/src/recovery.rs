//! Recovery: the state of the core from local metadata and the journal, by the records' own effects.
//!
//! The journal is read from the superblock's LSN on. A batch that is damaged, or a record whose slots do not hold what
//! its sums say, ends it: such a write was never flushed, and nothing behind it is applied, so what survives is a
//! prefix of the journal. If any batch anywhere says that more than that was durable, flushed data is damaged, and
//! recovery refuses instead of losing it in silence.

use crate::config::Config;
use crate::core_state::{Core, Counters, StoreState};
use crate::format::cache_header::{CacheHeader, Mark};
use crate::format::local_metadata::{MetadataFault, MetadataRead, Table, decode, get};
use crate::format::record::{Batch, LinkRun, Lsn, Record, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::format::slot_page::SLOTS_PER_PAGE;
use crate::format::slot_page::{SlotEntry, decode_slot_page};
use crate::format::superblock::Superblock;
use crate::state::checkpoints::Checkpoints;
use crate::state::dirty::{Dirty, DirtyBlock, Stage};
use crate::state::fetches::Fetches;
use crate::state::flush_pipeline::Flush;
use crate::state::group_commit::GroupCommit;
use crate::state::journal::Journal;
use crate::state::lost_blocks::Losses;
use crate::state::metadata_loads::MetadataLoads;
use crate::state::overlay::Overlay;
use crate::state::partial_writes::PartialWrites;
use crate::state::prefetch_state::{Policies, PrefetchState};
use crate::state::reads::Reads;
use crate::state::slot_transitions::{SlotTransition, SlotTransitions};
use crate::state::slots::{SlotState, Slots};
use crate::state::verifications::Verification;
use crate::state::wall_clock::WallClock;
use crate::state::weighted_lru::WeightedLru;
use crate::state::writes::Writes;
use alloc::{collections::BTreeMap, format, string::String, sync::Arc, vec::Vec};
use tombolo_base::{BlockSum, DecodeError, Instant, Lcbn, ObjectDescriptor, Pvbn, VolumeId, WallTime};

/// The local disk as recovery reads it: what the medium holds. Linux keeps pages that it could not write, as if it had,
/// so what was read through them would be called durable and vanish later: such pages MUST be dropped first.
pub trait LocalDisk {
    /// Segment numbers found, in any order.
    fn segments(&self) -> Result<Vec<u64>, String>;
    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String>;
    /// The first bytes of the cache file ([`crate::cache_header`]); `None`: there is none, so no slot holds anything.
    fn cache_header(&self) -> Result<Option<Vec<u8>>, String>;
    /// Sum of the bytes in a slot.
    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String>;
}

/// The local disk of a gateway that starts for the first time.
pub struct NewDisk;

impl LocalDisk for NewDisk {
    fn segments(&self) -> Result<Vec<u64>, String> {
        Ok(Vec::new())
    }

    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String> {
        Err(format!("there is no segment {segment}"))
    }

    fn cache_header(&self) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }

    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        Err(format!("nothing is in slot {}", slot.0))
    }
}

/// Why the gateway cannot start on this state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError<E> {
    #[error("local metadata: {0}")]
    Metadata(MetadataFault<E>),
    #[error("local metadata holds no superblock; restore the state directory from a copy")]
    SuperblockMissing,
    #[error("local disk: {0}")]
    Disk(String),
    #[error(
        "journal segment {segment} is damaged at byte {offset} ({error}), but data up to LSN {} was flushed and the \
         journal is readable only up to LSN {}; put the journal back as it was, or give the flushed data up explicitly",
        durable.0, readable.0
    )]
    JournalCorrupt {
        segment: u64,
        offset: u64,
        error: DecodeError,
        readable: Lsn,
        durable: Lsn,
    },
    #[error(
        "the journal ends at LSN {}, but data up to LSN {} was flushed: segment {segment} is missing or its end is; \
         put the journal back as it was, or give the flushed data up explicitly",
        readable.0, durable.0
    )]
    JournalMissing { segment: u64, readable: Lsn, durable: Lsn },
    #[error(
        "journal segment {segment} was cut: it has {found} of {allocated} bytes; put the journal back as it was, or \
         give up explicitly what it held"
    )]
    JournalCut { segment: u64, found: u64, allocated: u64 },
    #[error(
        "the journal's batch at LSN {} names slot {slot}, but the cache has {slot_count} slots",
        lsn.0
    )]
    SlotBeyondEnd { lsn: Lsn, slot: u32, slot_count: u32 },
    #[error(
        "the cache file is missing, and with it {dirty} blocks that are not in the cloud; put the file back, or give \
         up the data by removing the state directory"
    )]
    CacheMissing { dirty: u64 },
    #[error(
        "the cache file's header cannot be read ({0}); put the file back as it was, or move it away if nothing in it \
         is missing in the cloud"
    )]
    CacheHeader(DecodeError),
    #[error(
        "the cache file belongs to another state directory (its identity is {found:016x}, not {expected:016x}); put \
         the right one back, or move it away if nothing is missing in the cloud"
    )]
    CacheForeign { found: u64, expected: u64 },
    #[error(
        "the state was made with {found} cache slots and cannot be used with {configured}; set [cache] size back to \
         {found} blocks of 4 KiB"
    )]
    SlotCount { found: u32, configured: u32 },
}

/// What recovery found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub batches: u64,
    pub records: u64,
    /// Bytes of journal after the last good batch, given up as never flushed.
    pub torn_bytes: u64,
    /// How many readable batches are among them.
    pub given_up_batches: u64,
    pub clean_slots: u64,
    pub dirty_blocks: u64,
    /// Objects confirmed since the checkpoint: their fingerprints go into the index again.
    pub objects: Vec<Arc<ObjectDescriptor>>,
    /// Segments that hold nothing needed.
    pub obsolete_segments: Vec<u64>,
    /// Segment, and the offset from which on it MUST be zeroed before anything else is written: the batches behind were
    /// given up, and a later recovery that does not find this life's segments must not find them again.
    pub cut: Option<(u64, u64)>,
}

/// The policies and limits of the core to build.
pub struct Parts {
    pub config: Config,
    /// What the machine's clock says, in microseconds since 1970: how old what is dirty is, is told by it.
    pub wall_micros: u64,
    pub policies: Policies,
}

/// Room left after the highest PVBN seen and the first of the life before, so that none given to a write that a crash
/// undid is used again.
const PVBN_GAP: u64 = 1 << 20;

/// Builds the core from what [`Superblock::first`] began. It changes nothing. The caller MUST then zero as
/// [`Report::cut`] says, delete [`Report::obsolete_segments`], and sync cache file (with a note of [`Core::next_pvbn`])
/// and journal, in this order, before it lets the core run: what was replayed counts as durable from here on.
pub fn recover<M: MetadataRead>(
    now: Instant,
    parts: Parts,
    metadata: &M,
    disk: &impl LocalDisk,
) -> Result<(Core, Report), RecoveryError<M::Error>> {
    let superblock = load_superblock(metadata).map_err(RecoveryError::Metadata)?;
    let superblock = superblock.ok_or(RecoveryError::SuperblockMissing)?;
    if superblock.slot_count != parts.config.slot_count {
        let (found, configured) = (superblock.slot_count, parts.config.slot_count);
        return Err(RecoveryError::SlotCount { found, configured });
    }
    let mark = load_mark(disk, &superblock)?;
    let segments = read_segments(disk, &superblock)?;
    let mut core = empty_core(now, parts, &superblock, &segments);
    core.advise_costs();
    for (first, time) in &superblock.dirty_ages {
        let at = core.wall.instant_of(*time, now);
        core.dirty.restore_age(*first, at);
    }
    load_slots(&mut core, metadata, mark.is_none()).map_err(RecoveryError::Metadata)?;
    core.counters_of_entries = load_counters(metadata).map_err(RecoveryError::Metadata)?;
    let mut report = replay(&mut core, &superblock, mark, segments, disk)?;
    if mark.is_none() && core.slots.dirty_count() > 0 {
        return Err(RecoveryError::CacheMissing {
            dirty: u64::from(core.slots.dirty_count()),
        });
    }
    core.slots.rebuild_free();
    core.recovered_dirty = core.slots.dirty_count();
    let given_out = mark.map_or(0, |mark| mark.next_pvbn).max(core.next_pvbn.0);
    core.next_pvbn = Pvbn(given_out + PVBN_GAP);
    core.dirty.set_durable(core.next_pvbn);
    report.clean_slots = u64::from(core.slots.clean_count());
    report.dirty_blocks = core.dirty.len() as u64;
    core.flush.remembered = report.objects.iter().map(|object| object.blocks().len()).sum();
    Ok((core, report))
}

pub fn load_superblock<M: MetadataRead>(metadata: &M) -> Result<Option<Superblock>, MetadataFault<M::Error>> {
    match get(metadata, Table::Super, &[])? {
        Some(bytes) => decode(Table::Super, &[], Superblock::decode(&bytes)).map(Some),
        None => Ok(None),
    }
}

/// What the cache file notes, if it is the right one; `None`: there is none.
fn load_mark<E>(disk: &impl LocalDisk, superblock: &Superblock) -> Result<Option<Mark>, RecoveryError<E>> {
    let Some(bytes) = disk.cache_header().map_err(RecoveryError::Disk)? else {
        return Ok(None);
    };
    let header = CacheHeader::decode(&bytes).map_err(RecoveryError::CacheHeader)?;
    if header.identity != superblock.journal_identity {
        let (found, expected) = (header.identity, superblock.journal_identity);
        return Err(RecoveryError::CacheForeign { found, expected });
    }
    if header.slot_count != superblock.slot_count {
        return Err(RecoveryError::CacheHeader(DecodeError::Invalid {
            what: "cache file slot count",
            value: u64::from(header.slot_count),
        }));
    }
    Ok(Some(header.mark))
}

/// What a first look through a segment finds. Its batches are read again when they are wanted, so that memory holds
/// one segment at a time.
struct Segment {
    header: SegmentHeader,
    /// LSN behind the last readable batch.
    end: Lsn,
    batches: u64,
    /// What stopped the reading, where, and how many bytes follow.
    stopped: Option<(DecodeError, u64, u64)>,
    /// The highest durable LSN that any intact batch names, even beyond the damage.
    durable: Lsn,
}

fn read_segments<E>(
    disk: &impl LocalDisk,
    superblock: &Superblock,
) -> Result<BTreeMap<u64, Result<Segment, DecodeError>>, RecoveryError<E>> {
    let mut segments = BTreeMap::new();
    for number in disk.segments().map_err(RecoveryError::Disk)? {
        let bytes = disk.read_segment(number).map_err(RecoveryError::Disk)?;
        let segment = read_segment(&bytes, number, superblock);
        if let Ok(Segment { header, .. }) = &segment
            && number >= superblock.segment
            && (bytes.len() as u64) < header.allocated_bytes
        {
            return Err(RecoveryError::JournalCut {
                segment: number,
                found: bytes.len() as u64,
                allocated: header.allocated_bytes,
            });
        }
        segments.insert(number, segment);
    }
    Ok(segments)
}

fn read_segment(bytes: &[u8], number: u64, superblock: &Superblock) -> Result<Segment, DecodeError> {
    let header = SegmentHeader::decode(bytes)?;
    if header.segment != number {
        return Err(DecodeError::Invalid {
            what: "segment number",
            value: header.segment,
        });
    }
    if header.journal_identity != superblock.journal_identity {
        return Err(DecodeError::Invalid {
            what: "segment journal identity",
            value: header.journal_identity,
        });
    }
    let mut segment = Segment {
        end: header.first_lsn,
        batches: 0,
        stopped: None,
        durable: Lsn(0),
        header,
    };
    let mut batches = Batches::new(bytes, &segment.header);
    for found in &mut batches {
        segment.end = found.end;
        segment.batches += 1;
        segment.durable = segment.durable.max(found.batch.durable_lsn);
    }
    if let (offset, Some(error)) = (batches.offset, batches.error) {
        segment.stop(error, bytes, offset);
    }
    Ok(segment)
}

impl Segment {
    fn stop(&mut self, error: DecodeError, bytes: &[u8], offset: usize) {
        let rest = &bytes[offset..];
        // Preallocated space is zero: that is the ordinary end.
        let Some(last) = rest.iter().rposition(|byte| *byte != 0) else {
            return;
        };
        self.stopped = Some((error, offset as u64, last as u64 + 1));
        // Look for intact batches beyond the damage: they may say that the damaged part was durable.
        let identity = self.header.journal_identity;
        let mut at = 1;
        while at + crate::format::record::BATCH_HEADER_BYTES <= rest.len() {
            if rest[at..].starts_with(b"TJB1")
                && let Ok((batch, length)) = Batch::decode(&rest[at..], identity)
                && batch.lsn >= self.end
            {
                self.durable = self.durable.max(batch.durable_lsn);
                at += length;
            } else {
                at += 1;
            }
        }
    }
}

/// A batch of a segment, and where it lies.
struct Found {
    batch: Batch,
    end: Lsn,
    place: Place,
}

#[derive(Clone, Copy)]
struct Place {
    segment: u64,
    offset: u64,
    lsn: Lsn,
}

/// A segment's batches one after another, up to the first that cannot be read.
struct Batches<'b> {
    bytes: &'b [u8],
    segment: u64,
    identity: u64,
    offset: usize,
    next: Lsn,
    /// What ended it before the end of the bytes.
    error: Option<DecodeError>,
}

impl<'b> Batches<'b> {
    fn new(bytes: &'b [u8], header: &SegmentHeader) -> Self {
        Self {
            bytes,
            segment: header.segment,
            identity: header.journal_identity,
            offset: SEGMENT_HEADER_BYTES,
            next: header.first_lsn,
            error: None,
        }
    }
}

impl Iterator for Batches<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        if self.offset >= self.bytes.len() || self.error.is_some() {
            return None;
        }
        match Batch::decode(&self.bytes[self.offset..], self.identity) {
            Ok((batch, length)) if batch.lsn == self.next => {
                let place = Place {
                    segment: self.segment,
                    offset: self.offset as u64,
                    lsn: batch.lsn,
                };
                self.next = Lsn(batch.lsn.0 + length as u64);
                self.offset += length;
                Some(Found {
                    batch,
                    end: self.next,
                    place,
                })
            }
            Ok((batch, _)) => {
                self.error = Some(DecodeError::Invalid {
                    what: "batch LSN",
                    value: batch.lsn.0,
                });
                None
            }
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }
}

fn empty_core(
    now: Instant,
    parts: Parts,
    superblock: &Superblock,
    segments: &BTreeMap<u64, Result<Segment, DecodeError>>,
) -> Core {
    let config = parts.config;
    let policies = parts.policies;
    let mut slots = Slots::new(config.slot_count, policies.replacement);
    slots.set_second_chances(policies.prefetcher.uses_second_chances());
    let (prefetcher, addressing, economy) = (policies.prefetcher, policies.addressing, policies.economy);
    let prefetch_state = PrefetchState::new(prefetcher, addressing, economy, config.slot_count, now);
    let last_segment = segments
        .keys()
        .next_back()
        .copied()
        .unwrap_or(0)
        .max(superblock.segment);
    Core {
        now,
        wall: WallClock::new(now, parts.wall_micros),
        out: Vec::new(),
        volumes: superblock
            .volumes
            .iter()
            .map(|volume| (volume.id, volume.clone()))
            .collect(),
        next_volume: superblock.next_volume,
        next_pvbn: Pvbn(superblock.next_pvbn),
        next_job: 0,
        journal: Journal::new(
            superblock.journal_identity,
            last_segment + 1,
            superblock.lsn,
            config.segment_bytes,
            BTreeMap::new(),
        ),
        slots,
        dirty: Dirty::default(),
        corrupt: BTreeMap::new(),
        overlay: Overlay::default(),
        counters_of_entries: BTreeMap::new(),
        frozen: None,
        generation: 0,
        pages: WeightedLru::new(config.map_cache_bytes),
        descriptors: WeightedLru::new(config.descriptor_cache_bytes),
        prefetch_state,
        writes: Writes::default(),
        partial_writes: PartialWrites::default(),
        reads: Reads::default(),
        metadata_loads: MetadataLoads::default(),
        fetches: Fetches::default(),
        flush: Flush::default(),
        verification: Verification::new(config.present_objects_max),
        losses: Losses::default(),
        group_commit: GroupCommit::default(),
        slot_transitions: SlotTransitions::default(),
        checkpoints: Checkpoints::new(now, superblock.lsn),
        counters: Counters::default(),
        totals: superblock.totals,
        store: StoreState::default(),
        failed: None,
        recovered_dirty: 0,
        config,
    }
}

fn load_slots<M: MetadataRead>(
    core: &mut Core,
    metadata: &M,
    cache_is_missing: bool,
) -> Result<(), MetadataFault<M::Error>> {
    let mut dirty: Vec<DirtyBlock> = Vec::new();
    let mut key = Vec::new();
    while let Some((found, bytes)) = metadata.ceiling(Table::Slots, &key).map_err(MetadataFault::Store)? {
        let page = <[u8; 4]>::try_from(found.as_slice()).map(u32::from_be_bytes);
        let entries = decode(Table::Slots, &found, decode_slot_page(&bytes))?;
        let in_range = |page: u32| u64::from(page) * u64::from(SLOTS_PER_PAGE) + entries.len() as u64;
        let Some(first) = page
            .ok()
            .filter(|page| in_range(*page) <= u64::from(core.slots.count()))
        else {
            let error = DecodeError::Invalid {
                what: "slot page",
                value: entries.len() as u64,
            };
            return Err(MetadataFault::Corrupt {
                table: Table::Slots,
                key: found,
                error,
            });
        };
        for (offset, entry) in entries.into_iter().enumerate() {
            let slot = Lcbn(first * SLOTS_PER_PAGE + offset as u32);
            match entry {
                SlotEntry::Free => {}
                SlotEntry::Clean { .. } if cache_is_missing => {}
                SlotEntry::Clean { pvbn, sum } => core.slots.restore(slot, pvbn, sum, SlotState::Clean),
                SlotEntry::Corrupt {
                    pvbn,
                    sum,
                    volume,
                    block,
                } => {
                    core.slots.restore(slot, pvbn, sum, SlotState::Corrupt);
                    core.corrupt.insert((volume, block), slot);
                }
                SlotEntry::Dirty {
                    pvbn,
                    sum,
                    volume,
                    block,
                } => {
                    core.slots.restore(slot, pvbn, sum, SlotState::Dirty);
                    dirty.push(DirtyBlock {
                        pvbn,
                        slot,
                        volume,
                        block,
                        stage: Stage::Queued,
                    });
                }
            }
        }
        key = found;
        key.push(0);
    }
    dirty.sort_unstable_by_key(|block| block.pvbn);
    for block in dirty {
        core.dirty.restore(block);
    }
    core.dirty.trim_ages();
    Ok(())
}

fn load_counters<M: MetadataRead>(metadata: &M) -> Result<BTreeMap<Vec<u8>, i64>, MetadataFault<M::Error>> {
    let mut counters = BTreeMap::new();
    let mut key = Vec::new();
    while let Some((found, bytes)) = metadata.ceiling(Table::Counters, &key).map_err(MetadataFault::Store)? {
        let value = <[u8; 8]>::try_from(bytes.as_slice()).map_err(|_| MetadataFault::Corrupt {
            table: Table::Counters,
            key: found.clone(),
            error: DecodeError::Invalid {
                what: "counter length",
                value: bytes.len() as u64,
            },
        })?;
        key.clone_from(&found);
        key.push(0);
        counters.insert(found, i64::from_le_bytes(value));
    }
    Ok(counters)
}

/// The batches that continue the checkpoint one by one, and what ended them.
struct Tail {
    /// Where they lie: of each of these segments those from the first LSN on and below the second.
    parts: Vec<(SegmentHeader, Lsn, Lsn)>,
    kept: BTreeMap<u64, Lsn>,
    damage: Option<(u64, u64, DecodeError)>,
}

fn replay<E>(
    core: &mut Core,
    superblock: &Superblock,
    mark: Option<Mark>,
    segments: BTreeMap<u64, Result<Segment, DecodeError>>,
    disk: &impl LocalDisk,
) -> Result<Report, RecoveryError<E>> {
    let mut report = Report::default();
    let claimed = segments.values().flatten().map(|segment| segment.durable).max();
    let noted = mark.map_or(Lsn(0), |mark| mark.journal.lsn);
    let durable = superblock.lsn.max(noted).max(claimed.unwrap_or_default());
    let missing_segment = missing_segment(superblock, mark, &segments);
    // Without the cache file no block can be looked at, so none may be needed.
    let mut arrival = Arrival::new(mark.map_or(Lsn(u64::MAX), |_| durable), core.slots.count());
    let mut tail = read_tail(superblock, segments, disk, &mut arrival, &mut report)?;
    let batches = arrival.count;
    let given_up = arrival.first_given_up();
    let given_up = given_up.map(|(length, first)| {
        report.given_up_batches += (batches - length) as u64;
        first
    });
    if let Some(first) = given_up {
        let what = "data of the batch";
        let value = first.lsn.0;
        report.cut = Some((first.segment, first.offset));
        let end = tail.parts.last().map_or(first.lsn, |(_, _, end)| *end);
        report.torn_bytes += end.0 - first.lsn.0;
        let later: Vec<u64> = tail
            .kept
            .range(first.segment + 1..)
            .map(|(number, _)| *number)
            .collect();
        report.obsolete_segments.extend(later);
        tail.kept.retain(|number, _| *number <= first.segment);
        tail.damage
            .get_or_insert((first.segment, first.offset, DecodeError::Invalid { what, value }));
    }
    let mut position = superblock.lsn;
    let end = given_up.map_or(Lsn(u64::MAX), |first| first.lsn);
    for (header, from, to) in tail.parts {
        let bytes = disk.read_segment(header.segment).map_err(RecoveryError::Disk)?;
        for found in part_of(&bytes, &header, from, to.min(end)) {
            report.batches += 1;
            report.records += found.batch.records.len() as u64;
            for record in found.batch.records {
                replay_record(core, found.batch.time, record, &mut report);
            }
            position = found.end;
        }
    }
    core.checkpoints.overlay_records = report.records;
    if position < durable {
        return Err(match tail.damage {
            Some((segment, offset, error)) => RecoveryError::JournalCorrupt {
                segment,
                offset,
                error,
                readable: position,
                durable,
            },
            None => RecoveryError::JournalMissing {
                segment: missing_segment,
                readable: position,
                durable,
            },
        });
    }
    let (identity, segment) = (core.journal.identity(), core.journal.segment());
    core.journal = Journal::new(identity, segment, position, core.config.segment_bytes, tail.kept);
    Ok(report)
}

/// Where to look for what is not there: the first number without a segment, or the one that was written last.
fn missing_segment(
    superblock: &Superblock,
    mark: Option<Mark>,
    segments: &BTreeMap<u64, Result<Segment, DecodeError>>,
) -> u64 {
    let last = mark.map_or(0, |mark| mark.journal.segment).max(superblock.segment);
    (superblock.segment..=last)
        .find(|number| !segments.contains_key(number))
        .unwrap_or(last)
}

/// The batches that begin at `from` or later, and before `to`.
fn part_of<'b>(bytes: &'b [u8], header: &SegmentHeader, from: Lsn, to: Lsn) -> impl Iterator<Item = Found> + use<'b> {
    let batches = Batches::new(bytes, header);
    let batches = batches.skip_while(move |found| found.place.lsn < from);
    batches.take_while(move |found| found.place.lsn < to)
}

/// Shows `arrival` each of the batches.
fn read_tail<D: LocalDisk, E>(
    superblock: &Superblock,
    segments: BTreeMap<u64, Result<Segment, DecodeError>>,
    disk: &D,
    arrival: &mut Arrival,
    report: &mut Report,
) -> Result<Tail, RecoveryError<E>> {
    let mut tail = Tail {
        parts: Vec::new(),
        kept: BTreeMap::new(),
        damage: None,
    };
    let mut position = superblock.lsn;
    let mut limits = segment_limits(&segments);
    for (number, segment) in segments {
        let limit = limits.remove(&number).unwrap_or(Lsn(u64::MAX));
        // Below the checkpoint's segment there is nothing but what the checkpoint holds, and what earlier recoveries
        // gave up.
        if number < superblock.segment {
            report.obsolete_segments.push(number);
            continue;
        }
        let segment = match segment {
            Ok(segment) if segment.header.first_lsn <= position => segment,
            Ok(segment) => {
                // What links it to the rest is not there: an unsynced segment overtook its predecessor.
                let error = DecodeError::Invalid {
                    what: "segment LSN",
                    value: segment.header.first_lsn.0,
                };
                tail.damage.get_or_insert((number, 24, error));
                report.torn_bytes += segment.end.0 - segment.header.first_lsn.0;
                report.given_up_batches += segment.batches;
                report.obsolete_segments.push(number);
                continue;
            }
            Err(error) => {
                tail.damage.get_or_insert((number, 0, error));
                report.obsolete_segments.push(number);
                continue;
            }
        };
        if segment.end <= superblock.lsn && segment.stopped.is_none() {
            report.obsolete_segments.push(number);
            continue;
        }
        tail.kept.insert(number, segment.header.first_lsn);
        let from = position;
        let bytes = disk.read_segment(number).map_err(RecoveryError::Disk)?;
        // An earlier recovery gave up what follows `limit` and wrote the next segment in its place.
        for found in part_of(&bytes, &segment.header, from, limit) {
            if found.place.lsn != position {
                break;
            }
            position = found.end;
            arrival.look(&found, disk)?;
        }
        tail.parts.push((segment.header, from, position));
        if let Some((error, offset, bytes)) = segment.stopped {
            report.torn_bytes += bytes;
            report.cut = Some((number, offset));
            tail.damage.get_or_insert((number, offset, error));
        }
    }
    Ok(tail)
}

/// Where the next intact segment takes over from each.
fn segment_limits(segments: &BTreeMap<u64, Result<Segment, DecodeError>>) -> BTreeMap<u64, Lsn> {
    let mut limits = BTreeMap::new();
    let mut next = Lsn(u64::MAX);
    for (number, segment) in segments.iter().rev() {
        limits.insert(*number, next);
        if let Ok(segment) = segment {
            next = next.min(segment.header.first_lsn);
        }
    }
    limits
}

/// A block whose slot does not hold what its record says.
struct Missing {
    /// Index of the batch that wrote it.
    since: usize,
    volume: VolumeId,
    block: u64,
}

/// How many of the batches, from the first on, can be replayed.
///
/// Beyond what was known durable, a record may have reached the disk without its data; then replay ends before it.
/// But a slot may also hold other data because it was used again, which is done only when a later record that makes
/// the block dispensable is durable. So the longest prefix counts in which every block that is still needed is there.
struct Arrival {
    durable: Lsn,
    slot_count: u32,
    count: usize,
    /// Changes, from one prefix length to the next, in the number of blocks that are needed and missing.
    steps: BTreeMap<usize, i64>,
    missing: BTreeMap<Pvbn, Missing>,
    places: BTreeMap<(VolumeId, u64), Pvbn>,
    /// Where the batches lie that wrote a missing block.
    suspects: BTreeMap<usize, Place>,
}

impl Arrival {
    fn new(durable: Lsn, slot_count: u32) -> Self {
        Self {
            durable,
            slot_count,
            count: 0,
            steps: BTreeMap::new(),
            missing: BTreeMap::new(),
            places: BTreeMap::new(),
            suspects: BTreeMap::new(),
        }
    }

    /// Takes the next batch in.
    fn look<E>(&mut self, found: &Found, disk: &impl LocalDisk) -> Result<(), RecoveryError<E>> {
        let index = self.count;
        self.count += 1;
        for record in &found.batch.records {
            for pvbn in dispensable(record, &self.missing, &self.places) {
                if let Some(found) = self.missing.remove(&pvbn) {
                    self.places.remove(&(found.volume, found.block));
                    *self.steps.entry(found.since + 1).or_default() += 1;
                    *self.steps.entry(index + 1).or_default() -= 1;
                }
            }
            let Record::Write {
                volume,
                first,
                pvbn,
                slots,
                sums,
            } = record
            else {
                continue;
            };
            // A journal that names slots which the cache does not have is another cache's.
            if let Some(run) = slots.iter().find(|run| run.end() > u64::from(self.slot_count)) {
                return Err(RecoveryError::SlotBeyondEnd {
                    lsn: found.place.lsn,
                    slot: run.first.0.saturating_add(run.count.saturating_sub(1)),
                    slot_count: self.slot_count,
                });
            }
            if found.place.lsn < self.durable {
                continue;
            }
            for (offset, (slot, sum)) in (0u64..).zip(slots.iter().flat_map(|run| run.slots()).zip(sums)) {
                // A sector that cannot be read is no write that was lost: the others count, this block is found lost later.
                if disk.sum_slot(slot).is_ok_and(|found| found != *sum) {
                    let (volume, block, since) = (*volume, first + offset, index);
                    self.places.insert((volume, block), pvbn.plus(offset));
                    self.missing.insert(pvbn.plus(offset), Missing { since, volume, block });
                    self.suspects.insert(index, found.place);
                }
            }
        }
        Ok(())
    }

    /// The length of the longest prefix and the batch behind it, if that is not all of them.
    fn first_given_up(mut self) -> Option<(usize, Place)> {
        for found in self.missing.values() {
            *self.steps.entry(found.since + 1).or_default() += 1;
        }
        let mut needed_and_missing = 0;
        let mut longest = None;
        for (length, step) in self.steps {
            let before = needed_and_missing;
            needed_and_missing += step;
            // The prefix that is one shorter than the first bad one ends before a batch that wrote a missing block.
            if before == 0 && needed_and_missing > 0 {
                longest = Some(length - 1);
            } else if needed_and_missing == 0 {
                longest = None;
            }
        }
        longest.and_then(|length| Some((length, self.suspects.remove(&length)?)))
    }
}

/// The missing blocks that are not needed any more once the record is applied.
fn dispensable(
    record: &Record,
    missing: &BTreeMap<Pvbn, Missing>,
    places: &BTreeMap<(VolumeId, u64), Pvbn>,
) -> Vec<Pvbn> {
    let within = |volume: VolumeId, first: u64, end: u64| -> Vec<Pvbn> {
        places
            .range((volume, first)..(volume, end))
            .map(|(_, pvbn)| *pvbn)
            .collect()
    };
    match record {
        _ if missing.is_empty() => Vec::new(),
        Record::Write {
            volume, first, sums, ..
        } => within(*volume, *first, first + sums.len() as u64),
        Record::Hole { volume, first, count }
        | Record::Link(LinkRun {
            volume, first, count, ..
        }) => within(*volume, *first, first + count),
        Record::Delete { volume } => within(*volume, 0, u64::MAX),
        Record::Redirect { count, from, .. } => {
            let redirected = missing.range(*from..from.plus(u64::from(*count)));
            redirected.map(|(pvbn, _)| *pvbn).collect()
        }
        Record::Object(descriptor) => descriptor
            .blocks()
            .iter()
            .map(|packed| packed.pvbn)
            .filter(|pvbn| missing.contains_key(pvbn))
            .collect(),
        Record::Create { .. } | Record::Resize { .. } | Record::Entries(_) => Vec::new(),
    }
}

fn replay_record(core: &mut Core, time: WallTime, record: Record, report: &mut Report) {
    let mut settling = core.apply(&record);
    settling.extend(core.sweep_all().into_iter().map(|slot| (slot, SlotTransition::Free)));
    for (slot, becomes) in settling {
        let (pvbn, sum) = (core.slots.pvbn(slot), core.slots.sum(slot));
        match becomes {
            SlotTransition::Clean { .. } => core.slots.restore(slot, pvbn, sum, SlotState::Clean),
            SlotTransition::Free => core.slots.restore(slot, pvbn, sum, SlotState::Free),
        }
    }
    match record {
        Record::Write {
            volume,
            first,
            pvbn,
            slots,
            sums,
        } => {
            for (offset, (slot, sum)) in (0u64..).zip(slots.iter().flat_map(|run| run.slots()).zip(sums)) {
                core.slots.restore(slot, pvbn.plus(offset), sum, SlotState::Dirty);
                let block = DirtyBlock {
                    pvbn: pvbn.plus(offset),
                    slot,
                    volume,
                    block: first + offset,
                    stage: Stage::Queued,
                };
                core.dirty.push(core.wall.instant_of(time, core.now), block);
            }
        }
        Record::Object(descriptor) => {
            for packed in descriptor.blocks() {
                let Some(block) = core.dirty.remove(packed.pvbn) else {
                    continue;
                };
                let sum = core.slots.sum(block.slot);
                core.slots.restore(block.slot, packed.pvbn, sum, SlotState::Clean);
            }
            report.objects.push(Arc::new(descriptor));
        }
        Record::Hole { .. }
        | Record::Redirect { .. }
        | Record::Create { .. }
        | Record::Resize { .. }
        | Record::Delete { .. }
        | Record::Link(_)
        | Record::Entries(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::SlotRun;
    use crate::state::prefetch_state::Economy;
    use crate::test_bench::{Bench, FIRST_PVBN};
    use tombolo_base::{BlockEncoding, Fingerprint};

    /// Slots by their sums.
    struct Sums(Vec<u64>);

    impl LocalDisk for Sums {
        fn segments(&self) -> Result<Vec<u64>, String> {
            Ok(Vec::new())
        }
        fn read_segment(&self, _segment: u64) -> Result<Vec<u8>, String> {
            Err(String::new())
        }
        fn cache_header(&self) -> Result<Option<Vec<u8>>, String> {
            Ok(Some(Vec::new()))
        }
        fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
            Ok(BlockSum(self.0[slot.0 as usize]))
        }
    }

    fn write(block: u64, pvbn: u64, slot: u32, sum: u64) -> Record {
        let run = SlotRun {
            first: Lcbn(slot),
            count: 1,
        };
        Record::Write {
            volume: VolumeId(1),
            first: block,
            pvbn: Pvbn(pvbn),
            slots: vec![run],
            sums: vec![BlockSum(sum)],
        }
    }

    /// A batch for each record, at LSN 0, 100, 200 and so on.
    fn candidates(records: Vec<Record>) -> Vec<Found> {
        let lsns = (0..).map(|index| Lsn(100 * index));
        let found = lsns.zip(records).map(|(lsn, record)| Found {
            batch: Batch {
                lsn,
                durable_lsn: Lsn(0),
                time: WallTime(0),
                records: vec![record],
            },
            end: Lsn(lsn.0 + 100),
            place: Place {
                segment: 1,
                offset: 0,
                lsn,
            },
        });
        found.collect()
    }

    fn arrived_count(candidates: &[Found], durable: Lsn, disk: &Sums) -> Result<usize, RecoveryError<String>> {
        let mut arrival = Arrival::new(durable, 64);
        for found in candidates {
            arrival.look(found, disk)?;
        }
        let given_up = arrival.first_given_up();
        Ok(given_up.map_or(candidates.len(), |(length, place)| {
            assert_eq!(place.lsn.0 as usize / 100, length);
            length
        }))
    }

    #[test]
    fn a_slot_used_again_does_not_end_the_journal() {
        // Slot 0 held block 7 until it was overwritten, then block 8.
        let records = candidates(vec![write(7, 1, 0, 11), write(7, 2, 1, 22), write(8, 3, 0, 33)]);
        assert_eq!(arrived_count(&records, Lsn(0), &Sums(vec![33, 22])), Ok(3));
        // Used again by a write whose record was lost with the crash.
        assert_eq!(arrived_count(&records[..2], Lsn(0), &Sums(vec![99, 22])), Ok(2));
    }

    #[test]
    fn a_slot_used_again_after_a_link_does_not_end_the_journal() {
        let link = |volume, first| {
            Record::Link(LinkRun {
                volume,
                first,
                count: 1,
                pvbn: Pvbn(90),
            })
        };
        // Slot 0 held block 7 until a link replaced it, then block 8.
        let records = candidates(vec![write(7, 1, 0, 11), link(VolumeId(1), 7), write(8, 2, 0, 33)]);
        assert_eq!(arrived_count(&records, Lsn(0), &Sums(vec![33])), Ok(3));
        let elsewhere = candidates(vec![write(7, 1, 0, 11), link(VolumeId(1), 6), write(8, 2, 0, 33)]);
        assert_eq!(arrived_count(&elsewhere, Lsn(0), &Sums(vec![33])), Ok(0));
    }

    /// Block 7 was written to slot 0; then something made it dispensable; then slot 0 was used for block 8.
    fn arrived_after(dispensing: Record) -> usize {
        let records = candidates(vec![write(7, 1, 0, 11), dispensing, write(8, 2, 0, 33)]);
        arrived_count(&records, Lsn(0), &Sums(vec![33])).unwrap()
    }

    #[test]
    fn a_slot_used_again_after_a_hole_does_not_end_the_journal() {
        let hole = |volume, first, count| Record::Hole { volume, first, count };
        assert_eq!(arrived_after(hole(VolumeId(1), 0, 8)), 3);
        assert_eq!(arrived_after(hole(VolumeId(1), 7, 1)), 3);
        for elsewhere in [
            hole(VolumeId(2), 0, 8),
            hole(VolumeId(1), 0, 7),
            hole(VolumeId(1), 8, 4),
        ] {
            assert_eq!(arrived_after(elsewhere), 0);
        }
    }

    #[test]
    fn a_slot_used_again_after_its_volume_went_does_not_end_the_journal() {
        let volume = VolumeId(1);
        assert_eq!(arrived_after(Record::Delete { volume }), 3);
        let volume = VolumeId(2);
        assert_eq!(arrived_after(Record::Delete { volume }), 0);
    }

    #[test]
    fn a_slot_used_again_after_a_redirect_does_not_end_the_journal() {
        let redirect = |from, count| Record::Redirect {
            volume: VolumeId(1),
            first: 7,
            count,
            from: Pvbn(from),
            to: Pvbn(90),
        };
        assert_eq!([redirect(1, 1), redirect(0, 2)].map(arrived_after), [3, 3]);
        assert_eq!([redirect(0, 1), redirect(2, 1)].map(arrived_after), [0, 0]);
    }

    #[test]
    fn a_slot_used_again_after_its_block_was_stored_does_not_end_the_journal() {
        let object = |pvbn| {
            let stored = (Pvbn(pvbn), Fingerprint([0; 32]), 4096, BlockEncoding::Plain);
            Record::Object(ObjectDescriptor::new([stored]))
        };
        assert_eq!([object(1), object(2)].map(arrived_after), [3, 0]);
    }

    #[test]
    fn a_needed_block_that_did_not_arrive_ends_the_journal_before_it() {
        let records = candidates(vec![write(7, 1, 0, 11), write(8, 2, 1, 22), write(9, 3, 2, 33)]);
        assert_eq!(arrived_count(&records, Lsn(0), &Sums(vec![11, 99, 33])), Ok(1));
        assert_eq!(
            arrived_count(&records, Lsn(200), &Sums(vec![11, 99, 33])),
            Ok(3),
            "known durable"
        );
        assert_eq!(arrived_count(&records, Lsn(0), &Sums(vec![99, 22, 33])), Ok(0));
    }

    #[test]
    fn a_missing_block_that_is_replaced_by_a_missing_block_ends_the_journal_before_both() {
        let records = candidates(vec![write(7, 1, 0, 11), write(7, 2, 1, 22), write(9, 3, 2, 33)]);
        assert_eq!(arrived_count(&records, Lsn(0), &Sums(vec![99, 99, 33])), Ok(0));
    }

    #[test]
    fn a_segment_rolled_over_by_an_unsynced_journal_claims_no_durability() {
        let header = SegmentHeader {
            segment: 2,
            first_lsn: Lsn(5_000),
            journal_identity: 9,
            allocated_bytes: 0,
        };
        let batch = Batch {
            lsn: Lsn(5_000),
            durable_lsn: Lsn(4_000),
            time: WallTime(0),
            records: Vec::new(),
        };
        let bytes = [&header.encode()[..], &batch.encode(9)].concat();
        let segment = read_segment(&bytes, 2, &Superblock::first(9, 8)).unwrap();
        assert_eq!(segment.durable, Lsn(4_000));
    }

    #[test]
    fn a_redirected_block_is_recovered_as_an_unproven_copy_of_the_original() {
        let mut core = Bench::new(Economy::default()).core;
        let original = Pvbn(FIRST_PVBN + 3);
        let redirect = Record::Redirect {
            volume: VolumeId(1),
            first: 5,
            count: 1,
            from: Pvbn(2_000),
            to: original,
        };
        for record in [write(5, 2_000, 7, 77), redirect] {
            replay_record(&mut core, WallTime(0), record, &mut Report::default());
        }
        core.slots.rebuild_free();
        core.check_invariants();
        assert_eq!(core.slots.find(original), Some(Lcbn(7)));
        let is_unproven = core.slots.is_unproven(Lcbn(7));
        assert_eq!((core.slots.state(Lcbn(7)), is_unproven), (SlotState::Clean, true));
        assert_eq!(core.slots.sum(Lcbn(7)), BlockSum(77));
        assert!(core.slots.find(Pvbn(2_000)).is_none() && core.dirty.is_empty());
    }
}
