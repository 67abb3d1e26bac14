//! A trace with its jumps in another order: a control for policies that learn which read follows which.
//!
//! Reads that continue none of the last 64 streams change places among each other, so many at a time. Everything else
//! stays: what is read how often, how much at once, when requests come, streams, and writes.

use serde::Deserialize;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use tombolo_base::Prng;
use tombolo_engine::replay::{Error, Interrupted, Progress};
use tombolo_trace::columnar::{FileHeader, Writer};
use tombolo_trace::{Fault, Operation, Place, Reader, Record, Source, TraceError};

const STREAMS_MAX: usize = 64;
/// Windows that streams may stretch: what is held in memory ends here, jumps or not.
const RECORDS_PER_JUMP_MAX: usize = 64;
/// Records between two reports of progress, at the most.
const REPORT_RECORDS: usize = 1 << 16;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub trace: Source,
    pub target: PathBuf,
    /// Jumps that change places among each other.
    pub window: usize,
    pub seed: u64,
}

/// Writes the target, in the project's own format; it takes its name when all is written. Returns the records.
pub fn run(job: &Job, progress: Progress<'_>) -> Result<u64, Error> {
    if !(2..=1 << 20).contains(&job.window) {
        let reason = "it must be 2 to 1048576".into();
        return Err(Error::Job {
            field: "window",
            reason,
        });
    }
    let mut partial = job.target.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let result = write(job, &partial, progress).and_then(|records| {
        fs::rename(&partial, &job.target).map_err(|error| failed(&job.target, error))?;
        Ok(records)
    });
    if result.is_err() {
        // What went wrong is told already.
        let _ = fs::remove_file(&partial);
    }
    result
}

fn write(job: &Job, path: &Path, progress: Progress<'_>) -> Result<u64, Error> {
    let mut reader = tombolo_trace::open(&job.trace)?;
    let header = FileHeader {
        unit_bytes: reader.unit_bytes(),
        ..FileHeader::default()
    };
    let file = File::create(path).map_err(|error| failed(path, error))?;
    let mut writer = Writer::new(BufWriter::new(file), header).map_err(|error| failed(path, error))?;
    let mut random = Prng::new(job.seed);
    let mut streams = Streams::default();
    loop {
        let mut window = Window::default();
        let written = writer.records();
        let told = &mut |read| progress(written + read, 0);
        window.fill(&mut *reader, &mut streams, job.window, told)?;
        if window.records.is_empty() {
            break;
        }
        window.shuffle(&mut random);
        for record in &window.records {
            writer.push(record).map_err(|error| failed(path, error))?;
        }
    }
    let records = writer.records();
    writer.finish().map_err(|error| failed(path, error))?;
    Ok(records)
}

fn failed(path: &Path, error: io::Error) -> Error {
    let (file, place, fault) = (path.display().to_string(), Place::File, Fault::Io(error));
    TraceError { file, place, fault }.into()
}

#[derive(Debug, Default)]
struct Window {
    records: Vec<Record>,
    /// Places of the jumps in it.
    jumps: Vec<usize>,
}

impl Window {
    /// `progress` is told the records at its beginning, and every so many.
    fn fill(
        &mut self,
        reader: &mut dyn Reader,
        streams: &mut Streams,
        jumps_max: usize,
        progress: &mut dyn FnMut(u64) -> Result<(), Interrupted>,
    ) -> Result<(), Error> {
        let mut record = Record::default();
        while self.jumps.len() < jumps_max && self.records.len() < jumps_max * RECORDS_PER_JUMP_MAX {
            if self.records.len().is_multiple_of(REPORT_RECORDS) {
                progress(self.records.len() as u64)?;
            }
            if !reader.next(&mut record)? {
                break;
            }
            if record.operation == Operation::Read && !streams.continues(&record) {
                self.jumps.push(self.records.len());
            }
            self.records.push(record.clone());
        }
        Ok(())
    }

    fn shuffle(&mut self, random: &mut Prng) {
        for last in (1..self.jumps.len()).rev() {
            let other = random.below(last as u64 + 1) as usize;
            let (a, b) = (self.jumps[last], self.jumps[other]);
            let (time_a, time_b) = (self.records[a].time_us, self.records[b].time_us);
            self.records.swap(a, b);
            (self.records[a].time_us, self.records[b].time_us) = (time_a, time_b);
        }
    }
}

/// Where the last streams ended, the most recently read first.
#[derive(Debug, Default)]
struct Streams(VecDeque<(u64, u64)>);

impl Streams {
    fn continues(&mut self, record: &Record) -> bool {
        let found = self.0.iter().position(|&end| end == (record.volume, record.first));
        if let Some(at) = found {
            self.0.remove(at);
        }
        self.0.push_front((record.volume, record.end()));
        self.0.truncate(STREAMS_MAX);
        found.is_some()
    }
}
