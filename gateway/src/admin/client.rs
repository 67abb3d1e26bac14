//! A client of the admin API: one request per connection, HTTP/1.0, so that an answer ends where the stream ends.

use crate::admin::model::{CheckStatus, ControlError, PolicyStatus, ShareInfo, Status, TraceStatus, VolumeInfo};
use crate::admin::server::{CreateShare, CreateVolume, ResizeVolume, ShareQuota, StartTrace};
use crate::cli::error::CliError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than any call takes on a healthy machine; a checkpoint may come in between.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// The answer for 100,000 volumes has some 10 MB.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

pub(crate) struct Client {
    socket: PathBuf,
}

impl Client {
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn status(&self) -> Result<Status, CliError> {
        self.ask("GET", "/v1/status", "")
    }

    pub fn metrics(&self) -> Result<String, CliError> {
        self.send("GET", "/metrics", "")
    }

    pub fn volume_list(&self) -> Result<Vec<VolumeInfo>, CliError> {
        self.ask("GET", "/v1/volumes", "")
    }

    pub fn volume_create(&self, name: &str, size_bytes: u64) -> Result<VolumeInfo, CliError> {
        let body = self.json(&CreateVolume {
            name: name.into(),
            size_bytes,
        })?;
        self.ask("POST", "/v1/volumes", &body)
    }

    pub fn volume_resize(&self, name: &str, size_bytes: u64, allow_shrink: bool) -> Result<VolumeInfo, CliError> {
        let body = self.json(&ResizeVolume {
            size_bytes,
            allow_shrink,
        })?;
        self.ask("PATCH", &segment("/v1/volumes/", name), &body)
    }

    pub fn volume_delete(&self, name: &str) -> Result<(), CliError> {
        self.send("DELETE", &segment("/v1/volumes/", name), "").map(drop)
    }

    pub fn share_list(&self) -> Result<Vec<ShareInfo>, CliError> {
        self.ask("GET", "/v1/shares", "")
    }

    pub fn share_create(&self, name: &str, quota_bytes: Option<u64>) -> Result<ShareInfo, CliError> {
        let name = name.into();
        let body = self.json(&CreateShare { name, quota_bytes })?;
        self.ask("POST", "/v1/shares", &body)
    }

    pub fn share_quota(&self, name: &str, quota_bytes: Option<u64>) -> Result<ShareInfo, CliError> {
        let body = self.json(&ShareQuota { quota_bytes })?;
        self.ask("PATCH", &segment("/v1/shares/", name), &body)
    }

    pub fn share_delete(&self, name: &str, force: bool) -> Result<(), CliError> {
        let path = format!("{}?force={force}", segment("/v1/shares/", name));
        self.send("DELETE", &path, "").map(drop)
    }

    pub fn check_start(&self) -> Result<CheckStatus, CliError> {
        self.ask("POST", "/v1/check", "")
    }

    pub fn check_status(&self) -> Result<CheckStatus, CliError> {
        self.ask("GET", "/v1/check", "")
    }

    pub fn policy(&self) -> Result<PolicyStatus, CliError> {
        self.ask("GET", "/v1/policy", "")
    }

    pub fn policy_set(&self, changes: &toml::Table) -> Result<PolicyStatus, CliError> {
        self.ask("PATCH", "/v1/policy", &self.json(changes)?)
    }

    pub fn trace_start(&self, path: PathBuf, bytes_max: u64) -> Result<TraceStatus, CliError> {
        let body = self.json(&StartTrace { path, bytes_max })?;
        self.ask("POST", "/v1/trace", &body)
    }

    pub fn trace_stop(&self) -> Result<TraceStatus, CliError> {
        self.ask("DELETE", "/v1/trace", "")
    }

    pub fn trace_status(&self) -> Result<TraceStatus, CliError> {
        self.ask("GET", "/v1/trace", "")
    }

    pub fn drain(&self) -> Result<(), CliError> {
        self.send("POST", "/v1/drain", "").map(drop)
    }

    fn json(&self, value: &impl Serialize) -> Result<String, CliError> {
        serde_json::to_string(value).map_err(|error| self.protocol(error.to_string()))
    }

    fn ask<T: DeserializeOwned>(&self, method: &str, path: &str, body: &str) -> Result<T, CliError> {
        let answer = self.send(method, path, body)?;
        serde_json::from_str(&answer).map_err(|error| self.protocol(error.to_string()))
    }

    /// The body of a successful answer; otherwise the gateway's own error.
    fn send(&self, method: &str, path: &str, body: &str) -> Result<String, CliError> {
        let answer = self
            .exchange(method, path, body)
            .map_err(|error| CliError::Unreachable {
                socket: self.socket.clone(),
                error,
            })?;
        let (code, body) = parse_answer(&answer).ok_or_else(|| self.protocol("no HTTP".into()))?;
        if (200..300).contains(&code) {
            return Ok(body.to_owned());
        }
        match serde_json::from_str::<ControlError>(body) {
            Ok(refused) => Err(refused.into()),
            Err(_) => Err(self.protocol(format!("HTTP status {code} without a reason"))),
        }
    }

    fn exchange(&self, method: &str, path: &str, body: &str) -> io::Result<String> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let length = body.len();
        stream.write_all(
            format!(
                "{method} {path} HTTP/1.0\r\nHost: tombolo\r\nContent-Type: application/json\r\n\
                 Content-Length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        )?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(answer)
    }

    fn protocol(&self, reason: String) -> CliError {
        CliError::Protocol {
            socket: self.socket.clone(),
            reason,
        }
    }
}

/// The status code and the body, which must have its announced length.
fn parse_answer(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let first = lines.next()?;
    let code = first.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let announced = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        if name.eq_ignore_ascii_case("content-length") {
            value.trim().parse::<usize>().ok()
        } else {
            None
        }
    });
    announced
        .is_none_or(|length| length == body.len())
        .then_some((code, body))
}

/// Any text fits into one segment of a path: everything but letters, digits, `-` and `_` is escaped. The dot too, since
/// "." and ".." have a meaning of their own.
fn segment(folder: &str, name: &str) -> String {
    let mut path = String::from(folder);
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => path.push(char::from(byte)),
            _ => path += &format!("%{byte:02X}"),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart() {
        let answer = "HTTP/1.0 404 Not Found\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(parse_answer(answer), Some((404, "{}")));
        assert_eq!(parse_answer("HTTP/1.1 204 No Content\r\n\r\n"), Some((204, "")));
    }

    #[test]
    fn broken_answers_are_no_answers() {
        for answer in [
            "",
            "hello",
            "HTTP/1.0 200 OK\r\n",
            "HTTP/1.0 x\r\n\r\n",
            "SSH-2.0\r\n\r\n",
        ] {
            assert_eq!(parse_answer(answer), None, "{answer:?}");
        }
        let cut = "HTTP/1.0 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
        assert_eq!(parse_answer(cut), None);
    }

    #[test]
    fn names_cannot_leave_their_segment() {
        assert_eq!(segment("/v1/volumes/", "a/../b c"), "/v1/volumes/a%2F%2E%2E%2Fb%20c");
        assert_eq!(segment("/v1/shares/", "\u{e4}"), "/v1/shares/%C3%A4");
    }
}
