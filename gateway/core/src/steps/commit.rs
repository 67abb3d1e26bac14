//! Journals records and applies them.

use crate::core_state::Core;
use crate::event::Command;
use crate::format::record::{Lsn, Record};
use crate::state::slot_transitions::SlotTransition;
use alloc::vec::Vec;

impl Core {
    /// Journals and applies records as one batch; returns the LSN behind it.
    pub(crate) fn commit(&mut self, records: Vec<Record>) -> Lsn {
        let unneeded = self.dead_copies(&records);
        let mut transitions = Vec::new();
        for record in &records {
            transitions.append(&mut self.apply(record));
        }
        let has_write = records.iter().any(|record| matches!(record, Record::Write { .. }));
        self.checkpoints.overlay_records += records.len() as u64;
        let write = self.journal.append(self.wall.time_of(self.now), records);
        let end = write.end;
        self.out.push(Command::WriteJournal(write));
        if has_write {
            self.dirty.journaled(self.next_pvbn, end);
        }
        for (slot, becomes) in transitions {
            if becomes == SlotTransition::Free {
                self.slots.retire(slot);
            }
            self.slot_transitions.queue.push_back((end, slot, becomes));
        }
        self.free_dead_copies(unneeded);
        end
    }
}
