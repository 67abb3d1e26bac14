//! Gateways before a store that feels their load, in virtual time: what intervals between batches and limits of requests in
//! flight do to latency and throughput. The controllers are those of `tombolo-flow-control`.
//!
//! | module    | holds                                                                                    |
//! |-----------|------------------------------------------------------------------------------------------|
//! | `job`     | what is asked for                                                                        |
//! | `refusal` | which jobs are refused                                                                   |
//! | `events`  | what happens when                                                                        |
//! | `store`   | servers with queues, a shared link, refusals, losses, slow periods and pauses            |
//! | `gateway` | operations, batches, requests in flight                                                  |
//! | `rivals`  | other controllers of requests in flight, to compare with                                 |
//! | `driver`  | all of that in virtual time                                                              |
//! | `report`  | what came of it                                                                          |
//! | `chunks`  | a client of the same store that caches files in chunks                                   |
//!
//! # What is simulated, and what is not
//!
//! Requests are operations of one kind; their contents do not matter. Queues are first come, first served. The link is shared
//! equally by all transfers, whatever their direction. A refused or lost request is sent again after half a second, then after
//! twice as long each time; its place in flight is free meanwhile. What a gateway gave up is still served. Everything depends
//! on the seed alone.

mod chunks;
mod driver;
mod events;
mod gateway;
mod job;
mod refusal;
mod report;
mod rivals;
mod store;

pub use chunks::{Accesses, ChunkJob, ChunkReport, Files, run_chunks};
pub use job::{
    Batching, Bytes, Calibration, GatewaySpec, Job, Limiter, Pause, SlowPeriod, Source, StoreSpec, StoutSpec,
};
pub use refusal::Error;
pub use report::{Latency, Report, Sample, WindowReport};

use crate::replay::Progress;

/// Carries a job out; `progress` is told of the virtual time at every sample.
pub fn run(job: &Job, progress: Progress<'_>) -> Result<Report, Error> {
    job.check()?;
    driver::run(job, progress)
}
