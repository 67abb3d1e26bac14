//! What a benchmark has found: as it is stored, and as tables for people.

use super::probes::Probe;
use super::traffic::Traffic;
use super::verdicts::Verdict;
use super::workloads::Workload;
use serde::{Serialize, Serializer};
use std::fmt::Write;

/// All of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What it was run with.
    pub circumstances: Circumstances,
    /// Of those that were asked for.
    pub capabilities: Vec<Finding>,
    /// Likewise.
    pub workloads: Vec<Measured>,
}

/// What must be known to repeat it.
#[derive(Clone, Debug, Serialize)]
pub struct Circumstances {
    /// Of the system.
    pub folder: String,
    /// Of all contents.
    pub seed: u64,
    /// Of each workload.
    pub repeats: u32,
    /// At least so long without traffic before and after each step.
    pub quiet_s: f64,
    /// At least so long between workloads.
    pub gap_s: f64,
    /// Traffic that passes for none, in the quiet time.
    pub noise_bytes: u64,
    /// Whether downloads were measured.
    pub with_remount: bool,
    /// Whether a second client was there.
    pub with_second: bool,
}

/// What was found of one capability.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Which.
    #[serde(serialize_with = "as_word")]
    pub probe: Probe,
    /// By the rules.
    #[serde(serialize_with = "as_word")]
    pub verdict: Verdict,
    /// What a word cannot say.
    pub detail: String,
    /// What it follows from.
    pub observations: Vec<Observation>,
}

/// One step, and the traffic from its beginning until the next silence.
#[derive(Clone, Debug, Serialize)]
pub struct Observation {
    /// What was done.
    pub stimulus: String,
    /// Of the files.
    pub files: u64,
    /// Of the files.
    pub bytes: u64,
    /// Of writing them.
    pub upload: Traffic,
    /// Of reading them with empty caches, if that was done.
    pub download: Option<Traffic>,
}

/// All repeats of one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// As the paper counts.
    pub number: u32,
    /// Replicas included.
    pub files: u64,
    /// Likewise.
    pub bytes: u64,
    /// One of each repeat.
    pub rounds: Vec<Round>,
}

/// One repeat of a workload. What was not measured, or has had no traffic, is nothing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Round {
    /// From the first file until the first payload to the store.
    pub startup_s: Option<f64>,
    /// From the first to the last payload to the store.
    pub upload_s: Option<f64>,
    /// From the first payload to the store to the first payload to the second client.
    pub propagation_s: Option<f64>,
    /// From the first to the last payload from the store.
    pub download_s: Option<f64>,
    /// All traffic, by the bytes of the files once for each direction that was measured.
    pub overhead: f64,
    /// Of writing.
    pub upload: Traffic,
    /// Of reading.
    pub download: Option<Traffic>,
}

fn as_word<S: Serializer>(value: &impl ToString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}

/// Traffic by the bytes of the files, once for each direction: below 1 is possible.
pub fn overhead(file_bytes: u64, upload: &Traffic, download: Option<&Traffic>) -> f64 {
    let directions = 1 + u64::from(download.is_some());
    let bytes = upload.bytes() + download.map_or(0, Traffic::bytes);
    bytes as f64 / (directions * file_bytes.max(1)) as f64
}

impl Measured {
    /// Without rounds yet.
    pub fn of(workload: &Workload) -> Self {
        Self {
            number: workload.number,
            files: workload.files(),
            bytes: workload.bytes,
            rounds: Vec::new(),
        }
    }

    fn median(&self, of: fn(&Round) -> Option<f64>) -> Option<f64> {
        let mut values: Vec<f64> = self.rounds.iter().filter_map(of).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len().checked_sub(1)? / 2;
        Some(f64::midpoint(values[middle], values[values.len() / 2]))
    }
}

impl Report {
    /// Both tables.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        if !self.capabilities.is_empty() {
            text += "## Capabilities\n\n| capability | verdict | detail |\n|---|---|---|\n";
            for finding in &self.capabilities {
                let _ = writeln!(text, "| {} | {} | {} |", finding.probe, finding.verdict, finding.detail);
            }
        }
        if !self.workloads.is_empty() {
            if !text.is_empty() {
                text.push('\n');
            }
            text += "## Workloads\n\nMedians, in seconds but for the overhead.\n\n\
                | workload | files | MB | start-up | upload | propagation | download | overhead |\n|---|---|---|---|---|---|---|---|\n";
            for measured in &self.workloads {
                let cell = |value: Option<f64>| value.map_or("not measured".to_owned(), |value| format!("{value:.2}"));
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {} | {} | {} | {} | {} |",
                    measured.number,
                    measured.files,
                    measured.bytes as f64 / 1e6,
                    cell(measured.median(|round| round.startup_s)),
                    cell(measured.median(|round| round.upload_s)),
                    cell(measured.median(|round| round.propagation_s)),
                    cell(measured.median(|round| round.download_s)),
                    cell(measured.median(|round| Some(round.overhead))),
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::workloads::WORKLOADS;

    fn traffic(sent_bytes: u64, received_bytes: u64) -> Traffic {
        Traffic {
            sent_bytes,
            received_bytes,
            ..Traffic::default()
        }
    }

    #[test]
    fn overhead_is_by_the_directions_that_were_measured() {
        assert_eq!(overhead(1_000, &traffic(900, 100), None), 1.0);
        assert_eq!(overhead(1_000, &traffic(900, 100), Some(&traffic(100, 1_900))), 1.5);
        assert_eq!(overhead(1_000, &traffic(400, 100), Some(&traffic(0, 500))), 0.5);
    }

    #[test]
    fn tables_have_medians_and_say_what_was_not_measured() {
        let mut measured = Measured::of(&WORKLOADS[0]);
        for upload_s in [9.0, 1.0, 2.0, 3.0] {
            measured.rounds.push(Round {
                upload_s: Some(upload_s),
                ..Round::default()
            });
        }
        let report = Report {
            circumstances: Circumstances {
                folder: "/mnt".into(),
                seed: 1,
                repeats: 4,
                quiet_s: 1.0,
                gap_s: 0.0,
                noise_bytes: 0,
                with_remount: false,
                with_second: false,
            },
            capabilities: vec![Finding {
                probe: Probe::Dedup,
                verdict: Verdict::NotAfterDeletion,
                detail: "4 MB".into(),
                observations: Vec::new(),
            }],
            workloads: vec![measured],
        };
        let text = report.markdown();
        assert!(text.contains("| dedup | not after deletion | 4 MB |"), "{text}");
        assert!(
            text.contains("| 1 | 1 | 0.1 | not measured | 2.50 | not measured | not measured | 0.00 |"),
            "{text}"
        );
        assert_eq!(Measured::of(&WORKLOADS[0]).median(|round| round.upload_s), None);
    }
}
