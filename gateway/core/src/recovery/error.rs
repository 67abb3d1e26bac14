//! Why the gateway cannot start.

use crate::format::local_metadata::MetadataFault;
use crate::format::record::Lsn;
use alloc::string::String;
use tombolo_base::DecodeError;

/// Why the gateway cannot start on this state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError<E> {
    /// It cannot be read, or contradicts itself.
    #[error("local metadata: {0}")]
    Metadata(MetadataFault<E>),
    /// Another release made it.
    #[error(
        "the state directory has format {found}, and this release reads format {expected} alone; start the release that made \
         it, and copy the data through its clients to a gateway of this one"
    )]
    OtherFormat {
        /// What it is.
        found: char,
        /// What it would have to be.
        expected: char,
    },
    /// Where one was to be: the first start makes it, so it was lost.
    #[error("local metadata holds no superblock; restore the state directory from a copy")]
    SuperblockMissing,
    /// A file could not be read: what was tried, and why that failed.
    #[error("local disk: {0}")]
    Disk(String),
    /// A batch is damaged, and batches or marks say that it, or one behind it, was durable.
    #[error(
        "journal segment {segment} is damaged at byte {offset} ({error}), but data up to LSN {} was flushed and the \
         journal is readable only up to LSN {}; put the journal back as it was: nothing else holds that data",
        durable.0, readable.0
    )]
    JournalCorrupt {
        /// The first one with damage.
        segment: u64,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        error: DecodeError,
        /// The end of the last batch that can be replayed.
        readable: Lsn,
        /// What had been flushed.
        durable: Lsn,
    },
    /// Batches that were durable are not there, and nothing that is there is damaged.
    #[error(
        "the journal ends at LSN {}, but data up to LSN {} was flushed: segment {segment} is missing or its end is; \
         put the journal back as it was: nothing else holds that data",
        readable.0, durable.0
    )]
    JournalMissing {
        /// The first that is not there, or the one that was written last.
        segment: u64,
        /// The end of the last batch that can be replayed.
        readable: Lsn,
        /// What had been flushed.
        durable: Lsn,
    },
    /// A segment is shorter than it was made, durably, before anything was written to it.
    #[error(
        "journal segment {segment} was cut: it has {found} of {allocated} bytes; put the journal back as it was: \
         nothing else holds what was in it"
    )]
    JournalCut {
        /// Which one.
        segment: u64,
        /// Its length in bytes.
        found: u64,
        /// What its header says of that.
        allocated: u64,
    },
    /// An intact record names a slot that the cache does not have.
    #[error(
        "the journal's batch at LSN {} names slot {slot}, but the cache has {slot_count} slots",
        lsn.0
    )]
    SlotBeyondEnd {
        /// The batch.
        lsn: Lsn,
        /// The slot.
        slot: u32,
        /// What the superblock says.
        slot_count: u32,
    },
    /// Blocks are dirty, and there is no file that holds them.
    #[error(
        "the cache file is missing, and with it {dirty} blocks that are not in the cloud; put the file back, or give \
         up the data by removing the state directory"
    )]
    CacheMissing {
        /// How many.
        dirty: u64,
    },
    /// It notes less than local metadata or the journal says was flushed, and what was flushed between is not in it.
    #[error(
        "the cache file is an older copy of itself: it notes that data up to LSN {} was flushed, local metadata and the journal \
         say that data up to LSN {} was, and blocks of between are not in it; put the file back as it was: nothing else holds \
         that data",
        noted.0, durable.0
    )]
    CacheOlder {
        /// How far it says that data was flushed.
        noted: Lsn,
        /// How far data was flushed.
        durable: Lsn,
    },
    /// There is a file, and nobody knows whose.
    #[error(
        "the cache file's header cannot be read ({0}); put the file back as it was, or move it away if nothing in it \
         is missing in the cloud"
    )]
    CacheHeader(DecodeError),
    /// The file is whole, and another gateway's.
    #[error(
        "the cache file belongs to another state directory (its identity is {found:016x}, not {expected:016x}); put \
         the right one back, or move it away if nothing is missing in the cloud"
    )]
    CacheForeign {
        /// What its header says.
        found: u64,
        /// What the superblock says.
        expected: u64,
    },
    /// The file and local metadata differ in the number of slots.
    #[error(
        "the resize of the cache from {found} to {expected} slots was interrupted: run `tombolo cache resize` again"
    )]
    ResizeUnfinished {
        /// What the file was made for.
        found: u32,
        /// What the superblock says.
        expected: u32,
    },
    /// The settings ask for another number of slots than the state directory was made with.
    #[error(
        "the cache has {found} slots, and [cache] size asks for {configured}: run `tombolo cache resize`, or set [cache] size back \
         to {found} blocks of 4 KiB"
    )]
    SlotCount {
        /// What the superblock says.
        found: u32,
        /// What the settings say.
        configured: u32,
    },
}
