//! A part of the local disk is lost, and that is accepted, as `serve --accept-loss` does it: with the product's own code for
//! what is left, what is lost with it, and how it goes on.

use crate::faults::bucket::lay;
use crate::faults::disk::Disk;
use crate::faults::metadata::Metadata;
use crate::faults::scenario::Canary;
use crate::faults::world::World;
use tombolo_base::{BlockSum, Instant, Lcbn, Pvbn};
use tombolo_core::cache_header::CacheHeader;
use tombolo_core::recovery::{
    Base, Bases, LocalBase, LocalDisk, Remains, Report, WhatIsLeft, go_on_behind, load_superblock, lost_blocks,
    recover, settle, skip_pvbns,
};
use tombolo_core::{Core, JournalMark, Superblock};

impl World {
    /// The cache file is gone although blocks in it are dirty, and that is accepted. They are lost, and nothing else is.
    pub(crate) fn lose_dirty_cache(&mut self) {
        // What is looked at is what the medium holds.
        self.disk.sync_all();
        self.disk.drop_pages();
        let superblock = superblock_of(&self.metadata);
        let bases = Bases {
            local: Some(LocalBase::from(&superblock)),
            bucket: None,
        };
        let gone = WithoutCacheFile(&self.disk);
        let remains = Remains::find(&gone, superblock.journal_identity, &bases, None);
        let remains = remains.expect("the disk can be read").expect("local metadata");
        if remains.journal_is_damaged {
            // Nothing was ever written to it.
            return;
        }
        let (identity, slot_count) = (superblock.journal_identity, superblock.slot_count);
        let view = WhatIsLeft::new(&gone, remains, identity, slot_count, None);
        let (core, report) = self.recover_what_is_left(&self.metadata, &view);
        let lost: u64 = lost_blocks(&core, &view).iter().map(|run| run.count).sum();
        assert_eq!(lost, report.dirty_blocks, "what is dirty is lost, and nothing else is");
        // A cache that consists of lost blocks has no room for others.
        if lost > u64::from(slot_count) / 8 {
            return;
        }
        let mark = view.cache_file_header().mark;
        let skipped = skip_pvbns(superblock, &core);
        self.say(|| format!("the cache file is lost, and {lost} blocks with it: {remains:?}"));
        self.rotten.extend(self.slot_pvbns.values());
        self.slot_pvbns.clear();
        self.disk.lose_cache();
        self.disk.make_cache();
        self.disk.set_mark(mark);
        lay(&mut self.metadata, skipped);
    }

    fn recover_what_is_left(&self, metadata: &Metadata, disk: &impl LocalDisk) -> (Core, Report) {
        let recovered = recover(Instant(self.now), self.parts(), metadata, disk);
        recovered.unwrap_or_else(|error| panic!("what is left is refused: {error}"))
    }

    /// Segments of the journal are gone, the last ones or all. What is left goes on far behind what is lost.
    pub(crate) fn lose_journal(&mut self) {
        // What is looked at is what the medium holds.
        self.disk.sync_all();
        self.disk.drop_pages();
        let segments = self.disk.segments().expect("the disk can be read");
        let index = self.prng.below(segments.len() as u64 + 1) as usize;
        let Some(first_lost) = segments.get(index).copied() else {
            return;
        };
        let left = WithoutSegments {
            disk: &self.disk,
            first_lost,
        };
        let mut before = superblock_of(&self.metadata);
        if self.scenario.canary == Some(Canary::TrustTornCheckpoint) {
            before.merging_to = None;
        }
        let root = self.known_root();
        let bases = Bases {
            local: Some(LocalBase::from(&before)),
            bucket: self.bucket.published().map(|point| point.lsn),
        };
        let header = self.disk.cache_header().expect("the disk can be read");
        let mark = header.map(|header| CacheHeader::decode(&header).expect("a header").mark);
        let (identity, slot_count) = (before.journal_identity, before.slot_count);
        let remains = Remains::find(&left, identity, &bases, mark);
        let remains = remains.expect("the disk can be read").expect("local metadata");
        // Without anything in the bucket a checkpoint that was being made leaves no state of any moment.
        if !remains.journal_is_damaged || remains.mixed_to.is_some() {
            return;
        }
        let mut metadata = match remains.base {
            Base::Local => self.metadata.clone(),
            Base::Bucket => self.made_again(remains.segment),
        };
        let view = WhatIsLeft::new(&left, remains, identity, slot_count, mark);
        let (core, _) = self.recover_what_is_left(&metadata, &view);
        let lost = lost_blocks(&core, &view);
        // A cache that consists of lost blocks has no room for others.
        if lost.iter().map(|run| run.count).sum::<u64>() > u64::from(slot_count) / 8 {
            return;
        }
        let mut end = view.cache_file_header().mark;
        self.say(|| format!("segments from {first_lost} on are lost: {remains:?}, and with them {lost:?}"));
        lay(&mut metadata, settle(core));
        let settled = superblock_of(&metadata);
        let noted = mark.unwrap_or_default().next_pvbn;
        let roots = root.iter();
        let next_pvbn = roots.clone().map(|root| root.next_pvbn).fold(noted, u64::max);
        let next_volume = roots.map(|root| root.next_volume).fold(0, u64::max);
        let highest = (Pvbn(next_pvbn), next_volume);
        lay(&mut metadata, go_on_behind(settled, &remains, highest, None));
        let Superblock { lsn, segment, .. } = superblock_of(&metadata);
        self.disk.lose_segments();
        if end.journal.lsn < lsn {
            end.journal = JournalMark { segment, lsn };
        }
        self.disk.set_mark(end);
        let late = self.roots_to_arrive();
        self.model.on_journal_lost(remains.reached.0, lsn.0, &late);
        for run in lost {
            for block in run.first..run.first + run.count {
                let value = self.model.state().value(run.volume, block);
                self.rotten.extend(self.model.pvbns_of(value));
            }
        }
        metadata.manifest = None;
        self.begin_with(metadata);
        // The next point holds everything, and until then the journal does not.
        self.bucket.points_are_off();
    }
}

fn superblock_of(metadata: &Metadata) -> Superblock {
    let superblock = load_superblock(metadata).expect("metadata is whole");
    superblock.expect("a superblock")
}

/// The local disk without its last segments.
struct WithoutSegments<'d> {
    disk: &'d Disk,
    first_lost: u64,
}

impl LocalDisk for WithoutSegments<'_> {
    fn segments(&self) -> Result<Vec<u64>, String> {
        let mut segments = self.disk.segments()?;
        segments.retain(|number| *number < self.first_lost);
        Ok(segments)
    }

    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String> {
        self.disk.read_segment(segment)
    }

    fn cache_header(&self) -> Result<Option<Vec<u8>>, String> {
        self.disk.cache_header()
    }

    fn noted_beside(&self, identity: u64) -> JournalMark {
        self.disk.noted_beside(identity)
    }

    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        self.disk.sum_slot(slot)
    }
}

/// The local disk where the cache file is gone.
struct WithoutCacheFile<'d>(&'d Disk);

impl LocalDisk for WithoutCacheFile<'_> {
    fn segments(&self) -> Result<Vec<u64>, String> {
        self.0.segments()
    }

    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String> {
        self.0.read_segment(segment)
    }

    fn cache_header(&self) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }

    fn noted_beside(&self, identity: u64) -> JournalMark {
        self.0.noted_beside(identity)
    }

    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        Err(format!("slot {} is gone with its file", slot.0))
    }
}
