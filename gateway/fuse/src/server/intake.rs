//! From a message to a request that is being carried out: what a socket and a device have in common.

use crate::Errno;
use crate::completion::{Completion, Replies};
use crate::protocol::abi::InHeader;
use crate::protocol::malformed::Malformed;
use crate::protocol::opcode::Opcode;
use crate::protocol::parse::{parse, parse_header, parse_interrupt};
use crate::protocol::reply::{Encoded, Expected};
use crate::protocol::request::{Request, RequestHeader};
use crate::service::Session;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tombolo_transport::{Admission, Held, InFlight};

const NOTHING_HELD: Held = Held::bytes(0);

/// A request that was counted in and is now to be carried out.
pub struct Job {
    pub header: RequestHeader,
    pub request: Request,
    pub completion: Completion,
}

#[expect(clippy::large_enum_variant, reason = "made once per request and taken apart at once")]
pub enum Begun {
    Job(Job),
    /// It was answered, or needs no answer.
    Dealt,
    /// The connection takes no more.
    Ended,
}

/// Where replies go, and what is under way.
pub struct Intake<'a> {
    pub replies: &'a Arc<dyn Replies>,
    pub in_flight: &'a InFlight,
}

impl Intake<'_> {
    /// `before_wait` runs before it waits for room.
    pub fn begin(&self, header: &InHeader, arguments: &[u8], data: Vec<u8>, before_wait: impl FnMut()) -> Begun {
        match parse(header, arguments, data) {
            Ok((header, request)) => self.admit(header, request, before_wait),
            Err(Malformed::OutOfPlace { opcode }) => self.deal_with(header, opcode, arguments, before_wait),
            Err(malformed) => self.refuse(header, &malformed, before_wait),
        }
    }

    fn admit(&self, header: RequestHeader, request: Request, before_wait: impl FnMut()) -> Begun {
        let expected = Expected::of(header.unique, header.opcode, &request);
        if header.opcode.has_no_reply() {
            let completion = Completion::without_reply(expected);
            return Begun::Job(Job {
                header,
                request,
                completion,
            });
        }
        let held = Held {
            bytes: request.charge_bytes(),
            waits_for_lock: matches!(request, Request::Setlk { wait: true, .. }),
        };
        match self.in_flight.admit(held, before_wait) {
            Admission::Admitted => Begun::Job(Job {
                header,
                request,
                completion: Completion::new(Arc::clone(self.replies), expected, held),
            }),
            Admission::Ended => Begun::Ended,
            Admission::TooManyLockWaiters => {
                self.answer(Encoded::error(header.unique, Errno::new(libc::ENOLCK)), || ())
            }
        }
    }

    /// Messages that are not requests to the owner of the files.
    fn deal_with(&self, header: &InHeader, opcode: Opcode, arguments: &[u8], before_wait: impl FnMut()) -> Begun {
        match opcode {
            Opcode::Interrupt => match parse_interrupt(arguments) {
                Ok(unique) => {
                    self.replies.interrupts().interrupt(unique);
                    Begun::Dealt
                }
                Err(malformed) => self.refuse(header, &malformed, before_wait),
            },
            Opcode::Destroy => self.answer(Encoded::done(header.unique), before_wait),
            _ => self.refuse(header, &Malformed::OutOfPlace { opcode }, before_wait),
        }
    }

    fn refuse(&self, header: &InHeader, malformed: &Malformed, before_wait: impl FnMut()) -> Begun {
        tracing::debug!(error = %malformed, "a request is refused");
        if parse_header(header).is_ok_and(|header| header.opcode.has_no_reply()) {
            return Begun::Dealt;
        }
        self.answer(Encoded::error(header.unique, Errno::from(malformed)), before_wait)
    }

    /// Counted in like any other, so that a client that sends nonsense and reads nothing is held back too.
    fn answer(&self, reply: Encoded, before_wait: impl FnMut()) -> Begun {
        match self.in_flight.admit(NOTHING_HELD, before_wait) {
            Admission::Admitted => {
                self.replies.reply(reply, NOTHING_HELD);
                Begun::Dealt
            }
            Admission::Ended | Admission::TooManyLockWaiters => Begun::Ended,
        }
    }
}

impl Job {
    /// A panic fails this request (its completion was dropped) and no other.
    pub fn carry_out(self, session: &dyn Session) {
        let Self {
            header,
            request,
            completion,
        } = self;
        let carry_out = AssertUnwindSafe(|| session.handle(&header, request, completion));
        if catch_unwind(carry_out).is_err() {
            tracing::error!(opcode = ?header.opcode, node = header.node, "a request was given up by a panic");
        }
    }
}
