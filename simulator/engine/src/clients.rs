//! Virtual clients: what they ask for, how they react, and whether each answer is one that the core may give.

use crate::contents::{Block, Value, ZERO, bytes_of, value_of};
use crate::model::Change;
use crate::operation::Operation;
use crate::scenario::Scenario;
use crate::world::World;
use std::collections::{BTreeMap, VecDeque};
use tombolo_base::{BlockSum, Prng, Pvbn, VolumeId};
use tombolo_core::{Answer, Event, Refusal, Span, StatusRun, Token};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write {
        force_unit_access: bool,
    },
    Zero {
        force_unit_access: bool,
    },
    Flush {
        covers: u64,
    },
    Status,
    /// A partial write: lock, read (under a token of its own), write.
    Partial(Stage),
    /// The read of the partial write that holds the lock.
    PartialRead {
        lock: Token,
    },
    Create {
        name: String,
        blocks: u64,
    },
    Resize {
        blocks: u64,
    },
    Delete,
    /// A read of the final check.
    Verify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Locking,
    Reading,
    Writing,
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

impl Request {
    /// Takes in what was read from slots; the other blocks read as zeroes.
    pub fn fill(&mut self, read: BTreeMap<usize, Block>) {
        if !matches!(self.kind, Kind::Read | Kind::PartialRead { .. } | Kind::Verify) {
            return;
        }
        self.values = vec![ZERO; self.span.count as usize];
        for (index, bytes) in read {
            self.values[index] = value_of(&bytes).unwrap_or(Value::MAX);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Clients {
    prng: Prng,
    next_token: u64,
    next_value: Value,
    pub requests_left: u64,
    pub answered: u64,
    /// Spans of the final check that are still to be read, and how often one was refused for now.
    pub to_verify: VecDeque<Span>,
    pub verify_refusals: u64,
    names: u64,
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
        }
    }

    /// Connections do not survive the gateway.
    pub fn reset(&mut self) {}

    fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// A third zeroes or common values, which deduplicate; the rest never seen before.
    fn value(&mut self, common_values: u64) -> Value {
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
                let span = self.span(volume, blocks, 40);
                let force_unit_access = self.clients.prng.chance(300);
                self.ask(client, Kind::Zero { force_unit_access }, span, Vec::new());
            }
            810..=859 => self.ask_flush(client),
            860..=929 => {
                let span = self.span(volume, blocks, 2.min(self.scenario.write_blocks_max));
                self.ask(client, Kind::Partial(Stage::Locking), span, Vec::new());
            }
            930..=949 => {
                let span = self.span(volume, blocks, blocks.max(1));
                self.ask(client, Kind::Status, span, Vec::new());
            }
            950..=964 => self.cancel_one(client),
            965..=974 => self.ask_resize(client, volume, blocks),
            975..=977 => {
                let nothing = no_span(volume);
                self.ask(client, Kind::Delete, nothing, Vec::new());
            }
            978..=987 => {
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
    fn span(&mut self, volume: VolumeId, blocks: u64, count_max: u64) -> Span {
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
        self.ask(client, Kind::Write { force_unit_access }, span, values);
    }

    fn fresh_values(&mut self, count: u64) -> Vec<Value> {
        (0..count)
            .map(|_| self.clients.value(self.scenario.common_values))
            .collect()
    }

    fn ask_flush(&mut self, client: usize) {
        let covers = self.model.acknowledged();
        self.ask(client, Kind::Flush { covers }, no_span(VolumeId(0)), Vec::new());
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
        self.ask(client, Kind::Create { name, blocks }, no_span(VolumeId(0)), Vec::new());
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
                && !matches!(request.kind, Kind::PartialRead { .. } | Kind::Verify)
            {
                request.is_cancelled = true;
                let (token, other) = (*token, request.client);
                self.step(Event::Cancel { token });
                self.client_rests(other);
            }
        }
        self.client_rests(client);
    }

    pub(crate) fn ask(&mut self, client: usize, kind: Kind, span: Span, values: Vec<Value>) -> Token {
        let token = self.clients.token();
        let is_read = matches!(
            kind,
            Kind::Read | Kind::Status | Kind::PartialRead { .. } | Kind::Verify
        );
        if is_read {
            self.model.begin_read(token, span);
        }
        let sums = self.sums(&values);
        let event = event_of(token, &kind, span, sums);
        let request = Request {
            kind,
            client,
            span,
            values: if is_read {
                vec![ZERO; span.count as usize]
            } else {
                values
            },
            since: self.model.number(),
            at: self.now,
            is_cancelled: false,
        };
        self.requests.insert(token, request);
        self.step(event);
        token
    }

    fn sums(&mut self, values: &[Value]) -> Vec<Option<BlockSum>> {
        let sum = |value: &Value| (*value != ZERO).then(|| BlockSum::of(&bytes_of(*value)));
        let sums: Vec<Option<BlockSum>> = values.iter().map(sum).collect();
        for (sum, value) in sums.iter().zip(values) {
            if let Some(sum) = sum {
                self.model.know_sum(sum.0, *value);
            }
        }
        sums
    }

    pub(crate) fn on_answer(&mut self, token: Token, result: Result<Answer, Refusal>) {
        let Some(request) = self.requests.remove(&token) else {
            panic!("{token:?} is answered twice, or was never asked: {result:?}");
        };
        self.clients.answered += 1;
        if request.is_cancelled {
            return self.forget_cancelled(token, request);
        }
        match result {
            Ok(answer) => self.on_success(token, request, answer),
            Err(refusal) => self.on_refusal(token, request, &refusal),
        }
    }

    /// The client has gone; what the request did or not is for the journal to say.
    fn forget_cancelled(&mut self, token: Token, request: Request) {
        self.model.end_read(token);
        if request.kind == Kind::Partial(Stage::Locking) {
            // Answered in the same step in which it was cancelled, or refused: either way nothing is held.
            self.model.end_expectation(token);
        }
    }

    fn on_success(&mut self, token: Token, request: Request, answer: Answer) {
        let (span, since) = (request.span, request.since);
        match (&request.kind, answer) {
            (Kind::Read, Answer::Read) => self.model.check_read(token, &request.values),
            (Kind::Verify, Answer::Read) => {
                self.model.check_read(token, &request.values);
                return self.verify_next();
            }
            (Kind::PartialRead { lock }, Answer::Read) => {
                self.model.check_read(token, &request.values);
                return self.write_part(*lock, request.values);
            }
            (Kind::Write { force_unit_access }, Answer::Done) => {
                let change = Change::Write(span, &request.values);
                self.model.acknowledge(since, &change, *force_unit_access);
            }
            (Kind::Partial(Stage::Writing), Answer::Done) => {
                self.model
                    .acknowledge(since, &Change::Write(span, &request.values), false);
            }
            (Kind::Partial(Stage::Locking), Answer::Locked) => return self.read_part(token, request),
            (Kind::Zero { force_unit_access }, Answer::Done) => {
                if span.count > 0 {
                    self.model.acknowledge(since, &Change::Zero(span), *force_unit_access);
                }
            }
            (Kind::Flush { covers }, Answer::Done) => self.model.on_flushed(*covers),
            (Kind::Status, Answer::Status(runs)) => self.check_status(token, span, &runs),
            (Kind::Create { name, blocks }, Answer::Volume(_)) => {
                self.model.acknowledge(since, &Change::Create(name, *blocks), true);
            }
            (Kind::Resize { blocks }, Answer::Volume(_)) => {
                let change = Change::Resize(span.volume, *blocks);
                self.model.acknowledge(since, &change, true);
            }
            (Kind::Delete, Answer::Volume(_)) => self.model.acknowledge(since, &Change::Delete(span.volume), true),
            (kind, answer) => panic!("{kind:?} is answered by {answer:?}"),
        }
        self.client_rests(request.client);
    }

    fn check_status(&mut self, token: Token, span: Span, runs: &[StatusRun]) {
        let told: u64 = runs.iter().map(|run| run.count).sum();
        assert!(
            told <= span.count && (told > 0 || span.count == 0),
            "a status of {} blocks tells of {told}",
            span.count
        );
        let mapped = runs
            .iter()
            .flat_map(|run| std::iter::repeat_n(run.mapped, run.count as usize));
        self.model.check_status(token, mapped);
    }

    fn read_part(&mut self, token: Token, mut request: Request) {
        let (client, span) = (request.client, request.span);
        request.kind = Kind::Partial(Stage::Reading);
        self.requests.insert(token, request);
        self.ask(client, Kind::PartialRead { lock: token }, span, Vec::new());
    }

    fn write_part(&mut self, lock: Token, before: Vec<Value>) {
        let Some(mut request) = self.requests.remove(&lock) else {
            return;
        };
        if request.is_cancelled {
            return;
        }
        let (span, client) = (request.span, request.client);
        if self.clients.prng.chance(100) {
            self.step(Event::Unlock { token: lock });
            return self.client_rests(client);
        }
        let values = self.fresh_values(span.count);
        let sums = self.sums(&values);
        self.model.expect(lock, span, values.clone(), before);
        request.kind = Kind::Partial(Stage::Writing);
        request.values = values;
        request.since = self.model.number();
        self.requests.insert(lock, request);
        self.step(Event::Write {
            token: lock,
            span,
            sums,
            force_unit_access: false,
            locked: true,
        });
    }

    fn on_refusal(&mut self, token: Token, request: Request, refusal: &Refusal) {
        let volume_changed = self.model.end_read(token) || self.volume_changed(&request);
        self.model.end_expectation(token);
        assert!(
            self.may_refuse(&request, refusal, volume_changed),
            "{:?} of {:?} is refused without a reason: {refusal}",
            request.kind,
            request.span
        );
        match request.kind {
            Kind::PartialRead { lock } => {
                if let Some(locked) = self.requests.remove(&lock)
                    && !locked.is_cancelled
                {
                    self.step(Event::Unlock { token: lock });
                    self.client_rests(locked.client);
                }
            }
            Kind::Verify => {
                self.clients.verify_refusals += 1;
                if !matches!(refusal, Refusal::Lost { .. }) {
                    assert!(
                        self.clients.verify_refusals < 1_000,
                        "reads are refused for ever: {refusal}"
                    );
                    self.clients.to_verify.push_back(request.span);
                } else if request.span.count > 1 {
                    let blocks = request.span.first..request.span.end();
                    let single = blocks.map(|first| Span {
                        first,
                        count: 1,
                        ..request.span
                    });
                    self.clients.to_verify.extend(single);
                }
                self.verify_next();
            }
            _ => self.client_rests(request.client),
        }
    }

    fn volume_changed(&self, request: &Request) -> bool {
        self.model.volume_changed_since(request.span.volume, request.since)
    }

    fn may_refuse(&self, request: &Request, refusal: &Refusal, volume_changed: bool) -> bool {
        let volume = self.model.volumes().get(&request.span.volume);
        match refusal {
            Refusal::OutOfRange { .. } => {
                volume_changed || volume.is_some_and(|volume| request.span.end() > volume.values.len() as u64)
            }
            Refusal::UnknownVolume(_) => volume_changed || volume.is_none(),
            Refusal::VolumeExists(name) => {
                matches!(request.kind, Kind::Create { .. })
                    && self.model.volumes().values().any(|volume| volume.name == *name)
            }
            Refusal::TooLarge(_) => false,
            Refusal::Busy => matches!(request.kind, Kind::Write { .. } | Kind::Partial(Stage::Writing)),
            Refusal::CloudUnavailable(_) => self.life.store_faults > 0,
            // A failed sync may have dropped what was never flushed; the restart will find out.
            Refusal::Lost { pvbn, .. } => self.life.has_failed || self.may_be_lost(*pvbn),
            Refusal::Disk(_) => self.life.disk_faults > 0,
            Refusal::Metadata(_) => self.life.metadata_faults > 0,
            Refusal::Failed(_) => self.life.has_failed,
        }
    }

    /// Only what a flipped bit has reached: in the object, or in the only copy there was.
    fn may_be_lost(&self, pvbn: Pvbn) -> bool {
        self.store.is_damaged(pvbn) || (self.rotten.contains(&pvbn) && !self.life.confirmed_pvbns.contains(&pvbn))
    }

    /// Reads the next span of the final check.
    pub(crate) fn verify_next(&mut self) {
        if let Some(span) = self.clients.to_verify.pop_front() {
            self.ask(usize::MAX, Kind::Verify, span, Vec::new());
        }
    }
}

fn no_span(volume: VolumeId) -> Span {
    Span {
        volume,
        first: 0,
        count: 0,
    }
}

fn event_of(token: Token, kind: &Kind, span: Span, sums: Vec<Option<BlockSum>>) -> Event {
    match kind {
        Kind::Read | Kind::PartialRead { .. } | Kind::Verify => Event::Read { token, span },
        Kind::Write { force_unit_access } => Event::Write {
            token,
            span,
            sums,
            force_unit_access: *force_unit_access,
            locked: false,
        },
        Kind::Zero { force_unit_access } => Event::Zero {
            token,
            span,
            force_unit_access: *force_unit_access,
        },
        Kind::Flush { .. } => Event::Flush { token },
        Kind::Status => Event::Status { token, span },
        Kind::Partial(_) => Event::Lock { token, span },
        Kind::Create { name, blocks } => Event::VolumeCreate {
            token,
            name: name.clone(),
            blocks: *blocks,
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
