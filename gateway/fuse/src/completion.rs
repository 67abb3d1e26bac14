//! The answer to one request: turns what the session says into a reply, whatever happens.

use crate::Errno;
use crate::interrupts::Interrupts;
use crate::protocol::reply::{Encoded, Expected, Reply, encode};
use std::sync::Arc;
use tombolo_transport::Held;

/// Where a connection's replies go.
pub(crate) trait Replies: Send + Sync {
    /// Sends the reply, and then gives back what the request held.
    fn reply(&self, reply: Encoded, held: Held);

    fn interrupts(&self) -> &Interrupts;
}

/// Answers one request, from any thread. Dropped without an answer, it reports EIO to the client, so that no request is
/// ever left open.
#[must_use = "dropping a completion fails its request"]
pub struct Completion {
    /// `None` once answered, and for requests that have no reply.
    replies: Option<Arc<dyn Replies>>,
    expected: Expected,
    held: Held,
}

impl Completion {
    pub(crate) fn new(replies: Arc<dyn Replies>, expected: Expected, held: Held) -> Self {
        Self {
            replies: Some(replies),
            expected,
            held,
        }
    }

    /// For a request that has no reply.
    pub(crate) fn without_reply(expected: Expected) -> Self {
        Self {
            replies: None,
            expected,
            held: Held::bytes(0),
        }
    }

    /// Never waits for the client.
    pub fn complete(mut self, result: Result<Reply, Errno>) {
        let reply = match result {
            Ok(reply) => encode(self.expected, reply).unwrap_or_else(|| self.misfit()),
            Err(errno) => Encoded::error(self.expected.unique, errno),
        };
        self.send(reply);
    }

    /// `interrupt` runs when the client wants the request taken back: at once if it has said so already, later on a
    /// thread that reads requests (so it must not wait), or never. The request is still to be answered, with EINTR if
    /// it was given up.
    pub fn on_interrupt(&self, interrupt: impl FnOnce() + Send + 'static) {
        if let Some(replies) = &self.replies {
            replies.interrupts().register(self.expected.unique, Box::new(interrupt));
        }
    }

    /// The client wants the request taken back.
    pub fn is_interrupted(&self) -> bool {
        let replies = self.replies.as_ref();
        replies.is_some_and(|replies| replies.interrupts().is_interrupted(self.expected.unique))
    }

    fn misfit(&self) -> Encoded {
        // To a request without a reply no answer fits, and nobody hears of it.
        if self.replies.is_some() {
            tracing::error!(expected = ?self.expected, "an answer does not fit its request");
        }
        Encoded::error(self.expected.unique, Errno::IO)
    }

    fn send(&mut self, reply: Encoded) {
        if let Some(replies) = self.replies.take() {
            replies.interrupts().forget(self.expected.unique);
            replies.reply(reply, self.held);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if self.replies.is_some() {
            tracing::error!(expected = ?self.expected, "a request was dropped without an answer");
            self.send(Encoded::error(self.expected.unique, Errno::IO));
        }
    }
}
