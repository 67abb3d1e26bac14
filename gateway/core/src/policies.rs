//! The policies at work: what they are told, what they have achieved, and their change while the gateway runs.
//!
//! The core consults them in this order. A read is resolved first: which blocks are resident, on their way, absent. With
//! that outcome it goes to the prefetcher, which says whether it continues a stream; that word goes with every touch, miss
//! and insert to the replacement policy. Demand is queued, then what the prefetcher suggests and [`Admission`] admits
//! (module `ahead`). What becomes of prefetched blocks is gathered by `fetch` and `marks` and told at the end of a step.

use crate::core_state::Core;
use crate::marks::{Mark, Touched};
use alloc::{boxed::Box, vec::Vec};
use tombolo_base::{BLOCK_BYTES, Instant, Lcbn, Pvbn, VolumeId};
use tombolo_cache::{Advice, CostClass, Replacement};
use tombolo_prefetch::{
    Addressing, Admission, BLOCKS_MAX, Class, Feedback, PVBN_SPACE, PrefetchOutcome, Prefetcher, Prices, Statistics,
    Suggestion, graph::History,
};

/// The policies that a core is built with.
pub struct Policies {
    pub replacement: Box<dyn Replacement>,
    pub prefetcher: Box<dyn Prefetcher>,
    pub addressing: Addressing,
    pub economy: Economy,
}

impl Policies {
    /// Without regard to prices, and with logical addresses.
    pub fn new(replacement: Box<dyn Replacement>, prefetcher: Box<dyn Prefetcher>) -> Self {
        Self {
            replacement,
            prefetcher,
            addressing: Addressing::default(),
            economy: Economy::default(),
        }
    }
}

/// What decides whether a suggestion is worth its price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Economy {
    pub prices: Prices,
    /// What a second that a reader waits is worth, in millionths of a dollar; none: any price is paid.
    pub microdollars_per_second: Option<u64>,
}

impl Economy {
    fn admission(&self) -> Admission {
        Admission::new(self.prices, self.microdollars_per_second, FETCH_MICROS_INITIAL)
    }

    /// The prices, with a latency that lies all in the request.
    fn costs(&self, micros: u64) -> CostClass {
        let nanodollars = |price: u64| u32::try_from(price / 100).unwrap_or(u32::MAX);
        let micros = u32::try_from(micros).unwrap_or(u32::MAX);
        CostClass {
            round_trip_us: micros,
            download_us: micros,
            get_nanodollars: nanodollars(self.prices.get_request),
            egress_nanodollars_per_mib: nanodollars(self.prices.egress_per_block.saturating_mul(256)),
            ..CostClass::default()
        }
    }
}

/// What a fetch is taken to last until one was measured.
const FETCH_MICROS_INITIAL: u64 = 50_000;
const KIB_PER_BLOCK: u64 = BLOCK_BYTES as u64 / 1024;
const TICK_MICROS: u64 = 1_000_000;
/// The floor under sequential blocks is an eighth of the cache at the most, like prefetch in flight: a stream's degree grows
/// as long as nothing of it is evicted, so that without a bound streams would come to take all there is.
const FLOOR_DIVISOR: u32 = 8;
/// Fetches between two advices on costs.
const FETCHES_PER_ADVICE: u32 = 64;

/// Counters that can be summed.
macro_rules! counters {
    ($(#[$about:meta])* $name:ident { $( $(#[$meaning:meta])* $counter:ident ),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "api", derive(schemars::JsonSchema, serde::Serialize, serde::Deserialize))]
        pub struct $name { $( $(#[$meaning])* pub $counter: u64 ),+ }

        impl $name {
            fn add(&mut self, other: &Self) {
                $( self.$counter += other.$counter; )+
            }
        }
    };
}

counters! {
    /// What one pair of policies has achieved; in blocks where nothing else is said.
    PolicyCounters {
        /// Reads whose blocks were all resident.
        reads_hit,
        /// Reads with blocks on their way, but none absent.
        reads_partial,
        /// Reads for which a fetch had to be started.
        reads_missed,
        hits,
        partial_misses,
        complete_misses,
        /// Sent for ahead of demand.
        prefetched,
        /// Of those, read at least once, or waited for when they came.
        used,
        /// Evicted before anybody read them.
        wasted,
        /// Fetches that failed or brought something else.
        dropped,
        /// Reads of prefetched blocks while they stayed, the first included.
        accesses,
        /// Suggestions, or pieces of one, that were admitted.
        suggestions_admitted,
        /// Suggestions, or pieces of one, that were refused as not worth their price.
        suggestions_refused,
        /// Of the suggestions that were refused.
        blocks_refused,
    }
}

/// The account of one pair of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    pub replacement: &'static str,
    pub prefetch: &'static str,
    pub counters: PolicyCounters,
}

/// What the policies have achieved and hold, for `status` and `/metrics`.
#[derive(Clone, Debug, Default)]
pub struct PolicySnapshot {
    pub replacement: &'static str,
    pub prefetch: &'static str,
    pub addressing: Addressing,
    pub economy: Economy,
    /// One per pair of policies that has been at work since the start, the present one last.
    pub tallies: Vec<Tally>,
    pub prefetcher: Statistics,
    /// Resident prefetched blocks that nobody has read yet.
    pub unread_blocks: u64,
    /// How much of what a class expected came true, in permille: sequential, history.
    pub calibration_permille: [u64; 2],
}

impl PolicySnapshot {
    /// All pairs together.
    pub fn total(&self) -> PolicyCounters {
        let mut total = PolicyCounters::default();
        self.tallies.iter().for_each(|tally| total.add(&tally.counters));
        total
    }
}

/// Latencies of fetches since the last advice on costs.
#[derive(Debug, Default)]
struct Latencies {
    fetches: u32,
    micros_min: u64,
    micros_sum: u64,
    blocks_sum: u64,
}

impl Latencies {
    /// Counts a fetch; now and then there is something to tell.
    fn learn(&mut self, micros: u64, blocks: u64, economy: &Economy) -> Option<CostClass> {
        self.micros_min = match self.fetches {
            0 => micros,
            _ => self.micros_min.min(micros),
        };
        self.fetches += 1;
        self.micros_sum += micros;
        self.blocks_sum += blocks;
        if self.fetches < FETCHES_PER_ADVICE {
            return None;
        }
        let beyond = self.micros_sum - self.micros_min * u64::from(self.fetches);
        let nanos_per_kib = beyond * 1000 / (self.blocks_sum * KIB_PER_BLOCK).max(1);
        let costs = CostClass {
            download_ns_per_kib: u32::try_from(nanos_per_kib).unwrap_or(u32::MAX),
            ..economy.costs(self.micros_min)
        };
        *self = Self::default();
        Some(costs)
    }
}

/// The prefetcher and all that the core keeps for it; the replacement policy lives with the slots.
pub(crate) struct PrefetchState {
    pub prefetcher: Box<dyn Prefetcher>,
    pub addressing: Addressing,
    pub admission: Admission,
    pub economy: Economy,
    pub knows_streams: bool,
    /// Counts changes of policy: what was asked for under an earlier one is no longer accounted.
    pub generation: u32,
    pub counters: PolicyCounters,
    /// Accounts of the pairs of earlier times.
    earlier: Vec<Tally>,
    latencies: Latencies,
    /// What the replacement policy was told last.
    costs: CostClass,
    ticked: Instant,
    /// Empty between steps; kept for their memory.
    pub suggestions: Vec<Suggestion>,
    prefetch_outcomes: Vec<(Mark, PrefetchOutcome)>,
}

impl PrefetchState {
    pub fn new(
        mut prefetcher: Box<dyn Prefetcher>,
        addressing: Addressing,
        economy: Economy,
        cache_blocks: u32,
        now: Instant,
    ) -> Self {
        prefetcher.resize(cache_blocks.into());
        Self {
            knows_streams: prefetcher.knows_streams(),
            prefetcher,
            addressing,
            admission: economy.admission(),
            economy,
            generation: 0,
            counters: PolicyCounters::default(),
            earlier: Vec::new(),
            latencies: Latencies::default(),
            costs: economy.costs(FETCH_MICROS_INITIAL),
            ticked: now,
            suggestions: Vec::new(),
            prefetch_outcomes: Vec::new(),
        }
    }
}

/// Where a block lies, as one number for the policies: blocks of different volumes are far apart. A block whose place is
/// not known, or does not count, has its PVBN in the space of PVBNs.
pub(crate) fn address(volume: VolumeId, block: u64) -> u64 {
    let spread = volume.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !(BLOCKS_MAX - 1);
    spread | (block & (BLOCKS_MAX - 1))
}

impl Core {
    /// Another replacement policy takes over the resident blocks, in the order in which the old one would have evicted
    /// them. Takes time in proportion to the cache.
    pub fn set_replacement(&mut self, replacement: Box<dyn Replacement>) {
        self.close_account();
        self.slots.set_policy(replacement);
        self.advise_costs();
        self.open_account();
    }

    /// Another prefetcher takes over. It begins with what it brings along; what the old one has under way still comes.
    pub fn set_prefetcher(&mut self, prefetcher: Box<dyn Prefetcher>, addressing: Addressing) {
        self.close_account();
        let fresh = PrefetchState::new(
            prefetcher,
            addressing,
            self.prefetch_state.economy,
            self.slots.count(),
            self.now,
        );
        let old = core::mem::replace(&mut self.prefetch_state, fresh);
        self.prefetch_state.generation = old.generation;
        self.prefetch_state.earlier = old.earlier;
        self.prefetch_state.latencies = old.latencies;
        self.prefetch_state.costs = old.costs;
        self.slots
            .set_second_chances(self.prefetch_state.prefetcher.uses_second_chances());
        self.open_account();
    }

    pub fn set_economy(&mut self, economy: Economy) {
        self.prefetch_state.economy = economy;
        self.prefetch_state.admission = economy.admission();
        self.prefetch_state.costs = economy.costs(self.prefetch_state.costs.download_us.into());
        self.advise_costs();
    }

    pub(crate) fn advise_costs(&mut self) {
        let costs = self.prefetch_state.costs;
        self.slots.advise(Advice::Costs { class: 0, costs });
    }

    /// SARC judges SEQ by what its hits are worth, and may evict blocks before a stream comes to them.
    fn advise_floor(&mut self) {
        if self.config.sequential_floor {
            let needed = self.prefetch_state.prefetcher.sequential_need_blocks(self.now);
            let floor = needed.min(u64::from(self.slots.count() / FLOOR_DIVISOR)) as u32;
            self.slots.advise(Advice::SequentialFloorBlocks(floor));
        }
    }

    /// The prefetcher's history, if it has one; to be encoded chunk by chunk.
    pub fn history(&self) -> Option<&History> {
        self.prefetch_state.prefetcher.history()
    }

    /// Whether a prefetch brought the block in a slot.
    pub fn was_prefetched(&self, slot: Lcbn) -> bool {
        self.slots.was_prefetched(slot)
    }

    pub fn policies(&self) -> PolicySnapshot {
        let prefetch_state = &self.prefetch_state;
        let mut tallies = prefetch_state.earlier.clone();
        tallies.push(self.tally());
        let permille = |class| (u64::from(prefetch_state.admission.calibration(class).bits()) * 1000) >> 30;
        PolicySnapshot {
            replacement: self.slots.policy_name(),
            prefetch: prefetch_state.prefetcher.name(),
            addressing: prefetch_state.addressing,
            economy: prefetch_state.economy,
            tallies,
            prefetcher: prefetch_state.prefetcher.statistics(),
            unread_blocks: self.slots.unread_count() as u64,
            calibration_permille: [permille(Class::Sequential), permille(Class::History)],
        }
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

    fn tally(&self) -> Tally {
        Tally {
            replacement: self.slots.policy_name(),
            prefetch: self.prefetch_state.prefetcher.name(),
            counters: self.prefetch_state.counters,
        }
    }

    fn close_account(&mut self) {
        let tally = self.tally();
        self.prefetch_state.earlier.push(tally);
        self.prefetch_state.counters = PolicyCounters::default();
        self.slots.forget_marks();
    }

    /// A pair that was at work before goes on with its account.
    fn open_account(&mut self) {
        self.prefetch_state.generation += 1;
        let pair = (self.slots.policy_name(), self.prefetch_state.prefetcher.name());
        let is_same = |tally: &Tally| (tally.replacement, tally.prefetch) == pair;
        if let Some(at) = self.prefetch_state.earlier.iter().position(is_same) {
            self.prefetch_state.counters = self.prefetch_state.earlier.remove(at).counters;
        }
    }

    /// Counts a read of a resident block.
    pub(crate) fn count_touch(&mut self, touched: Touched) {
        if touched.brought {
            self.prefetch_state.counters.accesses += 1;
        }
        if let Some(mark) = touched.first {
            self.count_use(mark);
        }
    }

    pub(crate) fn count_use(&mut self, mark: Mark) {
        self.prefetch_state.counters.used += 1;
        self.prefetch_state.admission.on_used(mark.class, 1);
    }

    pub(crate) fn learn_fetch(&mut self, micros: u64, blocks: u64) {
        let economy = self.prefetch_state.economy;
        if let Some(costs) = self.prefetch_state.latencies.learn(micros, blocks, &economy) {
            self.prefetch_state.costs = costs;
            self.advise_costs();
        }
    }

    /// Tells the prefetcher what became of a piece of a suggestion.
    pub(crate) fn feed_back(&mut self, first: Mark, count: u64, prefetch_outcome: PrefetchOutcome) {
        let feedback = Feedback {
            volume: first.volume,
            first: first.block,
            count,
            tag: first.tag,
            prefetch_outcome,
        };
        self.prefetch_state.prefetcher.on_feedback(self.now, feedback);
    }

    /// What evictions have decided, and the prefetcher's upkeep.
    pub(crate) fn pump_policies(&mut self) {
        if self.slots.has_prefetch_outcomes() {
            let mut prefetch_outcomes = core::mem::take(&mut self.prefetch_state.prefetch_outcomes);
            self.slots.take_prefetch_outcomes(&mut prefetch_outcomes);
            for run in prefetch_outcomes.chunk_by(|left, right| left.1 == right.1 && continues(&left.0, &right.0)) {
                let ((first, prefetch_outcome), count) = (run[0], run.len() as u64);
                if matches!(prefetch_outcome, PrefetchOutcome::Evicted { .. }) {
                    self.prefetch_state.counters.wasted += count;
                }
                self.feed_back(first, count, prefetch_outcome);
            }
            prefetch_outcomes.clear();
            self.prefetch_state.prefetch_outcomes = prefetch_outcomes;
        }
        if self.now.micros_since(self.prefetch_state.ticked) >= TICK_MICROS {
            self.prefetch_state.ticked = self.now;
            self.prefetch_state.prefetcher.on_tick(self.now);
            self.advise_floor();
        }
    }

    /// Where the replacement policy sees a block.
    pub(crate) fn own_address(&self, volume: VolumeId, block: u64, pvbn: Pvbn) -> u64 {
        match self.prefetch_state.addressing {
            Addressing::Logical => address(volume, block),
            Addressing::Pvbn => address(PVBN_SPACE, pvbn.0),
        }
    }
}

/// Whether the right block follows the left one in the same suggestion.
pub(crate) fn continues(left: &Mark, right: &Mark) -> bool {
    left.volume == right.volume && left.tag == right.tag && left.class == right.class && left.block + 1 == right.block
}

#[cfg(test)]
#[path = "policies_tests.rs"]
mod tests;
