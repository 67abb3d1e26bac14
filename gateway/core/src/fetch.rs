//! GETs in flight. A block that is on its way is fetched once: readers that need it join (a partial miss), and a
//! prefetch that a reader has joined becomes demand. Demand goes before prefetch.

use crate::core_state::Core;
use crate::event::{BlockLoss, Command, FetchItem, JobId, StoreFailure, Token};
use crate::slots::SlotState;
use alloc::{
    collections::{BTreeMap, VecDeque},
    string::ToString,
    sync::Arc,
    vec::Vec,
};
use hashbrown::HashMap;
use tombolo_base::{BlockSum, Lcbn, ObjectDescriptor, Pvbn};
use tombolo_cache::Recall;

/// A reader's interest in one block: the request and the block's place in it.
pub(crate) type Interest = (Token, u32);

#[derive(Debug)]
struct Fetch {
    descriptor: Arc<ObjectDescriptor>,
    /// Indices into the descriptor's blocks, ascending.
    indices: Vec<u16>,
    /// One per index: what the replacement policy knew of the block when a reader missed it. Empty for a prefetch.
    recalls: Vec<Recall>,
    /// One per index, once launched.
    slots: Vec<Lcbn>,
    waiters: BTreeMap<u16, Vec<Interest>>,
    demand: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Fetches {
    fetches: BTreeMap<JobId, Fetch>,
    /// The fetch and the index that brings each block.
    blocks: HashMap<Pvbn, (JobId, u16)>,
    demand: VecDeque<JobId>,
    prefetch: VecDeque<JobId>,
    launched: usize,
}

/// Blocks of one object whose gap is at most this far apart are fetched by one range.
const GAP_BLOCKS_MAX: u16 = 16;

impl Fetches {
    pub fn in_flight_count(&self) -> usize {
        self.launched
    }

    /// Blocks queued or in flight.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    pub fn contains(&self, pvbn: Pvbn) -> bool {
        self.blocks.contains_key(&pvbn)
    }
}

impl Core {
    /// Joins the fetch that brings `pvbn`, if there is one.
    pub(crate) fn join_fetch(&mut self, pvbn: Pvbn, interest: Interest) -> bool {
        let Some((job, index)) = self.fetches.blocks.get(&pvbn).copied() else {
            return false;
        };
        let Some(fetch) = self.fetches.fetches.get_mut(&job) else {
            return false;
        };
        fetch.waiters.entry(index).or_default().push(interest);
        if !fetch.demand {
            fetch.demand = true;
            if let Some(position) = self.fetches.prefetch.iter().position(|queued| *queued == job) {
                self.fetches.prefetch.remove(position);
                self.fetches.demand.push_back(job);
            }
        }
        true
    }

    /// Queues a fetch of blocks of one object; close blocks share a range. `indices` ascend and none is in flight.
    pub(crate) fn queue_fetch(&mut self, descriptor: &Arc<ObjectDescriptor>, indices: &[u16], demand: bool) {
        for indices in indices.chunk_by(|left, right| right - left <= GAP_BLOCKS_MAX) {
            let job = self.next_job();
            let mut recalls = Vec::new();
            for index in indices {
                let pvbn = descriptor.blocks()[usize::from(*index)].pvbn;
                self.fetches.blocks.insert(pvbn, (job, *index));
                if demand {
                    recalls.push(self.slots.miss(pvbn));
                }
            }
            let fetch = Fetch {
                descriptor: descriptor.clone(),
                indices: indices.to_vec(),
                recalls,
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
    }

    pub(crate) fn pump_fetches(&mut self) {
        while self.fetches.launched < self.config.fetches_max {
            // A quarter of the lanes stays free of prefetch, so that demand never waits for a full house of it.
            let prefetch_may = self.fetches.launched < (self.config.fetches_max * 3 / 4).max(1);
            let (job, from_demand) = match self.fetches.demand.front() {
                Some(job) => (*job, true),
                None if prefetch_may => match self.fetches.prefetch.front() {
                    Some(job) => (*job, false),
                    None => return,
                },
                None => return,
            };
            if !self.launch(job) {
                if self.is_settling() {
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

    /// False when there are no slots for it now.
    fn launch(&mut self, job: JobId) -> bool {
        let Some(fetch) = self.fetches.fetches.get_mut(&job) else {
            return true;
        };
        let Some(runs) = self.slots.take(fetch.indices.len() as u32) else {
            return false;
        };
        fetch.slots = runs
            .iter()
            .flat_map(|run| (run.first.0..run.first.0 + run.count).map(Lcbn))
            .collect();
        let items = fetch.indices.iter().zip(&fetch.slots).map(|(index, slot)| FetchItem {
            index: *index,
            slot: *slot,
        });
        let command = Command::Fetch {
            fetch: job,
            descriptor: fetch.descriptor.clone(),
            items: items.collect(),
            demand: fetch.demand,
        };
        self.fetches.launched += 1;
        self.counters.fetches += 1;
        self.out.push(command);
        true
    }

    pub(crate) fn on_fetched(&mut self, job: JobId, result: Result<Vec<Result<BlockSum, BlockLoss>>, StoreFailure>) {
        let Some(fetch) = self.fetches.fetches.remove(&job) else {
            return;
        };
        self.fetches.launched -= 1;
        for index in &fetch.indices {
            self.fetches
                .blocks
                .remove(&fetch.descriptor.blocks()[usize::from(*index)].pvbn);
        }
        match result {
            Ok(blocks) => {
                self.store_answered();
                self.land(fetch, blocks);
            }
            Err(failure) => {
                self.counters.fetch_failures += 1;
                self.store_failed(&failure);
                for slot in &fetch.slots {
                    self.slots.release(*slot);
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

    fn land(&mut self, mut fetch: Fetch, blocks: Vec<Result<BlockSum, BlockLoss>>) {
        debug_assert_eq!(blocks.len(), fetch.indices.len());
        for (position, result) in blocks.into_iter().enumerate() {
            let (index, slot) = (&fetch.indices[position], &fetch.slots[position]);
            let pvbn = fetch.descriptor.blocks()[usize::from(*index)].pvbn;
            let interests = fetch.waiters.remove(index).unwrap_or_default();
            match result {
                Ok(sum) => {
                    debug_assert_eq!(self.slots.state(*slot), SlotState::Taken);
                    let recall = fetch.recalls.get(position).copied();
                    self.slots.hold_clean(*slot, pvbn, sum, recall);
                    if recall.is_none() && !interests.is_empty() {
                        // A reader joined a prefetch: that is the block's first use.
                        self.slots.touch(*slot);
                    }
                    for interest in interests {
                        self.reader_landed(interest, *slot);
                    }
                }
                Err(loss) => {
                    self.counters.blocks_lost += 1;
                    self.slots.release(*slot);
                    let failure = StoreFailure {
                        retryable: false,
                        reason: loss.0.to_string(),
                    };
                    for interest in interests {
                        self.reader_failed(interest, pvbn, &failure);
                    }
                }
            }
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
