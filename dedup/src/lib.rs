//! The fingerprint index: fingerprint (SHA-256 of a block) -> PVBN, for hundreds of millions of entries in bounded
//! memory. A log-structured merge index that exploits one fact: the keys are uniformly random.
//!
//! ```text
//!  insert ──> memtable ──freeze──> frozen memtable ──Flush::write──> run ┐
//!             (bounded)            (still consulted)                     ├─Merge::step──> larger run
//!  lookup: memtable, frozen, then runs from newest to oldest        run ┘
//!          per run: filter (memory) ─maybe─> fence (memory) ──> one 4 KiB page
//! ```
//!
//! * A **run** is an immutable sorted file of 40-byte entries in checksummed pages, with a guide file that holds
//!   its filter and its fence. Both are written in key order in one pass with constant memory: because the keys
//!   are uniform, the leading bits of the fingerprint choose the filter's block.
//! * The **filter** (blocked Bloom) answers most lookups of absent fingerprints without a read; the **fence** (the
//!   leading 8 bytes of every n-th page's first key) names the page to read for the others.
//! * **All writing happens outside the index**: [`Flush`] and [`Merge`] own what they need, run on any thread, and
//!   come back through [`Index::adopt_flush`] and [`Index::adopt_merge`]. A [`Probe`] is a lookup that likewise
//!   carries its own view, so no lock needs to be held across a read.
//! * **Durability** is the caller's [`Manifest`]: a run counts once a manifest that names it is durable, and a
//!   replaced run may be deleted once a manifest without it is. What was inserted after the freeze that preceded
//!   the manifest is replayed by the caller from its journal.
//!
//! Owns: the format of runs and manifests, the choice of merges, the division of the memory budget. Does not own:
//! files, threads, the journal, whether a PVBN is still stored (the caller checks before it redirects a write).
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
#![warn(missing_docs, clippy::unwrap_used)]
extern crate alloc;

mod budget;
mod config;
mod entry;
mod error;
mod fence;
mod filter;
mod flush;
mod index;
mod manifest;
mod memtable;
mod merge;
mod open;
mod page;
mod plan;
mod probe;
mod run;
mod scan;
mod storage;
#[cfg(test)]
mod testing;
mod writer;

pub use config::{Config, ConfigFault, ConfigFaults};
pub use error::{IndexError, InsertError, PageFault, RunFault, StaleRun};
pub use flush::{Flush, Flushed};
pub use index::{Index, MemoryUse};
pub use manifest::{Manifest, ManifestRun};
pub use merge::{Merge, Merged};
pub use open::{BadRun, OlderRuns, OnBadRun, Opened};
pub use plan::MergePlan;
pub use probe::Probe;
pub use run::{FilterLoad, LoadedFilter};
pub use scan::Scan;
pub use storage::{RunFile, RunId, RunPart, RunStorage};
