//! Why the gateway cannot start.

use crate::format::local_metadata::MetadataFault;
use crate::format::record::Lsn;
use alloc::string::String;
use tombolo_base::DecodeError;

/// Why the gateway cannot start on this state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError<E> {
    #[error("local metadata: {0}")]
    Metadata(MetadataFault<E>),
    #[error("local metadata holds no superblock; restore the state directory from a copy")]
    SuperblockMissing,
    #[error("local disk: {0}")]
    Disk(String),
    #[error(
        "journal segment {segment} is damaged at byte {offset} ({error}), but data up to LSN {} was flushed and the \
         journal is readable only up to LSN {}; put the journal back as it was, or give the flushed data up explicitly",
        durable.0, readable.0
    )]
    JournalCorrupt {
        segment: u64,
        offset: u64,
        error: DecodeError,
        readable: Lsn,
        durable: Lsn,
    },
    #[error(
        "the journal ends at LSN {}, but data up to LSN {} was flushed: segment {segment} is missing or its end is; \
         put the journal back as it was, or give the flushed data up explicitly",
        readable.0, durable.0
    )]
    JournalMissing { segment: u64, readable: Lsn, durable: Lsn },
    #[error(
        "journal segment {segment} was cut: it has {found} of {allocated} bytes; put the journal back as it was, or \
         give up explicitly what it held"
    )]
    JournalCut { segment: u64, found: u64, allocated: u64 },
    #[error(
        "the journal's batch at LSN {} names slot {slot}, but the cache has {slot_count} slots",
        lsn.0
    )]
    SlotBeyondEnd { lsn: Lsn, slot: u32, slot_count: u32 },
    #[error(
        "the cache file is missing, and with it {dirty} blocks that are not in the cloud; put the file back, or give \
         up the data by removing the state directory"
    )]
    CacheMissing { dirty: u64 },
    #[error(
        "the cache file's header cannot be read ({0}); put the file back as it was, or move it away if nothing in it \
         is missing in the cloud"
    )]
    CacheHeader(DecodeError),
    #[error(
        "the cache file belongs to another state directory (its identity is {found:016x}, not {expected:016x}); put \
         the right one back, or move it away if nothing is missing in the cloud"
    )]
    CacheForeign { found: u64, expected: u64 },
    #[error(
        "the state was made with {found} cache slots and cannot be used with {configured}; set [cache] size back to \
         {found} blocks of 4 KiB"
    )]
    SlotCount { found: u32, configured: u32 },
}
