//! The analysis of a whole trace.

use serde::Deserialize;
use tombolo_engine::replay::{Error, Progress};
use tombolo_trace::{Analyser, Analysis, Record, Source};

/// Records between two reports of progress.
const REPORT_RECORDS: u64 = 1 << 16;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub trace: Source,
    /// Of what time the working set is.
    pub interval_us: u64,
}

pub fn run(job: &Job, progress: Progress<'_>) -> Result<Analysis, Error> {
    if job.interval_us == 0 {
        let reason = "it must not be zero".into();
        return Err(Error::Job {
            field: "interval_us",
            reason,
        });
    }
    let mut reader = tombolo_trace::open(&job.trace)?;
    let mut analyser = Analyser::new(job.interval_us);
    let (mut record, mut records) = (Record::default(), 0u64);
    while reader.next(&mut record)? {
        analyser.on_record(&record);
        records += 1;
        if records.is_multiple_of(REPORT_RECORDS) {
            progress(records, 0)?;
        }
    }
    Ok(analyser.finish())
}
