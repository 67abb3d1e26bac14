//! The gateway's data path as one pure state machine.
//!
//! [`Core::step`] takes the time and an [`Event`] and appends [`Command`]s; the world carries them out and reports
//! each one's success or failure as another event. The core owns the map's overlay, the journal's order, the cache's
//! slots, the dirty queue and the flush pipeline. It does not own bytes: contents of blocks go between client and
//! slot without passing through here, under the sums that the core keeps.
//!
//! | module       | holds                                                                          |
//! |--------------|--------------------------------------------------------------------------------|
//! | `format`     | what has a layout in bytes: journal records, tables of local metadata, headers |
//! | `state`      | data: slots, dirty queue, overlay, positions in the journal, what is in flight |
//! | `event`      | what the world tells the core, and what the core asks of the world             |
//! | `core_state` | the core, which owns all of the state                                          |
//! | `steps`      | what the core does with it, a file for each subject                            |
//! | `invariants` | what must always hold                                                          |
//! | `recovery`   | the same state from local metadata and the journal                             |
//! | `merge`      | the merge of the overlay into local metadata, in transactions of bounded size  |
//! | `backing`    | local metadata that is still in the bucket in part                             |
//! | `walks`      | what takes several requests: scans, walks through maps, links                  |
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
#![warn(missing_docs, clippy::unwrap_used)]
extern crate alloc;

pub mod audit;
pub mod backing;
pub mod bucket_tree;
mod config;
mod core_state;
mod event;
mod format;
mod invariants;
mod merge;
pub mod publisher;
pub mod recovery;
mod resize;
mod snapshot;
mod state;
mod steps;
#[cfg(test)]
mod test_bench;
mod walks;

pub use config::{Config, FetchUnit, FlushInterval, SequentialBy};
pub use core_state::{Core, Counters, StoreState};
pub use event::{
    Answer, BlockLoss, Command, DiskError, Event, FetchItem, HashItem, HashResult, JobId, Lanes, Loss, LossCause,
    MetadataError, PartialWrite, PublishFailure, ReadPiece, Refusal, ResolvedRun, Source, StatusRun, StopReason,
    StoreFailure, Token, UploadFailure, UploadItem, WritePiece, WriteRequest,
};
pub use format::cache_header::JournalMark;
pub use format::page::{MapPage, PAGE_ENTRIES};
pub use format::record::{LinkRun, Lsn, SlotRun};
pub use format::superblock::{Superblock, Totals, Volume};
pub use format::{bucket_journal, cache_header, local_metadata, record, root, sealed, slot_page};
pub use merge::Merge;
pub use resize::{Resize, ResizeError, SlotMove, resize};
pub use snapshot::{Comparison, PolicySnapshot, Snapshot};
pub use state::entry_overlay::{Entries, EntryLookup, EntryValue};
pub use state::extent_map::{Extent, ExtentMap, Target};
pub use state::journal::{JournalWrite, allocated_bytes};
pub use state::lost_blocks::LostRun;
pub use state::overlay::Frozen;
pub use state::policy_counters::{PolicyCounters, Tally};
pub use state::prefetch_state::{Economy, Policies};
pub use state::unpublished::{RecoveryPoint, UnpublishedChanges};
pub use steps::policies::ReplacementChanging;
pub use tombolo_base::{MetadataChange, Span};
pub use tombolo_prefetch::ClientId;
pub use walks::entry_scan::{EntryScan, StoredEntry};
pub use walks::link::{Link, LinkStep};
pub use walks::map_walk::{MapWalk, WalkStep};
