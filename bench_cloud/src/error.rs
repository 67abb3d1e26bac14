//! Why a benchmark did not run to its end.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Each says what was to be done.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Of a file or folder of the system.
    #[error("{action} {path}: {error}")]
    File {
        /// What was to be done.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it was not.
        error: io::Error,
    },
    /// The benchmark's folder is not new.
    #[error("{0} is there already: choose another --seed, or remove it")]
    Used(PathBuf),
    /// Of the address to listen on.
    #[error("cannot listen on {address}: {error}; choose another with --listen")]
    Listen {
        /// Which.
        address: String,
        /// Why not.
        error: io::Error,
    },
    /// A command that was given has failed.
    #[error("{command:?} {said}")]
    Command {
        /// As it was given.
        command: String,
        /// What became of it.
        said: String,
    },
    /// The system did not do its part in time.
    #[error(
        "{what} was not done within {} s; it may hang, else give it more with --limit-s",
        limit.as_secs()
    )]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// Nothing of what was written has passed the proxy.
    #[error(
        "{written_bytes} new bytes were written below {folder}, and {sent_bytes} have passed the proxy: does the system reach \
         its store at the address that --listen names, and does it upload within --quiet-s?"
    )]
    NotBehindProxy {
        /// Of the system.
        folder: PathBuf,
        /// Of a file.
        written_bytes: u64,
        /// To the store.
        sent_bytes: u64,
    },
    /// A file is not what was written.
    #[error("{0} does not read as it was written")]
    Damaged(PathBuf),
}
