//! What a run tells.

use super::gateway::{Gateway, InFlight};
use super::job::Job;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tombolo_flow_control::concurrency::Outcome;

/// What came of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// As in the job.
    pub windows: Vec<WindowReport>,
    /// Samples over the whole run.
    pub series: Vec<Sample>,
}

/// Of one span of time; what counts is when something ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowReport {
    /// Its beginning and end.
    pub span_s: (f64, f64),
    /// Operations that came.
    pub offered_per_s: f64,
    /// Operations that were done.
    pub done_per_s: f64,
    /// Their bytes, as far as they went to the store.
    pub mib_per_s: f64,
    /// Requests that were done.
    pub requests_per_s: f64,
    /// Attempts that were refused.
    pub slow_downs: u64,
    /// Attempts without an answer.
    pub lost: u64,
    /// From the arrival of an operation to its end.
    pub latency_ms: Latency,
    /// From the sending of a request to its end, by its bytes.
    pub request_ms: BTreeMap<u64, Latency>,
    /// Operations that had come and were not done, when it began and ended.
    pub backlog: (u64, u64),
    /// Over gateways and time.
    pub interval_ms: f64,
    /// At the end, of each gateway.
    pub intervals_ms: Vec<f64>,
    /// Over gateways and time; gateways without a limit count as their requests in flight.
    pub limit: f64,
    /// Requests in flight of all gateways, over time.
    pub in_flight: f64,
    /// Jain's index of the gateways' mean latencies.
    pub latency_fairness: f64,
    /// Jain's index of the operations that each gateway got done.
    pub throughput_fairness: f64,
}

/// A distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Latency {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

/// The state at an instant, and what was done since the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in the windows")]
pub struct Sample {
    pub at_s: f64,
    pub interval_ms: f64,
    pub limit: f64,
    pub in_flight: u64,
    pub backlog: u64,
    pub done: u64,
    pub latency_ms: f64,
}

impl Latency {
    pub(super) fn of(mut micros: Vec<u64>) -> Self {
        micros.sort_unstable();
        let count = micros.len();
        let at = |share: f64| {
            let rank = (share * count as f64).ceil() as usize;
            micros.get(rank.max(1) - 1).map_or(0.0, |us| *us as f64 / 1e3)
        };
        Self {
            count: count as u64,
            mean: micros.iter().sum::<u64>() as f64 / 1e3 / count.max(1) as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
        }
    }
}

/// Jain, Chiu and Hawe: 1 where all are equal, 1/n where one has all.
fn fairness(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / (values.len() as f64 * squares)
    }
}

#[derive(Debug, Default)]
struct Window {
    from_us: u64,
    to_us: u64,
    came: u64,
    requests: u64,
    bytes: u64,
    slow_downs: u64,
    lost: u64,
    latencies_us: Vec<u64>,
    by_size_us: BTreeMap<u64, Vec<u64>>,
    by_gateway: Vec<(u64, u64)>,
    backlog: Option<(u64, u64)>,
    samples: u64,
    interval_us_sum: f64,
    intervals_us: Vec<u64>,
    limit_sum: f64,
    in_flight_sum: f64,
}

#[derive(Debug)]
pub(super) struct Collector {
    windows: Vec<Window>,
    series: Vec<Sample>,
    done: u64,
    latency_us_sum: u64,
}

impl Collector {
    pub fn new(job: &Job, gateways: usize) -> Self {
        let windows = job.windows_s.iter().map(|(from, to)| Window {
            from_us: (from * 1e6) as u64,
            to_us: (to * 1e6) as u64,
            by_gateway: vec![(0, 0); gateways],
            ..Window::default()
        });
        Self {
            windows: windows.collect(),
            series: Vec::new(),
            done: 0,
            latency_us_sum: 0,
        }
    }

    fn at(&mut self, now: u64) -> impl Iterator<Item = &mut Window> {
        self.windows
            .iter_mut()
            .filter(move |window| (window.from_us..=window.to_us).contains(&now))
    }

    pub fn came(&mut self, now: u64) {
        self.at(now).for_each(|window| window.came += 1);
    }

    pub fn ended(&mut self, now: u64, gateway: usize, in_flight: &InFlight, outcome: Outcome) {
        let pending = &in_flight.pending;
        if outcome == Outcome::Done {
            self.done += pending.operations.len() as u64;
            self.latency_us_sum += pending
                .operations
                .iter()
                .map(|operation| now - operation.came_us)
                .sum::<u64>();
        }
        for window in self.at(now) {
            match outcome {
                Outcome::SlowDown => window.slow_downs += 1,
                Outcome::Lost => window.lost += 1,
                Outcome::Done => {
                    window.requests += 1;
                    window.bytes += pending.request.bytes;
                    let by_size = window
                        .by_size_us
                        .entry(pending.request.bytes.next_power_of_two())
                        .or_default();
                    by_size.push(now - in_flight.sent_us);
                    for operation in &pending.operations {
                        let latency_us = now - operation.came_us;
                        window.latencies_us.push(latency_us);
                        window.by_gateway[gateway].0 += 1;
                        window.by_gateway[gateway].1 += latency_us;
                    }
                }
            }
        }
    }

    pub fn sample(&mut self, now: u64, gateways: &[Gateway]) {
        let count = gateways.len() as f64;
        let backlog = gateways.iter().map(|gateway| gateway.backlog).sum();
        let in_flight: u64 = gateways.iter().map(|gateway| u64::from(gateway.in_flight)).sum();
        let interval_us = gateways.iter().map(|gateway| gateway.interval_us() as f64).sum::<f64>() / count;
        let limits = gateways.iter().map(|gateway| match gateway.limit() {
            u32::MAX => f64::from(gateway.in_flight),
            limit => f64::from(limit),
        });
        let limit = limits.sum::<f64>() / count;
        for window in self.at(now) {
            window.samples += 1;
            window.interval_us_sum += interval_us;
            window.limit_sum += limit;
            window.in_flight_sum += in_flight as f64;
            window.intervals_us = gateways.iter().map(Gateway::interval_us).collect();
            window.backlog = Some((window.backlog.map_or(backlog, |at| at.0), backlog));
        }
        self.series.push(Sample {
            at_s: now as f64 / 1e6,
            interval_ms: interval_us / 1e3,
            limit,
            in_flight,
            backlog,
            done: self.done,
            latency_ms: self.latency_us_sum as f64 / 1e3 / self.done.max(1) as f64,
        });
        (self.done, self.latency_us_sum) = (0, 0);
    }

    pub fn report(self) -> Report {
        Report {
            windows: self.windows.into_iter().map(Window::report).collect(),
            series: self.series,
        }
    }
}

impl Window {
    fn report(self) -> WindowReport {
        const BYTES_PER_MIB: f64 = 1_048_576.0;
        let seconds = (self.to_us - self.from_us) as f64 / 1e6;
        let samples = self.samples.max(1) as f64;
        let means: Vec<f64> = self
            .by_gateway
            .iter()
            .filter(|(done, _)| *done > 0)
            .map(|(done, us)| *us as f64 / *done as f64)
            .collect();
        let counts: Vec<f64> = self.by_gateway.iter().map(|(done, _)| *done as f64).collect();
        WindowReport {
            span_s: (self.from_us as f64 / 1e6, self.to_us as f64 / 1e6),
            offered_per_s: self.came as f64 / seconds,
            done_per_s: self.latencies_us.len() as f64 / seconds,
            mib_per_s: self.bytes as f64 / BYTES_PER_MIB / seconds,
            requests_per_s: self.requests as f64 / seconds,
            slow_downs: self.slow_downs,
            lost: self.lost,
            latency_ms: Latency::of(self.latencies_us),
            request_ms: self
                .by_size_us
                .into_iter()
                .map(|(bytes, micros)| (bytes, Latency::of(micros)))
                .collect(),
            backlog: self.backlog.unwrap_or_default(),
            interval_ms: self.interval_us_sum / samples / 1e3,
            intervals_ms: self.intervals_us.iter().map(|us| *us as f64 / 1e3).collect(),
            limit: self.limit_sum / samples,
            in_flight: self.in_flight_sum / samples,
            latency_fairness: fairness(&means),
            throughput_fairness: fairness(&counts),
        }
    }
}
