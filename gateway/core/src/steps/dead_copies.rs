//! Cached copies that nothing can ask for any more: of blocks that were referred to once, by what is now overwritten,
//! punched or deleted. Their slots are free at once, rather than when eviction comes to them: the cache keeps what may be
//! read, and the next writes go to slots whose pages the kernel still has.
//!
//! Such a copy is clean, the bucket has the block. So a crash that undoes the overwrite loses nothing: the slot does not
//! hold what its sum says then, as after any eviction, and the block is fetched.

use crate::core_state::{Core, Lookup};
use crate::format::page::PAGE_ENTRIES;
use crate::format::record::{LinkRun, Record};
use crate::state::extent_map::Target;
use alloc::vec::Vec;
use tombolo_base::{Lcbn, VolumeId};

/// Blocks of one record that are looked at, so that a step stays short; what is left is evicted some day.
const LOOKED_AT_MAX: u64 = 4096;

impl Core {
    /// The slots of such copies, as it looks before the records are applied. Parts of the map that are not in memory are
    /// passed over.
    pub(crate) fn dead_copies(&mut self, records: &[Record]) -> Vec<Lcbn> {
        let mut slots = Vec::new();
        for record in records {
            if let Some((volume, first, count)) = replaced_span(record) {
                self.dead_copies_in(volume, first, first + count.min(LOOKED_AT_MAX), &mut slots);
            }
        }
        slots
    }

    fn dead_copies_in(&mut self, volume: VolumeId, first: u64, end: u64, slots: &mut Vec<Lcbn>) {
        let mut block = first;
        while block < end {
            match self.lookup(volume, block) {
                Lookup::NeedPage(page) => block = (page + 1) * PAGE_ENTRIES,
                Lookup::Known(target, run) => {
                    let run = run.min(end - block);
                    if let Target::At(pvbn) = target {
                        let copies = (0..run).filter_map(|index| self.slots.find(pvbn.plus(index)));
                        slots.extend(copies.filter(|slot| self.slots.is_clean_and_referred_once(*slot)));
                    }
                    block += run;
                }
            }
        }
    }

    /// After the records are applied, which may have referred to a block anew, or have replaced one twice.
    pub(crate) fn free_dead_copies(&mut self, slots: Vec<Lcbn>) {
        for slot in slots {
            if self.slots.is_clean_and_referred_once(slot) {
                self.slots.drop_clean(slot);
            }
        }
    }
}

/// The blocks that map to something else once the record is applied.
fn replaced_span(record: &Record) -> Option<(VolumeId, u64, u64)> {
    match record {
        Record::Write {
            volume, first, sums, ..
        } => Some((*volume, *first, sums.len() as u64)),
        Record::Hole { volume, first, count }
        | Record::Link(LinkRun {
            volume, first, count, ..
        }) => Some((*volume, *first, *count)),
        // A redirect moves a dirty block; what a deleted volume held is left to eviction.
        Record::Redirect { .. }
        | Record::Object(_)
        | Record::Entries(_)
        | Record::Create { .. }
        | Record::Resize { .. }
        | Record::Delete { .. } => None,
    }
}
