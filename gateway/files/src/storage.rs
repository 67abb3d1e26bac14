//! What the file service needs below it: ordered entries and block maps, changed together and in order.

use bytes::Bytes;
use std::sync::Arc;
use tombolo_base::{BlockSum, FlushMode, MetadataChange, Span};

/// A read of the file service's own, in no session.
pub const NO_SESSION: u64 = 0;

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRun {
    /// Blocks, at least one.
    pub count: u64,
    /// False for a hole, which reads as zeroes.
    pub mapped: bool,
}

/// Why storage did not do what it was asked for. Nothing was changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The backlog is at its cap, or the cloud does not answer: the same request may succeed later.
    #[error("try again: {0}")]
    Busy(String),
    /// A block's only copy is damaged.
    #[error("lost: {0}")]
    Lost(String),
    /// The local disk is full.
    #[error("no space: {0}")]
    NoSpace(String),
    /// A disk, or local metadata.
    #[error("{0}")]
    Failed(String),
}

/// Told the bytes that were read, on any thread.
pub type ReadDone = Box<dyn FnOnce(Result<Vec<u8>, StorageError>) + Send>;
/// Told when all is stable, on any thread.
pub type SyncDone = Box<dyn FnOnce(Result<(), StorageError>) + Send>;

/// An entry's key and value.
pub type Entry = (Vec<u8>, Arc<[u8]>);

/// Calls take effect in the order in which they return; a later [`Storage::get`] sees them at once. What returned is
/// kept when the daemon is killed; only [`Storage::sync`] makes it survive a power cut, and then everything that
/// returned before it was called. After a crash the state is a prefix of that order.
pub trait Storage: Send + Sync + 'static {
    /// The value of an entry; not of a counter.
    fn get(&self, key: &[u8]) -> Result<Option<Arc<[u8]>>, StorageError>;

    /// Entries with `from <= key < end`, ascending, at most `limit` of them. Counters are not among them.
    fn scan(&self, from: &[u8], end: &[u8], limit: usize) -> Result<Vec<Entry>, StorageError>;

    /// A counter's value ([`tombolo_base::EntryChange::Add`]).
    fn counter(&self, key: &[u8]) -> Result<i64, StorageError>;

    /// Makes the change. Never waits for the cloud.
    fn commit(&self, change: MetadataChange) -> Result<(), StorageError>;

    /// Writes whole blocks at `span` and makes the change in the same step. `sums` has an entry per block, `None` for a
    /// block of zeroes, which becomes a hole. May wait for room under the cap on dirty data, then refuses with
    /// [`StorageError::Busy`].
    fn write(
        &self,
        span: Span,
        data: Bytes,
        sums: Vec<Option<BlockSum>>,
        change: MetadataChange,
    ) -> Result<(), StorageError>;

    /// Reads whole blocks; holes are zeroes. `done` may run on this thread before the call returns, or later on
    /// another (a fetch from the cloud takes its time).
    /// `session` is who reads, for the prefetcher; [`NO_SESSION`]: nobody in particular.
    fn read(&self, session: u64, span: Span, done: ReadDone);

    /// Which blocks are mapped; the runs add up to `span.count`.
    fn map(&self, span: Span) -> Result<Vec<MapRun>, StorageError>;

    /// Makes the blocks of `to` the same as those of `from`, which are as many, holes included, by reference: no data
    /// moves to or from the cloud. The spans do not overlap. `change` is made in the same step as the last blocks.
    fn link(&self, from: Span, to: Span, change: MetadataChange) -> Result<(), StorageError>;

    /// The least inode number from `from` on that has mapped blocks; for checking.
    fn next_mapped(&self, from: u64) -> Result<Option<u64>, StorageError>;

    /// `done` runs when everything that returned before this call is on stable storage, and with [`FlushMode::Bucket`] in the
    /// bucket too. That may be refused with [`StorageError::Busy`].
    fn sync(&self, mode: FlushMode, done: SyncDone);
}
