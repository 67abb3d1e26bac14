//! A trace through the gateway's core in virtual time, without contents: the product's own data path and policies, with
//! a disk and a cloud that are latency tables, and a ledger of what it costs.

mod error;
mod job;
mod report;

pub use error::{Error, Interrupted, Progress};
pub use job::{Addressing, Arrivals, Clients, Cloud, Disk, Job, Latency, Preload, Prices};
pub use report::{CloudTraffic, Dollars, Latencies, Point, PolicyState, Prefetched, Reads, Report, Series, Writes};
