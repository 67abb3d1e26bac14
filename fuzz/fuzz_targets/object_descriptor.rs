//! The object descriptor. A checksum guards it, which no fuzzer guesses; so the input is tried as it is, and once more
//! with the checksum put right, as a hostile bucket would.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_base::{BlockSum, ObjectDescriptor};

const FIXED_BYTES: usize = 56;
const SUM_BYTES: usize = 8;
const COUNT_OFFSET: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    round_trip(bytes);
    round_trip(&with_right_sum(bytes.to_vec()));
});

fn round_trip(bytes: &[u8]) {
    if let Ok(descriptor) = ObjectDescriptor::decode(bytes) {
        let encoded = descriptor.encode();
        assert_eq!(encoded, &bytes[..encoded.len()], "decoding and encoding differ");
        assert_eq!(descriptor.encoded_bytes(), encoded.len());
        for block in descriptor.blocks() {
            assert_eq!(descriptor.find(block.pvbn), Some(block));
        }
    }
}

fn with_right_sum(mut bytes: Vec<u8>) -> Vec<u8> {
    let Some(count) = bytes.get(COUNT_OFFSET..COUNT_OFFSET + 2) else {
        return bytes;
    };
    let count = usize::from(u16::from_le_bytes([count[0], count[1]]));
    let sum_offset = ObjectDescriptor::encoded_bytes_for(count) - SUM_BYTES;
    if sum_offset >= FIXED_BYTES && bytes.len() >= sum_offset + SUM_BYTES {
        let sum = BlockSum::of(&bytes[..sum_offset]).0.to_le_bytes();
        bytes[sum_offset..sum_offset + SUM_BYTES].copy_from_slice(&sum);
    }
    bytes
}
