//! Prefetch policies: which blocks to fetch before they are asked for.
//!
//! A policy sees logical accesses and answers with a logical range. It never sees the cache; blocks that are
//! resident or in flight already are skipped by the caller, and demand always goes first.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
extern crate alloc;

mod sequential;

pub use sequential::Sequential;

use tombolo_base::VolumeId;

/// One read by a client, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub volume: VolumeId,
    pub first: u64,
    pub count: u64,
}

/// A logical range worth fetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suggestion {
    pub first: u64,
    pub count: u64,
}

/// What every prefetch policy must do.
pub trait Prefetcher: Send {
    /// The policy's name as it stands in settings and metrics.
    fn name(&self) -> &'static str;
    /// Learns from one access and suggests at most one range behind or around it, in the same volume.
    fn on_read(&mut self, access: Access) -> Option<Suggestion>;
}

/// Never prefetches.
#[derive(Debug, Default)]
pub struct NoPrefetch;

impl Prefetcher for NoPrefetch {
    fn name(&self) -> &'static str {
        "none"
    }

    fn on_read(&mut self, _access: Access) -> Option<Suggestion> {
        None
    }
}
