//! Names of what is written, so that as much of it is new after deduplication as the paper prints. Assumed: a write is new
//! or a copy as a whole, what is copied was written within the trace, and the recent is copied rather than the old.

use crate::random;
use tombolo_base::Prng;

/// Gives out names 1, 2, 3 and so on; zero is a block of zeroes.
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    new_share: f64,
    given: u64,
}

impl Contents {
    /// `new_share` of all blocks get names of their own.
    pub fn new(new_share: f64) -> Self {
        Self { new_share, given: 0 }
    }

    /// Of a write's blocks.
    pub fn of_write(&mut self, prng: &mut Prng, blocks: u64) -> Vec<u64> {
        let is_new = random::unit(prng) < self.new_share;
        if is_new || self.given < blocks {
            let first = self.given + 1;
            self.given += blocks;
            return (first..first + blocks).collect();
        }
        // How long ago, in blocks: any order of magnitude is as likely as any other.
        let range = self.given as f64 / blocks as f64;
        let back = (blocks as f64 * range.powf(random::unit(prng))) as u64;
        let first = self.given - back.clamp(blocks, self.given) + 1;
        (first..first + blocks).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_new_names_is_as_asked() {
        let prng = &mut Prng::new(1);
        let mut contents = Contents::new(0.7);
        let mut named = 0;
        for _ in 0..50_000 {
            let blocks = 1 + prng.below(16);
            let names = contents.of_write(prng, blocks);
            assert_eq!(names.len() as u64, blocks);
            assert!(names.iter().all(|name| (1..=contents.given).contains(name)));
            named += blocks;
        }
        let share = contents.given as f64 / named as f64;
        assert!((share - 0.7).abs() < 0.01, "{share}");
    }
}
