//! GETs in flight. A block that is on its way is fetched once: readers that need it join (a partial miss), and a
//! prefetch that a reader has joined becomes demand. Demand goes before prefetch.

use crate::config::FetchUnit;
use crate::core_state::Core;
use crate::event::{BlockLoss, Command, FetchItem, JobId, Refusal, StoreFailure};
use crate::state::fetches::{Fetch, Joined, Purpose, ranges};
use crate::state::lost_blocks::Missed;
use crate::state::prefetched::continues;
use crate::state::reads::Interest;
use crate::state::slots::SlotState;
use alloc::{collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use tombolo_base::{BlockSum, ObjectDescriptor, PACK_BLOCKS, Pvbn};
use tombolo_cache::{Arrival, Cause};
use tombolo_prefetch::PrefetchOutcome;

/// So many prefetches share what the path carries, at the least.
const PREFETCHES_MIN: usize = 4;

impl Core {
    /// Joins the fetch that brings `pvbn`, if there is one.
    pub(crate) fn join_fetch(&mut self, pvbn: Pvbn, interest: Interest) -> Option<Joined> {
        let (job, index) = self.fetches.blocks.get(&pvbn).copied()?;
        let fetch = self.fetches.fetches.get_mut(&job)?;
        let found = fetch.blocks.binary_search_by_key(&index, |(index, _)| *index);
        let is_prefetch = found.is_ok_and(|position| fetch.blocks[position].1.prefetch_tag().is_some());
        let waiters = fetch.waiters.entry(index).or_default();
        let joined = Joined {
            is_first_of_prefetch: waiters.is_empty() && is_prefetch,
        };
        waiters.push(interest);
        if !fetch.demand {
            fetch.demand = true;
            if let Some(position) = self.fetches.prefetch.iter().position(|queued| *queued == job) {
                self.fetches.prefetch.remove(position);
                self.fetches.demand.push_back(job);
            }
        }
        Some(joined)
    }

    /// Queues a fetch of blocks of one object; close blocks share a range. Indices ascend and none is in flight.
    pub(crate) fn queue_fetch(&mut self, descriptor: &Arc<ObjectDescriptor>, blocks: &[(u16, Purpose)], demand: bool) {
        match self.config.fetch_unit {
            FetchUnit::Range => {
                // So that nobody has to wait for all of a large one over a thin path.
                let most = match demand {
                    true => usize::MAX,
                    false => (self.lanes.fetch_blocks / PREFETCHES_MIN).max(PACK_BLOCKS),
                };
                for blocks in ranges(blocks).flat_map(|blocks| blocks.chunks(most)) {
                    self.queue_one_fetch(descriptor, blocks.to_vec(), demand);
                }
            }
            FetchUnit::Object => {
                let blocks = self.with_rest(descriptor, blocks);
                self.queue_one_fetch(descriptor, blocks, demand);
            }
        }
    }

    fn queue_one_fetch(&mut self, descriptor: &Arc<ObjectDescriptor>, blocks: Vec<(u16, Purpose)>, demand: bool) {
        let job = self.next_job();
        for (index, _) in &blocks {
            let pvbn = descriptor.blocks()[usize::from(*index)].pvbn;
            let earlier = self.fetches.blocks.insert(pvbn, (job, *index));
            assert_eq!(earlier, None, "a block on its way is not fetched again");
        }
        let fetch = Fetch {
            descriptor: descriptor.clone(),
            blocks,
            queued_at: self.now,
            launched_at: self.now,
            generation: self.prefetch_state.generation,
            slots: Vec::new(),
            waiters: BTreeMap::new(),
            demand,
        };
        self.fetches.fetches.insert(job, fetch);
        if demand {
            self.fetches.demand.push_back(job);
        } else {
            self.fetches.prefetch.push_back(job);
        }
    }

    /// With the object's other blocks that are not at hand, unless they would take a large part of the cache.
    fn with_rest(&self, descriptor: &ObjectDescriptor, asked: &[(u16, Purpose)]) -> Vec<(u16, Purpose)> {
        let all = descriptor.blocks();
        if all.len() > self.slots.count() as usize / 8 {
            return asked.to_vec();
        }
        let (mut blocks, mut next) = (Vec::with_capacity(all.len()), 0);
        for (index, packed) in (0u16..).zip(all) {
            if asked.get(next).is_some_and(|(asked, _)| *asked == index) {
                blocks.push(asked[next]);
                next += 1;
            } else if !self.is_at_hand(packed.pvbn) {
                let (near, purpose) = asked[next.saturating_sub(1)];
                let near = all[usize::from(near)].pvbn;
                let access = purpose.access(near);
                let purpose = Purpose::Rest {
                    address: access.address.wrapping_add(packed.pvbn.0.wrapping_sub(near.0)),
                    sequential: access.sequential,
                };
                blocks.push((index, purpose));
            }
        }
        assert_eq!(next, asked.len(), "their indices ascend");
        blocks
    }

    pub(crate) fn pump_fetches(&mut self) {
        while self.fetches.launched < self.lanes.fetches {
            // A quarter of the GETs in flight is kept free of prefetch, so that demand never waits for prefetch alone.
            let prefetch_may = self.fetches.launched < (self.lanes.fetches * 3 / 4).max(1);
            let (job, from_demand) = match self.fetches.demand.front() {
                Some(job) => (*job, true),
                None if prefetch_may => match self.fetches.prefetch.front() {
                    Some(job) => (*job, false),
                    None => return,
                },
                None => return,
            };
            if !self.may_bring(job, from_demand) {
                return;
            }
            if !self.launch(job) {
                if self.has_pending_transitions() {
                    self.want_sync();
                }
                return;
            }
            if from_demand {
                self.fetches.demand.pop_front();
            } else {
                self.fetches.prefetch.pop_front();
            }
        }
    }

    /// Whether there is memory for it and the path carries it soon enough; one always may go.
    fn may_bring(&self, job: JobId, is_demand: bool) -> bool {
        let blocks = self.fetches.fetches.get(&job).map_or(0, |fetch| fetch.blocks.len());
        let most = match is_demand {
            true => self.lanes.fetch_blocks,
            false => self.lanes.fetch_blocks * 3 / 4,
        };
        self.fetches.launched == 0 || self.fetches.launched_blocks + blocks <= most
    }

    /// False when there are no slots for it now.
    fn launch(&mut self, job: JobId) -> bool {
        let Some(fetch) = self.fetches.fetches.get_mut(&job) else {
            return true;
        };
        let miss_hints = fetch.blocks.iter().map(|(_, purpose)| purpose.miss_hint());
        let Some(runs) = self.slots.take(fetch.blocks.len() as u32, miss_hints) else {
            return false;
        };
        assert!(fetch.slots.is_empty(), "a fetch is launched once");
        fetch.launched_at = self.now;
        fetch.slots = runs.iter().flat_map(|run| run.slots()).collect();
        let items = fetch
            .blocks
            .iter()
            .zip(&fetch.slots)
            .map(|((index, _), slot)| FetchItem {
                index: *index,
                slot: *slot,
            });
        let command = Command::Fetch {
            fetch: job,
            descriptor: fetch.descriptor.clone(),
            items: items.collect(),
            demand: fetch.demand,
        };
        assert_eq!(fetch.slots.len(), fetch.blocks.len(), "a slot for each block");
        self.fetches.launched += 1;
        self.fetches.launched_blocks += fetch.slots.len();
        self.counters.fetches += 1;
        self.out.push(command);
        true
    }

    pub(crate) fn on_fetched(&mut self, job: JobId, result: Result<Vec<Result<BlockSum, BlockLoss>>, StoreFailure>) {
        let Some(fetch) = self.fetches.fetches.remove(&job) else {
            return;
        };
        assert!(!fetch.slots.is_empty() && self.fetches.launched > 0, "it was launched");
        self.fetches.launched -= 1;
        self.fetches.launched_blocks -= fetch.slots.len();
        for (index, _) in &fetch.blocks {
            let pvbn = fetch.descriptor.blocks()[usize::from(*index)].pvbn;
            let entry = self.fetches.blocks.remove(&pvbn);
            assert_eq!(entry, Some((job, *index)), "each of its blocks was on its way by it");
        }
        match result {
            Ok(blocks) => {
                self.store_answered();
                self.store_fetched(fetch, blocks);
            }
            Err(failure) => {
                self.counters.fetch_failures += 1;
                self.on_store_failure(&failure);
                for slot in &fetch.slots {
                    self.slots.release(*slot);
                }
                self.report(&fetch, |_| PrefetchOutcome::Dropped);
                if !failure.retryable {
                    return self.lose_fetched(fetch, &failure.reason);
                }
                for (index, interests) in &fetch.waiters {
                    let pvbn = fetch.descriptor.blocks()[usize::from(*index)].pvbn;
                    for interest in interests {
                        self.reader_failed(*interest, pvbn, &failure);
                    }
                }
            }
        }
    }

    /// The object is not there.
    fn lose_fetched(&mut self, mut fetch: Fetch, reason: &str) {
        let missed = (0..fetch.blocks.len()).map(|position| self.missed(&mut fetch, position, reason.into()));
        let missed = missed.collect();
        self.lose_object(&fetch.descriptor, missed);
    }

    fn missed(&self, fetch: &mut Fetch, position: usize, reason: String) -> Missed {
        let (index, purpose) = fetch.blocks[position];
        let readers = fetch.waiters.remove(&index).unwrap_or_default();
        let place = readers.iter().find_map(|reader| self.place_of(*reader));
        Missed {
            index,
            place: place.or_else(|| purpose.place()),
            readers,
            reason,
        }
    }

    fn store_fetched(&mut self, mut fetch: Fetch, blocks: Vec<Result<BlockSum, BlockLoss>>) {
        assert_eq!(blocks.len(), fetch.blocks.len(), "a result for each block");
        if fetch
            .blocks
            .iter()
            .any(|(_, purpose)| matches!(purpose, Purpose::Demand { .. }))
        {
            let micros = self.now.micros_since(fetch.queued_at);
            self.prefetch_state.admission.on_fetch(micros);
        }
        let latency_us = self.now.micros_since(fetch.launched_at);
        self.learn_fetch(latency_us, fetch.blocks.len() as u64);
        self.report(&fetch, |position| {
            let waited = fetch.waiters.contains_key(&fetch.blocks[position].0);
            match blocks[position] {
                Ok(_) => PrefetchOutcome::Arrived { waited },
                Err(_) => PrefetchOutcome::Dropped,
            }
        });
        if blocks.iter().any(Result::is_ok) {
            self.verification.is_present_now(&fetch.descriptor);
        }
        let mut missed = Vec::new();
        for (position, result) in blocks.into_iter().enumerate() {
            let (index, slot) = (fetch.blocks[position].0, fetch.slots[position]);
            let pvbn = fetch.descriptor.blocks()[usize::from(index)].pvbn;
            match result {
                Ok(sum) => {
                    let interests = fetch.waiters.remove(&index).unwrap_or_default();
                    self.losses.found_again(pvbn);
                    self.install_block(&fetch, position, sum, !interests.is_empty(), latency_us);
                    for interest in interests {
                        self.serve_reader(interest, slot);
                    }
                }
                Err(BlockLoss::Altered(reason)) => {
                    self.slots.release(slot);
                    missed.push(self.missed(&mut fetch, position, reason));
                }
                Err(BlockLoss::Disk(error)) => {
                    self.slots.withdraw(slot, self.now);
                    for reader in fetch.waiters.remove(&index).unwrap_or_default() {
                        self.refuse_reader(reader, Refusal::Disk(error.clone()));
                    }
                }
            }
        }
        if !missed.is_empty() {
            let descriptor = fetch.descriptor;
            self.lose_blocks(&descriptor, missed);
        }
    }

    fn install_block(&mut self, fetch: &Fetch, position: usize, sum: BlockSum, is_wanted: bool, latency_us: u64) {
        let ((index, purpose), slot) = (fetch.blocks[position], fetch.slots[position]);
        assert_eq!(self.slots.state(slot), SlotState::Taken);
        let pvbn = fetch.descriptor.blocks()[usize::from(index)].pvbn;
        let access = purpose.access(pvbn);
        let cause = match purpose {
            Purpose::Demand { .. } => Cause::Demand,
            Purpose::Prefetch(_) | Purpose::Rest { .. } => Cause::Prefetch,
        };
        let arrival = Arrival {
            object: fetch.descriptor.first_pvbn().0,
            latency_us: u32::try_from(latency_us).unwrap_or(u32::MAX),
            ..Arrival::of_block(access, cause, purpose.miss_hint())
        };
        self.slots.hold_clean(slot, sum, &arrival);
        let Purpose::Prefetch(prefetch_tag) = purpose else {
            return;
        };
        let is_current = fetch.generation == self.prefetch_state.generation;
        if is_current {
            self.slots.note_prefetched(slot, (!is_wanted).then_some(prefetch_tag));
        }
        if is_wanted {
            // A reader has joined the prefetch: that is the block's first use.
            let touched = self.slots.touch(slot, access.address, access.sequential);
            self.count_touch(touched);
            if is_current {
                self.count_use(prefetch_tag);
            }
        }
    }

    /// Tells the prefetcher what became of the blocks that were fetched on its word, run by run; the outcome of a run is that
    /// of its first block, or of its last if a reader waits there.
    fn report(&mut self, fetch: &Fetch, prefetch_outcome_of: impl Fn(usize) -> PrefetchOutcome) {
        if fetch.generation != self.prefetch_state.generation {
            return;
        }
        let mut position = 0;
        while position < fetch.blocks.len() {
            let Some(first) = fetch.blocks[position].1.prefetch_tag() else {
                position += 1;
                continue;
            };
            let (mut prefetch_outcome, start) = (prefetch_outcome_of(position), position);
            let mut last = first;
            position += 1;
            while let Some((_, Purpose::Prefetch(prefetch_tag))) = fetch.blocks.get(position)
                && continues(&last, prefetch_tag)
                && matches!(prefetch_outcome_of(position), PrefetchOutcome::Dropped)
                    == matches!(prefetch_outcome, PrefetchOutcome::Dropped)
            {
                last = *prefetch_tag;
                position += 1;
            }
            let count = (position - start) as u64;
            if let PrefetchOutcome::Arrived { waited } = &mut prefetch_outcome {
                *waited |= prefetch_outcome_of(position - 1) == (PrefetchOutcome::Arrived { waited: true });
            }
            if matches!(prefetch_outcome, PrefetchOutcome::Dropped) {
                self.prefetch_state.counters.dropped += count;
            }
            self.feed_back(first, count, prefetch_outcome);
        }
    }

    pub(crate) fn on_store_asked(&mut self, result: &Result<(), StoreFailure>) {
        match result {
            Ok(()) => self.store_answered(),
            Err(failure) => self.on_store_failure(failure),
        }
    }

    fn on_store_failure(&mut self, failure: &StoreFailure) {
        match failure.retryable {
            true => self.store_failed(failure),
            // It has answered: that it does not have the object.
            false => self.store_answered(),
        }
    }

    pub(crate) fn store_answered(&mut self) {
        self.store.last_success = Some(self.now);
        self.store.error = None;
        self.store.error_since = None;
    }

    pub(crate) fn store_failed(&mut self, failure: &StoreFailure) {
        self.store.error = Some(failure.reason.clone());
        self.store.error_since.get_or_insert(self.now);
    }
}
