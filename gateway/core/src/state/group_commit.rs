//! Acknowledgements that wait for the journal, and the syncs that serve them.

use crate::event::{Answer, Token};
use crate::format::record::Lsn;
use alloc::{collections::BTreeMap, vec::Vec};
use tombolo_base::Instant;

#[derive(Debug)]
pub struct Acknowledgement {
    pub token: Token,
    pub answer: Answer,
    pub force_unit_access: bool,
}

#[derive(Debug, Default)]
pub struct GroupCommit {
    /// Acknowledgements that wait until the journal is written up to a position.
    pub unwritten: BTreeMap<Lsn, Vec<Acknowledgement>>,
    /// Those that wait for the next sync.
    pub waiting: Vec<(Token, Answer)>,
    /// Those that the running sync serves.
    pub served: Vec<(Token, Answer)>,
    /// Up to where the running sync makes the journal durable.
    pub syncing: Option<Lsn>,
    pub is_wanted: bool,
    /// A checkpoint has failed. If it was for a sync, the next one fails too, even with nothing to bring to the disk, and
    /// the core must be told of that: changes may be waiting for a checkpoint that will never be.
    pub is_doubted: bool,
    /// When the oldest unsynced batch was written.
    pub unsynced_since: Option<Instant>,
}
