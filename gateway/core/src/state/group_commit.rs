//! Acknowledgements that wait for the journal, and the syncs that serve them.

use crate::event::{Answer, Token};
use crate::format::record::Lsn;
use alloc::{collections::BTreeMap, vec::Vec};
use tombolo_base::Instant;
use tombolo_flow_control as flow_control;
use tombolo_flow_control::group_commit::Rule;

#[derive(Debug)]
pub struct Acknowledgement {
    pub token: Token,
    pub answer: Answer,
    pub force_unit_access: bool,
}

#[derive(Debug)]
pub struct GroupCommit {
    /// Says when the next sync begins.
    pub controller: flow_control::GroupCommit,
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

impl GroupCommit {
    pub fn new(rule: Rule, now: Instant) -> Self {
        Self {
            controller: flow_control::GroupCommit::new(rule, now),
            unwritten: BTreeMap::new(),
            waiting: Vec::new(),
            served: Vec::new(),
            syncing: None,
            is_wanted: false,
            is_doubted: false,
            unsynced_since: None,
        }
    }

    /// The next sync is for this one, too.
    pub fn wait(&mut self, now: Instant, token: Token, answer: Answer) {
        self.controller.on_waiting(now);
        self.waiting.push((token, answer));
    }

    /// When a sync is due for those who wait.
    pub fn due(&self) -> Option<Instant> {
        let waiting = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        (waiting > 0).then(|| self.controller.due(waiting))
    }
}
