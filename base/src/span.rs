//! Ranges of blocks, and what is changed beside the blocks that are written.

use crate::{EntryChange, VolumeId};
use alloc::vec::Vec;

/// Blocks `first..first + count` of a volume or a file, in units of [`crate::BLOCK_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Whose blocks: a volume's or a file's.
    pub volume: VolumeId,
    /// The first block.
    pub first: u64,
    /// How many blocks.
    pub count: u64,
}

impl Span {
    /// Of the file with this inode number.
    pub fn of_file(inode: u64, first: u64, count: u64) -> Self {
        let volume = VolumeId::of_inode(inode);
        Self { volume, first, count }
    }

    /// The first block behind it.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    /// What lies before a part of the span, and what lies behind it.
    pub fn around(&self, part: Option<Self>) -> [Self; 2] {
        let nothing = Self {
            first: self.end(),
            count: 0,
            ..*self
        };
        let part = part.unwrap_or(nothing);
        let before = Self {
            count: part.first - self.first,
            ..*self
        };
        let behind = Self {
            first: part.end(),
            count: self.end() - part.end(),
            ..*self
        };
        [before, behind]
    }

    /// Whether some block is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.volume == other.volume && self.first < other.end() && other.first < self.end()
    }
}

/// What happens in one step: after a crash all of it is there, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataChange {
    /// In the order in which they count.
    pub entries: Vec<EntryChange>,
    /// Blocks that become holes. The whole range of a file may be given; what is not mapped costs nothing.
    pub holes: Vec<Span>,
}
