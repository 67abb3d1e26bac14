//! Buffers of megabytes that are used again and again. Memory that is asked for anew costs the kernel a page fault and a page of
//! zeroes for every 4 KiB, which was a quarter of all processor time of an upload.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

/// What is not used now, up to a bound.
#[derive(Debug)]
pub struct BufferPool {
    bytes_max: usize,
    free: Mutex<Vec<Vec<u8>>>,
}

/// A buffer that goes back when it is dropped.
#[derive(Debug)]
pub struct PooledBuffer {
    /// Its contents.
    pub bytes: Vec<u8>,
    pool: Arc<BufferPool>,
}

impl BufferPool {
    /// Keeps up to `bytes_max` bytes of buffers that nobody uses.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            free: Mutex::default(),
        })
    }

    /// A buffer with room for `bytes`: the smallest that has it, else the largest there is. What is in it means nothing.
    pub fn take(self: &Arc<Self>, bytes: usize) -> PooledBuffer {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = free.partition_point(|buffer| buffer.capacity() < bytes);
        let found = match fitting < free.len() {
            true => free.remove(fitting),
            false => free.pop().unwrap_or_default(),
        };
        drop(free);
        let mut buffer = PooledBuffer {
            bytes: found,
            pool: self.clone(),
        };
        buffer.bytes.reserve(bytes.saturating_sub(buffer.bytes.len()));
        buffer
    }

    /// Ordered by capacity; the largest give way, of which there are most.
    fn put(&self, buffer: Vec<u8>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let held: usize = free.iter().map(Vec::capacity).sum();
        if held + buffer.capacity() <= self.bytes_max {
            let place = free.partition_point(|other| other.capacity() < buffer.capacity());
            free.insert(place, buffer);
        }
    }
}

impl PooledBuffer {
    /// Of this length. What an earlier use has left in it is not cleared: it MUST be overwritten.
    pub fn with_length(mut self, bytes: usize) -> Self {
        self.bytes.resize(bytes, 0);
        self
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        self.pool.put(mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again() {
        let pool = BufferPool::new(1 << 20);
        let first = pool.take(5_000).with_length(5_000);
        let place = first.bytes.as_ptr();
        drop(first);
        let small = pool.take(100).with_length(100);
        assert_eq!(small.bytes.as_ptr(), place, "any will do");
        assert_eq!(small.bytes.len(), 100);
        assert_ne!(pool.take(100).bytes.as_ptr(), place, "but only once");
    }

    #[test]
    fn the_smallest_that_fits_is_taken() {
        let pool = BufferPool::new(1 << 20);
        let (small, large) = (pool.take(1_000), pool.take(100_000));
        let place = small.bytes.as_ptr();
        drop(large);
        drop(small);
        assert_eq!(pool.take(500).bytes.as_ptr(), place);
    }

    #[test]
    fn no_more_than_the_bound_is_kept() {
        let pool = BufferPool::new(10_000);
        let buffers: Vec<_> = (0..5).map(|_| pool.take(4_000)).collect();
        drop(buffers);
        let free = pool.free.lock().unwrap();
        assert_eq!(free.len(), 2);
    }
}
