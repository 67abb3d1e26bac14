//! The effects of a journal record, live and in recovery alike.

use crate::core_state::Core;
use crate::format::record::{LinkRun, Record};
use crate::state::extent_map::{Extent, Target};
use crate::state::slot_transitions::SlotTransition;
use crate::state::slots::likely_object;
use alloc::{sync::Arc, vec::Vec};
use tombolo_base::{Lcbn, Pvbn};

impl Core {
    /// Effects of a record on map, objects, dirty queue and volumes. Returns the slots of blocks that the record makes
    /// dispensable, and what becomes of them once it is durable.
    pub(crate) fn apply(&mut self, record: &Record) -> Vec<(Lcbn, SlotTransition)> {
        match record {
            Record::Write {
                volume,
                first,
                pvbn,
                sums,
                ..
            } => {
                let count = sums.len() as u64;
                self.next_pvbn = self.next_pvbn.max(pvbn.plus(count));
                // Its own blocks become live next.
                self.remap_now(Extent {
                    volume: *volume,
                    first: *first,
                    count,
                    target: Target::At(*pvbn),
                })
            }
            Record::Hole { volume, first, count } => self.remap(Extent {
                volume: *volume,
                first: *first,
                count: *count,
                target: Target::Hole,
            }),
            Record::Redirect {
                volume,
                first,
                count,
                from,
                to,
            } => {
                let target = Target::At(*to);
                let count = u64::from(*count);
                self.losses.forget_places(*volume, *first, first + count);
                (0..count).for_each(|index| self.slots.refer_again(to.plus(index)));
                self.overlay.map.insert(Extent {
                    volume: *volume,
                    first: *first,
                    count,
                    target,
                });
                (0..count)
                    .filter_map(|index| self.redirected(from.plus(index), to.plus(index)))
                    .collect()
            }
            Record::Object(descriptor) => {
                self.overlay.object_blocks += descriptor.blocks().len();
                self.overlay
                    .objects
                    .insert(descriptor.first_pvbn().0, Arc::new(descriptor.clone()));
                self.totals.objects += 1;
                self.totals.object_bytes += descriptor.object_bytes() as u64;
                Vec::new()
            }
            Record::Link(LinkRun {
                volume,
                first,
                count,
                pvbn,
            }) => {
                (0..*count).for_each(|index| self.slots.refer_again(pvbn.plus(index)));
                self.remap(Extent {
                    volume: *volume,
                    first: *first,
                    count: *count,
                    target: Target::At(*pvbn),
                })
            }
            Record::Entries(changes) => {
                self.apply_entries(changes);
                Vec::new()
            }
            Record::Create { .. } | Record::Resize { .. } => {
                self.apply_volume_record(record);
                Vec::new()
            }
            Record::Delete { .. } => match self.apply_volume_record(record) {
                Some((volume, blocks)) if blocks > 0 => {
                    self.prefetch_state.prefetcher.forget_volume(volume);
                    self.remap(Extent {
                        volume,
                        first: 0,
                        count: blocks,
                        target: Target::Hole,
                    })
                }
                _ => Vec::new(),
            },
        }
    }

    /// A dirty block's contents are those of `to`, which the cloud has. Its copy stays in the cache under that name,
    /// unless there is one or one is on its way.
    fn redirected(&mut self, from: Pvbn, to: Pvbn) -> Option<(Lcbn, SlotTransition)> {
        let block = self.dirty.remove(from)?;
        if self.slots.find(to).is_some() || self.fetches.contains(to) {
            return Some((block.slot, SlotTransition::Free));
        }
        self.slots.rename(block.slot, to);
        let address = self.own_address(block.volume, block.block, to);
        let object = self.descriptor_of(to).map(|descriptor| descriptor.first_pvbn());
        let object = object.unwrap_or_else(|| likely_object(to));
        Some((block.slot, SlotTransition::Clean { address, object }))
    }
}
