//! Walks through what the blocks of a span are mapped to. A file may be vast and nearly empty: where neither the core
//! nor local metadata has anything, the walk goes on without asking block by block.

use crate::core_state::Core;
use crate::format::page::PAGE_ENTRIES;
use crate::steps::map_query::STATUS_BLOCKS_MAX;
use tombolo_base::{Span, VolumeId};

/// What the walk needs to know next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// The number of the volume's first page from `page` on in local metadata, read after this; for
    /// [`MapWalk::on_stored_page`].
    StoredPage {
        /// The span's.
        volume: VolumeId,
        /// Where to begin.
        page: u64,
    },
    /// The core's answer about the span's beginning ([`crate::Event::Status`] or [`crate::Event::Resolve`]); for
    /// [`MapWalk::advance`].
    Ask(Span),
    /// Nothing: this is the end of the span.
    Done,
}

/// A walk through one span, driven by its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapWalk {
    rest: Span,
    /// The first block of the rest that the core knows as changed, or its end.
    changed: u64,
    /// Blocks of the rest's beginning may be mapped.
    is_candidate: bool,
}

impl MapWalk {
    /// From the span's beginning; an empty one is done at once.
    pub fn new(span: Span) -> Self {
        Self {
            rest: span,
            changed: span.first,
            is_candidate: false,
        }
    }

    /// The part of the span that is still to be walked through.
    pub(crate) fn rest(&self) -> Span {
        self.rest
    }

    /// The core is asked here, before local metadata is read: a checkpoint between the two shows a block twice rather
    /// than not at all.
    pub fn step(&mut self, core: &Core) -> WalkStep {
        match self.rest.count {
            0 => WalkStep::Done,
            count if count > PAGE_ENTRIES && !self.is_candidate => {
                self.changed = core.next_changed_block(self.rest).unwrap_or(self.rest.end());
                WalkStep::StoredPage {
                    volume: self.rest.volume,
                    page: self.rest.first / PAGE_ENTRIES,
                }
            }
            count => WalkStep::Ask(Span {
                count: count.min(STATUS_BLOCKS_MAX),
                ..self.rest
            }),
        }
    }

    /// Takes the page that [`WalkStep::StoredPage`] asked for. Returns the number of blocks that are holes and were
    /// passed over.
    pub fn on_stored_page(&mut self, page: Option<u64>) -> u64 {
        let stored = page.map(|page| page * PAGE_ENTRIES);
        let next = stored.map_or(self.changed, |stored| stored.min(self.changed));
        let skipped = next.clamp(self.rest.first, self.rest.end()) - self.rest.first;
        self.advance(skipped);
        self.is_candidate = true;
        skipped
    }

    /// Goes on behind the next `count` blocks, which are known now.
    pub fn advance(&mut self, count: u64) {
        assert!(count <= self.rest.count, "a walk stays within its span");
        self.rest.first += count;
        self.rest.count -= count;
        self.is_candidate = false;
    }
}
