//! Master keys that a key of AWS KMS wraps: the service encrypts and decrypts 32 bytes, and keeps none of them.
//!
//! The SDK makes, signs and repeats the requests; HTTP, TLS and credentials are those of the S3 client. What goes over the wire
//! holds the master key, so nothing below this module may log: the SDK would write whole requests at level `trace`.
//!
//! It owns the manners of a request and the typing of its failure. It does not own when one is made, or where the wrapped
//! key lies ([`crate::keys`]).

use crate::encryption::SecretKey;
use crate::keys::{WRAPPED_BYTES_MAX, WRAPPING_KEY_NAME_BYTES_MAX, WrappedKey, Wrapping};
use crate::s3::S3Settings;
pub use crate::s3::kms_connection::is_loopback;
use crate::s3::kms_connection::{Connection, chain, connection};
use aws_sdk_kms::Client;
use aws_sdk_kms::config::http::{HttpRequest, HttpResponse};
use aws_sdk_kms::config::retry::RetryConfig;
use aws_sdk_kms::config::timeout::TimeoutConfig;
use aws_sdk_kms::config::{
    BehaviorVersion, Config, Credentials, Region, SharedHttpClient, StalledStreamProtectionConfig,
};
use aws_sdk_kms::error::{ConnectorError, ProvideErrorMetadata, SdkError};
use aws_sdk_kms::primitives::Blob;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use object_store::client::{HttpClient, HttpError, HttpErrorKind};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;
use tombolo_base::KeyId;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

/// A service on the other side of the world answers in seconds; as long as a command may take.
const PATIENCE: Duration = Duration::from_secs(30);
const ATTEMPTS_MAX: u32 = 3;
const MESSAGE_CHARS_MAX: usize = 300;
/// What the service compares when it unwraps, and writes to its audit log.
const CONTEXT_STORE: &str = "tombolo-store";
const CONTEXT_MASTER_KEY: &str = "tombolo-master-key";

/// Which key wraps, and how it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KmsSettings {
    /// An id, an ARN or an alias.
    pub key: String,
    /// Another server than AWS; else `AWS_ENDPOINT_URL_KMS`, `AWS_ENDPOINT_URL`, the profile.
    pub endpoint: Option<String>,
    /// Of the store: credentials, profile, region (unless the key's name is an ARN), certificates and limits of time.
    pub s3: S3Settings,
}

/// Why a master key cannot be wrapped or unwrapped. `key` is as the settings name it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum KmsError {
    #[error("AWS KMS key {key:?}: {detail}; see [store] master_key_kms, master_key_kms_endpoint and region")]
    Settings { key: String, detail: String },
    #[error("AWS KMS key {key:?}: no credentials that {place} accepts: {detail}")]
    Credentials { key: String, place: String, detail: String },
    #[error(
        "AWS KMS key {key:?}: no answer from {place}: {detail}; without it the master key cannot be had: try again when it \
         answers"
    )]
    Unreachable { key: String, place: String, detail: String },
    #[error("AWS KMS key {key:?} does not exist at {place}: {detail}; correct [store] master_key_kms")]
    NotFound { key: String, place: String, detail: String },
    #[error("AWS KMS key {key:?} is disabled or about to be deleted: {detail}; enable it again, then repeat this")]
    Disabled { key: String, detail: String },
    #[error("AWS KMS key {key:?}: access denied: {detail}; these credentials need {action} with it")]
    Denied {
        key: String,
        action: &'static str,
        detail: String,
    },
    #[error("AWS KMS key {key:?} is not for this: {detail}; take a symmetric key for encryption")]
    Unfit { key: String, detail: String },
    #[error(
        "AWS KMS key {key:?} is not the one that wraps the master key, which is {wrapped_by}; name that in [store] \
         master_key_kms"
    )]
    WrongKey { key: String, wrapped_by: String },
    #[error("AWS KMS key {key:?} does not unwrap the master key: it was altered, or is not this store's")]
    Altered { key: String },
    #[error("AWS KMS key {key:?} unwraps something else than master key {needed}")]
    OtherContents { key: String, needed: KeyId },
    #[error("AWS KMS key {key:?}: {place} refused: {code}: {detail}")]
    Refused {
        key: String,
        place: String,
        code: String,
        detail: String,
    },
}

impl KmsError {
    /// Whether it is about the wrapped key that was given: another one may be unwrapped.
    pub fn is_of_the_wrapped_key(&self) -> bool {
        matches!(
            self,
            Self::WrongKey { .. } | Self::Altered { .. } | Self::OtherContents { .. }
        )
    }

    /// Whether the same may succeed later, with nothing changed here.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

/// A key of the service, for one request.
pub struct Kms {
    client: Client,
    /// For credentials and request together.
    deadline: Instant,
    key: String,
    /// For errors.
    place: String,
}

type Result<T> = std::result::Result<T, KmsError>;

impl Kms {
    /// Gets credentials, which may ask the machine's own service for them; nothing is asked of KMS yet.
    ///
    /// # Errors
    /// When the settings contradict themselves, or there are no credentials.
    pub async fn open(settings: &KmsSettings) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let key = settings.key.clone();
        let at_kms = S3Settings {
            endpoint: settings.endpoint.clone(),
            region: region_of_arn(&key).or(settings.s3.region.clone()),
            ..settings.s3.clone()
        };
        let connection = connection(&at_kms).map_err(|error| KmsError::Settings {
            key: key.clone(),
            detail: error.to_string(),
        })?;
        let place = match &connection.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => format!("AWS, region {}", connection.region),
        };
        let credentials = in_time(deadline, connection.credentials.get_credential()).await;
        let credentials = match credentials {
            Some(Ok(credentials)) => Credentials::new(
                &credentials.key_id,
                &credentials.secret_key,
                credentials.token.clone(),
                None,
                "tombolo",
            ),
            failed => {
                let detail = failed.map_or_else(too_slow, |failed| {
                    failed.err().map_or_else(String::new, |error| chain(&error))
                });
                return Err(KmsError::Credentials { key, place, detail });
            }
        };
        Ok(Self {
            client: Client::from_conf(config(&connection, credentials)),
            deadline,
            key,
            place,
        })
    }

    /// # Errors
    /// When the service does not answer or refuses.
    pub async fn wrap(self, master: &SecretKey, identity: u64) -> Result<WrappedKey> {
        let action = "kms:Encrypt and kms:Decrypt";
        let request = self
            .client
            .encrypt()
            .key_id(&self.key)
            .plaintext(Blob::new(*master.secret()))
            .set_encryption_context(Some(context(identity, master.id())));
        let answer = self.sent(action, Box::pin(request.send())).await?;
        let wrapped = WrappedKey {
            wrapping_key: answer.key_id.unwrap_or_default(),
            wrapped: answer.ciphertext_blob.map(Blob::into_inner).unwrap_or_default(),
        };
        let fits = |length: usize, bytes_max| (1..=bytes_max).contains(&length);
        if !fits(wrapped.wrapping_key.len(), WRAPPING_KEY_NAME_BYTES_MAX)
            || !fits(wrapped.wrapped.len(), WRAPPED_BYTES_MAX)
        {
            return Err(KmsError::Refused {
                key: self.key.clone(),
                place: self.place.clone(),
                code: "answer".into(),
                detail: "it has no wrapped key, or one that is too long".into(),
            });
        }
        Ok(wrapped)
    }

    /// # Errors
    /// When the service does not answer or refuses, or what it unwraps is not the master key.
    pub async fn unwrap(self, wrapping: &Wrapping) -> Result<SecretKey> {
        let request = self
            .client
            .decrypt()
            .key_id(&self.key)
            .ciphertext_blob(Blob::new(&wrapping.key.wrapped[..]))
            .set_encryption_context(Some(context(wrapping.identity, wrapping.master_key)));
        let answer = match self.sent("kms:Decrypt", Box::pin(request.send())).await {
            Err(KmsError::WrongKey { key, .. }) => {
                let wrapped_by = wrapping.key.wrapping_key.clone();
                return Err(KmsError::WrongKey { key, wrapped_by });
            }
            // Who may not use the right key is told so of a wrong one too.
            Err(KmsError::Denied { key, action, detail }) => {
                let detail = format!("{detail} (the master key is wrapped by {})", wrapping.key.wrapping_key);
                return Err(KmsError::Denied { key, action, detail });
            }
            answer => answer?,
        };
        let other = || KmsError::OtherContents {
            key: self.key.clone(),
            needed: wrapping.master_key,
        };
        let text = answer.plaintext.map(Blob::into_inner).unwrap_or_default();
        let master = SecretKey::new(text.try_into().map_err(|_| other())?);
        Some(master)
            .filter(|master| master.id() == wrapping.master_key)
            .ok_or_else(other)
    }

    async fn sent<T, E>(
        &self,
        action: &'static str,
        request: impl Future<Output = std::result::Result<T, SdkError<E, HttpResponse>>>,
    ) -> Result<T>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let unreachable = |detail| KmsError::Unreachable {
            key: self.key.clone(),
            place: self.place.clone(),
            detail,
        };
        match in_time(self.deadline, request).await {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(SdkError::ServiceError(refusal))) => {
                let status = refusal.raw().status().as_u16();
                let no_code = format!("HTTP status {status}");
                let code = refusal.err().code().unwrap_or(&no_code);
                Err(self.refused(action, code, refusal.err().message(), status))
            }
            Some(Err(error)) => Err(unreachable(chain(&error))),
            None => Err(unreachable(too_slow())),
        }
    }

    fn refused(&self, action: &'static str, code: &str, message: Option<&str>, status: u16) -> KmsError {
        let printable = |text: &str| -> String {
            let printable = text.chars().filter(|character| !character.is_control());
            printable.take(MESSAGE_CHARS_MAX).collect()
        };
        let (key, place) = (self.key.clone(), self.place.clone());
        let code = printable(code);
        // Many refusals have a code and no text.
        let detail = printable(message.unwrap_or(&code));
        match &code[..] {
            "NotFoundException" => KmsError::NotFound { key, place, detail },
            "DisabledException" | "KMSInvalidStateException" => KmsError::Disabled { key, detail },
            "AccessDeniedException" | "AccessDenied" => KmsError::Denied { key, action, detail },
            "InvalidKeyUsageException" => KmsError::Unfit { key, detail },
            "IncorrectKeyException" => KmsError::WrongKey {
                key,
                wrapped_by: String::new(),
            },
            "InvalidCiphertextException" => KmsError::Altered { key },
            "UnrecognizedClientException"
            | "InvalidClientTokenId"
            | "InvalidSignatureException"
            | "SignatureDoesNotMatch"
            | "MissingAuthenticationToken"
            | "MissingAuthenticationTokenException"
            | "IncompleteSignature"
            | "ExpiredToken"
            | "ExpiredTokenException" => KmsError::Credentials { key, place, detail },
            "KeyUnavailableException" | "DependencyTimeoutException" | "KMSInternalException" => {
                KmsError::Unreachable { key, place, detail }
            }
            _ if status >= 500 => KmsError::Unreachable { key, place, detail },
            _ => KmsError::Refused {
                key,
                place,
                code,
                detail,
            },
        }
    }
}

fn too_slow() -> String {
    format!("nothing came within {} s", PATIENCE.as_secs())
}

/// `None`: it took too long. Nothing is logged meanwhile.
async fn in_time<T>(deadline: Instant, request: impl Future<Output = T>) -> Option<T> {
    let quiet = request.with_subscriber(NoSubscriber::new());
    tokio::time::timeout_at(deadline, quiet).await.ok()
}

/// Requests are signed for the region of the key; an ARN says which that is.
fn region_of_arn(key: &str) -> Option<String> {
    let region = key.strip_prefix("arn:")?.split(':').nth(2)?;
    Some(region.to_owned()).filter(|region| !region.is_empty())
}

fn context(identity: u64, master_key: KeyId) -> HashMap<String, String> {
    HashMap::from([
        (CONTEXT_STORE.to_owned(), format!("{identity:016x}")),
        (CONTEXT_MASTER_KEY.to_owned(), master_key.to_string()),
    ])
}

fn config(connection: &Connection, credentials: Credentials) -> Config {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new(connection.region.clone()))
        .credentials_provider(credentials)
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS_MAX))
        // The connection has limits of its own.
        .timeout_config(TimeoutConfig::disabled())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .http_client(http_client(connection.http.clone()));
    match &connection.endpoint {
        Some(endpoint) => config.endpoint_url(endpoint).build(),
        None => config.build(),
    }
}

#[derive(Debug)]
struct Connector(HttpClient);

fn http_client(client: HttpClient) -> SharedHttpClient {
    let connector = SharedHttpConnector::new(Connector(client));
    http_client_fn(move |_, _| connector.clone())
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let client = self.0.clone();
        HttpConnectorFuture::new(async move {
            let request = request
                .try_into_http1x()
                .map_err(|error| ConnectorError::user(error.into()))?;
            let (parts, body) = request.into_parts();
            let body = body.bytes().unwrap_or_default().to_vec();
            let request = object_store::client::HttpRequest::from_parts(parts, body.into());
            let (parts, body) = client.execute(request).await.map_err(failed)?.into_parts();
            let body = body.bytes().await.map_err(failed)?;
            let other = |error| ConnectorError::other(error, None);
            let status = parts
                .status
                .as_u16()
                .try_into()
                .map_err(|error: aws_smithy_runtime_api::http::HttpError| other(error.into()))?;
            let mut response = HttpResponse::new(status, body.into());
            for (name, value) in &parts.headers {
                if let Ok(value) = value.to_str() {
                    response.headers_mut().append(name.to_string(), value.to_owned());
                }
            }
            Ok(response)
        })
    }
}

fn failed(error: HttpError) -> ConnectorError {
    match error.kind() {
        HttpErrorKind::Timeout => ConnectorError::timeout(error.into()),
        HttpErrorKind::Connect | HttpErrorKind::Request | HttpErrorKind::Interrupted => {
            ConnectorError::io(error.into())
        }
        _ => ConnectorError::other(error.into(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_of_an_arn_is_the_key_s() {
        let region = |key| region_of_arn(key);
        assert_eq!(region("arn:aws:kms:eu-west-1:12:key/3").as_deref(), Some("eu-west-1"));
        assert_eq!(
            region("arn:aws-cn:kms:cn-north-1:12:alias/a").as_deref(),
            Some("cn-north-1")
        );
        for key in [
            "alias/backup",
            "1234abcd-12ab-34cd-56ef-1234567890ab",
            "arn:aws:kms::12:key/3",
            "arn:",
        ] {
            assert_eq!(region(key), None, "{key}");
        }
    }
}
