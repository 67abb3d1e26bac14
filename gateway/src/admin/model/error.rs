use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request is wrong; change it.
    Invalid,
    /// There is no such volume or share; look at the list.
    NotFound,
    /// The name is taken; choose another.
    AlreadyExists,
    /// Somebody uses it, or too much is going on; try again later.
    Busy,
    /// The gateway takes no changes after a failure of its local disk; mend that and restart it.
    ReadOnly,
    /// The store cannot be reached; it is tried again by itself.
    Unavailable,
    /// A defect or a broken machine; see the log.
    Internal,
}

/// Why a request was refused. The message names the thing concerned and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// Decides the status of the HTTP answer; for programs.
    pub kind: ErrorKind,
    /// One line, for people; its wording may change.
    pub message: String,
}

impl ControlError {
    /// `message` names the thing concerned and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// [`ErrorKind::NotFound`], for every request that names a volume.
    pub fn volume_not_found(name: &str) -> Self {
        Self::new(ErrorKind::NotFound, format!("volume {name:?} does not exist"))
    }

    /// [`ErrorKind::AlreadyExists`], for a creation.
    pub fn volume_exists(name: &str) -> Self {
        Self::new(
            ErrorKind::AlreadyExists,
            format!("a volume named {name:?} exists already"),
        )
    }

    /// [`ErrorKind::Busy`], for a deletion; `connections` is at least one.
    pub fn volume_in_use(name: &str, connections: u64) -> Self {
        let message = format!("volume {name:?} is in use by {connections} connections; disconnect its clients first");
        Self::new(ErrorKind::Busy, message)
    }

    /// [`ErrorKind::Invalid`], for a resize without `allow_shrink`.
    pub fn volume_would_shrink(name: &str, old_bytes: u64, new_bytes: u64) -> Self {
        let message = format!(
            "volume {name:?} has {old_bytes} bytes; a size of {new_bytes} would lose what lies beyond: shrinking must be allowed explicitly"
        );
        Self::new(ErrorKind::Invalid, message)
    }

    /// [`ErrorKind::NotFound`], for every request that names a share.
    pub fn share_not_found(name: &str) -> Self {
        Self::new(ErrorKind::NotFound, format!("share {name:?} does not exist"))
    }

    /// [`ErrorKind::AlreadyExists`], for a creation.
    pub fn share_exists(name: &str) -> Self {
        Self::new(
            ErrorKind::AlreadyExists,
            format!("a share named {name:?} exists already"),
        )
    }

    /// [`ErrorKind::Busy`], for a deletion that is under way already.
    pub fn share_being_deleted(name: &str) -> Self {
        let message = format!("share {name:?} is being deleted; its name is free when its files are gone");
        Self::new(ErrorKind::Busy, message)
    }

    /// [`ErrorKind::Busy`], for a deletion without `force`; `sessions` is at least one.
    pub fn share_in_use(name: &str, sessions: u64) -> Self {
        let message = format!(
            "share {name:?} is in use by {sessions} sessions; unmount and unexport it first, or delete it with force"
        );
        Self::new(ErrorKind::Busy, message)
    }
}
