//! A store whose latency grows with what is asked of it.
//!
//! A request travels half a round trip, waits for one of its partition's servers, is served, crosses the link together with
//! all others that are on it, each with the same share, and travels back. Refusals are answered at once. Losses are found out
//! by a transport that sends again after a time that doubles.

use super::events::Events;
use super::job::StoreSpec;
use crate::random;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tombolo_base::Prng;

/// Which request, until it has been answered.
pub(super) type Ticket = u32;

/// What is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Request {
    pub partition: u32,
    pub operations: u32,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StoreEvent {
    Arrived(Ticket),
    Served(Ticket),
    /// The next one leaves the link, unless something came between.
    LinkDue(u64),
    /// The link has another rate from here on.
    RateChanged,
    Answered(Ticket, bool),
}

#[derive(Debug, Default)]
struct Partition {
    busy: u32,
    waiting: VecDeque<Ticket>,
}

/// All that is on it gets an equal share, and none more than a connection carries. How much each that has been on it from the
/// beginning would have got is all that has to be known.
#[derive(Debug, Default)]
struct Link {
    bytes_per_us: f64,
    connection_bytes_per_us: f64,
    /// Got by each so far.
    got_bytes: f64,
    at_us: u64,
    /// By what `got_bytes` will be when they are through.
    flows: BinaryHeap<Reverse<(u64, Ticket)>>,
    epoch: u64,
}

/// `got_bytes` in the heap, as whole numbers of 1/1024 byte.
const FRACTION: f64 = 1024.0;

impl Link {
    fn rate(&self, factor: f64) -> f64 {
        (self.bytes_per_us / self.flows.len().max(1) as f64).min(self.connection_bytes_per_us) / factor
    }

    fn advance(&mut self, now: u64, factor: f64) {
        self.got_bytes += self.rate(factor) * now.saturating_sub(self.at_us) as f64;
        self.at_us = now;
    }
}

#[derive(Debug)]
pub(super) struct Store {
    spec: StoreSpec,
    prng: Prng,
    partitions: Vec<Partition>,
    link: Link,
    link_factor: f64,
    requests: Vec<Request>,
    free: Vec<Ticket>,
    /// Requests that may be taken at once, refilled by the rate; and when it was refilled.
    tokens: f64,
    tokens_at: u64,
}

impl Store {
    pub fn new(spec: &StoreSpec, seed: u64) -> Self {
        const BYTES_PER_MIB: f64 = 1_048_576.0;
        let bytes_per_us = |mib_per_s: f64| mib_per_s * BYTES_PER_MIB / 1e6;
        Self {
            prng: Prng::new(seed),
            partitions: (0..spec.partitions).map(|_| Partition::default()).collect(),
            link: Link {
                bytes_per_us: bytes_per_us(spec.link_mib_per_s),
                connection_bytes_per_us: bytes_per_us(spec.connection_mib_per_s),
                ..Link::default()
            },
            link_factor: 1.0,
            requests: Vec::new(),
            free: Vec::new(),
            tokens: spec.requests_per_s_max.unwrap_or(0.0),
            tokens_at: 0,
            spec: spec.clone(),
        }
    }

    /// Changes of the link's rate that are known from the beginning.
    pub fn begin<E: From<StoreEvent>>(&self, events: &mut Events<E>) {
        for period in &self.spec.slow_periods {
            events.add((period.from_s * 1e6) as u64, StoreEvent::RateChanged.into());
            events.add((period.to_s * 1e6) as u64, StoreEvent::RateChanged.into());
        }
    }

    pub fn submit<E: From<StoreEvent>>(&mut self, now: u64, request: Request, events: &mut Events<E>) -> Ticket {
        let ticket = self.free.pop().unwrap_or_else(|| {
            self.requests.push(Request::default());
            self.requests.len() as Ticket - 1
        });
        self.requests[ticket as usize] = request;
        events.add(now + self.half_round_trip_us(), StoreEvent::Arrived(ticket).into());
        ticket
    }

    /// Who is answered, and whether refused.
    pub fn on_event<E: From<StoreEvent>>(
        &mut self,
        now: u64,
        event: StoreEvent,
        events: &mut Events<E>,
    ) -> Option<(Ticket, bool)> {
        match event {
            StoreEvent::Arrived(ticket) => self.arrive(now, ticket, events),
            StoreEvent::Served(ticket) => {
                let partition = self.requests[ticket as usize].partition as usize;
                self.partitions[partition].busy -= 1;
                self.serve(now, partition, events);
                self.link.advance(now, self.link_factor);
                let bytes = self.requests[ticket as usize].bytes as f64;
                let through = ((self.link.got_bytes + bytes) * FRACTION) as u64;
                self.link.flows.push(Reverse((through, ticket)));
                self.await_link(now, events);
            }
            StoreEvent::LinkDue(epoch) if epoch == self.link.epoch => {
                self.link.advance(now, self.link_factor);
                // What is due now is through, whatever rounding says.
                let reached = ((self.link.got_bytes * FRACTION) as u64).saturating_add(FRACTION as u64);
                while let Some(Reverse((through, ticket))) = self.link.flows.peek().copied() {
                    if through > reached {
                        break;
                    }
                    self.link.flows.pop();
                    let answered = now + self.half_round_trip_us() + self.draw_loss_us();
                    events.add(answered, StoreEvent::Answered(ticket, false).into());
                }
                self.await_link(now, events);
            }
            StoreEvent::LinkDue(_) => {}
            StoreEvent::RateChanged => {
                self.link.advance(now, self.link_factor);
                self.link_factor = self.factor(now);
                self.await_link(now, events);
            }
            StoreEvent::Answered(ticket, refused) => {
                self.free.push(ticket);
                return Some((ticket, refused));
            }
        }
        None
    }

    fn arrive<E: From<StoreEvent>>(&mut self, now: u64, ticket: Ticket, events: &mut Events<E>) {
        let partition = self.requests[ticket as usize].partition as usize;
        let is_full = self
            .spec
            .queue_max
            .is_some_and(|most| self.partitions[partition].waiting.len() >= most as usize);
        if is_full || !self.takes_token(now) {
            events.add(
                now + self.half_round_trip_us(),
                StoreEvent::Answered(ticket, true).into(),
            );
            return;
        }
        self.partitions[partition].waiting.push_back(ticket);
        self.serve(now, partition, events);
    }

    /// A bucket that holds the requests of one second.
    fn takes_token(&mut self, now: u64) -> bool {
        let Some(per_s) = self.spec.requests_per_s_max else {
            return true;
        };
        self.tokens = (self.tokens + (now - self.tokens_at) as f64 / 1e6 * per_s).min(per_s);
        self.tokens_at = now;
        let has_one = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(has_one));
        has_one
    }

    fn serve<E: From<StoreEvent>>(&mut self, now: u64, partition: usize, events: &mut Events<E>) {
        while self.partitions[partition].busy < self.spec.servers {
            let Some(ticket) = self.partitions[partition].waiting.pop_front() else {
                return;
            };
            self.partitions[partition].busy += 1;
            let request = self.requests[ticket as usize];
            let usual_ms = self.spec.base_ms + self.spec.per_operation_ms * f64::from(request.operations);
            let drawn = random::unit_lognormal(&mut self.prng, self.spec.sigma) * self.factor(now);
            let served = self.pause_end(now) + ((usual_ms * 1e3 * drawn) as u64).max(1);
            events.add(served, StoreEvent::Served(ticket).into());
        }
    }

    fn await_link<E: From<StoreEvent>>(&mut self, now: u64, events: &mut Events<E>) {
        self.link.epoch += 1;
        if let Some(Reverse((through, _))) = self.link.flows.peek() {
            let missing = (*through as f64 / FRACTION - self.link.got_bytes).max(0.0);
            let due = now + (missing / self.link.rate(self.link_factor)).ceil() as u64;
            events.add(due, StoreEvent::LinkDue(self.link.epoch).into());
        }
    }

    fn half_round_trip_us(&self) -> u64 {
        (self.spec.round_trip_ms * 500.0) as u64
    }

    /// How much slower everything is.
    fn factor(&self, now: u64) -> f64 {
        let now_s = now as f64 / 1e6;
        let slow = self
            .spec
            .slow_periods
            .iter()
            .find(|period| (period.from_s..period.to_s).contains(&now_s));
        slow.map_or(1.0, |period| period.factor)
    }

    /// When what begins now is looked at.
    fn pause_end(&self, now: u64) -> u64 {
        let now_s = now as f64 / 1e6;
        let pause = self
            .spec
            .pauses
            .iter()
            .find(|pause| (pause.at_s..pause.at_s + pause.for_s).contains(&now_s));
        pause.map_or(now, |pause| ((pause.at_s + pause.for_s) * 1e6) as u64)
    }

    fn draw_loss_us(&mut self) -> u64 {
        let mut timeout_us = self.spec.retransmission_ms * 1e3;
        let mut delay_us = 0.0;
        for _ in 0..6 {
            if self.spec.loss_permille == 0 || !self.prng.chance(u64::from(self.spec.loss_permille)) {
                break;
            }
            delay_us += timeout_us;
            timeout_us *= 2.0;
        }
        delay_us as u64
    }
}
