//! The policies of a running gateway: built from data, changed without a restart, and the prefetcher's history on disk.
//!
//! The history is a hint. It is written beside the state's other files when a checkpoint was made and some minutes have
//! passed, and at a clean stop; read back at the start and when a policy with a history takes over. A file that cannot be
//! used is dropped with a warning. Chunks are encoded one at a time, so the core is never held for long.

use super::Gateway;
use super::durable_file;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant as RealInstant};
use tombolo_base::{DecodeError, Instant, Lcbn};
use tombolo_cache::{Capacity, Grouping, Policy, Replacement};
use tombolo_core::{Economy, Event, ReplacementChanging};
use tombolo_prefetch::graph::{HEADER_BYTES, History, HistoryConfig, Restorer};
use tombolo_prefetch::{Addressing, Graph, PolicyConfig, Prefetcher};

/// Groups of the GDS family lose this many blocks before their cost is looked at again: the least that is worth a request.
const EVICT_BLOCKS: u32 = 16;
/// Between two writings of the history.
const SAVE_INTERVAL: Duration = Duration::from_secs(300);

pub(super) fn replacement(policy: Policy, slot_count: u32) -> Box<dyn Replacement> {
    let grouping = Grouping::Objects {
        evict_blocks: EVICT_BLOCKS,
    };
    policy.build(Capacity::of_blocks(slot_count), grouping)
}

/// With the history in `file`, if the policy has one and the file can be used.
pub(super) fn prefetcher(config: &PolicyConfig, file: &Path, now: Instant) -> Box<dyn Prefetcher> {
    let PolicyConfig::Graph(graph) = config else {
        return config.build();
    };
    match read_history(file, graph.history(), now) {
        Ok(Some(history)) => {
            tracing::info!(
                nodes = history.node_count(),
                edges = history.edge_count(),
                "the history is read"
            );
            Box::new(Graph::with_history(graph.clone(), history))
        }
        Ok(None) => config.build(),
        Err(error) => {
            tracing::warn!(%error, file = %file.display(), "the history cannot be used; it begins anew");
            config.build()
        }
    }
}

/// Why there is no history.
#[derive(Debug, thiserror::Error)]
pub(super) enum HistoryError {
    #[error(transparent)]
    Disk(#[from] io::Error),
    #[error(transparent)]
    Damaged(#[from] DecodeError),
    #[error("a chunk of {chunk} bytes does not fit into the {left} that are left")]
    Chunk { chunk: usize, left: u64 },
    #[error("{0} bytes follow the last chunk")]
    Excess(u64),
}

/// `None`: there is no such file. The chunks are read twice, so that no more than one is in memory.
fn read_history(path: &Path, config: HistoryConfig, now: Instant) -> Result<Option<History>, HistoryError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let bytes = file.metadata()?.len();
    let mut restorer = start_restoring(&file, config, now)?;
    each_chunk(&file, bytes, restorer.chunk_count(), |chunk| restorer.nodes(chunk))?;
    start_restoring(&file, config, now)?;
    each_chunk(&file, bytes, restorer.chunk_count(), |chunk| restorer.edges(chunk))?;
    Ok(Some(restorer.finish()))
}

fn start_restoring(file: &File, config: HistoryConfig, now: Instant) -> Result<Restorer, HistoryError> {
    let mut header = [0; HEADER_BYTES];
    io::Seek::rewind(&mut &*file)?;
    (&*file).read_exact(&mut header)?;
    Ok(Restorer::new(config, now, &header)?)
}

fn each_chunk(
    file: &File,
    file_bytes: u64,
    count: u32,
    mut take: impl FnMut(&[u8]) -> Result<(), DecodeError>,
) -> Result<(), HistoryError> {
    let mut reader = BufReader::new(file);
    let mut left = file_bytes - HEADER_BYTES as u64;
    for _ in 0..count {
        let mut chunk = vec![0; 4];
        reader.read_exact(&mut chunk)?;
        let length = Restorer::chunk_bytes(&chunk)?;
        if length as u64 > left {
            return Err(HistoryError::Chunk { chunk: length, left });
        }
        chunk.resize(length, 0);
        reader.read_exact(&mut chunk[4..])?;
        take(&chunk)?;
        left -= length as u64;
    }
    if left > 0 {
        return Err(HistoryError::Excess(left));
    }
    Ok(())
}

/// Where the history is and when it was written.
#[derive(Debug)]
pub(super) struct HistoryFile {
    path: PathBuf,
    written: RealInstant,
}

impl HistoryFile {
    pub fn new(state: &Path) -> Self {
        Self {
            path: state.join("history"),
            written: RealInstant::now(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// In full and durably, or not at all.
    fn write(&self, parts: impl Iterator<Item = Vec<u8>>) -> io::Result<()> {
        durable_file::replace(&self.path, |file| {
            let mut writer = BufWriter::new(file);
            for part in parts {
                writer.write_all(&part)?;
            }
            writer.flush()
        })
    }
}

impl Gateway {
    /// Whether [`Self::set_replacement`] may be called.
    pub fn check_replacement_settled(&self) -> Result<(), ReplacementChanging> {
        self.core().check_replacement_settled()
    }

    /// The blocks in the cache stay. They go over while requests are served. An earlier change MUST be over.
    pub fn set_replacement(self: &Arc<Self>, policy: Policy) {
        let slot_count = self.core().slot_count();
        let mut fresh = replacement(policy, slot_count);
        // Here, where nobody waits: the first touch of so much memory takes longer than a step may.
        fresh.reach(Lcbn(slot_count - 1));
        self.core().set_replacement(fresh);
        self.submit(Event::Tick);
    }

    /// A history is handed on where there is one.
    pub fn set_prefetch(&self, config: &PolicyConfig, addressing: Addressing) {
        let mut file = self.history_file();
        self.save_history_to(&mut file);
        let fresh = prefetcher(config, file.path(), self.clock.now());
        self.core().set_prefetcher(fresh, addressing);
    }

    pub fn set_economy(&self, economy: Economy) {
        self.core().set_economy(economy);
    }

    /// Called when a checkpoint was made.
    pub(super) fn save_history_sometimes(&self) {
        let mut file = self.history_file();
        if file.written.elapsed() >= SAVE_INTERVAL {
            self.save_history_to(&mut file);
        }
    }

    pub(super) fn save_history(&self) {
        self.save_history_to(&mut self.history_file());
    }

    /// Failing costs predictions after the next start, nothing else.
    fn save_history_to(&self, file: &mut HistoryFile) {
        let now = self.clock.now();
        let header = |history: &History| (history.encode_header(now), history.chunk_count());
        let Some((header, chunks)) = self.core().history().map(header) else {
            return;
        };
        // The policy is changed only by who holds the file.
        let chunk = |number| {
            let core = self.core();
            core.history()
                .map(|history| history.encode_chunk(now, number))
                .unwrap_or_default()
        };
        let written = file.write(std::iter::once(header).chain((0..chunks).map(chunk)));
        file.written = RealInstant::now();
        if let Err(error) = written {
            tracing::warn!(%error, file = %file.path.display(), "the history cannot be written");
        }
    }

    fn history_file(&self) -> MutexGuard<'_, HistoryFile> {
        self.history_file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tombolo_base::VolumeId;
    use tombolo_prefetch::graph::Range;
    use tombolo_prefetch::{GraphConfig, PolicyName};

    fn config() -> HistoryConfig {
        GraphConfig::default().history()
    }

    /// As many places as fill several chunks.
    fn example() -> History {
        let mut history = History::new(config());
        let mut previous = None;
        for step in 0..40_000u64 {
            let read = Range {
                volume: VolumeId(1 + step % 3),
                first: step * 7_919 % (1 << 22) * 8,
                count: 8,
            };
            history.record(Instant(step), previous, read);
            previous = Some((read.volume, read.first + 7));
        }
        history
    }

    fn file(directory: &Path) -> HistoryFile {
        HistoryFile::new(directory)
    }

    fn save(file: &HistoryFile, history: &History) {
        let chunks = (0..history.chunk_count()).map(|chunk| history.encode_chunk(Instant(50_000), chunk));
        file.write(std::iter::once(history.encode_header(Instant(50_000))).chain(chunks))
            .unwrap();
    }

    #[test]
    fn a_history_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let (file, history) = (file(directory.path()), example());
        assert!(history.chunk_count() > 1);
        save(&file, &history);
        let found = read_history(file.path(), config(), Instant(3)).unwrap().unwrap();
        found.check_invariants();
        assert_eq!(found.node_count(), history.node_count());
        assert_eq!(found.edge_count(), history.edge_count());
        let prefetcher = prefetcher(&PolicyConfig::of(PolicyName::Graph), file.path(), Instant(3));
        assert_eq!(prefetcher.statistics().nodes, history.node_count());
    }

    #[test]
    fn a_damaged_or_foreign_file_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let (file, history) = (file(directory.path()), example());
        save(&file, &history);
        let good = fs::read(file.path()).unwrap();
        let graph = PolicyConfig::of(PolicyName::Graph);
        let mut damaged: Vec<Vec<u8>> = vec![Vec::new(), b"not a history".to_vec(), good[..good.len() - 1].to_vec()];
        damaged.push([&good[..], b"x"].concat());
        for at in [
            0,
            9,
            13,
            20,
            HEADER_BYTES,
            HEADER_BYTES + 3,
            HEADER_BYTES + 30,
            good.len() - 9,
        ] {
            let mut bytes = good.clone();
            bytes[at] ^= 0x40;
            damaged.push(bytes);
        }
        for bytes in damaged {
            fs::write(file.path(), &bytes).unwrap();
            assert!(read_history(file.path(), config(), Instant(0)).is_err());
            assert_eq!(prefetcher(&graph, file.path(), Instant(0)).statistics().nodes, 0);
        }
    }

    #[test]
    fn without_a_file_the_history_is_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history");
        assert!(read_history(&path, config(), Instant(0)).unwrap().is_none());
    }
}
