use super::{ControlError, ErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The recording of a trace, or the latest one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TraceStatus {
    /// Whether it goes on, and how it ended.
    pub state: TraceState,
    /// Absolute, on the gateway's machine. None: nothing was recorded since the start.
    pub path: Option<String>,
    /// Requests in the file, or on their way there.
    pub records: u64,
    /// Requests that are missing because too many came at once.
    pub dropped: u64,
    /// Of the file, as far as it is written.
    pub bytes: u64,
    /// The recording ends when the file is as large; 0 before the first recording.
    pub bytes_max: u64,
    /// Why it ended before its end.
    pub error: Option<String>,
}

/// Where a recording stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TraceState {
    /// Nothing was recorded since the start.
    #[default]
    None,
    /// Requests are added; what is in the file can be read already.
    Recording,
    /// It was stopped; the file is whole.
    Finished,
    /// The file has the size that was allowed; it is whole.
    Full,
    /// It ended before its end; what was written until then can be read.
    Failed,
}

impl TraceState {
    /// As in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Recording => "recording",
            Self::Finished => "finished",
            Self::Full => "full",
            Self::Failed => "failed",
        }
    }
}

/// A trace smaller than this holds next to nothing.
pub const TRACE_BYTES_MIN: u64 = 1 << 20;
/// More than any local disk holds; larger sizes are mistakes.
pub const TRACE_BYTES_MAX: u64 = 1 << 50;

/// The gateway's working directory is nobody's affair, so that the path must be a whole one.
pub fn check_trace_path(path: &Path) -> Result<(), ControlError> {
    if path.is_absolute() {
        return Ok(());
    }
    let message = format!("{} is not an absolute path", path.display());
    Err(ControlError::new(ErrorKind::Invalid, message))
}

/// From [`TRACE_BYTES_MIN`] to [`TRACE_BYTES_MAX`], else [`ErrorKind::Invalid`].
pub fn check_trace_size(bytes_max: u64) -> Result<(), ControlError> {
    if (TRACE_BYTES_MIN..=TRACE_BYTES_MAX).contains(&bytes_max) {
        return Ok(());
    }
    let message = format!("a trace of {bytes_max} bytes is not allowed: {TRACE_BYTES_MIN} to {TRACE_BYTES_MAX}");
    Err(ControlError::new(ErrorKind::Invalid, message))
}
