//! An interval map from (volume, block) to what the block maps to. Neighbours that continue each other are one extent,
//! so a sequential write of any length costs one entry.
//!
//! A range with very many extents is replaced in two steps: a *cover* says at once what it maps to, and the extents under
//! it are removed bit by bit.

use alloc::{collections::BTreeMap, vec::Vec};
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
    /// Whose blocks.
    pub volume: VolumeId,
    /// The first of them.
    pub first: u64,
    /// Blocks, at least one.
    pub count: u64,
    /// What the first maps to.
    pub target: Target,
}

impl Extent {
    /// Behind the last block.
    pub fn end(&self) -> u64 {
        self.first + self.count
    }
}

/// Extents of all volumes; what none covers is not known here.
#[derive(Clone, Debug, Default)]
pub struct ExtentMap {
    runs: BTreeMap<(VolumeId, u64), (u64, Target)>,
    /// What ranges map to, if to anything, whatever the runs in them say. No run crosses an edge of a cover.
    covers: BTreeMap<(VolumeId, u64), (u64, Option<Target>)>,
}

/// A range that maps to something else than the runs within it say.
#[derive(Clone, Copy)]
struct Cover {
    first: u64,
    count: u64,
    target: Option<Target>,
}

impl Cover {
    fn end(&self) -> u64 {
        self.first + self.count
    }
}

impl ExtentMap {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.covers.is_empty()
    }

    /// Number of extents, the measure of its memory.
    pub(crate) fn len(&self) -> usize {
        self.runs.len() + self.covers.len()
    }

    /// Whether [`Self::sweep`] has something to do.
    pub(crate) fn has_covers(&self) -> bool {
        !self.covers.is_empty()
    }

    /// The part, from `block` on, of the extent that covers `block`.
    pub(crate) fn get(&self, volume: VolumeId, block: u64) -> Option<Extent> {
        let (first, count, target) = match self.cover_at(volume, block) {
            Some(cover) => (cover.first, cover.count, cover.target?),
            None => {
                let run = self.run_at(volume, block)?;
                (run.first, run.count, run.target)
            }
        };
        let skipped = block - first;
        Some(Extent {
            volume,
            first: block,
            count: count - skipped,
            target: target.plus(skipped),
        })
    }

    /// First block at or after `block` that an extent covers, if it lies before `end`.
    pub(crate) fn next_start(&self, volume: VolumeId, block: u64, end: u64) -> Option<u64> {
        if block >= end {
            return None;
        }
        if self.get(volume, block).is_some() {
            return Some(block);
        }
        let next = self.extents_from(volume, block).next()?;
        (next.volume == volume && next.first < end).then_some(next.first)
    }

    /// The first volume from `volume` on with an extent that is not a hole.
    pub(crate) fn next_mapped(&self, volume: VolumeId) -> Option<VolumeId> {
        self.iter_from(volume, 0)
            .find(|extent| extent.target != Target::Hole)
            .map(|extent| extent.volume)
    }

    /// The first block from `block` on, before `end`, that an extent maps to something.
    pub(crate) fn next_mapped_block(&self, volume: VolumeId, block: u64, end: u64) -> Option<u64> {
        self.iter_from(volume, block)
            .take_while(|extent| extent.volume == volume && extent.first < end)
            .find(|extent| extent.target != Target::Hole)
            .map(|extent| extent.first)
    }

    /// The parts of extents that lie within the range, in order.
    pub(crate) fn overlaps(&self, volume: VolumeId, first: u64, end: u64) -> Vec<Extent> {
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
    pub(crate) fn insert(&mut self, extent: Extent) {
        self.replace(extent, |_| {});
    }

    /// As [`Self::insert`], and tells what they mapped to, as [`Self::take`] does.
    pub(crate) fn replace(&mut self, extent: Extent, replaced: impl FnMut(Extent)) {
        if extent.count == 0 {
            return;
        }
        self.take(extent.volume, extent.first, extent.end(), replaced);
        let mut merged = extent;
        if let Some(before) = extent
            .first
            .checked_sub(1)
            .filter(|block| self.cover_at(extent.volume, *block).is_none())
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
            && !self.covers.contains_key(&(extent.volume, extent.end()))
            && extent.target.plus(extent.count) == target
        {
            self.runs.remove(&(extent.volume, extent.end()));
            merged.count += count;
        }
        self.runs
            .insert((merged.volume, merged.first), (merged.count, merged.target));
    }

    /// Forgets the blocks `first..end`.
    pub(crate) fn remove(&mut self, volume: VolumeId, first: u64, end: u64) {
        self.take(volume, first, end, |_| {});
    }

    /// Forgets the blocks `first..end`, and tells what [`Self::sweep`] would have said of them besides.
    pub(crate) fn take(&mut self, volume: VolumeId, first: u64, end: u64, mut taken: impl FnMut(Extent)) {
        if first >= end {
            return;
        }
        self.cut(volume, first);
        self.cut(volume, end);
        while let Some((&(_, start), _)) = self.covers.range((volume, first)..(volume, end)).next() {
            self.covers.remove(&(volume, start));
        }
        while let Some(run) = self.first_run(volume, first, end) {
            self.runs.remove(&(volume, run.first));
            taken(run);
        }
    }

    /// Maps the blocks `first..end` to `target`, or to nothing, in little time however many extents there were. Those take
    /// memory until [`Self::sweep`] has named them.
    pub(crate) fn cover(&mut self, volume: VolumeId, first: u64, end: u64, target: Option<Target>) {
        if first >= end {
            return;
        }
        self.cut(volume, first);
        self.cut(volume, end);
        while let Some((&(_, start), _)) = self.covers.range((volume, first)..(volume, end)).next() {
            self.covers.remove(&(volume, start));
        }
        self.covers.insert((volume, first), (end - first, target));
    }

    /// Removes an extent from under a cover, or the first `count_max` blocks of one. `None`: there is nothing left.
    pub(crate) fn sweep(&mut self, count_max: u64) -> Option<Extent> {
        while let Some((&(volume, first), &(count, target))) = self.covers.first_key_value() {
            if let Some(run) = self.first_run(volume, first, first + count) {
                self.runs.remove(&(volume, run.first));
                let swept = run.count.min(count_max);
                self.put_tail(run, run.first + swept);
                return Some(Extent { count: swept, ..run });
            }
            self.covers.remove(&(volume, first));
            if let Some(target) = target {
                self.insert(Extent {
                    volume,
                    first,
                    count,
                    target,
                });
            }
        }
        None
    }

    /// All extents, by volume and block; of those under a cover only the cover.
    pub fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.extents_from(VolumeId(0), 0)
    }

    /// The extents from `block` on, of the one that covers it the part behind.
    pub(crate) fn iter_from(&self, volume: VolumeId, block: u64) -> impl Iterator<Item = Extent> + '_ {
        let part = self.get(volume, block);
        let behind = part.map_or(block, |part| part.end());
        part.into_iter().chain(self.extents_from(volume, behind))
    }

    /// The extents that begin at `block` or behind it.
    fn extents_from(&self, volume: VolumeId, block: u64) -> impl Iterator<Item = Extent> + '_ {
        let cover = self.cover_at(volume, block).filter(|cover| cover.first < block);
        let from = (volume, cover.map_or(block, |cover| cover.end()));
        let mut runs = self.runs.range(from..).peekable();
        let mut covers = self.covers.range(from..).peekable();
        core::iter::from_fn(move || {
            loop {
                let run = runs.peek().map(|(place, _)| **place);
                let is_covered = |place: &(VolumeId, u64)| run.is_none_or(|run| *place <= run);
                let Some((&(volume, first), &(count, target))) = covers.next_if(|(place, _)| is_covered(place)) else {
                    return runs.next().map(extent_of);
                };
                runs = self.runs.range((volume, first + count)..).peekable();
                if let Some(target) = target {
                    return Some(Extent {
                        volume,
                        first,
                        count,
                        target,
                    });
                }
            }
        })
    }

    /// Checks what must always hold; for tests.
    pub(crate) fn check_invariants(&self) {
        for (&(volume, first), (count, _)) in &self.covers {
            for edge in [first, first + count] {
                let crossing = self.run_at(volume, edge).filter(|run| run.first < edge);
                assert!(crossing.is_none(), "{crossing:?} crosses a cover's edge");
            }
            let inner = self.covers.range((volume, first + 1)..(volume, first + count));
            assert_eq!(inner.count(), 0, "covers do not overlap");
        }
    }

    /// Splits the cover and the run that go on at `block`.
    fn cut(&mut self, volume: VolumeId, block: u64) {
        if let Some(run) = self.run_at(volume, block).filter(|run| run.first < block) {
            self.runs.insert((volume, run.first), (block - run.first, run.target));
            self.put_tail(run, block);
        }
        if let Some(cover) = self.cover_at(volume, block).filter(|cover| cover.first < block) {
            let before = block - cover.first;
            self.covers.insert((volume, cover.first), (before, cover.target));
            let target = cover.target.map(|target| target.plus(before));
            self.covers.insert((volume, block), (cover.count - before, target));
        }
    }

    fn first_run(&self, volume: VolumeId, first: u64, end: u64) -> Option<Extent> {
        self.runs.range((volume, first)..(volume, end)).next().map(extent_of)
    }

    fn cover_at(&self, volume: VolumeId, block: u64) -> Option<Cover> {
        if self.covers.is_empty() {
            return None;
        }
        let (&(found, first), &(count, target)) = self.covers.range(..=(volume, block)).next_back()?;
        (found == volume && block - first < count).then_some(Cover { first, count, target })
    }

    fn put_tail(&mut self, run: Extent, end: u64) {
        if run.end() > end {
            self.runs
                .insert((run.volume, end), (run.end() - end, run.target.plus(end - run.first)));
        }
    }

    /// The whole run that holds `block`, under a cover or not.
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

fn extent_of((&(volume, first), &(count, target)): (&(VolumeId, u64), &(u64, Target))) -> Extent {
    Extent {
        volume,
        first,
        count,
        target,
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
        /// What its blocks map to; nothing takes them out.
        Cover(u64, u64, u64, Option<Target>),
        Sweep(u64),
    }

    fn target_of(pvbn: Option<u64>) -> Target {
        pvbn.map_or(Target::Hole, |pvbn| Target::At(Pvbn(pvbn)))
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let span = (0u64..2, 0u64..40, 0u64..12);
        let target = prop::option::of(0u64..60).prop_map(target_of);
        prop::collection::vec(
            prop_oneof![
                (span.clone(), prop::option::of(0u64..60)).prop_map(|((v, f, c), t)| Step::Insert(v, f, c, t)),
                span.clone().prop_map(|(v, f, c)| Step::Remove(v, f, c)),
                (span, prop::option::of(target)).prop_map(|((v, f, c), t)| Step::Cover(v, f, c, t)),
                (1u64..8).prop_map(Step::Sweep),
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
                        let target = target_of(pvbn);
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
                    Step::Cover(volume, first, count, target) => {
                        map.cover(VolumeId(volume), first, first + count, target);
                        for index in 0..count {
                            model.remove(&(volume, first + index));
                            model.extend(target.map(|target| ((volume, first + index), target.plus(index))));
                        }
                    }
                    Step::Sweep(count_max) => {
                        let swept = map.sweep(count_max);
                        prop_assert!(swept.is_none_or(|swept| (1..=count_max).contains(&swept.count)));
                        prop_assert_eq!(swept.is_none(), !map.has_covers());
                    }
                }
                map.check_invariants();
                for volume in 0..2u64 {
                    for block in 0..55u64 {
                        let found = map.get(VolumeId(volume), block).map(|extent| extent.target);
                        prop_assert_eq!(found, model.get(&(volume, block)).copied());
                    }
                    let listed: u64 = map.overlaps(VolumeId(volume), 3, 30).iter().map(|extent| extent.count).sum();
                    prop_assert_eq!(listed as usize, model.range((volume, 3)..(volume, 30)).count());
                }
                let runs: Vec<Extent> = map.iter().collect();
                prop_assert_eq!(runs.iter().map(|extent| extent.count).sum::<u64>() as usize, model.len());
                let mapped = |block: &u64| matches!(model.get(&(0, *block)), Some(Target::At(_)));
                for block in [0, 7, 20] {
                    let expected = (block..30).find(mapped);
                    prop_assert_eq!(map.next_mapped_block(VolumeId(0), block, 30), expected);
                    let expected = (block..30).find(|block| model.contains_key(&(0, *block)));
                    prop_assert_eq!(map.next_start(VolumeId(0), block, 30), expected);
                }
                if map.has_covers() {
                    continue;
                }
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
