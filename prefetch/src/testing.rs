//! What the tests of the policies share: reads, and access patterns with known structure.

use crate::{Access, ClientId, Gaps, Outcome, Pattern, Prefetcher, Residency, Suggestion};
use std::collections::BTreeSet;
use tombolo_base::{Instant, Prng, VolumeId};

pub(crate) fn read(first: u64, count: u64) -> Access {
    Access {
        client: ClientId(0),
        volume: VolumeId(1),
        first,
        count,
        outcome: Outcome::Miss,
        prefetched: 0,
    }
}

/// Reads with the outcome that a cache of unlimited size would give, fetches taking no time.
pub(crate) struct EndlessCache {
    resident: BTreeSet<u64>,
    unread: BTreeSet<u64>,
    pub(crate) prefetched: u64,
    pub(crate) used: u64,
    pub(crate) missed: u64,
    now: Instant,
    suggestions: Vec<Suggestion>,
}

impl EndlessCache {
    pub(crate) fn new() -> Self {
        Self {
            resident: BTreeSet::new(),
            unread: BTreeSet::new(),
            prefetched: 0,
            used: 0,
            missed: 0,
            now: Instant(1),
            suggestions: Vec::new(),
        }
    }

    /// One read; what the policy suggested is resident afterwards and returned as (first, count).
    pub(crate) fn read(&mut self, policy: &mut dyn Prefetcher, first: u64, count: u64) -> Vec<(u64, u64)> {
        self.now = self.now.plus_millis(1);
        let hit = (first..first + count).all(|block| self.resident.contains(&block));
        let prefetched = (first..first + count).filter(|block| self.unread.remove(block)).count() as u64;
        self.used += prefetched;
        self.missed += u64::from(!hit);
        self.resident.extend(first..first + count);
        let access = Access {
            outcome: if hit { Outcome::Hit } else { Outcome::Miss },
            prefetched,
            ..read(first, count)
        };
        self.suggestions.clear();
        let _: Pattern = policy.on_read(self.now, access, &mut self.suggestions);
        policy.check_invariants();
        assert!(self.suggestions.len() <= crate::SUGGESTIONS_MAX);
        for suggestion in &self.suggestions {
            assert!(suggestion.count > 0 && suggestion.end() <= crate::BLOCKS_MAX);
            assert!(
                suggestion
                    .trigger
                    .is_none_or(|t| (suggestion.first..suggestion.end()).contains(&t))
            );
            let is_meant = |block: &u64| {
                let within = |gaps: Gaps| (block - suggestion.first) % gaps.period_blocks < gaps.part_blocks;
                suggestion.gaps.is_none_or(within)
            };
            for block in (suggestion.first..suggestion.end()).filter(is_meant) {
                if self.resident.insert(block) {
                    self.unread.insert(block);
                    self.prefetched += 1;
                }
            }
        }
        self.suggestions.iter().map(|s| (s.first, s.count)).collect()
    }

    /// A share of what was prefetched, in percent; a hundred when nothing was.
    pub(crate) fn efficiency_percent(&self) -> u64 {
        (self.used * 100).checked_div(self.prefetched).unwrap_or(100)
    }
}

/// Blocks that a policy suggests for uniformly random single reads.
pub(crate) fn suggested_for_random_reads(policy: &mut dyn Prefetcher, reads: u64) -> u64 {
    let mut prng = Prng::new(7);
    let mut cache = EndlessCache::new();
    (0..reads)
        .flat_map(|_| cache.read(policy, prng.below(1 << 40), 1))
        .map(|(_, count)| count)
        .sum()
}

struct EvenAtHand;

impl Residency for EvenAtHand {
    fn is_at_hand(&mut self, _volume: VolumeId, block: u64) -> bool {
        block.is_multiple_of(2)
    }
}

/// Any sequence of reads and feedback, however absurd, leaves a policy intact.
pub(crate) fn withstands_anything(policy: &mut dyn Prefetcher, seed: u64) {
    let mut prng = Prng::new(seed);
    let mut now = Instant(0);
    let mut suggestions = Vec::new();
    let corner = |prng: &mut Prng| match prng.below(6) {
        0 => u64::MAX - prng.below(3),
        1 => crate::BLOCKS_MAX - prng.below(70),
        2 => 0,
        _ => prng.below(300),
    };
    for _ in 0..2_000 {
        now = now.plus_micros(if prng.chance(10) {
            u64::MAX / 64
        } else {
            prng.below(100_000)
        });
        let volume = if prng.chance(100) {
            VolumeId::of_inode(prng.next_u64() >> 1)
        } else {
            VolumeId(prng.below(3))
        };
        let (first, count) = (
            corner(&mut prng),
            if prng.chance(50) {
                corner(&mut prng)
            } else {
                prng.below(80)
            },
        );
        match prng.below(10) {
            0..7 => {
                suggestions.clear();
                let outcome = [Outcome::Hit, Outcome::Partial, Outcome::Miss][prng.below(3) as usize];
                let client = ClientId(prng.below(3) as u32);
                let prefetched = prng.below(count.max(1));
                let access = Access {
                    client,
                    volume,
                    first,
                    count,
                    outcome,
                    prefetched,
                };
                policy.on_read_of(now, access, &mut EvenAtHand, &mut suggestions);
                assert!(suggestions.len() <= crate::SUGGESTIONS_MAX);
                for suggestion in &suggestions {
                    assert!(suggestion.count > 0 && suggestion.end() <= crate::BLOCKS_MAX);
                }
            }
            7..9 => {
                let prefetch_outcome = [
                    crate::PrefetchOutcome::Arrived {
                        waited: prng.chance(500),
                    },
                    crate::PrefetchOutcome::Aged,
                    crate::PrefetchOutcome::Evicted { aged: prng.chance(500) },
                    crate::PrefetchOutcome::Dropped,
                ][prng.below(4) as usize];
                let tag = suggestions
                    .first()
                    .map_or(crate::Tag(prng.next_u64() as u32), |s| s.tag);
                policy.on_feedback(
                    now,
                    crate::Feedback {
                        volume,
                        first,
                        count,
                        tag,
                        prefetch_outcome,
                    },
                );
            }
            _ if prng.chance(20) => policy.forget_volume(volume),
            _ if prng.chance(100) => policy.resize(corner(&mut prng)),
            _ => policy.on_tick(now),
        }
        policy.check_invariants();
    }
}
