//! What other replacement policies would make of the same accesses: a cache of metadata alone for each, over a sample of
//! the blocks.
//!
//! Source: Waldspurger et al., SHARDS, FAST'15: what a hash picks out of all blocks, in a cache that is smaller in
//! proportion, misses about as often as all of them do in the whole cache. Groups of neighbours are sampled together. A
//! policy that looks for runs, as SARC does, sees them cut off at the groups' ends and is left out, and so is the GDS
//! family, whose costs belong to fetches. Nothing is prefetched and nothing is dirty here: figures of these caches compare
//! with each other, not with what a gateway achieves.

use crate::key_index::mix;
use crate::{Capacity, Grouping, KeyedCache, Policy};
use alloc::vec::Vec;

/// Policies that are compared.
pub const COMPARED: [Policy; 7] = [
    Policy::Lru,
    Policy::Arc,
    Policy::TwoQ,
    Policy::Lirs,
    Policy::S3Fifo,
    Policy::Sieve,
    Policy::WTinyLfu,
];
/// Blocks that are sampled together.
const GROUP_BLOCKS: u64 = 16;
/// Sampled slots of each policy at the most; some 100 bytes each.
const SLOTS_MAX: u32 = 4096;
/// Of a small cache, too, no more than one block in so many costs its share of time.
const SAMPLED_ONE_IN_MIN: u32 = 8;
/// Blocks that are forgotten at a time.
const FORGOTTEN_BLOCKS_MAX: u64 = 1 << 14;
/// A cache below this is compared as a whole, since nothing would be left of it.
const SLOTS_WHOLE: u32 = 1024;

/// Caches of [`COMPARED`] policies over the same sample.
pub struct Alternatives {
    /// Groups whose hash is not above it are sampled.
    hash_max: u64,
    caches: Vec<(KeyedCache, u64)>,
    reads: u64,
}

/// What one policy has hit so far, of [`Alternatives::reads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// Which.
    pub policy: Policy,
    /// Sampled blocks read that its cache held.
    pub hits: u64,
}

impl Alternatives {
    /// For a cache of so many slots.
    pub fn new(slot_count: u32) -> Self {
        let one_in = match slot_count {
            ..SLOTS_WHOLE => 1,
            _ => slot_count.div_ceil(SLOTS_MAX).max(SAMPLED_ONE_IN_MIN),
        };
        let capacity = Capacity::of_blocks((slot_count / one_in).max(1));
        let cache = |policy: Policy| (KeyedCache::new(capacity, policy.build(capacity, Grouping::Slots)), 0);
        Self {
            hash_max: u64::MAX / u64::from(one_in),
            caches: COMPARED.map(cache).into(),
            reads: 0,
        }
    }

    /// A block was read, from the cache or not; `address` is the one by which a cache keeps it.
    pub fn read(&mut self, address: u64) {
        if !self.is_sampled(address) {
            return;
        }
        self.reads += 1;
        for (cache, hits) in &mut self.caches {
            *hits += u64::from(cache.access(address));
        }
    }

    /// A block was written, which brings it into the cache and counts as no read.
    pub fn write(&mut self, address: u64) {
        if self.is_sampled(address) {
            self.caches.iter_mut().for_each(|(cache, _)| {
                cache.access(address);
            });
        }
    }

    /// Nobody will read these any more, as their places were written anew.
    pub fn forget(&mut self, first: u64, count: u64) {
        // What is larger goes as other blocks come: to look at each of them takes too long.
        let end = first + count.min(FORGOTTEN_BLOCKS_MAX);
        for address in first..end {
            if self.is_sampled(address) {
                self.caches.iter_mut().for_each(|(cache, _)| cache.remove(address));
            }
        }
    }

    /// Sampled blocks read so far.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// In the order of [`COMPARED`].
    pub fn results(&self) -> impl Iterator<Item = Alternative> {
        let policies = COMPARED.into_iter().zip(&self.caches);
        policies.map(|(policy, (_, hits))| Alternative { policy, hits: *hits })
    }

    fn is_sampled(&self, address: u64) -> bool {
        // The first group, too, has a hash of its own: zero stays zero when it is mixed.
        mix(address / GROUP_BLOCKS + 1) <= self.hash_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tombolo_base::Prng;

    fn hits(alternatives: &Alternatives, policy: Policy) -> u64 {
        let found = alternatives.results().find(|result| result.policy == policy);
        found.expect("it is compared").hits
    }

    proptest! {
        /// A small cache is compared as a whole, and then each is the policy itself.
        #[test]
        fn of_a_small_cache_every_count_is_exact(
            accesses in prop::collection::vec((0u64..400, 0u8..8), 1..2_000),
            slots in 8u32..300,
        ) {
            let mut alternatives = Alternatives::new(slots);
            let capacity = Capacity::of_blocks(slots);
            for &(address, kind) in &accesses {
                match kind {
                    0 => alternatives.forget(address, 3),
                    1..3 => alternatives.write(address),
                    _ => alternatives.read(address),
                }
            }
            prop_assert_eq!(alternatives.reads(), accesses.iter().filter(|(_, kind)| *kind >= 3).count() as u64);
            for Alternative { policy, hits } in alternatives.results() {
                let mut cache = KeyedCache::new(capacity, policy.build(capacity, Grouping::Slots));
                let mut expected = 0;
                for &(address, kind) in &accesses {
                    match kind {
                        0 => (address..address + 3).for_each(|gone| cache.remove(gone)),
                        _ => expected += u64::from(cache.access(address) && kind >= 3),
                    }
                }
                prop_assert_eq!(hits, expected, "{}", policy.name());
            }
        }
    }

    /// Skewed reads of runs: what the sample says is what the whole cache does, within two points.
    #[test]
    fn a_sample_misses_as_the_whole_does() {
        let slots = 1 << 17;
        let mut alternatives = Alternatives::new(slots);
        let capacity = Capacity::of_blocks(slots);
        let mut whole: Vec<_> = COMPARED
            .map(|policy| (KeyedCache::new(capacity, policy.build(capacity, Grouping::Slots)), 0u64))
            .into();
        let (mut prng, mut reads) = (Prng::new(7), 0u64);
        for _ in 0..400_000 {
            let place = prng.below(1 << 20).min(prng.below(1 << 20)).min(prng.below(1 << 20));
            for address in place..place + 4 {
                reads += 1;
                alternatives.read(address);
                whole
                    .iter_mut()
                    .for_each(|(cache, hits)| *hits += u64::from(cache.access(address)));
            }
        }
        assert!(alternatives.reads() * 20 < reads, "a thirty-second is looked at");
        for (policy, (_, expected)) in COMPARED.into_iter().zip(&whole) {
            let sampled = hits(&alternatives, policy) as f64 / alternatives.reads() as f64;
            let exact = *expected as f64 / reads as f64;
            assert!((sampled - exact).abs() < 0.02, "{}: {sampled} {exact}", policy.name());
        }
    }

    /// The canary of all that is made of it: a loop a little larger than the cache defeats LRU alone.
    #[test]
    fn a_loop_tells_policies_apart() {
        let slots = 1 << 15;
        let mut alternatives = Alternatives::new(slots);
        for _ in 0..6 {
            (0..u64::from(slots) * 5 / 4).for_each(|address| alternatives.read(address));
        }
        let share = |policy| hits(&alternatives, policy) as f64 / alternatives.reads() as f64;
        assert!(share(Policy::Lru) < 0.05, "{}", share(Policy::Lru));
        assert!(share(Policy::Lirs) > 0.5, "{}", share(Policy::Lirs));
    }
}
