//! What may be set about an S3 store.

use super::environment::Environment;
use crate::StoreError;
use std::fmt;
use std::path::PathBuf;

/// A string that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Its value is never printed.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("[secret]")
    }
}

/// Credentials that do not expire, or a set of temporary ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticCredentials {
    /// Not secret; it stands in every request.
    pub access_key_id: String,
    /// Signs requests.
    pub secret_access_key: Secret,
    /// Of temporary credentials.
    pub session_token: Option<Secret>,
}

/// Where the bucket's name stands in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressingStyle {
    /// Path style at an endpoint of one's own, virtual hosts at AWS (unless the bucket's name holds a dot, which
    /// no certificate would match).
    #[default]
    Auto,
    /// `https://endpoint/bucket/key`
    Path,
    /// `https://bucket.endpoint/key`
    VirtualHost,
}

/// What the server verifies an upload against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UploadChecksum {
    /// The body is signed too, which needs the same digest.
    #[default]
    Sha256,
    /// Over TLS the body is not signed, which spares both sides the SHA-256 of every upload.
    Crc64Nvme,
    /// For servers that refuse checksum headers; signed as with [`Self::Crc64Nvme`].
    Off,
}

impl UploadChecksum {
    /// Whether requests say that their body is not signed. Without TLS nothing else protects it on its way.
    pub(super) fn leaves_body_unsigned(self, scheme: &str) -> bool {
        scheme == "https" && self != Self::Sha256
    }
}

/// All optional; [`Default`] suits AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Settings {
    /// `https://host[:port]`; else `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, the profile's `endpoint_url`, AWS.
    pub endpoint: Option<String>,
    /// Else `AWS_REGION`, `AWS_DEFAULT_REGION`, the profile's `region`; with an endpoint of one's own `us-east-1`.
    pub region: Option<String>,
    /// Where the bucket's name stands in a request.
    pub addressing_style: AddressingStyle,
    /// A profile in the AWS files; given here, it goes before credentials in the environment.
    pub profile: Option<String>,
    /// Credentials handed over by code, before any other source.
    pub credentials: Option<StaticCredentials>,
    /// PEM certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Permits an endpoint without TLS; credentials stay secret (requests are signed), data does not.
    pub allow_http: bool,
    /// Until a connection stands, TLS included.
    pub connect_timeout_ms: u64,
    /// From sending a request to the last byte of the answer; an upload has beside it what its bytes take on a slow path.
    pub request_timeout_ms: u64,
    /// Idle connections are closed after this; S3 closes its side after about 20 s.
    pub idle_timeout_ms: u64,
    /// Idle connections that are kept for each host.
    pub idle_connections_max: usize,
    /// Of the buffers for answers, which are used again and again.
    pub kept_buffer_bytes_max: usize,
    /// What the server verifies an upload against.
    pub upload_checksum: UploadChecksum,
    /// Variables that the credential chain reads; the process's unless a test brings its own.
    pub environment: Environment,
}

impl Default for S3Settings {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            addressing_style: AddressingStyle::Auto,
            profile: None,
            credentials: None,
            ca_file: None,
            allow_http: false,
            connect_timeout_ms: 5_000,
            // The largest object, 4 MiB, over a slow line of 2 Mbit/s takes 17 s.
            request_timeout_ms: 30_000,
            idle_timeout_ms: 15_000,
            idle_connections_max: 160,
            kept_buffer_bytes_max: 16 << 20,
            upload_checksum: UploadChecksum::Sha256,
            environment: Environment::Process,
        }
    }
}

/// A checked endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub scheme: &'static str,
    /// Host and port.
    pub authority: String,
}

impl Endpoint {
    pub(super) fn parse(url: &str, allow_http: bool) -> Result<Self, StoreError> {
        let refuse = |reason: &str| StoreError::InvalidSetting {
            setting: "endpoint",
            // What stands before an '@' may be a password.
            value: url.rsplit('@').next().unwrap_or_default().into(),
            reason: reason.into(),
        };
        let (scheme, rest) = if let Some(rest) = url.strip_prefix("https://") {
            ("https", rest)
        } else if let Some(rest) = url.strip_prefix("http://") {
            if !allow_http {
                return Err(refuse("plain http needs allow_http = true"));
            }
            ("http", rest)
        } else {
            return Err(refuse("it begins neither with https:// nor with http://"));
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains('@') {
            return Err(refuse("credentials do not belong into it; use the credential chain"));
        }
        if authority.is_empty() || authority.contains(['/', '?', '#', ' ']) {
            return Err(refuse("it must be scheme, host and port only"));
        }
        Ok(Self {
            scheme,
            authority: authority.into(),
        })
    }

    pub(super) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }

    /// The endpoint with the bucket in its host name.
    pub(super) fn virtual_host_url(&self, bucket: &str) -> String {
        format!("{}://{bucket}.{}", self.scheme, self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_unsigned_over_tls_alone() {
        use UploadChecksum::{Crc64Nvme, Off, Sha256};
        for (checksum, over_tls) in [(Sha256, false), (Crc64Nvme, true), (Off, true)] {
            assert_eq!(checksum.leaves_body_unsigned("https"), over_tls, "{checksum:?}");
            assert!(!checksum.leaves_body_unsigned("http"), "{checksum:?}");
        }
    }

    #[test]
    fn endpoints_are_checked() {
        let endpoint = Endpoint::parse("http://127.0.0.1:7070/", true).unwrap();
        assert_eq!(endpoint.url(), "http://127.0.0.1:7070");
        assert_eq!(endpoint.virtual_host_url("b"), "http://b.127.0.0.1:7070");
        for (url, reason) in [
            ("http://host", "allow_http"),
            ("host:7070", "neither"),
            ("https://", "host and port only"),
            ("https://host/path", "host and port only"),
            ("https://user:hunter2@host", "credentials"),
        ] {
            let error = Endpoint::parse(url, false).unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
