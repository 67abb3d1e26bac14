//! Writes, zeroes and commits under way, and the lines in which they wait.

use crate::event::{Answer, Token};
use crate::format::record::LinkRun;
use alloc::{
    collections::{BTreeMap, VecDeque},
    string::String,
    vec,
    vec::Vec,
};
use tombolo_base::{BlockSum, Instant, Lcbn, MetadataChange, Span, VolumeId};

/// A request that may have to wait for others.
#[derive(Debug)]
pub struct Waiting {
    pub token: Token,
    pub span: Span,
    pub kind: Kind,
    pub since: Instant,
}

#[derive(Debug)]
pub enum Kind {
    Write {
        sums: Vec<Option<BlockSum>>,
        force_unit_access: bool,
        /// It holds a lock.
        locked: bool,
        /// Blocks within that become holes; the sums are those of the others.
        zeroes: Option<Span>,
        change: MetadataChange,
    },
    Zero {
        force_unit_access: bool,
    },
    Commit {
        change: MetadataChange,
        links: Vec<LinkRun>,
    },
    Volume(VolumeChange),
    Lock,
}

/// A write whose bytes are on their way into slots.
#[derive(Debug)]
pub struct Running {
    pub span: Span,
    pub sums: Vec<Option<BlockSum>>,
    /// One per block that is not zero, in order.
    pub slots: Vec<Lcbn>,
    pub force_unit_access: bool,
    pub zeroes: Option<Span>,
    pub change: MetadataChange,
}

#[derive(Debug, Default)]
pub struct Writes {
    pub running: BTreeMap<Token, Running>,
    pub locks: BTreeMap<Token, Span>,
    pub blocked: VecDeque<Waiting>,
    pub stalled: VecDeque<Waiting>,
    pub behind: VecDeque<Waiting>,
    /// Running writes whose bytes are in their slots, and since when the journal has had no room for their records.
    pub unjournaled: VecDeque<(Instant, Token)>,
    /// Blocks of running writes: they will be dirty.
    pub running_blocks: u32,
    /// Acknowledgements held back to slow writers down.
    pub delayed: BTreeMap<(Instant, Token), Answer>,
}

impl Writes {
    pub fn waiting_count(&self) -> usize {
        self.blocked.len() + self.stalled.len() + self.behind.len() + self.unjournaled.len()
    }

    pub fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Since when the first in each line has waited for room.
    pub fn first_waiting_since(&self) -> impl Iterator<Item = Instant> {
        let fronts = [self.stalled.front(), self.behind.front()].into_iter().flatten();
        let unjournaled = self.unjournaled.front().map(|(since, _)| *since);
        fronts.map(|waiting| waiting.since).chain(unjournaled)
    }

    /// Checks, after a step, that nobody waits for longer than is promised.
    pub fn check_deadlines(&self, now: Instant, stall_timeout_ms: u64) {
        for since in self.first_waiting_since() {
            assert!(
                now < since.plus_millis(stall_timeout_ms),
                "a change has waited since {since:?}"
            );
        }
    }

    pub fn is_locked(&self, token: Token) -> bool {
        self.locks.contains_key(&token)
    }

    pub fn conflicts_with_lock(&self, token: Token, span: &Span) -> bool {
        self.locks
            .iter()
            .any(|(holder, locked)| *holder != token && locked.overlaps(span))
    }

    pub fn conflicts_with_running(&self, span: &Span) -> bool {
        self.running.values().any(|running| running.span.overlaps(span))
            || self
                .stalled
                .iter()
                .chain(&self.behind)
                .any(|waiting| waiting.span.overlaps(span))
    }
}

impl Running {
    /// Everything that it changes.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = vec![self.span];
        spans.extend_from_slice(&self.change.holes);
        spans
    }
}

impl Waiting {
    /// Blocks that need a slot.
    pub fn nonzero(&self) -> u32 {
        match &self.kind {
            Kind::Write { sums, .. } => sums.iter().filter(|sum| sum.is_some()).count() as u32,
            Kind::Zero { .. } | Kind::Commit { .. } | Kind::Volume(_) | Kind::Lock => 0,
        }
    }

    /// Everything that it changes.
    pub fn spans(&self) -> Vec<Span> {
        match &self.kind {
            Kind::Write { change, .. } => [&[self.span], &change.holes[..]].concat(),
            Kind::Commit { change, links } => {
                let links = links.iter().map(LinkRun::span);
                change.holes.iter().copied().chain(links).collect()
            }
            Kind::Volume(_) => Vec::new(),
            Kind::Zero { .. } | Kind::Lock => vec![self.span],
        }
    }

    pub fn is_locked(&self) -> bool {
        matches!(self.kind, Kind::Write { locked: true, .. })
    }
}

/// What an administrator asks for.
#[derive(Clone, Debug)]
pub enum VolumeChange {
    Create { name: String, blocks: u64 },
    Resize { volume: VolumeId, blocks: u64 },
    Delete { volume: VolumeId },
}
