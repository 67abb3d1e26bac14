//! GETs that are queued or in flight, and who waits for their blocks.

use crate::event::JobId;
use crate::state::lost_blocks::Place;
use crate::state::prefetched::{PrefetchTag, address};
use crate::state::reads::Interest;
use alloc::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    vec::Vec,
};
use hashbrown::HashMap;
use tombolo_base::{Instant, Lcbn, ObjectDescriptor, Pvbn};
use tombolo_cache::{Access, MissHint};
use tombolo_prefetch::Class;

/// Why a block is fetched.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// A reader missed it; this is what the replacement policy knew of it then, and its address as the policy sees it.
    Demand {
        miss_hint: MissHint,
        address: u64,
        sequential: Option<bool>,
    },
    Prefetch(PrefetchTag),
    /// It lies in an object that is fetched for others of its blocks ([`crate::FetchUnit::Object`]); the address follows from
    /// the distance to one of them.
    Rest {
        address: u64,
        sequential: Option<bool>,
    },
}

impl Purpose {
    pub fn miss_hint(&self) -> MissHint {
        match self {
            Self::Demand { miss_hint, .. } => *miss_hint,
            Self::Prefetch(_) | Self::Rest { .. } => MissHint::default(),
        }
    }

    pub fn prefetch_tag(&self) -> Option<PrefetchTag> {
        match self {
            Self::Demand { .. } | Self::Rest { .. } => None,
            Self::Prefetch(prefetch_tag) => Some(*prefetch_tag),
        }
    }

    /// Where somebody expects the block to be asked for.
    pub fn place(&self) -> Option<Place> {
        self.prefetch_tag()
            .map(|prefetch_tag| (prefetch_tag.volume, prefetch_tag.block))
    }

    pub fn access(&self, block: Pvbn) -> Access {
        match *self {
            Self::Demand {
                address, sequential, ..
            }
            | Self::Rest { address, sequential } => Access {
                block,
                address,
                sequential,
            },
            Self::Prefetch(prefetch_tag) => Access {
                block,
                address: address(prefetch_tag.volume, prefetch_tag.block),
                sequential: Some(prefetch_tag.class == Class::Sequential),
            },
        }
    }
}

#[derive(Debug)]
pub struct Fetch {
    pub descriptor: Arc<ObjectDescriptor>,
    /// Indices into the descriptor's blocks, ascending, all for demand or all ahead of it; and the rest of the object.
    pub blocks: Vec<(u16, Purpose)>,
    pub queued_at: Instant,
    pub launched_at: Instant,
    /// Under which policies it was queued.
    pub generation: u32,
    /// One per block, once launched.
    pub slots: Vec<Lcbn>,
    pub waiters: BTreeMap<u16, Vec<Interest>>,
    pub demand: bool,
}

#[derive(Debug, Default)]
pub struct Fetches {
    pub fetches: BTreeMap<JobId, Fetch>,
    /// The fetch and the index that brings each block.
    pub blocks: HashMap<Pvbn, (JobId, u16)>,
    pub demand: VecDeque<JobId>,
    pub prefetch: VecDeque<JobId>,
    pub launched: usize,
    /// Blocks that those bring.
    pub launched_blocks: usize,
}

/// Blocks of one object whose gap is at most this far apart are fetched by one range.
pub const GAP_BLOCKS_MAX: u16 = 16;

/// The ranges that a fetch of these blocks of one object comes to; their indices ascend.
pub fn ranges<T>(blocks: &[(u16, T)]) -> impl Iterator<Item = &[(u16, T)]> {
    blocks.chunk_by(|left, right| right.0 - left.0 <= GAP_BLOCKS_MAX)
}

/// A reader has joined a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// A prefetch brings the block, and no reader waited for it before.
    pub is_first_of_prefetch: bool,
}

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

    /// Checks what must always hold; for tests.
    pub fn check_invariants(&self) {
        let launched = self.fetches.values().filter(|fetch| !fetch.slots.is_empty()).count();
        assert_eq!(launched, self.launched);
        assert_eq!(launched + self.demand.len() + self.prefetch.len(), self.fetches.len());
        let blocks = self.fetches.values().map(|fetch| fetch.blocks.len());
        assert_eq!(blocks.sum::<usize>(), self.blocks.len(), "each block is fetched once");
        for fetch in self.fetches.values() {
            assert!(fetch.slots.is_empty() || fetch.slots.len() == fetch.blocks.len());
            assert!(
                fetch.demand || fetch.waiters.is_empty(),
                "what somebody waits for is demand"
            );
        }
    }
}
