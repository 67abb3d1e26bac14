//! The history graph of a few given reads and its balanced expansion, for comparison with an independent one.

use crate::graph::{Export, Node, export};
use serde::{Deserialize, Serialize};
use tombolo_base::{Instant, VolumeId};
use tombolo_prefetch::Likelihood;
use tombolo_prefetch::graph::{Expansion, History, HistoryConfig, Limits, Range};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// (volume, first block, blocks), each right after the one before it.
    pub reads: Vec<(u64, u64, u64)>,
    /// The block to expand from.
    pub volume: u64,
    pub block: u64,
    pub threshold_permille: u32,
    pub blocks_max: u64,
    pub candidates_max: usize,
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub graph: Export,
    pub source: Node,
    pub candidates: Vec<Candidate>,
}

#[derive(Debug, Serialize)]
pub struct Candidate {
    pub node: Node,
    pub likelihood: f64,
}

const MEMORY_BYTES: u64 = 64 << 20;
const NOW: Instant = Instant(1);

pub fn run(job: &Job) -> Result<Report, String> {
    let mut history = History::new(HistoryConfig::within(MEMORY_BYTES, u64::MAX, 1));
    let mut previous = None;
    for &(volume, first, count) in &job.reads {
        let volume = VolumeId(volume);
        let read = Range { volume, first, count };
        history.record(NOW, previous, read).ok_or_else(|| {
            format!(
                "the graph does not take {count} blocks at {first} of volume {}",
                volume.0
            )
        })?;
        previous = Some((volume, first + count.min(tombolo_prefetch::graph::READ_BLOCKS_MAX) - 1));
    }
    let source = history
        .find(VolumeId(job.volume), job.block)
        .ok_or_else(|| format!("block {} of volume {} was not read", job.block, job.volume))?;
    let limits = Limits {
        threshold: Likelihood::from_permille(job.threshold_permille),
        blocks_max: job.blocks_max,
        candidates_max: job.candidates_max,
    };
    let mut found = Vec::new();
    Expansion::default().run(&history, source, NOW, limits, |range| range.count, &mut found);
    let candidates = found.iter().map(|candidate| Candidate {
        node: candidate.range.into(),
        likelihood: f64::from(candidate.likelihood.bits()) / f64::from(Likelihood::ONE.bits()),
    });
    Ok(Report {
        candidates: candidates.collect(),
        source: history.range(source).into(),
        graph: export(&history, NOW),
    })
}
