//! Clients that change blocks in part, and write zeroes with ragged ends: what the world does for the core on the way,
//! and what must come of it.

use crate::faults::change::Change;
use crate::faults::contents::ZERO;
use crate::faults::operation::Operation;
use crate::faults::request::{Kind, Request};
use crate::faults::scenario::Canary;
use crate::faults::world::World;
use tombolo_base::{FlushMode, VolumeId};
use tombolo_core::{Event, PartialWrite, Span, Token};

/// Zeroes may reach over more blocks than one write brings.
const ZEROES_BLOCKS_MAX: u64 = 40;

impl World {
    pub(crate) fn ask_partial_write(&mut self, client: usize, volume: VolumeId, blocks: u64) {
        let writes_zeroes = self.clients.prng.chance(400);
        let count_max = if writes_zeroes {
            ZEROES_BLOCKS_MAX
        } else {
            self.scenario.write_blocks_max
        };
        let span = self.span(volume, blocks, count_max);
        if span.count == 0 {
            return self.ask_flush(client, FlushMode::Local);
        }
        let has_head = self.clients.prng.chance(600);
        let has_tail = !has_head || (span.count > 1 && self.clients.prng.chance(500));
        let middle = Span {
            first: span.first + u64::from(has_head),
            count: span.count - u64::from(has_head) - u64::from(has_tail),
            ..span
        };
        let edge = |world: &mut Self, first| {
            let token = world.clients.token();
            let block = Span {
                first,
                count: 1,
                ..span
            };
            world.model.begin_read(token, block);
            world.keep(token, client, Kind::Edge, block, vec![ZERO]);
            token
        };
        let write = PartialWrite {
            span,
            head: has_head.then(|| edge(self, span.first)),
            tail: has_tail.then(|| edge(self, span.end() - 1)),
            zeroes: (writes_zeroes && middle.count > 0).then_some(middle),
            force_unit_access: self.clients.prng.chance(150),
        };
        let values = self.fresh_values(write.written().iter().map(|span| span.count).sum());
        let token = self.clients.token();
        self.keep(token, client, Kind::Partial(write), span, values);
        let write = self.perhaps_split_zeroes(client, write);
        self.step(Event::WritePartly { token, write });
    }

    /// The canary sends the whole blocks ahead of the ragged one.
    fn perhaps_split_zeroes(&mut self, client: usize, write: PartialWrite) -> PartialWrite {
        let ragged: Vec<Span> = write.written().into_iter().filter(|span| span.count > 0).collect();
        match (self.scenario.canary, write.zeroes, &ragged[..]) {
            (Some(Canary::SplitZeroes), Some(zeroes), [span]) => {
                let force_unit_access = false;
                self.ask(client, Kind::Zero { force_unit_access }, zeroes, Vec::new());
                PartialWrite {
                    span: *span,
                    zeroes: None,
                    ..write
                }
            }
            _ => write,
        }
    }

    pub(crate) fn begin_merge(&mut self, token: Token) {
        let delays = &self.scenario.delays;
        let micros = delays.of(delays.hash, &mut self.prng);
        self.schedule(micros, Operation::Merge { token });
    }

    /// The blocks' new values stand for the old ones with the client's bytes over them; so nobody may change the old
    /// ones before the write takes effect.
    pub(crate) fn merge(&mut self, token: Token) {
        let request = &self.requests[&token];
        let (values, is_cancelled) = (request.values.clone(), request.is_cancelled);
        let Kind::Partial(write) = request.kind else { return };
        let mut before = Vec::new();
        for edge in [write.head, write.tail].into_iter().flatten() {
            let Some(read) = self.requests.remove(&edge) else {
                continue;
            };
            before.push((read.span.first, read.values[0]));
            self.model.check_read(edge, &read.values);
        }
        if !is_cancelled {
            self.model.expect(token, write, values.clone(), before);
        }
        let sums = self.sums(&values);
        self.step(Event::Merged { token, sums });
    }

    /// It is over, or nobody waits for it any more: so are the reads of its edges.
    pub(crate) fn forget_edges(&mut self, request: &Request) {
        let Kind::Partial(write) = request.kind else { return };
        for edge in [write.head, write.tail].into_iter().flatten() {
            self.model.end_read(edge);
            self.requests.remove(&edge);
        }
    }

    pub(crate) fn acknowledge_partial(&mut self, write: PartialWrite, request: &Request) {
        let change = Change::Partial {
            write,
            values: &request.values,
        };
        self.model
            .acknowledge(request.since, &change, self.forced_mode(request));
    }
}
