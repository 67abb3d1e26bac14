//! Store URLs: `s3://bucket/prefix` and `dir:/absolute/path`, nothing else.

use crate::StoreError;
use core::{fmt, str::FromStr};
use std::path::PathBuf;

/// Where objects live. `prefix` holds no leading or trailing slash and may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `s3://bucket/prefix`.
    S3 {
        /// The bucket's name, 3 to 63 characters.
        bucket: String,
        /// At most 255 bytes.
        prefix: String,
    },
    /// `dir:/absolute/path`.
    Dir {
        /// Absolute.
        path: PathBuf,
    },
}

/// For whoever has to write one.
pub(crate) const FORMS: &str = "s3://BUCKET/PREFIX or dir:/ABSOLUTE/PATH";
/// Leaves room for [`crate::KEY_BYTES_MAX`] within the 1,024 bytes of an S3 key.
const PREFIX_BYTES_MAX: usize = 255;

impl FromStr for StoreUrl {
    type Err = StoreError;

    fn from_str(url: &str) -> Result<Self, StoreError> {
        let parsed = if let Some(rest) = url.strip_prefix("s3://") {
            parse_s3(rest)
        } else if let Some(path) = url.strip_prefix("dir:") {
            parse_dir(path)
        } else {
            Err("it begins neither with s3:// nor with dir:")
        };
        parsed.map_err(|reason| StoreError::InvalidUrl {
            url: without_userinfo(url),
            reason,
        })
    }
}

fn parse_s3(rest: &str) -> Result<StoreUrl, &'static str> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains('@') || bucket.contains(':') {
        return Err("credentials and ports do not belong into it; use the credential chain and the endpoint setting");
    }
    if !(3..=63).contains(&bucket.len()) {
        return Err("a bucket name has 3 to 63 characters");
    }
    if !bucket
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.')
    {
        return Err("a bucket name holds lower-case letters, digits, '-' and '.' only");
    }
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !edge(bucket.bytes().next()) || !edge(bucket.bytes().last()) || bucket.contains("..") {
        return Err("a bucket name begins and ends with a letter or digit and holds no '..'");
    }
    if prefix.contains('?') || prefix.contains('#') {
        return Err("it takes no query and no fragment");
    }
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    if prefix.len() > PREFIX_BYTES_MAX {
        return Err("its prefix is longer than 255 bytes");
    }
    if !prefix.is_empty() && crate::validate_key(prefix).is_err() {
        return Err("its prefix is not a legal object key");
    }
    Ok(StoreUrl::S3 {
        bucket: bucket.into(),
        prefix: prefix.into(),
    })
}

fn parse_dir(path: &str) -> Result<StoreUrl, &'static str> {
    if !path.starts_with('/') {
        return Err("the path must be absolute");
    }
    if path.starts_with("//") {
        return Err("write dir:/path, with one slash");
    }
    if path.chars().any(char::is_control) {
        return Err("the path holds a control character");
    }
    if path.split('/').any(|component| component == "..") {
        return Err("the path holds '..'");
    }
    if path == "/" {
        return Err("the root directory is not a store");
    }
    Ok(StoreUrl::Dir { path: path.into() })
}

/// What someone wrote as `user:password@` is not repeated in an error.
fn without_userinfo(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}...{}", &url[..scheme + 3], &url[at..]),
        _ => url.into(),
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(out, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(out, "s3://{bucket}/{prefix}"),
            Self::Dir { path } => write!(out, "dir:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_urls_round_trip() {
        for url in ["s3://bucket", "s3://my.bucket-1/a/b c", "dir:/var/lib/tombolo/store"] {
            assert_eq!(url.parse::<StoreUrl>().unwrap().to_string(), url);
        }
        assert_eq!(
            "s3://bucket/a/".parse::<StoreUrl>().unwrap().to_string(),
            "s3://bucket/a"
        );
    }

    #[test]
    fn bad_urls_are_refused_with_the_reason() {
        for (url, reason) in [
            ("", "neither"),
            ("http://bucket", "neither"),
            ("s3:bucket", "neither"),
            ("s3://", "3 to 63"),
            ("s3://Bucket", "lower-case"),
            ("s3://bucket.", "ends with"),
            ("s3://bu..ket", "'..'"),
            ("s3://bucket//a", "prefix"),
            ("s3://bucket/../a", "prefix"),
            ("s3://bucket/a?x=1", "query"),
            ("s3://key:secret@bucket", "credentials"),
            ("dir:relative", "absolute"),
            ("dir://host/path", "one slash"),
            ("dir:/", "root"),
            ("dir:/a/../b", "'..'"),
        ] {
            let error = url.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
