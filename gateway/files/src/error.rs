//! What can go wrong, and the one table that turns it into the errno of Linux.

use crate::storage::StorageError;
use tombolo_base::DecodeError;

/// Why a request was refused. Nothing was changed then, unless a method says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "the messages say what each is; those without one here are errno's"
)]
pub enum FileError {
    #[error("no such file or directory")]
    NotFound,
    #[error("the name exists already")]
    Exists,
    #[error("not a directory")]
    NotDirectory,
    #[error("is a directory")]
    IsDirectory,
    #[error("the directory is not empty")]
    NotEmpty,
    #[error("invalid: {0}")]
    Invalid(&'static str),
    #[error("the name is too long")]
    NameTooLong,
    #[error("a symbolic link where none may be followed")]
    Loop,
    #[error("too many links")]
    TooManyLinks,
    #[error("the names are not in one share")]
    CrossShare,
    /// The inode number names nothing, or something of another share.
    #[error("the inode does not exist")]
    Stale,
    #[error("beyond the largest file size")]
    FileTooLarge,
    #[error("the share's quota is used up")]
    QuotaExceeded,
    #[error("no space: {0}")]
    NoSpace(String),
    #[error("no such attribute")]
    NoData,
    /// A name or a buffer does not fit.
    #[error("out of range")]
    Range,
    #[error("the value is too big")]
    TooBig,
    #[error("not permitted: {0}")]
    NotPermitted(&'static str),
    #[error("access denied")]
    AccessDenied,
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// The same request may succeed later: the backlog is at its cap, or the cloud does not answer.
    #[error("try again: {0}")]
    Busy(String),
    /// In use: a share with sessions on it.
    #[error("in use: {0}")]
    InUse(&'static str),
    /// A lock that conflicts is held, and the request did not want to wait.
    #[error("locked by another owner")]
    Locked,
    /// A waiting lock request was taken back.
    #[error("interrupted")]
    Interrupted,
    #[error("waiting would be a deadlock")]
    Deadlock,
    #[error("too many locks")]
    TooManyLocks,
    /// A position beyond the last data or hole.
    #[error("no such position")]
    NoSuchPosition,
    /// The session does not exist, or has ended.
    #[error("the session has ended")]
    NoSession,
    /// It was open before changes were lost that had been answered; nobody can tell which.
    #[error("it was open before changes were lost; close it and open it again")]
    Lost,
    /// A record that this service has written cannot be read.
    #[error("a damaged record: {0}")]
    Damaged(#[from] DecodeError),
    /// Records contradict each other.
    #[error("records contradict each other: {0}")]
    Inconsistent(&'static str),
    #[error("input or output failed: {0}")]
    Failed(String),
}

impl FileError {
    /// The errno of Linux on all its architectures but Alpha, MIPS, PA-RISC and SPARC.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotPermitted(_) => 1, // EPERM
            Self::NotFound => 2,        // ENOENT
            Self::Interrupted => 4,     // EINTR
            // EIO: the data or the records are lost or cannot be had; trying again does not help.
            Self::Damaged(_) | Self::Inconsistent(_) | Self::Failed(_) | Self::Lost => 5,
            Self::NoSuchPosition => 6, // ENXIO
            Self::TooBig => 7,         // E2BIG
            // EAGAIN: what POSIX says for a lock; for a busy store the front ends turn it into "try again later".
            Self::Busy(_) | Self::Locked => 11,
            Self::AccessDenied => 13,    // EACCES
            Self::InUse(_) => 16,        // EBUSY
            Self::Exists => 17,          // EEXIST
            Self::CrossShare => 18,      // EXDEV
            Self::NotDirectory => 20,    // ENOTDIR
            Self::IsDirectory => 21,     // EISDIR
            Self::Invalid(_) => 22,      // EINVAL
            Self::FileTooLarge => 27,    // EFBIG
            Self::NoSpace(_) => 28,      // ENOSPC
            Self::TooManyLinks => 31,    // EMLINK
            Self::Range => 34,           // ERANGE
            Self::Deadlock => 35,        // EDEADLK
            Self::NameTooLong => 36,     // ENAMETOOLONG
            Self::TooManyLocks => 37,    // ENOLCK
            Self::NotEmpty => 39,        // ENOTEMPTY
            Self::Loop => 40,            // ELOOP
            Self::NoData => 61,          // ENODATA
            Self::NotSupported(_) => 95, // EOPNOTSUPP
            // ESTALE for a session too: whatever it refers to by number has gone with it.
            Self::Stale | Self::NoSession => 116,
            Self::QuotaExceeded => 122, // EDQUOT
        }
    }
}

impl From<StorageError> for FileError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Busy(why) => Self::Busy(why),
            StorageError::NoSpace(why) => Self::NoSpace(why),
            // A lost block is EIO: no errno says "the only copy is damaged".
            StorageError::Lost(why) | StorageError::Failed(why) => Self::Failed(why),
        }
    }
}
