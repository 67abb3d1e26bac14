//! Recovery points: when one is frozen, what has to be in the store before the bucket is told of it, and what that lets go.
//!
//! A point is a position in the journal. Everything before it is in it, nothing behind it, whatever volumes and shares it
//! belongs to: so the bucket is at every moment what a client could have seen. Blocks that are overwritten between the freezing
//! and their upload are uploaded all the same; they keep their slots and count as dirty until then.
//!
//! Flushes in the mode `bucket` wait for a point that covers them. All that wait share one; who comes while one is on its way
//! that does not cover it waits for the next, which is frozen as soon as that one is published. A point that is published is
//! durable here, so nothing else is waited for.

use crate::core_state::Core;
use crate::event::{Answer, Command, PublishFailure, Refusal, StopReason, Token};
use crate::format::record::Lsn;
use crate::format::superblock::Totals;
use crate::state::unpublished::{AwaitingPoint, FrozenPoint, RecoveryPoint, Stage};
use alloc::{collections::BTreeMap, sync::Arc};
use tombolo_base::{FlushMode, Instant};

impl Core {
    pub(crate) fn pump_recovery_point(&mut self) {
        if !self.unpublished.is_on {
            return;
        }
        self.answer_waiting();
        if self.unpublished.frozen.is_none() && self.is_point_due() && !self.is_sweeping() {
            self.freeze_point();
        }
        let Some(frozen) = &mut self.unpublished.frozen else {
            return;
        };
        if let Stage::Uploading = frozen.stage {
            let end = frozen.point.next_pvbn;
            if self.dirty.first_pvbn().is_some_and(|first| first < end) {
                if self.dirty.waiting(end).is_some() {
                    self.flush.target = self.flush.target.max(Some(end));
                }
                return;
            }
            frozen.stage = Stage::Confirming(self.journal.end_of_records());
        }
        if let Stage::Confirming(end) = frozen.stage {
            if self.journal.durable() < end {
                return self.want_sync();
            }
            frozen.stage = Stage::Publishing {
                retry_at: None,
                failures: 0,
            };
            assert!(frozen.point.lsn <= self.journal.durable(), "a crash cannot undo it");
            let objects = core::mem::take(&mut self.unpublished.objects);
            let now = self.totals;
            let point = Arc::make_mut(&mut frozen.point);
            point.objects = objects;
            // What became of its blocks was decided after it was frozen.
            point.totals = Totals {
                blocks_written: point.totals.blocks_written,
                blocks_zero: point.totals.blocks_zero,
                ..now
            };
            let point = frozen.point.clone();
            self.out.push(Command::Publish { point });
        } else if let Stage::Publishing { retry_at, .. } = &mut frozen.stage
            && retry_at.is_some_and(|at| self.now >= at)
        {
            *retry_at = None;
            let point = frozen.point.clone();
            self.out.push(Command::Publish { point });
        }
    }

    /// Answers when the bucket has everything before `end`, for which a point begins at once.
    pub(crate) fn acknowledge_in_bucket(&mut self, end: Lsn, token: Token, answer: Answer) {
        if let Err(refusal) = self.check_flush_mode(FlushMode::Bucket) {
            return self.answer(token, Err(refusal));
        }
        self.unpublished.waiting.push_back(AwaitingPoint {
            end,
            token,
            answer,
            since: self.now,
        });
    }

    /// Whether flushes in this mode can ever be answered.
    pub(crate) fn check_flush_mode(&self, mode: FlushMode) -> Result<(), Refusal> {
        match mode {
            FlushMode::Bucket if !self.unpublished.is_on => Err(Refusal::NoRecoveryPoints),
            _ => Ok(()),
        }
    }

    /// Answers flushes that the bucket covers, and refuses those for which nothing has moved for too long.
    fn answer_waiting(&mut self) {
        while let Some(first) = self.unpublished.waiting.front()
            && self.is_published(first.end)
            && let Some(waiting) = self.unpublished.waiting.pop_front()
        {
            self.acknowledge_throttled(waiting.token, waiting.answer);
        }
        while let Some(until) = self.unpublished.waiting_until(self.config.stall_timeout_ms)
            && self.now >= until
            && let Some(waiting) = self.unpublished.waiting.pop_front()
        {
            self.counters.writes_refused_busy += 1;
            self.answer(waiting.token, Err(Refusal::Busy));
        }
    }

    fn is_point_due(&self) -> bool {
        let is_old = || self.point_due_at().is_some_and(|at| self.now >= at);
        let has_changes = self.unpublished.since.is_some() || self.unpublished.is_whole;
        has_changes
            && (self.unpublished.is_wanted
                || !self.unpublished.waiting.is_empty()
                || is_old()
                || self.is_unpublished_full())
    }

    fn point_due_at(&self) -> Option<Instant> {
        let since = self.unpublished.since?;
        Some(since.plus_millis(self.config.recovery_point_ms?))
    }

    fn freeze_point(&mut self) {
        let lsn = self.journal.end_of_records();
        let unpublished = &mut self.unpublished;
        assert!(unpublished.frozen.is_none(), "one point at a time");
        let mut entries = core::mem::take(&mut unpublished.entries);
        for key in core::mem::take(&mut unpublished.counters) {
            entries.set_counter(&key, self.counters_of_entries.get(&key).copied().unwrap_or(0));
        }
        let volumes = core::mem::take(&mut unpublished.volumes).into_iter();
        let point = RecoveryPoint {
            lsn,
            time: self.wall.time_of(self.now),
            next_pvbn: self.next_pvbn,
            next_volume: self.next_volume,
            totals: self.totals,
            is_whole: core::mem::take(&mut unpublished.is_whole),
            map: core::mem::take(&mut unpublished.map),
            entries,
            volumes: volumes.map(|id| (id, self.volumes.get(&id).cloned())).collect(),
            objects: BTreeMap::new(),
        };
        unpublished.frozen = Some(FrozenPoint {
            point: Arc::new(point),
            stage: Stage::Uploading,
            since: unpublished.since.take().unwrap_or(self.now),
        });
        unpublished.is_wanted = false;
    }

    pub(crate) fn on_published(&mut self, result: Result<(), PublishFailure>) {
        let Some(frozen) = &mut self.unpublished.frozen else {
            return;
        };
        let Stage::Publishing { retry_at, failures } = &mut frozen.stage else {
            return;
        };
        assert!(retry_at.is_none(), "it was under way");
        match result {
            Ok(()) => {
                self.counters.recovery_points += 1;
                let (lsn, time) = (frozen.point.lsn, frozen.point.time);
                assert!(self.unpublished.published <= lsn, "points follow each other");
                self.unpublished.published = lsn;
                self.unpublished.published_time = Some(time);
                self.unpublished.frozen = None;
                self.unpublished.moved_at = self.now;
                self.store_answered();
                self.trim_journal();
            }
            Err(PublishFailure::Retry(failure)) => {
                *retry_at = Some(self.now.plus_millis(self.config.upload_retry_ms(*failures)));
                *failures += 1;
                self.counters.recovery_point_failures += 1;
                self.store_failed(&failure);
            }
            Err(PublishFailure::Fenced(writer)) => self.on_stop(StopReason::Fenced(writer)),
        }
    }

    pub(crate) fn on_stop(&mut self, reason: StopReason) {
        self.fail(reason);
        self.refuse_all_waiting();
    }

    /// Whether the bucket has everything before this position.
    pub(crate) fn is_published(&self, end: Lsn) -> bool {
        let frozen = self.unpublished.frozen.as_ref();
        // Before a whole point is there, nobody knows what the bucket has.
        let is_unknown = self.unpublished.is_whole || frozen.is_some_and(|frozen| frozen.point.is_whole);
        self.unpublished.published >= end && !is_unknown || self.is_all_published()
    }

    fn is_all_published(&self) -> bool {
        let unpublished = &self.unpublished;
        !unpublished.is_on || unpublished.oldest().is_none() && !unpublished.is_whole
    }

    /// Whether the point that is on its way has everything before this position.
    pub(crate) fn is_being_published(&self, end: Lsn) -> bool {
        let frozen = self.unpublished.frozen.as_ref();
        frozen.is_some_and(|frozen| frozen.point.lsn >= end)
    }

    /// Whether no more may change before the bucket has caught up.
    pub(crate) fn is_unpublished_full(&self) -> bool {
        if self.is_all_published() {
            // Then what the journal has since then are records of objects.
            return false;
        }
        let (extents, entry_bytes) = self.unpublished.size();
        extents >= self.config.unpublished_extents_max
            || entry_bytes >= self.config.unpublished_entry_bytes_max
            || self.journal.bytes_since(self.unpublished.published) >= self.config.unpublished_journal_bytes_max
    }

    pub(crate) fn recovery_point_deadline(&self) -> Option<Instant> {
        if !self.unpublished.is_on {
            return None;
        }
        let refused = self.unpublished.waiting_until(self.config.stall_timeout_ms);
        let point = match &self.unpublished.frozen {
            // What is swept first has a deadline of its own.
            None => self.point_due_at().filter(|_| !self.is_sweeping()),
            Some(FrozenPoint {
                stage: Stage::Publishing { retry_at, .. },
                ..
            }) => *retry_at,
            Some(_) => None,
        };
        Instant::earliest([refused, point])
    }
}

#[cfg(test)]
#[path = "recovery_point_tests.rs"]
mod tests;
