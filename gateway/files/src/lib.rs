//! The file service: shares, inodes, directories, file data and locks.
//!
//! Pure but for locks between threads: no file, socket, clock or thread of its own. Storage and time come from the
//! caller, so the same code runs over the gateway and over a model in memory.
//!
//! Who may do what is for the front ends to decide; the service keeps what no front end can: that names, link counts, data and
//! their records agree, also after a crash in the middle of anything.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
#![warn(missing_docs, clippy::unwrap_used)]

mod about;
mod acl;
mod attributes;
mod check;
mod data;
mod error;
mod exclusion;
mod keys;
mod locking;
pub mod locks;
#[cfg(feature = "testing")]
pub mod memory;
#[cfg(feature = "testing")]
pub mod model;
mod namespace;
mod node;
mod numbers;
mod open_files;
mod orphans;
mod paths;
mod records;
mod replay;
mod service;
mod session;
mod share;
pub mod storage;
mod transaction;
mod types;
mod usage;
mod xattr;

pub use about::{EntryAbout, about_entry};
pub use check::{CheckReport, Finding};
pub use data::ReadReply;
pub use error::FileError;
pub use exclusion::{Taken, Waiting, Waits};
pub use locking::Reply;
pub use numbers::{next_numbers_key, skip_numbers};
pub use paths::paths_of;
pub use service::{FileService, Listener, service_caller};
pub use types::*;
