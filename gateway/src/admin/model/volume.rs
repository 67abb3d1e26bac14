use super::name::check_name;
use super::{ControlError, ErrorKind, FlushMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tombolo_base::BLOCK_BYTES;

/// The largest disk that today's clients have been seen to handle (ext4 and NTFS end at or below it).
pub const VOLUME_BYTES_MAX: u64 = 256 << 40;

/// A volume as the admin API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeInfo {
    /// As in the NBD export: 1 to 64 characters out of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// What clients see, a multiple of 4096; no space is taken before it is written.
    pub size_bytes: u64,
    /// What its flushes wait for.
    pub flush: FlushMode,
    /// Clients that have it open now.
    pub connections: u64,
    /// Where it lives, as in `[store.named.NAME]`; none: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

/// As [`check_share_name`](super::check_share_name).
pub fn check_volume_name(name: &str) -> Result<(), ControlError> {
    check_name("volume", name)
}

/// A whole number of blocks, at least one, at most [`VOLUME_BYTES_MAX`]. Nothing is rounded, so that a size that was
/// asked for is the size that clients see.
pub fn check_volume_size(size_bytes: u64) -> Result<(), ControlError> {
    if (BLOCK_BYTES as u64..=VOLUME_BYTES_MAX).contains(&size_bytes) && size_bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Ok(());
    }
    let rule =
        format!("it must be a multiple of {BLOCK_BYTES} bytes from {BLOCK_BYTES} to {VOLUME_BYTES_MAX} (256TiB)");
    Err(ControlError::new(
        ErrorKind::Invalid,
        format!("{size_bytes} bytes is not a valid size for a volume: {rule}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_blocks_within_bounds() {
        for size_bytes in [4096, 8192, 10 << 30, VOLUME_BYTES_MAX] {
            check_volume_size(size_bytes).unwrap();
        }
        for size_bytes in [0, 1, 4095, 4097, VOLUME_BYTES_MAX + 4096, u64::MAX] {
            assert_eq!(check_volume_size(size_bytes).unwrap_err().kind, ErrorKind::Invalid);
        }
    }
}
