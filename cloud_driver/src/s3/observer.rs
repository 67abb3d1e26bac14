//! Looks at every HTTP exchange below `object_store`, because the errors that it hands up have lost what the retry plan
//! and a person need: the status, the S3 error code, `Retry-After`, and whether anything was sent.
//!
//! The observer notes the failure of an exchange in the task that made it; [`observe`] collects the note. Of an error's body only the
//! code and the message are kept: S3 repeats signed headers in it, a session token among them.

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use std::cell::Cell;
use std::io;
use std::time::Duration;
use tokio::time::timeout;
use tombolo_flow_control::deadline::Parameters;

const MESSAGE_CHARS_MAX: usize = 200;

/// How the last exchange of a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    pub outcome: Outcome,
    /// Host and port that were talked to: the store, or a service that hands out credentials.
    pub authority: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Status {
        status: u16,
        code: String,
        message: String,
        retry_after: Option<Duration>,
    },
    /// No connection: nothing was sent.
    NotConnected { detail: String },
    /// The connection broke or the time was up.
    Interrupted { detail: String },
}

tokio::task_local! {
    static NOTE: Cell<Option<Noted>>;
}

/// Runs a request and returns what was noted of its last exchange, which is `None` when that succeeded.
pub(super) async fn observe<T>(request: impl Future<Output = T>) -> (T, Option<Noted>) {
    NOTE.scope(Cell::new(None), async {
        let outcome = request.await;
        (outcome, NOTE.with(Cell::take))
    })
    .await
}

fn note(noted: Option<Noted>) {
    // Credentials may be fetched outside any request of ours; then nobody asks.
    let _ = NOTE.try_with(|cell| cell.set(noted));
}

/// As many uploads as share a path at the most.
const UPLOADS_MAX: u32 = 64;

/// How long an exchange may take in whose body so many bytes are sent: even where all uploads at once share 1 Mbit/s. Who knows what
/// the path gives gives it up before ([`crate::Paced`]).
pub(super) fn exchange_timeout(answer: Duration, body_bytes: u64) -> Duration {
    let carried = Parameters::answered_within(Duration::ZERO).carried_us(body_bytes, UPLOADS_MAX);
    answer.saturating_add(Duration::from_micros(carried))
}

/// What is said of it then.
pub(super) fn too_late(limit: Duration) -> String {
    format!("it took more than {} ms", limit.as_millis())
}

#[derive(Debug)]
pub(super) struct Observing {
    inner: ReqwestConnector,
    answer_timeout: Duration,
}

impl Observing {
    /// A request without a body is answered within this, or never.
    pub(super) fn new(answer_timeout: Duration) -> Self {
        Self {
            inner: ReqwestConnector::default(),
            answer_timeout,
        }
    }
}

impl HttpConnector for Observing {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Observer {
            client: self.inner.connect(options)?,
            answer_timeout: self.answer_timeout,
        }))
    }
}

#[derive(Debug)]
struct Observer {
    client: HttpClient,
    answer_timeout: Duration,
}

#[async_trait]
impl HttpService for Observer {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let authority = request.uri().authority().map_or_else(String::new, ToString::to_string);
        note(None);
        let limit = exchange_timeout(self.answer_timeout, request.body().content_length() as u64);
        // Credentials are fetched here too, and others wait for them.
        let answer = timeout(limit, self.client.execute(request)).await;
        let answer = answer.unwrap_or_else(|_| {
            let late = io::Error::new(io::ErrorKind::TimedOut, too_late(limit));
            Err(HttpError::new(HttpErrorKind::Timeout, late))
        });
        match answer {
            Ok(response) if response.status().is_success() => Ok(response),
            Ok(response) => note_refusal(response, authority).await,
            Err(error) => {
                let outcome = transport_outcome(&error);
                note(Some(Noted { outcome, authority }));
                Err(error)
            }
        }
    }
}

async fn note_refusal(response: HttpResponse, authority: String) -> Result<HttpResponse, HttpError> {
    let (parts, body) = response.into_parts();
    // A body that breaks off changes nothing about the refusal.
    let body = body.bytes().await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let retry_after = parts.headers.get("retry-after").and_then(|value| value.to_str().ok());
    let outcome = Outcome::Status {
        status: parts.status.as_u16(),
        code: element(&text, "Code").unwrap_or_default(),
        message: element(&text, "Message").unwrap_or_default(),
        retry_after: retry_after.and_then(parse_retry_after),
    };
    note(Some(Noted { outcome, authority }));
    Ok(HttpResponse::from_parts(parts, body.into()))
}

fn transport_outcome(error: &HttpError) -> Outcome {
    let detail = chain(error);
    match error.kind() {
        HttpErrorKind::Connect => Outcome::NotConnected { detail },
        _ => Outcome::Interrupted { detail },
    }
}

/// An error and its causes. Transport errors name addresses and system errors, no headers.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text.chars().take(2 * MESSAGE_CHARS_MAX).collect()
}

/// The text of the first `<name>`; good enough for the flat documents of S3 errors, and harmless on anything else.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let printable = |character: &char| !character.is_control();
    Some(text.chars().filter(printable).take(MESSAGE_CHARS_MAX).collect())
}

/// Seconds; the other form, a date, is not sent by object stores and would need a trusted clock.
fn parse_retry_after(value: &str) -> Option<Duration> {
    value.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read_from_xml() {
        let xml = "<?xml?><Error><Code>SlowDown</Code><Message>Please\nreduce</Message><Token>s</Token></Error>";
        assert_eq!(element(xml, "Code").unwrap(), "SlowDown");
        assert_eq!(element(xml, "Message").unwrap(), "Pleasereduce");
        assert_eq!(element("<Code>x", "Code"), None);
        assert_eq!(
            element(&format!("<Code>{}</Code>", "x".repeat(999)), "Code")
                .unwrap()
                .len(),
            MESSAGE_CHARS_MAX
        );
    }

    #[test]
    fn retry_after_is_seconds() {
        assert_eq!(parse_retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), None);
    }
}
