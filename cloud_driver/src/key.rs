//! Which object keys every backend accepts.

use crate::StoreError;

/// S3 allows 1,024 bytes; the rest is left to the prefix of the store URL.
pub const KEY_BYTES_MAX: usize = 768;
/// File names end at 255 bytes on Linux, and servers that keep objects in files inherit that.
pub const COMPONENT_BYTES_MAX: usize = 255;
/// A directory store keeps its own files under names that begin so.
pub(crate) const RESERVED_PREFIX: &str = ".tombolo-";

/// A key is `component/component/...`: UTF-8 without control characters, no component empty, `.` or `..`.
/// No key may at the same time be a directory of another one (`a` beside `a/b`): backends that keep objects in files refuse it.
pub fn validate_key(key: &str) -> Result<(), StoreError> {
    let reason = if key.is_empty() {
        "it is empty"
    } else if key.len() > KEY_BYTES_MAX {
        "it is longer than 768 bytes"
    } else if key.chars().any(char::is_control) {
        "it holds a control character"
    } else if key.split('/').any(str::is_empty) {
        "it begins or ends with '/' or holds '//'"
    } else if key.split('/').any(|component| component == "." || component == "..") {
        "it holds a component '.' or '..'"
    } else if key.split('/').any(|component| component.len() > COMPONENT_BYTES_MAX) {
        "it holds a component longer than 255 bytes"
    } else if key.split('/').any(|component| component.starts_with(RESERVED_PREFIX)) {
        "names that begin with '.tombolo-' are reserved"
    } else {
        return Ok(());
    };
    Err(StoreError::InvalidKey {
        key: key.chars().take(100).collect(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traversal_and_oddities_are_refused() {
        for key in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "../a",
            "a/../b",
            "a/./b",
            "a\0b",
            "a\nb",
            ".tombolo-tmp/x",
        ] {
            assert!(validate_key(key).is_err(), "{key:?}");
        }
        assert!(validate_key(&"a".repeat(256)).is_err());
        assert!(validate_key(&"a/".repeat(500)).is_err());
        for key in [
            "a",
            "...",
            "a/b",
            "objects/ab/cd",
            "ä ö/%2e%2e",
            ".hidden",
            &"a".repeat(255),
        ] {
            assert!(validate_key(key).is_ok(), "{key:?}");
        }
    }
}
