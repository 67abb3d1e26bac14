//! The negotiation, fed whole and fed in two pieces: same answers, no panic, no reply out of proportion.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_nbd::handshake::{Handshake, Step};
use tombolo_nbd::memory::{MemoryDisk, MemoryExports};

/// Per byte of input: the densest request is a LIST of 16 bytes, answered with two names.
const REPLY_BYTES_PER_INPUT_BYTE: usize = 16;
const GREETING_BYTES: usize = 18 + 10 + 124;

fuzz_target!(|bytes: &[u8]| {
    let whole = negotiate(bytes, usize::MAX);
    let cut = bytes.first().map_or(1, |byte| usize::from(*byte) + 1);
    let pieces = negotiate(bytes, cut);
    assert_eq!(whole, pieces, "the answers depend on how the bytes arrive");
    assert!(whole.0.len() <= GREETING_BYTES + REPLY_BYTES_PER_INPUT_BYTE * bytes.len());
});

/// The replies, and how it ended. Input grows by `piece` bytes whenever more is needed.
fn negotiate(bytes: &[u8], piece: usize) -> (Vec<u8>, &'static str) {
    let exports = MemoryExports(vec![
        ("a".into(), MemoryDisk::new(1 << 20, false)),
        ("b".into(), MemoryDisk::new(1 << 20, true)),
    ]);
    let mut out = Vec::new();
    let mut handshake = Handshake::new(1 << 16, &mut out);
    let (mut start, mut end) = (0, piece.min(bytes.len()));
    loop {
        match handshake.step(&bytes[start..end], &exports, &mut out) {
            Err(_) => return (out, "violation"),
            Ok(Step::NeedMore { .. }) if end == bytes.len() => return (out, "end of stream"),
            Ok(Step::NeedMore { bytes_min }) => {
                assert!(bytes_min > end - start, "asks for what it has");
                end = end.saturating_add(piece).min(bytes.len());
            }
            Ok(Step::Continue { consumed }) => {
                assert!(consumed > 0, "no progress");
                start += consumed;
            }
            Ok(Step::Finished { .. }) => return (out, "finished"),
            Ok(Step::Transmission { .. }) => return (out, "transmission"),
        }
    }
}
