//! What can go wrong between the gateway and a store, and what the caller is to do about it.
//!
//! [`StoreError`] is detailed, for people; [`ErrorKind`] is prescriptive, for code. No variant carries request
//! headers, signatures or whole response bodies, so that no secret can reach a log through an error.

use core::fmt;
use core::time::Duration;

/// What the caller is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// The request may succeed when repeated; its outcome may be unknown.
    Retry,
    /// The store asks for fewer requests: repeat later, and send less meanwhile.
    Throttled,
    /// No connection could be made; nothing was sent. Repeat, and report the outage.
    Unreachable,
    /// The object is not there.
    NotFound,
    /// The condition of a conditional put does not hold; read again and decide anew.
    Precondition,
    /// Credentials or permissions are wrong; a person must act.
    AccessDenied,
    /// The bucket or directory does not exist; a person must act.
    BucketMissing,
    /// The request, key, URL or setting can never succeed as it stands.
    Invalid,
    /// The store returned something that contradicts itself.
    Corrupt,
    /// The store is full or over quota; free space, then repeat.
    OutOfSpace,
    /// The local system failed (an I/O error, no file descriptors left).
    Internal,
}

impl ErrorKind {
    /// Each kind once, in the order of their counters.
    pub const ALL: [Self; 11] = [
        Self::Retry,
        Self::Throttled,
        Self::Unreachable,
        Self::NotFound,
        Self::Precondition,
        Self::AccessDenied,
        Self::BucketMissing,
        Self::Invalid,
        Self::Corrupt,
        Self::OutOfSpace,
        Self::Internal,
    ];

    /// True when repeating the same request can help.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Retry | Self::Throttled | Self::Unreachable)
    }

    /// As it stands in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Throttled => "throttled",
            Self::Unreachable => "unreachable",
            Self::NotFound => "not_found",
            Self::Precondition => "precondition",
            Self::AccessDenied => "access_denied",
            Self::BucketMissing => "bucket_missing",
            Self::Invalid => "invalid",
            Self::Corrupt => "corrupt",
            Self::OutOfSpace => "out_of_space",
            Self::Internal => "internal",
        }
    }
}

/// What was asked of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Writing an object.
    Put,
    /// Reading an object or a part of it.
    Get,
    /// Asking for size and tag.
    Head,
    /// Asking for keys.
    List,
    /// Removing an object.
    Delete,
    /// Asking whether the store can be used.
    Check,
}

impl Operation {
    /// Each once, in the order of their counters.
    pub const ALL: [Self; 6] = [Self::Put, Self::Get, Self::Head, Self::List, Self::Delete, Self::Check];

    /// As it stands in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Head => "head",
            Self::List => "list",
            Self::Delete => "delete",
            Self::Check => "check",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The condition that a conditional put carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No object may have the key.
    Absent,
    /// The object must have the tag.
    ETagMatches,
}

impl fmt::Display for Condition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Absent => "the object already exists",
            Self::ETagMatches => "the object was changed or removed by another writer",
        })
    }
}

/// `store` is the store as a person would name it: URL and endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum StoreError {
    #[error("{store}: object {key:?} does not exist")]
    NotFound { store: String, key: String },
    /// `earlier_attempt_unknown`: an earlier attempt of the same put got no answer, so it may have been applied and
    /// overwritten since.
    #[error(
        "{store}: conditional put of {key:?} refused: {condition}{}; read it again before deciding",
        if *.earlier_attempt_unknown { " (or by an earlier attempt whose answer was lost)" } else { "" }
    )]
    Precondition {
        store: String,
        key: String,
        condition: Condition,
        earlier_attempt_unknown: bool,
    },
    #[error("{store}: {operation} of {key:?} denied: {detail}; check the credentials, the clock and the bucket policy")]
    AccessDenied {
        store: String,
        operation: Operation,
        key: String,
        detail: String,
    },
    #[error("{store}: no usable credentials: {detail}")]
    Credentials { store: String, detail: String },
    #[error("{store}: the bucket or directory does not exist; create it or correct the store URL")]
    BucketMissing { store: String },
    #[error("{store}: cannot connect: {detail}; check the endpoint, the network and the certificates")]
    Unreachable { store: String, detail: String },
    #[error("{store}: {operation} of {key:?} got no complete answer: {detail}; its outcome is unknown, repeat it")]
    Interrupted {
        store: String,
        operation: Operation,
        key: String,
        detail: String,
    },
    #[error("{store}: {operation} of {key:?} failed in the server with status {status}: {detail}; repeat it")]
    Server {
        store: String,
        operation: Operation,
        key: String,
        status: u16,
        detail: String,
    },
    #[error("{store}: put of {key:?} collided with another conditional put; repeat it")]
    Conflict { store: String, key: String },
    #[error("{store}: {operation} of {key:?} throttled: {detail}; send fewer requests")]
    Throttled {
        store: String,
        operation: Operation,
        key: String,
        retry_after: Option<Duration>,
        detail: String,
    },
    #[error("{store}: bytes {start}..{end} of {key:?} do not exist")]
    RangeOutside {
        store: String,
        key: String,
        start: u64,
        end: u64,
    },
    #[error("{store}: {operation} of {key:?} rejected with status {status}: {detail}")]
    Rejected {
        store: String,
        operation: Operation,
        key: String,
        status: u16,
        detail: String,
    },
    #[error("object key {key:?} is not allowed: {reason}")]
    InvalidKey { key: String, reason: &'static str },
    #[error("store URL {url:?} is not usable: {reason}; write {forms}", forms = crate::url::FORMS)]
    InvalidUrl { url: String, reason: &'static str },
    #[error("setting {setting} = {value:?}: {reason}")]
    InvalidSetting {
        setting: &'static str,
        value: String,
        reason: String,
    },
    #[error("{store}: {operation} of {key:?} got an answer that is not valid: {detail}")]
    Corrupt {
        store: String,
        operation: Operation,
        key: String,
        detail: String,
    },
    #[error("{store}: no space for {operation} of {key:?}: {detail}; free space or raise the quota")]
    OutOfSpace {
        store: String,
        operation: Operation,
        key: String,
        detail: String,
    },
    #[error("{store}: {operation} of {key:?} failed here: {detail}")]
    Local {
        store: String,
        operation: Operation,
        key: String,
        detail: String,
    },
}

impl StoreError {
    /// What the caller is to do about it.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Precondition { .. } => ErrorKind::Precondition,
            Self::AccessDenied { .. } | Self::Credentials { .. } => ErrorKind::AccessDenied,
            Self::BucketMissing { .. } => ErrorKind::BucketMissing,
            Self::Unreachable { .. } => ErrorKind::Unreachable,
            Self::Interrupted { .. } | Self::Server { .. } | Self::Conflict { .. } => ErrorKind::Retry,
            Self::Throttled { .. } => ErrorKind::Throttled,
            Self::RangeOutside { .. }
            | Self::Rejected { .. }
            | Self::InvalidKey { .. }
            | Self::InvalidUrl { .. }
            | Self::InvalidSetting { .. } => ErrorKind::Invalid,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::OutOfSpace { .. } => ErrorKind::OutOfSpace,
            Self::Local { .. } => ErrorKind::Internal,
        }
    }

    /// True when the request may have been carried out although it failed.
    pub const fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Interrupted { .. } | Self::Server { .. })
    }

    /// Whether a provider charges for the request although it failed. Amazon S3 does for what it refuses (4xx) and not for its own
    /// failures (5xx, which includes SlowDown), see
    /// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/ErrorCodeBilling.html>. A request whose answer was lost may have been
    /// carried out, so it counts; one that was never sent does not.
    pub const fn is_charged(&self) -> bool {
        match self {
            Self::NotFound { .. }
            | Self::Precondition { .. }
            | Self::AccessDenied { .. }
            | Self::BucketMissing { .. }
            | Self::Interrupted { .. }
            | Self::Conflict { .. }
            | Self::RangeOutside { .. }
            | Self::Corrupt { .. } => true,
            Self::Rejected { status, .. } => *status >= 400,
            Self::Credentials { .. }
            | Self::Unreachable { .. }
            | Self::Server { .. }
            | Self::Throttled { .. }
            | Self::InvalidKey { .. }
            | Self::InvalidUrl { .. }
            | Self::InvalidSetting { .. }
            | Self::OutOfSpace { .. }
            | Self::Local { .. } => false,
        }
    }

    /// How long the store asked to be left alone.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
