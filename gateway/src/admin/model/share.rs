use super::name::check_name;
use super::{ControlError, ErrorKind, FlushMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tombolo_base::BLOCK_BYTES;

/// Far more than a bucket is likely to hold, and far less than a counter of bytes can.
pub const SHARE_QUOTA_BYTES_MAX: u64 = 1 << 60;

/// A share as the admin API shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShareInfo {
    /// As in paths of exports: 1 to 64 characters out of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// Never reused within one state directory; 1 and up.
    pub id: u32,
    /// None: as much as the store holds.
    pub quota_bytes: Option<u64>,
    /// What its flushes wait for; changes of names over NFS, which are flushed before they are answered, too.
    pub flush: FlushMode,
    /// Bytes that files occupy; holes do not count.
    pub used_bytes: u64,
    /// Files, directories and everything else, the root included.
    pub inodes: u64,
    /// It was deleted, and its files are being removed. Nothing can attach to it, and its name is still taken.
    pub deleting: bool,
    /// In the order of their clients' names.
    pub sessions: Vec<SessionInfo>,
    /// Where it lives, as in `[store.named.NAME]`; none: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// Of a share in a named store: tells its files from those of other stores' shares, of which the numbers may be the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<u32>,
}

/// One client of a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionInfo {
    /// The name that the client gave itself.
    pub client: String,
    /// Tells where it is ended: by unmounting, or in the server that holds the connection.
    pub kind: SessionKind,
    /// False while it is waited for: its locks and open files are kept until the grace period is over.
    pub connected: bool,
}

/// How a client reaches the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// A mount of this machine's kernel.
    Mount,
    /// A server on the socket of the file service, such as the NFS server.
    Socket,
}

impl SessionKind {
    /// As in the JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Socket => "socket",
        }
    }
}

/// 1 to 64 characters out of `A-Z a-z 0-9 . _ -`, of which the first is neither a dot nor a dash.
pub fn check_share_name(name: &str) -> Result<(), ControlError> {
    check_name("share", name)
}

/// A whole number of blocks, because blocks are what is counted; at least one, since a share that can hold nothing would
/// only be mistaken for one without a quota. It may be less than what is used: then nothing more can be written.
pub fn check_share_quota(quota_bytes: u64) -> Result<(), ControlError> {
    const BLOCK: u64 = BLOCK_BYTES as u64;
    if (BLOCK..=SHARE_QUOTA_BYTES_MAX).contains(&quota_bytes) && quota_bytes.is_multiple_of(BLOCK) {
        return Ok(());
    }
    let rule = format!("it must be a multiple of {BLOCK} bytes from {BLOCK} to {SHARE_QUOTA_BYTES_MAX} (1EiB)");
    Err(ControlError::new(
        ErrorKind::Invalid,
        format!("{quota_bytes} bytes is not a valid quota for a share: {rule}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_whole_blocks_within_bounds() {
        for quota_bytes in [4096, 10 << 30, SHARE_QUOTA_BYTES_MAX] {
            check_share_quota(quota_bytes).unwrap();
        }
        for quota_bytes in [0, 1, 4097, SHARE_QUOTA_BYTES_MAX + 4096, u64::MAX] {
            let error = check_share_quota(quota_bytes).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid);
            assert!(error.message.contains("quota"), "{error}");
        }
    }
}
