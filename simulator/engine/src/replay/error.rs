//! Why a job was not done, and how its caller watches it.

use tombolo_trace::TraceError;

/// Why a job is refused, or ended.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum Error {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{field}: {reason}")]
    Job { field: &'static str, reason: String },
    #[error("request {number} of the trace was refused: {reason}")]
    Refused { number: u64, reason: String },
    #[error("the store failed: {0}")]
    Store(String),
    #[error("interrupted")]
    Interrupted,
}

/// The caller does not want to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

/// Called now and then with the records done and, once it is known, how many there are (else zero).
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> Result<(), Interrupted>;

impl From<Interrupted> for Error {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}
