//! What one client has under way, and its limits.
//!
//! Requests that wait for a lock are counted apart: they may wait for ever, and if they took up the room of the others,
//! the unlock that they wait for could not get in.

use crate::completion::Held;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tombolo_transport::Account;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub requests_max: usize,
    pub bytes_max: usize,
    pub lock_waiters_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    /// The connection takes no more.
    Ended,
    TooManyLockWaiters,
}

pub struct InFlight {
    limits: Limits,
    /// Its part of what all clients hold.
    account: Account,
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    requests: usize,
    bytes: usize,
    lock_waiters: usize,
    ended: bool,
    /// Threads that wait for a change: waking costs a system call whether anyone sleeps or not.
    sleepers: usize,
}

impl InFlight {
    pub fn new(limits: Limits, account: Account) -> Self {
        Self {
            limits,
            account,
            counts: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request in, waiting until there is room; `before_wait` runs before each wait. A request larger than the
    /// limit is let in alone.
    pub fn admit(&self, held: Held, mut before_wait: impl FnMut()) -> Admission {
        let admission = self.admit_here(held, &mut before_wait);
        if admission != Admission::Admitted || held.waits_for_lock || self.account.try_take(held.bytes) {
            return admission;
        }
        before_wait();
        if self.account.take(held.bytes, || self.lock().ended) {
            return Admission::Admitted;
        }
        self.forget(held);
        Admission::Ended
    }

    /// Within the connection's own limits.
    fn admit_here(&self, held: Held, before_wait: &mut impl FnMut()) -> Admission {
        let mut counts = self.lock();
        loop {
            if counts.ended {
                return Admission::Ended;
            }
            if held.waits_for_lock {
                return self.admit_lock_waiter(&mut counts);
            }
            let room = counts.requests < self.limits.requests_max && counts.bytes + held.bytes <= self.limits.bytes_max;
            if room || counts.requests == 0 {
                counts.requests += 1;
                counts.bytes += held.bytes;
                return Admission::Admitted;
            }
            drop(counts);
            before_wait();
            counts = self.sleep_while(self.lock(), |counts| {
                !counts.ended && counts.requests > 0 && {
                    counts.requests >= self.limits.requests_max || counts.bytes + held.bytes > self.limits.bytes_max
                }
            });
        }
    }

    fn admit_lock_waiter(&self, counts: &mut Counts) -> Admission {
        if counts.lock_waiters >= self.limits.lock_waiters_max {
            return Admission::TooManyLockWaiters;
        }
        counts.lock_waiters += 1;
        Admission::Admitted
    }

    pub fn release(&self, held: Held) {
        if !held.waits_for_lock {
            self.account.give_back(held.bytes);
        }
        self.forget(held);
    }

    fn forget(&self, held: Held) {
        let mut counts = self.lock();
        match held.waits_for_lock {
            true => counts.lock_waiters -= 1,
            false => {
                counts.requests -= 1;
                counts.bytes -= held.bytes;
            }
        }
        self.wake(&counts);
    }

    /// From now on, nothing is admitted.
    pub fn end(&self) {
        let mut counts = self.lock();
        counts.ended = true;
        self.wake(&counts);
    }

    /// Waits until only those that wait for a lock are left; false when that took too long.
    pub fn wait_answered(&self, deadline: Instant) -> bool {
        let mut counts = self.lock();
        while counts.requests > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            counts.sleepers += 1;
            let (woken, _) = self
                .changed
                .wait_timeout(counts, left)
                .unwrap_or_else(PoisonError::into_inner);
            counts = woken;
            counts.sleepers -= 1;
        }
        true
    }

    /// Waits until nothing is left.
    pub fn wait_gone(&self) {
        drop(self.sleep_while(self.lock(), |counts| counts.requests + counts.lock_waiters > 0));
    }

    fn sleep_while<'a>(
        &'a self,
        mut counts: MutexGuard<'a, Counts>,
        condition: impl Fn(&Counts) -> bool,
    ) -> MutexGuard<'a, Counts> {
        while condition(&counts) {
            counts.sleepers += 1;
            counts = self.changed.wait(counts).unwrap_or_else(PoisonError::into_inner);
            counts.sleepers -= 1;
        }
        counts
    }

    fn wake(&self, counts: &Counts) {
        if counts.sleepers > 0 {
            self.changed.notify_all();
        }
    }
}
