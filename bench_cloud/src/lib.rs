//! A black-box benchmark of cloud storage clients (Bocchi et al., Personal Cloud Storage Benchmarks and Comparison, 2017),
//! over any system that is mounted at a folder and keeps its data behind a TCP port.
//!
//! [`method`] is pure: what is written, what is seen on the wire, what follows from it. [`proxy`] stands between the system and
//! its store and counts; [`suite`] writes, waits and asks.
#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::unwrap_used)]

pub mod error;
pub mod method;
pub mod proxy;
pub mod suite;

pub use error::BenchError;
pub use method::report::Report;
pub use suite::{Options, Second, run};
