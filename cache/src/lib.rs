//! Replacement policies for the block cache: one policy, one file, one trait.
//!
//! A policy orders the slots whose blocks may be evicted and says which goes next. It does not know where a block
//! lies, how it came or whether somebody reads it at this moment: the caller owns the slots, looks blocks up, and is
//! asked about pins ([`Residents`]) when a victim is chosen. Two callers share this contract:
//!
//! * the gateway, whose slots are places in the cache file. A block that must not go (dirty: the cloud does not have it
//!   yet) is simply not inside; it is inserted when it becomes evictable;
//! * [`KeyedCache`], a cache over arbitrary 64-bit ids, sizes and costs, for trace simulation.
//!
//! Order of calls for a block that is not resident: [`Replacement::miss`] once, when a reader asks for it and it is
//! not on its way already; [`Replacement::victim`] as often as room is needed; [`Replacement::insert`] when the block
//! is there. Several misses may be under way at once, and one that fails simply never ends in `insert`: what `miss`
//! found out travels in the [`MissHint`] that the caller keeps, not in the policy.
//!
//! No operation allocates once the tables have their size; all take constant time, or logarithmic time in the number
//! of cost groups (GDS family) or slots (MIN).
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
#![warn(missing_docs, clippy::unwrap_used)]
extern crate alloc;

mod alternatives;
mod arc;
mod arc_bytes;
mod gds;
mod ghosts;
mod heap;
mod key_index;
mod keyed;
mod lirs;
mod list;
mod lru;
mod min;
mod policy;
mod probation;
mod s3_fifo;
mod sarc;
mod sieve;
mod sketch;
mod succession;
mod two_q;
mod w_tiny_lfu;

pub use alternatives::{Alternative, Alternatives, COMPARED};
pub use arc::Arc;
pub use arc_bytes::ArcBytes;
pub use gds::{CostClass, Gds, GdsConfig, Goal, Grouping, Region};
pub use keyed::{Evicted, KeyedCache, Object, Outcome};
pub use lirs::Lirs;
pub use lru::Lru;
pub use min::Min;
pub use policy::Policy;
pub use probation::Probation;
pub use s3_fifo::S3Fifo;
pub use sarc::{Detector, Sarc, SarcConfig};
pub use sieve::Sieve;
pub use succession::Succession;
pub use two_q::TwoQ;
pub use w_tiny_lfu::WTinyLfu;

use tombolo_base::{BLOCK_BYTES, Lcbn, Pvbn};

/// How much the cache may hold. Policies that count blocks use `blocks`, those that weigh them use `bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Slots.
    pub blocks: u32,
    /// The sizes of all that is inside.
    pub bytes: u64,
}

impl Capacity {
    /// Whole blocks only.
    pub fn of_blocks(blocks: u32) -> Self {
        Self {
            blocks,
            bytes: u64::from(blocks) * BLOCK_BYTES as u64,
        }
    }
}

/// One use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The block's name; ghosts and frequencies are kept by it.
    pub block: Pvbn,
    /// Where the reader sees the block, in blocks: its logical address, or the PVBN again. Runs are found by it.
    pub address: u64,
    /// Whether the access is part of a sequential stream, if the caller knows; SARC then asks no detector of its own.
    pub sequential: Option<bool>,
}

impl Access {
    /// An access of which nothing is known but the block.
    pub fn to(block: Pvbn) -> Self {
        Self {
            block,
            address: block.0,
            sequential: None,
        }
    }
}

/// Why a block has become a candidate for eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A reader asked for it and waited; [`Replacement::miss`] was told.
    Demand,
    /// It was written, and the cloud has it now. That counts as one use.
    Write,
    /// Nobody has asked for it yet: prefetched, or found in the cache file after a restart. Its first read will be
    /// its first use, and evicting it before leaves no ghost.
    Prefetch,
}

/// What a policy knew of a missing block; the caller hands it back and cannot look inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissHint(u8);

/// The block for which room is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// What [`Replacement::miss`] answered for it.
    pub miss_hint: MissHint,
    /// Its size.
    pub bytes: u64,
}

impl Incoming {
    /// A block of which nothing is known yet.
    pub const BLOCK: Self = Self {
        miss_hint: MissHint(0),
        bytes: BLOCK_BYTES as u64,
    };
}

/// A block that is now in a slot and may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The use that brought it.
    pub access: Access,
    /// Why it came.
    pub cause: Cause,
    /// What [`Replacement::miss`] answered for it; the default where nobody missed it.
    pub miss_hint: MissHint,
    /// The unit of transfer that the block belongs to (an object in the cloud); cost groups are formed by it.
    pub object: u64,
    /// Its size.
    pub bytes: u32,
    /// Which [`CostClass`] bringing it back falls under.
    pub cost_class: u8,
    /// What fetching it took, in microseconds; zero: not measured, use the class's model.
    pub latency_us: u32,
    /// Evicting it costs an upload. Only where the caller can evict dirty blocks, which the gateway cannot.
    pub is_dirty: bool,
}

impl Arrival {
    /// A clean block of the usual size.
    pub fn of_block(access: Access, cause: Cause, miss_hint: MissHint) -> Self {
        Self {
            access,
            cause,
            miss_hint,
            object: access.block.0,
            bytes: BLOCK_BYTES as u32,
            cost_class: 0,
            latency_us: 0,
            is_dirty: false,
        }
    }
}

/// What the prefetcher says of a block that is resident already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// It lies in a group that is being prefetched.
    InGroup,
    /// It belongs to the rest of an earlier group, which will be read before the group now being fetched.
    RestOfGroup,
}

/// What the caller says of a slot that a policy would evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go.
    Evict,
    /// Somebody holds it: leave it where it is and look further.
    Keep,
    /// It deserves a second round: treat it as just used, without counting a use (AMP, rule 5).
    Again,
}

/// The caller's knowledge of the slots inside, asked while a victim is chosen. Policies store no names because the
/// caller has them.
pub trait Residents {
    /// What is in the slot, which is inside.
    fn block(&self, slot: Lcbn) -> Pvbn;
    /// The same slot may be asked about again within one call of [`Replacement::victim`], and one that may go is not
    /// always the one that goes: only what `victim` returns counts. [`Verdict::Again`] is acted on each time it is
    /// given, so it is for the caller to give it once.
    fn judge(&mut self, slot: Lcbn) -> Verdict;
}

/// Advice that only some policies heed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// SARC: sequential blocks are not evicted below this number while there are others.
    SequentialFloorBlocks(u32),
    /// GDS family: what transfers of this class cost from now on.
    Costs {
        /// As in [`Arrival::cost_class`].
        class: u8,
        /// From now on.
        costs: CostClass,
    },
}

/// Slots looked at before `victim` gives up: readers hold few, and briefly.
const LOOK_AT_MAX: u32 = 4096;

/// What every replacement policy must do.
///
/// The caller MUST insert a slot at most once before it is removed or chosen as a victim, MUST NOT touch, remove or
/// mention a slot that is not inside, and MUST precede an insert of cause [`Cause::Demand`] by `miss`.
pub trait Replacement: Send {
    /// The policy's name as it stands in settings and metrics.
    fn name(&self) -> &'static str;
    /// A reader asked for a block that is neither resident nor on its way. Adaptive policies learn from it.
    fn miss(&mut self, access: &Access) -> MissHint;
    /// Makes room in the tables for slots up to this one, as the first insert of one does. Takes time with their number.
    fn reach(&mut self, _slot: Lcbn) {}
    /// A block has become evictable in `slot`.
    fn insert(&mut self, slot: Lcbn, arrival: &Arrival);
    /// The block in `slot` was read.
    fn touch(&mut self, slot: Lcbn, access: &Access);
    /// The prefetcher expects the block in `slot` to be read soon. No use is counted.
    fn expect(&mut self, _slot: Lcbn, _access: &Access, _expectation: Expectation) {}
    /// Whether [`Self::expect`] does anything, so that callers can skip the lookup of what they would report.
    fn uses_expectations(&self) -> bool {
        false
    }
    /// The block in `slot` became dirty or clean without leaving.
    fn set_dirty(&mut self, _slot: Lcbn, _is_dirty: bool) {}
    /// What is in `slot` has another size from now on; [`Self::touch`] follows. Only for slots that hold an object of
    /// their own.
    fn set_bytes(&mut self, _slot: Lcbn, _bytes: u32) {}
    /// The slot leaves for another reason than eviction.
    fn remove(&mut self, slot: Lcbn);
    /// Chooses the next victim among those that may go, removes it and returns it. Gives up after looking at a
    /// bounded number of slots that may not go.
    fn victim(&mut self, incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn>;
    /// The cache has another size from now on. Blocks above it stay until the caller evicts them; slot numbers may
    /// exceed the number of blocks. Takes time in proportion to the size.
    fn resize(&mut self, capacity: Capacity);
    /// What the policy does not heed is dropped.
    fn advise(&mut self, _advice: Advice) {}
    /// Evictable slots inside.
    fn len(&self) -> usize;
    /// Nothing can be evicted.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Memory that the policy's tables take.
    fn metadata_bytes(&self) -> usize;
    /// Panics when the policy's own invariants are broken; for tests, takes time in proportion to the size.
    fn check_invariants(&self);
}

/// The part of `blocks` out of `capacity` that `resident` blocks may claim: dirty and arriving blocks take room that
/// the policy does not see, and its shares shrink with what is left. Exactly `blocks` when the cache is full.
fn share(blocks: u32, resident: u32, capacity: u32) -> u32 {
    if resident >= capacity {
        blocks
    } else {
        (u64::from(blocks) * u64::from(resident) / u64::from(capacity)) as u32
    }
}
