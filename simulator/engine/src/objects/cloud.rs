//! How long transfers to a cloud take, and what they cost.
//!
//! Latency of a request = service + round trips * distance + bytes / bandwidth. The number of round trips follows TCP's
//! slow start: one window for the first, twice as much for each further one; a connection that has to be made first takes
//! some more. Service time and distance fluctuate independently from request to request, log-normally, about their means.
//! Beside that all latencies of a location may drift together ([`Drift`]).

use super::job::{Error, check_amount, check_positive};
use crate::random;
use serde::{Deserialize, Serialize};
use tombolo_base::Prng;
use tombolo_billing::{Prices, Usage};
use tombolo_cache::CostClass;

const MIB: f64 = 1024.0 * 1024.0;

/// One place in a cloud, as it is seen from the cache.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Location {
    /// For reports.
    pub name: String,
    /// The distance, on average.
    pub round_trip_ms: f64,
    /// What the cloud itself takes for a small GET or PUT, on average.
    pub get_ms: f64,
    /// As `get_ms`.
    pub put_ms: f64,
    /// Bandwidth of downloads.
    pub get_mib_per_s: f64,
    /// Bandwidth of uploads.
    pub put_mib_per_s: f64,
    /// What the first round trip carries; each further one carries twice the last. Ten segments of 1,460 bytes.
    #[serde(default = "ten_segments")]
    pub window_bytes: f64,
    /// Round trips before a request can be sent; zero: the connection is there already.
    #[serde(default)]
    pub handshake_round_trips: f64,
    /// Of the logarithms of service time and distance; zero: none.
    #[serde(default)]
    pub service_sigma: f64,
    /// As `service_sigma`.
    #[serde(default)]
    pub round_trip_sigma: f64,
    /// What all its requests have in common; without it: nothing.
    #[serde(default)]
    pub drift: Drift,
    /// What its provider charges.
    pub prices: Prices,
}

/// A factor on all latencies of a location, one on average. Its logarithm is autoregressive of the first order, with a
/// step a minute.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Drift {
    /// Deviation of the logarithm over all times; zero: none.
    pub sigma: f64,
    /// After which a deviation has fallen to 1/e.
    pub correlation_minutes: f64,
}

/// One course of a [`Drift`], followed forwards. It depends on the seed and the location alone, so that every policy finds
/// the same factor at the same time.
#[derive(Debug)]
pub(super) struct DriftCourse {
    drift: Drift,
    prng: Prng,
    minute: u64,
    /// In deviations.
    log: f64,
}

const MINUTE_US: u64 = 60_000_000;

impl DriftCourse {
    pub fn new(drift: Drift, seed: u64, location: usize) -> Self {
        let mut prng = Prng::new(Prng::new(seed).next_u64() ^ Prng::new(u64::MAX - location as u64).next_u64());
        let log = random::normal(&mut prng);
        Self {
            drift,
            prng,
            minute: 0,
            log,
        }
    }

    /// At a time that is not before the last one.
    pub fn factor(&mut self, at_us: u64) -> f64 {
        let sigma = self.drift.sigma;
        if sigma == 0.0 {
            return 1.0;
        }
        let kept = (-1.0 / self.drift.correlation_minutes).exp();
        while self.minute < at_us / MINUTE_US {
            let fresh = random::normal(&mut self.prng);
            self.log = kept * self.log + (1.0 - kept * kept).sqrt() * fresh;
            self.minute += 1;
        }
        (sigma * self.log - sigma * sigma / 2.0).exp()
    }
}

fn ten_segments() -> f64 {
    14_600.0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Download,
    Upload,
}

/// Which transfer: what is drawn for it depends on this and the seed alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub direction: Direction,
    pub object: u32,
    /// Requests for the object up to this one.
    pub number: u32,
    pub bytes: u32,
}

impl Location {
    pub(super) fn check(&self) -> Result<(), Error> {
        let field = |name: &str| format!("locations.{}.{name}", self.name);
        for (name, value) in [
            ("round_trip_ms", self.round_trip_ms),
            ("get_ms", self.get_ms),
            ("put_ms", self.put_ms),
            ("handshake_round_trips", self.handshake_round_trips),
            ("drift.sigma", self.drift.sigma),
            ("drift.correlation_minutes", self.drift.correlation_minutes),
            ("service_sigma", self.service_sigma),
            ("round_trip_sigma", self.round_trip_sigma),
        ] {
            check_amount(field(name), value)?;
        }
        for (name, value) in self.prices.fields() {
            check_amount(field(&format!("prices.{name}")), value)?;
        }
        check_positive(field("get_mib_per_s"), self.get_mib_per_s)?;
        check_positive(field("put_mib_per_s"), self.put_mib_per_s)?;
        check_positive(field("window_bytes"), self.window_bytes)
    }

    /// What a transfer of so many bytes takes on average.
    fn mean_us(&self, direction: Direction, bytes: u32) -> f64 {
        let (service, network) = self.parts_us(direction, bytes);
        service + network
    }

    /// Service and network time.
    fn parts_us(&self, direction: Direction, bytes: u32) -> (f64, f64) {
        let (service_ms, mib_per_s) = match direction {
            Direction::Download => (self.get_ms, self.get_mib_per_s),
            Direction::Upload => (self.put_ms, self.put_mib_per_s),
        };
        let windows = (f64::from(bytes) / self.window_bytes + 1.0).log2().ceil().max(1.0);
        let round_trips = self.handshake_round_trips + windows;
        let network_ms = round_trips * self.round_trip_ms + f64::from(bytes) / MIB / mib_per_s * 1e3;
        (service_ms * 1e3, network_ms * 1e3)
    }

    /// What a policy is told of it: straight lines through a byte and a MiB.
    pub fn costs(&self) -> CostClass {
        let linear = |direction| {
            let (small, large) = (self.mean_us(direction, 1), self.mean_us(direction, 1 << 20));
            (small as u32, ((large - small) * 1e3 / 1024.0) as u32)
        };
        let (download_us, download_ns_per_kib) = linear(Direction::Download);
        let (upload_us, upload_ns_per_kib) = linear(Direction::Upload);
        CostClass {
            round_trip_us: (self.round_trip_ms * 1e3) as u32,
            download_us,
            download_ns_per_kib,
            upload_us,
            upload_ns_per_kib,
            get_nanodollars: (self.prices.get_usd_per_1000 * 1e6).round() as u32,
            egress_nanodollars_per_mib: (self.prices.egress_usd_per_gib / 1024.0 * 1e9).round() as u32,
            put_nanodollars: (self.prices.put_usd_per_1000 * 1e6).round() as u32,
        }
    }

    /// What one transfer takes, while all latencies are multiplied by `factor`.
    pub(super) fn draw_us(&self, seed: u64, transfer: Transfer, factor: f64) -> u64 {
        let (service, network) = self.parts_us(transfer.direction, transfer.bytes);
        let direction = u64::from(transfer.direction == Direction::Upload);
        let which = u64::from(transfer.object) << 33 | u64::from(transfer.number) << 1 | direction;
        let mut prng = Prng::new(Prng::new(seed).next_u64() ^ Prng::new(which).next_u64());
        let service = service * random::unit_lognormal(&mut prng, self.service_sigma);
        let network = network * random::unit_lognormal(&mut prng, self.round_trip_sigma);
        ((service + network) * factor).max(1.0) as u64
    }
}

/// Bytes and requests, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    pub gets: u64,
    pub puts: u64,
    pub bytes_down: u64,
    pub bytes_up: u64,
}

impl Traffic {
    /// As it is charged.
    pub fn used(&self) -> Usage {
        Usage {
            puts: self.puts,
            gets: self.gets,
            bytes_up: self.bytes_up,
            bytes_down: self.bytes_down,
            ..Usage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_billing::Table;

    fn far() -> Location {
        Location {
            name: "far".into(),
            round_trip_ms: 100.0,
            get_ms: 30.0,
            put_ms: 40.0,
            get_mib_per_s: 16.0,
            put_mib_per_s: 8.0,
            window_bytes: 16_384.0,
            handshake_round_trips: 0.0,
            service_sigma: 0.0,
            round_trip_sigma: 0.0,
            drift: Drift::default(),
            prices: Table::AwsS3Standard.prices(),
        }
    }

    fn transfer(bytes: u32, number: u32) -> Transfer {
        Transfer {
            direction: Direction::Download,
            object: 3,
            number,
            bytes,
        }
    }

    #[test]
    fn each_round_trip_carries_twice_as_much() {
        for (bytes, windows) in [(1, 1.0), (16_384, 1.0), (16_385, 2.0), (49_152, 2.0), (49_153, 3.0)] {
            let transferred_ms = f64::from(bytes) / MIB / 16.0 * 1e3;
            let expected_us = (30.0 + 100.0 * windows + transferred_ms) * 1e3;
            assert_eq!(
                far().draw_us(1, transfer(bytes, 0), 1.0),
                expected_us as u64,
                "{bytes} bytes"
            );
        }
    }

    #[test]
    fn a_new_connection_takes_its_handshakes() {
        let cold = Location {
            handshake_round_trips: 3.0,
            ..far()
        };
        for bytes in [1, 200_000] {
            let waited_us = cold.draw_us(1, transfer(bytes, 0), 1.0) - far().draw_us(1, transfer(bytes, 0), 1.0);
            assert_eq!(waited_us, 300_000);
        }
        assert_eq!(cold.costs().download_us, 430_000, "policies are told");
        assert_eq!(
            cold.costs().round_trip_us,
            100_000,
            "latencies are normalised by the distance"
        );
    }

    fn course(seed: u64, location: usize) -> DriftCourse {
        let drift = Drift {
            sigma: 0.2,
            correlation_minutes: 30.0,
        };
        DriftCourse::new(drift, seed, location)
    }

    #[test]
    fn a_location_has_one_factor_a_minute_whoever_asks() {
        let (mut often, mut seldom) = (course(4, 0), course(4, 0));
        let all: Vec<f64> = (0..2_000).map(|step| often.factor(step * MINUTE_US / 4)).collect();
        assert!(
            all.chunks(4)
                .all(|minute| minute.iter().all(|factor| *factor == minute[0]))
        );
        for step in [7, 800, 801, 1_999] {
            assert_eq!(seldom.factor(step * MINUTE_US / 4), all[step as usize]);
        }
        assert_ne!(course(4, 1).factor(0), all[0]);
        assert_ne!(course(5, 0).factor(0), all[0]);
        assert_eq!(DriftCourse::new(Drift::default(), 4, 0).factor(MINUTE_US), 1.0);
    }

    /// Mean, deviation, and what is left of a deviation after a while are those asked for.
    #[test]
    fn the_drift_is_autoregressive() {
        let minutes = 400_000;
        let mut course = course(1, 0);
        let factors: Vec<f64> = (0..minutes).map(|minute| course.factor(minute * MINUTE_US)).collect();
        let mean = |values: &mut dyn Iterator<Item = f64>| {
            let (count, sum) = values.fold((0u32, 0.0), |(count, sum), value| (count + 1, sum + value));
            sum / f64::from(count)
        };
        assert!((mean(&mut factors.iter().copied()) - 1.0).abs() < 0.01);
        let logs: Vec<f64> = factors.iter().map(|factor| factor.ln() + 0.02).collect();
        let variance = mean(&mut logs.iter().map(|log| log * log));
        assert!((variance.sqrt() - 0.2).abs() < 0.01, "{variance}");
        let apart = mean(&mut logs.iter().zip(&logs[30..]).map(|(one, other)| one * other));
        assert!((apart / variance - (-1.0f64).exp()).abs() < 0.03, "{apart}");
    }

    #[test]
    fn draws_depend_on_what_is_drawn_for_and_keep_the_mean() {
        let noisy = Location {
            service_sigma: 0.4,
            round_trip_sigma: 0.1,
            ..far()
        };
        assert_eq!(
            noisy.draw_us(5, transfer(100, 7), 1.0),
            noisy.draw_us(5, transfer(100, 7), 1.0)
        );
        assert_ne!(
            noisy.draw_us(5, transfer(100, 7), 1.0),
            noisy.draw_us(5, transfer(100, 8), 1.0)
        );
        assert_ne!(
            noisy.draw_us(5, transfer(100, 7), 1.0),
            noisy.draw_us(6, transfer(100, 7), 1.0)
        );
        let draws: u64 = (0..20_000)
            .map(|number| noisy.draw_us(1, transfer(1, number), 1.0))
            .sum();
        let mean_ms = draws as f64 / 20_000.0 / 1e3;
        assert!((mean_ms - 130.0).abs() < 1.0, "{mean_ms}");
    }

    #[test]
    fn prices_reach_the_policy_to_the_nanodollar() {
        let costs = far().costs();
        assert_eq!((costs.get_nanodollars, costs.put_nanodollars), (400, 5_000));
        assert_eq!(costs.egress_nanodollars_per_mib, 87_891);
        assert_eq!((costs.round_trip_us, costs.download_us), (100_000, 130_000));
    }
}
