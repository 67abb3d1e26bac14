//! A client of the admin API: one request per connection.

use super::endpoint::{Endpoint, Method, Request, Written};
use super::model::ControlError;
use crate::cli::error::CliError;
use axum::body::{Body, Bytes, to_bytes};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::error::Error;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than any call takes on a healthy machine; a checkpoint may come in between.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// The answer for 100,000 volumes has some 10 MB.
const ANSWER_BYTES_MAX: usize = 64 << 20;

pub(crate) struct Client {
    socket: PathBuf,
    timeout: Duration,
}

/// Why there is no answer.
enum Fault {
    Unreachable(io::Error),
    /// What came is none.
    Nonsense(String),
}

impl Client {
    pub fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            timeout: ANSWER_TIMEOUT,
        }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn ask<R, Answer>(&self, endpoint: &Endpoint<R, Answer>, request: &R) -> Result<Answer, CliError>
    where
        R: Request,
        Answer: DeserializeOwned,
    {
        request.check()?;
        let written = endpoint.route.write(request);
        let written = written.map_err(|error| self.nonsense(error.to_string()))?;
        let answer = self.send(endpoint.route.method, written)?;
        // Where there is nothing to say, nothing is sent.
        let answer = if answer.is_empty() { b"null".as_slice() } else { &answer };
        serde_json::from_slice(answer).map_err(|error| self.nonsense(error.to_string()))
    }

    /// In Prometheus's text format.
    pub fn metrics(&self) -> Result<String, CliError> {
        let written = Written {
            target: "/metrics".into(),
            body: String::new(),
        };
        let answer = self.send(Method::Get, written)?;
        String::from_utf8(answer.into()).map_err(|error| self.nonsense(error.to_string()))
    }

    /// The body of a successful answer; otherwise the gateway's own error.
    fn send(&self, method: Method, written: Written) -> Result<Bytes, CliError> {
        let (status, body) = self.exchange(method, written).map_err(|fault| match fault {
            Fault::Nonsense(reason) => self.nonsense(reason),
            Fault::Unreachable(error) => CliError::Unreachable {
                socket: self.socket.clone(),
                error,
            },
        })?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        match serde_json::from_slice::<ControlError>(&body) {
            Ok(refused) => Err(refused.into()),
            Err(_) => Err(self.nonsense(format!("HTTP status {status} without a reason"))),
        }
    }

    fn exchange(&self, method: Method, written: Written) -> Result<(u16, Bytes), Fault> {
        let request = hyper::Request::builder()
            .method(method.name())
            .uri(written.target)
            .header(HOST, "tombolo")
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(written.body))
            .map_err(|error| Fault::Nonsense(error.to_string()))?;
        // One that waits: while the gateway's places are taken, connections queue up.
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let exchange = exchange(stream, request);
            let answered = tokio::time::timeout(self.timeout, exchange).await;
            answered.unwrap_or_else(|_| Err(Fault::Unreachable(io::ErrorKind::TimedOut.into())))
        })
    }

    fn nonsense(&self, reason: String) -> CliError {
        CliError::Protocol {
            socket: self.socket.clone(),
            reason,
        }
    }
}

/// Status and body of the answer.
async fn exchange(stream: UnixStream, request: hyper::Request<Body>) -> Result<(u16, Bytes), Fault> {
    let stream = tokio::net::UnixStream::from_std(stream)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let status = answer.status().as_u16();
    let body = to_bytes(Body::new(answer.into_body()), ANSWER_BYTES_MAX).await;
    let body = body.map_err(|error| Fault::Nonsense(error.to_string()))?;
    Ok((status, body))
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error)
    }
}

impl From<hyper::Error> for Fault {
    /// Before there was an answer.
    fn from(error: hyper::Error) -> Self {
        if error.is_parse() {
            return Self::Nonsense(format!("no HTTP, {error}"));
        }
        let system = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        let kind = system.map_or(io::ErrorKind::UnexpectedEof, io::Error::kind);
        Self::Unreachable(kind.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// What a client makes of a gateway that says this and closes.
    fn told(answer: &'static [u8]) -> Result<String, CliError> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let gateway = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            assert!(client.read(&mut [0; 1024]).unwrap() > 0);
            client.write_all(answer).unwrap();
        });
        let told = Client::new(socket).metrics();
        gateway.join().unwrap();
        told
    }

    #[test]
    fn answers_are_taken_apart() {
        assert_eq!(told(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab").unwrap(), "ab");
        assert_eq!(told(b"HTTP/1.0 200 OK\r\n\r\nuntil the end").unwrap(), "until the end");
        assert_eq!(told(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap(), "");
        let refused =
            told(b"HTTP/1.1 404 Not Found\r\nContent-Length: 37\r\n\r\n{\"kind\":\"not_found\",\"message\":\"gone\"}");
        assert_eq!(refused.unwrap_err().exit_code(), 4);
    }

    #[test]
    fn broken_answers_are_no_answers() {
        for answer in [
            b"hello".as_slice(),
            b"HTTP/1.0 x\r\n\r\n",
            b"SSH-2.0\r\n\r\n",
            b"HTTP/1.0 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}",
        ] {
            let error = told(answer).unwrap_err();
            assert!(matches!(error, CliError::Protocol { .. }), "{error}");
        }
    }

    #[test]
    fn a_gateway_that_says_nothing_does_not_answer() {
        for answer in [b"".as_slice(), b"HTTP/1.0 200 OK\r\n"] {
            let error = told(answer).unwrap_err();
            assert!(matches!(error, CliError::Unreachable { .. }), "{error}");
        }
    }

    #[test]
    fn a_gateway_that_hangs_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let timeout = Duration::from_millis(50);
        let error = Client { socket, timeout }.metrics().unwrap_err();
        assert!(
            matches!(error, CliError::Unreachable { .. }) && error.to_string().contains("timed out"),
            "{error}"
        );
    }
}
