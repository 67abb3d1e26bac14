//! What the bucket lacks, found again: from the journal behind the recovery point that it holds, or, if that is not known,
//! everything there is.

use crate::core_state::Core;
use crate::format::local_metadata::{MetadataFault, MetadataRead, Table, decode};
use crate::format::page::{MapPage, PAGE_ENTRIES};
use crate::format::record::Lsn;
use crate::format::superblock::Superblock;
use crate::recovery::PublishedPoint;
use crate::recovery::disk::LocalDisk;
use crate::recovery::error::RecoveryError;
use crate::recovery::segment::Segment;
use crate::recovery::tail::{part_of, segment_limits};
use crate::state::extent_map::{Extent, Target};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use tombolo_base::{DecodeError, ObjectDescriptor, VolumeId, WallTime};

/// Up to the checkpoint; replay notes what comes after it.
pub fn load_unpublished<M: MetadataRead>(
    core: &mut Core,
    metadata: &M,
    superblock: &Superblock,
    segments: &BTreeMap<u64, Result<Segment, DecodeError>>,
    disk: &impl LocalDisk,
    published: Option<PublishedPoint>,
) -> Result<(), RecoveryError<M::Error>> {
    if !core.unpublished.is_on {
        return Ok(());
    }
    if let Some(published) = published {
        core.unpublished.published = published.lsn;
        core.unpublished.published_time = Some(published.time);
        if note_journal(core, superblock, segments, disk, published.lsn)? {
            return Ok(());
        }
        core.unpublished.clear();
        core.unpublished.published_time = Some(published.time);
    }
    core.unpublished.published = superblock.lsn;
    // The point at the journal's beginning is another gateway's, and so is the clock that its time is from.
    let own = published.filter(|published| published.lsn > Lsn(0));
    let before = own.map_or(WallTime(0), |published| published.time);
    note_all(core, metadata, superblock, before).map_err(RecoveryError::Metadata)
}

/// False: batches between the point and the checkpoint are missing.
fn note_journal<E>(
    core: &mut Core,
    superblock: &Superblock,
    segments: &BTreeMap<u64, Result<Segment, DecodeError>>,
    disk: &impl LocalDisk,
    from: Lsn,
) -> Result<bool, RecoveryError<E>> {
    let limits = segment_limits(segments);
    let mut position = from;
    for (number, segment) in segments {
        let Ok(segment) = segment else { continue };
        if position >= superblock.lsn || segment.header.first_lsn > position || segment.end <= position {
            continue;
        }
        let limit = limits[number].min(superblock.lsn);
        let bytes = disk.read_segment(*number).map_err(RecoveryError::Disk)?;
        for found in part_of(&bytes, &segment.header, position, limit) {
            if found.place.lsn != position {
                return Ok(false);
            }
            let at = core.wall.instant_of(found.batch.time, core.now);
            for record in &found.batch.records {
                core.unpublished.note(at, record);
            }
            core.sweep_all();
            position = found.end;
        }
    }
    Ok(position >= superblock.lsn)
}

/// Nobody knows when the first of it was made, but that it was not `before` then.
fn note_all<M: MetadataRead>(
    core: &mut Core,
    metadata: &M,
    superblock: &Superblock,
    before: WallTime,
) -> Result<(), MetadataFault<M::Error>> {
    let since = core.wall.instant_of(before, core.now);
    let unpublished = &mut core.unpublished;
    unpublished.is_whole = true;
    unpublished.since = Some(since);
    unpublished
        .volumes
        .extend(superblock.volumes.iter().map(|volume| volume.id));
    unpublished.counters.extend(core.counters_of_entries.keys().cloned());
    each(metadata, Table::Map, |key, value| {
        let page = decode(Table::Map, key, MapPage::decode(value))?;
        let (volume, number) = place_of(key)?;
        let mut entry = 0;
        while u64::from(entry) < PAGE_ENTRIES {
            let (target, run) = page.get(entry);
            if let Some(pvbn) = target {
                unpublished.map.insert(Extent {
                    volume,
                    first: number * PAGE_ENTRIES + u64::from(entry),
                    count: u64::from(run),
                    target: Target::At(pvbn),
                });
            }
            entry += run;
        }
        Ok(())
    })?;
    each(metadata, Table::Objects, |key, value| {
        let descriptor = decode(Table::Objects, key, ObjectDescriptor::decode(value))?;
        unpublished
            .objects
            .insert(descriptor.first_pvbn().0, Arc::new(descriptor));
        Ok(())
    })?;
    each(metadata, Table::Entries, |key, value| {
        unpublished.entries.set(key, Some(value.into()));
        Ok(())
    })
}

/// Takes all entries of a table, in the order of their keys.
fn each<M: MetadataRead>(
    metadata: &M,
    table: Table,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), MetadataFault<M::Error>>,
) -> Result<(), MetadataFault<M::Error>> {
    let mut key = Vec::new();
    while let Some((found, value)) = metadata.ceiling(table, &key).map_err(MetadataFault::Store)? {
        take(&found, &value)?;
        key = found;
        key.push(0);
    }
    Ok(())
}

fn place_of<E>(key: &[u8]) -> Result<(VolumeId, u64), MetadataFault<E>> {
    let halves = key.split_at_checked(8).and_then(|(volume, page)| {
        let number = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).ok().map(u64::from_be_bytes);
        Some((VolumeId(number(volume)?), number(page)?))
    });
    halves.ok_or_else(|| MetadataFault::Corrupt {
        table: Table::Map,
        key: key.to_vec(),
        error: DecodeError::Invalid {
            what: "map key length",
            value: key.len() as u64,
        },
    })
}
