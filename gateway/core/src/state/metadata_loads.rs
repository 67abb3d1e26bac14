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

#[derive(Debug, Default)]
pub struct MetadataLoads {
    pub page_waiters: BTreeMap<(VolumeId, u64), Vec<Waiter>>,
    pub descriptor_waiters: BTreeMap<Pvbn, Vec<Waiter>>,
    pub candidates_waiting: usize,
}
