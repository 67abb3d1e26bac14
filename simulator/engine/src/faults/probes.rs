//! What recovery must refuse, or survive without losing what was flushed: looks at a damaged copy of the disk that a
//! killed gateway left.

use crate::faults::disk::{CacheCopy, Disk};
use crate::faults::scenario::Canary;
use crate::faults::world::World;
use tombolo_base::{BlockSum, Instant, Lcbn, Prng};
use tombolo_core::JournalMark;
use tombolo_core::cache_header::{CacheHeader, Mark};
use tombolo_core::recovery::{LocalDisk, LostBlocks, RecoveryError, load_superblock, lost_blocks, recover};

#[derive(Clone, Copy, Debug)]
enum Damage {
    /// None, but the settings say another number of slots.
    OtherSize,
    /// The cache file is not there.
    CacheMissing,
    /// It is another directory's.
    CacheForeign,
    /// The last segment is not there.
    SegmentMissing,
    /// No segment is.
    JournalMissing,
    /// Zeroes from this byte of the last segment on.
    Zeroed(usize),
    /// The last segment ends at this byte.
    Cut(usize),
    /// This bit of this segment is flipped.
    Flipped(u64, usize),
}

/// A disk with something wrong.
struct Damaged<'a> {
    disk: &'a Disk,
    damage: Damage,
    last: u64,
}

impl LocalDisk for Damaged<'_> {
    fn segments(&self) -> Result<Vec<u64>, String> {
        let mut segments = self.disk.segments()?;
        match self.damage {
            Damage::SegmentMissing => segments.retain(|number| *number != self.last),
            Damage::JournalMissing => segments.clear(),
            _ => {}
        }
        Ok(segments)
    }

    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String> {
        let mut bytes = self.disk.read_segment(segment)?;
        match self.damage {
            Damage::Zeroed(from) if segment == self.last => bytes[from..].fill(0),
            Damage::Cut(length) if segment == self.last => bytes.truncate(length),
            Damage::Flipped(number, bit) if segment == number => bytes[bit / 8] ^= 1 << (bit % 8),
            _ => {}
        }
        Ok(bytes)
    }

    fn cache_header(&self) -> Result<Option<Vec<u8>>, String> {
        let foreign = CacheHeader {
            identity: 0,
            slot_count: 1,
            mark: Mark::default(),
        };
        match self.damage {
            Damage::CacheMissing => Ok(None),
            Damage::CacheForeign => Ok(Some(foreign.encode())),
            _ => self.disk.cache_header(),
        }
    }

    fn noted_beside(&self, identity: u64) -> JournalMark {
        self.disk.noted_beside(identity)
    }

    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        self.disk.sum_slot(slot)
    }
}

/// A disk to which an older copy of the cache file was put back.
struct WithOlderCache<'a> {
    disk: &'a Disk,
    copy: &'a CacheCopy,
    /// What the copy says that it notes.
    mark: Mark,
}

impl LocalDisk for WithOlderCache<'_> {
    fn segments(&self) -> Result<Vec<u64>, String> {
        self.disk.segments()
    }

    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String> {
        self.disk.read_segment(segment)
    }

    fn cache_header(&self) -> Result<Option<Vec<u8>>, String> {
        let header = CacheHeader {
            identity: self.disk.identity(),
            slot_count: self.disk.slot_count(),
            mark: self.mark,
        };
        Ok(Some(header.encode()))
    }

    fn noted_beside(&self, identity: u64) -> JournalMark {
        self.disk.noted_beside(identity)
    }

    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        Ok(self.copy.sum_slot(slot))
    }
}

fn draw(disk: &Disk, prng: &mut Prng) -> (Damage, u64) {
    let segments = disk.segments().unwrap_or_default();
    let last = segments.iter().max().copied().unwrap_or(0);
    let length_of = |number| disk.read_segment(number).map_or(0, |bytes| bytes.len());
    let damage = match prng.below(8) {
        7 => Damage::OtherSize,
        0 => Damage::CacheMissing,
        1 => Damage::CacheForeign,
        _ if segments.is_empty() => Damage::JournalMissing,
        2 => Damage::SegmentMissing,
        3 => Damage::JournalMissing,
        4 => Damage::Zeroed(prng.below(length_of(last) as u64) as usize),
        5 => Damage::Cut(prng.below(length_of(last) as u64) as usize),
        _ => {
            let number = segments[prng.below(segments.len() as u64) as usize];
            Damage::Flipped(number, prng.below(8 * length_of(number) as u64) as usize)
        }
    };
    (damage, last)
}

impl World {
    /// To be asked before the model knows of the recovery, and after a kill only: a power loss may lose the newest mark.
    pub(crate) fn probe_recovery(&mut self) {
        let (damage, last) = draw(&self.disk, &mut self.prng);
        let disk = Damaged {
            disk: &self.disk,
            damage,
            last,
        };
        let mut parts = self.parts();
        if matches!(damage, Damage::OtherSize) {
            parts.config.slot_count += 1;
        }
        let found = recover(Instant(self.now), parts, &self.metadata, &disk);
        self.say(|| format!("{damage:?}: {:?}", found.as_ref().map(|(_, report)| report)));
        match (damage, found) {
            (Damage::OtherSize, found) => {
                let is_told = matches!(found, Err(RecoveryError::SlotCount { .. }));
                assert!(is_told, "another number of slots is taken");
            }
            (Damage::CacheForeign, Err(error)) => {
                let is_told = matches!(error, RecoveryError::CacheForeign { .. });
                assert!(is_told, "another directory's cache file: {error}");
            }
            (Damage::CacheForeign, Ok(_)) => panic!("another directory's cache file is taken"),
            (Damage::CacheMissing, Ok((_, report))) => {
                assert_eq!(report.dirty_blocks, 0, "dirty blocks without a cache file");
            }
            (_, Ok((core, _))) => {
                let base = load_superblock(&self.metadata).expect("metadata is whole");
                let recovered = base.map_or(0, |superblock| superblock.lsn.0) + core.snapshot().journal_bytes;
                let flushed = self.model.flushed();
                assert!(
                    recovered >= flushed,
                    "{damage:?}: recovered up to LSN {recovered} in silence, and {flushed} was flushed"
                );
            }
            (_, Err(_)) => {}
        }
    }

    /// Likewise. An older copy of the cache file is refused, or it has all that was flushed.
    pub(crate) fn probe_older_cache(&mut self) {
        let Some(copy) = self.disk.older_copy() else { return };
        let newest = self.disk.cache_header().ok().flatten();
        let newest = newest.and_then(|header| CacheHeader::decode(&header).ok());
        let mark = match (self.scenario.canary, newest) {
            (Some(Canary::CopyNotesAll), Some(newest)) => newest.mark,
            _ => copy.mark,
        };
        let disk = WithOlderCache {
            disk: &self.disk,
            copy,
            mark,
        };
        let parts = self.parts();
        let found = recover(Instant(self.now), parts, &self.metadata, &disk);
        self.say(|| format!("an older cache file: {:?}", found.as_ref().map(|(_, report)| report)));
        match found {
            Ok((core, _)) => {
                let base = load_superblock(&self.metadata).expect("metadata is whole");
                let recovered = base.map_or(0, |superblock| superblock.lsn.0) + core.snapshot().journal_bytes;
                let flushed = self.model.flushed();
                assert!(
                    recovered >= flushed,
                    "an older cache file: recovered up to LSN {recovered} in silence, and {flushed} was flushed"
                );
                let lost = lost_blocks(&core, &disk);
                let lost_anyway = lost_blocks(&core, &self.disk);
                let is_lost_anyway = |run: &LostBlocks| {
                    let holds = |other: &LostBlocks| {
                        other.volume == run.volume
                            && other.first <= run.first
                            && run.first + run.count <= other.first + other.count
                    };
                    lost_anyway.iter().any(holds)
                };
                assert!(
                    lost.iter().all(is_lost_anyway),
                    "an older cache file is taken in silence, without {lost:?}"
                );
            }
            Err(error) => assert!(
                matches!(error, RecoveryError::CacheOlder { .. }),
                "an older cache file: {error}"
            ),
        }
    }
}
