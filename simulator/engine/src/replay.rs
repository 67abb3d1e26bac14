//! A trace through the gateway's core in virtual time, without contents: the product's own data path and policies, with
//! a disk and a cloud that are latency tables, and a ledger of what it costs. The same job gives the same report, but for
//! wall times and what hash tables happen to occupy.
//!
//! The simulator of the Tombolo paper, section 5, with the core in the place of its model of the gateway.
//!
//! | module     | holds                                                       |
//! |------------|-------------------------------------------------------------|
//! | `job`      | what to replay                                              |
//! | `report`   | what came of it                                             |
//! | `run`      | a job from beginning to end                                 |
//! | `requests` | records as requests                                         |
//! | `layout`   | what is in the cloud before the trace begins                |
//! | `contents` | stand-ins for contents                                      |
//! | `world`    | virtual time; the core's commands, carried out              |
//! | `devices`  | disk and cloud                                              |
//! | `latency`  | tables and common random numbers                            |
//! | `models`   | tables by name                                              |
//! | `metadata` | local metadata and the fingerprint index                    |
//! | `policies` | the policies that a job names                               |
//! | `ledger`   | latencies, traffic and dollars                              |
//! | `accesses` | how often prefetched blocks are read                        |
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]

mod accesses;
mod contents;
mod devices;
mod error;
mod job;
mod latency;
mod layout;
mod ledger;
mod metadata;
mod models;
mod policies;
mod report;
mod requests;
mod run;
mod world;

pub use devices::{GetRequest, PutRequest, Store};
pub use error::{Error, Interrupted, Progress};
pub use job::{Addressing, Arrivals, Clients, Cloud, Disk, Job, Latency, Preload};
pub use models::MODELS;
pub use report::{CloudTraffic, Latencies, Point, PolicyState, Prefetched, Reads, Report, Series, Writes};
pub(crate) use run::ratio;
pub use run::run;

/// Requests between two calls of [`Progress`].
pub(crate) const PROGRESS_REQUESTS: u64 = 1 << 15;
