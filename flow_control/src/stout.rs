//! Stout's control loop (McCullough et al., USENIX ATC'10, section 3): how long to gather requests before a batch of them is
//! sent to a store.
//!
//! After every window of completions the store's performance, bytes / (latency + interval), is compared with that of the
//! recent past. Has it fallen, the interval grows, so that batches become larger and the store's fixed costs are shared by
//! more; otherwise it shrinks towards the floor.
//!
//! Three things the paper leaves open. Which windows its averages take: the reference is made of the windows before the current
//! one, and where the direction changes, maximum and averages begin anew with the window that changed it; the first window is
//! only recorded. How its bound on back-offs is meant: [`AlphaRule`]. And which bytes it counts: [`BytesRule`].
//!
//! What is gathered in a batch, and when it is sent, is the caller's: it asks [`Stout::next_due`]. Nothing happens in an
//! interval without requests, and the first request after a pause may leave at once.

use tombolo_base::Instant;

/// How the paper's bound on the back-off factor is read: it prints the larger of both and speaks of an upper bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlphaRule {
    /// The smaller one, as the text says.
    #[default]
    Min,
    /// The larger one, as the formula says; never below the bound then.
    Max,
}

/// Whose bytes are set against the mean latency and the interval. The paper counts those of a window, and calls them "the amount
/// sent" in an interval. A window lasts in proportion to latency, though, so that by its own bytes performance does not fall
/// when a queue grows, and nothing backs off any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BytesRule {
    /// Of a request, on average, as the latency is.
    #[default]
    Request,
    /// Of an interval: the window's, less as it was longer than that. Gateways may come to rest far apart.
    Interval,
    /// Of the window.
    Window,
}

/// The constants of the loop. Out of range, they count as the nearest that is in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Before the first decision.
    pub interval_initial_us: u64,
    /// The floor, and the fixed point of acceleration: the unit in which the paper takes the square root. At least 1.
    pub interval_min_us: u64,
    /// The ceiling: how bad a store may get before it counts as paused.
    pub interval_max_us: u64,
    /// Performance below this share of the reference backs off: `thresh`.
    pub threshold: f64,
    /// How much an acceleration takes off an interval that is far above the floor: β.
    pub acceleration: f64,
    /// The mean latency at which an unbounded back-off would double the interval: 1 / α′.
    pub back_off_latency_us: u64,
    /// The bound of the back-off: α of the paper's table 3.
    pub back_off_bound: f64,
    /// What the bound means.
    pub alpha_rule: AlphaRule,
    /// Which bytes count.
    pub bytes_rule: BytesRule,
    /// The weight of the newest window in averages.
    pub average_weight: f64,
    /// Completions that a decision takes at the least.
    pub completions_min: u32,
    /// Time that a decision takes at the least, in mean latencies.
    pub latency_share: f64,
}

impl Parameters {
    /// The paper's tables 2 and 3, for stores within a data centre.
    pub const PAPER: Self = Self {
        interval_initial_us: 80_000,
        interval_min_us: 1_000,
        interval_max_us: 400_000,
        threshold: 0.85,
        acceleration: 0.1,
        back_off_latency_us: 400_000,
        back_off_bound: 0.5,
        alpha_rule: AlphaRule::Min,
        bytes_rule: BytesRule::Request,
        average_weight: 1.0 / 16.0,
        completions_min: 10,
        latency_share: 0.5,
    };

    /// Recalibrated for SQL Data Services, which knew no batches (section 5.6).
    pub const SDS: Self = Self {
        threshold: 0.2,
        acceleration: 0.25,
        ..Self::PAPER
    };

    /// Recalibrated for PacificA, which pauses often (section 5.6).
    pub const PACIFIC_A: Self = Self {
        threshold: 0.7,
        acceleration: 0.125,
        average_weight: 1.0 / 32.0,
        ..Self::PAPER
    };

    /// For the group commit of a journal on a local disk: the paper's figures in tenths of a millisecond, at most 20 ms.
    pub const GROUP_COMMIT: Self = Self {
        interval_initial_us: 8_000,
        interval_min_us: 100,
        interval_max_us: 20_000,
        back_off_latency_us: 40_000,
        ..Self::PAPER
    };

    /// For PUTs over a wide area network, where a single one takes longer than the paper's intervals: back-offs are in
    /// proportion to the median latency and come to their bound at twice that. The interval never exceeds the age at which
    /// dirty data must leave.
    pub fn uploads(latency_p50_us: u64, dirty_age_max_us: u64) -> Self {
        let latency_p50_us = latency_p50_us.max(Self::PAPER.interval_min_us);
        Self {
            interval_initial_us: latency_p50_us,
            interval_max_us: dirty_age_max_us,
            back_off_latency_us: latency_p50_us.saturating_mul(4),
            ..Self::PAPER
        }
        .in_range()
    }

    fn in_range(self) -> Self {
        let interval_min_us = self.interval_min_us.clamp(1, INTERVAL_US_MAX);
        let interval_max_us = self.interval_max_us.clamp(interval_min_us, INTERVAL_US_MAX);
        Self {
            interval_initial_us: self.interval_initial_us.clamp(interval_min_us, interval_max_us),
            interval_min_us,
            interval_max_us,
            threshold: share(self.threshold),
            acceleration: share(self.acceleration),
            back_off_latency_us: self.back_off_latency_us.max(1),
            back_off_bound: share(self.back_off_bound),
            average_weight: share(self.average_weight),
            completions_min: self.completions_min.max(1),
            latency_share: share(self.latency_share),
            ..self
        }
    }
}

/// An hour: what is longer is no interval between batches.
const INTERVAL_US_MAX: u64 = 3_600_000_000;
/// Intervals are kept in nanoseconds, so that acceleration does not get stuck above a floor of some microseconds.
const NANOS_PER_MICRO: u64 = 1_000;

/// Within 0 to 1; what is no number is 0.
fn share(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}

/// What became of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The store keeps up: shorter.
    Accelerate,
    /// It does not: longer.
    BackOff,
}

/// One window: what came between two decisions.
#[derive(Clone, Copy, Debug)]
struct Window {
    bytes: f64,
    latency_us: f64,
    interval_us: f64,
}

impl Window {
    /// Bytes per microsecond.
    fn performance(&self) -> f64 {
        self.bytes / (self.latency_us + self.interval_us)
    }

    fn average_with(&mut self, newest: &Self, weight: f64) {
        for (average, value) in [
            (&mut self.bytes, newest.bytes),
            (&mut self.latency_us, newest.latency_us),
            (&mut self.interval_us, newest.interval_us),
        ] {
            *average += (value - *average) * weight;
        }
    }
}

/// What the current window is compared with.
#[derive(Clone, Copy, Debug)]
enum Reference {
    /// Nothing yet.
    None,
    /// Since the last back-off, the best performance.
    Accelerating(f64),
    /// Since the last acceleration, averages.
    BackingOff(Window),
}

impl Reference {
    fn performance(&self, interval_us: f64) -> Option<f64> {
        match self {
            Self::None => None,
            Self::Accelerating(best) => Some(*best),
            Self::BackingOff(average) => {
                // While the interval still grows, the averages lag behind it: both sides are measured with the same one.
                let interval_us = interval_us.max(average.interval_us);
                Some(average.bytes / (average.latency_us + interval_us))
            }
        }
    }

    /// After a decision on `window`.
    fn followed_by(self, decision: Decision, window: &Window, average_weight: f64) -> Self {
        match (decision, self) {
            (Decision::Accelerate, Self::Accelerating(best)) => Self::Accelerating(best.max(window.performance())),
            (Decision::Accelerate, _) => Self::Accelerating(window.performance()),
            (Decision::BackOff, Self::BackingOff(mut average)) => {
                average.average_with(window, average_weight);
                Self::BackingOff(average)
            }
            (Decision::BackOff, _) => Self::BackingOff(*window),
        }
    }
}

/// For metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// Between batches.
    pub interval_us: u64,
    /// None before the second window.
    pub last_decision: Option<Decision>,
    /// Of the last window, on average.
    pub latency_us: u64,
    /// Of the last window: bytes over latency and interval, per second.
    pub performance: f64,
    /// What the last window was compared with, likewise.
    pub reference_performance: f64,
    /// Decisions to shorten the interval.
    pub accelerations: u64,
    /// Decisions to lengthen it.
    pub back_offs: u64,
}

/// One loop: one kind of request to one store.
#[derive(Clone, Debug)]
pub struct Stout {
    parameters: Parameters,
    interval_ns: u64,
    last_batch: Option<Instant>,
    last_decision: Instant,
    completions: u32,
    bytes: u64,
    latency_us_sum: u64,
    reference: Reference,
    /// Over all windows, for the size of back-offs.
    latency_us_average: Option<f64>,
    state: State,
}

impl Stout {
    /// A loop that begins now.
    pub fn new(parameters: Parameters, now: Instant) -> Self {
        let parameters = parameters.in_range();
        let state = State {
            interval_us: parameters.interval_initial_us,
            ..State::default()
        };
        Self {
            interval_ns: parameters.interval_initial_us * NANOS_PER_MICRO,
            parameters,
            last_batch: None,
            last_decision: now,
            completions: 0,
            bytes: 0,
            latency_us_sum: 0,
            reference: Reference::None,
            latency_us_average: None,
            state,
        }
    }

    /// Between the beginnings of two batches.
    pub fn interval_us(&self) -> u64 {
        self.state.interval_us
    }

    /// When the next batch may leave: an instant that is past means at once.
    pub fn next_due(&self) -> Instant {
        self.last_batch
            .map_or(Instant(0), |begun| begun.plus_micros(self.interval_us()))
    }

    /// A batch leaves now, of one request or many.
    pub fn on_batch(&mut self, now: Instant) {
        self.last_batch = Some(self.last_batch.map_or(now, |last| last.max(now)));
    }

    /// A request that left at `sent` is done; of one that failed, no bytes count. Says so where that decides the interval.
    pub fn on_completed(&mut self, now: Instant, sent: Instant, bytes: u64) -> Option<Decision> {
        self.completions = self.completions.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.latency_us_sum = self.latency_us_sum.saturating_add(now.micros_since(sent));
        let latency_us = self.latency_us_sum as f64 / f64::from(self.completions);
        let elapsed_us = now.micros_since(self.last_decision) as f64;
        if self.completions < self.parameters.completions_min || elapsed_us < self.parameters.latency_share * latency_us
        {
            return None;
        }
        let interval_us = self.interval_ns as f64 / NANOS_PER_MICRO as f64;
        let bytes = self.bytes as f64;
        let window = Window {
            bytes: match self.parameters.bytes_rule {
                BytesRule::Request => bytes / f64::from(self.completions),
                BytesRule::Interval => bytes * interval_us / elapsed_us.max(1.0),
                BytesRule::Window => bytes,
            },
            latency_us,
            interval_us,
        };
        (self.completions, self.bytes, self.latency_us_sum) = (0, 0, 0);
        self.last_decision = self.last_decision.max(now);
        self.decide(&window)
    }

    fn decide(&mut self, window: &Window) -> Option<Decision> {
        const PER_SECOND: f64 = 1e6;
        let weight = self.parameters.average_weight;
        let latency_us = self.latency_us_average.map_or(window.latency_us, |average| {
            average + (window.latency_us - average) * weight
        });
        self.latency_us_average = Some(latency_us);
        self.state.latency_us = window.latency_us as u64;
        self.state.performance = window.performance() * PER_SECOND;
        let Some(reference) = self.reference.performance(window.interval_us) else {
            self.reference = Reference::Accelerating(window.performance());
            return None;
        };
        self.state.reference_performance = reference * PER_SECOND;
        let decision = if window.performance() < self.parameters.threshold * reference {
            self.state.back_offs += 1;
            self.back_off(latency_us);
            Decision::BackOff
        } else {
            self.state.accelerations += 1;
            self.accelerate();
            Decision::Accelerate
        };
        self.reference = self.reference.followed_by(decision, window, weight);
        self.state.last_decision = Some(decision);
        Some(decision)
    }

    fn back_off(&mut self, latency_us: f64) {
        let proportional = latency_us / self.parameters.back_off_latency_us as f64;
        let alpha = match self.parameters.alpha_rule {
            AlphaRule::Min => proportional.min(self.parameters.back_off_bound),
            AlphaRule::Max => proportional.max(self.parameters.back_off_bound),
        };
        self.set_interval(self.interval_ns as f64 * (1.0 + alpha));
    }

    /// β of the way to the geometric mean of interval and floor, which is the paper's root where the floor is its unit.
    fn accelerate(&mut self) {
        let floor_ns = self.parameters.interval_min_us * NANOS_PER_MICRO;
        let root_ns = (u128::from(self.interval_ns) * u128::from(floor_ns)).isqrt() as f64;
        let interval_ns = self.interval_ns as f64;
        self.set_interval(interval_ns - self.parameters.acceleration * (interval_ns - root_ns));
    }

    fn set_interval(&mut self, interval_ns: f64) {
        let floor_ns = self.parameters.interval_min_us * NANOS_PER_MICRO;
        let ceiling_ns = self.parameters.interval_max_us * NANOS_PER_MICRO;
        self.interval_ns = (interval_ns as u64).clamp(floor_ns, ceiling_ns);
        self.state.interval_us = self.interval_ns / NANOS_PER_MICRO;
    }

    /// For metrics.
    pub fn state(&self) -> State {
        self.state
    }
}

#[cfg(test)]
mod tests;
