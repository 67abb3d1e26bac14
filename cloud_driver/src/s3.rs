//! A store in an S3 bucket, over the `object_store` crate.
//!
//! `object_store` signs, encodes and parses; its own retries are off, because they would hide throttling from the shared pause
//! and lost answers from the settlement of conditional puts ([`crate::Retrying`]). Every failure is classified from the HTTP
//! exchange itself ([`observer`], [`classify`]).
//!
//! It owns the credential chain, the mapping of keys below the prefix, and the typing of errors. It does not own repeats.

mod classify;
mod credentials;
mod environment;
#[cfg(feature = "kms")]
pub(crate) mod kms_connection;
mod observer;
mod profile;
mod settings;

pub use environment::Environment;
pub use settings::{AddressingStyle, S3Settings, Secret, StaticCredentials, UploadChecksum};

use crate::buffer_pool::BufferPool;
use crate::store::{ETag, ListedObject, ObjectMeta, ObjectStore, PutMode, Result};
use crate::{Condition, Operation, StoreError, validate_key};
use async_trait::async_trait;
use bytes::Bytes;
use classify::Request;
use credentials::{Identity, Source};
use futures_util::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, Checksum, S3ConditionalPut};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    Certificate, ClientOptions, GetOptions, GetRange, GetResult, ObjectStore as Backend, ObjectStoreExt, PutOptions,
    PutPayload, RetryConfig, UpdateVersion,
};
use observer::{Observing, chain, exchange_timeout, observe, too_late};
use settings::Endpoint;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Smaller bodies are not worth a buffer of the pool's.
const POOLED_BYTES_MIN: usize = 64 << 10;
/// S3 returns at most this many keys at a time.
const LIST_PAGE_KEYS_MAX: usize = 1_000;

/// A store in an S3 bucket.
pub struct S3Store {
    backend: AmazonS3,
    /// For errors: URL and endpoint.
    name: String,
    /// Host and port of the requests.
    authority: String,
    /// Empty, or ends in '/'.
    prefix: String,
    /// For the bodies of answers.
    buffers: Arc<BufferPool>,
    request_timeout: Duration,
}

/// `object_store`'s own description could reveal more with any new version.
impl fmt::Debug for S3Store {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("S3Store")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl S3Store {
    /// Resolves credentials, region and endpoint; sends nothing yet.
    pub fn open(bucket: &str, prefix: &str, settings: &S3Settings) -> Result<Self> {
        let slash = if prefix.is_empty() { "" } else { "/" };
        let url = format!("s3://{bucket}{slash}{prefix}");
        let identity = credentials::resolve(&url, settings)?;
        let endpoint = match &identity.endpoint {
            Some(endpoint) => Endpoint::parse(endpoint, settings.allow_http)?,
            None => Endpoint {
                scheme: "https",
                authority: format!("s3.{}.amazonaws.com", identity.region),
            },
        };
        // TLS takes what the process has chosen; a choice that is there already stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let request_timeout = Duration::from_millis(settings.request_timeout_ms);
        let base = base_url(
            bucket,
            &endpoint,
            identity.endpoint.is_some(),
            settings.addressing_style,
        );
        let client_options = client_options(settings, &endpoint)?;
        let builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(&identity.region)
            .with_endpoint(&base.endpoint)
            .with_virtual_hosted_style_request(base.virtual_host)
            .with_client_options(client_options)
            .with_http_connector(Observing::new(request_timeout))
            .with_retry(RetryConfig {
                max_retries: 0,
                ..RetryConfig::default()
            })
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_disable_bulk_delete(true)
            .with_unsigned_payload(settings.upload_checksum.leaves_body_unsigned(endpoint.scheme));
        let builder = with_checksum(builder, settings.upload_checksum);
        let name = format!("{url} at {}", endpoint.url());
        let backend = with_source(builder, &identity)
            .build()
            .map_err(|error| StoreError::Credentials {
                store: name.clone(),
                detail: chain(&error),
            })?;
        let authority = base.endpoint.split_once("://").map_or("", |(_, authority)| authority);
        Ok(Self {
            backend,
            authority: without_default_port(authority, endpoint.scheme).into(),
            buffers: BufferPool::new(settings.kept_buffer_bytes_max),
            request_timeout,
            name,
            prefix: format!("{prefix}{slash}"),
        })
    }

    fn path(&self, key: &str) -> Result<Path> {
        validate_key(key)?;
        Path::parse(format!("{}{key}", self.prefix)).map_err(|_| StoreError::InvalidKey {
            key: key.into(),
            reason: "S3 paths do not take it",
        })
    }

    fn request<'a>(&'a self, operation: Operation, key: &'a str) -> Request<'a> {
        Request {
            store: &self.name,
            authority: &self.authority,
            operation,
            key,
            condition: None,
            timeout: self.request_timeout,
        }
    }

    fn corrupt(&self, operation: Operation, key: &str, detail: impl Into<String>) -> StoreError {
        StoreError::Corrupt {
            store: self.name.clone(),
            operation,
            key: key.into(),
            detail: detail.into(),
        }
    }

    fn tag(&self, operation: Operation, key: &str, tag: Option<String>) -> Result<ETag> {
        tag.filter(|tag| !tag.is_empty())
            .map(ETag)
            .ok_or_else(|| self.corrupt(operation, key, "no ETag, so that conditional puts would be impossible"))
    }

    /// In one piece; a body that is longer than announced ends one chunk behind that.
    async fn body(&self, got: GetResult, expected_bytes: usize) -> object_store::Result<Bytes> {
        if expected_bytes < POOLED_BYTES_MIN {
            return got.bytes().await;
        }
        let mut body = self.buffers.take(expected_bytes);
        body.bytes.clear();
        let mut chunks = got.into_stream();
        while body.bytes.len() <= expected_bytes
            && let Some(chunk) = chunks.next().await
        {
            body.bytes.extend_from_slice(&chunk?);
        }
        Ok(Bytes::from_owner(body))
    }

    /// One page of keys, and the token of the next.
    async fn list_page(
        &self,
        request: &Request<'_>,
        start_after: Option<&str>,
        page_token: Option<String>,
        keys_max: usize,
    ) -> Result<(Vec<ListedObject>, Option<String>)> {
        let prefix = format!("{}{}", self.prefix, request.key);
        let options = PaginatedListOptions {
            // An empty `start-after` is refused by some servers.
            offset: start_after
                .filter(|after| !after.is_empty())
                .map(|after| format!("{}{after}", self.prefix)),
            max_keys: Some(keys_max.min(LIST_PAGE_KEYS_MAX)),
            page_token,
            ..PaginatedListOptions::default()
        };
        let prefix = Some(&prefix[..]).filter(|prefix| !prefix.is_empty());
        let page = run(request, self.backend.list_paginated(prefix, options)).await?;
        let mut listed = Vec::with_capacity(page.result.objects.len());
        for object in page.result.objects {
            let key =
                object.location.as_ref().strip_prefix(&self.prefix[..]).ok_or_else(|| {
                    self.corrupt(request.operation, request.key, format!("listed {}", object.location))
                })?;
            listed.push(ListedObject {
                key: key.into(),
                size_bytes: object.size,
            });
        }
        Ok((listed, page.page_token))
    }
}

/// Runs a request of `object_store` and types its failure.
async fn run<T>(request: &Request<'_>, sent: impl Future<Output = object_store::Result<T>>) -> Result<T> {
    let Ok((outcome, noted)) = timeout(request.timeout, observe(sent)).await else {
        return Err(request.interrupted(too_late(request.timeout)));
    };
    outcome.map_err(|error| request.error(noted, chain(&error)))
}

struct BaseUrl {
    endpoint: String,
    virtual_host: bool,
}

fn base_url(bucket: &str, endpoint: &Endpoint, own_endpoint: bool, style: AddressingStyle) -> BaseUrl {
    let virtual_host = match style {
        AddressingStyle::Path => false,
        AddressingStyle::VirtualHost => true,
        AddressingStyle::Auto => !own_endpoint && !bucket.contains('.'),
    };
    BaseUrl {
        // `object_store` expects the bucket in the endpoint of a virtual host.
        endpoint: if virtual_host {
            endpoint.virtual_host_url(bucket)
        } else {
            endpoint.url()
        },
        virtual_host,
    }
}

/// URLs are normalised before they are sent, so the port of the scheme vanishes.
fn without_default_port<'a>(authority: &'a str, scheme: &str) -> &'a str {
    let port = if scheme == "https" { ":443" } else { ":80" };
    authority.strip_suffix(port).unwrap_or(authority)
}

fn client_options(settings: &S3Settings, endpoint: &Endpoint) -> Result<ClientOptions> {
    let mut options = ClientOptions::new()
        .with_allow_http(endpoint.scheme == "http")
        .with_connect_timeout(Duration::from_millis(settings.connect_timeout_ms))
        // How long a request may take depends on its body ([`observer`]).
        .with_timeout_disabled()
        .with_pool_idle_timeout(Duration::from_millis(settings.idle_timeout_ms))
        .with_pool_max_idle_per_host(settings.idle_connections_max);
    if let Some(path) = &settings.ca_file {
        let refuse = |reason: String| StoreError::InvalidSetting {
            setting: "ca_file",
            value: path.display().to_string(),
            reason,
        };
        let pem = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
        let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| refuse(chain(&error)))?;
        if certificates.is_empty() {
            return Err(refuse("it holds no PEM certificate".into()));
        }
        options = options.with_no_system_certificates(true);
        for certificate in certificates {
            options = options.with_root_certificate(certificate);
        }
    }
    Ok(options)
}

fn with_checksum(builder: AmazonS3Builder, checksum: UploadChecksum) -> AmazonS3Builder {
    match checksum {
        UploadChecksum::Sha256 => builder.with_checksum_algorithm(Checksum::SHA256),
        UploadChecksum::Crc64Nvme => builder.with_checksum_algorithm(Checksum::CRC64NVME),
        UploadChecksum::Off => builder,
    }
}

fn with_source(builder: AmazonS3Builder, identity: &Identity) -> AmazonS3Builder {
    use AmazonS3ConfigKey as Key;
    match &identity.source {
        Source::Static(credentials) => {
            let builder = builder
                .with_access_key_id(&credentials.access_key_id)
                .with_secret_access_key(credentials.secret_access_key.reveal());
            match &credentials.session_token {
                Some(token) => builder.with_token(token.reveal()),
                None => builder,
            }
        }
        Source::WebIdentity {
            token_file,
            role_arn,
            session_name,
        } => {
            let builder = builder
                .with_config(Key::WebIdentityTokenFile, token_file)
                .with_config(Key::RoleArn, role_arn);
            match session_name {
                Some(name) => builder.with_config(Key::RoleSessionName, name),
                None => builder,
            }
        }
        Source::ContainerRelative { uri } => builder.with_config(Key::ContainerCredentialsRelativeUri, uri),
        Source::ContainerFull { url, token_file } => builder
            .with_config(Key::ContainerCredentialsFullUri, url)
            .with_config(Key::ContainerAuthorizationTokenFile, token_file),
        Source::Instance => builder,
    }
}

#[async_trait]
impl ObjectStore for S3Store {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        let path = self.path(key)?;
        let (condition, mode) = match mode {
            PutMode::Overwrite => (None, object_store::PutMode::Overwrite),
            PutMode::IfAbsent => (Some(Condition::Absent), object_store::PutMode::Create),
            PutMode::IfMatch(ETag(tag)) => {
                let version = UpdateVersion {
                    e_tag: Some(tag),
                    version: None,
                };
                (Some(Condition::ETagMatches), object_store::PutMode::Update(version))
            }
        };
        let request = Request {
            condition,
            timeout: exchange_timeout(self.request_timeout, bytes.len() as u64),
            ..self.request(Operation::Put, key)
        };
        let sent = self
            .backend
            .put_opts(&path, PutPayload::from_bytes(bytes), PutOptions::from(mode));
        let put = run(&request, sent).await?;
        self.tag(Operation::Put, key, put.e_tag)
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        let path = self.path(key)?;
        let request = self.request(Operation::Get, key);
        let outside = |range: &Range<u64>| StoreError::RangeOutside {
            store: self.name.clone(),
            key: key.into(),
            start: range.start,
            end: range.end,
        };
        if let Some(range) = range.as_ref().filter(|range| range.start >= range.end) {
            return Err(outside(range));
        }
        let options = GetOptions {
            range: range.clone().map(GetRange::Bounded),
            ..GetOptions::default()
        };
        let sent = async {
            let got = self.backend.get_opts(&path, options).await?;
            let expected_bytes = got.range.end - got.range.start;
            Ok((expected_bytes, self.body(got, expected_bytes as usize).await?))
        };
        let (expected_bytes, bytes) = match run(&request, sent).await {
            Err(StoreError::Rejected { status: 416, .. }) if range.is_some() => {
                return Err(outside(&range.unwrap_or_default()));
            }
            outcome => outcome?,
        };
        if bytes.len() as u64 != expected_bytes {
            return Err(request.interrupted(format!("{} of {expected_bytes} bytes arrived", bytes.len())));
        }
        Ok(bytes)
    }

    /// An absent bucket cannot be told from an absent object here: HEAD has no body to say so.
    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        let path = self.path(key)?;
        let meta = run(&self.request(Operation::Head, key), self.backend.head(&path)).await?;
        Ok(ObjectMeta {
            size_bytes: meta.size,
            etag: self.tag(Operation::Head, key, meta.e_tag)?,
        })
    }

    async fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>> {
        let request = self.request(Operation::List, prefix);
        let mut listed = Vec::new();
        let mut page_token = None;
        while listed.len() < limit {
            let (page, next) = self
                .list_page(&request, start_after, page_token, limit - listed.len())
                .await?;
            listed.extend(page);
            page_token = next;
            if page_token.is_none() {
                break;
            }
        }
        listed.truncate(limit);
        if !listed.is_sorted_by(|left, right| left.key < right.key) {
            return Err(self.corrupt(Operation::List, prefix, "keys are not in ascending order"));
        }
        Ok(listed)
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        match run(&self.request(Operation::Delete, key), self.backend.delete(&path)).await {
            Err(StoreError::NotFound { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    async fn check(&self) -> Result<()> {
        let request = self.request(Operation::Check, "");
        self.list_page(&request, None, None, 1).await.map(|_| ())
    }
}
