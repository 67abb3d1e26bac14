use crate::admin::model::{ControlError, ErrorKind};
use crate::mount::MountError;
use crate::settings::SettingsError;
use std::io;
use std::path::PathBuf;

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("no gateway answers on {socket}: {error}; is `tombolo serve` running, and may you open its socket?")]
    Unreachable { socket: PathBuf, error: io::Error },
    #[error("the answer on {socket} cannot be understood: {reason}; is it a gateway of this version?")]
    Protocol { socket: PathBuf, reason: String },
    #[error("{0}")]
    Refused(#[from] ControlError),
    #[error("{0}")]
    Settings(#[from] SettingsError),
    #[error("{0}")]
    Usage(String),
    #[error("{action} {path}: {error}")]
    File {
        action: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    #[error("cannot run tgtadm: {0}; is the package tgt installed?")]
    TgtadmMissing(io::Error),
    #[error("{command} failed: {said}")]
    Tgtadm { command: String, said: String },
    #[error("{0}")]
    ExportConflict(String),
    #[error("standard output: {0}")]
    Output(io::Error),
    #[error(transparent)]
    Drain(#[from] DrainError),
    #[error("{findings} {}", if *findings == 1 { "finding" } else { "findings" })]
    CheckFindings { findings: u64 },
    #[error("the check did not finish: {0}")]
    CheckFailed(String),
    #[error("testparm refuses {path}: {said}")]
    Testparm { path: PathBuf, said: String },
    #[error("{0}")]
    Mount(#[from] MountError),
    #[error("{0}")]
    Serve(String),
    #[error("{0}")]
    Recover(String),
    #[error("{0}")]
    Salvage(String),
    #[error(transparent)]
    Bench(#[from] tombolo_bench_cloud::BenchError),
    #[error("{0}")]
    CacheResize(String),
    #[error("{ranges} {} could not be read, and are holes in the copies", if *ranges == 1 { "range" } else { "ranges" })]
    Unreadable { ranges: usize },
}

/// Why a drain did not end as it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DrainError {
    #[error("{dirty_bytes} bytes are still dirty after {seconds} s{}", reason.as_ref().map(|reason| format!("; the store: {reason}")).unwrap_or_default())]
    Timeout {
        dirty_bytes: u64,
        seconds: u64,
        reason: Option<String>,
    },
    #[error("the store has everything but {blocks} lost {}; see `tombolo status`", if *blocks == 1 { "block" } else { "blocks" })]
    Lost { blocks: u64 },
    #[error(
        "what these named stores hold may not be in their buckets, as they do not serve (`tombolo status` says why): {0}"
    )]
    Absent(String),
    #[error("the local disk has failed, and nothing is uploaded until a restart: {0}")]
    DiskFailed(String),
}

impl DrainError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::DiskFailed(_) => 1,
            Self::Timeout { .. } | Self::Absent(_) => 6,
            Self::Lost { .. } => 7,
        }
    }
}

impl CliError {
    /// As `tombolo --help` lists them.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Settings(_) => 2,
            Self::Unreachable { .. } => 3,
            Self::Refused(refused) => match refused.kind {
                ErrorKind::Invalid => 2,
                ErrorKind::NotFound => 4,
                ErrorKind::AlreadyExists => 5,
                ErrorKind::Busy | ErrorKind::Unavailable => 6,
                ErrorKind::ReadOnly | ErrorKind::Internal => 1,
            },
            Self::Mount(error) if error.is_unknown_share() => 4,
            Self::Drain(error) => error.exit_code(),
            Self::CheckFindings { .. } | Self::Unreadable { .. } => 7,
            Self::Protocol { .. }
            | Self::File { .. }
            | Self::TgtadmMissing(_)
            | Self::Tgtadm { .. }
            | Self::ExportConflict(_)
            | Self::Output(_)
            | Self::CheckFailed(_)
            | Self::Testparm { .. }
            | Self::Mount(_)
            | Self::Serve(_)
            | Self::Recover(_)
            | Self::Salvage(_)
            | Self::Bench(_)
            | Self::CacheResize(_) => 1,
        }
    }
}
