//! Traces of storage requests.

pub mod analysis;
mod error;
mod record;
mod source;

pub use analysis::{Analyser, Analysis};
pub use error::{Fault, Place, TraceError};
pub use record::{Operation, Record};
pub use source::{Format, SORT_WINDOW, Source, TimeOrder, View};
