//! The policies at work: what they are told, what they have achieved, and their change while the gateway runs.
//!
//! The core consults them in this order. A read is resolved first: which blocks are resident, on their way, absent. With
//! that outcome it goes to the prefetcher, which says whether it continues a stream; that word goes with every touch, miss
//! and insert to the replacement policy. Demand is queued, then what the prefetcher suggests and [`Admission`] admits
//! (module `prefetch`). What becomes of prefetched blocks is gathered by `fetch` and `prefetched` and told at the end of a step.

use crate::config::SequentialBy;
use crate::core_state::{Core, Lookup};
use crate::state::extent_map::Target;
use crate::state::policy_counters::{PolicyCounters, Tally};
use crate::state::prefetch_state::{Economy, PrefetchState};
use crate::state::prefetched::{PrefetchTag, Touched, address, continues};
use crate::state::reads::{Block, Read};
use alloc::boxed::Box;
use tombolo_base::{Instant, Lcbn, Pvbn, VolumeId};
use tombolo_cache::{Advice, Replacement};
use tombolo_prefetch::{
    Access, Addressing, Feedback, NoPrefetch, Outcome, PVBN_SPACE, Pattern, PrefetchOutcome, Prefetcher, Residency,
};

const TICK_MICROS: u64 = 1_000_000;
/// From one piece that goes over to another policy to the next, which takes about half of it: others get at the core in between.
const SUCCESSION_REST_MICROS: u64 = 2_000;
/// The floor under sequential blocks is an eighth of the cache at the most, like prefetch in flight: a stream's degree grows
/// as long as nothing of it is evicted, so that without a bound streams would come to take all there is.
const FLOOR_DIVISOR: u32 = 8;

/// Why the replacement policy cannot be changed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{blocks_left} blocks still go over to the replacement policy that was set before; try again, it takes a second for a \
     million"
)]
pub struct ReplacementChanging {
    /// Blocks that the policy before has.
    pub blocks_left: usize,
}

/// The core as a prefetcher sees it that asks what is at hand.
struct AtHand<'a>(&'a mut Core);

impl Residency for AtHand<'_> {
    fn is_at_hand(&mut self, volume: VolumeId, block: u64) -> bool {
        match self.0.target_of(volume, block) {
            Lookup::Known(Target::At(pvbn), _) => self.0.is_at_hand(pvbn),
            Lookup::Known(Target::Hole, _) => true,
            Lookup::NeedPage(_) => false,
        }
    }
}

impl Core {
    /// Whether [`Self::set_replacement`] may be called.
    pub fn check_replacement_settled(&self) -> Result<(), ReplacementChanging> {
        match self.slots.left_to_hand_over() {
            Some(blocks_left) => Err(ReplacementChanging { blocks_left }),
            None => Ok(()),
        }
    }

    /// Another replacement policy takes over the resident blocks, in the order in which the old one would have evicted
    /// them, in pieces from the next step on. An earlier change MUST be over.
    pub fn set_replacement(&mut self, replacement: Box<dyn Replacement>) {
        self.close_account();
        self.slots.set_policy(replacement);
        self.succession_at = self.now;
        self.advise_costs();
        self.open_account();
    }

    /// A policy that has handed all over, once. Dropping it takes time in proportion to the cache, during which nobody
    /// should wait for the core.
    pub fn take_replaced(&mut self) -> Option<Box<dyn Replacement>> {
        self.replaced.take()
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
        self.slots.set_second_chances(self.prefetch_state.uses_second_chances());
        self.open_account();
    }

    /// Other prices from here on; what was learned of how often suggestions come true begins anew.
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
            let needed = self.prefetch_state.sequential_need_blocks(self.now);
            let floor = needed.min(u64::from(self.slots.count() / FLOOR_DIVISOR)) as u32;
            self.slots.advise(Advice::SequentialFloorBlocks(floor));
        }
    }

    pub(crate) fn tally(&self) -> Tally {
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
        self.slots.forget_prefetched();
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
        if let Some(prefetch_tag) = touched.first {
            self.count_use(prefetch_tag);
        }
    }

    pub(crate) fn count_use(&mut self, prefetch_tag: PrefetchTag) {
        self.prefetch_state.counters.used += 1;
        self.prefetch_state.admission.on_used(prefetch_tag.class, 1);
    }

    pub(crate) fn learn_fetch(&mut self, micros: u64, blocks: u64) {
        let economy = self.prefetch_state.economy;
        if let Some(costs) = self.prefetch_state.latencies.learn(micros, blocks, &economy) {
            self.prefetch_state.costs = costs;
            self.advise_costs();
        }
    }

    /// Tells the prefetcher what became of a piece of a suggestion.
    pub(crate) fn feed_back(&mut self, first: PrefetchTag, count: u64, prefetch_outcome: PrefetchOutcome) {
        let feedback = Feedback {
            volume: first.volume,
            first: first.block,
            count,
            tag: first.tag,
            prefetch_outcome,
        };
        self.prefetch_state.on_feedback(self.now, feedback);
    }

    pub(crate) fn pump_succession(&mut self) {
        if self.succession_deadline().is_some_and(|at| at <= self.now) {
            let count = u32::try_from(self.config.sweep_blocks_max).unwrap_or(u32::MAX);
            self.replaced = self.slots.hand_over(count);
            self.succession_at = self.now.plus_micros(SUCCESSION_REST_MICROS);
        }
    }

    pub(crate) fn succession_deadline(&self) -> Option<Instant> {
        self.slots.left_to_hand_over().map(|_| self.succession_at)
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
            self.prefetch_state.on_tick(self.now);
            self.advise_floor();
        }
    }

    /// Where the replacement policy sees a block.
    pub(crate) fn own_address(&self, volume: VolumeId, block: u64, pvbn: Pvbn) -> u64 {
        match self.prefetch_state.addressing {
            Addressing::Logical | Addressing::Both => address(volume, block),
            Addressing::Pvbn => address(PVBN_SPACE, pvbn.0),
        }
    }

    /// Passes a read whose outcome is known to the prefetcher, and on to the replacement policy what that says.
    pub(crate) fn consult(&mut self, read: &mut Read) {
        read.is_consulted = true;
        let counters = &mut self.prefetch_state.counters;
        match read.outcome {
            Outcome::Hit => counters.reads_hit += 1,
            Outcome::Partial => counters.reads_partial += 1,
            Outcome::Miss => counters.reads_missed += 1,
        }
        let pattern = match self.prefetch_state.addressing {
            Addressing::Logical | Addressing::Both => self.tell_by_place(read),
            Addressing::Pvbn => self.tell_by_pvbn(read),
        };
        self.compare(read);
        let is_told = self.prefetch_state.knows_streams && self.config.sequential_by == SequentialBy::Prefetcher;
        read.sequential = is_told.then_some(pattern == Pattern::Sequential);
        for index in 0..read.blocks.len() {
            if let Block::Held(slot) = read.blocks[index] {
                self.touch(read, index as u64, slot);
            }
        }
    }

    fn tell_by_place(&mut self, read: &Read) -> Pattern {
        let access = self.access(read, read.span.volume, read.span.first, 0..read.blocks.len());
        let pattern = self.ask_prefetcher(access);
        let is_of_interest = access.outcome != Outcome::Hit || access.prefetched > 0;
        if pattern == Pattern::Sequential || !is_of_interest || self.prefetch_state.write_order.is_none() {
            return pattern;
        }
        let pattern = self.tell_by_pvbn(read);
        if pattern == Pattern::Random {
            self.prefetch_state.follow_strides(self.now, access);
        }
        pattern
    }

    fn ask_prefetcher(&mut self, access: Access) -> Pattern {
        if !self.prefetch_state.asks_for_residency(access.volume) {
            return self.prefetch_state.on_read(self.now, access);
        }
        let mut asked = core::mem::replace(&mut self.prefetch_state.prefetcher, Box::new(NoPrefetch));
        let mut suggestions = core::mem::take(&mut self.prefetch_state.suggestions);
        let pattern = asked.on_read_of(self.now, access, &mut AtHand(self), &mut suggestions);
        self.prefetch_state.suggestions = suggestions;
        self.prefetch_state.prefetcher = asked;
        pattern
    }

    /// What the prefetcher is told of some of the read's blocks.
    fn access(&self, read: &Read, volume: VolumeId, first: u64, part: core::ops::Range<usize>) -> Access {
        let count = part.len() as u64;
        let held = read.blocks[part].iter().filter_map(|block| match block {
            Block::Held(slot) => Some(*slot),
            _ => None,
        });
        let unread = held.filter(|slot| self.slots.is_unread(*slot)).count() as u64;
        Access {
            client: read.client,
            volume,
            first,
            count,
            outcome: read.outcome,
            prefetched: (unread + u64::from(read.prefetched_coming)).min(count),
        }
    }

    /// One access per run of PVBNs; each has the outcome of the whole read. The last run's pattern counts.
    /// Other policies see what the cache holds, so that copies are one block to them, too.
    fn compare(&mut self, read: &Read) {
        let Some(mut alternatives) = self.alternatives.take() else {
            return;
        };
        for (block, number) in read.blocks.iter().zip(read.span.first..) {
            let pvbn = match *block {
                Block::Zero => continue,
                Block::Held(slot) => self.slots.pvbn(slot),
                Block::Unresolved | Block::Coming | Block::Done => match self.lookup(read.span.volume, number) {
                    Lookup::Known(Target::At(pvbn), _) => pvbn,
                    // A hole by now, or the page was pushed out meanwhile.
                    Lookup::Known(Target::Hole, _) | Lookup::NeedPage(_) => continue,
                },
            };
            alternatives.read(pvbn.0);
        }
        self.alternatives = Some(alternatives);
    }

    fn tell_by_pvbn(&mut self, read: &Read) -> Pattern {
        let (mut index, mut pattern) = (0, Pattern::Random);
        while index < read.span.count {
            let Lookup::Known(target, run) = self.lookup(read.span.volume, read.span.first + index) else {
                // The page was pushed out meanwhile, which only the tiniest of caches does.
                return pattern;
            };
            let run = run.min(read.span.count - index);
            if let Target::At(pvbn) = target {
                let part = index as usize..(index + run) as usize;
                let access = self.access(read, PVBN_SPACE, pvbn.0, part);
                pattern = self.ask_prefetcher(access);
            }
            index += run;
        }
        pattern
    }

    /// Counts a read of a held block.
    pub(crate) fn touch(&mut self, read: &Read, index: u64, slot: Lcbn) {
        let address = self.own_address(read.span.volume, read.span.first + index, self.slots.pvbn(slot));
        let touched = self.slots.touch(slot, address, read.sequential);
        self.count_touch(touched);
    }
}

#[cfg(test)]
#[path = "policies_tests.rs"]
mod tests;
