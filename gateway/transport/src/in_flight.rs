//! What one client has under way, and its limits.
//!
//! Requests that wait for a lock are counted apart: they may wait for ever, and if they took up the room of the others,
//! the unlock that they wait for could not get in.

use crate::budget::{Account, Budget};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How much one client may have under way.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Those that wait for no lock.
    pub requests_max: usize,
    /// What all its requests hold together.
    pub bytes_max: usize,
    /// Requests that wait for a lock.
    pub lock_waiters_max: usize,
}

/// What a request in flight is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Memory for it and for its answer.
    pub bytes: usize,
    /// It waits for a lock, as long as it takes.
    pub waits_for_lock: bool,
}

impl Held {
    /// As any request that waits for no lock.
    pub const fn bytes(bytes: usize) -> Self {
        Self {
            bytes,
            waits_for_lock: false,
        }
    }
}

/// Whether a request was counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is in flight until its reply is written.
    Admitted,
    /// The connection takes no more.
    Ended,
    /// It waits for a lock, as too many do already; refuse it.
    TooManyLockWaiters,
}

/// The requests of one connection that were read, and whose replies are not yet written.
pub struct InFlight {
    limits: Limits,
    budget: Arc<Budget>,
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug)]
struct Counts {
    /// Its part of what all clients hold.
    account: Account,
    requests: usize,
    bytes: usize,
    lock_waiters: usize,
    /// No more is to be admitted.
    ended: bool,
    /// Replies lead nowhere.
    closed: bool,
    /// The client has gone, and was not sent away.
    client_gone: bool,
    /// Threads that wait for a change: waking costs a system call whether anyone sleeps or not.
    sleepers: usize,
}

impl Counts {
    fn takes_no_more(&self) -> bool {
        self.ended || self.closed
    }

    /// A request larger than the limit is let in alone.
    fn has_room(&self, limits: &Limits, bytes: usize) -> bool {
        self.requests == 0 || self.requests < limits.requests_max && self.bytes + bytes <= limits.bytes_max
    }
}

impl InFlight {
    /// Nothing is under way yet.
    pub fn new(limits: Limits, budget: Arc<Budget>) -> Self {
        let counts = Counts {
            account: Account::new(Arc::clone(&budget)),
            requests: 0,
            bytes: 0,
            lock_waiters: 0,
            ended: false,
            closed: false,
            client_gone: false,
            sleepers: 0,
        };
        Self {
            limits,
            budget,
            counts: Mutex::new(counts),
            changed: Condvar::new(),
        }
    }

    /// Every critical section leaves the counts consistent.
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request in, waiting until there is room; `before_wait` runs before each wait.
    pub fn admit(&self, held: Held, mut before_wait: impl FnMut()) -> Admission {
        let counts = self.lock();
        if held.waits_for_lock {
            return self.admit_lock_waiter(counts);
        }
        let Some(mut counts) = self.count_in(counts, held.bytes, &mut before_wait) else {
            return Admission::Ended;
        };
        if counts.account.try_take(held.bytes) {
            return Admission::Admitted;
        }
        drop(counts);
        before_wait();
        match self.take_from_all(held) {
            true => Admission::Admitted,
            false => Admission::Ended,
        }
    }

    fn admit_lock_waiter(&self, mut counts: MutexGuard<'_, Counts>) -> Admission {
        if counts.takes_no_more() {
            return Admission::Ended;
        }
        if counts.lock_waiters >= self.limits.lock_waiters_max {
            return Admission::TooManyLockWaiters;
        }
        counts.lock_waiters += 1;
        Admission::Admitted
    }

    /// Within the connection's own limits; `None` when it takes no more.
    fn count_in<'a>(
        &'a self,
        mut counts: MutexGuard<'a, Counts>,
        bytes: usize,
        before_wait: &mut impl FnMut(),
    ) -> Option<MutexGuard<'a, Counts>> {
        let is_full = |counts: &Counts| !counts.takes_no_more() && !counts.has_room(&self.limits, bytes);
        while is_full(&counts) {
            drop(counts);
            before_wait();
            counts = self.sleep_while(self.lock(), is_full);
        }
        if counts.takes_no_more() {
            return None;
        }
        counts.requests += 1;
        counts.bytes += bytes;
        Some(counts)
    }

    /// Within what all clients may hold, after those who came before; false when the connection takes no more.
    fn take_from_all(&self, held: Held) -> bool {
        // What the client had may have been given back meanwhile.
        if self.lock().account.try_take(held.bytes) {
            return true;
        }
        let is_taken = self.budget.take_in_turn(held.bytes, || self.lock().takes_no_more());
        let mut counts = self.lock();
        match is_taken {
            true => counts.account.enter(held.bytes),
            false => self.forget(&mut counts, held),
        }
        is_taken
    }

    /// Gives back what answered requests held. True: they were the last, and no more are admitted.
    pub fn release(&self, answered: impl IntoIterator<Item = Held>) -> bool {
        let mut counts = self.lock();
        let mut bytes = 0;
        for held in answered {
            bytes += if held.waits_for_lock { 0 } else { held.bytes };
            self.forget(&mut counts, held);
        }
        counts.account.give_back(bytes);
        counts.ended && counts.requests == 0
    }

    fn forget(&self, counts: &mut Counts, held: Held) {
        match held.waits_for_lock {
            true => counts.lock_waiters -= 1,
            false => {
                counts.requests -= 1;
                counts.bytes -= held.bytes;
            }
        }
        self.wake(counts);
    }

    /// From now on, nothing is admitted. True: nothing is under way either.
    pub fn end(&self) -> bool {
        let mut counts = self.lock();
        counts.ended = true;
        self.wake(&counts);
        counts.requests == 0
    }

    /// From now on, nothing is admitted, and replies lead nowhere.
    pub fn close(&self) {
        let mut counts = self.lock();
        counts.closed = true;
        self.wake(&counts);
    }

    /// After the last request was read; false when that is because no more are admitted.
    pub fn set_client_gone(&self) -> bool {
        let mut counts = self.lock();
        counts.client_gone = !counts.ended;
        counts.client_gone
    }

    /// Nobody waits for answers any more.
    pub fn is_client_gone(&self) -> bool {
        self.lock().client_gone
    }

    /// Waits until every request is answered, those apart that wait for a lock; false when that took too long.
    pub fn wait_until_answered(&self, deadline: Instant) -> bool {
        let mut counts = self.lock();
        counts.sleepers += 1;
        let left = deadline.saturating_duration_since(Instant::now());
        let (mut counts, _) = self
            .changed
            .wait_timeout_while(counts, left, |counts| counts.requests > 0)
            .unwrap_or_else(PoisonError::into_inner);
        counts.sleepers -= 1;
        counts.requests == 0
    }

    /// Waits until every request is answered, or replies lead nowhere.
    pub fn wait_until_answered_or_closed(&self) {
        drop(self.sleep_while(self.lock(), |counts| counts.requests > 0 && !counts.closed));
    }

    /// Waits until nothing is left.
    pub fn wait_until_gone(&self) {
        drop(self.sleep_while(self.lock(), |counts| counts.requests + counts.lock_waiters > 0));
    }

    fn sleep_while<'a>(
        &'a self,
        mut counts: MutexGuard<'a, Counts>,
        condition: impl Fn(&Counts) -> bool,
    ) -> MutexGuard<'a, Counts> {
        counts.sleepers += 1;
        counts = self
            .changed
            .wait_while(counts, |counts| condition(counts))
            .unwrap_or_else(PoisonError::into_inner);
        counts.sleepers -= 1;
        counts
    }

    fn wake(&self, counts: &Counts) {
        if counts.sleepers > 0 {
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
