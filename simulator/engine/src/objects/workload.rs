//! Requests for whole objects: synthetic, or read from traces. The same specification gives the same requests for ever.

mod netfs;
mod sizes;
mod traces;
mod zipf;

pub use netfs::Netfs;
pub use sizes::SizeLaw;
pub use traces::{KeyedTrace, SizedTrace};
pub use zipf::Zipf;

use super::job::Error;
use crate::replay::Progress;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Where requests come from.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum WorkloadSpec {
    /// Drawn by popularity.
    Zipf(Zipf),
    /// The benchmark of that name.
    Netfs(Netfs),
    /// A trace that names sizes.
    SizedTrace(SizedTrace),
    /// A trace without sizes.
    KeyedTrace(KeyedTrace),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Get,
    Put,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub time_us: u64,
    /// Numbered from zero in the order of first requests.
    pub object: u32,
    pub bytes: u32,
    pub operation: Operation,
}

#[derive(Debug, Default)]
pub(super) struct Workload {
    pub requests: Vec<Request>,
    /// The largest size of each object.
    pub object_bytes: Vec<u32>,
    pub has_times: bool,
}

/// Requests between two calls of [`Progress`] while they are made or read.
const PROGRESS_REQUESTS: u64 = 1 << 16;

/// Numbers the objects and checks the sizes while requests come in.
struct Builder<'a> {
    workload: Workload,
    numbers: HashMap<u64, u32>,
    progress: Progress<'a>,
}

impl<'a> Builder<'a> {
    fn new(progress: Progress<'a>) -> Self {
        Self {
            workload: Workload::default(),
            numbers: HashMap::new(),
            progress,
        }
    }

    fn add(&mut self, time_us: u64, name: u64, bytes: u64, operation: Operation) -> Result<(), Error> {
        let fitting = u32::try_from(bytes).ok().filter(|bytes| *bytes > 0);
        let request = self.workload.requests.len() as u64;
        if request.is_multiple_of(PROGRESS_REQUESTS) {
            (self.progress)(request, 0)?;
        }
        let bytes = fitting.ok_or(Error::ObjectSize { request, bytes })?;
        let largest = &mut self.workload.object_bytes;
        let object = *self.numbers.entry(name).or_insert(largest.len() as u32);
        match largest.get_mut(object as usize) {
            Some(largest) => *largest = bytes.max(*largest),
            None => largest.push(bytes),
        }
        self.workload.requests.push(Request {
            time_us,
            object,
            bytes,
            operation,
        });
        Ok(())
    }

    fn finish(mut self, has_times: bool) -> Result<Workload, Error> {
        if self.workload.requests.is_empty() {
            return Err(Error::NoRequests);
        }
        self.workload.has_times = has_times;
        Ok(self.workload)
    }
}

impl WorkloadSpec {
    pub(super) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Zipf(spec) => spec.check(),
            Self::Netfs(spec) => spec.check(),
            Self::SizedTrace(spec) => spec.check(),
            Self::KeyedTrace(spec) => spec.check(),
        }
    }
}

pub(super) fn build(spec: &WorkloadSpec, progress: Progress<'_>) -> Result<Workload, Error> {
    match spec {
        WorkloadSpec::Zipf(spec) => spec.build(progress),
        WorkloadSpec::Netfs(spec) => spec.build(progress),
        WorkloadSpec::SizedTrace(spec) => spec.build(progress),
        WorkloadSpec::KeyedTrace(spec) => spec.build(progress),
    }
}
