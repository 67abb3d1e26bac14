//! Journals records and applies them.

use crate::core_state::Core;
use crate::event::Command;
use crate::format::record::{Lsn, Record};
use crate::state::slot_transitions::SlotTransition;
use alloc::vec::Vec;

impl Core {
    /// Journals and applies records as one batch; returns the LSN behind it.
    pub(crate) fn commit(&mut self, records: Vec<Record>) -> Lsn {
        let first_free = self.next_pvbn;
        let unneeded = self.dead_copies(&records);
        let mut transitions = Vec::new();
        for record in &records {
            transitions.append(&mut self.apply(record));
            self.unpublished.note(self.now, record);
        }
        let has_write = records.iter().any(|record| matches!(record, Record::Write { .. }));
        self.checkpoints.overlay_records += records.len() as u64;
        let begin = self.journal.next();
        let write = self.journal.append(self.wall.time_of(self.now), records);
        let end = write.end;
        assert!(write.lsn == begin && begin < end && end == self.journal.next());
        self.out.push(Command::WriteJournal(write));
        assert!(first_free <= self.next_pvbn, "no PVBN is given out again");
        if has_write {
            self.dirty.journaled(self.next_pvbn, end);
        }
        for (slot, transition) in transitions {
            if transition == SlotTransition::Free {
                self.slots.retire(slot);
            }
            self.slot_transitions.queue.push_back((end, slot, transition));
        }
        self.free_dead_copies(unneeded);
        end
    }
}
