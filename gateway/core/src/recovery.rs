//! Recovery: the state of the core from local metadata and the journal, by the records' own effects.
//!
//! The journal is read from the superblock's LSN on. A batch that is damaged, or a record whose slots do not hold what
//! its sums say, ends it: such a write was never flushed, and nothing behind it is applied, so what survives is a
//! prefix of the journal. If any batch anywhere says that more than that was durable, flushed data is damaged, and
//! recovery refuses instead of losing it in silence.

mod arrival;
mod disk;
mod error;
mod older_cache;
mod rebuild;
mod remains;
mod replay;
mod report;
mod segment;
mod slots;
mod tail;
#[cfg(test)]
mod tests;
mod unpublished;

pub use disk::{LocalDisk, NewDisk};
pub use error::RecoveryError;
pub use rebuild::{Rebuild, RebuildError};
pub use remains::{
    Base, Bases, LSN_GAP_BITS, LocalBase, LostBlocks, Remains, WhatIsLeft, go_on_behind, lost_blocks, settle,
    skip_pvbns,
};
pub use report::Report;

use crate::config::Config;
use crate::core_state::{Core, Counters, StoreState};
use crate::event::Lanes;
use crate::format::cache_header::{CacheHeader, Mark};
use crate::format::local_metadata::{MetadataFault, MetadataRead, Table, decode, get};
use crate::format::record::Lsn;
use crate::format::superblock::{SUPER_VERSION, Superblock};
use crate::recovery::replay::replay;
use crate::recovery::segment::{Segment, read_segments};
use crate::recovery::slots::load_slots;
use crate::recovery::unpublished::load_unpublished;
use crate::state::checkpoints::Checkpoints;
use crate::state::dirty::Dirty;
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
use crate::state::slot_transitions::SlotTransitions;
use crate::state::slots::Slots;
use crate::state::unpublished::Unpublished;
use crate::state::verifications::Verification;
use crate::state::wall_clock::WallClock;
use crate::state::weighted_lru::WeightedLru;
use crate::state::writes::Writes;
use alloc::{collections::BTreeMap, vec::Vec};
use tombolo_base::{DecodeError, Instant, Pvbn, WallTime};
use tombolo_cache::Alternatives;

/// The policies and limits of the core to build.
pub struct Parts {
    /// Its slot count has to be that of the state directory.
    pub config: Config,
    /// What the machine's clock says, in microseconds since 1970: how old what is dirty is, is told by it.
    pub wall_micros: u64,
    /// The replacement policy is empty: recovery gives it the clean slots.
    pub policies: Policies,
    /// What the local copy of the bucket's root says that the bucket holds; `None`: it is not known, so the next point will
    /// hold everything.
    pub published: Option<PublishedPoint>,
}

/// A recovery point that the bucket holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedPoint {
    /// Its position in this state directory's journal.
    pub lsn: Lsn,
    /// When it was frozen.
    pub time: WallTime,
}

/// Room left after the highest PVBN seen and the first of the life before, so that none given to a write that a crash
/// undid is used again.
const PVBN_GAP: u64 = 1 << 20;

/// Builds the core from what [`Superblock::first`] began. It changes nothing. The caller MUST then zero as
/// [`Report::cut`] says, delete [`Report::obsolete_segments`], and sync cache file (with a note of [`Core::next_pvbn`])
/// and journal, in this order, before it lets the core run: what was replayed counts as durable from here on.
///
/// # Errors
/// When the state cannot be read, does not fit together, or lacks what was durable.
pub fn recover<M: MetadataRead>(
    now: Instant,
    parts: Parts,
    metadata: &M,
    disk: &impl LocalDisk,
) -> Result<(Core, Report), RecoveryError<M::Error>> {
    check_format(metadata)?;
    let superblock = load_superblock(metadata).map_err(RecoveryError::Metadata)?;
    let superblock = superblock.ok_or(RecoveryError::SuperblockMissing)?;
    if superblock.slot_count != parts.config.slot_count {
        let (found, configured) = (superblock.slot_count, parts.config.slot_count);
        return Err(RecoveryError::SlotCount { found, configured });
    }
    let mark = load_mark(disk, &superblock)?;
    let segments = read_segments(disk, &superblock)?;
    let published = parts.published;
    let mut core = empty_core(now, parts, &superblock, &segments);
    core.advise_costs();
    for (first, time) in &superblock.dirty_ages {
        let at = core.wall.instant_of(*time, now);
        core.dirty.restore_age(*first, at);
    }
    load_slots(&mut core, metadata, mark.is_none()).map_err(RecoveryError::Metadata)?;
    core.counters_of_entries = load_counters(metadata).map_err(RecoveryError::Metadata)?;
    load_unpublished(&mut core, metadata, &superblock, &segments, disk, published)?;
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

/// What is said of another format must not look like damage.
fn check_format<M: MetadataRead>(metadata: &M) -> Result<(), RecoveryError<M::Error>> {
    let bytes = get(metadata, Table::Super, &[]).map_err(RecoveryError::Metadata)?;
    match bytes.as_deref().and_then(Superblock::version) {
        Some(found) if found != SUPER_VERSION => Err(RecoveryError::OtherFormat {
            found: char::from(found),
            expected: char::from(SUPER_VERSION),
        }),
        _ => Ok(()),
    }
}

/// What local metadata has under the empty key; `None`: nothing, as before the first start.
///
/// # Errors
/// When it cannot be read or decoded.
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
        let (found, expected) = (header.slot_count, superblock.slot_count);
        return Err(RecoveryError::ResizeUnfinished { found, expected });
    }
    Ok(Some(header.mark))
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
    let (prefetcher, addressing, economy) = (policies.prefetcher, policies.addressing, policies.economy);
    let prefetch_state = PrefetchState::new(prefetcher, addressing, economy, config.slot_count, now);
    slots.set_second_chances(prefetch_state.uses_second_chances());
    let last_segment = segments
        .keys()
        .next_back()
        .copied()
        .unwrap_or(0)
        .max(superblock.segment);
    Core {
        lanes: Lanes::all(&config),
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
        dirty: Dirty::new(config.flush_delay_ms),
        corrupt: BTreeMap::new(),
        overlay: Overlay::default(),
        counters_of_entries: BTreeMap::new(),
        frozen: None,
        generation: 0,
        pages: WeightedLru::new(config.map_cache_bytes),
        descriptors: WeightedLru::new(config.descriptor_cache_bytes),
        prefetch_state,
        replaced: None,
        succession_at: now,
        alternatives: config.compares_policies.then(|| Alternatives::new(config.slot_count)),
        writes: Writes::default(),
        partial_writes: PartialWrites::default(),
        reads: Reads::default(),
        metadata_loads: MetadataLoads::default(),
        fetches: Fetches::default(),
        flush: Flush::new(&config, now),
        unpublished: Unpublished {
            is_on: config.recovery_point_ms.is_some(),
            published: superblock.lsn,
            ..Unpublished::default()
        },
        verification: Verification::new(config.present_objects_max),
        losses: Losses::default(),
        group_commit: GroupCommit::new(config.group_commit, now),
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
