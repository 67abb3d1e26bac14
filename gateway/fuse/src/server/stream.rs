//! Requests that come over the socket itself.
//!
//! Mechanism: of a connection's threads one leads, which is to say it reads. What will not wait it carries out itself,
//! and goes on reading: no handover between threads. Before it carries out what may wait, it lays the lead down. As a
//! rule such a request waits for nothing after all, and the thread takes the lead up again, having woken nobody. So that
//! others can be read when it does wait, an idle thread watches: it takes a lead that has lain for [`WATCH_INTERVAL`].
//! Beside a request with much data the next one can be read at once, so there the lead is offered to an idle thread or to
//! a new one. When there are `threads_max` and all are busy, nobody reads until one is free, and the pressure reaches the
//! client.
//!
//! Invariants: the input is with the leading thread or in `role`, never both. While it is in `role` and the thread that
//! laid it down is busy, a thread watches, was woken to, or starts; or all there may be are busy.

use super::connection::Connection;
use super::input::{Input, Message, StreamError};
use super::intake::{Begun, Intake, Job};
use crate::completion::Replies;
use crate::service::Session;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

/// How long requests behind one that waits are left unread: many times what a request takes that waits for nothing, and
/// little beside what waiting for the disk or the cloud takes.
const WATCH_INTERVAL: Duration = Duration::from_millis(2);
/// A thread watches on for so many intervals after the lead was last laid down: being woken for each request is what it
/// is there to save.
const QUIET_INTERVALS_MAX: u32 = 25;
/// From here on copying a request's data takes longer than waking a thread to read the next.
const MUCH_DATA_BYTES: usize = 64 * 1024;

pub struct Stream<'a> {
    connection: &'a Connection,
    replies: Arc<dyn Replies>,
    session: Arc<dyn Session>,
    threads_max: usize,
    role: Mutex<Role>,
    role_changed: Condvar,
}

struct Role {
    input: Option<Input>,
    /// How often the input was laid down.
    laid_down: u64,
    /// Whoever is idle may take the input.
    is_offered: bool,
    /// An idle thread looks after the input.
    is_watched: bool,
    /// Threads that wait to lead.
    idle: usize,
    threads: usize,
    /// Nothing more is read.
    over: bool,
}

impl<'a> Stream<'a> {
    pub fn new(connection: &'a Connection, session: Arc<dyn Session>, input: Input, threads_max: usize) -> Self {
        Self {
            connection,
            replies: connection.messages.clone(),
            session,
            threads_max,
            role: Mutex::new(Role {
                input: Some(input),
                laid_down: 0,
                is_offered: false,
                is_watched: false,
                idle: 0,
                threads: 1,
                over: false,
            }),
            role_changed: Condvar::new(),
        }
    }

    /// Returns when the stream has ended and no thread is busy with a request any more; requests that were put off may
    /// still be answered later.
    pub fn run(&self) {
        thread::scope(|scope| self.work(scope));
    }

    fn lock(&self) -> MutexGuard<'_, Role> {
        self.role.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        while let Some(mut input) = self.take_lead() {
            match self.lead(&mut input) {
                Some(job) => {
                    let is_offered = job.request.charge_bytes() >= MUCH_DATA_BYTES;
                    self.lay_down(scope, input, is_offered);
                    job.carry_out(&*self.session);
                }
                None => self.finish(),
            }
        }
    }

    /// For a thread that has nothing to do. `None` when nothing more is read.
    fn take_lead(&self) -> Option<Input> {
        let mut role = self.lock();
        if role.over {
            return None;
        }
        if let Some(input) = role.take_input() {
            return Some(input);
        }
        role.idle += 1;
        let (mut role, input) = self.wait_for_lead(role);
        role.idle -= 1;
        input
    }

    fn wait_for_lead<'role>(
        &'role self,
        mut role: MutexGuard<'role, Role>,
    ) -> (MutexGuard<'role, Role>, Option<Input>) {
        let mut seen = role.laid_down;
        while !role.over {
            if role.is_offered
                && let Some(input) = role.take_input()
            {
                return (role, Some(input));
            }
            if role.laid_down != seen && !role.is_watched {
                let overdue;
                (role, overdue) = self.watch(role);
                if overdue && let Some(input) = role.take_input() {
                    return (role, Some(input));
                }
                seen = role.laid_down;
            } else {
                role = self.role_changed.wait(role).unwrap_or_else(PoisonError::into_inner);
            }
        }
        (role, None)
    }

    /// Waits until the input has been left unread for a whole interval (true), or until there is something else to do.
    fn watch<'role>(&'role self, mut role: MutexGuard<'role, Role>) -> (MutexGuard<'role, Role>, bool) {
        let mut overdue = false;
        let mut quiet_intervals = 0;
        role.is_watched = true;
        while !overdue && !role.over && !role.is_offered && quiet_intervals < QUIET_INTERVALS_MAX {
            let before = role.laid_down;
            let (woken, timeout) = self
                .role_changed
                .wait_timeout(role, WATCH_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
            role = woken;
            if timeout.timed_out() && role.laid_down == before {
                overdue = role.input.is_some();
                quiet_intervals += 1;
            } else if role.laid_down != before {
                quiet_intervals = 0;
            }
        }
        role.is_watched = false;
        (role, overdue)
    }

    /// Reads, and carries out what will not wait, up to a request that may; `None` when there will be no more.
    fn lead(&self, input: &mut Input) -> Option<Job> {
        self.connection.messages.output.start_gathering();
        let flush = || self.connection.messages.output.flush();
        let outcome = loop {
            let begun = match input.next(flush) {
                Ok(Some(message)) => self.begin(input, message),
                Ok(None) => break None,
                Err(error) => {
                    self.report(&error);
                    break None;
                }
            };
            match begun {
                Begun::Job(job) if self.session.may_wait(&job.request) => break Some(job),
                Begun::Job(job) => job.carry_out(&*self.session),
                Begun::Dealt => {}
                Begun::Ended => break None,
            }
        };
        self.connection.messages.output.stop_gathering();
        outcome
    }

    fn begin(&self, input: &Input, mut message: Message) -> Begun {
        let intake = Intake {
            replies: &self.replies,
            in_flight: &self.connection.in_flight,
        };
        let data = std::mem::take(&mut message.data);
        let flush = || self.connection.messages.output.flush();
        intake.begin(&message.header, input.arguments(&message), data, flush)
    }

    fn report(&self, error: &StreamError) {
        if !self.connection.is_ending() {
            tracing::warn!(%error, "a connection has ended");
        }
    }

    fn lay_down<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, input: Input, is_offered: bool) {
        let mut role = self.lock();
        role.input = Some(input);
        role.laid_down += 1;
        role.is_offered = is_offered;
        if role.is_watched && !is_offered {
            return;
        }
        if role.idle > 0 {
            // It takes the lead, or watches. Not under the lock, which is what the woken thread wants first.
            drop(role);
            self.role_changed.notify_one();
        } else if role.threads < self.threads_max {
            role.threads += 1;
            let name = format!("fuse-{}-{}", self.connection.id, role.threads);
            drop(role);
            let spawned = thread::Builder::new()
                .name(name)
                .spawn_scoped(scope, move || self.work(scope));
            if let Err(error) = spawned {
                // The calling thread takes the lead again when it is done.
                tracing::error!(%error, "no further thread to read requests with");
                self.lock().threads -= 1;
            }
        }
    }

    fn finish(&self) {
        self.connection.on_input_over();
        self.lock().over = true;
        self.role_changed.notify_all();
    }
}

impl Role {
    fn take_input(&mut self) -> Option<Input> {
        self.is_offered = false;
        self.input.take()
    }
}
