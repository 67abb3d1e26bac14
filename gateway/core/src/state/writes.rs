//! Writes, zeroes and commits under way, and the lines in which they wait.

use crate::event::{Answer, Token, WriteRequest};
use crate::format::record::LinkRun;
use alloc::{
    collections::{BTreeMap, VecDeque},
    string::String,
    vec,
    vec::Vec,
};
use tombolo_base::{FlushMode, Instant, Lcbn, MetadataChange, Span, VolumeId};

/// A request that may have to wait for others.
#[derive(Debug)]
pub struct Waiting {
    pub token: Token,
    pub kind: Kind,
    pub since: Instant,
}

#[derive(Debug)]
pub enum Kind {
    Write(WriteRequest),
    Zero {
        span: Span,
        force_unit_access: bool,
    },
    Commit {
        change: MetadataChange,
        links: Vec<LinkRun>,
    },
    Volume(VolumeChange),
    /// Of the blocks of a partial write.
    Lock(Span),
}

/// A write that waits for slots, or at the cap on dirty blocks.
#[derive(Debug)]
pub struct Stalled {
    pub token: Token,
    pub request: WriteRequest,
    pub since: Instant,
}

/// A write whose bytes are on their way into slots.
#[derive(Debug)]
pub struct Running {
    pub request: WriteRequest,
    /// One per block that is not zero, in order.
    pub slots: Vec<Lcbn>,
}

#[derive(Debug, Default)]
pub struct Writes {
    pub running: BTreeMap<Token, Running>,
    pub locks: BTreeMap<Token, Span>,
    pub blocked: VecDeque<Waiting>,
    pub stalled: VecDeque<Stalled>,
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

    /// Since when the one that has waited longest waits for room.
    pub fn waiting_since(&self) -> Option<Instant> {
        let stalled = self.stalled.front().map(|stalled| stalled.since);
        let behind = self.behind.front().map(|waiting| waiting.since);
        let unjournaled = self.unjournaled.front().map(|(since, _)| *since);
        Instant::earliest([stalled, behind, unjournaled])
    }

    /// Whether the first in a line has waited for longer than is promised.
    pub fn is_overdue(&self, now: Instant, stall_timeout_ms: u64) -> bool {
        self.waiting_since()
            .is_some_and(|since| now >= since.plus_millis(stall_timeout_ms))
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
        self.running.values().any(|running| running.request.span.overlaps(span))
            || self.stalled.iter().any(|stalled| stalled.request.span.overlaps(span))
            || self.behind.iter().any(|waiting| waiting.overlaps(span))
    }
}

impl Waiting {
    /// Whether it wants one of the blocks. Commits and changes of volumes exclude nobody, and nobody excludes them.
    pub fn overlaps(&self, span: &Span) -> bool {
        self.span().is_some_and(|own| own.overlaps(span))
    }

    pub fn span(&self) -> Option<Span> {
        match &self.kind {
            Kind::Write(request) => Some(request.span),
            Kind::Zero { span, .. } | Kind::Lock(span) => Some(*span),
            Kind::Commit { .. } | Kind::Volume(_) => None,
        }
    }

    pub fn slots_needed(&self) -> u32 {
        match &self.kind {
            Kind::Write(request) => request.slots_needed(),
            Kind::Zero { .. } | Kind::Commit { .. } | Kind::Volume(_) | Kind::Lock(_) => 0,
        }
    }

    /// Everything that it changes.
    pub fn changed_spans(&self) -> Vec<Span> {
        match &self.kind {
            Kind::Write(request) => request.changed_spans(),
            Kind::Commit { change, links } => {
                let links = links.iter().map(LinkRun::span);
                change.holes.iter().copied().chain(links).collect()
            }
            Kind::Volume(_) => Vec::new(),
            Kind::Zero { span, .. } | Kind::Lock(span) => vec![*span],
        }
    }
}

/// What an administrator asks for.
#[derive(Clone, Debug)]
pub enum VolumeChange {
    Create {
        name: String,
        blocks: u64,
        flush: FlushMode,
    },
    Resize {
        volume: VolumeId,
        blocks: u64,
    },
    FlushMode {
        volume: VolumeId,
        flush: FlushMode,
    },
    Delete {
        volume: VolumeId,
    },
}
