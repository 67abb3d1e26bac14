//! One lock per inode, taken before the namespace lock and held while a write waits for storage. It keeps writers of a
//! file's data, and all who change a file's records, apart.
//!
//! The table holds only the numbers of inodes that are locked now, so it needs no tidying up.
//!
//! Everything that a thread may hold while it calls storage is locked through here. So one that runs the service's
//! threads in turns of its own choice ([`Waiting`]) hears of each that would have to wait.

use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
};

const SHARDS: usize = 64;
const POISONED: &str = "no thread panics while it holds this lock";

/// What a thread has found taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// An inode's lock.
    File(u64),
    /// The lock of all names.
    Namespace,
    /// The lock table.
    Locks,
}

/// Waits in place of threads that find a lock taken, for those who decide themselves which thread runs when.
pub trait Waiting: Send + Sync + 'static {
    /// Returns when others have run; the thread looks again then, and waits again if it must.
    fn wait_for(&self, taken: Taken);
}

/// `None`: the operating system lets threads wait.
pub type Waits = Option<Arc<dyn Waiting>>;

/// A poisoned lock means that a thread panicked with the state half changed; going on could only do harm.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(POISONED)
}

/// For a lock that is held while storage is called.
pub fn lock<'l, T>(waits: &Waits, mutex: &'l Mutex<T>, taken: Taken) -> MutexGuard<'l, T> {
    match waits {
        None => locked(mutex),
        Some(waiting) => until_free(&**waiting, taken, || mutex.try_lock()),
    }
}

pub fn read<'l, T>(waits: &Waits, lock: &'l RwLock<T>, taken: Taken) -> RwLockReadGuard<'l, T> {
    match waits {
        None => lock.read().expect(POISONED),
        Some(waiting) => until_free(&**waiting, taken, || lock.try_read()),
    }
}

pub fn write<'l, T>(waits: &Waits, lock: &'l RwLock<T>, taken: Taken) -> RwLockWriteGuard<'l, T> {
    match waits {
        None => lock.write().expect(POISONED),
        Some(waiting) => until_free(&**waiting, taken, || lock.try_write()),
    }
}

fn until_free<G>(waiting: &dyn Waiting, taken: Taken, attempt: impl Fn() -> TryLockResult<G>) -> G {
    loop {
        match attempt() {
            Ok(guard) => return guard,
            Err(TryLockError::WouldBlock) => waiting.wait_for(taken),
            Err(TryLockError::Poisoned(_)) => panic!("{POISONED}"),
        }
    }
}

#[derive(Debug, Default)]
struct Shard {
    held: Mutex<Held>,
    freed: Condvar,
}

/// Few at a time, so looking through all of them is quickest.
#[derive(Debug, Default)]
struct Held {
    inodes: Vec<u64>,
    /// Threads that wait for one of them: waking nobody would be a system call too.
    waiting: usize,
}

pub struct FileLocks {
    shards: Vec<Shard>,
    waits: Waits,
}

/// The inode is locked until this is dropped.
#[derive(Debug)]
pub struct FileGuard<'a> {
    shard: &'a Shard,
    inode: u64,
}

impl Shard {
    /// Until some inode of the shard is free again.
    fn wait<'l>(&self, mut held: MutexGuard<'l, Held>) -> MutexGuard<'l, Held> {
        held.waiting += 1;
        held = self.freed.wait(held).expect(POISONED);
        held.waiting -= 1;
        held
    }
}

impl FileLocks {
    pub fn new(waits: Waits) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            waits,
        }
    }

    /// Waits until nobody else has the inode.
    pub fn lock(&self, inode: u64) -> FileGuard<'_> {
        let shard = &self.shards[(inode % SHARDS as u64) as usize];
        let mut held = locked(&shard.held);
        while held.inodes.contains(&inode) {
            held = match &self.waits {
                None => shard.wait(held),
                Some(waiting) => {
                    drop(held);
                    waiting.wait_for(Taken::File(inode));
                    locked(&shard.held)
                }
            };
        }
        held.inodes.push(inode);
        FileGuard { shard, inode }
    }

    /// Locks several, in the order of their numbers so that no two threads wait for each other.
    pub fn lock_all(&self, mut inodes: Vec<u64>) -> FileGuards<'_> {
        inodes.sort_unstable();
        inodes.dedup();
        FileGuards(inodes.into_iter().map(|inode| self.lock(inode)).collect())
    }
}

#[derive(Debug)]
pub struct FileGuards<'a>(Vec<FileGuard<'a>>);

impl FileGuards<'_> {
    pub fn cover(&self, inode: u64) -> bool {
        self.0.iter().any(|guard| guard.inode == inode)
    }
}

impl Drop for FileGuard<'_> {
    fn drop(&mut self) {
        let mut held = locked(&self.shard.held);
        held.inodes.retain(|inode| *inode != self.inode);
        let is_waited_for = held.waiting > 0;
        drop(held);
        if is_waited_for {
            self.shard.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the caller's threads are the test's own")]
    fn one_thread_at_a_time_has_an_inode() {
        let locks = FileLocks::new(None);
        let counter = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let _guards = locks.lock_all(vec![9, 5, 5 + SHARDS as u64, 9]);
                        let before = counter.load(Ordering::Relaxed);
                        std::thread::yield_now();
                        counter.store(before + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(counter.load(Ordering::Relaxed), 2000);
    }
}
