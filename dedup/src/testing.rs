//! Keys for unit tests.

use tombolo_base::{Fingerprint, Prng};

/// A key that orders as `number` does.
pub(crate) fn key(number: u64) -> Fingerprint {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    Fingerprint(bytes)
}

/// Uniform keys, ascending.
pub(crate) fn random_keys(seed: u64, count: usize) -> Vec<Fingerprint> {
    let mut prng = Prng::new(seed);
    let mut keys: Vec<Fingerprint> = (0..count)
        .map(|_| {
            let mut bytes = [0; 32];
            prng.fill(&mut bytes);
            Fingerprint(bytes)
        })
        .collect();
    keys.sort_unstable();
    keys
}
