//! Requests that come over the socket itself.
//!
//! Mechanism: of a connection's threads one leads, which is to say it reads. What will not wait it carries out itself,
//! and goes on reading: no handover between threads. Before it carries out what may wait, it passes the lead on, to a
//! thread that is idle or to a new one; when there are `threads_max` and all are busy, nobody reads until one is free,
//! and the pressure reaches the client.
//!
//! Invariant: the input is with the leading thread or in `role`, never both.

use super::connection::Connection;
use super::input::{Input, Message, StreamError};
use super::intake::{Begun, Intake, Job};
use crate::completion::Replies;
use crate::service::Session;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};

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
            replies: connection.output.clone(),
            session,
            threads_max,
            role: Mutex::new(Role {
                input: Some(input),
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
                    self.pass_on(scope, input);
                    job.carry_out(&*self.session);
                }
                None => self.finish(),
            }
        }
    }

    /// `None` when nothing more is read.
    fn take_lead(&self) -> Option<Input> {
        let mut role = self.lock();
        loop {
            if role.over {
                return None;
            }
            if let Some(input) = role.input.take() {
                return Some(input);
            }
            role.idle += 1;
            role = self.role_changed.wait(role).unwrap_or_else(PoisonError::into_inner);
            role.idle -= 1;
        }
    }

    /// Reads, and carries out what will not wait, up to a request that may; `None` when there will be no more.
    fn lead(&self, input: &mut Input) -> Option<Job> {
        self.connection.output.start_gathering();
        let flush = || self.connection.output.flush();
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
        self.connection.output.stop_gathering();
        outcome
    }

    fn begin(&self, input: &Input, mut message: Message) -> Begun {
        let intake = Intake {
            replies: &self.replies,
            in_flight: &self.connection.in_flight,
        };
        let data = std::mem::take(&mut message.data);
        let flush = || self.connection.output.flush();
        intake.begin(&message.header, input.arguments(&message), data, flush)
    }

    fn report(&self, error: &StreamError) {
        if !self.connection.is_ending() {
            tracing::warn!(%error, "a connection has ended");
        }
    }

    fn pass_on<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, input: Input) {
        let mut role = self.lock();
        role.input = Some(input);
        if role.idle > 0 {
            // Not under the lock, which is what the woken thread wants first.
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
