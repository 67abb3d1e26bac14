//! GETs that are queued or in flight, and who waits for their blocks.

use crate::event::JobId;
use crate::state::lost_blocks::Place;
use crate::state::marks::{Mark, address};
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
    Prefetch(Mark),
}

impl Purpose {
    pub fn miss_hint(&self) -> MissHint {
        match self {
            Self::Demand { miss_hint, .. } => *miss_hint,
            Self::Prefetch(_) => MissHint::default(),
        }
    }

    pub fn mark(&self) -> Option<Mark> {
        match self {
            Self::Demand { .. } => None,
            Self::Prefetch(mark) => Some(*mark),
        }
    }

    /// Where somebody expects the block to be asked for.
    pub fn place(&self) -> Option<Place> {
        self.mark().map(|mark| (mark.volume, mark.block))
    }

    pub fn access(&self, block: Pvbn) -> Access {
        match *self {
            Self::Demand {
                address, sequential, ..
            } => Access {
                block,
                address,
                sequential,
            },
            Self::Prefetch(mark) => Access {
                block,
                address: address(mark.volume, mark.block),
                sequential: Some(mark.class == Class::Sequential),
            },
        }
    }
}

#[derive(Debug)]
pub struct Fetch {
    pub descriptor: Arc<ObjectDescriptor>,
    /// Indices into the descriptor's blocks, ascending, all for demand or all ahead of it.
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
}
