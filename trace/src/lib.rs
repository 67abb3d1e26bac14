//! Traces of storage requests: one stream of [`Record`]s out of many formats, compressed or not, and the project's own
//! columnar format to write them.
//!
//! A reader holds a bounded part of the trace. What it reads comes from outside, so that every damage ends in a
//! [`TraceError`] with the line or the byte, and never in a panic or a request that cannot be.
//!
//! | module     | holds                                                         |
//! |------------|---------------------------------------------------------------|
//! | `source`   | where a trace lies and how it is to be read                   |
//! | `input`    | bytes, decompressed, with positions                           |
//! | `detect`   | the format by the first bytes                                 |
//! | `formats`  | one file for each kind of format of others                    |
//! | `columnar` | the project's own format                                      |
//! | `reader`   | units, order of time, bounds: what all formats share          |
//! | `blocks`   | a set of blocks                                               |
//! | `summary`  | what a trace holds; conversion                                |
//! | `analysis` | the structure of a trace's requests                           |
//!
//! A file that was cut short: binary formats say so, and so do compressed ones. A text's last line must end, so a cut
//! in it is told; a cut exactly between two lines of plain text, or between two records of a format without a mark of
//! its end, cannot be told from a shorter trace.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
#![warn(missing_docs, clippy::unwrap_used)]

pub mod analysis;
mod blocks;
pub mod columnar;
mod detect;
mod error;
mod formats;
mod input;
mod reader;
mod record;
mod source;
mod summary;
mod text;

pub use analysis::{Analyser, Analysis};
pub use blocks::BlockSet;
pub use error::{Fault, Place, TraceError};
pub use reader::{ADDRESS_BYTES_MAX, BLOCK_BYTES, REQUEST_BYTES_MAX, Reader, open, open_stream};
pub use record::{Operation, Record};
pub use source::{Format, SORT_WINDOW, Source, TimeOrder, View};
pub use summary::{Info, Progress, convert, info};
