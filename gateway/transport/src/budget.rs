//! One bound on the memory that the requests of all clients hold together, whatever protocol they speak.
//!
//! Each client has an [`Account`]. A little is its own ([`OWN_BYTES`]), so that a client that asks for little never waits
//! for others; beyond that it takes from the pool. Who finds too little there waits in line, first come first served: a
//! large request is passed by none, and one that is larger than the pool gets it alone. Nobody waits in line for ever
//! while those who hold something finish what they hold it for, which they do without taking more.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What each account may hold without asking.
pub const OWN_BYTES: usize = 128 << 10;
/// How often one who waits looks whether it is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What all clients of all servers may hold together: memory for requests and answers.
#[derive(Debug)]
pub struct Budget {
    pool_bytes_max: usize,
    pool: Mutex<Pool>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Pool {
    held_bytes: usize,
    /// Who waits, by number.
    line: VecDeque<u64>,
    numbers: u64,
}

impl Budget {
    /// Of so many bytes, besides [`OWN_BYTES`] for each account.
    pub fn new(pool_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            pool_bytes_max,
            pool: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Taken from the pool now, by all accounts.
    pub fn held_bytes(&self) -> usize {
        self.lock().held_bytes
    }

    fn has_room(&self, pool: &Pool, bytes: usize) -> bool {
        pool.held_bytes == 0 || pool.held_bytes + bytes <= self.pool_bytes_max
    }

    fn try_take(&self, bytes: usize) -> bool {
        let mut pool = self.lock();
        let is_free = pool.line.is_empty() && self.has_room(&pool, bytes);
        pool.held_bytes += if is_free { bytes } else { 0 };
        is_free
    }

    /// Takes bytes, after those who came before. False: `is_over` said so meanwhile, and nothing was taken.
    pub fn take_in_turn(&self, bytes: usize, is_over: impl Fn() -> bool) -> bool {
        let number = self.stand_in_line();
        loop {
            // Without the lock: who is asked may hold one under which bytes are given back.
            let is_over = is_over();
            let mut pool = self.lock();
            let is_next = pool.line.front() == Some(&number);
            let takes = !is_over && is_next && self.has_room(&pool, bytes);
            if takes || is_over {
                pool.line.retain(|waiting| *waiting != number);
                pool.held_bytes += if takes { bytes } else { 0 };
                // The next in line may find room too.
                self.changed.notify_all();
                return takes;
            }
            let waited = self.changed.wait_timeout(pool, LOOK_INTERVAL);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn stand_in_line(&self) -> u64 {
        let mut pool = self.lock();
        let number = pool.numbers;
        pool.numbers += 1;
        pool.line.push_back(number);
        number
    }

    fn give_back(&self, bytes: usize) {
        let mut pool = self.lock();
        pool.held_bytes -= bytes;
        if !pool.line.is_empty() {
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One client's part. What it holds goes back when it is dropped.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    own_bytes: usize,
    pool_bytes: usize,
}

impl Account {
    /// Holds nothing yet.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self {
            budget,
            own_bytes: 0,
            pool_bytes: 0,
        }
    }

    /// Takes bytes if that needs no wait.
    pub fn try_take(&mut self, bytes: usize) -> bool {
        if self.own_bytes + bytes <= OWN_BYTES {
            self.own_bytes += bytes;
            return true;
        }
        let is_taken = self.budget.try_take(bytes);
        self.pool_bytes += if is_taken { bytes } else { 0 };
        is_taken
    }

    /// Enters what was taken for this client with [`Budget::take_in_turn`].
    pub fn enter(&mut self, bytes: usize) {
        self.pool_bytes += bytes;
    }

    /// Gives back part of what was taken: what is the pool's first, as others may wait for it.
    pub fn give_back(&mut self, bytes: usize) {
        let to_pool = bytes.min(self.pool_bytes);
        self.pool_bytes -= to_pool;
        self.own_bytes -= bytes - to_pool;
        if to_pool > 0 {
            self.budget.give_back(to_pool);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.pool_bytes > 0 {
            self.budget.give_back(self.pool_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    const MIB: usize = 1 << 20;

    fn never() -> bool {
        false
    }

    fn take(account: &mut Account, bytes: usize, is_over: impl Fn() -> bool) -> bool {
        if account.try_take(bytes) {
            return true;
        }
        let is_taken = account.budget.take_in_turn(bytes, is_over);
        account.enter(if is_taken { bytes } else { 0 });
        is_taken
    }

    /// Until so many wait in line.
    fn wait_for_line(budget: &Budget, length: usize) {
        while budget.lock().line.len() < length {
            thread::yield_now();
        }
    }

    #[test]
    fn all_accounts_together_stay_within_pool_and_own_parts() {
        let budget = Budget::new(4 * MIB);
        let (held, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let accounts = 8;
        thread::scope(|scope| {
            for seed in 0..accounts {
                let (budget, held, peak) = (&budget, &held, &peak);
                scope.spawn(move || {
                    let mut account = Account::new(budget.clone());
                    for round in 0..200 {
                        let bytes = 4096 << ((seed * 7 + round * 5) % 10);
                        assert!(take(&mut account, bytes, never));
                        let now = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        peak.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        held.fetch_sub(bytes, Ordering::SeqCst);
                        account.give_back(bytes);
                    }
                });
            }
        });
        let peak = peak.into_inner();
        assert!(peak <= 4 * MIB + accounts * OWN_BYTES, "{peak}");
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn a_request_larger_than_what_is_left_is_passed_by_none_and_one_larger_than_all_runs_alone() {
        let budget = Budget::new(4 * MIB);
        let mut holder = Account::new(budget.clone());
        assert!(take(&mut holder, 3 * MIB, never));
        let (sender, order) = channel();
        let wait = |bytes: usize, length: usize| {
            let (mut account, sender) = (Account::new(budget.clone()), sender.clone());
            let waiting = thread::spawn(move || {
                assert!(take(&mut account, bytes, never));
                sender.send(bytes).unwrap();
                account.give_back(bytes);
            });
            wait_for_line(&budget, length);
            waiting
        };
        let threads = [wait(9 * MIB, 1), wait(MIB, 2)];
        // There is room for the second, but the first came before it.
        assert!(!Account::new(budget.clone()).try_take(MIB));
        holder.give_back(3 * MIB);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [9 * MIB, MIB]);
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn small_requests_never_wait_for_clients_that_hold_everything() {
        let budget = Budget::new(MIB);
        let mut holder = Account::new(budget.clone());
        assert!(take(&mut holder, MIB, never));
        let mut other = Account::new(budget.clone());
        assert!(other.try_take(OWN_BYTES) && !other.try_take(1));
        other.give_back(OWN_BYTES);
        assert!(other.try_take(4096));
        drop(holder);
        assert!(other.try_take(MIB));
    }

    #[test]
    fn who_is_not_wanted_any_more_leaves_the_line() {
        let budget = Budget::new(MIB);
        let mut holder = Account::new(budget.clone());
        assert!(take(&mut holder, MIB, never));
        assert!(!take(&mut Account::new(budget.clone()), MIB, || true));
        assert!(budget.lock().line.is_empty());
        drop(holder);
        assert_eq!(budget.held_bytes(), 0);
    }
}
