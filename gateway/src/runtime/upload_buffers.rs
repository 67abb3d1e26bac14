//! Blocks between hashing and upload: what a hash job has read and verified is kept for the upload, which would otherwise
//! read and verify it again. It is a matter of speed alone: what is not here, or was given up for newer blocks, is read in the
//! cache file. A PVBN names the same contents for ever, so what is kept is never stale.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use tombolo_base::{BLOCK_BYTES, Pvbn};
use tombolo_cloud_driver::PooledBuffer;

#[derive(Debug)]
pub struct UploadBuffers {
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In the order in which they came.
    buffers: BTreeMap<u64, Buffer>,
    bytes: usize,
    next: u64,
    blocks: HashMap<Pvbn, (u64, usize)>,
}

/// The blocks of one hash job.
#[derive(Debug)]
struct Buffer {
    bytes: Arc<PooledBuffer>,
    pvbns: Vec<Pvbn>,
    /// How many of them are still kept.
    left: usize,
}

/// One block of a buffer.
#[derive(Clone, Debug)]
pub struct KeptBlock {
    buffer: Arc<PooledBuffer>,
    index: usize,
}

impl KeptBlock {
    pub fn bytes(&self) -> &[u8] {
        &self.buffer.bytes[self.index * BLOCK_BYTES..][..BLOCK_BYTES]
    }
}

impl UploadBuffers {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            state: Mutex::default(),
        }
    }

    /// Keeps blocks of what was read: `blocks` are their places in it. The oldest give way.
    pub fn keep(&self, buffer: PooledBuffer, blocks: Vec<(Pvbn, usize)>) {
        if blocks.is_empty() || buffer.bytes.len() > self.bytes_max {
            return;
        }
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.bytes += buffer.bytes.len();
        for (pvbn, index) in &blocks {
            if let Some((before, _)) = state.blocks.insert(*pvbn, (number, *index)) {
                state.release(before);
            }
        }
        let buffer = Buffer {
            bytes: Arc::new(buffer),
            left: blocks.len(),
            pvbns: blocks.into_iter().map(|(pvbn, _)| pvbn).collect(),
        };
        state.buffers.insert(number, buffer);
        while state.bytes > self.bytes_max {
            state.drop_oldest();
        }
    }

    /// The block, if it is kept; it is not any more after this.
    pub fn take(&self, pvbn: Pvbn) -> Option<KeptBlock> {
        let mut state = self.state();
        let (number, index) = state.blocks.remove(&pvbn)?;
        let buffer = state.buffers.get(&number)?;
        let kept = KeptBlock {
            buffer: buffer.bytes.clone(),
            index,
        };
        state.release(number);
        Some(kept)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// One of its blocks is not kept there any more.
    fn release(&mut self, number: u64) {
        if let Some(buffer) = self.buffers.get_mut(&number) {
            buffer.left -= 1;
            if buffer.left == 0 {
                self.drop_buffer(number);
            }
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(number) = self.buffers.keys().next().copied() {
            self.drop_buffer(number);
        }
    }

    fn drop_buffer(&mut self, number: u64) {
        let Some(buffer) = self.buffers.remove(&number) else {
            return;
        };
        self.bytes -= buffer.bytes.bytes.len();
        for pvbn in buffer.pvbns {
            // It may have been read a second time since.
            if self.blocks.get(&pvbn).is_some_and(|(found, _)| *found == number) {
                self.blocks.remove(&pvbn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_cloud_driver::BufferPool;

    fn block(content: u8) -> Vec<u8> {
        vec![content; BLOCK_BYTES]
    }

    fn of(pvbns: &[u64]) -> (PooledBuffer, Vec<(Pvbn, usize)>) {
        let mut buffer = BufferPool::new(0).take(0);
        buffer.bytes.clear();
        buffer.bytes.extend(pvbns.iter().flat_map(|pvbn| block(*pvbn as u8)));
        let places = pvbns.iter().enumerate();
        (buffer, places.map(|(index, pvbn)| (Pvbn(*pvbn), index)).collect())
    }

    fn keep(buffers: &UploadBuffers, pvbns: &[u64]) {
        let (buffer, blocks) = of(pvbns);
        buffers.keep(buffer, blocks);
    }

    #[test]
    fn a_block_is_taken_once_and_is_the_right_one() {
        let buffers = UploadBuffers::new(4 * BLOCK_BYTES);
        keep(&buffers, &[3, 5, 9]);
        for pvbn in [5, 3] {
            assert_eq!(buffers.take(Pvbn(pvbn)).unwrap().bytes(), block(pvbn as u8));
            assert!(buffers.take(Pvbn(pvbn)).is_none());
        }
        assert!(buffers.take(Pvbn(4)).is_none());
        assert_eq!(buffers.state().bytes, 3 * BLOCK_BYTES);
        buffers.take(Pvbn(9)).unwrap();
        assert_eq!(buffers.state().bytes, 0, "an empty buffer is given up");
    }

    #[test]
    fn the_oldest_give_way() {
        let buffers = UploadBuffers::new(4 * BLOCK_BYTES);
        keep(&buffers, &[1, 2]);
        keep(&buffers, &[3, 4]);
        keep(&buffers, &[5]);
        assert!(buffers.take(Pvbn(1)).is_none() && buffers.take(Pvbn(2)).is_none());
        assert!(buffers.take(Pvbn(3)).is_some() && buffers.take(Pvbn(5)).is_some());
        keep(&buffers, &[6, 7, 8, 9, 10]);
        assert!(
            buffers.take(Pvbn(6)).is_none(),
            "what is larger than the bound is not kept"
        );
        assert!(buffers.take(Pvbn(4)).is_some(), "and drives nothing out");
        assert!(buffers.state().blocks.is_empty() && buffers.state().bytes == 0);
    }

    #[test]
    fn what_is_read_again_replaces_what_was_kept() {
        let buffers = UploadBuffers::new(4 * BLOCK_BYTES);
        keep(&buffers, &[1, 2]);
        keep(&buffers, &[1]);
        keep(&buffers, &[3, 4]);
        assert!(buffers.take(Pvbn(2)).is_none(), "the first buffer gave way");
        assert_eq!(buffers.take(Pvbn(1)).unwrap().bytes(), block(1), "not the second");
    }

    #[test]
    fn nothing_is_kept_without_room() {
        let buffers = UploadBuffers::new(0);
        keep(&buffers, &[1]);
        assert!(buffers.take(Pvbn(1)).is_none());
    }
}
