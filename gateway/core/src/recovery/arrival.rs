//! Which batches of the tail had their data reach the cache file too.

use crate::format::record::{LinkRun, Lsn, Record};
use crate::recovery::disk::LocalDisk;
use crate::recovery::error::RecoveryError;
use crate::recovery::segment::{Found, Place};
use alloc::{collections::BTreeMap, vec::Vec};
use tombolo_base::{Pvbn, VolumeId};

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
pub struct Arrival {
    durable: Lsn,
    slot_count: u32,
    pub count: usize,
    /// Changes, from one prefix length to the next, in the number of blocks that are needed and missing.
    steps: BTreeMap<usize, i64>,
    missing: BTreeMap<Pvbn, Missing>,
    places: BTreeMap<(VolumeId, u64), Pvbn>,
    /// Where the batches lie that wrote a missing block.
    suspects: BTreeMap<usize, Place>,
}

impl Arrival {
    pub fn new(durable: Lsn, slot_count: u32) -> Self {
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
    pub fn look<E>(&mut self, found: &Found, disk: &impl LocalDisk) -> Result<(), RecoveryError<E>> {
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
    pub fn first_given_up(mut self) -> Option<(usize, Place)> {
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
