//! Virtual clients: what they ask for, and when. What those of the file service ask for is in `files`, `linking` and
//! `scans`.

use crate::faults::contents::{Value, ZERO};
use crate::faults::operation::Operation;
use crate::faults::request::{Kind, Request, event_of};
use crate::faults::scenario::{Canary, Scenario};
use crate::faults::service::thread_of;
use crate::faults::world::World;
use std::collections::VecDeque;
use tombolo_base::{BlockSum, FlushMode, Prng, VolumeId};
use tombolo_core::{Event, Lanes, MetadataChange, Span, Token};

#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub prng: Prng,
    next_token: u64,
    next_value: Value,
    pub requests_left: u64,
    pub answered: u64,
    /// Spans of the final check that are still to be read, and how often one was refused for now.
    pub to_verify: VecDeque<Span>,
    pub verify_refusals: u64,
    names: u64,
    pub next_stamp: u64,
    next_number: u64,
}

/// One request of a read or write that the clients have open at most this long is a hang.
pub(crate) const REQUEST_MICROS_MAX: u64 = 1_200_000_000;

impl Clients {
    pub fn new(prng: Prng, scenario: &Scenario) -> Self {
        Self {
            prng,
            next_token: 0,
            next_value: 1_000_000,
            requests_left: scenario.request_count,
            answered: 0,
            to_verify: VecDeque::new(),
            verify_refusals: 0,
            names: 0,
            next_stamp: 0,
            next_number: 0,
        }
    }

    pub fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// Names a look at entries.
    pub fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// A third zeroes or common values, which deduplicate; the rest never seen before.
    pub fn value(&mut self, common_values: u64) -> Value {
        match self.prng.below(10) {
            0 => ZERO,
            1..=4 => 1 + self.prng.below(common_values),
            _ => {
                self.next_value += 1;
                self.next_value
            }
        }
    }
}

impl World {
    pub(crate) fn client_wakes(&mut self, client: usize) {
        if self.clients.requests_left == 0 || self.is_calm {
            return;
        }
        self.clients.requests_left -= 1;
        if self.model.volumes().len() < self.scenario.volume_count || self.clients.prng.chance(8) {
            return self.ask_create(client);
        }
        if self.clients.prng.chance(self.scenario.file_work_permille) {
            return self.work_on_files(client);
        }
        let volumes = self.model.volumes();
        let index = self.clients.prng.below(volumes.len() as u64) as usize;
        let Some((volume, blocks)) = volumes
            .iter()
            .nth(index)
            .map(|(volume, found)| (*volume, found.values.len() as u64))
        else {
            return self.ask_create(client);
        };
        match self.clients.prng.below(1000) {
            0..=379 => {
                let span = self.span(volume, blocks, self.scenario.read_blocks_max);
                self.ask(client, Kind::Read, span, Vec::new());
            }
            380..=739 => self.ask_write(client, volume, blocks),
            740..=809 => {
                let whole = self.clients.prng.chance(150);
                let span = self.span(volume, blocks, if whole { blocks.max(1) } else { 40 });
                let force_unit_access = self.clients.prng.chance(300);
                self.ask(client, Kind::Zero { force_unit_access }, span, Vec::new());
            }
            810..=859 => {
                let mode = self.model.state().flush_mode(volume);
                self.ask_flush(client, mode);
            }
            860..=929 => {
                self.ask_partial_write(client, volume, blocks);
            }
            930..=949 => {
                let span = self.span(volume, blocks, blocks.max(1));
                self.ask(client, Kind::Status, span, Vec::new());
            }
            950..=964 => self.cancel_one(client),
            965..=972 => self.ask_resize(client, volume, blocks),
            973..=974 => {
                let flush = self.draw_flush_mode();
                self.ask(client, Kind::SetFlushMode(flush), no_span(volume), Vec::new());
            }
            975..=977 => {
                let nothing = no_span(volume);
                self.ask(client, Kind::Delete, nothing, Vec::new());
            }
            978..=983 => {
                let mut below = |most| self.prng.below(most) as usize;
                let lanes = Lanes {
                    uploads: below(6),
                    fetches: below(8),
                    upload_blocks: below(400),
                    fetch_blocks: below(400),
                };
                self.step(Event::Lanes(lanes));
                self.client_rests(client);
            }
            984..=991 => {
                self.step(Event::Drain);
                self.client_rests(client);
            }
            _ => {
                self.step(Event::CheckpointNow);
                self.client_rests(client);
            }
        }
    }

    pub(crate) fn client_rests(&mut self, client: usize) {
        let think = self.scenario.delays.client_think;
        let micros = self.scenario.delays.of(think, &mut self.prng);
        self.schedule(micros, Operation::ClientWakes(client));
    }

    /// Half of the spans begin within a few hot blocks; sometimes one is empty, or lies beyond the end.
    pub(crate) fn span(&mut self, volume: VolumeId, blocks: u64, count_max: u64) -> Span {
        let prng = &mut self.clients.prng;
        let reach = if prng.chance(500) { blocks.min(24) } else { blocks };
        let first = prng.below(reach.max(1));
        let mut count = 1 + prng.below(count_max);
        if prng.chance(10) {
            count = 0;
        }
        if !prng.chance(10) {
            count = count.min(blocks - first.min(blocks));
        }
        Span { volume, first, count }
    }

    fn ask_write(&mut self, client: usize, volume: VolumeId, blocks: u64) {
        let span = self.span(volume, blocks, self.scenario.write_blocks_max);
        let values = self.fresh_values(span.count);
        let force_unit_access = self.clients.prng.chance(150);
        let kind = Kind::Write {
            force_unit_access,
            change: MetadataChange::default(),
        };
        self.ask(client, kind, span, values);
    }

    pub(crate) fn ask_flush(&mut self, client: usize, mode: FlushMode) {
        let covers = self.model.acknowledged();
        let nothing = no_span(VolumeId(0));
        self.ask(client, Kind::Flush { covers, mode }, nothing, Vec::new());
    }

    pub(crate) fn draw_flush_mode(&mut self) -> FlushMode {
        match self.clients.prng.chance(self.scenario.flush_to_bucket_permille) {
            true => FlushMode::Bucket,
            false => FlushMode::Local,
        }
    }

    fn ask_create(&mut self, client: usize) {
        self.clients.names += 1;
        let number = if self.clients.prng.chance(100) {
            1
        } else {
            self.clients.names
        };
        let name = format!("volume-{number}");
        let blocks = self.clients.prng.below(self.scenario.volume_blocks_max);
        let flush = self.draw_flush_mode();
        let nothing = no_span(VolumeId(0));
        self.ask(client, Kind::Create { name, blocks, flush }, nothing, Vec::new());
    }

    fn ask_resize(&mut self, client: usize, volume: VolumeId, blocks: u64) {
        let bound = if self.clients.prng.chance(500) {
            blocks + 1
        } else {
            self.scenario.volume_blocks_max
        };
        let blocks = self.clients.prng.below(bound);
        self.ask(client, Kind::Resize { blocks }, no_span(volume), Vec::new());
    }

    fn cancel_one(&mut self, client: usize) {
        let count = self.requests.len() as u64;
        if count > 0 {
            let index = self.clients.prng.below(count) as usize;
            if let Some((token, request)) = self.requests.iter_mut().nth(index)
                && !request.is_cancelled
                && !matches!(request.kind, Kind::Edge | Kind::Verify)
                && request.span.volume.inode().is_none()
                && thread_of(request.client).is_none()
            {
                request.is_cancelled = true;
                let (token, other) = (*token, request.client);
                if let Kind::Partial(write) = request.kind {
                    let edges = [write.head, write.tail].into_iter().flatten();
                    edges.for_each(|edge| self.cancel_edge(edge));
                }
                self.model.end_expectation(token);
                self.step(Event::Cancel { token });
                if self
                    .requests
                    .get(&token)
                    .is_some_and(|request| request.kind == Kind::Read)
                {
                    self.requests.remove(&token);
                    self.model.end_read(token);
                }
                self.client_rests(other);
            }
        }
        self.client_rests(client);
    }

    /// What is read of it goes nowhere.
    fn cancel_edge(&mut self, edge: Token) {
        if let Some(request) = self.requests.get_mut(&edge) {
            request.is_cancelled = true;
        }
    }

    pub(crate) fn ask(&mut self, client: usize, kind: Kind, span: Span, values: Vec<Value>) -> Token {
        let token = self.clients.token();
        let is_read = kind.is_read();
        if is_read || kind.is_query() {
            self.model.begin_read(token, span);
        }
        let sums = self.sums(&values);
        let mut event = event_of(token, client, &kind, span, sums);
        if self.scenario.canary == Some(Canary::SplitChange) {
            self.split_change(client, &mut event);
        }
        if self.scenario.canary == Some(Canary::FlushToDiskAlone)
            && let Event::Flush { mode, .. } = &mut event
        {
            *mode = FlushMode::Local;
        }
        let values = if is_read {
            vec![ZERO; span.count as usize]
        } else {
            values
        };
        self.keep(token, client, kind, span, values);
        self.step(event);
        token
    }

    /// The request is under way.
    pub(crate) fn keep(&mut self, token: Token, client: usize, kind: Kind, span: Span, values: Vec<Value>) {
        let request = Request {
            kind,
            client,
            span,
            values,
            since: self.model.number(),
            at: self.now,
            is_cancelled: false,
        };
        self.requests.insert(token, request);
    }

    pub(crate) fn sums(&mut self, values: &[Value]) -> Vec<Option<BlockSum>> {
        let sum = |value: &Value| (*value != ZERO).then(|| BlockSum::of(&self.contents.bytes_of(*value)));
        let sums: Vec<Option<BlockSum>> = values.iter().map(sum).collect();
        for (sum, value) in sums.iter().zip(values) {
            if let Some(sum) = sum {
                self.model.know_sum(sum.0, *value);
            }
        }
        sums
    }
}

pub(crate) fn no_span(volume: VolumeId) -> Span {
    Span {
        volume,
        first: 0,
        count: 0,
    }
}
