//! How far checkpoints have come, and what recovery would have to replay.

use crate::event::MetadataError;
use crate::format::record::Lsn;
use tombolo_base::Instant;

/// What a record costs at recovery until one has been measured: at a kill of a busy gateway 308,000 batches took 14 s.
pub const REPLAY_MICROS_PER_RECORD: u64 = 45;

#[derive(Debug)]
pub struct Checkpoints {
    /// Of the last one that was made: its position in the journal, and when it ended.
    pub lsn: Lsn,
    pub at: Instant,
    pub is_wanted: bool,
    pub retry_at: Option<Instant>,
    pub metadata_error: Option<MetadataError>,
    /// Records in the frozen overlay, and in the one above it.
    pub frozen_records: u64,
    pub overlay_records: u64,
    pub replay_micros_per_record: u64,
}

impl Checkpoints {
    pub fn new(now: Instant, lsn: Lsn) -> Self {
        Self {
            lsn,
            at: now,
            is_wanted: false,
            retry_at: None,
            metadata_error: None,
            frozen_records: 0,
            overlay_records: 0,
            replay_micros_per_record: REPLAY_MICROS_PER_RECORD,
        }
    }
}
