//! The gateway's data path as one pure state machine.
//!
//! [`Core::step`] takes the time and an [`Event`] and appends [`Command`]s; the world carries them out and reports
//! each one's success or failure as another event. The core owns the map's overlay, the journal's order, the cache's
//! slots, the dirty queue and the flush pipeline. It does not own bytes: contents of blocks go between client and
//! slot without passing through here, under the sums that the core keeps.
//!
//! | module       | holds                                                                    |
//! |--------------|--------------------------------------------------------------------------|
//! | `write`      | writes and zeroes: from request to journal record                        |
//! | `partial_write` | writes that keep some bytes of a block: exclusion, reading, merging   |
//! | `read`       | reads and map queries: from request to slots                             |
//! | `policies`   | the policies at work: what they are told and what they achieve           |
//! | `ahead`      | from suggestions to fetches                                              |
//! | `marks`      | prefetched blocks that nobody has read yet                               |
//! | `fetch`      | GETs in flight, joined by every reader that needs them                   |
//! | `flush`      | dirty blocks to fingerprints to packs to objects                         |
//! | `redirects`  | blocks that get the name of a block of the same contents                 |
//! | `verification` | whether the cloud still has what a duplicate equals                    |
//! | `ages`       | when dirty blocks were written                                           |
//! | `losses`     | blocks that are known to be lost                                         |
//! | `durability` | acknowledgements, group commit, checkpoints                              |
//! | `volumes`    | creation, resize, deletion                                               |
//! | `wall_clock` | ages of what was written before the start                                |
//! | `unmapping`  | what large unmappings leave to do, in pieces                             |
//! | `unneeded`   | clean copies of blocks that nothing maps to any more                     |
//! | `entries`    | the file service's entries that have changed, and their counters         |
//! | `entry_scan` | looks at entries: what has changed laid over local metadata              |
//! | `map_walk`   | walks through sparse maps                                                |
//! | `link`       | blocks made the same as others                                           |
//! | `recovery`   | the same state from local metadata and the journal                       |
//! | `checkpoint` | the tables of local metadata                                             |
//! | `merge`      | the merge of the overlay into them, in transactions of bounded size      |
//! | `cache_header` | the cache file's first bytes, and the note of what is durable          |
//! | `sealed`     | the sum that binds a record of local metadata to its place                |
//! | `record`     | the journal's bytes                                                      |
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
extern crate alloc;

mod ages;
#[cfg(test)]
mod bounds_tests;
pub mod cache_header;
pub mod checkpoint;
mod config;
mod core_state;
mod dead_copies;
mod dirty;
mod durability;
mod entries;
mod entry_scan;
mod event;
mod extent_map;
mod fetch;
mod flush;
mod journal;
mod link;
mod losses;
mod map_walk;
mod marks;
mod merge;
mod page;
mod partial_write;
mod policies;
#[cfg(test)]
mod policy_change_cost;
mod prefetch;
mod read;
pub mod record;
pub mod recovery;
mod redirects;
pub mod sealed;
mod slots;
#[cfg(test)]
mod test_bench;
mod unmapping;
#[cfg(test)]
mod unmapping_cost;
mod verification;
mod volumes;
mod wall_clock;
mod weighted_lru;
mod write;

pub use checkpoint::{Frozen, Totals, Volume};
pub use config::Config;
pub use core_state::{Core, Counters, Snapshot, StoreState};
pub use entries::{Entries, EntryLookup, EntryValue};
pub use entry_scan::{EntryScan, StoredEntry};
pub use event::{
    Answer, BlockLoss, Command, DiskError, Event, FetchItem, HashItem, HashResult, JobId, Loss, LossCause,
    MetadataChange, MetadataError, PartialWrite, ReadPiece, Refusal, ResolvedRun, Source, Span, StatusRun,
    StoreFailure, Token, UploadFailure, UploadItem, WritePiece,
};
pub use extent_map::{Extent, ExtentMap, Target};
pub use journal::{JournalMark, JournalWrite, allocated_bytes};
pub use link::{Link, LinkStep};
pub use losses::LostRun;
pub use map_walk::{MapWalk, WalkStep};
pub use merge::Merge;
pub use page::{MapPage, PAGE_ENTRIES};
pub use policies::{Economy, Policies, PolicyCounters, PolicySnapshot, Tally};
pub use record::{LinkRun, Lsn, SlotRun};
pub use tombolo_prefetch::ClientId;
