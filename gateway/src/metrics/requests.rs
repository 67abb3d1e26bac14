//! Clients' requests, counted by operation: errors, bytes, and how long they took.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use tombolo_base::{Distribution, Histogram, Named, names};

/// Bounds of latencies, in microseconds.
const LATENCY_BOUNDS_US: [u64; 14] = [
    50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 102_400, 409_600, 1_638_400, 6_553_600,
];

names! {
    /// Requests for the blocks of a volume, as they are counted.
    pub enum BlockOperation: "operation" {
        Read = "read",
        Write = "write",
        Flush = "flush",
        Trim = "trim",
        WriteZeroes = "write_zeroes",
        BlockStatus = "block_status",
    }
}

names! {
    /// Requests for the files of a share, as they are counted.
    pub enum FileOperation: "operation" {
        Lookup = "lookup",
        Getattr = "getattr",
        Setattr = "setattr",
        Create = "create",
        Remove = "remove",
        Rename = "rename",
        Open = "open",
        Read = "read",
        Write = "write",
        Sync = "sync",
        Readdir = "readdir",
        Other = "other",
    }
}

/// A request that began.
#[derive(Clone, Copy, Debug)]
pub struct Started<Operation> {
    operation: Operation,
    bytes: u64,
    at: Instant,
}

impl<Operation> Started<Operation> {
    /// `bytes` is what the request moves.
    pub fn now(operation: Operation, bytes: u64) -> Self {
        Self {
            operation,
            bytes,
            at: Instant::now(),
        }
    }
}

#[derive(Debug)]
struct Meter {
    errors: AtomicU64,
    bytes: AtomicU64,
    micros: Histogram,
}

/// One operation at one moment.
#[derive(Clone, Debug)]
pub struct OperationMetrics {
    /// The word of the label `operation`.
    pub operation: &'static str,
    /// Requests that were answered with one.
    pub errors: u64,
    /// Of those that succeeded.
    pub bytes: u64,
    /// From the request's arrival to its answer. Its count is the number of requests.
    pub micros: Distribution,
}

/// All requests of one kind of clients.
#[derive(Debug)]
pub struct Meters<Operation> {
    meters: Vec<Meter>,
    operations: PhantomData<fn(Operation)>,
}

impl<Operation: Named> Default for Meters<Operation> {
    fn default() -> Self {
        let meter = |_| Meter {
            errors: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            micros: Histogram::new(&LATENCY_BOUNDS_US),
        };
        Self {
            meters: Operation::WORDS.iter().map(meter).collect(),
            operations: PhantomData,
        }
    }
}

impl<Operation: Named> Meters<Operation> {
    /// Counts a request that has been answered.
    pub fn observe(&self, started: &Started<Operation>, ok: bool) {
        let meter = &self.meters[started.operation.index()];
        if ok {
            meter.bytes.fetch_add(started.bytes, Relaxed);
        } else {
            meter.errors.fetch_add(1, Relaxed);
        }
        meter.micros.count(started.at.elapsed().as_micros() as u64);
    }

    pub fn snapshot(&self) -> Vec<OperationMetrics> {
        let meters = Operation::WORDS.iter().zip(&self.meters);
        meters
            .map(|(operation, meter)| OperationMetrics {
                operation,
                errors: meter.errors.load(Relaxed),
                bytes: meter.bytes.load(Relaxed),
                micros: meter.micros.distribution(),
            })
            .collect()
    }
}
