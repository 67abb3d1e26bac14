//! What recovery refuses, and what it gives up: a journal of one-block writes, with something wrong.

use std::collections::BTreeMap;
use tombolo_base::{BlockSum, DecodeError, Instant, Lcbn, Pvbn, VolumeId, WallTime};
use tombolo_core::cache_header::{CacheHeader, Mark};
use tombolo_core::checkpoint::{MetadataRead, Superblock, Table};
use tombolo_core::record::{Batch, Lsn, Record, SegmentHeader, SlotRun};
use tombolo_core::recovery::{LocalDisk, Parts, RecoveryError, Report, recover};
use tombolo_core::{Config, Core, JournalMark, Policies};

const IDENTITY: u64 = 7;
const SLOTS: u32 = 64;
const ALLOCATED_BYTES: usize = 2_000;
const SECOND_MICROS: u64 = 1_000_000;
/// What the machine's clock says at the recovery, and what it said when the first batch was made.
const WALL_SECONDS: u64 = 1_700_000_000;
const FIRST_SECONDS: u32 = 1_699_990_000;
const NOW_MICROS: u64 = 1 << 50;

struct Nothing;

impl MetadataRead for Nothing {
    type Error = String;

    fn get(&self, table: Table, _: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok((table == Table::Super).then(|| Superblock::first(IDENTITY, SLOTS).encode()))
    }

    fn ceiling(&self, _: Table, _: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, String> {
        Ok(None)
    }

    fn floor(&self, _: Table, _: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, String> {
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
        }
    }

    fn noting(mut self, batch: usize) -> Self {
        self.header = Some(header(IDENTITY, self.lsns[batch]));
        self
    }

    fn damage(&mut self, batch: usize) {
        let (segment, offset) = self.places[batch];
        self.segments.get_mut(&segment).unwrap()[offset + 50] ^= 1;
    }

    fn recover(&self) -> Result<Report, RecoveryError<String>> {
        self.recover_core().map(|(_, report)| report)
    }

    fn recover_core(&self) -> Result<(Core, Report), RecoveryError<String>> {
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
        };
        recover(Instant(NOW_MICROS), parts, &Nothing, self)
    }
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

    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        Ok(BlockSum(u64::from(slot.0)))
    }
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
        sums: vec![BlockSum(u64::from(slot))],
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

#[test]
fn what_is_given_up_is_cut_off_and_the_segments_behind_it_are_removed() {
    let mut disk = Disk::new(&[0; 8]);
    disk.damage(1);
    let report = disk.recover().unwrap();
    let (segment, offset) = disk.places[1];
    assert_eq!(report.cut, Some((segment, offset as u64)));
    assert_eq!((report.batches, report.obsolete_segments), (1, vec![2, 3]));
    assert_eq!(report.given_up_batches, 5, "those of whole segments behind");
    assert!(
        report.torn_bytes > 0 && report.torn_bytes < ALLOCATED_BYTES as u64 * 3,
        "without the zeroes"
    );
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
    let what = "cache file slot count";
    let refused = disk.recover().unwrap_err();
    assert!(matches!(refused, RecoveryError::CacheHeader(DecodeError::Invalid { what: found, .. }) if found == what));
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
    let (core, _) = disk.recover_core().unwrap();
    let snapshot = core.snapshot();
    let age = |snapshot: &tombolo_core::Snapshot| (NOW_MICROS - snapshot.oldest_dirty.unwrap().0) / SECOND_MICROS;
    assert_eq!(
        (snapshot.oldest_dirty_pvbn, age(&snapshot)),
        (Some(Pvbn(1)), 10_000),
        "written when the first batch was made"
    );
}
