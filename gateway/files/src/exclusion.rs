//! One lock per inode, taken before the namespace lock and held while a write waits for storage. It keeps writers of a
//! file's data, and all who change a file's records, apart.
//!
//! The table holds only the numbers of inodes that are locked now, so it needs no tidying up.

use std::sync::{Condvar, Mutex, MutexGuard};

const SHARDS: usize = 64;

/// A poisoned lock means that a thread panicked with the state half changed; going on could only do harm.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it holds this lock")
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

#[derive(Debug)]
pub struct FileLocks {
    shards: Vec<Shard>,
}

/// The inode is locked until this is dropped.
#[derive(Debug)]
pub struct FileGuard<'a> {
    shard: &'a Shard,
    inode: u64,
}

impl FileLocks {
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
        }
    }

    /// Waits until nobody else has the inode.
    pub fn lock(&self, inode: u64) -> FileGuard<'_> {
        let shard = &self.shards[(inode % SHARDS as u64) as usize];
        let mut held = locked(&shard.held);
        while held.inodes.contains(&inode) {
            held.waiting += 1;
            held = shard
                .freed
                .wait(held)
                .expect("no thread panics while it holds this lock");
            held.waiting -= 1;
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
    fn one_thread_at_a_time_has_an_inode() {
        let locks = FileLocks::new();
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
