//! The journal's tail: the batches that continue the last checkpoint one by one, over all segments.

use crate::format::cache_header::Mark;
use crate::format::record::{Lsn, SegmentHeader};
use crate::format::superblock::Superblock;
use crate::recovery::arrival::Arrival;
use crate::recovery::disk::LocalDisk;
use crate::recovery::error::RecoveryError;
use crate::recovery::report::Report;
use crate::recovery::segment::{Batches, Found, Segment};
use alloc::{collections::BTreeMap, vec::Vec};
use tombolo_base::DecodeError;

/// The batches that continue the checkpoint one by one, and what ended them.
pub struct Tail {
    /// Where they lie: of each of these segments those from the first LSN on and below the second.
    pub parts: Vec<(SegmentHeader, Lsn, Lsn)>,
    pub kept: BTreeMap<u64, Lsn>,
    pub damage: Option<(u64, u64, DecodeError)>,
}

/// Shows `arrival` each of the batches. Segments with batches from `needed_from` on are kept.
pub fn read_tail<D: LocalDisk, E>(
    superblock: &Superblock,
    needed_from: Lsn,
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
        let keeps = |segment: &Segment| segment.end > needed_from;
        if number < superblock.segment {
            match &segment {
                Ok(segment) if keeps(segment) => {
                    tail.kept.insert(number, segment.header.first_lsn);
                }
                _ => report.obsolete_segments.push(number),
            }
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
            match keeps(&segment) {
                true => {
                    tail.kept.insert(number, segment.header.first_lsn);
                }
                false => report.obsolete_segments.push(number),
            }
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

/// Where to look for what is not there: the first number without a segment, or the one that was written last.
pub fn missing_segment(
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
pub fn part_of<'b>(
    bytes: &'b [u8],
    header: &SegmentHeader,
    from: Lsn,
    to: Lsn,
) -> impl Iterator<Item = Found> + use<'b> {
    let batches = Batches::new(bytes, header);
    let batches = batches.skip_while(move |found| found.place.lsn < from);
    batches.take_while(move |found| found.place.lsn < to)
}

/// Where the next intact segment takes over from each.
pub fn segment_limits(segments: &BTreeMap<u64, Result<Segment, DecodeError>>) -> BTreeMap<u64, Lsn> {
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
