//! Makes the blocks of one span the same as those of another: what is in the cloud is mapped a second time, what is
//! dirty is copied through the cache, and holes stay holes.
//!
//! All of the source is looked at first, then the dirty parts are copied, each as a write of its own; one commit makes
//! the rest, together with the entries. Nobody else may change either span meanwhile.

use crate::core_state::Core;
use crate::event::{ResolvedRun, Source};
use crate::format::record::LinkRun;
use crate::walks::map_walk::{MapWalk, WalkStep};
use alloc::{collections::VecDeque, vec::Vec};
use tombolo_base::{MetadataChange, Span, VolumeId};

/// What a link needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkStep {
    /// See [`WalkStep::StoredPage`]; for [`Link::on_stored_page`].
    StoredPage {
        /// The source's.
        volume: VolumeId,
        /// Where to begin.
        page: u64,
    },
    /// An answer to [`crate::Event::Resolve`]; for [`Link::on_resolved`].
    Resolve(Span),
    /// That the blocks are read and written to the target; then [`Link::on_copied`].
    Copy {
        /// Dirty blocks of the source, at most `copy_blocks_max`.
        from: Span,
        /// Where they go, as many.
        to: Span,
    },
    /// That this is committed ([`crate::Event::Commit`]), which is the end.
    Commit {
        /// What was given to [`Link::new`], and holes where the source has them.
        change: MetadataChange,
        /// To what the source has in the cloud, run by run.
        links: Vec<LinkRun>,
    },
}

/// A link under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    from: Span,
    to: Span,
    walk: MapWalk,
    /// Dirty parts of the source.
    copies: VecDeque<Span>,
    copy_blocks_max: u64,
    change: MetadataChange,
    links: Vec<LinkRun>,
}

impl Link {
    /// `to` is as long as `from`; the two do not overlap. `change` is committed with the link.
    pub fn new(from: Span, to: Span, change: MetadataChange, copy_blocks_max: u64) -> Self {
        assert_eq!(from.count, to.count, "a link's two spans are equally long");
        Self {
            from,
            to,
            walk: MapWalk::new(from),
            copies: VecDeque::new(),
            copy_blocks_max,
            change,
            links: Vec::new(),
        }
    }

    /// The source.
    pub fn from(&self) -> Span {
        self.from
    }

    /// The target.
    pub fn to(&self) -> Span {
        self.to
    }

    /// What is committed with the link so far.
    pub fn change(&self) -> &MetadataChange {
        &self.change
    }

    /// What to do next; the same again until the walk is told that it was done.
    pub fn step(&mut self, core: &Core) -> LinkStep {
        match self.walk.step(core) {
            WalkStep::StoredPage { volume, page } => LinkStep::StoredPage { volume, page },
            WalkStep::Ask(span) => LinkStep::Resolve(span),
            WalkStep::Done => self.copy_or_commit(),
        }
    }

    fn copy_or_commit(&self) -> LinkStep {
        match self.copies.front() {
            Some(part) => {
                let from = Span {
                    count: part.count.min(self.copy_blocks_max),
                    ..*part
                };
                let to = self.target_of(from);
                LinkStep::Copy { from, to }
            }
            None => LinkStep::Commit {
                change: self.change.clone(),
                links: self.links.clone(),
            },
        }
    }

    /// The number of the page that [`LinkStep::StoredPage`] asked for; `None`: there is none from there on.
    pub fn on_stored_page(&mut self, page: Option<u64>) {
        let skipped = Span {
            count: 0,
            ..self.walk.rest()
        };
        let count = self.walk.on_stored_page(page);
        if count > 0 {
            self.change.holes.push(self.target_of(Span { count, ..skipped }));
        }
    }

    /// Takes what the next blocks are mapped to.
    pub fn on_resolved(&mut self, runs: &[ResolvedRun]) {
        for run in runs {
            let part = Span {
                count: run.count,
                ..self.walk.rest()
            };
            let target = self.target_of(part);
            match run.source {
                Source::Hole => self.change.holes.push(target),
                Source::Stored(pvbn) => self.links.push(LinkRun {
                    volume: target.volume,
                    first: target.first,
                    count: target.count,
                    pvbn,
                }),
                // It may still turn out to be a duplicate and move: its contents are copied within the cache, and
                // deduplication makes them one again.
                Source::Dirty => self.copies.push_back(part),
            }
            self.walk.advance(run.count);
        }
    }

    /// The blocks of the last [`LinkStep::Copy`] are written.
    pub fn on_copied(&mut self) {
        let Some(part) = self.copies.front_mut() else { return };
        let done = part.count.min(self.copy_blocks_max);
        part.first += done;
        part.count -= done;
        if part.count == 0 {
            self.copies.pop_front();
        }
    }

    /// Where a part of the source goes.
    fn target_of(&self, part: Span) -> Span {
        Span {
            volume: self.to.volume,
            first: self.to.first + (part.first - self.from.first),
            count: part.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::page::PAGE_ENTRIES;
    use crate::test_bench::{Bench, FIRST_PVBN, VOLUME};
    use tombolo_base::Pvbn;

    const TO_FIRST: u64 = 7;
    const COUNT: u64 = 1 << 30;
    /// Local metadata has this page of the source.
    const PAGE: u64 = 1000;

    fn span(volume: VolumeId, first: u64, count: u64) -> Span {
        Span { volume, first, count }
    }

    /// The core knows of blocks 0 to 64 of the source; of the stored page the first block is stored, two are dirty.
    #[test]
    fn a_vast_file_is_linked_by_its_few_blocks() {
        let bench = Bench::new();
        let target = VolumeId(VOLUME.0 + 1);
        let from = span(VOLUME, 0, COUNT);
        let to = span(target, TO_FIRST, COUNT);
        let mut link = Link::new(from, to, MetadataChange::default(), 1);
        let (mut asked, mut copied) = (Vec::new(), Vec::new());
        let (change, links) = loop {
            match link.step(&bench.core) {
                LinkStep::StoredPage { volume, page } => {
                    assert_eq!(volume, VOLUME);
                    link.on_stored_page((page <= PAGE).then_some(PAGE));
                }
                LinkStep::Resolve(span) => {
                    asked.push(span.first);
                    let (count, source) = match span.first {
                        0 => (64, Source::Stored(Pvbn(FIRST_PVBN))),
                        first if first == PAGE * PAGE_ENTRIES => (1, Source::Stored(Pvbn(5))),
                        first if first == PAGE * PAGE_ENTRIES + 1 => (2, Source::Dirty),
                        first => (PAGE_ENTRIES - first % PAGE_ENTRIES, Source::Hole),
                    };
                    link.on_resolved(&[ResolvedRun { count, source }]);
                }
                LinkStep::Copy { from, to } => {
                    copied.push((from.first, to.first, to.count));
                    link.on_copied();
                }
                LinkStep::Commit { change, links } => break (change, links),
            }
        };
        assert!(asked.len() <= 8, "{asked:?}");
        let dirty = PAGE * PAGE_ENTRIES + 1;
        let expected = [dirty, dirty + 1].map(|block| (block, block + TO_FIRST, 1));
        assert_eq!(copied, expected);
        let targets = links.iter().map(|link| (link.first, link.count, link.pvbn.0));
        let expected = [(TO_FIRST, 64, FIRST_PVBN), (TO_FIRST + dirty - 1, 1, 5)];
        assert_eq!(targets.collect::<Vec<_>>(), expected);
        let covered = change.holes.iter().map(|hole| hole.count).sum::<u64>() + 64 + 1 + 2;
        assert_eq!(covered, COUNT, "each block of the target is made");
        let mut ends: Vec<(u64, u64)> = change.holes.iter().map(|hole| (hole.first, hole.end())).collect();
        ends.extend(links.iter().map(|link| (link.first, link.first + link.count)));
        ends.extend(copied.iter().map(|(_, first, count)| (*first, first + count)));
        ends.sort_unstable();
        assert!(
            ends.is_sorted_by(|left, right| left.1 <= right.0),
            "no block is made twice"
        );
        assert!(change.holes.iter().all(|hole| hole.volume == target));
    }
}
