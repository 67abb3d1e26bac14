//! How long a client may take: over its negotiation, and over what it has announced.

use crate::connection::TimedSource;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tombolo_transport::Source;

/// The shortest wait that a deadline leaves: zero would mean "for ever" to the socket.
const WAIT_MIN: Duration = Duration::from_millis(1);

pub struct SocketSource {
    stream: Arc<UnixStream>,
    /// What a client gets to take something of an answer, or to send something of what it has announced.
    client_timeout: Duration,
    deadline: Option<Instant>,
}

impl SocketSource {
    pub fn new(stream: Arc<UnixStream>, client_timeout: Duration) -> Self {
        Self {
            stream,
            client_timeout,
            deadline: None,
        }
    }

    fn apply_deadline(&self) -> io::Result<()> {
        let Some(deadline) = self.deadline else {
            return Ok(());
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left.max(WAIT_MIN)))
    }
}

impl Source for SocketSource {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.apply_deadline()?;
            match self.stream.receive(buffer) {
                // A client may be without a wish for as long as it likes.
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.deadline.is_none() => {}
                outcome => return outcome.map_err(timed_out),
            }
        }
    }

    fn receive_payload(&mut self, payload: &mut Vec<u8>, count: usize) -> io::Result<()> {
        self.stream.receive_payload(payload, count).map_err(timed_out)
    }
}

impl TimedSource for SocketSource {
    fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.deadline = deadline;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait = left.unwrap_or(self.client_timeout).max(WAIT_MIN);
        self.stream.set_write_timeout(Some(wait))?;
        self.stream.set_read_timeout(Some(wait))
    }
}

fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}
