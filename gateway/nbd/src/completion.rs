//! The answer to one request: turns what an export says into a reply, whatever happens.

use crate::connection::Output;
use crate::protocol::reply::{ContextSet, Reply, fit_extents};
use crate::{Answer, NbdError};
use std::sync::Arc;
use tombolo_transport::Held;

/// How a connection's replies look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyForm {
    pub structured: bool,
    pub contexts: ContextSet,
}

/// Which answer fits the request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    Done,
    Data { offset: u64, length: u32 },
    Extents { length: u32, request_one: bool },
}

/// Answers one request, from any thread. Dropped without an answer, it reports an I/O error to the client, so that
/// no request is ever left open.
#[must_use = "dropping a completion fails its request"]
pub struct Completion {
    /// `None` once answered.
    output: Option<Arc<Output>>,
    cookie: u64,
    expected: Expected,
    form: ReplyForm,
    held: Held,
}

impl Completion {
    pub(crate) fn new(output: Arc<Output>, cookie: u64, expected: Expected, form: ReplyForm, held: Held) -> Self {
        Self {
            output: Some(output),
            cookie,
            expected,
            form,
            held,
        }
    }

    /// Nobody waits for the answer.
    pub fn is_client_gone(&self) -> bool {
        let output = self.output.as_ref();
        output.is_none_or(|output| output.in_flight().is_client_gone())
    }

    /// Never waits for the client, except on the connection's own reading thread.
    pub fn complete(mut self, result: Result<Answer, NbdError>) {
        let reply = match result {
            Ok(answer) => self.success(answer),
            Err(error) => self.form.error(self.cookie, error, &error.to_string()),
        };
        self.send(reply);
    }

    fn success(&self, answer: Answer) -> Reply {
        match (self.expected, answer) {
            (Expected::Done, Answer::Done) => Reply::simple_done(self.cookie),
            (Expected::Data { offset, length }, Answer::Data(data)) if data.len() == length as usize => {
                match self.form.structured {
                    true => Reply::structured_data(self.cookie, offset, data),
                    false => Reply::simple_data(self.cookie, data),
                }
            }
            (Expected::Extents { length, request_one }, Answer::Extents(extents)) => {
                match fit_extents(&extents, length, request_one) {
                    fitted if fitted.is_empty() => self.misfit(),
                    fitted => Reply::block_status(self.cookie, &fitted, self.form.contexts),
                }
            }
            _ => self.misfit(),
        }
    }

    fn misfit(&self) -> Reply {
        tracing::error!(expected = ?self.expected, "the export gave an answer that does not fit its request");
        self.form.error(
            self.cookie,
            NbdError::Io,
            "the export gave an answer that does not fit the request",
        )
    }

    fn send(&mut self, reply: Reply) {
        if let Some(output) = self.output.take() {
            output.reply(reply, self.held);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if self.output.is_some() {
            tracing::error!(expected = ?self.expected, "the export dropped a request without an answer");
            self.send(self.form.error(self.cookie, NbdError::Io, "the request was dropped"));
        }
    }
}

impl ReplyForm {
    pub fn error(self, cookie: u64, error: NbdError, message: &str) -> Reply {
        match self.structured {
            true => Reply::structured_error(cookie, error, message),
            false => Reply::simple_error(cookie, error),
        }
    }
}
