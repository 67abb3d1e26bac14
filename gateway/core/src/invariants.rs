//! What must always hold between steps; for tests and simulation.

use crate::core_state::Core;
use crate::state::extent_map::Target;

impl Core {
    /// Checks what must always hold; for tests and simulation.
    pub fn check_invariants(&self) {
        self.slots.check_invariants();
        self.check_accounts();
        self.check_unmapped();
        assert!(
            self.slots.dirty_count() <= self.config.dirty_blocks_max.max(self.recovered_dirty),
            "the backlog is bounded"
        );
        assert!(self.dirty.len() <= self.slots.dirty_count() as usize);
        self.partial_writes
            .check_invariants(|token| self.writes.is_locked(token));
        self.writes.check_deadlines(self.now, self.config.stall_timeout_ms);
        assert!(self.journal.durable() <= self.journal.next());
        assert_eq!(self.corrupt.len(), self.slots.corrupt_count() as usize);
    }

    /// Checks what must always hold; for tests and simulation.
    pub(crate) fn check_accounts(&self) {
        self.prefetch_state.prefetcher.check_invariants();
        let counters = &self.prefetch_state.counters;
        let settled = counters.used + counters.wasted + counters.dropped;
        let unread = self.slots.unread_count() as u64;
        assert!(
            settled + unread <= counters.prefetched,
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
