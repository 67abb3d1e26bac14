//! What recovery tells of its work.

use alloc::{sync::Arc, vec::Vec};
use tombolo_base::ObjectDescriptor;

/// What recovery found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Batches of the journal that were replayed.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of journal after the last good batch, given up as never flushed.
    pub torn_bytes: u64,
    /// How many readable batches are among them.
    pub given_up_batches: u64,
    /// Slots with a block that the store has too.
    pub clean_slots: u64,
    /// Blocks that the store lacks, from the slot index and from the journal.
    pub dirty_blocks: u64,
    /// Objects confirmed since the checkpoint: their fingerprints go into the index again.
    pub objects: Vec<Arc<ObjectDescriptor>>,
    /// Segments that hold nothing needed.
    pub obsolete_segments: Vec<u64>,
    /// Segment, and the offset from which on it MUST be zeroed before anything else is written: the batches behind were
    /// given up, and a later recovery that does not find this life's segments must not find them again.
    pub cut: Option<(u64, u64)>,
}
