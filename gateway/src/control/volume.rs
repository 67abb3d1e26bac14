use super::{ControlError, ErrorKind};
use serde::{Deserialize, Serialize};
use tombolo_base::BLOCK_BYTES;

/// A name travels in NBD export names, iSCSI names, URLs and file names; this fits them all.
pub const VOLUME_NAME_BYTES_MAX: usize = 64;
/// The largest disk that today's clients have been seen to handle (ext4 and NTFS end at or below it).
pub const VOLUME_BYTES_MAX: u64 = 256 << 40;

/// A volume as the admin API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeInfo {
    pub name: String,
    pub size_bytes: u64,
    /// Clients that have it open now.
    pub connections: u64,
}

/// 1 to 64 characters out of `A-Z a-z 0-9 . _ -`, of which the first is neither a dot nor a dash.
pub fn check_volume_name(name: &str) -> Result<(), ControlError> {
    let permitted = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let first = name.bytes().next();
    if (1..=VOLUME_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(permitted)
        && first.is_some_and(|byte| byte != b'.' && byte != b'-')
    {
        return Ok(());
    }
    // What is far too long is not repeated in full.
    let shown: String = name.chars().take(VOLUME_NAME_BYTES_MAX + 1).collect();
    let rule = "1 to 64 characters out of A-Z a-z 0-9 . _ -, and neither a dot nor a dash in front";
    Err(ControlError::new(
        ErrorKind::Invalid,
        format!("{shown:?} is no name for a volume: {rule}"),
    ))
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
        format!("{size_bytes} bytes is no size for a volume: {rule}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fit_everywhere_are_taken() {
        let longest = "v".repeat(VOLUME_NAME_BYTES_MAX);
        for name in ["a", "vol-1", "A.b_c", "_x", "0", longest.as_str()] {
            check_volume_name(name).unwrap();
        }
    }

    #[test]
    fn other_names_are_refused() {
        let too_long = "n".repeat(VOLUME_NAME_BYTES_MAX + 1);
        for name in [
            "",
            ".",
            "..",
            ".a",
            "-a",
            "a/b",
            "a b",
            "a\0",
            "\u{e4}",
            "a\n",
            too_long.as_str(),
        ] {
            let error = check_volume_name(name).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid);
            assert!(error.message.contains("name"), "{error}");
        }
    }

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
