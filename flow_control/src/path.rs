//! What the way to a store and back is like, of requests of very different sizes: how long each size usually takes, and how
//! many bytes come through at the most.
//!
//! Latencies are averaged as logarithms, by classes of size, so that neither the tail of a distribution nor the largest objects
//! decide alone. Averages stand still while a comparison is under way and take in what came of it afterwards.

use crate::logarithm::{exp2, log2};

/// Below 4 KiB, then a class for each doubling; the last has all from 64 MiB on.
const CLASSES: usize = 16;
/// Measured rates that the highest one is sought in.
const RATES: usize = 16;
/// Samples that weigh as much as the average so far.
const AVERAGE_SAMPLES: f64 = 8.0;
/// The weight of the newest request in what is known of how long places are taken, and the most that is believed of that.
const OCCUPANCY_WEIGHT: f64 = 1.0 / 256.0;
const OCCUPIED_US_MAX: f64 = 60e6;
/// The part of the way that an undisturbed latency rises to the current one with each comparison.
const RISE: f64 = 1.0 / 32.0;

fn class_of(bytes: u64) -> usize {
    ((u64::BITS - (bytes >> 12).leading_zeros()) as usize).min(CLASSES - 1)
}

/// Requests of one class.
#[derive(Clone, Copy, Debug, Default)]
struct SizeClass {
    /// log2 of microseconds, on average; none before the first request.
    usual: Option<f64>,
    /// The lowest that `usual` was of late.
    undisturbed: f64,
    /// Of the comparison under way.
    samples: f64,
    residual_sum: f64,
    bytes_sum: f64,
    /// Mean size.
    bytes: f64,
}

/// One direction of one store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    classes: [SizeClass; CLASSES],
    /// Bytes per microsecond, the newest overwriting the oldest.
    rates: [f64; RATES],
    rates_seen: usize,
    latency_us: f64,
    squared_latency: f64,
}

impl Path {
    /// log2 of latency over what is usual for this size, and what that is, in microseconds.
    pub fn note_latency(&mut self, bytes: u64, latency_us: u64) -> (f64, f64) {
        let class = &mut self.classes[class_of(bytes)];
        let latency = log2(latency_us.max(1) as f64);
        let usual = *class.usual.get_or_insert_with(|| {
            class.undisturbed = latency;
            latency
        });
        let residual = latency - usual;
        class.samples += 1.0;
        class.residual_sum += residual;
        class.bytes_sum += bytes as f64;
        (residual, exp2(usual))
    }

    /// A request of any size took so long.
    pub fn note_occupancy(&mut self, latency_us: u64) {
        let latency_us = (latency_us as f64).min(OCCUPIED_US_MAX);
        self.latency_us += (latency_us - self.latency_us) * OCCUPANCY_WEIGHT;
        self.squared_latency += (latency_us * latency_us - self.squared_latency) * OCCUPANCY_WEIGHT;
    }

    /// How long the request takes that is found in a place: the mean by the time in the place, not by the request.
    pub fn occupied_us(&self) -> u64 {
        (self.squared_latency / self.latency_us.max(1.0)) as u64
    }

    /// A comparison is over: what was noted becomes part of what is usual.
    pub fn settle(&mut self) {
        for class in &mut self.classes {
            let (Some(usual), true) = (class.usual.as_mut(), class.samples > 0.0) else {
                continue;
            };
            *usual += class.residual_sum / (class.samples + AVERAGE_SAMPLES);
            class.bytes = class.bytes_sum / class.samples;
            class.undisturbed = usual.min(class.undisturbed + (*usual - class.undisturbed) * RISE);
            (class.samples, class.residual_sum, class.bytes_sum) = (0.0, 0.0, 0.0);
        }
    }

    /// So many bytes came in so long.
    pub fn note_rate(&mut self, bytes: u64, elapsed_us: u64) {
        self.rates[self.rates_seen % RATES] = bytes as f64 / elapsed_us.max(1) as f64;
        self.rates_seen = (self.rates_seen + 1) % (2 * RATES);
    }

    /// The highest rate of late, in bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        const MICROS_PER_SECOND: f64 = 1e6;
        self.rates.iter().copied().fold(0.0, f64::max) * MICROS_PER_SECOND
    }

    /// What a request of this size takes when nothing is in its way, by the line latency = a + b * size through the classes;
    /// zero before anything is known.
    pub fn undisturbed_us(&self, bytes: u64) -> f64 {
        let (fixed, per_byte) = self.line();
        fixed + per_byte * bytes as f64
    }

    /// By least squares of relative errors, neither part below zero.
    fn line(&self) -> (f64, f64) {
        let (mut weights, mut sizes, mut latencies, mut squares, mut products) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let mut lightest = f64::MAX;
        for class in self.classes.iter().filter(|class| class.usual.is_some()) {
            let latency = exp2(class.undisturbed);
            let weight = 1.0 / (latency * latency);
            weights += weight;
            sizes += weight * class.bytes;
            latencies += weight * latency;
            squares += weight * class.bytes * class.bytes;
            products += weight * class.bytes * latency;
            lightest = lightest.min(latency);
        }
        if weights <= 0.0 {
            return (0.0, 0.0);
        }
        let (size, latency) = (sizes / weights, latencies / weights);
        let spread = squares / weights - size * size;
        // Sizes that hardly differ say nothing of the slope.
        let slope = if spread > 1e-6 * size * size {
            (products / weights - size * latency) / spread
        } else {
            0.0
        };
        let slope = slope.max(0.0).min(if size > 0.0 { latency / size } else { 0.0 });
        (latency - slope * size, slope)
    }

    /// Bytes under way that fill the link, in requests of this size; zero before anything is known.
    pub fn bandwidth_delay_bytes(&self, request_bytes: u64) -> u64 {
        const MICROS_PER_SECOND: f64 = 1e6;
        (self.bytes_per_s() / MICROS_PER_SECOND * self.undisturbed_us(request_bytes)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_comes_back_of_what_was_seen() {
        let mut path = Path::default();
        assert_eq!((path.undisturbed_us(1), path.bandwidth_delay_bytes(1)), (0.0, 0));
        for _ in 0..50 {
            for bytes in [4_096, 65_536, 1 << 20, 4 << 20] {
                path.note_latency(bytes, 20_000 + bytes / 50);
            }
            path.settle();
        }
        for bytes in [0, 4_096, 300_000, 16 << 20] {
            let expected = 20_000.0 + bytes as f64 / 50.0;
            assert!((path.undisturbed_us(bytes) / expected - 1.0).abs() < 0.01, "{bytes}");
        }
        path.note_rate(500_000_000, 1_000_000);
        path.note_rate(1_000, 1_000_000);
        assert_eq!(path.bandwidth_delay_bytes(1 << 20) >> 16, (500 * 40_971) >> 16);
    }

    #[test]
    fn one_size_alone_has_no_slope() {
        let mut path = Path::default();
        path.note_latency(65_536, 30_000);
        path.settle();
        assert!((path.undisturbed_us(1) - 30_000.0).abs() < 1.0);
    }

    #[test]
    fn queues_hardly_count_as_the_way_and_lasting_change_does() {
        let mut path = Path::default();
        let mut after = |comparisons: usize, latency_us: u64| {
            for _ in 0..comparisons {
                for _ in 0..100 {
                    path.note_latency(65_536, latency_us);
                }
                path.settle();
            }
            path.undisturbed_us(65_536)
        };
        assert!((after(5, 20_000) - 20_000.0).abs() < 200.0);
        assert!(after(3, 80_000) < 25_000.0);
        assert!(after(300, 80_000) > 70_000.0);
        assert!(after(5, 20_000) < 21_000.0);
    }

    #[test]
    fn residuals_are_about_what_is_usual_for_the_size() {
        let mut path = Path::default();
        for bytes in [4_096, 4 << 20] {
            let (residual, usual_us) = path.note_latency(bytes, 1_000 + bytes);
            assert!(residual == 0.0 && (usual_us / (1_000 + bytes) as f64 - 1.0).abs() < 1e-6);
        }
        let (doubled, _) = path.note_latency(4 << 20, 2 * (1_000 + (4 << 20)));
        assert!((doubled - 1.0).abs() < 1e-6, "{doubled}");
    }
}
