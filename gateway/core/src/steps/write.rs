//! Writes and zeroes: from a client's request to its journal record.
//!
//! A write passes, in this order: range check, exclusion (a partial write holds a lock on its blocks, see
//! `partial_write`), room in the overlay, the cap on dirty blocks, slots, bytes into the slots, journal. What cannot go on
//! waits in `blocked` (exclusion), `behind` (a checkpoint has to free the overlay, or the disk is full), `stalled` (cap or
//! slots) or `unjournaled` (the disk is full, and the bytes are in their slots already), each in order of arrival.

use crate::core_state::Core;
use crate::event::{Answer, Command, DiskError, PartialWrite, Refusal, Token, WritePiece, WriteRequest};
use crate::format::record::{LinkRun, Record, SlotRun, hole_records};
use crate::state::dirty::{DirtyBlock, Stage};
use crate::state::writes::{Kind, Running, Stalled, VolumeChange, Waiting};
use alloc::vec::Vec;
use tombolo_base::{BlockSum, Instant, Lcbn, MetadataChange, Span};

impl Core {
    pub(crate) fn on_write(&mut self, token: Token, request: WriteRequest) {
        let written: u64 = request.written().iter().map(|span| span.count).sum();
        assert_eq!(request.sums.len() as u64, written, "a sum per block");
        self.admit(token, Kind::Write(request));
    }

    pub(crate) fn on_zero(&mut self, token: Token, span: Span, force_unit_access: bool) {
        self.admit(
            token,
            Kind::Zero {
                span,
                force_unit_access,
            },
        );
    }

    /// A partial write has its bytes, and goes on under its lock.
    pub(crate) fn write_merged(&mut self, token: Token, write: PartialWrite, sums: Vec<Option<BlockSum>>) {
        let request = WriteRequest {
            zeroes: write.zeroes,
            force_unit_access: write.force_unit_access,
            ..WriteRequest::new(write.span, sums)
        };
        self.on_write(token, request);
    }

    /// Excludes other writers from the blocks, for [`Core::read_edges`].
    pub(crate) fn lock(&mut self, token: Token, span: Span) {
        self.admit(token, Kind::Lock(span));
    }

    /// Changes what is not written through slots.
    pub(crate) fn on_commit(&mut self, token: Token, change: MetadataChange, links: Vec<LinkRun>) {
        if let Some(error) = &self.failed {
            return self.answer(token, Err(Refusal::Failed(error.clone())));
        }
        self.start(self.waiting(token, Kind::Commit { change, links }));
    }

    pub(crate) fn on_volume_change(&mut self, token: Token, change: VolumeChange) {
        self.start(self.waiting(token, Kind::Volume(change)));
    }

    fn waiting(&self, token: Token, kind: Kind) -> Waiting {
        let since = self.now;
        Waiting { token, kind, since }
    }

    pub(crate) fn unlock(&mut self, token: Token) {
        self.writes.locks.remove(&token);
        self.retry_blocked();
    }

    pub(crate) fn on_cancel(&mut self, token: Token) {
        self.writes.blocked.retain(|waiting| waiting.token != token);
        self.writes.stalled.retain(|waiting| waiting.token != token);
        self.writes.behind.retain(|waiting| waiting.token != token);
        let goes_on = self.writes.running.contains_key(&token) || self.partial_writes.cancel(token);
        if !goes_on {
            self.unlock(token);
        }
        self.cancel_read(token);
    }

    fn admit(&mut self, token: Token, kind: Kind) {
        let waiting = self.waiting(token, kind);
        let refusal = match (&self.failed, self.check_spans(waiting.changed_spans())) {
            (Some(error), _) => Some(Refusal::Failed(error.clone())),
            (None, Err(refusal)) => Some(refusal),
            (None, Ok(())) if waiting.slots_needed() > self.config.dirty_blocks_max => {
                Some(Refusal::TooLarge(u64::from(waiting.slots_needed())))
            }
            (None, Ok(())) => None,
        };
        if let Some(refusal) = refusal {
            self.refuse(waiting.token, refusal);
            return self.retry_blocked();
        }
        let holds_lock = self.writes.is_locked(token);
        if (!holds_lock && self.is_behind_another(&waiting, usize::MAX)) || self.is_excluded(&waiting) {
            self.writes.blocked.push_back(waiting);
        } else {
            self.start(waiting);
        }
    }

    fn refuse(&mut self, token: Token, refusal: Refusal) {
        self.writes.locks.remove(&token);
        self.partial_writes.forget(token);
        self.answer(token, Err(refusal));
    }

    fn is_excluded(&self, waiting: &Waiting) -> bool {
        let Some(span) = waiting.span() else { return false };
        self.writes.conflicts_with_lock(waiting.token, &span)
            || (matches!(waiting.kind, Kind::Lock(_)) && self.writes.conflicts_with_running(&span))
    }

    /// Whether one of the first `count` of those that are blocked wants one of the blocks.
    fn is_behind_another(&self, waiting: &Waiting, count: usize) -> bool {
        let Some(span) = waiting.span() else { return false };
        let mut others = self.writes.blocked.iter().take(count);
        others.any(|other| other.overlaps(&span))
    }

    fn start(&mut self, waiting: Waiting) {
        // What waited may have waited for longer than its volume lived.
        if let Err(refusal) = self.check_spans(waiting.changed_spans()) {
            return self.refuse(waiting.token, refusal);
        }
        let needs_room = !matches!(waiting.kind, Kind::Lock(_));
        if needs_room && (self.must_changes_wait() || !self.writes.behind.is_empty()) {
            self.counters.writes_stalled += 1;
            return self.writes.behind.push_back(waiting);
        }
        self.start_with_room(waiting);
    }

    /// The overlay takes its records.
    fn start_with_room(&mut self, waiting: Waiting) {
        let token = waiting.token;
        match waiting.kind {
            Kind::Commit { change, links } => self.commit_change(token, change, links),
            Kind::Volume(change) => self.change_volume(token, change),
            Kind::Zero {
                span,
                force_unit_access,
            } => self.zero(token, span, force_unit_access),
            Kind::Lock(span) => {
                assert!(!self.writes.conflicts_with_running(&span), "a lock excludes writers");
                let earlier = self.writes.locks.insert(token, span);
                assert_eq!(earlier, None, "a token names one write");
                self.read_edges(token);
            }
            Kind::Write(request) => {
                let behind_another = !self.writes.stalled.is_empty() && !self.writes.is_locked(token);
                let left = if behind_another {
                    Some(request)
                } else {
                    self.try_write(token, request)
                };
                if let Some(request) = left {
                    self.counters.writes_stalled += 1;
                    let since = waiting.since;
                    self.writes.stalled.push_back(Stalled { token, request, since });
                }
            }
        }
    }

    fn zero(&mut self, token: Token, span: Span, force_unit_access: bool) {
        if span.count == 0 {
            self.answer(token, Ok(Answer::Done));
        } else {
            let end = self.commit(hole_records([span]));
            self.acknowledge_at(
                end,
                token,
                Answer::Done,
                force_unit_access.then(|| self.flush_mode(span.volume)),
            );
        }
    }

    /// Gives the write its slots, or hands it back when cap or cache do not allow it now.
    fn try_write(&mut self, token: Token, request: WriteRequest) -> Option<WriteRequest> {
        let needed = request.slots_needed();
        let dirty = self.slots.dirty_count() + self.writes.running_blocks;
        if dirty + needed > self.config.dirty_blocks_max {
            return Some(request);
        }
        let Some(runs) = self.slots.take(needed, None) else {
            return Some(request);
        };
        let slots: Vec<Lcbn> = runs.iter().flat_map(|run| run.slots()).collect();
        assert_eq!(slots.len(), needed as usize, "a slot for each block that is not zero");
        self.writes.running_blocks += needed;
        let pieces = write_pieces(&request.sums, &slots);
        let earlier = self.writes.running.insert(token, Running { request, slots });
        assert!(earlier.is_none(), "a token names one write");
        if pieces.is_empty() {
            self.on_slots_written(token, Ok(()));
        } else {
            self.out.push(Command::WriteSlots { token, pieces });
        }
        None
    }

    pub(crate) fn on_slots_written(&mut self, token: Token, result: Result<(), DiskError>) {
        let is_running = self.writes.running.contains_key(&token);
        if is_running && result.is_ok() && self.failed.is_none() && self.journal.is_full() {
            self.counters.writes_stalled += 1;
            return self.writes.unjournaled.push_back((self.now, token));
        }
        let Some(running) = self.end_running(token) else { return };
        match (result, &self.failed) {
            // The volume may have shrunk or gone while the bytes were on their way.
            (Ok(()), None) => match self.check_spans(running.request.changed_spans()) {
                Ok(()) => self.journal_write(token, running),
                Err(refusal) => self.abandon(token, running, refusal),
            },
            (Ok(()), Some(error)) => {
                let refusal = Refusal::Failed(error.clone());
                self.abandon(token, running, refusal);
            }
            (Err(error), _) => {
                // Nobody knows which of them it was.
                running
                    .slots
                    .iter()
                    .for_each(|slot| self.slots.set_unusable(*slot, self.now));
                self.abandon(token, running, Refusal::Disk(error));
            }
        }
        self.retry_blocked();
    }

    fn end_running(&mut self, token: Token) -> Option<Running> {
        let running = self.writes.running.remove(&token)?;
        let count = running.slots.len() as u32;
        assert!(count <= self.writes.running_blocks);
        self.writes.running_blocks -= count;
        self.writes.locks.remove(&token);
        Some(running)
    }

    fn abandon(&mut self, token: Token, running: Running, refusal: Refusal) {
        for slot in running.slots {
            self.slots.release(slot);
        }
        self.answer(token, Err(refusal));
    }

    fn journal_write(&mut self, token: Token, running: Running) {
        let Running { request, slots } = running;
        let (written, volume) = (request.written(), request.span.volume);
        let WriteRequest {
            sums,
            zeroes,
            force_unit_access,
            change,
            ..
        } = request;
        self.totals.blocks_written += sums.len() as u64;
        self.totals.blocks_zero += (sums.len() - slots.len()) as u64;
        let (written, blocks) = self.records(&written, &sums, &slots);
        let mut records = hole_records(change.holes.into_iter().chain(zeroes));
        records.extend(written);
        if !change.entries.is_empty() {
            records.push(Record::Entries(change.entries));
        }
        assert_eq!(blocks.len(), slots.len(), "a PVBN for each slot");
        let (first, count) = (self.next_pvbn, blocks.len() as u64);
        let first_free = first.plus(count);
        let end = self.commit(records);
        assert_eq!(
            self.next_pvbn, first_free,
            "PVBNs rise without a gap, and none is given out twice"
        );
        for (block, sum) in blocks {
            if let Some(alternatives) = &mut self.alternatives {
                alternatives.write(block.pvbn.0);
            }
            self.slots.hold_dirty(block.slot, block.pvbn, sum);
            self.dirty.push(self.now, block);
        }
        self.flush.early.on_written(self.now, first, count);
        self.acknowledge_at(
            end,
            token,
            Answer::Done,
            force_unit_access.then(|| self.flush_mode(volume)),
        );
    }

    /// A record per run of blocks that are, or are not, zero. PVBNs are given out here, at completion, so that their
    /// order is the journal's.
    fn records(
        &mut self,
        spans: &[Span],
        sums: &[Option<BlockSum>],
        slots: &[Lcbn],
    ) -> (Vec<Record>, Vec<(DirtyBlock, BlockSum)>) {
        let mut records = Vec::new();
        let mut blocks = Vec::with_capacity(slots.len());
        let (mut sums, mut slots) = (sums, slots);
        let mut next_pvbn = self.next_pvbn;
        for span in spans {
            let (own, rest) = sums.split_at(span.count as usize);
            sums = rest;
            let mut first = span.first;
            for run in own.chunk_by(|left, right| left.is_some() == right.is_some()) {
                let count = run.len() as u64;
                let part = Span { first, count, ..*span };
                first += count;
                if run[0].is_none() {
                    records.extend(hole_records([part]));
                    continue;
                }
                let (own, rest) = slots.split_at(run.len());
                slots = rest;
                let present: Vec<BlockSum> = run.iter().flatten().copied().collect();
                let pvbn = next_pvbn;
                next_pvbn = next_pvbn.plus(count);
                for (offset, (slot, sum)) in (0..).zip(own.iter().zip(&present)) {
                    let block = DirtyBlock {
                        pvbn: pvbn.plus(offset),
                        slot: *slot,
                        volume: part.volume,
                        block: part.first + offset,
                        stage: Stage::Queued,
                    };
                    blocks.push((block, *sum));
                }
                records.push(Record::Write {
                    volume: part.volume,
                    first: part.first,
                    pvbn,
                    slots: slot_runs(own),
                    sums: present,
                });
            }
        }
        assert!(
            sums.is_empty() && slots.is_empty(),
            "every sum and every slot is in a record"
        );
        (records, blocks)
    }

    /// Starts what waited for a lock or a writer that has gone, in order of arrival.
    fn retry_blocked(&mut self) {
        let mut index = 0;
        while let Some(waiting) = self.writes.blocked.get(index) {
            if self.is_behind_another(waiting, index) || self.is_excluded(waiting) {
                index += 1;
            } else if let Some(waiting) = self.writes.blocked.remove(index) {
                self.start(waiting);
            }
        }
    }

    /// Lets stalled writes go on, refuses those that have waited too long, releases delayed acknowledgements.
    pub(crate) fn pump_writes(&mut self) {
        loop {
            self.pump_unjournaled();
            self.pump_behind();
            self.pump_stalled();
            // Who is refused may let in another that waited for it, and has waited for too long by then.
            if !self.writes.is_overdue(self.now, self.config.stall_timeout_ms) {
                break;
            }
        }
        while let Some(entry) = self.writes.delayed.first_entry()
            && entry.key().0 <= self.now
        {
            let (_, token) = *entry.key();
            let answer = entry.remove();
            self.answer(token, Ok(answer));
        }
    }

    fn pump_stalled(&mut self) {
        while let Some(Stalled { token, request, since }) = self.writes.stalled.pop_front() {
            if let Some(error) = &self.failed {
                let refusal = Refusal::Failed(error.clone());
                self.refuse_stalled(token, refusal);
            } else if let Some(request) = self.try_write(token, request) {
                if self.now < since.plus_millis(self.config.stall_timeout_ms) {
                    self.writes.stalled.push_front(Stalled { token, request, since });
                    if self.has_pending_transitions() {
                        self.want_sync();
                    }
                    break;
                }
                self.counters.writes_refused_busy += 1;
                self.refuse_stalled(token, Refusal::Busy);
            }
        }
    }

    fn pump_unjournaled(&mut self) {
        while let Some((since, token)) = self.writes.unjournaled.front().copied() {
            let waits = self.failed.is_none() && self.journal.is_full();
            if waits && self.now < since.plus_millis(self.config.stall_timeout_ms) {
                break;
            }
            self.writes.unjournaled.pop_front();
            if !waits {
                self.on_slots_written(token, Ok(()));
            } else if let Some(running) = self.end_running(token) {
                self.counters.writes_refused_busy += 1;
                self.abandon(token, running, Refusal::Busy);
                self.retry_blocked();
            }
        }
    }

    fn pump_behind(&mut self) {
        while let Some(waiting) = self.writes.behind.pop_front() {
            if let Some(error) = &self.failed {
                let refusal = Refusal::Failed(error.clone());
                self.refuse_stalled(waiting.token, refusal);
            } else if !self.must_changes_wait() {
                match self.check_spans(waiting.changed_spans()) {
                    Ok(()) => {
                        self.start_with_room(waiting);
                        // A lock may have waited for it.
                        self.retry_blocked();
                    }
                    Err(refusal) => self.refuse_stalled(waiting.token, refusal),
                }
            } else if self.now < waiting.since.plus_millis(self.config.stall_timeout_ms) {
                self.writes.behind.push_front(waiting);
                break;
            } else {
                self.counters.writes_refused_busy += 1;
                self.refuse_stalled(waiting.token, Refusal::Busy);
            }
        }
    }

    fn refuse_stalled(&mut self, token: Token, refusal: Refusal) {
        self.answer(token, Err(refusal));
        self.unlock(token);
    }

    /// Acknowledges, later the closer the backlog is to its cap.
    pub(crate) fn acknowledge_throttled(&mut self, token: Token, answer: Answer) {
        let delay = match answer {
            Answer::Done => self.throttle_micros(),
            _ => 0,
        };
        if delay == 0 {
            self.answer(token, Ok(answer));
        } else {
            self.counters.writes_throttled += 1;
            self.writes.delayed.insert((self.now.plus_micros(delay), token), answer);
        }
    }

    fn throttle_micros(&self) -> u64 {
        let share = u64::from(self.slots.dirty_count()) * 1000 / u64::from(self.config.dirty_blocks_max);
        let start = u64::from(self.config.throttle_start_permille);
        if share <= start || start >= 1000 {
            return 0;
        }
        self.config.throttle_delay_ms_max * 1000 * (share - start) / (1000 - start)
    }

    pub(crate) fn write_deadline(&self) -> Option<Instant> {
        let delayed = self.writes.delayed.first_key_value().map(|((at, _), _)| *at);
        let waiting = self.writes.waiting_since();
        let refused = waiting.map(|since| since.plus_millis(self.config.stall_timeout_ms));
        Instant::earliest([delayed, refused])
    }
}

/// Where the bytes go: runs that are consecutive both in the buffer and in the cache file.
fn write_pieces(sums: &[Option<BlockSum>], slots: &[Lcbn]) -> Vec<WritePiece> {
    let mut pieces: Vec<WritePiece> = Vec::new();
    let blocks = sums
        .iter()
        .enumerate()
        .filter(|(_, sum)| sum.is_some())
        .map(|(index, _)| index as u32);
    for (index, slot) in blocks.zip(slots) {
        match pieces.last_mut() {
            Some(last) if last.index + last.slots.count == index && last.slots.first.0 + last.slots.count == slot.0 => {
                last.slots.count += 1;
            }
            _ => pieces.push(WritePiece {
                index,
                slots: SlotRun { first: *slot, count: 1 },
            }),
        }
    }
    pieces
}

fn slot_runs(slots: &[Lcbn]) -> Vec<SlotRun> {
    slots
        .chunk_by(|left, right| left.0 + 1 == right.0)
        .map(|run| SlotRun {
            first: run[0],
            count: run.len() as u32,
        })
        .collect()
}
