//! Caches of whole objects in front of clouds, simulated request by request: what a policy does to hit ratio, latency and
//! the bill. Objects have sizes, clouds have distances and prices, PUTs stay in the cache until they are written back.
//!
//! Source: Hou and Chen, GDS-LC, ACM TOS 2017, section 5. The policies are those of `tombolo-cache`; nothing of them
//! is repeated here. The gateway caches blocks; this is the paper's own setting, kept apart from the world in which the
//! gateway's core runs.
//!
//! | module       | holds                                                                        |
//! |--------------|------------------------------------------------------------------------------|
//! | `job`        | what is asked for, and which jobs are refused                                |
//! | `workload`   | requests: synthetic or from traces                                           |
//! | `cloud`      | how long transfers take and what they cost                                   |
//! | `policy`     | policies by name                                                             |
//! | `write_back` | dirty objects and the daemon that uploads them                               |
//! | `driver`     | the cache manager: one request after another in virtual time                 |
//! | `report`     | what came of it                                                              |
//!
//! # What is simulated, and what is not
//!
//! One client issues one request at a time: the next comes when the last has been answered (`closed-loop`), or at its
//! time in the trace whatever the others do (`trace`). A read that misses waits for the uploads of the dirty objects that
//! leave to make room, then for its download. A write is local, unless the cache writes through, and waits for those
//! uploads only. The daemon uploads what has been dirty for long, by few at a time; its transfers do not slow others
//! down. Reads of an object larger than the cache pass it by.
//!
//! The n-th transfer of an object takes equally long under every policy (common random numbers): latencies are drawn by
//! seed, object and the number of the request, not in the order of calls. Where a location drifts they are multiplied by
//! its factor of the minute in which the request comes, which is the same under every policy, too.

mod cloud;
mod driver;
mod job;
mod policy;
mod report;
mod workload;
mod write_back;

pub use cloud::{Drift, Location};
pub use job::{Arrivals, Error, Job, Local, Normalisation, WriteMode};
pub use report::{LatencyMs, LocationReport, Report, RequestCounts, SizeBucket, Transfers, Uploads};
pub use workload::{KeyedTrace, Netfs, SizeLaw, SizedTrace, WorkloadSpec, Zipf};

use crate::replay::Progress;

/// Carries a job out; while its requests run, `progress` is told of them about a hundred times.
pub fn run(job: &Job, progress: Progress<'_>) -> Result<Report, Error> {
    job.check()?;
    let workload = workload::build(&job.workload, progress)?;
    driver::Driver::new(job, &workload)?.run(progress)
}
