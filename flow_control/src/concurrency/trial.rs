//! What came back of the requests that were sent under one limit.

use super::{Completion, Outcome, elasticity};
use tombolo_base::Instant;

/// One limit, tried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    pub begun: Instant,
    /// Requests of it that are passed over: those sent while requests from before were still in the way.
    unsettled: u32,
    /// Further ones that it takes.
    wanted: u32,
    /// Latencies in it.
    samples: u32,
    in_flight_sum: u64,
    /// Of log2 of latency over what is usual.
    residual_sum: f64,
    pub lost: u32,
    /// All that ended meanwhile, whenever it was sent.
    pub ended: u32,
    pub bytes: u64,
}

impl Trial {
    pub fn new(now: Instant, limit: u32, samples_per_slot: u32) -> Self {
        Self {
            begun: now,
            unsettled: limit,
            wanted: limit.saturating_mul(samples_per_slot),
            ..Self::default()
        }
    }

    pub fn note_end(&mut self, completion: &Completion) {
        self.ended = self.ended.saturating_add(1);
        if completion.outcome == Outcome::Done {
            self.bytes = self.bytes.saturating_add(completion.bytes);
        }
    }

    pub fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    pub fn settle(&mut self) {
        self.unsettled -= 1;
    }

    pub fn note_latency(&mut self, in_flight: u32, residual: f64) {
        self.samples += 1;
        self.in_flight_sum += u64::from(in_flight.max(1));
        self.residual_sum += residual;
    }

    pub fn is_over(&self) -> bool {
        self.is_settled() && self.samples.saturating_add(self.lost) >= self.wanted && self.samples > 0
    }

    fn delivered(&self) -> f64 {
        f64::from(self.samples) / (f64::from(self.samples) + f64::from(self.lost))
    }

    /// What `higher` brought over this; none where hardly more was in flight.
    pub fn elasticity_to(&self, higher: &Self) -> Option<f64> {
        if self.samples == 0 || higher.samples == 0 {
            return None;
        }
        let mean = |trial: &Self, sum: f64| sum / f64::from(trial.samples);
        elasticity(
            (
                mean(self, self.in_flight_sum as f64),
                mean(higher, higher.in_flight_sum as f64),
            ),
            mean(higher, higher.residual_sum) - mean(self, self.residual_sum),
            (self.delivered(), higher.delivered()),
        )
    }
}
