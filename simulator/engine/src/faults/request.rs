//! A client's request: what it asks of the core, what it touches, and what it is to change.

use crate::faults::contents::{Block, Contents, Value};
use crate::faults::linking::{self, Linking};
use std::collections::BTreeMap;
use tombolo_base::{BlockSum, EntryChange, FlushMode};
use tombolo_core::{ClientId, Event, LinkRun, MetadataChange, PartialWrite, Span, Token, WriteRequest};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write {
        force_unit_access: bool,
        change: MetadataChange,
    },
    /// Entries, holes and links alone.
    Commit {
        change: MetadataChange,
        links: Vec<LinkRun>,
    },
    /// One stage of a link.
    Link(Box<Linking>),
    Zero {
        force_unit_access: bool,
    },
    Flush {
        covers: u64,
        mode: FlushMode,
    },
    Status,
    /// Where the blocks of the span's head come from.
    Resolve,
    /// A write that keeps some bytes of its edges.
    Partial(PartialWrite),
    /// The read of such an edge, which is never answered.
    Edge,
    Create {
        name: String,
        blocks: u64,
        flush: FlushMode,
    },
    Resize {
        blocks: u64,
    },
    SetFlushMode(FlushMode),
    Delete,
    /// A read of the final check.
    Verify,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub kind: Kind,
    pub client: usize,
    pub span: Span,
    /// What is written, or what the world has read so far.
    pub values: Vec<Value>,
    /// The model's batch count at the time of the request.
    pub since: u64,
    pub at: u64,
    pub is_cancelled: bool,
}

impl Kind {
    /// Returns contents.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Read | Self::Edge | Self::Verify => true,
            Self::Link(linking) => matches!(linking.stage, linking::Stage::Reading { .. }),
            _ => false,
        }
    }

    /// Whether it is to be flushed before it is answered.
    pub fn is_forced(&self) -> bool {
        match self {
            Self::Write { force_unit_access, .. } | Self::Zero { force_unit_access } => *force_unit_access,
            Self::Partial(write) => write.force_unit_access,
            _ => false,
        }
    }

    /// Returns what is mapped.
    pub fn is_query(&self) -> bool {
        match self {
            Self::Status | Self::Resolve => true,
            Self::Link(linking) => linking.stage == linking::Stage::Resolving,
            _ => false,
        }
    }
}

impl Request {
    /// Everything that it looks at or changes.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = vec![self.span];
        match &self.kind {
            Kind::Write { change, .. } => spans.extend_from_slice(&change.holes),
            Kind::Commit { change, .. } => spans.extend_from_slice(&change.holes),
            Kind::Link(linking) => spans.extend(linking.spans()),
            _ => {}
        }
        spans
    }

    /// The entries that it is to change, which no other request changes in the same way.
    pub fn entries(&self) -> &[EntryChange] {
        match &self.kind {
            Kind::Write { change, .. } | Kind::Commit { change, .. } => &change.entries,
            Kind::Link(linking) => &linking.change().entries,
            _ => &[],
        }
    }

    /// Takes in what was read from slots, some blocks at a time; those of no piece read as zeroes.
    pub fn fill(&mut self, read: BTreeMap<usize, Block>, contents: &Contents) {
        if !self.kind.is_read() {
            return;
        }
        for (index, bytes) in read {
            self.values[index] = contents.value_of(&bytes).unwrap_or(Value::MAX);
        }
    }
}

pub(crate) fn event_of(token: Token, client: usize, kind: &Kind, span: Span, sums: Vec<Option<BlockSum>>) -> Event {
    let client = ClientId(client as u32);
    match kind {
        Kind::Read | Kind::Verify => Event::Read { token, client, span },
        Kind::Edge => unreachable!("the core reads edges by itself"),
        Kind::Write {
            force_unit_access,
            change,
        } => Event::Write {
            token,
            request: WriteRequest {
                force_unit_access: *force_unit_access,
                change: change.clone(),
                ..WriteRequest::new(span, sums)
            },
        },
        Kind::Commit { change, links } => commit(token, change, links),
        Kind::Link(linking) => match &linking.stage {
            linking::Stage::Looking => unreachable!("local metadata is no request to the core"),
            linking::Stage::Resolving => Event::Resolve { token, span },
            linking::Stage::Reading { .. } => Event::Read { token, client, span },
            linking::Stage::Copying => Event::Write {
                token,
                request: WriteRequest::new(span, sums),
            },
            linking::Stage::Committing { change, links } => commit(token, change, links),
        },
        Kind::Zero { force_unit_access } => Event::Zero {
            token,
            span,
            force_unit_access: *force_unit_access,
        },
        Kind::Flush { mode, .. } => Event::Flush { token, mode: *mode },
        Kind::Status => Event::Status { token, span },
        Kind::Resolve => Event::Resolve { token, span },
        Kind::Partial(write) => Event::WritePartly { token, write: *write },
        Kind::Create { name, blocks, flush } => Event::VolumeCreate {
            token,
            name: name.clone(),
            blocks: *blocks,
            flush: *flush,
        },
        Kind::SetFlushMode(flush) => Event::VolumeFlushMode {
            token,
            volume: span.volume,
            flush: *flush,
        },
        Kind::Resize { blocks } => Event::VolumeResize {
            token,
            volume: span.volume,
            blocks: *blocks,
        },
        Kind::Delete => Event::VolumeDelete {
            token,
            volume: span.volume,
        },
    }
}

fn commit(token: Token, change: &MetadataChange, links: &[LinkRun]) -> Event {
    Event::Commit {
        token,
        change: change.clone(),
        links: links.to_vec(),
    }
}
