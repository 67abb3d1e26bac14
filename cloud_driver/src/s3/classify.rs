//! From what was noted of a failed exchange to a typed error. One table, so that the meaning of a status is decided once.

use super::observer::{Noted, Outcome};
use crate::{Condition, Operation, StoreError};
use std::time::Duration;

/// The failed request.
pub(super) struct Request<'a> {
    pub store: &'a str,
    /// Host and port of the store.
    pub authority: &'a str,
    pub operation: Operation,
    pub key: &'a str,
    pub condition: Option<Condition>,
    /// Until the answer has come in full.
    pub timeout: Duration,
}

impl Request<'_> {
    /// `fallback` describes the failure when no exchange failed: a broken body, or an answer that made no sense.
    pub(super) fn error(&self, noted: Option<Noted>, fallback: String) -> StoreError {
        match noted {
            Some(noted) if noted.authority != self.authority => self.credential_error(noted),
            Some(noted) => match noted.outcome {
                Outcome::Status { .. } => self.status_error(noted.outcome),
                Outcome::NotConnected { detail } => StoreError::Unreachable {
                    store: self.store.into(),
                    detail,
                },
                Outcome::Interrupted { detail } => self.interrupted(detail),
            },
            None => self.interrupted(fallback),
        }
    }

    pub(super) fn interrupted(&self, detail: String) -> StoreError {
        StoreError::Interrupted {
            store: self.store.into(),
            operation: self.operation,
            key: self.key.into(),
            detail,
        }
    }

    fn status_error(&self, outcome: Outcome) -> StoreError {
        let Outcome::Status {
            status,
            code,
            message,
            retry_after,
        } = outcome
        else {
            return self.interrupted("no status".into());
        };
        let (store, operation, key) = (self.store.to_owned(), self.operation, self.key.to_owned());
        let detail = match (&code[..], &message[..]) {
            ("", _) => format!("status {status}"),
            (code, "") => code.to_owned(),
            (code, message) => format!("{code}: {message}"),
        };
        match (status, &code[..]) {
            (_, "NoSuchBucket") => StoreError::BucketMissing { store },
            (429, _)
            | (_, "SlowDown" | "SlowDownRead" | "SlowDownWrite" | "TooManyRequests" | "RequestLimitExceeded") => {
                StoreError::Throttled {
                    store,
                    operation,
                    key,
                    retry_after,
                    detail,
                }
            }
            // A bare 503 asks for patience like SlowDown; a proxy in front of the store sends it so.
            (503, _) => StoreError::Throttled {
                store,
                operation,
                key,
                retry_after,
                detail,
            },
            (507, _)
            | (_, "XMinioStorageFull" | "QuotaExceeded" | "XMinioAdminBucketQuotaExceeded" | "StorageFull") => {
                StoreError::OutOfSpace {
                    store,
                    operation,
                    key,
                    detail,
                }
            }
            (_, "RequestTimeout" | "IncompleteBody") | (408, _) => self.interrupted(detail),
            // The server found that the upload was damaged on its way.
            (_, "BadDigest" | "XAmzContentChecksumMismatch" | "XAmzContentSHA256Mismatch") => self.interrupted(detail),
            // Clocks apart or a token that ends: a person, or a renewed token, must help.
            (401 | 403, _) | (_, "ExpiredToken" | "InvalidToken" | "RequestTimeTooSkewed" | "InvalidAccessKeyId") => {
                StoreError::AccessDenied {
                    store,
                    operation,
                    key,
                    detail,
                }
            }
            (304 | 412, _) => self.precondition(),
            // S3 says so of If-Match on an absent object.
            (404, _) if self.condition == Some(Condition::ETagMatches) => self.precondition(),
            (404, _) if matches!(operation, Operation::List | Operation::Check) => StoreError::BucketMissing { store },
            (404, _) => StoreError::NotFound { store, key },
            (409, "ConditionalRequestConflict" | "OperationAborted") => StoreError::Conflict { store, key },
            (409, "") if self.condition.is_some() => StoreError::Conflict { store, key },
            (500..=599, _) => StoreError::Server {
                store,
                operation,
                key,
                status,
                detail,
            },
            (300..=399, _) => StoreError::Rejected {
                store,
                operation,
                key,
                status,
                detail: format!("{detail}; the bucket lies in another region or at another endpoint"),
            },
            _ => StoreError::Rejected {
                store,
                operation,
                key,
                status,
                detail,
            },
        }
    }

    fn precondition(&self) -> StoreError {
        StoreError::Precondition {
            store: self.store.into(),
            key: self.key.into(),
            condition: self.condition.unwrap_or(Condition::ETagMatches),
            earlier_attempt_unknown: false,
        }
    }

    /// A service that hands out credentials failed. What it cannot do now it may do later, unless it refuses.
    fn credential_error(&self, noted: Noted) -> StoreError {
        let store = self.store.to_owned();
        let at = noted.authority;
        match noted.outcome {
            Outcome::Status { status, code, .. } if status < 500 && status != 429 => StoreError::Credentials {
                store,
                detail: format!("{at} refused to hand them out: status {status} {code}"),
            },
            Outcome::Status { status, code, .. } => StoreError::Unreachable {
                store,
                detail: format!("credentials from {at}: status {status} {code}"),
            },
            Outcome::NotConnected { detail } | Outcome::Interrupted { detail } => StoreError::Unreachable {
                store,
                detail: format!(
                    "credentials from {at}: {detail} (set AWS_ACCESS_KEY_ID or a profile if they are not to come from there)"
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn kind(operation: Operation, condition: Option<Condition>, status: u16, code: &str) -> ErrorKind {
        let request = Request {
            store: "s3://b",
            authority: "host",
            operation,
            key: "k",
            condition,
            timeout: Duration::ZERO,
        };
        let outcome = Outcome::Status {
            status,
            code: code.into(),
            message: String::new(),
            retry_after: None,
        };
        let noted = Noted {
            outcome,
            authority: "host".into(),
        };
        request.error(Some(noted), String::new()).kind()
    }

    #[test]
    fn every_status_has_its_meaning() {
        use ErrorKind as Kind;
        use Operation::{Check, Get, Put};
        let matches = Some(Condition::ETagMatches);
        for (operation, condition, status, code, expected) in [
            (Get, None, 404, "NoSuchKey", Kind::NotFound),
            (Get, None, 404, "NoSuchBucket", Kind::BucketMissing),
            (Check, None, 404, "", Kind::BucketMissing),
            (Put, matches, 404, "NoSuchKey", Kind::Precondition),
            (Put, matches, 412, "PreconditionFailed", Kind::Precondition),
            (
                Put,
                Some(Condition::Absent),
                409,
                "ConditionalRequestConflict",
                Kind::Retry,
            ),
            (Put, None, 409, "ObjectParentIsFile", Kind::Invalid),
            (Put, None, 503, "SlowDown", Kind::Throttled),
            (Put, None, 503, "", Kind::Throttled),
            (Put, None, 429, "", Kind::Throttled),
            (Put, None, 500, "InternalError", Kind::Retry),
            (Put, None, 400, "RequestTimeout", Kind::Retry),
            (Put, None, 400, "BadDigest", Kind::Retry),
            (Put, None, 507, "", Kind::OutOfSpace),
            (Put, None, 403, "QuotaExceeded", Kind::OutOfSpace),
            (Get, None, 403, "SignatureDoesNotMatch", Kind::AccessDenied),
            (Get, None, 400, "ExpiredToken", Kind::AccessDenied),
            (Get, None, 301, "PermanentRedirect", Kind::Invalid),
            (Get, None, 400, "InvalidArgument", Kind::Invalid),
        ] {
            assert_eq!(kind(operation, condition, status, code), expected, "{status} {code}");
        }
    }
}
