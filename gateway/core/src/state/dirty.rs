//! Dirty blocks: acknowledged, not yet in the cloud. A queue in PVBN order, which is journal order, and a map from
//! (volume, block) to the dirty PVBN that the block maps to now.

use crate::format::record::Lsn;
use crate::state::ages::Ages;
use crate::state::extent_map::{Extent, ExtentMap, Target};
use alloc::{collections::VecDeque, vec::Vec};
use tombolo_base::{Instant, Lcbn, Pvbn, VolumeId};

/// How far a dirty block has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Queued,
    /// Its slot could not be read; it is queued again when it is to be read again.
    Unreadable,
    /// A hash job reads it.
    Hashing,
    /// It waits in the open object, or an upload carries it.
    Packed,
    /// It equals a block that is not known to be in the cloud yet, and is redirected there once it is.
    AwaitsOriginal,
    /// Gone; swept when it reaches the front.
    Gone,
}

impl Stage {
    /// Nothing is under way for it, so it can be taken out at once.
    pub fn is_at_rest(self) -> bool {
        matches!(self, Self::Queued | Self::Unreadable)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct DirtyBlock {
    pub pvbn: Pvbn,
    pub slot: Lcbn,
    pub volume: VolumeId,
    pub block: u64,
    pub stage: Stage,
}

/// Blocks that were superseded.
#[derive(Debug, Default)]
pub struct Superseded {
    /// Nothing needs them any more.
    pub gone: Vec<DirtyBlock>,
    /// A job holds them, or a recovery point needs them.
    pub kept: Vec<DirtyBlock>,
}

/// Blocks that are gone may take as many places as those that are not, and these besides: so each is passed over once.
const GONE_SPARE: usize = 64;

#[derive(Debug)]
pub struct Dirty {
    queue: VecDeque<DirtyBlock>,
    live: ExtentMap,
    ages: Ages,
    /// PVBNs below the first are journaled below the second.
    positions: VecDeque<(Pvbn, Lsn)>,
    /// Every PVBN below this has a durable journal record.
    durable: Pvbn,
    /// Blocks below this have left the stage `Queued`.
    cursor: Pvbn,
    count: usize,
    /// Those among them that no hash job has taken.
    queued: usize,
}

impl Dirty {
    /// None yet; they wait for others for as long as is said.
    pub fn new(delay_ms: u64) -> Self {
        Self {
            queue: VecDeque::new(),
            live: ExtentMap::default(),
            ages: Ages::new(delay_ms),
            positions: VecDeque::new(),
            durable: Pvbn(0),
            cursor: Pvbn(0),
            count: 0,
            queued: 0,
        }
    }

    /// Blocks that are not in the cloud, corrupt ones left out.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Blocks that wait to be hashed.
    pub fn queued(&self) -> usize {
        self.queued
    }

    pub fn push(&mut self, now: Instant, block: DirtyBlock) {
        self.ages.note(block.pvbn, now);
        self.restore(block);
    }

    /// What was written before the checkpoint, of which [`Self::restore_age`] has told the age.
    pub fn restore(&mut self, block: DirtyBlock) {
        assert!(
            self.queue.back().is_none_or(|last| last.pvbn < block.pvbn),
            "the queue is in the order of PVBNs"
        );
        self.live.insert(Extent {
            volume: block.volume,
            first: block.block,
            count: 1,
            target: Target::At(block.pvbn),
        });
        self.queue.push_back(block);
        self.count += 1;
        self.queued += usize::from(block.stage == Stage::Queued);
    }

    /// From the last checkpoint, before any block is there.
    pub fn restore_age(&mut self, first: Pvbn, at: Instant) {
        self.ages.note(first, at);
    }

    /// After the last [`Self::restore`].
    pub fn trim_ages(&mut self) {
        self.ages.trim(self.first_pvbn());
    }

    /// First PVBN written at or after each instant.
    pub fn ages(&self) -> impl Iterator<Item = (Pvbn, Instant)> {
        self.ages.iter()
    }

    /// Every PVBN below `pvbn` is journaled below `lsn`.
    pub fn journaled(&mut self, pvbn: Pvbn, lsn: Lsn) {
        assert!(
            self.positions.back().is_none_or(|last| *last < (pvbn, lsn)),
            "PVBNs are journaled in their order"
        );
        self.positions.push_back((pvbn, lsn));
    }

    pub fn on_durable(&mut self, durable: Lsn) {
        while let Some((pvbn, lsn)) = self.positions.front()
            && *lsn <= durable
        {
            self.durable = self.durable.max(*pvbn);
            self.positions.pop_front();
        }
    }

    pub fn set_durable(&mut self, pvbn: Pvbn) {
        self.durable = self.durable.max(pvbn);
    }

    pub fn find(&self, pvbn: Pvbn) -> Option<&DirtyBlock> {
        let index = self.index(pvbn)?;
        (self.queue[index].stage != Stage::Gone).then(|| &self.queue[index])
    }

    /// When the block was written; not later than the truth.
    pub fn written_at(&self, pvbn: Pvbn) -> Option<Instant> {
        self.ages.of(pvbn)
    }

    /// Whether the block still maps to this dirty PVBN.
    pub fn is_live(&self, block: &DirtyBlock) -> bool {
        self.live
            .get(block.volume, block.block)
            .is_some_and(|extent| extent.target == Target::At(block.pvbn))
    }

    pub fn set_stage(&mut self, pvbn: Pvbn, stage: Stage) {
        if let Some(index) = self.index(pvbn) {
            self.queued -= usize::from(self.queue[index].stage == Stage::Queued);
            self.queued += usize::from(stage == Stage::Queued);
            self.queue[index].stage = stage;
        }
    }

    /// The blocks of the range map to something else now. Those that did until now and are at rest are taken out, but for
    /// those that are `needed`; the others are found dead when their job ends.
    pub fn supersede(
        &mut self,
        volume: VolumeId,
        first: u64,
        end: u64,
        is_needed: impl Fn(&DirtyBlock) -> bool,
    ) -> Superseded {
        if self.live.is_empty() {
            return Superseded::default();
        }
        let mut dead = Vec::new();
        self.live.take(volume, first, end, |extent| dead.push(extent));
        self.take_dead(dead, is_needed)
    }

    /// As [`Self::supersede`], but [`Self::sweep`] returns the blocks, bit by bit. None of them is live from now on.
    pub fn supersede_later(&mut self, volume: VolumeId, first: u64, end: u64) {
        if !self.live.is_empty() {
            self.live.cover(volume, first, end, None);
        }
    }

    /// Up to `count` blocks of what is left of ranges that map to something else.
    pub fn sweep(&mut self, count: u64, is_needed: impl Fn(&DirtyBlock) -> bool) -> Superseded {
        let (mut dead, mut left) = (Vec::new(), count);
        while left > 0
            && let Some(extent) = self.live.sweep(left)
        {
            left -= extent.count;
            dead.push(extent);
        }
        match dead.is_empty() {
            true => Superseded::default(),
            false => self.take_dead(dead, is_needed),
        }
    }

    pub fn is_sweeping(&self) -> bool {
        self.live.has_covers()
    }

    fn take_dead(&mut self, extents: Vec<Extent>, is_needed: impl Fn(&DirtyBlock) -> bool) -> Superseded {
        let mut dead = Superseded::default();
        for extent in extents {
            let Target::At(first) = extent.target else { continue };
            let index = self.queue.partition_point(|block| block.pvbn < first);
            let blocks = self.queue.range_mut(index..);
            for block in blocks.take_while(|block| block.pvbn < first.plus(extent.count)) {
                if block.stage == Stage::Gone {
                    continue;
                }
                if block.stage.is_at_rest() && !is_needed(block) {
                    dead.gone.push(*block);
                    self.queued -= usize::from(block.stage == Stage::Queued);
                    block.stage = Stage::Gone;
                    self.count -= 1;
                } else {
                    dead.kept.push(*block);
                }
            }
        }
        self.pass_gone();
        dead
    }

    /// Takes a block out: uploaded, a duplicate, dead or lost.
    pub fn remove(&mut self, pvbn: Pvbn) -> Option<DirtyBlock> {
        let index = self.index(pvbn)?;
        let block = self.queue[index];
        if block.stage == Stage::Gone {
            return None;
        }
        assert!(self.count > 0);
        self.queued -= usize::from(block.stage == Stage::Queued);
        self.queue[index].stage = Stage::Gone;
        self.count -= 1;
        if self.is_live(&block) {
            self.live.remove(block.volume, block.block, block.block + 1);
        }
        self.pass_gone();
        Some(block)
    }

    /// Nobody looks again and again at what is gone: not at the front, and not where the next block to hash is looked for.
    fn pass_gone(&mut self) {
        while self.queue.front().is_some_and(|front| front.stage == Stage::Gone) {
            self.queue.pop_front();
        }
        let index = self.queue.partition_point(|block| block.pvbn < self.cursor);
        for block in self.queue.range(index..) {
            if block.stage == Stage::Queued {
                break;
            }
            self.cursor = block.pvbn.plus(1);
        }
        self.forget_gone();
        self.ages.trim(self.first_pvbn());
    }

    /// One block that stays, in a store's outage for hours, holds up all behind it: what is gone there must not pile up.
    fn forget_gone(&mut self) {
        if self.queue.len() > 2 * self.count + GONE_SPARE {
            self.queue.retain(|block| block.stage != Stage::Gone);
        }
    }

    /// Up to `count` queued blocks below `target` whose records are durable; they become `Hashing`.
    pub fn take_for_hashing(&mut self, target: Pvbn, count: usize) -> Vec<DirtyBlock> {
        let limit = target.min(self.durable);
        let mut index = self.queue.partition_point(|block| block.pvbn < self.cursor);
        let mut taken = Vec::new();
        while taken.len() < count
            && let Some(block) = self.queue.get_mut(index)
            && block.pvbn < limit
        {
            if block.stage == Stage::Queued {
                assert!(
                    block.pvbn < self.durable,
                    "only what a crash cannot undo leaves for the cloud"
                );
                block.stage = Stage::Hashing;
                self.queued -= 1;
                taken.push(*block);
            }
            self.cursor = block.pvbn.plus(1);
            index += 1;
        }
        taken
    }

    /// Puts a block back into the queue to be hashed again. False: it is gone meanwhile, lost or replaced.
    pub fn requeue(&mut self, pvbn: Pvbn) -> bool {
        let is_there = self.find(pvbn).is_some();
        if is_there {
            self.set_stage(pvbn, Stage::Queued);
            self.cursor = self.cursor.min(pvbn);
        }
        is_there
    }

    /// Whether blocks below `target` still wait to be hashed, and whether the next of them is durable.
    pub fn waiting(&self, target: Pvbn) -> Option<bool> {
        let mut index = self.queue.partition_point(|block| block.pvbn < self.cursor);
        while let Some(block) = self.queue.get(index)
            && block.pvbn < target
        {
            if block.stage == Stage::Queued {
                return Some(block.pvbn < self.durable);
            }
            index += 1;
        }
        None
    }

    pub fn first_pvbn(&self) -> Option<Pvbn> {
        self.queue.front().map(|block| block.pvbn)
    }

    /// When the oldest dirty block was written; not later than the truth.
    pub fn oldest(&self) -> Option<Instant> {
        self.ages.of(self.first_pvbn()?)
    }

    /// When the oldest block was written that no hash job has taken yet.
    pub fn oldest_queued(&self) -> Option<Instant> {
        let index = self.queue.partition_point(|block| block.pvbn < self.cursor);
        let queued = self.queue.range(index..).find(|block| block.stage == Stage::Queued)?;
        self.ages.of(queued.pvbn)
    }

    /// The blocks that are live.
    pub fn live_blocks(&self) -> impl Iterator<Item = &DirtyBlock> {
        let there = self.queue.iter().filter(|block| block.stage != Stage::Gone);
        there.filter(|block| self.is_live(block))
    }

    /// Checks what must always hold; for tests.
    pub fn check_invariants(&self) {
        self.live.check_invariants();
        let there = self.queue.iter().filter(|block| block.stage != Stage::Gone);
        let (count, queued) = there.fold((0, 0), |(count, queued), block| {
            (count + 1, queued + usize::from(block.stage == Stage::Queued))
        });
        assert_eq!((count, queued), (self.count, self.queued));
        let mut passed = self.queue.iter().take_while(|block| block.pvbn < self.cursor);
        assert!(passed.all(|block| block.stage != Stage::Queued));
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.queue.capacity() * size_of::<DirtyBlock>() + self.live.len() * 64) as u64
    }

    fn index(&self, pvbn: Pvbn) -> Option<usize> {
        let index = self.queue.partition_point(|block| block.pvbn < pvbn);
        (self.queue.get(index)?.pvbn == pvbn).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_gone_is_not_hashed_again() {
        let mut dirty = Dirty::new(5_000);
        for pvbn in [7, 8].map(Pvbn) {
            let (slot, volume, block) = (Lcbn(pvbn.0 as u32), VolumeId(1), pvbn.0);
            let stage = Stage::Queued;
            dirty.push(
                Instant(0),
                DirtyBlock {
                    pvbn,
                    slot,
                    volume,
                    block,
                    stage,
                },
            );
        }
        dirty.set_durable(Pvbn(9));
        assert_eq!(dirty.take_for_hashing(Pvbn(9), 10).len(), 2);
        dirty.remove(Pvbn(8));
        assert_eq!([dirty.requeue(Pvbn(7)), dirty.requeue(Pvbn(8))], [true, false]);
        let again = dirty.take_for_hashing(Pvbn(9), 10);
        assert_eq!(again.iter().map(|block| block.pvbn).collect::<Vec<_>>(), [Pvbn(7)]);
        assert_eq!(dirty.len(), 1);
    }

    #[test]
    fn overwrites_behind_a_block_that_stays_take_no_memory() {
        let mut dirty = Dirty::new(5_000);
        let write = |dirty: &mut Dirty, pvbn: u64, block: u64| {
            dirty.supersede(VolumeId(1), block, block + 1, |_| false);
            let block = DirtyBlock {
                pvbn: Pvbn(pvbn),
                slot: Lcbn(pvbn as u32),
                volume: VolumeId(1),
                block,
                stage: Stage::Queued,
            };
            dirty.push(Instant(0), block);
        };
        for pvbn in 0..100_000 {
            write(&mut dirty, pvbn, pvbn.min(10 + pvbn % 5));
            assert!(dirty.queue.len() <= 2 * dirty.len() + GONE_SPARE);
        }
        assert_eq!(dirty.first_pvbn(), Some(Pvbn(0)), "the block that stays");
        dirty.check_invariants();
        dirty.set_durable(Pvbn(100_000));
        let left = dirty.take_for_hashing(Pvbn(100_000), usize::MAX);
        assert_eq!(left.len(), dirty.len());
        let last = left.last().map(|block| (block.pvbn, block.block));
        assert_eq!(last, Some((Pvbn(99_999), 14)));
    }
}
