//! Group commit: one sync of cache file and journal for all that wait for one.

use crate::core_state::Core;
use crate::event::{Command, DiskError};
use crate::format::record::Lsn;
use tombolo_base::Instant;

impl Core {
    pub(crate) fn pump_durability(&mut self) {
        if self.failed.is_some() {
            self.refuse_all_waiting();
            return;
        }
        self.pump_checkpoint();
        self.pump_sync();
    }

    fn pump_sync(&mut self) {
        let group_commit = &mut self.group_commit;
        if group_commit.syncing.is_some() {
            return;
        }
        if !self.journal.has_unsynced() && !group_commit.is_doubted {
            group_commit.is_wanted = false;
            group_commit.unsynced_since = None;
            if group_commit.waiting.is_empty() {
                return;
            }
        }
        let overdue = group_commit
            .unsynced_since
            .is_some_and(|since| self.now >= since.plus_millis(self.config.sync_interval_ms));
        let is_wanted = group_commit.is_wanted || group_commit.is_doubted;
        let is_due = group_commit.due().is_some_and(|due| self.now >= due);
        if !is_due && !is_wanted && !overdue {
            return;
        }
        let mark = self.journal.mark_of_written();
        assert!(group_commit.served.is_empty(), "one sync at a time");
        assert!(mark.lsn >= self.journal.durable());
        group_commit.syncing = Some(mark.lsn);
        group_commit.served = core::mem::take(&mut group_commit.waiting);
        group_commit.controller.on_begun(self.now);
        group_commit.is_wanted = false;
        group_commit.is_doubted = false;
        group_commit.unsynced_since = None;
        self.out.push(Command::Sync { mark });
    }

    /// Asks for a sync soon: slots or uploads wait for durability.
    pub(crate) fn want_sync(&mut self) {
        self.group_commit.is_wanted = true;
    }

    pub(crate) fn on_synced(&mut self, result: Result<(), DiskError>) {
        let Some(upto) = self.group_commit.syncing.take() else {
            return;
        };
        self.counters.syncs += 1;
        match result {
            Ok(()) => {
                self.note_sync(upto);
                self.on_durable(upto);
                if let Some(mark) = self.journal.append_mark(self.wall.time_of(self.now)) {
                    self.out.push(Command::WriteJournal(mark));
                }
                for (token, answer) in core::mem::take(&mut self.group_commit.served) {
                    self.acknowledge_throttled(token, answer);
                }
            }
            Err(error) => {
                self.fail(error);
                self.refuse_all_waiting();
            }
        }
    }

    fn note_sync(&mut self, upto: Lsn) {
        let group_commit = &mut self.group_commit;
        let count = |answers: &[_]| u32::try_from(answers.len()).unwrap_or(u32::MAX);
        let (answered, waiting) = (count(&group_commit.served), count(&group_commit.waiting));
        // A checkpoint, which syncs by itself, may have come further meanwhile.
        let bytes = upto.0.saturating_sub(self.journal.durable().0);
        group_commit.controller.on_ended(self.now, answered, waiting, bytes);
    }

    pub(crate) fn on_durable(&mut self, upto: Lsn) {
        assert!(
            upto <= self.journal.written(),
            "a sync brings no more to the disk than was written"
        );
        self.journal.on_durable(upto);
        self.dirty.on_durable(upto);
        self.apply_transitions();
    }

    pub(crate) fn durability_deadline(&self) -> Option<Instant> {
        if self.failed.is_some() {
            return None;
        }
        let group_commit = &self.group_commit;
        let sync = match group_commit.syncing {
            Some(_) => None,
            None => Instant::earliest([
                group_commit.due(),
                group_commit
                    .unsynced_since
                    .map(|since| since.plus_millis(self.config.sync_interval_ms)),
            ]),
        };
        let checkpoint = match &self.frozen {
            Some(_) => self.checkpoints.retry_at,
            None if self.has_changes() && self.journal.written() == self.journal.next() && !self.is_sweeping() => {
                Some(self.checkpoints.at.plus_millis(self.config.checkpoint_interval_ms))
            }
            None => None,
        };
        Instant::earliest([sync, checkpoint])
    }
}
