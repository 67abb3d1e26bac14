//! What else decides how many requests are in flight: the controllers that the product's is measured against. Each compares
//! latencies only with those of its own size class, which their originals do not have to.

use std::collections::VecDeque;
use tombolo_flow_control::concurrency::{Completion, Outcome};

/// One direction of one store.
pub(super) trait Rival {
    fn limit(&self) -> f64;
    fn on_completed(&mut self, now_us: u64, completion: &Completion, latency_us: f64);
}

const CLASSES: usize = 40;

fn class_of(bytes: u64) -> usize {
    ((u64::BITS - bytes.leading_zeros()) as usize).min(CLASSES - 1)
}

/// Halving for refusals, once for a round trip; the originals know no refusals.
#[derive(Debug, Default)]
struct Halving {
    at_us: u64,
}

impl Halving {
    fn halves(&mut self, now_us: u64, completion: &Completion) -> bool {
        let halves = completion.outcome != Outcome::Done && completion.sent.0 >= self.at_us;
        if halves {
            self.at_us = now_us + 1;
        }
        halves
    }
}

/// Gradient2 of Netflix' concurrency-limits.
#[derive(Debug)]
pub(super) struct Gradient {
    limit: f64,
    limit_max: f64,
    long_us: [f64; CLASSES],
    halving: Halving,
}

impl Gradient {
    pub fn new(limit_max: u32) -> Self {
        Self {
            limit: 8f64.min(f64::from(limit_max)),
            limit_max: f64::from(limit_max),
            long_us: [0.0; CLASSES],
            halving: Halving::default(),
        }
    }
}

impl Rival for Gradient {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn on_completed(&mut self, now_us: u64, completion: &Completion, latency_us: f64) {
        const TOLERANCE: f64 = 1.5;
        const QUEUE: f64 = 4.0;
        const SMOOTHING: f64 = 0.2;
        const LONG: f64 = 2.0 / 601.0;
        if completion.outcome != Outcome::Done {
            if self.halving.halves(now_us, completion) {
                self.limit = (self.limit / 2.0).max(1.0);
            }
            return;
        }
        let long = &mut self.long_us[class_of(completion.bytes)];
        *long = if *long == 0.0 {
            latency_us
        } else {
            *long + (latency_us - *long) * LONG
        };
        if *long / latency_us > 2.0 {
            *long *= 0.95;
        }
        if f64::from(completion.in_flight) < self.limit / 2.0 {
            return;
        }
        let gradient = (TOLERANCE * *long / latency_us).clamp(0.5, 1.0);
        let wanted = self.limit * gradient + QUEUE;
        self.limit = (self.limit * (1.0 - SMOOTHING) + wanted * SMOOTHING).clamp(1.0, self.limit_max);
    }
}

/// TCP Vegas as in the same library.
#[derive(Debug)]
pub(super) struct Vegas {
    limit: f64,
    limit_max: f64,
    lowest_us: [f64; CLASSES],
    until_probe: u64,
    halving: Halving,
}

impl Vegas {
    pub fn new(limit_max: u32) -> Self {
        Self {
            limit: 8f64.min(f64::from(limit_max)),
            limit_max: f64::from(limit_max),
            lowest_us: [f64::MAX; CLASSES],
            until_probe: 240,
            halving: Halving::default(),
        }
    }
}

impl Rival for Vegas {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn on_completed(&mut self, now_us: u64, completion: &Completion, latency_us: f64) {
        if completion.outcome != Outcome::Done {
            if self.halving.halves(now_us, completion) {
                self.limit = (self.limit / 2.0).max(1.0);
            }
            return;
        }
        self.until_probe = self.until_probe.saturating_sub(1);
        if self.until_probe == 0 {
            self.until_probe = (30.0 * self.limit) as u64;
            self.lowest_us = [f64::MAX; CLASSES];
        }
        let lowest = &mut self.lowest_us[class_of(completion.bytes)];
        *lowest = lowest.min(latency_us);
        if f64::from(completion.in_flight) < self.limit / 2.0 {
            return;
        }
        let unit = self.limit.log10().max(1.0);
        let queue = (self.limit * (1.0 - *lowest / latency_us)).ceil();
        // Once a window in the mean.
        let share = 1.0 / self.limit;
        let change = match queue {
            queue if queue <= unit => 6.0 * unit,
            queue if queue < 3.0 * unit => unit,
            queue if queue > 6.0 * unit => -unit,
            _ => 0.0,
        };
        self.limit = (self.limit + change * share).clamp(1.0, self.limit_max);
    }
}

/// BBR, in requests: what came in a round, each request counting for the lowest latency of its size, is what would be in flight
/// without a queue.
#[derive(Debug)]
pub(super) struct Bbr {
    limit_max: f64,
    /// Lowest latencies of this and the last ten seconds.
    lowest_us: [[f64; CLASSES]; 2],
    lowest_at_us: u64,
    work_us: f64,
    done: u32,
    round_at_us: u64,
    rates: VecDeque<f64>,
    /// While starting, rounds without growth.
    flat_rounds: Option<u32>,
    cycle: usize,
    halving: Halving,
    cap: f64,
    used: f64,
}

impl Bbr {
    pub fn new(limit_max: u32) -> Self {
        Self {
            limit_max: f64::from(limit_max),
            lowest_us: [[f64::MAX; CLASSES]; 2],
            lowest_at_us: 0,
            work_us: 0.0,
            done: 0,
            round_at_us: 0,
            rates: VecDeque::new(),
            flat_rounds: Some(0),
            cycle: 0,
            halving: Halving::default(),
            cap: f64::MAX,
            used: 0.0,
        }
    }

    fn best(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    fn gain(&self) -> f64 {
        match (self.flat_rounds, self.cycle) {
            (Some(_), _) => 2.89,
            (None, 0) => 1.25,
            (None, 1) => 0.75,
            _ => 1.0,
        }
    }
}

impl Rival for Bbr {
    fn limit(&self) -> f64 {
        let best = self.best();
        let wanted = if best == 0.0 { 8.0 } else { best * self.gain() };
        wanted.min(self.cap).clamp(1.0, self.limit_max)
    }

    fn on_completed(&mut self, now_us: u64, completion: &Completion, latency_us: f64) {
        const WINDOW_US: u64 = 10_000_000;
        if completion.outcome != Outcome::Done {
            if self.halving.halves(now_us, completion) {
                self.cap = (self.limit() / 2.0).max(1.0);
            }
            return;
        }
        if now_us - self.lowest_at_us > WINDOW_US {
            self.lowest_us = [[f64::MAX; CLASSES], self.lowest_us[0]];
            self.lowest_at_us = now_us;
        }
        let class = class_of(completion.bytes);
        self.lowest_us[0][class] = self.lowest_us[0][class].min(latency_us);
        self.work_us += self.lowest_us[0][class].min(self.lowest_us[1][class]);
        self.done += 1;
        self.used += f64::from(completion.in_flight);
        if self.done < (self.limit() as u32).max(8) {
            return;
        }
        let rate = self.work_us / (now_us - self.round_at_us).max(1) as f64;
        let is_limited_by_us = self.used / f64::from(self.done) > self.limit() * 0.75;
        let grows = rate > self.best() * 1.25;
        if is_limited_by_us || grows {
            self.rates.push_back(rate);
            if self.rates.len() > 10 {
                self.rates.pop_front();
            }
        }
        self.flat_rounds = match self.flat_rounds {
            Some(_) if grows => Some(0),
            Some(2) => None,
            Some(flat) => Some(flat + 1),
            None => None,
        };
        self.cycle = (self.cycle + 1) % 8;
        self.cap *= 1.1;
        (self.work_us, self.done, self.used, self.round_at_us) = (0.0, 0, 0.0, now_us);
    }
}
