//! The prefetcher and all that the core keeps for it; the replacement policy lives with the slots.

use crate::state::policy_counters::{PolicyCounters, Tally};
use crate::state::prefetched::PrefetchTag;
use alloc::{boxed::Box, vec::Vec};
use tombolo_base::{BLOCK_BYTES, Instant};
use tombolo_billing::UnitPrices;
use tombolo_cache::{CostClass, Replacement};
use tombolo_prefetch::{Addressing, Admission, PrefetchOutcome, Prefetcher, Suggestion};

/// The policies that a core is built with.
pub struct Policies {
    /// Empty, with room for as many slots as the cache has; recovery gives it the clean ones.
    pub replacement: Box<dyn Replacement>,
    /// With what it brings along, as a history.
    pub prefetcher: Box<dyn Prefetcher>,
    /// Whether both policies see volume and block, or PVBNs.
    pub addressing: Addressing,
    /// What suggestions are weighed by.
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
    /// Of the store's requests.
    pub prices: UnitPrices,
    /// What a second that a reader waits is worth, in millionths of a dollar; none: any price is paid.
    pub microdollars_per_second: Option<u64>,
}

impl Economy {
    pub(crate) fn admission(&self) -> Admission {
        Admission::new(self.prices, self.microdollars_per_second, FETCH_MICROS_INITIAL)
    }

    /// The prices, with a latency that lies all in the request.
    pub(crate) fn costs(&self, micros: u64) -> CostClass {
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
pub const FETCH_MICROS_INITIAL: u64 = 50_000;
pub const KIB_PER_BLOCK: u64 = BLOCK_BYTES as u64 / 1024;
/// Fetches between two advices on costs.
pub const FETCHES_PER_ADVICE: u32 = 64;

/// Latencies of fetches since the last advice on costs.
#[derive(Debug, Default)]
pub struct Latencies {
    pub fetches: u32,
    pub micros_min: u64,
    pub micros_sum: u64,
    pub blocks_sum: u64,
}

impl Latencies {
    /// Counts a fetch; now and then there is something to tell.
    pub fn learn(&mut self, micros: u64, blocks: u64, economy: &Economy) -> Option<CostClass> {
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
pub struct PrefetchState {
    pub prefetcher: Box<dyn Prefetcher>,
    pub addressing: Addressing,
    pub admission: Admission,
    pub economy: Economy,
    pub knows_streams: bool,
    /// Counts changes of policy: what was asked for under an earlier one is no longer accounted.
    pub generation: u32,
    pub counters: PolicyCounters,
    /// Accounts of the pairs of earlier times.
    pub earlier: Vec<Tally>,
    pub latencies: Latencies,
    /// What the replacement policy was told last.
    pub costs: CostClass,
    pub ticked: Instant,
    /// Empty between steps; kept for their memory.
    pub suggestions: Vec<Suggestion>,
    pub prefetch_outcomes: Vec<(PrefetchTag, PrefetchOutcome)>,
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
