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
        if group_commit.waiting.is_empty() && !is_wanted && !overdue {
            return;
        }
        let mark = self.journal.mark_of_written();
        assert!(group_commit.served.is_empty(), "one sync at a time");
        assert!(mark.lsn >= self.journal.durable());
        group_commit.syncing = Some(mark.lsn);
        group_commit.served = core::mem::take(&mut group_commit.waiting);
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
        let sync = self
            .group_commit
            .unsynced_since
            .filter(|_| self.group_commit.syncing.is_none())
            .map(|since| since.plus_millis(self.config.sync_interval_ms));
        let checkpoint = match &self.frozen {
            Some(_) => self.checkpoints.retry_at,
            None if self.has_changes() && self.journal.written() == self.journal.next() && !self.is_sweeping() => {
                Some(self.checkpoints.at.plus_millis(self.config.checkpoint_interval_ms))
            }
            None => None,
        };
        [sync, checkpoint].into_iter().flatten().min()
    }
}
