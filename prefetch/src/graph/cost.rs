//! What fetching a candidate takes of the budget that its source's degree is.

use super::history::{READ_BLOCKS_MAX, Range};
use crate::table::{Address, Table};
use crate::{Access, Residency};
use tombolo_base::VolumeId;

/// Which blocks of candidates use up a node's degree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// All of them.
    Every,
    /// Those that are not at hand, as far as the caller can be asked.
    Absent,
}

/// So much of a cache may have been read since a block was for it to count as read lately.
const RECENTLY_READ_DIVISOR: u64 = 8;

/// The blocks that were read last.
#[derive(Debug)]
pub(super) struct RecentlyRead {
    blocks: Table<()>,
    age_max: u64,
}

impl RecentlyRead {
    pub(super) fn new(cache_blocks: u64) -> Self {
        let age_max = cache_blocks / RECENTLY_READ_DIVISOR;
        Self {
            blocks: Table::bounded(age_max),
            age_max,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.blocks.bytes()
    }

    pub(super) fn note(&mut self, access: &Access) {
        for block in access.first..access.end().min(access.first + READ_BLOCKS_MAX) {
            self.blocks.insert(Address::new(access.volume, block), ());
        }
    }

    fn contains(&self, volume: VolumeId, block: u64) -> bool {
        let age = self.blocks.age(Address::new(volume, block));
        age.is_some_and(|age| age < self.age_max)
    }
}

/// Of a caller that cannot be asked.
pub(super) struct NothingAtHand;

impl Residency for NothingAtHand {
    fn is_at_hand(&mut self, _volume: VolumeId, _block: u64) -> bool {
        false
    }
}

pub(super) struct Cost<'a> {
    pub(super) budget: Budget,
    /// Where what was read lately and has been evicted since is passed over.
    pub(super) recently_read: Option<&'a RecentlyRead>,
    pub(super) residency: &'a mut dyn Residency,
}

impl Cost<'_> {
    /// In blocks; none: the candidate is passed over. One that is at hand is not, as the rest of its track may be absent.
    pub(super) fn of(&mut self, range: Range) -> Option<u64> {
        if self.budget == Budget::Every && self.recently_read.is_none() {
            return Some(range.count);
        }
        let mut absent = 0;
        for block in range.first..range.first + range.count {
            if self.residency.is_at_hand(range.volume, block) {
                continue;
            }
            // Reads cover whole nodes, so one block speaks for all.
            let is_recent = |recent: &RecentlyRead| recent.contains(range.volume, block);
            if self.recently_read.is_some_and(is_recent) {
                return None;
            }
            absent += 1;
        }
        Some(match self.budget {
            Budget::Every => range.count,
            Budget::Absent => absent,
        })
    }
}
