//! How long an attempt of an upload may take, by what such attempts took of late: so that a connection that hangs is given up
//! soon, and one that is merely slow never is.
//!
//! For each class of size the slowest of late is remembered: a slower one counts at once, and is forgotten by a sixteenth with each
//! that is faster. An attempt may take four times that, in proportion more where more bytes are in flight than were then, as all
//! share the path. A size that was not seen takes no longer than a larger one, and no more than in proportion longer than a smaller
//! one. While nothing is known, an attempt may take what it takes at the least rate that a path is expected to have.
//!
//! An attempt that was given up says that the path may have become slow: all others may take twice as long, and no two are given
//! up by the same deadline. One that is answered ends that, if it is no smaller: what is small comes through a path on which nothing large
//! ever would. So however slow the path has become, only few attempts are made in
//! vain, and those that hang go one by one.

use core::time::Duration;

/// Below 4 KiB, then a class for each doubling; the last has all from 64 MiB on.
const CLASSES: usize = 16;
/// Times what the slowest of late took.
const MARGIN: f64 = 4.0;
/// Part of the way that is forgotten with each attempt that was faster.
const FORGOTTEN: f64 = 1.0 / 16.0;
/// Beyond that doublings mean nothing.
const DOUBLINGS_MAX: u32 = 20;

fn class_of(bytes: u64) -> usize {
    ((u64::BITS - (bytes >> 12).leading_zeros()) as usize).min(CLASSES - 1)
}

/// Bounds of the deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// No attempt is given up before.
    pub min_us: u64,
    /// What a store may take to answer, beside the time that the bytes are on their way.
    pub answer_us: u64,
    /// The least that a path is expected to carry, of all attempts together.
    pub rate_min_bytes_per_s: u64,
}

impl Parameters {
    /// As a store over a network wants them: an answer that takes five seconds is not worth another attempt, and 1 Mbit/s is the
    /// least that a gateway is of use with.
    pub fn answered_within(answer: Duration) -> Self {
        Self {
            min_us: 5_000_000,
            answer_us: u64::try_from(answer.as_micros()).unwrap_or(u64::MAX),
            rate_min_bytes_per_s: 125_000,
        }
    }

    /// What so many bytes take at the least rate, shared by so many attempts.
    pub fn carried_us(&self, bytes: u64, attempts: u32) -> u64 {
        const MICROS_PER_SECOND: u128 = 1_000_000;
        let together = u128::from(bytes) * u128::from(attempts.max(1));
        let carried_us = together * MICROS_PER_SECOND / u128::from(self.rate_min_bytes_per_s.max(1));
        u64::try_from(carried_us).unwrap_or(u64::MAX)
    }

    /// No attempt is given longer.
    pub fn max_us(&self, bytes: u64, attempts: u32) -> u64 {
        let carried_us = self.carried_us(bytes, attempts);
        carried_us.saturating_add(self.answer_us).max(self.min_us)
    }
}

/// What is in flight, an attempt itself included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How many.
    pub attempts: u32,
    /// Of all of them.
    pub bytes: u64,
}

/// Attempts of one class.
#[derive(Clone, Copy, Debug)]
struct SizeClass {
    slowest_us: f64,
    /// Means, forgotten alike: of the attempts, and of all that was in flight with them.
    bytes: f64,
    bytes_in_flight: f64,
}

/// One direction of one store.
#[derive(Clone, Debug)]
pub struct Deadlines {
    parameters: Parameters,
    classes: [Option<SizeClass>; CLASSES],
    doublings: u32,
    /// The largest class of those that were given up since the last one that large was answered.
    given_up_class: usize,
}

impl Deadlines {
    /// Knows nothing yet.
    pub fn new(parameters: Parameters) -> Self {
        Self {
            parameters,
            classes: [None; CLASSES],
            doublings: 0,
            given_up_class: 0,
        }
    }

    /// An attempt was answered. `load`: the least that was in flight with it.
    pub fn on_answered(&mut self, bytes: u64, load: Load, latency_us: u64) {
        let latency_us = latency_us as f64;
        let own = class_of(bytes);
        if own >= self.given_up_class {
            (self.doublings, self.given_up_class) = (0, 0);
        }
        let (bytes, bytes_in_flight) = (bytes as f64, load.bytes.max(bytes) as f64);
        let class = self.classes[own].get_or_insert(SizeClass {
            slowest_us: latency_us,
            bytes,
            bytes_in_flight,
        });
        class.slowest_us = latency_us.max(class.slowest_us + (latency_us - class.slowest_us) * FORGOTTEN);
        class.bytes += (bytes - class.bytes) * FORGOTTEN;
        class.bytes_in_flight += (bytes_in_flight - class.bytes_in_flight) * FORGOTTEN;
    }

    /// An attempt of so many bytes was given up.
    pub fn on_given_up(&mut self, bytes: u64) {
        self.given_up_class = self.given_up_class.max(class_of(bytes));
        self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
    }

    /// So long after its beginning an attempt is to be given up, as things stand: to be asked again when that has come, and when
    /// something was answered. `load`: the most that was in flight with it.
    pub fn after_us(&self, bytes: u64, load: Load) -> u64 {
        let max_us = self.parameters.max_us(bytes, load.attempts);
        let Some(slowest_us) = self.slowest_us(bytes, load) else {
            return max_us;
        };
        let usual_us = (slowest_us * MARGIN).max(self.parameters.min_us as f64);
        let after_us = usual_us * f64::from(1_u32 << self.doublings);
        (after_us as u64).min(max_us)
    }

    /// What the slowest of late would take with this size and load; none before anything is known.
    fn slowest_us(&self, bytes: u64, load: Load) -> Option<f64> {
        let own = class_of(bytes);
        let as_large = self.classes[own..].iter().flatten().next();
        let class = as_large.or_else(|| self.classes[..own].iter().flatten().next_back())?;
        let size = bytes as f64;
        let larger = (size / class.bytes.max(1.0)).max(1.0);
        // What is longer by its own size is not so by that once more.
        let together = load.bytes as f64 - size + size.min(class.bytes);
        let more = (together / class.bytes_in_flight.max(1.0)).max(1.0);
        Some(class.slowest_us * larger * more)
    }
}

#[cfg(test)]
mod tests;
