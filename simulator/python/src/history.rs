//! The history graph that GRAPH has when it has seen a trace's reads, each of which it took for a miss.

use crate::graph::{Export, export};
use serde::Deserialize;
use tombolo_base::{Instant, VolumeId};
use tombolo_engine::replay::Progress;
use tombolo_prefetch::graph::{Populate, Scope};
use tombolo_prefetch::{Access, ClientId, Graph, GraphConfig, Outcome, Prefetcher};
use tombolo_trace::{Operation, Record, Source};

/// Records between two reports of progress.
const REPORT_RECORDS: u64 = 1 << 16;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub trace: Source,
    /// Whether anybody's previous read counts, as in the paper, or only the same client's.
    #[serde(default)]
    pub global: bool,
    /// Whether reads of streams enter the graph too, the paper's naive variant.
    #[serde(default)]
    pub every_read: bool,
    pub memory_bytes_max: Option<u64>,
    pub count_window_us: Option<u64>,
}

impl Job {
    fn config(&self) -> GraphConfig {
        let default = GraphConfig::default();
        GraphConfig {
            scope: if self.global { Scope::Global } else { default.scope },
            populate: if self.every_read {
                Populate::Every
            } else {
                default.populate
            },
            memory_bytes_max: self.memory_bytes_max.unwrap_or(default.memory_bytes_max),
            count_window_micros: self.count_window_us.unwrap_or(default.count_window_micros),
            ..default
        }
    }
}

pub fn run(job: &Job, progress: Progress<'_>) -> Result<Export, tombolo_engine::replay::Error> {
    let mut graph = Graph::new(job.config());
    let mut reader = tombolo_trace::open(&job.trace)?;
    let mut record = Record::default();
    let (mut suggestions, mut records) = (Vec::new(), 0u64);
    while reader.next(&mut record)? {
        records += 1;
        if records.is_multiple_of(REPORT_RECORDS) {
            progress(records, 0)?;
        }
        if record.operation == Operation::Read {
            suggestions.clear();
            graph.on_read(Instant(record.time_us), access(&record), &mut suggestions);
        }
    }
    let history = graph.history().expect("GRAPH has a history");
    Ok(export(history, Instant(record.time_us)))
}

fn access(record: &Record) -> Access {
    Access {
        client: ClientId(record.client),
        volume: VolumeId(record.volume),
        first: record.first,
        count: record.count,
        outcome: Outcome::Miss,
        prefetched: 0,
    }
}
