//! Map queries: what blocks are mapped to.

use crate::core_state::{Core, Lookup};
use crate::event::{Answer, ResolvedRun, Source, StatusRun, Token};
use crate::format::page::PAGE_ENTRIES;
use crate::state::extent_map::Target;
use crate::state::metadata_loads::{Query, Waiter};
use crate::state::slots::SlotState;
use alloc::vec::Vec;
use tombolo_base::{Pvbn, Span};

/// One answer to a map query looks at no more than this many blocks; the client asks again for the rest.
pub(crate) const STATUS_BLOCKS_MAX: u64 = 1 << 16;

impl Core {
    pub(crate) fn on_query(&mut self, token: Token, span: Span, query: Query) {
        if let Err(refusal) = self.check_span(span) {
            return self.answer(token, Err(refusal));
        }
        let mut runs: Vec<(u64, Target)> = Vec::new();
        let count = span.count.min(STATUS_BLOCKS_MAX);
        let mut done = 0;
        while done < count {
            match self.lookup(span.volume, span.first + done) {
                Lookup::NeedPage(page) if runs.is_empty() => return self.load_query_pages(token, span, query, page),
                // A shorter answer is allowed; the client asks for the rest.
                Lookup::NeedPage(_) => break,
                Lookup::Known(target, run) => {
                    let run = run.min(count - done);
                    runs.push((run, target));
                    done += run;
                }
            }
        }
        let answer = match query {
            Query::Status => Answer::Status(status_runs(&runs)),
            Query::Resolve => Answer::Resolved(self.resolved_runs(&runs)),
        };
        self.answer(token, Ok(answer));
    }

    fn resolved_runs(&self, runs: &[(u64, Target)]) -> Vec<ResolvedRun> {
        let mut resolved: Vec<ResolvedRun> = Vec::new();
        for (count, target) in runs {
            let Target::At(first) = target else {
                resolved.push(ResolvedRun {
                    count: *count,
                    source: Source::Hole,
                });
                continue;
            };
            for pvbn in (0..*count).map(|index| first.plus(index)) {
                let source = self.source_of(pvbn);
                match resolved.last_mut() {
                    Some(last) if continues(last, source) => last.count += 1,
                    _ => resolved.push(ResolvedRun { count: 1, source }),
                }
            }
        }
        resolved
    }

    fn source_of(&self, pvbn: Pvbn) -> Source {
        let is_corrupt = |slot| self.slots.state(slot) == SlotState::Corrupt;
        match self.dirty.find(pvbn).is_some() || self.slots.find(pvbn).is_some_and(is_corrupt) {
            true => Source::Dirty,
            false => Source::Stored(pvbn),
        }
    }

    /// Loads the page that a query begins in, and those behind it for the queries that will follow.
    fn load_query_pages(&mut self, token: Token, span: Span, query: Query, page: u64) {
        let end = span.end().min(span.first + STATUS_BLOCKS_MAX);
        for ahead in page + 1..end.div_ceil(PAGE_ENTRIES) {
            if self.pages.get((span.volume, ahead)).is_none() {
                self.load_page(span.volume, ahead, Waiter::Nobody);
            }
        }
        self.load_page(span.volume, page, Waiter::Query(token, span, query));
    }
}

/// Whether the run goes on with a block from `source`.
fn continues(run: &ResolvedRun, source: Source) -> bool {
    match (run.source, source) {
        (Source::Stored(first), Source::Stored(pvbn)) => first.plus(run.count) == pvbn,
        (Source::Dirty, Source::Dirty) => true,
        _ => false,
    }
}

fn status_runs(runs: &[(u64, Target)]) -> Vec<StatusRun> {
    let mut merged: Vec<StatusRun> = Vec::new();
    for (count, target) in runs {
        let mapped = *target != Target::Hole;
        match merged.last_mut() {
            Some(last) if last.mapped == mapped => last.count += count,
            _ => merged.push(StatusRun { count: *count, mapped }),
        }
    }
    merged
}
