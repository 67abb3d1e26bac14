//! Which thread goes on when: each that can is given a moment in virtual time, drawn from the seed. One that has found a
//! lock taken looks again whenever another has run.

use super::jobs::Job;
use super::storage::Replied;
use super::threads::{Back, Go};
use crate::faults::operation::Operation;
use crate::faults::world::World;
use tombolo_files::Taken;
use tombolo_files::storage::StorageError;

/// A thread goes on within this time when it can.
const TURN_MICROS_MAX: u64 = 60;
/// Times that threads come back before all are done with a service that is gone; beyond, they never will be.
const ENDINGS_MAX: usize = 100_000;

/// Where a thread is.
pub(super) enum Turn {
    Idle,
    /// It has called, and nobody has answered yet.
    Calling,
    /// It has a moment at which it goes on with this.
    Ready(Go),
    /// It waits for a lock, and whether it has a moment at which it looks again.
    Waiting(Taken, bool),
}

impl World {
    pub(super) fn begin_job(&mut self, thread: usize, job: Job) {
        assert!(
            matches!(self.service.turns[thread], Turn::Idle),
            "a thread does one job"
        );
        self.make_ready(thread, Go::Begin(job));
    }

    /// The answer to a thread's call.
    pub(super) fn reply(&mut self, thread: usize, replied: Replied) {
        assert!(
            matches!(self.service.turns[thread], Turn::Calling),
            "a call is answered once"
        );
        self.make_ready(thread, Go::Answered(replied));
    }

    fn make_ready(&mut self, thread: usize, go: Go) {
        self.service.turns[thread] = Turn::Ready(go);
        self.schedule_turn(thread);
    }

    fn schedule_turn(&mut self, thread: usize) {
        let micros = self.service.prng.below(TURN_MICROS_MAX);
        self.schedule(micros, Operation::ThreadRuns(thread));
    }

    pub(crate) fn run_thread(&mut self, thread: usize) {
        let (go, waited) = match std::mem::replace(&mut self.service.turns[thread], Turn::Idle) {
            Turn::Ready(go) => (go, None),
            Turn::Waiting(taken, _) => (Go::LookAgain, Some(taken)),
            Turn::Idle | Turn::Calling => unreachable!("a thread goes on when it can"),
        };
        let has_moved = match self.run_to_next_wait(thread, go) {
            None => true,
            Some(Back::Waits(taken)) => {
                self.service.turns[thread] = Turn::Waiting(taken, false);
                waited != Some(taken)
            }
            Some(Back::Done(outcome)) => {
                self.note_turn(thread, 3);
                self.job_is_done(thread, outcome);
                true
            }
            Some(Back::Panicked(text)) => panic!("{text}"),
            Some(Back::Calls(_)) => unreachable!("calls are taken already"),
        };
        self.take_granted();
        if has_moved {
            self.let_waiting_look_again(thread);
        }
        self.check_deadlock();
    }

    /// Over all calls that are answered at once; `None`: it waits for the answer to one that is not.
    fn run_to_next_wait(&mut self, thread: usize, mut go: Go) -> Option<Back> {
        loop {
            let call = match self.service.threads.run(thread, go) {
                Back::Calls(call) => call,
                back => return Some(back),
            };
            self.note_turn(thread, 2);
            self.service.turns[thread] = Turn::Calling;
            go = Go::Answered(self.begin_call(thread, call)?);
            self.service.turns[thread] = Turn::Idle;
        }
    }

    fn let_waiting_look_again(&mut self, other: usize) {
        for thread in 0..self.service.turns.len() {
            if let Turn::Waiting(_, has_moment @ false) = &mut self.service.turns[thread]
                && thread != other
            {
                *has_moment = true;
                self.schedule_turn(thread);
            }
        }
    }

    fn check_deadlock(&self) {
        let mut waiting = self.service.turns.iter().filter_map(|turn| match turn {
            Turn::Waiting(taken, has_moment) => Some((*taken, *has_moment)),
            _ => None,
        });
        let mut others = self.service.turns.iter();
        let all_wait = !others.any(|turn| matches!(turn, Turn::Calling | Turn::Ready(_)));
        if all_wait && let Some((taken, _)) = waiting.clone().next() {
            assert!(
                waiting.any(|(_, has_moment)| has_moment),
                "deadlock: every thread waits for a lock, one for {taken:?}"
            );
        }
    }

    /// The service is gone: whatever a thread asks for fails, until it is done. Nobody hears what it came to.
    pub(super) fn end_threads(&mut self) {
        let mut count = 0;
        while let Some(thread) = self.service.turns.iter().position(|turn| !matches!(turn, Turn::Idle)) {
            for thread in thread..self.service.turns.len() {
                self.end_turn(thread);
            }
            count += 1;
            assert!(count < ENDINGS_MAX, "hang: a thread does not end with its service");
        }
    }

    fn end_turn(&mut self, thread: usize) {
        let gone = || Go::Answered(Err(StorageError::Failed("the gateway is gone".into())));
        let mut go = match std::mem::replace(&mut self.service.turns[thread], Turn::Idle) {
            // Nothing has begun.
            Turn::Idle | Turn::Ready(Go::Begin(_)) => return,
            Turn::Ready(_) | Turn::Calling => gone(),
            Turn::Waiting(..) => Go::LookAgain,
        };
        loop {
            match self.service.threads.run(thread, go) {
                Back::Calls(_) => go = gone(),
                Back::Waits(taken) => {
                    self.service.turns[thread] = Turn::Waiting(taken, false);
                    return;
                }
                Back::Done(_) => return,
                Back::Panicked(text) => panic!("{text}"),
            }
        }
    }
}
