//! The tail's records are applied, up to where data is missing that was never known to be durable.

use crate::core_state::Core;
use crate::format::cache_header::Mark;
use crate::format::record::{Lsn, Record};
use crate::format::superblock::Superblock;
use crate::recovery::arrival::Arrival;
use crate::recovery::disk::LocalDisk;
use crate::recovery::error::RecoveryError;
use crate::recovery::older_cache::CacheAge;
use crate::recovery::report::Report;
use crate::recovery::segment::Segment;
use crate::recovery::tail::{missing_segment, part_of, read_tail};
use crate::state::dirty::{DirtyBlock, Stage};
use crate::state::journal::Journal;
use crate::state::slot_transitions::SlotTransition;
use crate::state::slots::SlotState;
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use tombolo_base::{DecodeError, WallTime};

pub fn replay<E>(
    core: &mut Core,
    superblock: &Superblock,
    mark: Option<Mark>,
    segments: BTreeMap<u64, Result<Segment, DecodeError>>,
    disk: &impl LocalDisk,
) -> Result<Report, RecoveryError<E>> {
    let mut report = Report::default();
    let claimed = segments.values().flatten().map(|segment| segment.durable).max();
    let noted = mark.map_or(Lsn(0), |mark| mark.journal.lsn);
    // The bucket is told of nothing that is not on stable storage here.
    let durable = superblock.lsn.max(noted).max(claimed.unwrap_or_default());
    let durable = durable.max(core.unpublished.published);
    let durable = durable.max(disk.noted_beside(superblock.journal_identity).lsn);
    let missing_segment = missing_segment(superblock, mark, &segments);
    // Without the cache file no block can be looked at, so none may be needed.
    let mut arrival = Arrival::new(mark.map_or(Lsn(u64::MAX), |_| durable), core.slots.count());
    let needed_from = core.unpublished.needed_from().min(superblock.lsn);
    let mut tail = read_tail(superblock, needed_from, segments, disk, &mut arrival, &mut report)?;
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
    let mut cache_age = CacheAge::new(noted, superblock.lsn, durable);
    let end = given_up.map_or(Lsn(u64::MAX), |first| first.lsn);
    for (header, from, to) in tail.parts {
        let bytes = disk.read_segment(header.segment).map_err(RecoveryError::Disk)?;
        for found in part_of(&bytes, &header, from, to.min(end)) {
            report.batches += 1;
            report.records += found.batch.records.len() as u64;
            let is_published = !core.unpublished.is_whole && found.place.lsn < core.unpublished.published;
            for record in found.batch.records {
                if !is_published {
                    let at = core.wall.instant_of(found.batch.time, core.now);
                    core.unpublished.note(at, &record);
                }
                cache_age.note(found.place.lsn, &record);
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
    if mark.is_some() {
        cache_age.check(core, disk)?;
    }
    let (identity, segment) = (core.journal.identity(), core.journal.segment());
    core.journal = Journal::new(identity, segment, position, core.config.segment_bytes, tail.kept);
    Ok(report)
}

pub fn replay_record(core: &mut Core, time: WallTime, record: Record, report: &mut Report) {
    let mut transitions = core.apply(&record);
    transitions.extend(core.sweep_all().into_iter().map(|slot| (slot, SlotTransition::Free)));
    for (slot, transition) in transitions {
        let (pvbn, sum) = (core.slots.pvbn(slot), core.slots.sum(slot));
        match transition {
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
