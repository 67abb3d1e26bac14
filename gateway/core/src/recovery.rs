//! Recovery: the state of the core from local metadata and the journal, by the records' own effects.
//!
//! The journal is read from the superblock's LSN on. A batch that is damaged, or a record whose slots do not hold what
//! its sums say, ends it: such a write was never flushed, and nothing behind it is applied, so what survives is a
//! prefix of the journal. If any batch anywhere says that more than that was durable, flushed data is damaged, and
//! recovery refuses instead of losing it in silence.

use crate::checkpoint::{MetadataFault, MetadataRead, SlotEntry, Superblock, Table, decode, decode_slot_page, get};
use crate::config::Config;
use crate::core_state::{Core, Counters, Overlay, StoreState};
use crate::dirty::{Dirty, DirtyBlock, Stage};
use crate::durability::Durability;
use crate::fetch::Fetches;
use crate::flush::Flush;
use crate::journal::Journal;
use crate::read::Reads;
use crate::record::{Batch, Lsn, Record, SEGMENT_HEADER_BYTES, SegmentHeader, SlotRun};
use crate::slots::{SLOTS_PER_PAGE, SlotState, Slots};
use crate::weighted_lru::WeightedLru;
use crate::write::Writes;
use alloc::{boxed::Box, collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use tombolo_base::{BlockSum, DecodeError, Instant, Lcbn, ObjectDescriptor, Pvbn};
use tombolo_cache::Replacement;
use tombolo_prefetch::Prefetcher;

/// The local disk as recovery reads it.
pub trait LocalDisk {
    /// Segment numbers found, in any order.
    fn segments(&self) -> Result<Vec<u64>, String>;
    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String>;
    /// True when the cache file was not there and has been made anew: no slot holds anything.
    fn cache_is_new(&self) -> bool;
    /// Sum of the bytes in a slot.
    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String>;
}

/// Why the gateway cannot start on this state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError<E> {
    #[error("local metadata: {0}")]
    Metadata(MetadataFault<E>),
    #[error("local disk: {0}")]
    Disk(String),
    #[error(
        "journal segment {segment} is damaged at byte {offset} ({error}), but data up to LSN {} was flushed and the \
         journal is readable only up to LSN {}; restore the state directory or give the flushed data up explicitly",
        durable.0, readable.0
    )]
    JournalCorrupt {
        segment: u64,
        offset: u64,
        error: DecodeError,
        readable: Lsn,
        durable: Lsn,
    },
    #[error("journal segment {segment} is missing; recovery must begin at LSN {}", lsn.0)]
    JournalMissing { segment: u64, lsn: Lsn },
    #[error(
        "the cache file is missing, and with it {dirty} blocks that are not in the cloud; put the file back, or give \
         up the data by removing the state directory"
    )]
    CacheMissing { dirty: u64 },
    #[error(
        "the state was made with {found} cache slots and cannot be used with {configured}; set the cache size back"
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
    pub clean_slots: u64,
    pub dirty_blocks: u64,
    /// Objects confirmed since the checkpoint: their fingerprints go into the index again.
    pub objects: Vec<Arc<ObjectDescriptor>>,
    /// Segments that hold nothing needed.
    pub obsolete_segments: Vec<u64>,
}

/// The policies and limits of the core to build.
pub struct Parts {
    pub config: Config,
    pub replacement: Box<dyn Replacement>,
    pub prefetcher: Box<dyn Prefetcher>,
    /// Identity for a new journal, used when there is no state yet.
    pub fresh_identity: u64,
}

/// Room left after the highest PVBN seen, so that none given to a write that the crash undid is used again.
const PVBN_GAP: u64 = 1 << 20;

/// Builds the core. The caller MUST then sync cache file and journal before it lets the core run: what was replayed
/// counts as durable from here on.
pub fn recover<M: MetadataRead>(
    now: Instant,
    parts: Parts,
    metadata: &M,
    disk: &impl LocalDisk,
) -> Result<(Core, Report), RecoveryError<M::Error>> {
    let superblock = load_superblock(metadata).map_err(RecoveryError::Metadata)?;
    let fresh = superblock.is_none();
    let superblock = superblock.unwrap_or(Superblock {
        journal_identity: parts.fresh_identity,
        slot_count: parts.config.slot_count,
        segment: 1,
        next_pvbn: 1,
        next_volume: 1,
        ..Superblock::default()
    });
    if superblock.slot_count != parts.config.slot_count {
        let (found, configured) = (superblock.slot_count, parts.config.slot_count);
        return Err(RecoveryError::SlotCount { found, configured });
    }
    let segments = read_segments(disk, &superblock, fresh)?;
    let mut core = empty_core(now, parts, &superblock, &segments);
    load_slots(&mut core, metadata, disk.cache_is_new()).map_err(RecoveryError::Metadata)?;
    let mut report = replay(&mut core, &superblock, segments, disk)?;
    if disk.cache_is_new() && core.slots.dirty_count() > 0 {
        return Err(RecoveryError::CacheMissing {
            dirty: u64::from(core.slots.dirty_count()),
        });
    }
    core.slots.rebuild_free();
    core.next_pvbn = Pvbn(core.next_pvbn.0 + PVBN_GAP);
    core.dirty.set_durable(core.next_pvbn);
    report.clean_slots = u64::from(core.slots.clean_count());
    report.dirty_blocks = core.dirty.len() as u64;
    Ok((core, report))
}

pub fn load_superblock<M: MetadataRead>(metadata: &M) -> Result<Option<Superblock>, MetadataFault<M::Error>> {
    match get(metadata, Table::Super, &[])? {
        Some(bytes) => decode(Table::Super, &[], Superblock::decode(&bytes)).map(Some),
        None => Ok(None),
    }
}

/// A segment's batches as far as they can be read.
struct Segment {
    header: SegmentHeader,
    batches: Vec<Batch>,
    /// LSN behind the last readable batch.
    end: Lsn,
    /// What stopped the reading, where, and how many bytes follow.
    stopped: Option<(DecodeError, u64, u64)>,
    /// The highest durable LSN that any intact batch names, even beyond the damage.
    durable: Lsn,
}

fn read_segments<E>(
    disk: &impl LocalDisk,
    superblock: &Superblock,
    fresh: bool,
) -> Result<BTreeMap<u64, Result<Segment, DecodeError>>, RecoveryError<E>> {
    let mut segments = BTreeMap::new();
    for number in disk.segments().map_err(RecoveryError::Disk)? {
        let bytes = disk.read_segment(number).map_err(RecoveryError::Disk)?;
        segments.insert(number, read_segment(&bytes, number, superblock, fresh));
    }
    Ok(segments)
}

fn read_segment(bytes: &[u8], number: u64, superblock: &Superblock, fresh: bool) -> Result<Segment, DecodeError> {
    let header = SegmentHeader::decode(bytes)?;
    if header.segment != number {
        return Err(DecodeError::Invalid {
            what: "segment number",
            value: header.segment,
        });
    }
    // Before the first checkpoint the identity is only in the journal itself.
    if !fresh && header.journal_identity != superblock.journal_identity {
        return Err(DecodeError::Invalid {
            what: "segment journal identity",
            value: header.journal_identity,
        });
    }
    let identity = header.journal_identity;
    let mut segment = Segment {
        header,
        batches: Vec::new(),
        end: header.first_lsn,
        stopped: None,
        durable: header.first_lsn,
    };
    let mut offset = SEGMENT_HEADER_BYTES;
    while offset < bytes.len() {
        match Batch::decode(&bytes[offset..], identity) {
            Ok((batch, length)) if batch.lsn == segment.end => {
                segment.end = Lsn(batch.lsn.0 + length as u64);
                segment.durable = segment.durable.max(batch.durable_lsn);
                segment.batches.push(batch);
                offset += length;
            }
            Ok((batch, _)) => {
                let error = DecodeError::Invalid {
                    what: "batch LSN",
                    value: batch.lsn.0,
                };
                segment.stop(error, bytes, offset, identity);
                break;
            }
            Err(error) => {
                segment.stop(error, bytes, offset, identity);
                break;
            }
        }
    }
    Ok(segment)
}

impl Segment {
    fn stop(&mut self, error: DecodeError, bytes: &[u8], offset: usize, identity: u64) {
        let rest = &bytes[offset..];
        // Preallocated space is zero: that is the ordinary end.
        if rest.iter().all(|byte| *byte == 0) {
            return;
        }
        self.stopped = Some((error, offset as u64, rest.len() as u64));
        // Look for intact batches beyond the damage: they may say that the damaged part was durable.
        let mut at = 1;
        while at + crate::record::BATCH_HEADER_BYTES <= rest.len() {
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

fn empty_core(
    now: Instant,
    parts: Parts,
    superblock: &Superblock,
    segments: &BTreeMap<u64, Result<Segment, DecodeError>>,
) -> Core {
    let config = parts.config;
    let identity = segments
        .values()
        .flatten()
        .next()
        .map_or(superblock.journal_identity, |segment| segment.header.journal_identity);
    let last_segment = segments
        .keys()
        .next_back()
        .copied()
        .unwrap_or(0)
        .max(superblock.segment);
    Core {
        now,
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
            identity,
            last_segment + 1,
            superblock.lsn,
            config.segment_bytes,
            BTreeMap::new(),
        ),
        slots: Slots::new(config.slot_count, parts.replacement),
        dirty: Dirty::default(),
        overlay: Overlay::default(),
        frozen: None,
        generation: 0,
        pages: WeightedLru::new(config.map_cache_bytes),
        descriptors: WeightedLru::new(config.descriptor_cache_bytes),
        prefetcher: parts.prefetcher,
        writes: Writes::default(),
        reads: Reads::default(),
        fetches: Fetches::default(),
        flush: Flush::default(),
        durability: Durability::new(now, superblock.lsn),
        counters: Counters::default(),
        totals: superblock.totals,
        store: StoreState::default(),
        failed: None,
        config,
    }
}

fn load_slots<M: MetadataRead>(
    core: &mut Core,
    metadata: &M,
    cache_is_new: bool,
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
                SlotEntry::Clean { .. } if cache_is_new => {}
                SlotEntry::Clean { pvbn, sum } => core.slots.restore(slot, pvbn, sum, SlotState::Clean),
                SlotEntry::Corrupt { pvbn, sum } => core.slots.restore(slot, pvbn, sum, SlotState::Corrupt),
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
        core.dirty.push(core.now, block);
    }
    Ok(())
}

fn replay<E>(
    core: &mut Core,
    superblock: &Superblock,
    segments: BTreeMap<u64, Result<Segment, DecodeError>>,
    disk: &impl LocalDisk,
) -> Result<Report, RecoveryError<E>> {
    let mut report = Report::default();
    let mut position = superblock.lsn;
    let durable = segments
        .values()
        .flatten()
        .map(|segment| segment.durable)
        .max()
        .unwrap_or(position)
        .max(position);
    let mut kept: BTreeMap<u64, Lsn> = BTreeMap::new();
    let mut damage: Option<(u64, u64, DecodeError)> = None;
    let mut limits = segment_limits(&segments);
    for (number, segment) in segments {
        let limit = limits.remove(&number).unwrap_or(Lsn(u64::MAX));
        let segment = match segment {
            Ok(segment) if segment.header.first_lsn <= position => segment,
            Ok(segment) => {
                // What links it to the rest is not there: an unsynced segment overtook its predecessor.
                let error = DecodeError::Invalid {
                    what: "segment LSN",
                    value: segment.header.first_lsn.0,
                };
                damage.get_or_insert((number, 24, error));
                report.torn_bytes += segment.end.0 - segment.header.first_lsn.0;
                report.obsolete_segments.push(number);
                continue;
            }
            Err(error) => {
                damage.get_or_insert((number, 0, error));
                report.obsolete_segments.push(number);
                continue;
            }
        };
        if segment.end <= superblock.lsn && segment.stopped.is_none() {
            report.obsolete_segments.push(number);
            continue;
        }
        kept.insert(number, segment.header.first_lsn);
        let mut stopped = segment.stopped;
        for batch in segment.batches {
            let end = Lsn(batch.lsn.0 + batch_bytes(&batch));
            if end <= position {
                continue;
            }
            // An earlier recovery gave up what follows and wrote the next segment in its place.
            if batch.lsn >= limit {
                break;
            }
            // Beyond what was known durable, data may not have reached the disk although its record did.
            if batch.lsn >= durable && !data_arrived(&batch, disk).map_err(RecoveryError::Disk)? {
                let error = DecodeError::Invalid {
                    what: "data of the batch",
                    value: batch.lsn.0,
                };
                stopped = Some((
                    error,
                    batch.lsn.0 - segment.header.first_lsn.0 + SEGMENT_HEADER_BYTES as u64,
                    0,
                ));
                report.torn_bytes += segment.end.0 - batch.lsn.0;
                break;
            }
            report.batches += 1;
            report.records += batch.records.len() as u64;
            for record in batch.records {
                replay_record(core, record, &mut report);
            }
            position = end;
        }
        if let Some((error, offset, bytes)) = stopped {
            report.torn_bytes += bytes;
            damage.get_or_insert((number, offset, error));
        }
    }
    if position < durable {
        let lsn = superblock.lsn;
        return Err(match damage {
            Some((segment, offset, error)) => RecoveryError::JournalCorrupt {
                segment,
                offset,
                error,
                readable: position,
                durable,
            },
            None => RecoveryError::JournalMissing {
                segment: superblock.segment,
                lsn,
            },
        });
    }
    let (identity, segment) = (core.journal.identity(), core.journal.segment());
    core.journal = Journal::new(identity, segment, position, core.config.segment_bytes, kept);
    Ok(report)
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

fn batch_bytes(batch: &Batch) -> u64 {
    // Encoding is deterministic, so the length on disk is the length of a new encoding.
    batch.encode(0).len() as u64
}

fn data_arrived(batch: &Batch, disk: &impl LocalDisk) -> Result<bool, String> {
    for record in &batch.records {
        let Record::Write { slots, sums, .. } = record else {
            continue;
        };
        for (slot, sum) in each_slot(slots).zip(sums) {
            if disk.sum_slot(slot)? != *sum {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn each_slot(runs: &[SlotRun]) -> impl Iterator<Item = Lcbn> + '_ {
    runs.iter()
        .flat_map(|run| (run.first.0..run.first.0.saturating_add(run.count)).map(Lcbn))
}

fn replay_record(core: &mut Core, record: Record, report: &mut Report) {
    for slot in core.apply(&record) {
        core.slots.restore(slot, Pvbn(0), BlockSum(0), SlotState::Free);
    }
    match record {
        Record::Write {
            volume,
            first,
            pvbn,
            slots,
            sums,
        } => {
            for (offset, (slot, sum)) in (0u64..).zip(each_slot(&slots).zip(sums)) {
                if slot.0 >= core.slots.count() {
                    continue;
                }
                core.slots.restore(slot, pvbn.plus(offset), sum, SlotState::Dirty);
                let block = DirtyBlock {
                    pvbn: pvbn.plus(offset),
                    slot,
                    volume,
                    block: first + offset,
                    stage: Stage::Queued,
                };
                core.dirty.push(core.now, block);
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
        | Record::Delete { .. } => {}
    }
}
