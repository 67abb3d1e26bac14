//! An interval map from (volume, block) to what the block maps to. Neighbours that continue each other are one extent,
//! so a sequential write of any length costs one entry.

use alloc::{collections::BTreeMap, vec::Vec};
use core::ops::Bound;
use tombolo_base::{Pvbn, VolumeId};

/// What a run of blocks maps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Reads as zeroes.
    Hole,
    /// The run's first block; the others follow it one by one.
    At(Pvbn),
}

impl Target {
    /// The target `count` blocks further on.
    pub fn plus(self, count: u64) -> Self {
        match self {
            Self::Hole => Self::Hole,
            Self::At(pvbn) => Self::At(pvbn.plus(count)),
        }
    }
}

/// A run of consecutive blocks of one volume with consecutive targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub volume: VolumeId,
    pub first: u64,
    pub count: u64,
    pub target: Target,
}

impl Extent {
    pub fn end(&self) -> u64 {
        self.first + self.count
    }
}

#[derive(Clone, Debug, Default)]
pub struct ExtentMap {
    runs: BTreeMap<(VolumeId, u64), (u64, Target)>,
}

impl ExtentMap {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number of extents, the measure of its memory.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// The part, from `block` on, of the extent that covers `block`.
    pub fn get(&self, volume: VolumeId, block: u64) -> Option<Extent> {
        let (&(found, first), &(count, target)) = self.runs.range(..=(volume, block)).next_back()?;
        let skipped = block - first.min(block);
        (found == volume && skipped < count).then(|| Extent {
            volume,
            first: block,
            count: count - skipped,
            target: target.plus(skipped),
        })
    }

    /// First block at or after `block` that an extent covers, if it lies before `end`.
    pub fn next_start(&self, volume: VolumeId, block: u64, end: u64) -> Option<u64> {
        if block >= end {
            return None;
        }
        if self.get(volume, block).is_some() {
            return Some(block);
        }
        self.runs
            .range((volume, block)..(volume, end))
            .next()
            .map(|((_, first), _)| *first)
    }

    /// The first volume from `volume` on with an extent that is not a hole.
    pub fn next_mapped(&self, volume: VolumeId) -> Option<VolumeId> {
        self.runs
            .range((volume, 0)..)
            .find(|(_, (_, target))| *target != Target::Hole)
            .map(|((volume, _), _)| *volume)
    }

    /// The first block from `block` on, before `end`, that an extent maps to something.
    pub fn next_mapped_block(&self, volume: VolumeId, block: u64, end: u64) -> Option<u64> {
        if self
            .get(volume, block)
            .is_some_and(|extent| extent.target != Target::Hole)
        {
            return Some(block);
        }
        self.runs
            .range((volume, block)..(volume, end.max(block)))
            .find(|(_, (_, target))| *target != Target::Hole)
            .map(|((_, first), _)| *first)
    }

    /// The parts of extents that lie within the range, in order.
    pub fn overlaps(&self, volume: VolumeId, first: u64, end: u64) -> Vec<Extent> {
        let mut found = Vec::new();
        let mut block = first;
        while let Some(start) = self.next_start(volume, block, end) {
            let Some(mut extent) = self.get(volume, start) else {
                break;
            };
            extent.count = extent.count.min(end - start);
            block = extent.end();
            found.push(extent);
        }
        found
    }

    /// Maps the extent's blocks, in place of whatever they mapped to.
    pub fn insert(&mut self, extent: Extent) {
        if extent.count == 0 {
            return;
        }
        self.remove(extent.volume, extent.first, extent.end());
        let mut merged = extent;
        if let Some(before) = extent
            .first
            .checked_sub(1)
            .and_then(|block| self.run_at(extent.volume, block))
            && before.target.plus(before.count) == extent.target
        {
            self.runs.remove(&(before.volume, before.first));
            merged = Extent {
                count: before.count + merged.count,
                ..before
            };
        }
        if let Some(&(count, target)) = self.runs.get(&(extent.volume, extent.end()))
            && extent.target.plus(extent.count) == target
        {
            self.runs.remove(&(extent.volume, extent.end()));
            merged.count += count;
        }
        self.runs
            .insert((merged.volume, merged.first), (merged.count, merged.target));
    }

    /// Forgets the blocks `first..end`.
    pub fn remove(&mut self, volume: VolumeId, first: u64, end: u64) {
        if first >= end {
            return;
        }
        if let Some(run) = self.run_at(volume, first)
            && run.first < first
        {
            self.runs.insert((volume, run.first), (first - run.first, run.target));
            self.put_tail(run, end);
        }
        while let Some((&(_, start), &(count, target))) = self.runs.range((volume, first)..(volume, end)).next() {
            self.runs.remove(&(volume, start));
            self.put_tail(
                Extent {
                    volume,
                    first: start,
                    count,
                    target,
                },
                end,
            );
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.runs.iter().map(|(&(volume, first), &(count, target))| Extent {
            volume,
            first,
            count,
            target,
        })
    }

    /// The extents from `block` on, of the one that covers it the part behind.
    pub fn iter_from(&self, volume: VolumeId, block: u64) -> impl Iterator<Item = Extent> + '_ {
        let later = (Bound::Excluded((volume, block)), Bound::Unbounded);
        let later = self
            .runs
            .range(later)
            .map(|(&(volume, first), &(count, target))| Extent {
                volume,
                first,
                count,
                target,
            });
        self.get(volume, block).into_iter().chain(later)
    }

    fn put_tail(&mut self, run: Extent, end: u64) {
        if run.end() > end {
            self.runs
                .insert((run.volume, end), (run.end() - end, run.target.plus(end - run.first)));
        }
    }

    /// The whole extent that covers `block`.
    fn run_at(&self, volume: VolumeId, block: u64) -> Option<Extent> {
        let (&(found, first), &(count, target)) = self.runs.range(..=(volume, block)).next_back()?;
        (found == volume && block - first < count).then_some(Extent {
            volume,
            first,
            count,
            target,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap as Model;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u64, u64, Option<u64>),
        Remove(u64, u64, u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let span = (0u64..2, 0u64..40, 0u64..12);
        prop::collection::vec(
            prop_oneof![
                (span.clone(), prop::option::of(0u64..60)).prop_map(|((v, f, c), t)| Step::Insert(v, f, c, t)),
                span.prop_map(|(v, f, c)| Step::Remove(v, f, c)),
            ],
            0..60,
        )
    }

    proptest! {
        #[test]
        fn equals_a_map_of_single_blocks(steps in steps()) {
            let mut map = ExtentMap::default();
            let mut model: Model<(u64, u64), Target> = Model::new();
            for step in steps {
                match step {
                    Step::Insert(volume, first, count, pvbn) => {
                        let target = pvbn.map_or(Target::Hole, |pvbn| Target::At(Pvbn(pvbn)));
                        map.insert(Extent { volume: VolumeId(volume), first, count, target });
                        for index in 0..count {
                            model.insert((volume, first + index), target.plus(index));
                        }
                    }
                    Step::Remove(volume, first, count) => {
                        map.remove(VolumeId(volume), first, first + count);
                        for index in 0..count {
                            model.remove(&(volume, first + index));
                        }
                    }
                }
                for volume in 0..2u64 {
                    for block in 0..55u64 {
                        let found = map.get(VolumeId(volume), block).map(|extent| extent.target);
                        prop_assert_eq!(found, model.get(&(volume, block)).copied());
                    }
                    let listed: u64 = map.overlaps(VolumeId(volume), 3, 30).iter().map(|extent| extent.count).sum();
                    prop_assert_eq!(listed as usize, model.range((volume, 3)..(volume, 30)).count());
                }
                let runs: Vec<Extent> = map.iter().collect();
                for pair in runs.windows(2) {
                    let joinable = pair[0].volume == pair[1].volume
                        && pair[0].end() == pair[1].first
                        && pair[0].target.plus(pair[0].count) == pair[1].target;
                    prop_assert!(!joinable, "neighbours are merged");
                }
            }
        }
    }
}
