//! Clients' requests counted by operation: errors, bytes and a histogram of latencies, in relaxed atomics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Upper bounds of the latency buckets, in microseconds; a last one without bound follows.
pub const LATENCY_BOUNDS_US: [u64; 14] = [
    50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 102_400, 409_600, 1_638_400, 6_553_600,
];
const BUCKETS: usize = LATENCY_BOUNDS_US.len() + 1;

/// A request that began.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    operation: usize,
    bytes: u64,
    at: Instant,
}

impl Started {
    /// `operation` counts within the names of the [`Meters`] that will observe it; `bytes` is what it moves.
    pub fn now(operation: usize, bytes: u64) -> Self {
        Self {
            operation,
            bytes,
            at: Instant::now(),
        }
    }
}

#[derive(Debug, Default)]
struct Meter {
    errors: AtomicU64,
    bytes: AtomicU64,
    micros: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// One operation at one moment. `buckets` are not cumulative.
#[derive(Clone, Debug)]
pub struct OperationMeter {
    pub operation: &'static str,
    pub errors: u64,
    pub bytes: u64,
    pub micros: u64,
    pub buckets: Vec<u64>,
}

#[derive(Debug)]
pub struct Meters {
    operations: &'static [&'static str],
    meters: Vec<Meter>,
}

impl Meters {
    pub fn new(operations: &'static [&'static str]) -> Self {
        Self {
            operations,
            meters: operations.iter().map(|_| Meter::default()).collect(),
        }
    }

    pub fn observe(&self, started: &Started, ok: bool) {
        let meter = &self.meters[started.operation];
        let micros = started.at.elapsed().as_micros() as u64;
        if ok {
            meter.bytes.fetch_add(started.bytes, Relaxed);
        } else {
            meter.errors.fetch_add(1, Relaxed);
        }
        meter.micros.fetch_add(micros, Relaxed);
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < micros);
        meter.buckets[bucket].fetch_add(1, Relaxed);
    }

    pub fn snapshot(&self) -> Vec<OperationMeter> {
        let meters = self.operations.iter().zip(&self.meters);
        meters
            .map(|(operation, meter)| OperationMeter {
                operation,
                errors: meter.errors.load(Relaxed),
                bytes: meter.bytes.load(Relaxed),
                micros: meter.micros.load(Relaxed),
                buckets: meter.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect(),
            })
            .collect()
    }
}
