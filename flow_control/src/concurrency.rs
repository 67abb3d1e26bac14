//! How many requests may be in flight to a store at once, in one direction, found out from what they bring.
//!
//! Two limits are tried in turn, a lower and a higher one, each until so many requests have come back that were sent under it.
//! Little's law says what the higher one was worth: throughput is requests in flight over latency, so that its elasticity is 1 less
//! how much latencies grew with them. It is 1 where requests do not feel each other, and 0 where all that is added waits in a queue;
//! the limit is held between, where the last tenth of throughput would cost more in latency than it is worth. Latencies are compared
//! by their logarithms, each with what is usual for its size and weighted by that, which is the part of the places in flight that
//! such requests take; hence a mix of sizes that changes does not count for congestion, nor do rare requests that take very long. A
//! store that becomes slow as such makes both sides slow, and leaves the limit where it is.
//!
//! "Slow down" halves the limit, once for a round trip, and for a while it stays below where that was said; so do losses if
//! they are many. Where fewer requests are in flight than may be, nothing is learnt, and nothing grows.

use crate::logarithm::{exp2, log2};
use crate::path::Path;
use tombolo_base::Instant;

mod trial;

use trial::Trial;

/// The elasticity at which the limit is held.
const ELASTICITY_KEPT: f64 = 0.25;
/// log2 of the ratio of both limits, and the bounds of how far one comparison moves them.
const SPREAD: f64 = 0.38;
const STEP_FIRST: f64 = 0.35;
const STEP_MIN: f64 = 0.1;
const STEP_MAX: f64 = 1.0;
/// Requests that a side of a comparison takes at the least, and for each that may be in flight.
const SAMPLES_MIN: u32 = 32;
const SAMPLES_PER_SLOT: u32 = 2;
/// Times that a limit is kept, once comparisons contradict each other, for each time that it is questioned.
const HOLDS_MAX: u32 = 8;
/// How long what a store refused is not tried again: at first, and at the most.
const REFUSAL_US: u64 = 10_000_000;
const REFUSAL_US_MAX: u64 = 640_000_000;
/// Losses beyond this share are congestion.
const LOSS_SHARE: u32 = 8;

/// What the limit may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// At least 1.
    pub limit_min: u32,
    /// What the caller can carry.
    pub limit_max: u32,
    /// Before anything is known.
    pub limit_initial: u32,
    /// Set by hand: this and nothing else, within the bounds.
    pub pinned: Option<u32>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            limit_min: 1,
            limit_max: 64,
            limit_initial: 8,
            pinned: None,
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out, or refused for a reason that has nothing to do with load.
    Done,
    /// The store asked for patience.
    SlowDown,
    /// No answer: timeout, or a connection that broke.
    Lost,
}

/// One attempt of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// When it was sent.
    pub sent: Instant,
    /// Of its payload, asked for or sent.
    pub bytes: u64,
    /// Requests in flight when it was sent, itself included.
    pub in_flight: u32,
    /// How it ended.
    pub outcome: Outcome,
}

/// For metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// Requests that may be in flight.
    pub limit: u32,
    /// What one percent more in flight brings in percent of throughput, by the last comparison.
    pub elasticity: Option<f64>,
    /// Comparisons that raised the limit.
    pub increases: u64,
    /// Comparisons that lowered it.
    pub decreases: u64,
    /// Times that it was halved.
    pub halvings: u64,
    /// The highest rate of late.
    pub bytes_per_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The limit stays for so many more windows.
    Hold(u32),
    Low,
    High,
}

/// One direction of one store.
#[derive(Clone, Debug)]
pub struct Concurrency {
    parameters: Parameters,
    /// The lower limit, with fractions.
    target: f64,
    limit: u32,
    phase: Phase,
    /// What the current phase saw.
    trial: Trial,
    /// What the lower limit brought.
    low: Trial,
    /// Doubling, until that does not pay.
    is_starting: bool,
    step: f64,
    rises: Option<bool>,
    holds: u32,
    /// Requests from before do not count against the limit again.
    halved_at: Instant,
    /// Not to be exceeded before the instant.
    refused: Option<(u32, Instant)>,
    refusal_us: u64,
    path: Path,
    state: State,
}

impl Concurrency {
    /// Knows nothing yet.
    pub fn new(parameters: Parameters, now: Instant) -> Self {
        let limit_min = parameters.limit_min.max(1);
        let limit_max = parameters.limit_max.max(limit_min);
        let limit_initial = parameters.limit_initial.clamp(limit_min, limit_max);
        let mut concurrency = Self {
            parameters: Parameters {
                limit_min,
                limit_max,
                limit_initial,
                pinned: None,
            },
            target: f64::from(limit_initial),
            limit: limit_initial,
            phase: Phase::Low,
            trial: Trial::default(),
            low: Trial::default(),
            is_starting: true,
            step: STEP_FIRST,
            rises: None,
            holds: 0,
            halved_at: Instant(0),
            refused: None,
            refusal_us: REFUSAL_US,
            path: Path::default(),
            state: State::default(),
        };
        concurrency.enter(now, Phase::Low);
        concurrency.pin(parameters.pinned);
        concurrency
    }

    /// Sets the limit by hand, or leaves it to what is found out.
    pub fn pin(&mut self, pinned: Option<u32>) {
        let Parameters {
            limit_min, limit_max, ..
        } = self.parameters;
        self.parameters.pinned = pinned.map(|limit| limit.clamp(limit_min, limit_max));
    }

    /// Requests that may be in flight.
    pub fn limit(&self) -> u32 {
        self.parameters.pinned.unwrap_or(self.limit)
    }

    /// Whether the limit is set by hand.
    pub fn is_pinned(&self) -> bool {
        self.parameters.pinned.is_some()
    }

    /// Bytes under way that fill the link, in requests of this size; zero before anything is known.
    pub fn bandwidth_delay_bytes(&self, request_bytes: u64) -> u64 {
        self.path.bandwidth_delay_bytes(request_bytes)
    }

    /// How far ahead a sequential reader asks, in requests of this size: twice of what fills the link, so that a link that can
    /// do more shows it, at least one request, and no more than may be in flight.
    pub fn window_bytes(&self, request_bytes: u64) -> u64 {
        let request_bytes = request_bytes.max(1);
        let most = request_bytes.saturating_mul(u64::from(self.limit()));
        self.bandwidth_delay_bytes(request_bytes)
            .saturating_mul(2)
            .clamp(request_bytes, most)
    }

    /// For metrics.
    pub fn state(&self) -> State {
        State {
            limit: self.limit(),
            bytes_per_s: self.path.bytes_per_s(),
            ..self.state
        }
    }

    /// A request has ended. Attempts count one by one; a pause before the next is no part of any.
    pub fn on_completed(&mut self, now: Instant, completion: &Completion) {
        self.trial.note_end(completion);
        let is_of_this_trial = completion.sent >= self.trial.begun;
        let latency_us = now.micros_since(completion.sent);
        if completion.outcome == Outcome::Done {
            self.path.note_occupancy(latency_us);
        }
        match completion.outcome {
            Outcome::Done if is_of_this_trial => {
                if self.trial.settles(now) {
                    let (residual, usual_us) = self.path.note_latency(completion.bytes, latency_us);
                    let in_flight = completion.in_flight.min(self.limit);
                    self.trial.note_latency(in_flight, residual, usual_us);
                }
            }
            Outcome::Done => {}
            Outcome::SlowDown => {
                if completion.sent >= self.halved_at {
                    self.refuse(now, completion.in_flight.min(self.limit));
                }
            }
            Outcome::Lost if is_of_this_trial => {
                self.trial.lost = self.trial.lost.saturating_add(1);
                let lost = self.trial.lost;
                if lost >= 2 && lost.saturating_mul(LOSS_SHARE) >= self.trial.ended.max(LOSS_SHARE) {
                    self.halve(now);
                }
            }
            Outcome::Lost => {}
        }
        // Only what went well leads to the next limit, which may be a higher one.
        if completion.outcome == Outcome::Done && self.trial.is_over(now) {
            self.path
                .note_rate(self.trial.bytes, now.micros_since(self.trial.begun));
            self.advance(now);
        }
    }

    fn advance(&mut self, now: Instant) {
        match self.phase {
            Phase::Hold(0 | 1) => self.enter(now, Phase::Low),
            Phase::Hold(left) => self.enter(now, Phase::Hold(left - 1)),
            Phase::Low => {
                self.low = self.trial;
                self.enter(now, Phase::High);
            }
            Phase::High => self.compare(now),
        }
    }

    /// Both limits have been tried.
    fn compare(&mut self, now: Instant) {
        let Some(elasticity) = self.low.elasticity_to(&self.trial) else {
            // Too little was in flight to tell.
            self.path.settle();
            self.hold_longer();
            return self.enter(now, Phase::Hold(self.holds));
        };
        self.state.elasticity = Some(elasticity);
        // Full steps at 0 and at 1.
        let distance = elasticity - ELASTICITY_KEPT;
        let full = if distance > 0.0 {
            1.0 - ELASTICITY_KEPT
        } else {
            ELASTICITY_KEPT
        };
        let excess = (distance / full).clamp(-1.0, 1.0);
        if excess > 0.0 {
            self.state.increases += 1;
        } else {
            self.state.decreases += 1;
        }
        if self.is_starting && excess > 0.0 {
            self.target = f64::from(self.limit);
            self.is_starting = self.limit < self.highest(now);
            if self.is_starting {
                self.low = self.trial;
                return self.enter(now, Phase::High);
            }
            self.path.settle();
            self.hold_longer();
            return self.enter(now, Phase::Hold(self.holds));
        }
        self.is_starting = false;
        self.path.settle();
        self.step = match self.rises.replace(excess > 0.0) {
            Some(rises) if rises == (excess > 0.0) => (self.step * 1.5).min(STEP_MAX),
            Some(_) => (self.step / 2.0).max(STEP_MIN),
            None => STEP_FIRST,
        };
        self.set_target(self.target * exp2(self.step * excess));
        // Contradictory comparisons and a ceiling mean that it has arrived.
        if self.step <= STEP_MIN || self.target >= f64::from(self.highest(now)) {
            self.hold_longer();
        } else {
            self.holds = 0;
        }
        let next = if self.holds > 0 {
            Phase::Hold(self.holds)
        } else {
            Phase::Low
        };
        self.enter(now, next);
    }

    fn hold_longer(&mut self) {
        self.holds = (self.holds * 2).clamp(1, HOLDS_MAX);
    }

    fn refuse(&mut self, now: Instant, in_flight: u32) {
        // Halvings one after another until the store is content are one refusal; one soon after another lasts longer.
        self.refusal_us = match self.refused {
            Some((_, until)) if now < until => self.refusal_us,
            Some((_, until)) if now < until.plus_micros(self.refusal_us * 4) => {
                (self.refusal_us * 2).min(REFUSAL_US_MAX)
            }
            _ => REFUSAL_US,
        };
        let highest = (in_flight - in_flight.div_ceil(10).min(in_flight)).max(self.parameters.limit_min);
        self.refused = Some((highest, now.plus_micros(self.refusal_us)));
        self.halve(now);
    }

    fn halve(&mut self, now: Instant) {
        self.halved_at = self.halved_at.max(now).plus_micros(1);
        self.state.halvings += 1;
        self.is_starting = false;
        (self.step, self.rises, self.holds) = (STEP_FIRST, None, 0);
        self.set_target(self.target.min(f64::from(self.limit)) / 2.0);
        self.enter(now, Phase::Low);
    }

    fn set_target(&mut self, target: f64) {
        let Parameters {
            limit_min, limit_max, ..
        } = self.parameters;
        self.target = target.clamp(f64::from(limit_min), f64::from(limit_max));
    }

    /// The highest limit for now.
    fn highest(&self, now: Instant) -> u32 {
        match self.refused {
            Some((highest, until)) if now < until => highest.min(self.parameters.limit_max),
            _ => self.parameters.limit_max,
        }
    }

    /// Both limits to compare. At the ceiling the comparison is with less.
    fn limits(&self, highest: u32) -> (u32, u32) {
        let limit_min = self.parameters.limit_min;
        let factor = exp2(if self.is_starting { 1.0 } else { SPREAD });
        let low = (self.target + 0.5) as u32;
        let high = ((self.target * factor) as u32).max(low.saturating_add(1));
        if high <= highest {
            return (low.max(limit_min), high);
        }
        let room = (f64::from(highest) / factor) as u32;
        (low.min(room).max(limit_min).min(highest), highest)
    }

    fn enter(&mut self, now: Instant, phase: Phase) {
        let highest = self.highest(now).max(self.parameters.limit_min);
        self.target = self.target.min(f64::from(highest));
        let (low, high) = self.limits(highest);
        self.limit = match phase {
            Phase::Hold(_) => ((self.target + 0.5) as u32).clamp(self.parameters.limit_min, highest),
            Phase::Low => low,
            Phase::High => high,
        };
        self.phase = phase;
        let per_slot = SAMPLES_PER_SLOT.max(SAMPLES_MIN.div_ceil(low));
        self.trial = Trial::new(now, self.limit, per_slot, self.path.occupied_us());
    }
}

/// log2 of throughput gained over log2 of requests added.
fn elasticity(in_flight: (f64, f64), latency_change: f64, delivered: (f64, f64)) -> Option<f64> {
    let added = log2(in_flight.1 / in_flight.0);
    let gained = added - latency_change + log2(delivered.1 / delivered.0);
    (added > SPREAD / 2.0).then(|| gained / added)
}

#[cfg(test)]
mod tests;
