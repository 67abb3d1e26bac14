use super::{ControlError, ErrorKind};

/// A name travels in NBD export names, iSCSI names, paths of NFS exports, names of SMB shares, URLs and file names; this
/// fits them all.
pub const NAME_BYTES_MAX: usize = 64;

/// The rule for names of volumes and of shares: 1 to 64 characters out of `A-Z a-z 0-9 . _ -`, of which the first is
/// neither a dot nor a dash. `what` names the thing in the error.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), ControlError> {
    let permitted = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let first = name.bytes().next();
    if (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(permitted)
        && first.is_some_and(|byte| byte != b'.' && byte != b'-')
    {
        return Ok(());
    }
    // What is far too long is not repeated in full.
    let shown: String = name.chars().take(NAME_BYTES_MAX + 1).collect();
    let rule = "1 to 64 characters out of A-Z a-z 0-9 . _ -, and neither a dot nor a dash in front";
    Err(ControlError::new(
        ErrorKind::Invalid,
        format!("{shown:?} is not a valid name for a {what}: {rule}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fit_everywhere_are_taken() {
        let longest = "v".repeat(NAME_BYTES_MAX);
        for name in ["a", "vol-1", "A.b_c", "_x", "0", longest.as_str()] {
            check_name("volume", name).unwrap();
        }
    }

    #[test]
    fn other_names_are_refused() {
        let too_long = "n".repeat(NAME_BYTES_MAX + 1);
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
            let error = check_name("share", name).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid);
            assert!(error.message.contains("not a valid name for a share"), "{error}");
        }
    }
}
