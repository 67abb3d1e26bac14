//! The method without the world: files to write, traffic that was seen, verdicts, and the report.
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]

pub mod http;
pub mod probes;
pub mod report;
pub mod traffic;
pub mod verdicts;
pub mod workloads;
