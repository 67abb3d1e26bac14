//! What a client of AWS KMS shares with the S3 client: credentials, region, certificates and connections.

use super::credentials;
pub(crate) use super::observer::chain;
use super::settings::Endpoint;
use super::{S3Settings, client_options, with_source};
use crate::StoreError;
use object_store::RetryConfig;
use object_store::aws::{AmazonS3Builder, AwsCredentialProvider};
use object_store::client::{HttpClient, HttpConnector, ReqwestConnector};

const ENDPOINT_VARIABLES: [&str; 2] = ["AWS_ENDPOINT_URL_KMS", "AWS_ENDPOINT_URL"];
const CHAIN: &str = "credential chain";

pub(crate) struct Connection {
    pub region: String,
    /// `None` means AWS.
    pub endpoint: Option<String>,
    pub credentials: AwsCredentialProvider,
    pub http: HttpClient,
}

/// `settings` are those of the store, but for `endpoint` and `region`, which are of KMS. Sends nothing yet.
pub(crate) fn connection(settings: &S3Settings) -> Result<Connection, StoreError> {
    let identity = credentials::resolve_at(CHAIN, settings, ENDPOINT_VARIABLES)?;
    let endpoint = identity.endpoint.as_deref().map(parse_endpoint).transpose()?;
    // TLS takes what the process has chosen; a choice that is there already stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let aws = Endpoint {
        scheme: "https",
        authority: String::new(),
    };
    // A store of one's own and AWS's KMS may have certificates of different authorities.
    let options = client_options(settings, endpoint.as_ref().unwrap_or(&aws))?.with_no_system_certificates(false);
    let refuse = |error: object_store::Error| StoreError::Credentials {
        store: CHAIN.into(),
        detail: chain(&error),
    };
    // It has the credential chain, and is asked for nothing else.
    let chain_only = AmazonS3Builder::new()
        .with_bucket_name("none")
        .with_region(&identity.region)
        .with_client_options(options.clone())
        .with_retry(RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        });
    let chain_only = with_source(chain_only, &identity).build().map_err(refuse)?;
    Ok(Connection {
        region: identity.region,
        endpoint: endpoint.map(|endpoint| endpoint.url()),
        credentials: chain_only.credentials().clone(),
        http: ReqwestConnector::default().connect(&options).map_err(refuse)?,
    })
}

/// What is answered holds the master key, so without TLS it may not leave the machine.
fn parse_endpoint(url: &str) -> Result<Endpoint, StoreError> {
    if url.starts_with("http://") && !is_loopback(url) {
        return Err(StoreError::InvalidSetting {
            setting: "master_key_kms_endpoint",
            value: url.rsplit('@').next().unwrap_or_default().into(),
            reason: "without TLS the master key may not leave this machine; use https://".into(),
        });
    }
    Endpoint::parse(url, true)
}

/// Whether a URL leads to this machine.
pub fn is_loopback(url: &str) -> bool {
    let Some((_, authority)) = url.split_once("://") else {
        return false;
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => authority,
    };
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |address: std::net::IpAddr| address.is_loopback();
    host == "localhost" || address.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Environment;

    #[test]
    fn only_this_machine_is_talked_to_without_tls() {
        for url in ["http://127.0.0.1:80", "http://localhost/", "http://[::1]:4566"] {
            assert!(is_loopback(url), "{url}");
        }
        for url in [
            "http://127.0.0.1.example",
            "http://kms:80",
            "http://localhost.example:1",
            "127.0.0.1",
        ] {
            assert!(!is_loopback(url), "{url}");
        }
    }

    #[test]
    fn variables_of_s3_do_not_lead_kms_elsewhere() {
        let keys = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "eu-west-1"),
        ];
        let with = |variable| S3Settings {
            environment: Environment::fixed(keys.into_iter().chain([variable])),
            ..S3Settings::default()
        };
        let endpoint = |variable| connection(&with(variable)).map(|connection| connection.endpoint);
        assert_eq!(endpoint(("AWS_ENDPOINT_URL_S3", "https://s3")).unwrap(), None);
        let own = endpoint(("AWS_ENDPOINT_URL_KMS", "https://kms:1")).unwrap();
        assert_eq!(own.as_deref(), Some("https://kms:1"));
        assert!(endpoint(("AWS_ENDPOINT_URL_KMS", "http://kms")).is_err());
    }
}
