//! What `/metrics` is made of: one status, and the counters and distributions that a status has no room for.

use crate::admin::model::Status;

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    pub status: Status,
    /// Requests of clients, one entry per NBD command.
    pub requests: Vec<OperationMetrics>,
    /// Requests of file clients, one entry per operation.
    pub file_requests: Vec<OperationMetrics>,
    /// What the latest finished check of all shares found; none before the first.
    pub check_findings: Option<u64>,
    /// Requests to the store, one entry per operation.
    pub store: Vec<StoreOperationMetrics>,
    pub work: WorkMetrics,
}

/// One command of clients. The label is a fixed word, such as `read`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperationMetrics {
    pub operation: &'static str,
    pub errors: u64,
    pub bytes: u64,
    /// From the request's arrival to its answer, in seconds. Its count is the number of requests.
    pub seconds: Histogram,
}

/// One operation of the store. The label is a fixed word, such as `put`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreOperationMetrics {
    pub operation: &'static str,
    pub bytes: u64,
    /// Failed attempts by kind.
    pub failures: Vec<(&'static str, u64)>,
    pub seconds: Histogram,
}

/// Work of the gateway itself since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkMetrics {
    pub uploads: u64,
    pub upload_failures: u64,
    pub upload_bytes: u64,
    pub fetches: u64,
    pub fetch_failures: u64,
    pub fetches_in_flight: u64,
    pub syncs: u64,
    pub checkpoints: u64,
    pub slots_stale: u64,
    pub metadata_bytes: u64,
    pub index_entries: u64,
    pub index_runs: u64,
    /// Fingerprints not kept because the index was full; they cost duplicates, never data.
    pub index_entries_dropped: u64,
}

/// A distribution. `buckets` hold (upper bound, observations at or below it and above the bound before), ascending;
/// a last bound of infinity is added when there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    pub sum: f64,
    pub buckets: Vec<(f64, u64)>,
}

impl Histogram {
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}
