//! Slots whose blocks are in the cloud, or dispensable, once the record that says so is durable.

use crate::core_state::Core;
use crate::format::record::Lsn;
use crate::state::slot_transitions::SlotTransition;
use crate::state::slots::SlotState;
use tombolo_base::Lcbn;

impl Core {
    /// A slot will change its state when everything up to `lsn` is durable.
    pub(crate) fn transition_at(&mut self, lsn: Lsn, slot: Lcbn, transition: SlotTransition) {
        // Nobody syncs for the sake of a mark.
        let lsn = match self.journal.is_durable() {
            true => lsn.min(self.journal.durable()),
            false => lsn,
        };
        self.slot_transitions.queue.push_back((lsn, slot, transition));
        // Nothing may be left to be synced, so that no later sync would look here.
        self.apply_transitions();
    }

    pub(crate) fn apply_transitions(&mut self) {
        let upto = self.journal.durable();
        while self.slot_transitions.left_in_step > 0
            && let Some((lsn, slot, transition)) = self.slot_transitions.queue.front().copied()
            && lsn <= upto
        {
            self.slot_transitions.queue.pop_front();
            self.slot_transitions.left_in_step -= 1;
            match transition {
                SlotTransition::Clean { address, object } if self.slots.state(slot) == SlotState::Dirty => {
                    self.slots.clean(slot, address, object);
                }
                SlotTransition::Clean { .. } => {}
                SlotTransition::Free => self.slots.release(slot),
            }
        }
    }

    /// A step begins. How many one makes is bounded; the rest are made in the next.
    pub(crate) fn resume_transitions(&mut self) {
        self.slot_transitions.left_in_step = self.config.sweep_blocks_max;
        self.apply_transitions();
    }

    /// Whether slots wait for nothing but another step.
    pub(crate) fn has_due_transitions(&self) -> bool {
        let upto = self.journal.durable();
        let front = self.slot_transitions.queue.front();
        front.is_some_and(|(lsn, _, _)| *lsn <= upto)
    }

    pub(crate) fn has_pending_transitions(&self) -> bool {
        !self.slot_transitions.queue.is_empty()
    }
}
