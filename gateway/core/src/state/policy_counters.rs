//! What a pair of policies has achieved.

/// What one pair of policies has achieved; in blocks where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyCounters {
    /// Reads whose blocks were all resident.
    pub reads_hit: u64,
    /// Reads with blocks on their way, but none absent.
    pub reads_partial: u64,
    /// Reads for which a fetch had to be started.
    pub reads_missed: u64,
    pub hits: u64,
    pub partial_misses: u64,
    pub complete_misses: u64,
    /// Sent for ahead of demand.
    pub prefetched: u64,
    /// Of those, read at least once, or waited for when they came.
    pub used: u64,
    /// Evicted before anybody read them.
    pub wasted: u64,
    /// Fetches that failed or brought something else.
    pub dropped: u64,
    /// Reads of prefetched blocks while they stayed, the first included.
    pub accesses: u64,
    /// Suggestions, or pieces of one, that were admitted, and refused as not worth their price.
    pub suggestions_admitted: u64,
    pub suggestions_refused: u64,
    pub blocks_refused: u64,
}

impl PolicyCounters {
    /// PE: prefetched blocks that were used, in permille of those prefetched.
    pub fn efficiency_permille(&self) -> Option<u64> {
        (self.used * 1000).checked_div(self.prefetched)
    }

    pub fn add(&mut self, other: &Self) {
        self.reads_hit += other.reads_hit;
        self.reads_partial += other.reads_partial;
        self.reads_missed += other.reads_missed;
        self.hits += other.hits;
        self.partial_misses += other.partial_misses;
        self.complete_misses += other.complete_misses;
        self.prefetched += other.prefetched;
        self.used += other.used;
        self.wasted += other.wasted;
        self.dropped += other.dropped;
        self.accesses += other.accesses;
        self.suggestions_admitted += other.suggestions_admitted;
        self.suggestions_refused += other.suggestions_refused;
        self.blocks_refused += other.blocks_refused;
    }
}

/// The account of one pair of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    pub replacement: &'static str,
    pub prefetch: &'static str,
    pub counters: PolicyCounters,
}
