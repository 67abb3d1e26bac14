//! From journal record to acknowledgement, from acknowledgement to stable storage.
//!
//! Rules that the crash argument rests on (docs/FORMAT.md):
//! 1. A request is acknowledged when its journal batch and all before it have been written to the file: a killed
//!    daemon loses nothing that was acknowledged.
//! 2. FLUSH and FUA are answered after a sync of cache file and journal that began when their records were written.
//!    In the mode `bucket` ([`FlushMode`]) the bucket holds a recovery point besides that covers them (module `recovery_point`).
//! 3. A slot is reused only when the record that made its block dispensable is durable (module `transitions`).

use crate::core_state::Core;
use crate::event::{Answer, DiskError, Refusal, Token};
use crate::format::record::Lsn;
use crate::state::group_commit::Acknowledgement;
use alloc::vec::Vec;
use tombolo_base::FlushMode;

impl Core {
    /// The records before `end` are the request's; with `flush` it is answered when they, and all before them, are flushed.
    pub(crate) fn acknowledge_at(&mut self, end: Lsn, token: Token, answer: Answer, flush: Option<FlushMode>) {
        assert!(end <= self.journal.next(), "its records are in the journal");
        if flush == Some(FlushMode::Bucket) {
            return self.acknowledge_in_bucket(end, token, answer);
        }
        let acknowledgement = Acknowledgement {
            token,
            answer,
            force_unit_access: flush.is_some(),
        };
        self.group_commit
            .unwritten
            .entry(end)
            .or_default()
            .push(acknowledgement);
    }

    pub(crate) fn on_flush(&mut self, token: Token, mode: FlushMode) {
        if let Some(error) = &self.failed {
            return self.answer(token, Err(Refusal::Failed(error.clone())));
        }
        if mode == FlushMode::Bucket {
            return self.acknowledge_in_bucket(self.journal.end_of_records(), token, Answer::Done);
        }
        if self.journal.is_durable() {
            return self.answer(token, Ok(Answer::Done));
        }
        let changed = self.journal.next();
        if self.journal.written() < changed {
            // Readers see changes whose batch is still being written, and who syncs what was seen means those, too.
            return self.acknowledge_at(changed, token, Answer::Done, Some(mode));
        }
        self.group_commit.wait(self.now, token, Answer::Done);
    }

    pub(crate) fn on_journal_written(&mut self, lsn: Lsn, end: Lsn, result: Result<(), DiskError>) {
        if let Err(error) = result {
            self.fail(error);
            self.refuse_all_waiting();
            return;
        }
        if self.failed.is_some() {
            return;
        }
        let written = self.journal.on_written(lsn, end);
        if self.journal.has_unsynced() {
            self.group_commit.unsynced_since.get_or_insert(self.now);
        }
        while let Some(entry) = self.group_commit.unwritten.first_entry()
            && *entry.key() <= written
        {
            for acknowledgement in entry.remove() {
                if acknowledgement.force_unit_access {
                    self.group_commit
                        .wait(self.now, acknowledgement.token, acknowledgement.answer);
                } else {
                    self.acknowledge_throttled(acknowledgement.token, acknowledgement.answer);
                }
            }
        }
    }

    pub(crate) fn refuse_all_waiting(&mut self) {
        let Some(error) = self.failed.clone() else { return };
        let mut tokens: Vec<Token> = Vec::new();
        tokens.extend(self.unpublished.waiting.drain(..).map(|waiting| waiting.token));
        // Those that are held back to slow clients down, too: by now it is known that they go nowhere.
        tokens.extend(
            core::mem::take(&mut self.writes.delayed)
                .into_keys()
                .map(|(_, token)| token),
        );
        tokens.extend(self.group_commit.served.drain(..).map(|(token, _)| token));
        tokens.extend(self.group_commit.waiting.drain(..).map(|(token, _)| token));
        for (_, acknowledgements) in core::mem::take(&mut self.group_commit.unwritten) {
            tokens.extend(
                acknowledgements
                    .into_iter()
                    .map(|acknowledgement| acknowledgement.token),
            );
        }
        for token in tokens {
            self.answer(token, Err(Refusal::Failed(error.clone())));
        }
    }
}
