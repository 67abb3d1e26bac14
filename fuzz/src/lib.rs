//! What the targets share: a connection whose bytes come from the fuzzer and whose replies are kept.

use std::io::{self, IoSlice};
use std::sync::Mutex;
use tombolo_nbd::connection::TimedSource;
use tombolo_transport::{Sink, Source};

/// The fuzzer's bytes, then the end of the stream.
pub struct Bytes<'a>(pub &'a [u8]);

impl Source for Bytes<'_> {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.0.len());
        let (head, tail) = self.0.split_at(count);
        buffer[..count].copy_from_slice(head);
        self.0 = tail;
        Ok(count)
    }
}

impl TimedSource for Bytes<'_> {}

/// Keeps what the server sends.
#[derive(Default)]
pub struct Kept(pub Mutex<Vec<u8>>);

impl Sink for Kept {
    fn send(&self, slices: &[IoSlice<'_>], _wait: bool) -> io::Result<usize> {
        let mut kept = self.0.lock().expect("no sender panics");
        slices.iter().for_each(|slice| kept.extend_from_slice(slice));
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn close(&self) {}
}
