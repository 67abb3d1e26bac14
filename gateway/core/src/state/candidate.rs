//! What is left of a prefetcher's suggestion while what lies there is looked up.

use crate::state::prefetched::PrefetchTag;
use tombolo_base::VolumeId;
use tombolo_prefetch::{Class, Gaps, Likelihood, Tag};

/// What is left of a suggestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub volume: VolumeId,
    pub first: u64,
    pub count: u64,
    /// What of it is not meant, counted from the block `origin`.
    pub gaps: Option<Gaps>,
    pub origin: u64,
    pub class: Class,
    pub likelihood: Likelihood,
    pub tag: Tag,
    pub generation: u32,
    /// How many pieces of metadata are yet brought before anything of it is fetched, so that all that lies in one object is one
    /// request. Afterwards what is known goes at once.
    pub gathers: u16,
}

impl Candidate {
    pub fn rest_at(&self, first: u64) -> Self {
        let count = (self.first + self.count).saturating_sub(first);
        Self { first, count, ..*self }
    }

    /// From a block on: blocks that are not meant, then blocks that are.
    pub fn gap_and_part(&self, block: u64) -> (u64, u64) {
        let Some(gaps) = self.gaps else {
            return (0, u64::MAX);
        };
        let passed = (block - self.origin) % gaps.period_blocks;
        match gaps.part_blocks.checked_sub(passed) {
            None | Some(0) => (gaps.period_blocks - passed, gaps.part_blocks),
            Some(left) => (0, left),
        }
    }

    pub fn prefetch_tag(&self, block: u64) -> PrefetchTag {
        PrefetchTag {
            volume: self.volume,
            block,
            class: self.class,
            tag: self.tag,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against looking at each block.
        #[test]
        fn gaps_are_passed_over(origin in 0u64..100, part_blocks in 1u64..9, gap in 0u64..9, from in 0u64..60) {
            let period_blocks = part_blocks + gap;
            let candidate = Candidate {
                volume: VolumeId(1),
                first: origin + from,
                count: 100,
                gaps: Some(Gaps { period_blocks, part_blocks }),
                origin,
                class: Class::History,
                likelihood: Likelihood::ONE,
                tag: Tag(0),
                generation: 0,
                gathers: 0,
            };
            let mut found = Vec::new();
            let mut block = candidate.first;
            while block < candidate.first + candidate.count {
                let (gap, part) = candidate.gap_and_part(block);
                found.extend(block + gap..block + gap + part);
                block += gap + part;
            }
            let expected: Vec<u64> = (candidate.first..block).filter(|at| (at - origin) % period_blocks < part_blocks).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
