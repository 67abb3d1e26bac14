//! How much is asked of a store at a time, learnt from how it answers: intervals between batches ([`Stout`]),
//! how many requests are in flight ([`Concurrency`]) and how many bytes ([`ByteWindow`]); and what need not wait for a batch
//! ([`EarlyFlush`]).
//!
//! A controller is a deterministic state machine. It is told of every request that ended, with instants that its caller
//! passes, and answers with a number; it sends nothing and holds nothing back. Any sequence of calls with any values is
//! allowed.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
#![warn(missing_docs, clippy::unwrap_used)]

extern crate alloc;

pub mod byte_window;
pub mod concurrency;
pub mod deadline;
pub mod early_flush;
pub mod group_commit;
mod logarithm;
mod path;
pub mod stout;

pub use byte_window::ByteWindow;
pub use concurrency::Concurrency;
pub use deadline::Deadlines;
pub use early_flush::EarlyFlush;
pub use group_commit::GroupCommit;
pub use stout::Stout;
