//! What must always hold between steps; for tests and simulation.

use crate::core_state::Core;
use crate::state::extent_map::Target;
use crate::state::metadata_loads::CANDIDATES_WAITING_MAX;

impl Core {
    /// Checks, after each step, what takes no time: bounds, and positions that never pass each other.
    pub(crate) fn check_bounds(&self) {
        let (config, journal) = (&self.config, &self.journal);
        assert!(journal.durable() <= journal.written(), "what is durable was written");
        assert!(journal.written() <= journal.next(), "what is written was appended");
        assert!(self.checkpoints.lsn <= journal.durable(), "a checkpoint is durable");
        let dirty = self.slots.dirty_count() + self.writes.running_blocks;
        assert!(
            dirty <= config.dirty_blocks_max.max(self.recovered_dirty),
            "the backlog is bounded, with what is on its way to it"
        );
        assert!(
            self.dirty.len() <= self.slots.dirty_count() as usize,
            "a slot for each dirty block"
        );
        assert!(self.fetches.launched <= config.fetches_max);
        assert!(self.flush.hash_jobs.len() <= config.hash_jobs_max);
        assert!(
            self.flush.object.len() < config.object_blocks(1),
            "a full object is on its way"
        );
        assert!(self.reads.reserved <= config.read_blocks_max());
        assert!(self.metadata_loads.candidates_waiting <= CANDIDATES_WAITING_MAX);
        assert!(self.slot_transitions.left_in_step <= config.sweep_blocks_max);
        assert!(
            self.group_commit.served.is_empty() || self.group_commit.syncing.is_some(),
            "who is served by a sync waits for one"
        );
        assert!(!self.partial_writes.has_answers(), "edges that were read go on at once");
    }

    /// Checks what must always hold; for tests and simulation.
    pub fn check_invariants(&self) {
        self.slots.check_invariants();
        self.check_tables();
        self.check_accounts();
        self.check_unmapped();
        self.partial_writes
            .check_invariants(|token| self.writes.is_locked(token));
        let is_overdue = self.writes.is_overdue(self.now, self.config.stall_timeout_ms);
        assert!(!is_overdue, "a change has waited for longer than is promised");
        let flush_until = self.unpublished.waiting_until(self.config.stall_timeout_ms);
        assert!(
            flush_until.is_none_or(|until| self.now < until),
            "a flush has waited for the bucket for longer than is promised"
        );
        assert_eq!(self.corrupt.len(), self.slots.corrupt_count() as usize);
    }

    /// Each counter kept beside a table is the sum over the table.
    fn check_tables(&self) {
        let running = self.writes.running.values().map(|running| running.slots.len());
        assert_eq!(running.sum::<usize>(), self.writes.running_blocks as usize);
        #[expect(clippy::disallowed_methods, reason = "a sum is the same in any order")]
        let reserved = self.reads.reads.values().map(|read| read.reserved);
        assert_eq!(reserved.sum::<u32>(), self.reads.reserved);
        self.reads.check_invariants();
        self.fetches.check_invariants();
        self.flush.check_invariants();
        let followers = self.flush.awaiting_count() + self.verification.awaiting_count();
        assert_eq!(
            followers, self.flush.follower_count,
            "each follower awaits one original"
        );
        assert!(self.flush.uploads_in_flight() <= self.config.uploads_max);
        let lsns = self.slot_transitions.queue.iter().map(|(lsn, _, _)| *lsn);
        assert!(lsns.is_sorted(), "slots change their state in the journal's order");
    }

    /// Checks what must always hold; for tests and simulation.
    pub(crate) fn check_accounts(&self) {
        self.prefetch_state.check_invariants();
        let counters = &self.prefetch_state.counters;
        let accounted = counters.used + counters.wasted + counters.dropped;
        let unread = self.slots.unread_count() as u64;
        assert!(
            accounted + unread <= counters.prefetched,
            "more has become of prefetched blocks than there were: {counters:?}, {unread} unread"
        );
        assert!(counters.used <= counters.accesses);
        assert!(self.prefetch_state.suggestions.is_empty());
    }

    /// What the map says of dirty blocks and what the dirty queue says must be the same; for tests and simulation.
    pub(crate) fn check_unmapped(&self) {
        self.overlay.map.check_invariants();
        self.dirty.check_invariants();
        for block in self.dirty.live_blocks() {
            let overlay = self.overlay.map.get(block.volume, block.block);
            let frozen = self.frozen.as_ref();
            let mapped = overlay.or_else(|| frozen?.map.get(block.volume, block.block));
            assert!(
                mapped.is_none_or(|mapped| mapped.target == Target::At(block.pvbn)),
                "{block:?} is live, but mapped: {mapped:?}"
            );
        }
    }
}
