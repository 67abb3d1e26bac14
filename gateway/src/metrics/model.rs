//! What `/metrics` is made of.

use super::requests::OperationMetrics;
use crate::admin::model::Status;
use crate::runtime::{LocalUse, ReplicaLook};
use tombolo_cloud_driver::{CauseCounts, GateDepth, OperationCounts, PaceState, ReadCounts, RetryCounts};
use tombolo_core::Snapshot;

/// Everything at one moment.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// What `tombolo status` shows.
    pub status: Status,
    /// What the status was made of, and what it has no room for.
    pub core: Snapshot,
    /// What lies beside the core: local metadata, fingerprint index.
    pub local: LocalUse,
    /// Requests for the blocks of volumes, one entry per operation.
    pub requests: Vec<OperationMetrics>,
    /// Requests of file clients, one entry per operation.
    pub file_requests: Vec<OperationMetrics>,
    /// What the latest finished check of all shares found; none before the first.
    pub check_findings: Option<u64>,
    /// Attempts of requests to the store, one entry per operation.
    pub store: Vec<OperationCounts>,
    /// The same by why they were made.
    pub store_causes: Vec<CauseCounts>,
    /// The same of each replica.
    pub replicas: Vec<ReplicaLook>,
    /// Reads of copies: of the store, then of each replica; nothing without replicas.
    pub reads: ReadCounts,
    /// What of them was repeated.
    pub store_retries: RetryCounts,
    /// Requests to the store that are under way or wait to be admitted.
    pub store_gate: GateDepth,
    /// Requests that may be in flight to the store.
    pub store_pace: PaceState,
    /// The same of each named store that serves.
    pub named: Vec<(String, Metrics)>,
}
