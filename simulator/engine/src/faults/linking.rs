//! Clients that link, as the file service does: a [`Link`] says what it needs, and the next request of its client, or a
//! look at local metadata some time later, brings that.

use crate::faults::change::Change;
use crate::faults::clients::no_span;
use crate::faults::contents::Value;
use crate::faults::operation::Operation;
use crate::faults::request::{Kind, Request};
use crate::faults::world::World;
use tombolo_base::VolumeId;
use tombolo_core::{Answer, Link, LinkRun, LinkStep, MetadataChange, Span, Token};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Linking {
    link: Link,
    is_exclusive: bool,
    pub stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Local metadata is being looked at.
    Looking,
    Resolving,
    Reading {
        to: Span,
    },
    Copying,
    Committing {
        change: MetadataChange,
        links: Vec<LinkRun>,
    },
}

impl Linking {
    pub fn new(link: Link, is_exclusive: bool) -> Self {
        Self {
            link,
            is_exclusive,
            stage: Stage::Looking,
        }
    }

    pub fn holds(&self, file: VolumeId) -> bool {
        self.is_exclusive && self.spans().iter().any(|span| span.volume == file)
    }

    pub fn spans(&self) -> [Span; 2] {
        [self.link.from(), self.link.to()]
    }

    pub fn change(&self) -> &MetadataChange {
        self.link.change()
    }
}

impl World {
    pub(crate) fn go_on_linking(&mut self, client: usize, mut linking: Box<Linking>) {
        let (stage, span) = match linking.link.step(&self.core) {
            LinkStep::StoredPage { volume, page } => {
                linking.stage = Stage::Looking;
                let token = self.clients.token();
                self.keep(token, client, Kind::Link(linking), no_span(volume), Vec::new());
                let micros = self.metadata_micros();
                return self.schedule(micros, Operation::LinkLooks { token, volume, page });
            }
            LinkStep::Resolve(span) => (Stage::Resolving, span),
            LinkStep::Copy { from, to } => (Stage::Reading { to }, from),
            LinkStep::Commit { change, links } => {
                let nothing = Span {
                    count: 0,
                    ..linking.link.to()
                };
                (Stage::Committing { change, links }, nothing)
            }
        };
        linking.stage = stage;
        self.ask(client, Kind::Link(linking), span, Vec::new());
    }

    pub(crate) fn link_has_looked(&mut self, token: Token, volume: VolumeId, page: u64) {
        let page = self.next_stored_page(volume, page);
        if let Some(Request {
            kind: Kind::Link(mut linking),
            client,
            ..
        }) = self.requests.remove(&token)
        {
            linking.link.on_stored_page(page);
            self.go_on_linking(client, linking);
        }
    }

    /// A stage is done.
    pub(crate) fn on_link_answer(&mut self, token: Token, request: Request, answer: Answer) {
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
        match (linking.stage.clone(), answer) {
            (Stage::Resolving, Answer::Resolved(runs)) => {
                assert!(!runs.is_empty(), "a resolution tells something");
                self.model.check_resolved(token, &runs);
                linking.link.on_resolved(&runs);
            }
            (Stage::Reading { to }, Answer::Read) => {
                self.model.check_read(token, &values);
                linking.stage = Stage::Copying;
                self.ask(client, Kind::Link(linking), to, values);
                return;
            }
            (Stage::Copying, Answer::Done) => {
                let change = &MetadataChange::default();
                let values = &values;
                let copy = Change::Write { span, values, change };
                self.model.acknowledge(since, &copy, None);
                linking.link.on_copied();
            }
            (Stage::Committing { change, links }, Answer::Committed) => {
                let (change, links) = (&change, &links[..]);
                self.model.acknowledge(since, &Change::Commit { change, links }, None);
                self.check_link(&linking);
                return self.client_rests(client);
            }
            (stage, answer) => panic!("{stage:?} of a link is answered by {answer:?}"),
        }
        self.go_on_linking(client, linking);
    }

    /// Nobody else has touched the two files.
    fn check_link(&self, linking: &Linking) {
        let [from, to] = linking.spans();
        let mapped = |span: Span| -> Vec<(u64, Value)> {
            let blocks = self.model.state().mapped(span);
            blocks.map(|(block, value)| (block - span.first, value)).collect()
        };
        if linking.is_exclusive {
            assert_eq!(mapped(to), mapped(from), "a link makes {to:?} the same as {from:?}");
        }
    }
}
