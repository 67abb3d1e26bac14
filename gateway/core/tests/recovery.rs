//! What recovery refuses, and what it gives up: a journal of one-block writes, with something wrong.

use std::collections::{BTreeMap, BTreeSet};
use tombolo_base::{BlockSum, Instant, Lcbn, Pvbn, VolumeId, WallTime};
use tombolo_core::cache_header::{CacheHeader, Mark};
use tombolo_core::local_metadata::{Entry, MetadataFault, MetadataRead, Table};
use tombolo_core::record::{Batch, Lsn, Record, SegmentHeader, SlotRun};
use tombolo_core::recovery::{
    Base, Bases, LocalBase, LocalDisk, Parts, RecoveryError, Remains, Report, WhatIsLeft, go_on_behind, lost_blocks,
    recover, settle,
};
use tombolo_core::slot_page::{SlotEntry, encode_slot_page};
use tombolo_core::{Config, Core, JournalMark, Policies, Superblock};

const IDENTITY: u64 = 7;
const SLOTS: u32 = 64;
const ALLOCATED_BYTES: usize = 2_000;
const SECOND_MICROS: u64 = 1_000_000;
/// What the machine's clock says at the recovery, and what it said when the first batch was made.
const WALL_SECONDS: u64 = 1_700_000_000;
const FIRST_SECONDS: u32 = 1_699_990_000;
const NOW_MICROS: u64 = 1 << 50;

/// Local metadata as a checkpoint left it.
struct Metadata(BTreeMap<(Table, Vec<u8>), Vec<u8>>);

impl Metadata {
    fn new(superblock: &Superblock) -> Self {
        Self([((Table::Super, Vec::new()), superblock.encode())].into())
    }

    fn first() -> Self {
        Self::new(&Superblock::first(IDENTITY, SLOTS))
    }

    fn with(mut self, table: Table, key: &[u8], value: Vec<u8>) -> Self {
        self.0.insert((table, key.to_vec()), value);
        self
    }

    fn with_slots(self, page: u32, entries: impl IntoIterator<Item = SlotEntry>) -> Self {
        self.with(Table::Slots, &page.to_be_bytes(), encode_slot_page(entries.into_iter()))
    }
}

impl MetadataRead for Metadata {
    type Error = String;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(self.0.get(&(table, key.to_vec())).cloned())
    }

    fn ceiling(&self, table: Table, key: &[u8]) -> Result<Option<Entry>, String> {
        let found = self.0.range((table, key.to_vec())..).next();
        let found = found.filter(|((of, _), _)| *of == table);
        Ok(found.map(|((_, key), value)| (key.clone(), value.clone())))
    }

    fn floor(&self, _: Table, _: &[u8]) -> Result<Option<Entry>, String> {
        Ok(None)
    }
}

#[derive(Clone)]
struct Disk {
    segments: BTreeMap<u64, Vec<u8>>,
    header: Option<CacheHeader>,
    /// Where each batch lies.
    places: Vec<(u64, usize)>,
    /// Each batch's LSN, and the end of the last.
    lsns: Vec<Lsn>,
    /// Slots that hold something else than what was written to them.
    other: BTreeSet<u32>,
    /// Beside the cache file.
    noted_beside: JournalMark,
}

impl Disk {
    /// Batches in segments of three, each a write of the block, PVBN and slot of its number, and what it says of
    /// durability.
    fn new(claims: &[u64]) -> Self {
        let (mut lsn, mut lsns, mut places) = (Lsn(0), Vec::new(), Vec::new());
        let mut segments: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (number, claim) in (0..).zip(claims) {
            let segment = 1 + number / 3;
            let bytes = segments.entry(segment).or_insert_with(|| {
                let header = SegmentHeader {
                    segment,
                    first_lsn: lsn,
                    journal_identity: IDENTITY,
                    allocated_bytes: ALLOCATED_BYTES as u64,
                };
                header.encode().to_vec()
            });
            places.push((segment, bytes.len()));
            lsns.push(lsn);
            let batch = write(number, number as u32, lsn, Lsn(*claim)).encode(IDENTITY);
            lsn = Lsn(lsn.0 + batch.len() as u64);
            bytes.extend_from_slice(&batch);
        }
        lsns.push(lsn);
        segments.values_mut().for_each(|bytes| bytes.resize(ALLOCATED_BYTES, 0));
        let header = Some(header(IDENTITY, Lsn(0)));
        Self {
            segments,
            header,
            places,
            lsns,
            other: BTreeSet::new(),
            noted_beside: JournalMark::default(),
        }
    }

    fn noting(mut self, batch: usize) -> Self {
        self.header = Some(header(IDENTITY, self.lsns[batch]));
        self
    }

    fn without(mut self, slots: &[u32]) -> Self {
        self.other.extend(slots);
        self
    }

    fn damage(&mut self, batch: usize) {
        let (segment, offset) = self.places[batch];
        self.segments.get_mut(&segment).unwrap()[offset + 50] ^= 1;
    }

    fn recover(&self) -> Result<Report, RecoveryError<String>> {
        self.recover_onto(&Metadata::first()).map(|(_, report)| report)
    }

    fn recover_onto(&self, metadata: &Metadata) -> Result<(Core, Report), RecoveryError<String>> {
        recover_from(metadata, self)
    }

    fn remains(&self, bases: &Bases) -> Remains {
        let mark = self.header.map(|header| header.mark);
        Remains::find(self, IDENTITY, bases, mark).unwrap().unwrap()
    }

    /// What is recovered where the loss is accepted.
    fn recover_what_is_left(&self, remains: Remains) -> (Core, Report) {
        let superblock = Superblock {
            lsn: remains.lsn,
            segment: remains.segment,
            ..Superblock::first(IDENTITY, SLOTS)
        };
        let mark = self.header.map(|header| header.mark);
        let view = WhatIsLeft::new(self, remains, IDENTITY, SLOTS, mark);
        recover_from(&Metadata::new(&superblock), &view).unwrap()
    }
}

fn recover_from(metadata: &Metadata, disk: &impl LocalDisk) -> Result<(Core, Report), RecoveryError<String>> {
    let config = Config {
        slot_count: SLOTS,
        dirty_blocks_max: 32,
        ..Config::default()
    };
    let capacity = tombolo_cache::Capacity::of_blocks(SLOTS);
    let policies = Policies::new(
        Box::new(tombolo_cache::Lru::new(capacity)),
        Box::new(tombolo_prefetch::NoPrefetch),
    );
    let parts = Parts {
        config,
        wall_micros: WALL_SECONDS * SECOND_MICROS,
        policies,
        published: None,
    };
    recover(Instant(NOW_MICROS), parts, metadata, disk)
}

impl LocalDisk for Disk {
    fn segments(&self) -> Result<Vec<u64>, String> {
        Ok(self.segments.keys().copied().collect())
    }

    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String> {
        Ok(self.segments[&segment].clone())
    }

    fn cache_header(&self) -> Result<Option<Vec<u8>>, String> {
        Ok(self.header.as_ref().map(CacheHeader::encode))
    }

    fn noted_beside(&self, identity: u64) -> JournalMark {
        assert_eq!(identity, IDENTITY);
        self.noted_beside
    }

    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        match self.header {
            Some(_) if self.other.contains(&slot.0) => Ok(BlockSum(0)),
            Some(_) => Ok(sum_of(slot.0)),
            None => Err("there is no cache file".into()),
        }
    }
}

/// What a slot holds. A batch ends with it, so no byte of it is a zero.
fn sum_of(slot: u32) -> BlockSum {
    BlockSum(!u64::from(slot))
}

fn header(identity: u64, lsn: Lsn) -> CacheHeader {
    let journal = JournalMark { segment: 2, lsn };
    CacheHeader {
        identity,
        slot_count: SLOTS,
        mark: Mark {
            journal,
            metadata_bytes: 0,
            next_pvbn: 0,
        },
    }
}

fn write(number: u64, slot: u32, lsn: Lsn, durable_lsn: Lsn) -> Batch {
    let run = SlotRun {
        first: Lcbn(slot),
        count: 1,
    };
    let record = Record::Write {
        volume: VolumeId(1 << 63 | 9),
        first: number,
        pvbn: Pvbn(1 + number),
        slots: vec![run],
        sums: vec![sum_of(slot)],
    };
    Batch {
        lsn,
        durable_lsn,
        // One every ten seconds.
        time: WallTime(FIRST_SECONDS + 10 * number as u32),
        records: vec![record],
    }
}

#[test]
fn a_whole_journal_is_replayed() {
    let report = Disk::new(&[0; 6]).noting(6).recover().unwrap();
    assert_eq!((report.batches, report.dirty_blocks, report.torn_bytes), (6, 6, 0));
    assert_eq!((report.cut, report.obsolete_segments), (None, vec![]));
}

/// Six writes, of which the last batch says that those before were flushed.
fn flushed_before_the_last() -> Disk {
    let lsns = Disk::new(&[0; 6]).lsns;
    Disk::new(&[0, 0, 0, 0, 0, lsns[5].0])
}

#[test]
fn an_older_copy_of_the_cache_file_is_told_by_what_was_flushed_since() {
    let disk = flushed_before_the_last().noting(3).without(&[4]);
    let (noted, durable) = (disk.lsns[3], disk.lsns[5]);
    assert_eq!(disk.recover().err(), Some(RecoveryError::CacheOlder { noted, durable }));
}

#[test]
fn a_note_that_a_power_loss_has_taken_is_no_older_copy() {
    let report = flushed_before_the_last().noting(3).recover().unwrap();
    assert_eq!((report.batches, report.dirty_blocks), (6, 6));
}

#[test]
fn what_is_noted_beside_the_cache_file_counts_too() {
    let mut disk = Disk::new(&[0; 6]).noting(3).without(&[4]);
    assert_eq!(disk.recover().unwrap().batches, 4, "nothing says that more was flushed");
    let (segment, noted) = (2, disk.lsns[3]);
    let durable = disk.lsns[6];
    disk.noted_beside = JournalMark { segment, lsn: durable };
    assert_eq!(disk.recover().err(), Some(RecoveryError::CacheOlder { noted, durable }));
    disk.other.clear();
    assert_eq!(disk.recover().unwrap().batches, 6);
    disk.damage(5);
    assert!(matches!(disk.recover(), Err(RecoveryError::JournalCorrupt { .. })));
}

#[test]
fn a_rotten_slot_from_before_the_note_is_found_later() {
    for noted in [3, 5, 6] {
        let report = flushed_before_the_last().noting(noted).without(&[2]).recover().unwrap();
        assert_eq!((report.batches, report.dirty_blocks), (6, 6), "noting {noted}");
    }
}

#[test]
fn an_older_copy_may_lack_what_nobody_needs_any_more() {
    let mut disk = flushed_before_the_last().noting(3).without(&[4]);
    let again = Record::Hole {
        volume: VolumeId(1 << 63 | 9),
        first: 4,
        count: 1,
    };
    let batch = Batch {
        lsn: disk.lsns[6],
        durable_lsn: disk.lsns[5],
        time: WallTime(FIRST_SECONDS + 60),
        records: vec![again],
    };
    let header = SegmentHeader {
        segment: 3,
        first_lsn: disk.lsns[6],
        journal_identity: IDENTITY,
        allocated_bytes: ALLOCATED_BYTES as u64,
    };
    let mut bytes = [&header.encode()[..], &batch.encode(IDENTITY)].concat();
    bytes.resize(ALLOCATED_BYTES, 0);
    disk.segments.insert(3, bytes);
    assert_eq!(disk.recover().unwrap().dirty_blocks, 5);
}

#[test]
fn an_older_copy_is_told_by_the_dirty_blocks_of_a_checkpoint_too() {
    let disk = flushed_before_the_last();
    let dirty = |slot: u32| SlotEntry::Dirty {
        pvbn: Pvbn(1 + u64::from(slot)),
        sum: sum_of(slot),
        volume: VolumeId(1 << 63 | 9),
        block: u64::from(slot),
    };
    let metadata = |checkpoint| {
        let superblock = checkpoint_behind(&disk, checkpoint, 2);
        Metadata::new(&superblock).with_slots(0, (0..checkpoint as u32).map(dirty))
    };
    let recovered = |noted, checkpoint, lacks: &[u32]| {
        let disk = disk.clone().noting(noted).without(lacks);
        let recovered = disk.recover_onto(&metadata(checkpoint));
        recovered.map(|(_, report)| report.dirty_blocks)
    };
    let older = |noted: usize| {
        let (noted, durable) = (disk.lsns[noted], disk.lsns[5]);
        Err(RecoveryError::CacheOlder { noted, durable })
    };
    assert_eq!(recovered(2, 4, &[]), Ok(6));
    assert_eq!(recovered(2, 4, &[3]), older(2));
    assert_eq!(recovered(2, 4, &[4]), older(2));
    assert_eq!(recovered(4, 4, &[3]), Ok(6), "rotten, and noted");
    assert_eq!(recovered(4, 4, &[4]), older(4));
}

#[test]
fn what_is_given_up_is_cut_off_and_the_segments_behind_it_are_removed() {
    let mut disk = Disk::new(&[0; 8]);
    disk.damage(1);
    let report = disk.recover().unwrap();
    let (segment, offset) = disk.places[1];
    assert_eq!(report.cut, Some((segment, offset as u64)));
    assert_eq!((report.batches, report.obsolete_segments), (1, vec![2, 3]));
    assert_eq!(report.given_up_batches, 5, "those of whole segments behind");
    assert_eq!(report.torn_bytes, disk.lsns[8].0 - disk.lsns[1].0, "without the zeroes");
}

#[test]
fn a_batch_whose_data_is_missing_is_cut_off_with_all_behind_it() {
    let mut disk = Disk::new(&[0; 5]);
    let (segment, offset) = disk.places[1];
    // It names slot 40, which holds something else than it says.
    let Record::Write {
        first, pvbn, volume, ..
    } = write(1, 40, Lsn(0), Lsn(0)).records[0].clone()
    else {
        unreachable!("a write")
    };
    let record = Record::Write {
        volume,
        first,
        pvbn,
        slots: vec![SlotRun {
            first: Lcbn(40),
            count: 1,
        }],
        sums: vec![BlockSum(99)],
    };
    let batch = Batch {
        lsn: disk.lsns[1],
        durable_lsn: Lsn(0),
        time: WallTime(0),
        records: vec![record],
    }
    .encode(IDENTITY);
    disk.segments.get_mut(&segment).unwrap()[offset..offset + batch.len()].copy_from_slice(&batch);
    let report = disk.recover().unwrap();
    assert_eq!(report.cut, Some((segment, offset as u64)));
    assert_eq!(
        (report.batches, report.given_up_batches, report.obsolete_segments),
        (1, 4, vec![2])
    );
    assert_eq!(report.torn_bytes, disk.lsns[5].0 - disk.lsns[1].0);
    // Known to be flushed, it is not given up.
    assert_eq!(disk.noting(5).recover().unwrap().batches, 5);
}

#[test]
fn damage_below_what_a_later_batch_calls_durable_is_refused() {
    let lsns = Disk::new(&[0; 6]).lsns;
    for place in [1, 4] {
        let mut disk = Disk::new(&[0, 0, 0, 0, 0, lsns[5].0]);
        disk.damage(place);
        let refused = disk.recover().unwrap_err();
        assert!(matches!(refused, RecoveryError::JournalCorrupt { .. }), "{refused}");
    }
}

#[test]
fn a_journal_that_ends_below_the_mark_is_refused() {
    let whole = Disk::new(&[0; 6]).noting(6);
    let mut last_missing = whole.clone();
    last_missing.segments.remove(&2);
    let mut all_missing = whole.clone();
    all_missing.segments.clear();
    let mut zeroed = whole.clone();
    zeroed.segments.get_mut(&2).unwrap()[whole.places[4].1..].fill(0);
    for (disk, segment) in [(last_missing, 2), (all_missing, 1), (zeroed, 2)] {
        let refused = disk.recover().unwrap_err();
        assert!(
            matches!(&refused, RecoveryError::JournalMissing { segment: found, durable, .. }
                if *found == segment && *durable == whole.lsns[6]),
            "{refused}"
        );
    }
    let mut damaged = whole;
    damaged.damage(5);
    assert!(matches!(damaged.recover(), Err(RecoveryError::JournalCorrupt { .. })));
}

#[test]
fn a_segment_shorter_than_it_was_made_is_refused() {
    let mut disk = Disk::new(&[0; 6]);
    disk.segments.get_mut(&2).unwrap().truncate(ALLOCATED_BYTES - 1);
    let refused = disk.recover().unwrap_err();
    let cut = RecoveryError::JournalCut {
        segment: 2,
        found: ALLOCATED_BYTES as u64 - 1,
        allocated: ALLOCATED_BYTES as u64,
    };
    assert_eq!(refused, cut);
}

#[test]
fn a_slot_beyond_the_end_is_refused() {
    let mut disk = Disk::new(&[0; 1]);
    let batch = write(0, SLOTS, Lsn(0), Lsn(0)).encode(IDENTITY);
    let (segment, offset) = disk.places[0];
    disk.segments.get_mut(&segment).unwrap()[offset..offset + batch.len()].copy_from_slice(&batch);
    let refused = disk.recover().unwrap_err();
    assert!(
        matches!(
            refused,
            RecoveryError::SlotBeyondEnd {
                slot: SLOTS,
                slot_count: SLOTS,
                ..
            }
        ),
        "{refused}"
    );
}

#[test]
fn another_cache_file_or_none_is_refused_while_blocks_are_dirty() {
    let mut disk = Disk::new(&[0; 4]);
    disk.header = None;
    assert_eq!(disk.recover().unwrap_err(), RecoveryError::CacheMissing { dirty: 4 });
    disk.header = Some(header(IDENTITY + 1, Lsn(0)));
    let foreign = RecoveryError::CacheForeign {
        found: IDENTITY + 1,
        expected: IDENTITY,
    };
    assert_eq!(disk.recover().unwrap_err(), foreign);
    let mut other_size = header(IDENTITY, Lsn(0));
    other_size.slot_count += 1;
    disk.header = Some(other_size);
    let unfinished = RecoveryError::ResizeUnfinished {
        found: other_size.slot_count,
        expected: other_size.slot_count - 1,
    };
    assert_eq!(disk.recover().unwrap_err(), unfinished);
    disk.segments.clear();
    disk.header = None;
    assert_eq!(
        disk.recover().unwrap().dirty_blocks,
        0,
        "nothing is dirty, so nothing is missing"
    );
}

#[test]
fn what_is_dirty_keeps_its_age() {
    let disk = Disk::new(&[0; 6]);
    let (core, _) = disk.recover_onto(&Metadata::first()).unwrap();
    let snapshot = core.snapshot();
    let age = |snapshot: &tombolo_core::Snapshot| (NOW_MICROS - snapshot.oldest_dirty.unwrap().0) / SECOND_MICROS;
    assert_eq!(
        (snapshot.oldest_dirty_pvbn, age(&snapshot)),
        (Some(Pvbn(1)), 10_000),
        "written when the first batch was made"
    );
}

/// A checkpoint that holds the first so many batches, and was made when this segment was written.
fn checkpoint_behind(disk: &Disk, batches: usize, segment: u64) -> Superblock {
    Superblock {
        lsn: disk.lsns[batches],
        segment,
        ..Superblock::first(IDENTITY, SLOTS)
    }
}

#[test]
fn what_a_checkpoint_holds_is_not_replayed_and_its_segments_are_removed() {
    let disk = Disk::new(&[0; 8]);
    for (checkpointed, segment, obsolete) in [
        (4, 2, vec![1]),
        (6, 2, vec![1, 2]),
        (6, 3, vec![1, 2]),
        (7, 3, vec![1, 2]),
    ] {
        let metadata = Metadata::new(&checkpoint_behind(&disk, checkpointed, segment));
        let (_, report) = disk.recover_onto(&metadata).unwrap();
        assert_eq!(report.batches, 8 - checkpointed as u64, "behind {checkpointed}");
        assert_eq!(
            (report.obsolete_segments, report.cut),
            (obsolete, None),
            "behind {checkpointed}"
        );
    }
}

#[test]
fn segments_that_a_checkpoint_holds_may_be_missing_but_none_flushed_later() {
    let mut disk = Disk::new(&[0; 8]);
    let metadata = Metadata::new(&checkpoint_behind(&disk, 8, 3));
    assert_eq!(disk.recover_onto(&metadata).unwrap().1.batches, 0);
    disk.segments.remove(&3);
    // It holds nothing that the checkpoint lacks.
    assert_eq!(disk.recover_onto(&metadata).unwrap().1.batches, 0);
    let marked = disk.noting(8);
    let metadata = Metadata::new(&checkpoint_behind(&marked, 7, 3));
    let refused = marked.recover_onto(&metadata).err().unwrap();
    assert!(
        matches!(refused, RecoveryError::JournalMissing { segment: 3, .. }),
        "{refused}"
    );
}

#[test]
fn a_later_life_takes_over_where_an_earlier_one_was_given_up() {
    // Behind the first batch the second segment took over, though the first holds two more.
    let mut disk = Disk::new(&[0; 6]);
    let taken_over = disk.lsns[1];
    let header = SegmentHeader {
        segment: 2,
        first_lsn: taken_over,
        journal_identity: IDENTITY,
        allocated_bytes: ALLOCATED_BYTES as u64,
    };
    let batch = write(20, 20, taken_over, Lsn(0)).encode(IDENTITY);
    let mut bytes = [&header.encode()[..], &batch].concat();
    bytes.resize(ALLOCATED_BYTES, 0);
    disk.segments.insert(2, bytes);
    let (core, report) = disk.recover_onto(&Metadata::first()).unwrap();
    assert_eq!((report.batches, report.dirty_blocks), (2, 2));
    assert_eq!(core.journal_mark().lsn.0, taken_over.0 + batch.len() as u64);
}

#[test]
fn numbers_of_blocks_that_a_crash_undid_are_not_given_again() {
    let mut disk = Disk::new(&[0; 3]);
    let next = |disk: &Disk| disk.recover_onto(&Metadata::first()).unwrap().0.next_pvbn().0;
    // The journal has PVBNs up to 3. Writes behind it, whose records were lost, had higher ones.
    let after_journal = next(&disk);
    assert!(after_journal > 100_000, "{after_journal}");
    // The life before began with higher numbers than the journal shows.
    disk.header.as_mut().unwrap().mark.next_pvbn = 5_000_000;
    assert_eq!(next(&disk) - 5_000_000, after_journal - 4);
}

fn clean(pvbn: u64) -> SlotEntry {
    let (pvbn, sum) = (Pvbn(pvbn), BlockSum(7));
    SlotEntry::Clean { pvbn, sum }
}

#[test]
fn slots_are_what_the_checkpoint_says() {
    let (volume, sum) = (VolumeId(1 << 63 | 9), BlockSum(7));
    let dirty = |pvbn, block| SlotEntry::Dirty {
        pvbn: Pvbn(pvbn),
        sum,
        volume,
        block,
    };
    let corrupt = SlotEntry::Corrupt {
        pvbn: Pvbn(42),
        sum,
        volume,
        block: 12,
    };
    // Not in the order of their PVBNs, in which they go to the cloud.
    let entries = [
        clean(10),
        SlotEntry::Free,
        dirty(41, 11),
        clean(20),
        dirty(40, 10),
        corrupt,
    ];
    let metadata = Metadata::first().with_slots(0, entries);
    let disk = Disk::new(&[]);
    let (core, report) = disk.recover_onto(&metadata).unwrap();
    core.check_invariants();
    assert_eq!((report.clean_slots, report.dirty_blocks), (2, 2));
    let snapshot = core.snapshot();
    assert_eq!(
        (snapshot.slots_clean, snapshot.slots_dirty, snapshot.slots_corrupt),
        (2, 2, 1)
    );
    assert_eq!(core.slots_used_to(), Lcbn(6));
    // Without the cache file clean blocks come from the cloud, and dirty ones from nowhere.
    let no_cache = Disk { header: None, ..disk };
    let all_clean = Metadata::first().with_slots(0, [clean(10), clean(20)]);
    assert_eq!(no_cache.recover_onto(&all_clean).unwrap().1.clean_slots, 0);
    let refused = no_cache.recover_onto(&metadata).err().unwrap();
    assert_eq!(refused, RecoveryError::CacheMissing { dirty: 2 });
}

#[test]
fn slots_that_the_cache_does_not_have_are_refused() {
    let full = 64;
    let disk = Disk::new(&[]);
    let page = |number: u32, count: u64| Metadata::first().with_slots(number, (0..count).map(|index| clean(1 + index)));
    assert_eq!(disk.recover_onto(&page(0, full)).unwrap().1.clean_slots, full);
    for (number, count) in [(0, full + 1), (1, 1), (u32::MAX, 1)] {
        let refused = disk.recover_onto(&page(number, count)).err().unwrap();
        assert!(
            matches!(&refused, RecoveryError::Metadata(MetadataFault::Corrupt { table: Table::Slots, key, .. })
                if *key == number.to_be_bytes()),
            "{refused}"
        );
    }
}

#[test]
fn a_counter_of_another_length_is_refused() {
    let disk = Disk::new(&[]);
    let with = |value: &[u8]| Metadata::first().with(Table::Counters, b"c", value.to_vec());
    assert!(disk.recover_onto(&with(&7i64.to_le_bytes())).is_ok());
    let refused = disk.recover_onto(&with(&[7; 7])).err().unwrap();
    assert!(
        matches!(&refused, RecoveryError::Metadata(MetadataFault::Corrupt { table: Table::Counters, key, .. })
            if key == b"c"),
        "{refused}"
    );
}

#[test]
fn another_size_of_the_cache_or_no_superblock_is_refused() {
    let disk = Disk::new(&[]);
    let other = Metadata::new(&Superblock::first(IDENTITY, SLOTS + 1));
    let (found, configured) = (SLOTS + 1, SLOTS);
    let refused = disk.recover_onto(&other).err().unwrap();
    assert_eq!(refused, RecoveryError::SlotCount { found, configured });
    let none = Metadata(BTreeMap::new());
    assert_eq!(
        disk.recover_onto(&none).err().unwrap(),
        RecoveryError::SuperblockMissing
    );
}

/// From the beginning, or from the batch of this number that the bucket holds everything before.
fn bases(disk: &Disk, local: Option<usize>, bucket: Option<usize>) -> Bases {
    Bases {
        local: local.map(|batch| LocalBase {
            lsn: disk.lsns[batch],
            segment: 1 + batch as u64 / 3,
            merging_to: None,
        }),
        bucket: bucket.map(|batch| disk.lsns[batch]),
    }
}

#[test]
fn without_the_cache_file_all_is_replayed_and_what_is_dirty_is_lost() {
    let mut disk = Disk::new(&[0; 6]);
    disk.header = None;
    let remains = disk.remains(&bases(&disk, Some(0), None));
    assert_eq!((remains.base, remains.reached), (Base::Local, disk.lsns[6]));
    assert!(!remains.journal_is_damaged);
    let (core, report) = disk.recover_what_is_left(remains);
    assert_eq!((report.batches, report.dirty_blocks), (6, 6));
    let lost = lost_blocks(&core, &disk);
    let [lost] = lost[..] else { panic!("{lost:?}") };
    assert_eq!((lost.volume, lost.first, lost.count), (VolumeId(1 << 63 | 9), 0, 6));
    assert!(lost.since.0.abs_diff(FIRST_SECONDS) <= 1, "{lost:?}");
    // With the file nothing is.
    disk = disk.noting(6);
    let (core, _) = disk.recover_what_is_left(disk.remains(&bases(&disk, Some(0), None)));
    assert_eq!(lost_blocks(&core, &disk), []);
}

#[test]
fn without_local_metadata_replay_begins_where_the_bucket_ends() {
    let disk = Disk::new(&[0; 9]).noting(9);
    for published in 0..9 {
        let remains = disk.remains(&bases(&disk, None, Some(published)));
        let lsn = disk.lsns[published];
        let segment = 1 + published as u64 / 3;
        assert_eq!(
            (remains.base, remains.lsn, remains.segment),
            (Base::Bucket, lsn, segment)
        );
        assert!(!remains.journal_is_damaged);
        let (_, report) = disk.recover_what_is_left(remains);
        assert_eq!(report.batches, 9 - published as u64);
    }
    let nothing = Remains::find(&disk, IDENTITY, &Bases::default(), None).unwrap();
    assert_eq!(nothing, None);
}

#[test]
fn of_two_states_the_one_counts_from_which_the_journal_leads_further() {
    let mut disk = Disk::new(&[0; 9]).noting(9);
    let base = |disk: &Disk, local, bucket| {
        let remains = disk.remains(&bases(disk, Some(local), Some(bucket)));
        (remains.base, remains.reached)
    };
    assert_eq!(
        base(&disk, 1, 5),
        (Base::Local, disk.lsns[9]),
        "what is here need not be fetched"
    );
    disk.segments.remove(&2);
    assert_eq!(base(&disk, 1, 2), (Base::Local, disk.lsns[3]));
    assert_eq!(base(&disk, 1, 5), (Base::Bucket, disk.lsns[5]));
    assert_eq!(
        base(&disk, 1, 6),
        (Base::Bucket, disk.lsns[9]),
        "the rest of the journal goes on from there"
    );
    disk.segments.clear();
    assert_eq!(base(&disk, 5, 4), (Base::Local, disk.lsns[5]));
    assert_eq!(base(&disk, 4, 5), (Base::Bucket, disk.lsns[5]));
}

/// A checkpoint that is cut short is whole with the journal alone, up to where it was made.
#[test]
fn local_metadata_in_mid_checkpoint_counts_only_with_the_journal_that_completes_it() {
    let mut disk = Disk::new(&[0; 9]).noting(9);
    let remains = |disk: &Disk, bucket| {
        let mut bases = bases(disk, Some(1), bucket);
        bases.local.as_mut().unwrap().merging_to = Some(disk.lsns[7]);
        let remains = disk.remains(&bases);
        (remains.base, remains.reached, remains.mixed_to)
    };
    assert_eq!(remains(&disk, Some(5)), (Base::Local, disk.lsns[9], None));
    disk.segments.remove(&3);
    assert_eq!(remains(&disk, Some(0)), (Base::Bucket, disk.lsns[6], None));
    assert_eq!(remains(&disk, None), (Base::Local, disk.lsns[6], Some(disk.lsns[7])));
    disk.segments.clear();
    assert_eq!(remains(&disk, Some(0)), (Base::Bucket, disk.lsns[0], None));
    disk.header = None;
    let bases = Bases {
        local: Some(LocalBase {
            lsn: disk.lsns[1],
            segment: 1,
            merging_to: Some(disk.lsns[7]),
        }),
        bucket: None,
    };
    let remains = Remains::find(&disk, IDENTITY, &bases, None).unwrap().unwrap();
    assert_eq!(remains.durable, disk.lsns[7], "so far the journal was durable");
}

#[test]
fn what_is_left_of_a_damaged_journal_is_replayed_to_the_damage_and_nothing_behind_it() {
    type Harm = fn(&mut Disk);
    let harms: [(&str, Harm); 4] = [
        ("a batch", |disk| disk.damage(4)),
        ("a segment", |disk| disk.segments.get_mut(&2).unwrap().fill(0)),
        ("missing", |disk| drop(disk.segments.remove(&2))),
        ("cut", |disk| {
            let (segment, offset) = disk.places[4];
            disk.segments.get_mut(&segment).unwrap().truncate(offset + 20);
        }),
    ];
    for (name, harm) in harms {
        let mut disk = Disk::new(&[0, 0, 0, 0, 0, 0, 0, 0]).noting(8);
        harm(&mut disk);
        let kept = if ["a batch", "cut"].contains(&name) { 4 } else { 3 };
        let remains = disk.remains(&bases(&disk, Some(0), None));
        assert!(remains.journal_is_damaged, "{name}");
        assert_eq!(
            (remains.reached, remains.durable),
            (disk.lsns[kept], disk.lsns[8]),
            "{name}"
        );
        let time = WallTime(FIRST_SECONDS + 10 * (kept as u32 - 1));
        assert_eq!(remains.reached_time, Some(time), "{name}");
        let (core, report) = disk.recover_what_is_left(remains);
        assert_eq!(report.batches, kept as u64, "{name}");
        assert_eq!(lost_blocks(&core, &disk), [], "{name}");
    }
}

#[test]
fn behind_a_lost_end_nothing_is_given_out_again_and_nothing_of_it_is_replayed() {
    let mut disk = Disk::new(&[0; 8]).noting(8);
    let lost = disk.clone();
    disk.segments.remove(&2);
    let remains = disk.remains(&bases(&disk, Some(0), None));
    let (core, _) = disk.recover_what_is_left(remains);
    let settled = settle(core);
    assert_eq!(settled.superblock.lsn, disk.lsns[3]);
    let highest = (Pvbn(1 << 50), 77);
    let behind = go_on_behind(settled.superblock, &remains, highest, Some((b"key", b"value")));
    let superblock = behind.superblock;
    assert!(superblock.lsn > disk.lsns[8] && superblock.segment > 3);
    assert!(superblock.next_pvbn > 1 << 50 && superblock.next_volume > 77);
    // All segments turn up again.
    let (_, report) = lost.recover_onto(&Metadata::new(&superblock)).unwrap();
    assert_eq!((report.batches, report.obsolete_segments), (0, vec![1, 2, 3]));
}
