//! What may stand in a configuration of a protocol server without being taken for something else there.

use super::super::error::CliError;
use std::path::{Path, PathBuf};

/// An absolute path of letters, digits and `/._-`, which neither Ganesha nor Samba reads anything into.
pub(super) fn path(path: &Path) -> Result<PathBuf, CliError> {
    let absolute = std::path::absolute(path).map_err(super::files::fault("cannot make absolute", path))?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    if absolute.as_os_str().as_encoded_bytes().iter().all(plain) {
        return Ok(absolute);
    }
    Err(CliError::Usage(format!(
        "{} cannot stand in a configuration: use letters, digits and /._-",
        absolute.display()
    )))
}

/// `*`, an address, or a network as ADDRESS/BITS.
pub(super) fn is_client(text: &str) -> bool {
    let (address, bits) = match text.split_once('/') {
        None if text == "*" => return true,
        None => (text, None),
        Some((address, bits)) => (address, Some(bits)),
    };
    // More digits than two are beyond Ganesha's grammar, and no bits at all are *.
    let fits = |bits: &str, bits_max| bits.parse().is_ok_and(|bits: u8| (1..=bits_max).contains(&bits));
    match address.parse() {
        Ok(std::net::IpAddr::V4(_)) => bits.is_none_or(|bits| fits(bits, 32)),
        Ok(std::net::IpAddr::V6(_)) => bits.is_none_or(|bits| fits(bits, 99)),
        Err(_) => false,
    }
}

/// A user `name`, a group `@name`, either with a domain in front.
pub(super) fn is_user(text: &str) -> bool {
    let name = text.strip_prefix('@').unwrap_or(text);
    let word = |word: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !word.is_empty() && !word.starts_with('-') && word.bytes().all(plain)
    };
    let mut words = name.split('\\');
    text.len() <= 256 && words.clone().count() <= 2 && words.all(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_absolute_and_stay_plain() {
        assert_eq!(path(Path::new("/srv/a-b_c.d")).unwrap(), Path::new("/srv/a-b_c.d"));
        assert!(path(Path::new("relative")).unwrap().is_absolute());
        for text in ["/a b", "/a\"b", "/a\nb", "/a%U", "/a;b", "/\u{e4}", "/a{b", "/a\\", ""] {
            assert!(path(Path::new(text)).is_err(), "{text:?}");
        }
    }

    #[test]
    fn clients_are_addresses_and_networks() {
        for text in ["*", "10.0.0.1", "10.0.0.0/8", "192.0.2.0/32", "::1", "fd00::/8"] {
            assert!(is_client(text), "{text}");
        }
        for text in [
            "",
            "host",
            "10.0.0.0/0",
            "10.0.0.0/33",
            "::/128",
            "10.0.0.1/",
            "10.0.0.1; }",
            "@group",
            "*.x",
            "1/1",
        ] {
            assert!(!is_client(text), "{text}");
        }
    }

    #[test]
    fn users_are_single_words() {
        for text in ["alice", "@staff", "DOM\\bob", "@DOM\\staff", "a.b-c_d"] {
            assert!(is_user(text), "{text}");
        }
        for text in [
            "", "@", "a b", "a\n", "DOM\\", "\\a", "a\\b\\c", "+x", "-x", "%U", "a,b", "@@a", "\"a\"",
        ] {
            assert!(!is_user(text), "{text}");
        }
    }
}
