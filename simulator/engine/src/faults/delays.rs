//! How long everything takes. The one place where the world's latencies are drawn, in microseconds.

use tombolo_base::Prng;

/// Bounds of a uniform draw.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub micros_min: u64,
    pub micros_max: u64,
}

const fn range(micros_min: u64, micros_max: u64) -> Range {
    Range { micros_min, micros_max }
}

#[derive(Clone, Debug)]
pub struct Delays {
    pub slots_write: Range,
    pub slots_read: Range,
    pub journal_write: Range,
    pub sync: Range,
    pub metadata_read: Range,
    pub checkpoint: Range,
    pub hash: Range,
    pub put: Range,
    pub get: Range,
    pub client_think: Range,
    /// One operation in a thousand/`tail_permille` takes up to this many times as long.
    pub tail_permille: u64,
    pub tail_factor_max: u64,
}

impl Delays {
    /// From a fast local disk with a near store to the reverse; the overlap of operations matters, not realism.
    pub fn draw(prng: &mut Prng) -> Self {
        let disk = 1 + prng.below(8);
        let cloud = 1 + prng.below(20);
        Self {
            slots_write: range(10, 120 * disk),
            slots_read: range(10, 100 * disk),
            journal_write: range(10, 80 * disk),
            sync: range(100, 1_000 * disk),
            metadata_read: range(5, 150 * disk),
            checkpoint: range(200, 3_000 * disk),
            hash: range(20, 600),
            put: range(500, 10_000 * cloud),
            get: range(300, 5_000 * cloud),
            client_think: range(0, 1 + prng.below(2_000)),
            tail_permille: prng.below(30),
            tail_factor_max: 2 + prng.below(100),
        }
    }

    pub fn of(&self, range: Range, prng: &mut Prng) -> u64 {
        let micros = range.micros_min + prng.below(range.micros_max - range.micros_min + 1);
        if prng.chance(self.tail_permille) {
            micros * (1 + prng.below(self.tail_factor_max))
        } else {
            micros
        }
    }
}
