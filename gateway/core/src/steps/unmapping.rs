//! Large unmappings: a deletion, a hole over a whole file. One record takes millions of blocks away. It counts at once,
//! by a cover over the range in the overlay's map and in that of the dirty blocks ([`crate::ExtentMap::cover`]): reads see the
//! hole, and no block under it is live. What it leaves to do, giving dirty blocks up one by one, is done in pieces, one with
//! each step.
//!
//! Until then those blocks keep their slots and count as dirty. A checkpoint waits: the last one may call such a slot
//! dirty, the next must not, and nobody has said yet which slots these are.

use crate::core_state::Core;
use crate::state::extent_map::{Extent, Target};
use crate::state::slot_transitions::SlotTransition;
use alloc::vec::Vec;
use tombolo_base::{Instant, Lcbn, VolumeId};
use tombolo_cache::Alternatives;
use tombolo_flow_control::EarlyFlush;

/// When the next piece is due if nothing else happens: others get at the core in between.
const SWEEP_REST_MICROS: u64 = 1_000;

impl Core {
    /// Maps the extent's blocks. Returns the slots that this makes dispensable, but for those that [`Self::sweep`] will find.
    pub(crate) fn remap(&mut self, extent: Extent) -> Vec<(Lcbn, SlotTransition)> {
        if extent.count <= self.config.sweep_blocks_max {
            return self.remap_now(extent);
        }
        let (volume, first, end) = (extent.volume, extent.first, extent.end());
        self.dirty.supersede_later(volume, first, end);
        self.overlay.map.cover(volume, first, end, Some(extent.target));
        self.forget_lost(volume, first, end)
    }

    /// [`Self::remap`] that leaves nothing for later.
    pub(crate) fn remap_now(&mut self, extent: Extent) -> Vec<(Lcbn, SlotTransition)> {
        let (volume, first, end) = (extent.volume, extent.first, extent.end());
        let mut free = Vec::new();
        let unpublished = &self.unpublished;
        let superseded = self
            .dirty
            .supersede(volume, first, end, |block| unpublished.needs(block));
        for block in superseded.gone {
            self.flush.unreadable.forget(block.pvbn);
            free.push((block.slot, SlotTransition::Free));
        }
        for block in superseded.kept {
            // The next checkpoint must not call it dirty any more.
            self.slots.mark_changed(block.slot);
        }
        let (early, alternatives, now) = (&mut self.flush.early, &mut self.alternatives, self.now);
        self.overlay
            .map
            .replace(extent, |replaced| note_replaced(early, alternatives, now, replaced));
        free.append(&mut self.forget_lost(volume, first, end));
        free
    }

    fn forget_lost(&mut self, volume: VolumeId, first: u64, end: u64) -> Vec<(Lcbn, SlotTransition)> {
        let mut free = Vec::new();
        self.losses.forget_places(volume, first, end);
        while let Some((&place, &slot)) = self.corrupt.range((volume, first)..(volume, end)).next() {
            self.corrupt.remove(&place);
            free.push((slot, SlotTransition::Free));
        }
        free
    }

    /// Does a piece of what large unmappings have left.
    pub(crate) fn pump_sweep(&mut self) {
        let count = self.config.sweep_blocks_max;
        for _ in 0..count {
            let Some(replaced) = self.overlay.map.sweep(u64::MAX) else {
                break;
            };
            note_replaced(&mut self.flush.early, &mut self.alternatives, self.now, replaced);
        }
        for _ in 0..count {
            if self.unpublished.map.sweep(u64::MAX).is_none() {
                break;
            }
        }
        for slot in self.sweep_dirty(count) {
            self.slots.retire(slot);
            self.transition_at(self.journal.next(), slot, SlotTransition::Free);
        }
    }

    /// Does all of it: recovery hurries, and nobody waits for the core.
    pub(crate) fn sweep_all(&mut self) -> Vec<Lcbn> {
        while self.overlay.map.sweep(u64::MAX).is_some() {}
        while self.unpublished.map.sweep(u64::MAX).is_some() {}
        self.sweep_dirty(u64::MAX)
    }

    /// The slots of blocks that are given up. Those that a job holds are found dead when it ends.
    fn sweep_dirty(&mut self, count: u64) -> Vec<Lcbn> {
        let mut free = Vec::new();
        let unpublished = &self.unpublished;
        let superseded = self.dirty.sweep(count, |block| unpublished.needs(block));
        for block in superseded.gone {
            self.flush.unreadable.forget(block.pvbn);
            free.push(block.slot);
        }
        superseded
            .kept
            .iter()
            .for_each(|block| self.slots.mark_changed(block.slot));
        free
    }

    pub(crate) fn is_sweeping(&self) -> bool {
        self.dirty.is_sweeping() || self.overlay.map.has_covers() || self.unpublished.map.has_covers()
    }

    pub(crate) fn sweep_deadline(&self) -> Option<Instant> {
        let is_due = self.is_sweeping() || self.has_due_transitions();
        is_due.then(|| self.now.plus_micros(SWEEP_REST_MICROS))
    }
}

fn note_replaced(early: &mut EarlyFlush, alternatives: &mut Option<Alternatives>, now: Instant, extent: Extent) {
    if let Target::At(first) = extent.target {
        early.on_replaced(now, first, extent.count);
        if let Some(alternatives) = alternatives {
            alternatives.forget(first.0, extent.count);
        }
    }
}

#[cfg(test)]
#[path = "unmapping_tests.rs"]
mod tests;
