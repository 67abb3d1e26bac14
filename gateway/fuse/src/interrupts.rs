//! Requests that the client wants taken back.
//!
//! An INTERRUPT may overtake the request it is about, which another thread has read and not yet begun to carry out, or
//! come too late. So those that find nobody are remembered for a while; a request that can be taken back asks when it
//! begins to wait. Numbers of requests are never used twice, so one that came too late does no harm.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Far more than threads of one client that are interrupted at the same moment.
const EARLY_MAX: usize = 1024;

type Callback = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Interrupts(Mutex<Table>);

#[derive(Default)]
struct Table {
    waiting: HashMap<u64, Callback>,
    early: VecDeque<u64>,
    /// The client is gone: every request is to be given up.
    all: bool,
}

impl Interrupts {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn register(&self, unique: u64, callback: Callback) {
        let mut table = self.lock();
        if table.all || table.early.contains(&unique) {
            drop(table);
            callback();
        } else {
            table.waiting.insert(unique, callback);
        }
    }

    pub fn is_interrupted(&self, unique: u64) -> bool {
        let table = self.lock();
        table.all || table.early.contains(&unique)
    }

    /// The client is gone.
    pub fn interrupt_all(&self) {
        let mut table = self.lock();
        table.all = true;
        let callbacks = std::mem::take(&mut table.waiting);
        drop(table);
        callbacks.into_values().for_each(|callback| callback());
    }

    pub fn interrupt(&self, unique: u64) {
        let mut table = self.lock();
        if table.early.len() == EARLY_MAX {
            table.early.pop_front();
        }
        table.early.push_back(unique);
        let callback = table.waiting.remove(&unique);
        drop(table);
        if let Some(callback) = callback {
            callback();
        }
    }

    /// The request is answered.
    pub fn forget(&self, unique: u64) {
        let mut table = self.lock();
        let callback = table.waiting.remove(&unique);
        drop(table);
        // What it holds may want this lock when it goes.
        drop(callback);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts its calls.
    fn counter() -> (Arc<AtomicUsize>, impl Fn() -> Callback) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let callback = move || -> Callback {
            let counted = Arc::clone(&counted);
            Box::new(move || {
                counted.fetch_add(1, Ordering::SeqCst);
            })
        };
        (calls, callback)
    }

    #[test]
    fn an_interrupt_finds_its_request_whichever_comes_first() {
        let interrupts = Interrupts::default();
        let (calls, callback) = counter();
        interrupts.register(2, callback());
        interrupts.register(4, callback());
        interrupts.interrupt(2);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        interrupts.interrupt(6);
        assert!(interrupts.is_interrupted(6) && !interrupts.is_interrupted(4));
        interrupts.register(6, callback());
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn an_answered_request_is_not_interrupted() {
        let interrupts = Interrupts::default();
        let (calls, callback) = counter();
        interrupts.register(2, callback());
        interrupts.forget(2);
        interrupts.interrupt(2);
        interrupts.interrupt_all();
        assert_eq!(calls.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn when_the_client_is_gone_everything_is_interrupted_what_comes_later_too() {
        let interrupts = Interrupts::default();
        let (calls, callback) = counter();
        interrupts.register(2, callback());
        interrupts.interrupt_all();
        interrupts.register(4, callback());
        assert_eq!(calls.load(Ordering::SeqCst), 2);
        assert!(interrupts.is_interrupted(6));
    }

    #[test]
    fn the_memory_of_interrupts_is_bounded() {
        let interrupts = Interrupts::default();
        for unique in 0..2 * EARLY_MAX as u64 {
            interrupts.interrupt(unique);
        }
        assert_eq!(interrupts.lock().early.len(), EARLY_MAX);
        assert!(interrupts.is_interrupted(2 * EARLY_MAX as u64 - 1) && !interrupts.is_interrupted(0));
    }
}
