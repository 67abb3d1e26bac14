//! Traces of storage requests.

mod error;
mod record;
mod source;

pub use error::{Fault, Place, TraceError};
pub use record::{Operation, Record};
pub use source::{Format, SORT_WINDOW, Source, TimeOrder, View};
