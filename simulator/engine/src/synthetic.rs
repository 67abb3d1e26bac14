//! Stand-ins for the traces of the Tombolo paper (MSST'16), which are not public: requests whose totals are those that the
//! paper prints of its data sets Corp and Eng, made by a model of how people use files.
//!
//! | what | where from |
//! |---|---|
//! | reads, writes, bytes read and written, growth, days, clients, bytes stored | printed: table 1 and section 3.1 ([`Printed`]) |
//! | share of blocks in runs below ten, longest run | printed: section 3.1 on figure 5 (`runs`) |
//! | how often a jump repeats (template parameters in `model`) | set so that it lies in the range of real traces |
//! | everything else | assumed; each constant says so where it stands |
//!
//! Nothing was chosen by what a policy makes of the trace, and nothing may be: whether prefetch by history pays could be
//! made up by the share of repeated work alone. With `templates` at zero nobody repeats anything on purpose, which is
//! the control: what a policy gains there is no foresight.
//!
//! The scale divides clients, projects and requests, and leaves days, sizes and habits as they are. So sessions overlap
//! the less, the smaller the scale. One volume holds all files, as the paper's simulator has one; new files lie behind
//! all that was stored before.
//!
//! | module       | holds                                                        |
//! |--------------|--------------------------------------------------------------|
//! | `dataset`    | what is printed, and what follows from it                    |
//! | `model`      | assumed habits                                               |
//! | `arrivals`   | when sessions begin                                          |
//! | `quotas`     | how many requests of each kind are left to make              |
//! | `popularity` | which of many is chosen                                      |
//! | `projects`   | files and tasks                                              |
//! | `runs`       | long sequential runs and the files that they read            |
//! | `contents`   | names of what is written                                     |
//! | `sessions`   | what a client does between coming and going                  |
//! | `generator`  | sessions merged into one trace                               |
//!
//! What came out, beside what was printed: docs/results/synthetic-traces.md.

mod arrivals;
mod contents;
mod dataset;
mod generator;
mod model;
mod popularity;
mod projects;
mod quotas;
mod runs;
mod sessions;

pub use dataset::{Dataset, Printed};
pub use generator::Generator;

use crate::replay::{Error, Progress};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use tombolo_trace::columnar::{FileHeader, Writer};
use tombolo_trace::{Fault, Place, TraceError};

/// Which trace. The same specification is the same trace for ever.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Specification {
    /// Whose totals.
    pub dataset: Dataset,
    /// Of the printed totals, above 0 and up to 1.
    pub scale: f64,
    /// Decides everything that is drawn.
    pub seed: u64,
    /// Tasks of a project that are done again and again; zero makes the control.
    #[serde(default = "templates")]
    pub templates: u32,
}

fn templates() -> u32 {
    model::TEMPLATES
}

/// Below it there is not one session a day.
const SCALE_MIN: f64 = 0.0005;
/// Beyond it a project's tasks would never be done twice.
const TEMPLATES_MAX: u32 = 1000;

impl Specification {
    /// With the tasks that the model assumes.
    pub fn new(dataset: Dataset, scale: f64, seed: u64) -> Self {
        Self {
            dataset,
            scale,
            seed,
            templates: model::TEMPLATES,
        }
    }

    /// # Errors
    /// A field is out of its range.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |field, reason| Err(Error::Job { field, reason });
        if !(SCALE_MIN..=1.0).contains(&self.scale) {
            return refuse("scale", format!("{}; it must be {SCALE_MIN} to 1", self.scale));
        }
        if self.templates > TEMPLATES_MAX {
            return refuse(
                "templates",
                format!("{}; it must be 0 to {TEMPLATES_MAX}", self.templates),
            );
        }
        Ok(())
    }
}

/// A trace to be written.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Which.
    pub trace: Specification,
    /// Where to, in the project's own format.
    pub target: PathBuf,
}

/// Records between two calls of [`Progress`].
const PROGRESS_RECORDS: u64 = 1 << 16;

/// Writes the trace; the target takes its name when all is written. Returns the number of records.
///
/// # Errors
/// The specification is refused, the file cannot be written, or the caller interrupts.
pub fn write(job: &Job, progress: Progress<'_>) -> Result<u64, Error> {
    job.trace.check()?;
    let mut partial = job.target.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let result = write_all(job.trace, &partial, progress).and_then(|records| {
        fs::rename(&partial, &job.target).map_err(|error| failed(&job.target, error))?;
        Ok(records)
    });
    if result.is_err() {
        // What went wrong is told already.
        let _ = fs::remove_file(&partial);
    }
    result
}

fn write_all(trace: Specification, path: &Path, progress: Progress<'_>) -> Result<u64, Error> {
    let fail = |error| failed(path, error);
    let generator = Generator::new(trace)?;
    let total = generator.requests();
    let file = File::create(path).map_err(fail)?;
    let mut writer = Writer::new(BufWriter::new(file), FileHeader::default()).map_err(fail)?;
    for record in generator {
        if writer.records().is_multiple_of(PROGRESS_RECORDS) {
            progress(writer.records(), total)?;
        }
        writer.push(&record).map_err(fail)?;
    }
    let records = writer.records();
    let file = writer.finish().map_err(fail)?.into_inner();
    file.map_err(|error| failed(path, error.into_error()))?;
    Ok(records)
}

fn failed(path: &Path, error: io::Error) -> Error {
    let (file, place, fault) = (path.display().to_string(), Place::File, Fault::Io(error));
    TraceError { file, place, fault }.into()
}
