//! Stand-ins for contents: a sum names what a block holds, and its fingerprint is made of the sum. Equal contents have
//! equal sums; different ones collide no sooner than random numbers of 64 bits.

use super::latency::mix;
use tombolo_base::{BlockSum, Fingerprint, Pvbn};

const PRELOADED: u64 = 0x7072_656c;
const NAMED: u64 = 0x6e61_6d65;
const FRESH: u64 = 0x6672_6573;

/// What a block held before the trace began; equal to nothing else.
pub fn of_preloaded(pvbn: Pvbn) -> BlockSum {
    BlockSum(mix(mix(PRELOADED) ^ pvbn.0))
}

/// Contents that the trace names.
pub fn named(name: u64) -> BlockSum {
    BlockSum(mix(mix(NAMED) ^ name))
}

/// Contents of a block that nothing is known of: new ones, each time.
pub fn fresh(number: u64) -> BlockSum {
    BlockSum(mix(mix(FRESH) ^ number))
}

pub fn fingerprint(sum: BlockSum) -> Fingerprint {
    let mut bytes = [0; 32];
    bytes
        .chunks_exact_mut(8)
        .for_each(|word| word.copy_from_slice(&sum.0.to_le_bytes()));
    Fingerprint(bytes)
}

/// The sum that a fingerprint was made of.
pub fn sum(fingerprint: &Fingerprint) -> BlockSum {
    let mut word = [0; 8];
    word.copy_from_slice(&fingerprint.0[..8]);
    BlockSum(u64::from_le_bytes(word))
}
