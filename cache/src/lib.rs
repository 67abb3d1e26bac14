//! Replacement policies for the block cache.
//!
//! A policy orders the slots whose blocks may be evicted: clean, confirmed in the cloud. Dirty blocks never enter
//! it, so no policy has to skip them. One policy, one file, one trait. Which block lies in a slot, and whether it
//! may go at this moment (a reader may hold it), is the caller's business.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
extern crate alloc;

mod lru;

pub use lru::Lru;

use tombolo_base::{Lcbn, Pvbn};

/// What every replacement policy must do.
///
/// The caller MUST insert a slot at most once before it is removed or chosen as a victim, and MUST NOT touch or
/// remove a slot that is not inside.
pub trait Replacement: Send {
    /// The policy's name as it stands in settings and metrics.
    fn name(&self) -> &'static str;
    /// A block has become evictable in `slot`. `pvbn` names the block for policies that remember evicted ones.
    fn insert(&mut self, slot: Lcbn, pvbn: Pvbn);
    /// The block in `slot` was read.
    fn touch(&mut self, slot: Lcbn);
    /// The slot leaves for another reason than eviction.
    fn remove(&mut self, slot: Lcbn);
    /// Chooses the next victim among those for which `may_evict` holds, removes it and returns it. Gives up after
    /// looking at a bounded number of slots that may not go.
    fn victim(&mut self, may_evict: &mut dyn FnMut(Lcbn) -> bool) -> Option<Lcbn>;
    /// Evictable slots inside.
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
