//! One request of a trace.

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Blocks from storage.
    #[default]
    Read,
    /// Blocks to storage.
    Write,
    /// The blocks are not needed any more: TRIM, a file cut short or removed.
    Discard,
    /// Everything written so far to stable storage; no blocks.
    Flush,
}

/// A request. `first` and `count` are in the units that the reader was asked for ([`crate::View`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Since the trace's beginning.
    pub time_us: u64,
    /// What was asked for.
    pub operation: Operation,
    /// A connection, process or session; zero where the trace does not tell.
    pub client: u32,
    /// A disk, volume or file.
    pub volume: u64,
    /// The first unit.
    pub first: u64,
    /// How many units; zero for a flush.
    pub count: u64,
    /// What was really asked for; blocks are rounded up.
    pub bytes: u64,
    /// Names of the contents of each block of a write, zero for a block of zeroes; empty when they are not known.
    /// Equal names are equal contents, and that is all that they tell.
    pub contents: Vec<u64>,
}

impl Record {
    /// One past the last unit.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }
}
