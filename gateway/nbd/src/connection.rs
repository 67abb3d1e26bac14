//! One connection from greeting to close, over any [`TimedSource`] of bytes and [`Sink`] for them.

use crate::completion::{Completion, Expected, ReplyForm};
use crate::handshake::{Agreed, Handshake, HandshakeError, Step};
use crate::protocol::reply::{EXTENTS_MAX, Reply};
use crate::protocol::{
    DecodeError, OPTION_BYTES_MAX, OPTION_HEADER_BYTES, REQUEST_HEADER_BYTES, RequestHeader, command,
    decode_request_header,
};
use crate::rules::{Command, Rules};
use crate::{Exports, Request, ServerConfig};
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tombolo_transport::input::BUFFER_BYTES;
use tombolo_transport::{Admission, Held, InFlight, Input, Limits, Sink, Source, WhenFull};

/// The replies of one connection.
pub(crate) type Output = tombolo_transport::Output<Reply, dyn Sink>;

// Options are read as a whole.
const _: () = assert!(BUFFER_BYTES >= OPTION_HEADER_BYTES + OPTION_BYTES_MAX);

/// Where a connection's bytes come from.
pub trait TimedSource: Source {
    /// From now on, waiting ends in [`io::ErrorKind::TimedOut`] at `deadline`; without one, only waiting for a payload of
    /// which nothing comes does. A source that never waits may ignore it.
    fn set_deadline(&mut self, _deadline: Option<Instant>) -> io::Result<()> {
        Ok(())
    }
}

/// Why a connection ended other than by the client's leave.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what happened")]
pub enum ConnectionError {
    #[error("negotiation")]
    Handshake(#[from] HandshakeError),
    #[error("no export was chosen within the time limit")]
    HandshakeTimeout,
    #[error("not an NBD request")]
    Request(#[from] DecodeError),
    #[error("a write of {length} bytes is far above the maximum of {length_max}")]
    PayloadAbsurd { length: u32, length_max: u32 },
    #[error("nothing came for too long of the data that a write had announced")]
    PayloadOverdue,
    #[error("the stream ended in the middle of a message")]
    Truncated,
    #[error("socket")]
    Io(#[source] io::Error),
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            io::ErrorKind::TimedOut => Self::PayloadOverdue,
            _ => Self::Io(error),
        }
    }
}

/// Serves one client until it leaves, and returns when all it asked for is answered.
pub fn serve(
    source: impl TimedSource,
    sink: Arc<dyn Sink>,
    exports: &dyn Exports,
    config: &ServerConfig,
) -> Result<(), ConnectionError> {
    run(source, sink, exports, config, |_, _| ())
}

/// As [`serve`]; `on_agreed` hears of the export that was chosen before any request is read.
pub(crate) fn run(
    source: impl TimedSource,
    sink: Arc<dyn Sink>,
    exports: &dyn Exports,
    config: &ServerConfig,
    on_agreed: impl FnOnce(&Agreed, &Arc<Output>),
) -> Result<(), ConnectionError> {
    let mut input = Input::new(source);
    let Some(agreed) = negotiate(&mut input, &*sink, exports, config)? else {
        return Ok(());
    };
    let limits = Limits {
        requests_max: config.requests_in_flight_max,
        bytes_max: config.bytes_in_flight_max,
        lock_waiters_max: 0,
    };
    let in_flight = Arc::new(InFlight::new(limits, Arc::clone(&config.budget)));
    let output = Output::new("nbd", sink, in_flight, WhenFull::Wait);
    output.start_gathering();
    let _closing = CloseAtEnd(&output);
    on_agreed(&agreed, &output);
    let outcome = Transmission::new(&agreed, &output, config).run(&mut input);
    // Unless it is we who end it, the client takes no more answers to what it has asked for.
    if output.in_flight().set_client_gone() {
        agreed.export.client_gone();
    }
    output.stop_gathering();
    output.in_flight().wait_until_answered_or_closed();
    outcome
}

/// Closes the connection however its thread ends, be it by a panic in the export.
struct CloseAtEnd<'a>(&'a Arc<Output>);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
        self.0.join_writer();
    }
}

/// `None` when the client left without choosing an export.
fn negotiate<S: TimedSource>(
    input: &mut Input<S>,
    sink: &dyn Sink,
    exports: &dyn Exports,
    config: &ServerConfig,
) -> Result<Option<Box<Agreed>>, ConnectionError> {
    input
        .source
        .set_deadline(Some(Instant::now() + config.handshake_timeout))?;
    let mut out = Vec::new();
    let block_bytes_max = config.payload_bytes_max.min(config.write_bytes_max);
    let mut handshake = Handshake::new(block_bytes_max, &mut out);
    loop {
        send_all(sink, &out)?;
        out.clear();
        match handshake.step(input.unread(), exports, &mut out)? {
            Step::NeedMore { bytes_min } => match input.fill(bytes_min, || ()) {
                Ok(true) => {}
                Ok(false) if input.unread().is_empty() => return Ok(None),
                Ok(false) => return Err(ConnectionError::Truncated),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(ConnectionError::HandshakeTimeout),
                Err(error) => return Err(error.into()),
            },
            Step::Continue { consumed } => {
                input.consume(consumed);
            }
            Step::Finished { consumed } => {
                input.consume(consumed);
                send_all(sink, &out)?;
                return Ok(None);
            }
            Step::Transmission { consumed, agreed } => {
                input.consume(consumed);
                send_all(sink, &out)?;
                input.source.set_deadline(None)?;
                return Ok(Some(agreed));
            }
        }
    }
}

fn send_all(sink: &dyn Sink, bytes: &[u8]) -> Result<(), ConnectionError> {
    sink.send_all(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => ConnectionError::HandshakeTimeout,
        _ => error.into(),
    })
}

struct Transmission<'a> {
    agreed: &'a Agreed,
    output: &'a Arc<Output>,
    rules: Rules,
    form: ReplyForm,
}

impl<'a> Transmission<'a> {
    fn new(agreed: &'a Agreed, output: &'a Arc<Output>, config: &ServerConfig) -> Self {
        Self {
            agreed,
            output,
            rules: Rules {
                size_bytes: agreed.info.size_bytes,
                read_only: agreed.info.read_only,
                structured: agreed.structured,
                contexts: agreed.contexts,
                payload_bytes_max: config.payload_bytes_max,
            },
            form: ReplyForm {
                structured: agreed.structured,
                contexts: agreed.contexts,
            },
        }
    }

    fn run<S: Source>(&self, input: &mut Input<S>) -> Result<(), ConnectionError> {
        while let Some(header) = self.next_header(input)? {
            let command = self.rules.check(&header);
            if command == Ok(Command::Disconnect) {
                return Ok(());
            }
            let held = Held::bytes(command.map_or(0, |command| charge_bytes(command, header.length)));
            let admission = self.output.in_flight().admit(held, || self.output.flush());
            if admission != Admission::Admitted {
                return Ok(());
            }
            match command {
                Ok(command) => self.carry_out(command, &header, held, input)?,
                Err(refusal) => {
                    let reply = self.form.error(header.cookie, refusal.error, refusal.message);
                    // Charged already, so it is answered whether or not the payload can be skipped.
                    let skipped = self.skip_payload(&header, input);
                    self.output.reply(reply, held);
                    skipped?;
                }
            }
        }
        Ok(())
    }

    /// `None` at the end of the stream.
    fn next_header<S: Source>(&self, input: &mut Input<S>) -> Result<Option<RequestHeader>, ConnectionError> {
        if !input.fill(REQUEST_HEADER_BYTES, || self.output.flush())? {
            return match input.unread().is_empty() {
                true => Ok(None),
                false => Err(ConnectionError::Truncated),
            };
        }
        let mut bytes = [0; REQUEST_HEADER_BYTES];
        bytes.copy_from_slice(&input.unread()[..REQUEST_HEADER_BYTES]);
        input.consume(REQUEST_HEADER_BYTES);
        Ok(Some(decode_request_header(&bytes)?))
    }

    /// A refused write brings its data along; skipping it keeps the stream in step.
    fn skip_payload<S: Source>(&self, header: &RequestHeader, input: &mut Input<S>) -> Result<(), ConnectionError> {
        if header.command != command::WRITE {
            return Ok(());
        }
        let length_max = self.rules.payload_bytes_max;
        if header.length > length_max.saturating_mul(2) {
            return Err(ConnectionError::PayloadAbsurd {
                length: header.length,
                length_max,
            });
        }
        Ok(input.skip(header.length as usize, || self.output.flush())?)
    }

    fn carry_out<S: Source>(
        &self,
        command: Command,
        header: &RequestHeader,
        held: Held,
        input: &mut Input<S>,
    ) -> Result<(), ConnectionError> {
        let RequestHeader { offset, length, .. } = *header;
        // Made before the payload is read: should that fail, the request is still accounted for.
        let expected = match command {
            Command::Read => Expected::Data { offset, length },
            Command::BlockStatus { request_one } => Expected::Extents { length, request_one },
            _ => Expected::Done,
        };
        let request = match command {
            Command::Read => Request::Read { offset, length },
            Command::Write { fua } => match input.payload(length as usize, || self.output.flush()) {
                Ok(data) => Request::Write { offset, data, fua },
                Err(error) => {
                    let message = "the data did not arrive";
                    let reply = self.form.error(header.cookie, crate::NbdError::Io, message);
                    self.output.reply(reply, held);
                    return Err(error.into());
                }
            },
            Command::Flush => Request::Flush,
            Command::Trim { fua } => Request::Trim { offset, length, fua },
            Command::WriteZeroes { fua, no_hole } => Request::WriteZeroes {
                offset,
                length,
                fua,
                no_hole,
            },
            Command::BlockStatus { request_one } => Request::BlockStatus {
                offset,
                length,
                request_one,
            },
            Command::Nothing | Command::Disconnect => {
                self.output.reply(self.nothing_done(header), held);
                return Ok(());
            }
        };
        let output = Arc::clone(self.output);
        let completion = Completion::new(output, header.cookie, expected, self.form, held);
        self.agreed.export.submit(request, completion);
        Ok(())
    }

    /// A structured read of no bytes has no content chunk; all other successes look the same.
    fn nothing_done(&self, header: &RequestHeader) -> Reply {
        match self.form.structured && header.command == command::READ {
            true => Reply::structured_done(header.cookie),
            false => Reply::simple_done(header.cookie),
        }
    }
}

/// What a request holds in memory until its reply is written, data of either direction.
fn charge_bytes(command: Command, length: u32) -> usize {
    match command {
        Command::Read | Command::Write { .. } => length as usize,
        Command::BlockStatus { .. } => EXTENTS_MAX * 8,
        Command::Flush
        | Command::Trim { .. }
        | Command::WriteZeroes { .. }
        | Command::Disconnect
        | Command::Nothing => 0,
    }
}
