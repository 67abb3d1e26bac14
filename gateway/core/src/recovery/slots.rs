//! The persistent cache index: what the slots held at the last checkpoint.

use crate::core_state::Core;
use crate::format::local_metadata::{MetadataFault, MetadataRead, Table, decode};
use crate::format::slot_page::{SLOTS_PER_PAGE, SlotEntry, decode_slot_page};
use crate::state::dirty::{DirtyBlock, Stage};
use crate::state::slots::SlotState;
use alloc::vec::Vec;
use tombolo_base::{DecodeError, Lcbn};

pub fn load_slots<M: MetadataRead>(
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
