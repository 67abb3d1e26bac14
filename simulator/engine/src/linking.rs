//! A link as the gateway makes it for the file service: what the source's blocks are mapped to, then a copy of those
//! that are not in the cloud yet, through the cache, then one commit of the others with holes and entries.

use crate::change::Change;
use crate::contents::Value;
use crate::request::{Kind, Request};
use crate::world::World;
use std::collections::VecDeque;
use tombolo_base::VolumeId;
use tombolo_core::{Answer, LinkRun, MetadataChange, ResolvedRun, Source, Span, Token};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Linking {
    from: Span,
    to: Span,
    is_exclusive: bool,
    /// Blocks from the beginning of the span on that are resolved.
    resolved: u64,
    /// Parts of the source that are to be copied; the first is under way.
    copies: VecDeque<Span>,
    change: MetadataChange,
    links: Vec<LinkRun>,
    pub stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Resolving,
    Reading,
    Copying,
    Committing,
}

impl Linking {
    pub fn new(from: Span, to: Span, is_exclusive: bool, change: MetadataChange) -> Self {
        Self {
            from,
            to,
            is_exclusive,
            resolved: 0,
            copies: VecDeque::new(),
            change,
            links: Vec::new(),
            stage: Stage::Resolving,
        }
    }

    pub fn holds(&self, file: VolumeId) -> bool {
        self.is_exclusive && (self.from.volume == file || self.to.volume == file)
    }

    pub fn spans(&self) -> [Span; 2] {
        [self.from, self.to]
    }

    pub fn metadata(&self) -> (&MetadataChange, &[LinkRun]) {
        (&self.change, &self.links)
    }

    fn is_resolved(&self) -> bool {
        self.resolved == self.from.count
    }

    fn rest(&self) -> Span {
        Span {
            first: self.from.first + self.resolved,
            count: self.from.count - self.resolved,
            ..self.from
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

    fn take_run(&mut self, run: ResolvedRun, copy_blocks_max: u64) {
        let part = Span {
            count: run.count,
            ..self.rest()
        };
        self.resolved += run.count;
        let target = self.target_of(part);
        match run.source {
            Source::Hole => self.change.holes.push(target),
            Source::Stored(pvbn) => self.links.push(LinkRun {
                volume: target.volume,
                first: target.first,
                count: target.count,
                pvbn,
            }),
            Source::Dirty => {
                for done in (0..part.count).step_by(copy_blocks_max as usize) {
                    self.copies.push_back(Span {
                        first: part.first + done,
                        count: copy_blocks_max.min(part.count - done),
                        ..part
                    });
                }
            }
        }
    }
}

impl World {
    pub(crate) fn begin_linking(&mut self, client: usize, linking: Linking) {
        let span = linking.rest();
        self.ask(client, Kind::Link(Box::new(linking)), span, Vec::new());
    }

    /// A stage is done.
    pub(crate) fn go_on_linking(&mut self, token: Token, request: Request, answer: Answer) {
        let Request {
            kind: Kind::Link(mut linking),
            client,
            span,
            values,
            since,
            ..
        } = request
        else {
            return;
        };
        match (linking.stage, answer) {
            (Stage::Resolving, Answer::Resolved(runs)) => {
                assert!(!runs.is_empty() || span.count == 0, "a resolution tells something");
                self.model.check_resolved(token, &runs);
                for run in runs {
                    linking.take_run(run, self.scenario.write_blocks_max);
                }
            }
            (Stage::Reading, Answer::Read) => {
                self.model.check_read(token, &values);
                let target = linking.target_of(span);
                linking.stage = Stage::Copying;
                self.ask(client, Kind::Link(linking), target, values);
                return;
            }
            (Stage::Copying, Answer::Done) => {
                let change = &MetadataChange::default();
                let values = &values;
                let copy = Change::Write { span, values, change };
                self.model.acknowledge(since, &copy, false);
                linking.copies.pop_front();
            }
            (Stage::Committing, Answer::Committed) => {
                self.acknowledge_link(&linking, since);
                return self.client_rests(client);
            }
            (stage, answer) => panic!("{stage:?} of a link is answered by {answer:?}"),
        }
        self.ask_next_stage(client, linking);
    }

    fn ask_next_stage(&mut self, client: usize, mut linking: Box<Linking>) {
        let (stage, span) = if !linking.is_resolved() {
            (Stage::Resolving, linking.rest())
        } else if let Some(part) = linking.copies.front() {
            (Stage::Reading, *part)
        } else {
            let nothing = Span { count: 0, ..linking.to };
            (Stage::Committing, nothing)
        };
        linking.stage = stage;
        self.ask(client, Kind::Link(linking), span, Vec::new());
    }

    fn acknowledge_link(&mut self, linking: &Linking, since: u64) {
        let (change, links) = linking.metadata();
        self.model.acknowledge(since, &Change::Commit { change, links }, false);
        if linking.is_exclusive {
            let values = |span: Span| -> Vec<Value> { self.model.state().values(span) };
            assert_eq!(
                values(linking.to),
                values(linking.from),
                "a link makes {:?} the same as {:?}",
                linking.to,
                linking.from
            );
        }
    }
}
