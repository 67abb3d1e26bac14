//! Pages of the map and object descriptors that are being loaded, and who waits for them.

use crate::event::Token;
use crate::state::candidate::Candidate;
use alloc::{collections::BTreeMap, vec::Vec};
use tombolo_base::{Pvbn, Span, VolumeId};

/// What is asked of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    Status,
    Resolve,
}

/// Who waits for a page or a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    Read(Token),
    Query(Token, Span, Query),
    Candidate(Candidate),
    /// Duplicates of the block that the descriptor is loaded for.
    Verification,
    /// The page itself is all that is wanted.
    Nobody,
}

/// Candidates that wait for local metadata at the same time; more are given up.
pub const CANDIDATES_WAITING_MAX: usize = 4096;

#[derive(Debug, Default)]
pub struct MetadataLoads {
    pub page_waiters: BTreeMap<(VolumeId, u64), Vec<Waiter>>,
    pub descriptor_waiters: BTreeMap<Pvbn, Vec<Waiter>>,
    pub candidates_waiting: usize,
}

impl MetadataLoads {
    /// A candidate waits no longer.
    pub fn end_wait_of_candidate(&mut self) {
        assert!(self.candidates_waiting > 0, "it was counted when it began to wait");
        self.candidates_waiting -= 1;
    }
}
