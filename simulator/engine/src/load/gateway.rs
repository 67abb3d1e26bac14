//! A gateway before the store: operations come, are gathered into batches, cut into requests, and sent as far as requests may
//! be in flight.

use super::job::{Batching, Bytes, Calibration, GatewaySpec, Limiter, Source};
use super::rivals::{Bbr, Gradient, Rival, Vegas};
use super::store::Request;
use crate::random;
use std::collections::VecDeque;
use tombolo_base::{Instant, Prng};
use tombolo_flow_control::concurrency::{self, Completion, Concurrency, Outcome};
use tombolo_flow_control::stout::{AlphaRule, BytesRule, Parameters, Stout};

#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub came_us: u64,
    pub bytes: u64,
    key: u32,
}

/// A request on its way, or waiting for its turn.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub operations: Vec<Operation>,
    pub request: Request,
    /// When it was handed over to be sent: what Stout's latencies begin with.
    pub ready_us: u64,
    pub attempts: u32,
}

/// One attempt.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub pending: Pending,
    pub sent_us: u64,
    in_flight: u32,
}

enum Sender {
    None,
    Fixed { interval_us: u64, offset_us: u64 },
    Stout { stout: Box<Stout>, counts_operations: bool },
}

enum Limit {
    Fixed(u32),
    Adaptive(Box<Concurrency>),
    Rival(Box<dyn Rival>),
}

pub(super) struct Gateway {
    pub spec: GatewaySpec,
    prng: Prng,
    partitions: u32,
    sender: Sender,
    limit: Limit,
    gathered: Vec<Operation>,
    next_key: u32,
    /// When the batch that is gathered is looked at.
    pub due_us: Option<u64>,
    queue: VecDeque<Pending>,
    pub in_flight: u32,
    /// Operations that have come and are not done.
    pub backlog: u64,
}

fn parameters(calibration: Calibration) -> Parameters {
    let micros = |ms: f64| (ms * 1e3) as u64;
    match calibration {
        Calibration::Paper => Parameters::PAPER,
        Calibration::Sds => Parameters::SDS,
        Calibration::PacificA => Parameters::PACIFIC_A,
        Calibration::GroupCommit => Parameters::GROUP_COMMIT,
        Calibration::Uploads {
            latency_p50_ms,
            dirty_age_max_ms,
        } => Parameters::uploads(micros(latency_p50_ms), micros(dirty_age_max_ms)),
    }
}

impl Gateway {
    pub fn new(spec: &GatewaySpec, number: usize, partitions: u32, seed: u64) -> Self {
        let mut prng = Prng::new(Prng::new(seed).next_u64() ^ Prng::new(number as u64).next_u64());
        let sender = match &spec.batching {
            Batching::None => Sender::None,
            Batching::FixedMs(ms) => {
                let interval_us = ((ms * 1e3) as u64).max(1);
                Sender::Fixed {
                    interval_us,
                    offset_us: prng.below(interval_us),
                }
            }
            Batching::Stout(stout) => {
                let mut parameters = parameters(stout.calibration);
                if let Some(ms) = stout.initial_ms.get(number % stout.initial_ms.len().max(1)) {
                    parameters.interval_initial_us = (ms * 1e3) as u64;
                }
                if stout.alpha_max_rule {
                    parameters.alpha_rule = AlphaRule::Max;
                }
                parameters.bytes_rule = match stout.bytes {
                    Bytes::Request => BytesRule::Request,
                    Bytes::Interval => BytesRule::Interval,
                    Bytes::Window => BytesRule::Window,
                };
                Sender::Stout {
                    stout: Box::new(Stout::new(parameters, Instant(0))),
                    counts_operations: stout.counts_operations,
                }
            }
        };
        let limit = match spec.limiter {
            Limiter::None => Limit::Fixed(u32::MAX),
            Limiter::Fixed(limit) => Limit::Fixed(limit),
            Limiter::Adaptive(limit_max) => {
                let parameters = concurrency::Parameters {
                    limit_max,
                    ..Default::default()
                };
                Limit::Adaptive(Box::new(Concurrency::new(parameters, Instant(0))))
            }
            Limiter::Gradient(limit_max) => Limit::Rival(Box::new(Gradient::new(limit_max))),
            Limiter::Vegas(limit_max) => Limit::Rival(Box::new(Vegas::new(limit_max))),
            Limiter::Bbr(limit_max) => Limit::Rival(Box::new(Bbr::new(limit_max))),
        };
        Self {
            spec: spec.clone(),
            prng,
            partitions,
            sender,
            limit,
            gathered: Vec::new(),
            next_key: 0,
            due_us: None,
            queue: VecDeque::new(),
            in_flight: 0,
            backlog: 0,
        }
    }

    /// When the next operation comes; none if they come by themselves.
    pub fn next_arrival(&mut self, now: u64) -> Option<u64> {
        let Source::Poisson(steps) = &self.spec.source else {
            return None;
        };
        let mut from_us = now as f64;
        let mut wanted = -(1.0 - random::unit(&mut self.prng)).ln();
        // As much as is wanted of the integral of the rate.
        for (index, (begins_s, rate)) in steps.iter().enumerate() {
            let ends_us = steps.get(index + 1).map_or(f64::MAX, |next| next.0 * 1e6);
            from_us = from_us.max(begins_s * 1e6);
            if ends_us <= from_us || *rate == 0.0 {
                continue;
            }
            let there = (ends_us - from_us) / 1e6 * rate;
            if there >= wanted {
                return Some((from_us + wanted / rate * 1e6) as u64 + 1);
            }
            wanted -= there;
            from_us = ends_us;
        }
        None
    }

    /// How many operations a closed source lacks.
    pub fn lacking(&self, now: u64) -> u64 {
        let Source::Closed(steps) = &self.spec.source else {
            return 0;
        };
        let wanted = steps
            .iter()
            .rev()
            .find(|(from, _)| *from * 1e6 <= now as f64)
            .map_or(0, |step| step.1);
        u64::from(wanted).saturating_sub(self.backlog)
    }

    pub fn on_arrival(&mut self, now: u64) {
        let total: f64 = self.spec.sizes.iter().map(|(_, weight)| weight).sum();
        let mut at = random::unit(&mut self.prng) * total;
        let drawn = self.spec.sizes.iter().find(|(_, weight)| {
            at -= weight;
            at < 0.0
        });
        let bytes = drawn.unwrap_or(&self.spec.sizes[0]).0;
        let key = match self.spec.keys {
            Some(keys) => self.prng.below(u64::from(keys)) as u32,
            None => {
                self.next_key = self.next_key.wrapping_add(1);
                self.next_key
            }
        };
        self.backlog += 1;
        self.gathered.push(Operation {
            came_us: now,
            bytes,
            key,
        });
        if matches!(self.sender, Sender::None) {
            self.cut(now);
        }
    }

    /// When what was gathered may leave; none if there is nothing.
    pub fn batch_due(&self, now: u64) -> Option<u64> {
        if self.gathered.is_empty() {
            return None;
        }
        match &self.sender {
            Sender::None => Some(now),
            Sender::Fixed { interval_us, offset_us } => {
                Some((now + interval_us - offset_us).div_ceil(*interval_us) * interval_us + offset_us - interval_us)
            }
            Sender::Stout { stout, .. } => Some(stout.next_due().0.max(now)),
        }
    }

    /// The batch leaves.
    pub fn send_batch(&mut self, now: u64) {
        if let Sender::Stout { stout, .. } = &mut self.sender {
            stout.on_batch(Instant(now));
        }
        self.cut(now);
    }

    /// Makes requests of what was gathered: one for each partition, unless it would hold too many operations.
    fn cut(&mut self, now: u64) {
        let mut gathered = std::mem::take(&mut self.gathered);
        let partitions = self.partitions;
        if gathered.len() > 1 {
            gathered.sort_by_key(|operation| (operation.key % partitions, operation.key));
        }
        let mut gathered = gathered.into_iter().peekable();
        while let Some(first) = gathered.next() {
            let partition = first.key % partitions;
            let mut request = Request {
                partition,
                operations: 1,
                bytes: first.bytes,
            };
            let mut operations = vec![first];
            while let Some(next) = gathered.peek().copied() {
                let is_same = operations.last().is_some_and(|last| last.key == next.key) && self.spec.keys.is_some();
                if next.key % partitions != partition || (!is_same && request.operations >= self.spec.operations_max) {
                    break;
                }
                if !is_same {
                    request.operations += 1;
                    request.bytes += next.bytes;
                }
                operations.push(next);
                gathered.next();
            }
            self.queue.push_back(Pending {
                operations,
                request,
                ready_us: now,
                attempts: 0,
            });
        }
    }

    /// Puts one back that is to be tried again.
    pub fn again(&mut self, pending: Pending) {
        self.queue.push_front(pending);
    }

    /// The next request that may be sent.
    pub fn next_request(&mut self, now: u64) -> Option<InFlight> {
        if self.in_flight >= self.limit() {
            return None;
        }
        let pending = self.queue.pop_front()?;
        self.in_flight += 1;
        Some(InFlight {
            pending,
            sent_us: now,
            in_flight: self.in_flight,
        })
    }

    pub fn limit(&self) -> u32 {
        match &self.limit {
            Limit::Fixed(limit) => *limit,
            Limit::Adaptive(concurrency) => concurrency.limit(),
            Limit::Rival(rival) => (rival.limit() + 0.5) as u32,
        }
    }

    pub fn interval_us(&self) -> u64 {
        match &self.sender {
            Sender::None => 0,
            Sender::Fixed { interval_us, .. } => *interval_us,
            Sender::Stout { stout, .. } => stout.interval_us(),
        }
    }

    pub fn on_completed(&mut self, now: u64, in_flight: &InFlight, outcome: Outcome) {
        self.in_flight -= 1;
        let pending = &in_flight.pending;
        let completion = Completion {
            sent: Instant(in_flight.sent_us),
            bytes: pending.request.bytes,
            in_flight: in_flight.in_flight,
            outcome,
        };
        match &mut self.limit {
            Limit::Fixed(_) => {}
            Limit::Adaptive(concurrency) => concurrency.on_completed(Instant(now), &completion),
            Limit::Rival(rival) => {
                let latency_us = now.saturating_sub(in_flight.sent_us).max(1) as f64;
                rival.on_completed(now, &completion, latency_us);
            }
        }
        let is_done = outcome == Outcome::Done;
        if is_done {
            self.backlog -= pending.operations.len() as u64;
        }
        if let Sender::Stout {
            stout,
            counts_operations,
        } = &mut self.sender
        {
            let ready = Instant(pending.ready_us);
            let bytes = if is_done { pending.request.bytes } else { 0 };
            let counted = if *counts_operations {
                u64::from(pending.request.operations)
            } else {
                1
            };
            for number in 0..counted {
                let part = bytes / counted + u64::from(number < bytes % counted);
                stout.on_completed(Instant(now), ready, part);
            }
        }
    }
}
