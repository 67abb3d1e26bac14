//! What came back of the requests that were sent under one limit.

use super::{Completion, Outcome, elasticity};
use tombolo_base::Instant;

/// The part of the limit that must have been in flight on average.
const USED_SHARE: f64 = 0.75;

/// One limit, tried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    pub begun: Instant,
    limit: u32,
    /// Requests of it that are passed over: those sent while requests from before were still in the way.
    unsettled: u32,
    settled_at: Instant,
    /// Further ones that it takes.
    wanted: u32,
    not_over_before: Instant,
    /// Latencies in it.
    samples: u32,
    in_flight_sum: u64,
    /// Of log2 of latency over what is usual, times what is usual.
    residual_sum: f64,
    usual_us_sum: f64,
    pub lost: u32,
    /// All that ended meanwhile, whenever it was sent.
    pub ended: u32,
    pub bytes: u64,
}

impl Trial {
    /// Where some requests take much longer than most, counting alone would end it before any of those could come back that
    /// fill most places; hence it also takes as many times as long as a place is usually taken.
    pub fn new(now: Instant, limit: u32, samples_per_slot: u32, occupied_us: u64) -> Self {
        Self {
            begun: now,
            limit,
            unsettled: limit,
            settled_at: now.plus_micros(occupied_us),
            wanted: limit.saturating_mul(samples_per_slot),
            not_over_before: now.plus_micros(occupied_us.saturating_mul(3)),
            ..Self::default()
        }
    }

    pub fn note_end(&mut self, completion: &Completion) {
        self.ended = self.ended.saturating_add(1);
        if completion.outcome == Outcome::Done {
            self.bytes = self.bytes.saturating_add(completion.bytes);
        }
    }

    /// Whether one that ends now counts.
    pub fn settles(&mut self, now: Instant) -> bool {
        let is_settled = self.unsettled == 0 && now >= self.settled_at;
        self.unsettled = self.unsettled.saturating_sub(1);
        is_settled
    }

    pub fn note_latency(&mut self, in_flight: u32, residual: f64, usual_us: f64) {
        self.samples = self.samples.saturating_add(1);
        self.in_flight_sum = self.in_flight_sum.saturating_add(u64::from(in_flight.max(1)));
        self.residual_sum += residual * usual_us;
        self.usual_us_sum += usual_us;
    }

    pub fn is_over(&self, now: Instant) -> bool {
        self.samples > 0 && self.samples.saturating_add(self.lost) >= self.wanted && now >= self.not_over_before
    }

    fn delivered(&self) -> f64 {
        f64::from(self.samples) / (f64::from(self.samples) + f64::from(self.lost))
    }

    fn in_flight(&self) -> f64 {
        self.in_flight_sum as f64 / f64::from(self.samples.max(1))
    }

    /// Whether the limit was what kept requests back; else whatever changed, the limit did not do it.
    fn is_used(&self) -> bool {
        self.in_flight() >= USED_SHARE * f64::from(self.limit)
    }

    /// What `higher` brought over this; none where not so many were in flight as might have been.
    pub fn elasticity_to(&self, higher: &Self) -> Option<f64> {
        if !self.is_used() || !higher.is_used() {
            return None;
        }
        let residual = |trial: &Self| trial.residual_sum / trial.usual_us_sum.max(f64::MIN_POSITIVE);
        elasticity(
            (self.in_flight(), higher.in_flight()),
            residual(higher) - residual(self),
            (self.delivered(), higher.delivered()),
        )
    }
}
