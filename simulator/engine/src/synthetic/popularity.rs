//! Which of many is chosen: the rank by a law like Zipf's, and what stands at that rank, which changes.

use crate::random;
use tombolo_base::Prng;

/// Members 0 to n-1 in an order of popularity.
#[derive(Clone, Debug)]
pub struct Popularity {
    order: Vec<u32>,
    exponent: f64,
}

impl Popularity {
    /// The popular ones lie anywhere. `members` is above zero, `exponent` below 1.
    pub fn new(prng: &mut Prng, members: u32, exponent: f64) -> Self {
        let mut order: Vec<u32> = (0..members).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, prng.below(last as u64 + 1) as usize);
        }
        Self { order, exponent }
    }

    pub fn draw(&self, prng: &mut Prng) -> usize {
        self.order[rank(prng, self.order.len(), self.exponent)] as usize
    }

    /// Any member, by no preference.
    pub fn any(&self, prng: &mut Prng) -> usize {
        prng.below(self.order.len() as u64) as usize
    }

    /// So many in a thousand change places with any other.
    pub fn drift(&mut self, prng: &mut Prng, permille: u64) {
        for at in 0..self.order.len() {
            if prng.chance(permille) {
                let other = self.any(prng);
                self.order.swap(at, other);
            }
        }
    }
}

/// From zero; the continuous law of the same exponent, cut into ranks, so that no table is needed.
fn rank(prng: &mut Prng, ranks: usize, exponent: f64) -> usize {
    let power = 1.0 - exponent;
    let end = (ranks as f64 + 1.0).powf(power) - 1.0;
    let place = (1.0 + random::unit(prng) * end).powf(1.0 / power);
    (place as usize - 1).min(ranks - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_law() {
        let prng = &mut Prng::new(1);
        let mut counts = [0u32; 100];
        (0..200_000).for_each(|_| counts[rank(prng, 100, 0.8)] += 1);
        assert!(counts.iter().all(|count| *count > 0));
        // Of the tenth and the hundredth rank.
        let ratio = f64::from(counts[9]) / f64::from(counts[99]);
        assert!((5.0..7.5).contains(&ratio), "{ratio}");
    }

    #[test]
    fn drift_keeps_every_member() {
        let prng = &mut Prng::new(2);
        let mut popularity = Popularity::new(prng, 500, 0.8);
        let before = popularity.order.clone();
        popularity.drift(prng, 80);
        let moved = before.iter().zip(&popularity.order).filter(|(a, b)| a != b).count();
        assert!((40..130).contains(&moved), "{moved}");
        popularity.order.sort_unstable();
        assert!(popularity.order.iter().copied().eq(0..500));
    }
}
