//! What is counted while a replay runs: latencies, traffic, stored bytes, and all of it by time.

use super::report::{CloudTraffic, Latencies, Point, Series};
use hdrhistogram::Histogram;
use tombolo_billing::{Dollars, Prices, Usage};

/// Latencies are counted up to a year, in microseconds.
const MICROS_MAX: u64 = 366 * 24 * 3600 * 1_000_000;
const QUANTILES: [f64; 10] = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.8, 0.9, 0.95, 0.99];
const QUANTILES_HIGH: [f64; 2] = [0.999, 0.9999];
/// The histogram's bounds grow by a quarter each, from 10 us on.
const BOUND_FIRST: u64 = 10;
const BOUND_FACTOR: f64 = 1.25;

/// Latencies of requests of one kind.
#[derive(Debug)]
pub struct LatencyCounts(Option<Histogram<u64>>);

impl LatencyCounts {
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, MICROS_MAX, 3).ok())
    }

    pub fn count(&mut self, micros: u64) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(micros);
        }
    }

    pub fn clear(&mut self) {
        if let Some(histogram) = &mut self.0 {
            histogram.reset();
        }
    }

    pub fn report(&self) -> Latencies {
        let Some(histogram) = self.0.as_ref().filter(|histogram| !histogram.is_empty()) else {
            return Latencies::default();
        };
        let ms = |micros: u64| micros as f64 / 1_000.0;
        let quantiles = QUANTILES.iter().chain(&QUANTILES_HIGH);
        let bars = histogram.iter_log(BOUND_FIRST, BOUND_FACTOR);
        let bars = bars.map(|bar| (ms(bar.value_iterated_to()), bar.count_since_last_iteration()));
        Latencies {
            count: histogram.len(),
            mean: histogram.mean() / 1_000.0,
            min: ms(histogram.min()),
            max: ms(histogram.max()),
            quantiles: quantiles
                .map(|at| (*at, ms(histogram.value_at_quantile(*at))))
                .collect(),
            histogram: bars.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

/// Points by time: the interval doubles when they become too many.
#[derive(Debug)]
pub struct SeriesCounts {
    interval_us: u64,
    points: Vec<Point>,
}

const INTERVAL_US_MIN: u64 = 1_000_000;
const POINTS_MAX: usize = 512;

impl SeriesCounts {
    pub fn new() -> Self {
        Self {
            interval_us: INTERVAL_US_MIN,
            points: Vec::new(),
        }
    }

    pub fn at(&mut self, now: u64) -> &mut Point {
        while (now / self.interval_us) as usize >= POINTS_MAX {
            self.interval_us *= 2;
            let pairs = self.points.chunks(2);
            self.points = pairs
                .map(|pair| pair.iter().copied().reduce(sum).unwrap_or_default())
                .collect();
        }
        let index = (now / self.interval_us) as usize;
        if self.points.len() <= index {
            self.points.resize(index + 1, Point::default());
        }
        &mut self.points[index]
    }

    pub fn report(&self) -> Series {
        Series {
            interval_seconds: self.interval_us as f64 / 1e6,
            points: self.points.clone(),
        }
    }
}

fn sum(left: Point, right: Point) -> Point {
    Point {
        reads: left.reads + right.reads,
        read_misses: left.read_misses + right.read_misses,
        writes: left.writes + right.writes,
        gets: left.gets + right.gets,
        puts: left.puts + right.puts,
        bytes_down: left.bytes_down + right.bytes_down,
        bytes_up: left.bytes_up + right.bytes_up,
    }
}

/// Bytes in the cloud, by time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stored {
    pub bytes: u64,
    since_us: u64,
    byte_seconds: f64,
}

impl Stored {
    pub fn add(&mut self, now: u64, bytes: u64) {
        self.byte_seconds += self.bytes as f64 * (now - self.since_us) as f64 / 1e6;
        self.since_us = now;
        self.bytes += bytes;
    }

    /// Forgets what was stored for how long, not what is stored.
    pub fn clear(&mut self, now: u64) {
        self.add(now, 0);
        self.byte_seconds = 0.0;
    }
}

pub fn dollars(prices: &Prices, traffic: &CloudTraffic, stored: &Stored) -> Dollars {
    let used = Usage {
        puts: traffic.puts,
        gets: traffic.gets,
        bytes_up: traffic.bytes_up,
        bytes_down: traffic.bytes_down,
        ..Usage::default()
    };
    let storage = prices.of_storage(stored.byte_seconds);
    prices.of_usage(&used).with_storage(storage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_billing::{MONTH_SECONDS, Table};

    #[test]
    fn the_series_keeps_its_sums_while_it_grows() {
        let mut series = SeriesCounts::new();
        for index in 0..5_000u64 {
            series.at(index * 700_000).reads += 1;
        }
        let report = series.report();
        assert!(report.points.len() <= POINTS_MAX && report.interval_seconds > 1.0);
        assert_eq!(report.points.iter().map(|point| point.reads).sum::<u64>(), 5_000);
    }

    #[test]
    fn storage_costs_by_time() {
        let mut stored = Stored::default();
        stored.add(0, 1 << 30);
        stored.add((MONTH_SECONDS * 1e6) as u64, 0);
        let prices = Table::AwsS3Standard.prices();
        let dollars = dollars(&prices, &CloudTraffic::default(), &stored);
        assert!((dollars.storage - prices.storage_usd_per_gib_month).abs() < 1e-9);
    }

    #[test]
    fn latencies_are_within_a_thousandth() {
        let mut counts = LatencyCounts::new();
        (1..=1_000u64).for_each(|ms| counts.count(ms * 1_000));
        let report = counts.report();
        let (_, median) = report.quantiles[4];
        assert!(
            (median - 500.0).abs() <= 0.5 && (report.mean - 500.5).abs() < 0.5,
            "{report:?}"
        );
        assert_eq!(report.histogram.iter().map(|(_, count)| count).sum::<u64>(), 1_000);
    }
}
