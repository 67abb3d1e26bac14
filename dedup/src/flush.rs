//! Writes a frozen memtable as a run. Owns a share of the memtable, so it runs on any thread while the index goes on
//! answering from the same memtable.

use crate::budget::Grant;
use crate::memtable::Memtable;
use crate::run::{FilterLoad, Run};
use crate::writer::RunWriter;
use crate::{IndexError, RunId, RunStorage};
use alloc::sync::Arc;

const BUFFER_BYTES: usize = 512 << 10;

/// A memtable to be written.
#[must_use = "the frozen memtable stays in memory until its flush is adopted"]
pub struct Flush {
    pub(crate) run: RunId,
    pub(crate) table: Arc<Memtable>,
    pub(crate) grant: Grant,
    /// Memory set aside for the filter.
    pub(crate) filter_bytes: u64,
    /// There is no older run in which a removal could hide anything.
    pub(crate) is_oldest: bool,
}

/// A written and synced run, for [`crate::Index::adopt_flush`].
pub struct Flushed {
    pub(crate) run: Run,
}

impl Flush {
    /// The run that will be written.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// Writes and syncs the run. After a failure it may be repeated: the files are created anew.
    pub fn write<S: RunStorage>(&self, storage: &S) -> Result<Flushed, IndexError<S::Error>> {
        let entries = self.table.sorted();
        let mut writer = RunWriter::create(storage, self.run, self.grant, entries.len() as u64, BUFFER_BYTES)?;
        for entry in &entries {
            if !self.is_oldest || entry.target.pvbn().is_some() {
                writer.push(storage, entry)?;
            }
        }
        let mut run = writer.finish(storage)?;
        // Its memory is set aside, while a merge must wait for that of its inputs.
        let load = FilterLoad {
            meta: run.meta.clone(),
            bytes_max: self.filter_bytes,
        };
        run.set_filter(load.read(storage)?.filter);
        Ok(Flushed { run })
    }
}
