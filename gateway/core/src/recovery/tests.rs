//! Which batches recovery takes, and what becomes of their records.

use super::arrival::Arrival;
use super::replay::replay_record;
use super::segment::{Found, Place, read_segment};
use super::{LocalDisk, RecoveryError, Report};
use crate::format::record::{Batch, LinkRun, Lsn, Record, SegmentHeader, SlotRun};
use crate::state::slots::SlotState;
use crate::test_bench::{Bench, FIRST_PVBN};
use tombolo_base::{BlockEncoding, BlockSum, Fingerprint, Lcbn, ObjectDescriptor, Pvbn, VolumeId, WallTime};

/// Slots by their sums.
struct Sums(Vec<u64>);

impl LocalDisk for Sums {
    fn segments(&self) -> Result<Vec<u64>, String> {
        Ok(Vec::new())
    }
    fn read_segment(&self, _segment: u64) -> Result<Vec<u8>, String> {
        Err(String::new())
    }
    fn cache_header(&self) -> Result<Option<Vec<u8>>, String> {
        Ok(Some(Vec::new()))
    }
    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        Ok(BlockSum(self.0[slot.0 as usize]))
    }
}

fn write(block: u64, pvbn: u64, slot: u32, sum: u64) -> Record {
    let run = SlotRun {
        first: Lcbn(slot),
        count: 1,
    };
    Record::Write {
        volume: VolumeId(1),
        first: block,
        pvbn: Pvbn(pvbn),
        slots: vec![run],
        sums: vec![BlockSum(sum)],
    }
}

/// A batch for each record, at LSN 0, 100, 200 and so on.
fn candidates(records: Vec<Record>) -> Vec<Found> {
    let lsns = (0..).map(|index| Lsn(100 * index));
    let found = lsns.zip(records).map(|(lsn, record)| Found {
        batch: Batch {
            lsn,
            durable_lsn: Lsn(0),
            time: WallTime(0),
            records: vec![record],
        },
        end: Lsn(lsn.0 + 100),
        place: Place {
            segment: 1,
            offset: 0,
            lsn,
        },
    });
    found.collect()
}

fn arrived_count(candidates: &[Found], durable: Lsn, disk: &Sums) -> Result<usize, RecoveryError<String>> {
    let mut arrival = Arrival::new(durable, 64);
    for found in candidates {
        arrival.look(found, disk)?;
    }
    let given_up = arrival.first_given_up();
    Ok(given_up.map_or(candidates.len(), |(length, place)| {
        assert_eq!(place.lsn.0 as usize / 100, length);
        length
    }))
}

#[test]
fn a_slot_used_again_does_not_end_the_journal() {
    // Slot 0 held block 7 until it was overwritten, then block 8.
    let records = candidates(vec![write(7, 1, 0, 11), write(7, 2, 1, 22), write(8, 3, 0, 33)]);
    assert_eq!(arrived_count(&records, Lsn(0), &Sums(vec![33, 22])), Ok(3));
    // Used again by a write whose record was lost with the crash.
    assert_eq!(arrived_count(&records[..2], Lsn(0), &Sums(vec![99, 22])), Ok(2));
}

#[test]
fn a_slot_used_again_after_a_link_does_not_end_the_journal() {
    let link = |volume, first| {
        Record::Link(LinkRun {
            volume,
            first,
            count: 1,
            pvbn: Pvbn(90),
        })
    };
    // Slot 0 held block 7 until a link replaced it, then block 8.
    let records = candidates(vec![write(7, 1, 0, 11), link(VolumeId(1), 7), write(8, 2, 0, 33)]);
    assert_eq!(arrived_count(&records, Lsn(0), &Sums(vec![33])), Ok(3));
    let elsewhere = candidates(vec![write(7, 1, 0, 11), link(VolumeId(1), 6), write(8, 2, 0, 33)]);
    assert_eq!(arrived_count(&elsewhere, Lsn(0), &Sums(vec![33])), Ok(0));
}

/// Block 7 was written to slot 0; then something made it dispensable; then slot 0 was used for block 8.
fn arrived_after(dispensing: Record) -> usize {
    let records = candidates(vec![write(7, 1, 0, 11), dispensing, write(8, 2, 0, 33)]);
    arrived_count(&records, Lsn(0), &Sums(vec![33])).unwrap()
}

#[test]
fn a_slot_used_again_after_a_hole_does_not_end_the_journal() {
    let hole = |volume, first, count| Record::Hole { volume, first, count };
    assert_eq!(arrived_after(hole(VolumeId(1), 0, 8)), 3);
    assert_eq!(arrived_after(hole(VolumeId(1), 7, 1)), 3);
    for elsewhere in [
        hole(VolumeId(2), 0, 8),
        hole(VolumeId(1), 0, 7),
        hole(VolumeId(1), 8, 4),
    ] {
        assert_eq!(arrived_after(elsewhere), 0);
    }
}

#[test]
fn a_slot_used_again_after_its_volume_went_does_not_end_the_journal() {
    let volume = VolumeId(1);
    assert_eq!(arrived_after(Record::Delete { volume }), 3);
    let volume = VolumeId(2);
    assert_eq!(arrived_after(Record::Delete { volume }), 0);
}

#[test]
fn a_slot_used_again_after_a_redirect_does_not_end_the_journal() {
    let redirect = |from, count| Record::Redirect {
        volume: VolumeId(1),
        first: 7,
        count,
        from: Pvbn(from),
        to: Pvbn(90),
    };
    assert_eq!([redirect(1, 1), redirect(0, 2)].map(arrived_after), [3, 3]);
    assert_eq!([redirect(0, 1), redirect(2, 1)].map(arrived_after), [0, 0]);
}

#[test]
fn a_slot_used_again_after_its_block_was_stored_does_not_end_the_journal() {
    let object = |pvbn| {
        let stored = (Pvbn(pvbn), Fingerprint([0; 32]), 4096, BlockEncoding::Plain);
        Record::Object(ObjectDescriptor::unnamed([stored]))
    };
    assert_eq!([object(1), object(2)].map(arrived_after), [3, 0]);
}

#[test]
fn a_needed_block_that_did_not_arrive_ends_the_journal_before_it() {
    let records = candidates(vec![write(7, 1, 0, 11), write(8, 2, 1, 22), write(9, 3, 2, 33)]);
    assert_eq!(arrived_count(&records, Lsn(0), &Sums(vec![11, 99, 33])), Ok(1));
    assert_eq!(
        arrived_count(&records, Lsn(200), &Sums(vec![11, 99, 33])),
        Ok(3),
        "known durable"
    );
    assert_eq!(arrived_count(&records, Lsn(0), &Sums(vec![99, 22, 33])), Ok(0));
}

#[test]
fn a_missing_block_that_is_replaced_by_a_missing_block_ends_the_journal_before_both() {
    let records = candidates(vec![write(7, 1, 0, 11), write(7, 2, 1, 22), write(9, 3, 2, 33)]);
    assert_eq!(arrived_count(&records, Lsn(0), &Sums(vec![99, 99, 33])), Ok(0));
}

#[test]
fn a_segment_rolled_over_by_an_unsynced_journal_claims_no_durability() {
    let header = SegmentHeader {
        segment: 2,
        first_lsn: Lsn(5_000),
        journal_identity: 9,
        allocated_bytes: 0,
    };
    let batch = Batch {
        lsn: Lsn(5_000),
        durable_lsn: Lsn(4_000),
        time: WallTime(0),
        records: Vec::new(),
    };
    let bytes = [&header.encode()[..], &batch.encode(9)].concat();
    let segment = read_segment(&bytes, 2, 9).unwrap();
    assert_eq!(segment.durable, Lsn(4_000));
}

#[test]
fn a_redirected_block_is_recovered_as_an_unproven_copy_of_the_original() {
    let mut core = Bench::new().core;
    let original = Pvbn(FIRST_PVBN + 3);
    let redirect = Record::Redirect {
        volume: VolumeId(1),
        first: 5,
        count: 1,
        from: Pvbn(2_000),
        to: original,
    };
    for record in [write(5, 2_000, 7, 77), redirect] {
        replay_record(&mut core, WallTime(0), record, &mut Report::default());
    }
    core.slots.rebuild_free();
    core.check_invariants();
    assert_eq!(core.slots.find(original), Some(Lcbn(7)));
    let is_unproven = core.slots.is_unproven(Lcbn(7));
    assert_eq!((core.slots.state(Lcbn(7)), is_unproven), (SlotState::Clean, true));
    assert_eq!(core.slots.sum(Lcbn(7)), BlockSum(77));
    assert!(core.slots.find(Pvbn(2_000)).is_none() && core.dirty.is_empty());
}
