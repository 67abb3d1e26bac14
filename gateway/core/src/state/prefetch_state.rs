//! The prefetcher and all that the core keeps for it; the replacement policy lives with the slots.

use crate::state::policy_counters::{PolicyCounters, Tally};
use crate::state::prefetched::PrefetchTag;
use alloc::{boxed::Box, vec::Vec};
use tombolo_base::{BLOCK_BYTES, Instant, VolumeId};
use tombolo_billing::UnitPrices;
use tombolo_cache::{CostClass, Replacement};
use tombolo_prefetch::{
    Access, Addressing, Admission, Feedback, PVBN_SPACE, Pattern, PrefetchOutcome, Prefetcher, Statistics, Strides,
    Suggestion, TwoWay,
};

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

/// How far ahead streams in the order of writing, and strides, are fetched at the most: 16 MiB.
const AHEAD_BLOCKS_MAX: u64 = 1 << 12;
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
    /// For reads that follow no stream in their volume: streams in the order of writing.
    pub write_order: Option<TwoWay>,
    /// For those of them that follow none there either.
    pub strides: Option<Strides>,
    pub admission: Admission,
    pub economy: Economy,
    pub knows_streams: bool,
    pub uses_residency: bool,
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
        let ahead_blocks_max = u64::from(cache_blocks / 8).clamp(1, AHEAD_BLOCKS_MAX);
        let is_both = addressing == Addressing::Both;
        Self {
            knows_streams: prefetcher.knows_streams(),
            uses_residency: prefetcher.uses_residency(),
            prefetcher,
            addressing,
            write_order: is_both.then(|| TwoWay::new(ahead_blocks_max)),
            strides: is_both.then(|| Strides::new(ahead_blocks_max)),
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

    /// Whether whoever is asked about a volume asks in turn what is at hand.
    pub fn asks_for_residency(&self, volume: VolumeId) -> bool {
        self.uses_residency && (volume != PVBN_SPACE || self.write_order.is_none())
    }

    /// Adds to `suggestions` what a read leads to.
    pub fn on_read(&mut self, now: Instant, access: Access) -> Pattern {
        let mut suggestions = core::mem::take(&mut self.suggestions);
        let pattern = self
            .prefetcher_for(access.volume)
            .on_read(now, access, &mut suggestions);
        self.suggestions = suggestions;
        pattern
    }

    /// As [`Self::on_read`], of a read that nobody follows.
    pub fn follow_strides(&mut self, now: Instant, access: Access) {
        if let Some(strides) = &mut self.strides {
            strides.on_read(now, access, &mut self.suggestions);
        }
    }

    /// Tells whoever has suggested it.
    pub fn on_feedback(&mut self, now: Instant, feedback: Feedback) {
        if feedback.tag != Strides::TAG {
            self.prefetcher_for(feedback.volume).on_feedback(now, feedback);
        }
    }

    /// Who is asked, and told, about addresses of a volume.
    fn prefetcher_for(&mut self, volume: VolumeId) -> &mut dyn Prefetcher {
        match &mut self.write_order {
            Some(write_order) if volume == PVBN_SPACE => write_order,
            _ => &mut *self.prefetcher,
        }
    }

    pub fn on_tick(&mut self, now: Instant) {
        self.all_mut().for_each(|prefetcher| prefetcher.on_tick(now));
    }

    pub fn uses_second_chances(&self) -> bool {
        self.all().any(Prefetcher::uses_second_chances)
    }

    pub fn sequential_need_blocks(&self, now: Instant) -> u64 {
        self.all()
            .map(|prefetcher| prefetcher.sequential_need_blocks(now))
            .sum()
    }

    pub fn statistics(&self) -> Statistics {
        self.all()
            .map(Prefetcher::statistics)
            .fold(Statistics::default(), |sum, one| Statistics {
                streams: sum.streams + one.streams,
                nodes: sum.nodes + one.nodes,
                edges: sum.edges + one.edges,
                bytes: sum.bytes + one.bytes,
            })
    }

    pub fn check_invariants(&self) {
        self.all().for_each(Prefetcher::check_invariants);
    }

    fn all(&self) -> impl Iterator<Item = &dyn Prefetcher> {
        let write_order = self
            .write_order
            .iter()
            .map(|write_order| -> &dyn Prefetcher { write_order });
        let strides = self.strides.iter().map(|strides| -> &dyn Prefetcher { strides });
        core::iter::once(&*self.prefetcher as &dyn Prefetcher)
            .chain(write_order)
            .chain(strides)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut dyn Prefetcher> {
        let write_order = self
            .write_order
            .iter_mut()
            .map(|write_order| -> &mut dyn Prefetcher { write_order });
        let strides = self
            .strides
            .iter_mut()
            .map(|strides| -> &mut dyn Prefetcher { strides });
        core::iter::once(&mut *self.prefetcher as &mut dyn Prefetcher)
            .chain(write_order)
            .chain(strides)
    }
}
