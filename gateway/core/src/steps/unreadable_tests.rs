//! Dirty blocks whose slots cannot be read for a while, or ever.

use super::*;
use crate::DiskError;
use crate::event::{Event, Token, WriteRequest};
use crate::state::prefetch_state::Economy;
use crate::test_bench::{Bench, VOLUME};
use alloc::{string::String, vec};
use tombolo_base::{BlockEncoding, BlockSum, Span};

const MINUTE_MICROS: u64 = 60_000_000;

/// A disk on which the slots of some blocks cannot be read.
#[derive(Default)]
struct BadDisk {
    /// By hash jobs.
    fails_hashing: Vec<Pvbn>,
    /// By uploads.
    fails_uploads: Vec<Pvbn>,
    hashed: Vec<Pvbn>,
    /// The blocks of each object.
    uploaded: Vec<Vec<Pvbn>>,
}

impl BadDisk {
    fn step(&mut self, bench: &mut Bench, event: Event) {
        bench.step(event);
        while !bench.out.is_empty() {
            for command in core::mem::take(&mut bench.out) {
                if let Some(event) = self.carry_out(command) {
                    bench.step(event);
                }
            }
        }
    }

    fn carry_out(&mut self, command: Command) -> Option<Event> {
        Some(match command {
            Command::WriteSlots { token, .. } => Event::SlotsWritten { token, result: Ok(()) },
            Command::WriteJournal(write) => {
                let (lsn, end, result) = (write.lsn, write.end, Ok(()));
                Event::JournalWritten { lsn, end, result }
            }
            Command::Sync { .. } => Event::Synced { result: Ok(()) },
            Command::Hash { job, items } => {
                self.hashed.extend(items.iter().map(|item| item.pvbn));
                let results = items.iter().map(|item| match self.fails_hashing.contains(&item.pvbn) {
                    true => HashResult::Unreadable,
                    false => HashResult::Done {
                        fingerprint: Fingerprint([item.pvbn.0 as u8; 32]),
                        existing: None,
                    },
                });
                let results = results.collect();
                Event::Hashed { job, results }
            }
            Command::Upload { job, items } => {
                let pvbns = items.iter().map(|item| item.pvbn);
                let unreadable: Vec<Pvbn> = pvbns.clone().filter(|pvbn| self.fails_uploads.contains(pvbn)).collect();
                let result = if unreadable.is_empty() {
                    self.uploaded.push(pvbns.collect());
                    let blocks = items
                        .iter()
                        .map(|item| (item.pvbn, item.fingerprint, 4096, BlockEncoding::Plain));
                    Ok(ObjectDescriptor::unnamed(blocks))
                } else {
                    let error = DiskError {
                        operation: "read of a slot",
                        reason: String::from("EIO"),
                    };
                    Err(UploadFailure::Disk { error, unreadable })
                };
                Event::Uploaded { job, result }
            }
            Command::Checkpoint { .. } => Event::Checkpointed { result: Ok(()) },
            _ => return None,
        })
    }

    /// Writes four blocks, of which the second is the one that cannot be read, and drains.
    fn write(&mut self, bench: &mut Bench) -> Pvbn {
        let first = bench.core.next_pvbn();
        let (volume, count) = (VOLUME, 4);
        let sums = (0..count).map(|block| Some(BlockSum(block))).collect();
        let request = WriteRequest::new(
            Span {
                volume,
                first: 0,
                count,
            },
            sums,
        );
        let bad = first.plus(1);
        for fails in [&mut self.fails_hashing, &mut self.fails_uploads] {
            fails.iter_mut().for_each(|pvbn| *pvbn = bad);
        }
        self.step(
            bench,
            Event::Write {
                token: Token(1),
                request,
            },
        );
        self.step(bench, Event::Drain);
        bad
    }

    fn pass(&mut self, bench: &mut Bench, micros: u64) {
        let end = bench.now + micros;
        while let Some(at) = bench.core.next_deadline().filter(|at| at.0 <= end) {
            bench.now = bench.now.max(at.0);
            self.step(bench, Event::Tick);
        }
        bench.now = end;
    }
}

#[test]
fn a_disk_that_comes_back_within_minutes_loses_nothing() {
    let mut bench = Bench::new(Economy::default());
    let mut disk = BadDisk {
        fails_hashing: vec![Pvbn(0)],
        ..BadDisk::default()
    };
    let bad = disk.write(&mut bench);
    assert_eq!(disk.uploaded.concat().len(), 3, "the others go on");
    disk.pass(&mut bench, 4 * MINUTE_MICROS);
    assert_eq!(bench.core.snapshot().unreadable_blocks, 1);
    assert_eq!(bench.core.snapshot().counters.blocks_lost, 0);
    let attempts = disk.hashed.iter().filter(|pvbn| **pvbn == bad).count();
    assert!((6..12).contains(&attempts), "{attempts} attempts in four minutes");
    disk.fails_hashing.clear();
    disk.pass(&mut bench, MINUTE_MICROS);
    assert!(disk.uploaded.last().unwrap().contains(&bad));
    let snapshot = bench.core.snapshot();
    assert_eq!((snapshot.unreadable_blocks, snapshot.counters.blocks_lost), (0, 0));
    assert!(bench.core.is_drained());
}

#[test]
fn a_block_that_stays_unreadable_is_given_up() {
    let mut bench = Bench::new(Economy::default());
    let mut disk = BadDisk {
        fails_hashing: vec![Pvbn(0)],
        ..BadDisk::default()
    };
    disk.write(&mut bench);
    disk.pass(&mut bench, 7 * MINUTE_MICROS);
    let snapshot = bench.core.snapshot();
    assert_eq!((snapshot.unreadable_blocks, snapshot.counters.blocks_lost), (0, 1));
    assert!(bench.core.is_drained());
}

#[test]
fn what_an_upload_cannot_read_does_not_hold_up_its_pack() {
    let mut bench = Bench::new(Economy::default());
    let mut disk = BadDisk {
        fails_uploads: vec![Pvbn(0)],
        ..BadDisk::default()
    };
    let bad = disk.write(&mut bench);
    assert_eq!(disk.uploaded.concat().len(), 3, "the others go at once");
    let unique = bench.core.snapshot().totals.blocks_unique;
    assert_eq!(unique, 3);
    disk.fails_uploads.clear();
    disk.pass(&mut bench, MINUTE_MICROS);
    assert_eq!(disk.uploaded.last(), Some(&vec![bad]));
    assert_eq!(bench.core.snapshot().totals.blocks_unique, 4);
}

#[test]
fn an_unreadable_block_that_is_overwritten_is_gone_at_once() {
    let mut bench = Bench::new(Economy::default());
    let mut disk = BadDisk {
        fails_hashing: vec![Pvbn(0)],
        ..BadDisk::default()
    };
    let bad = disk.write(&mut bench);
    let (volume, first, count) = (VOLUME, 1, 1);
    let request = WriteRequest::new(Span { volume, first, count }, vec![Some(BlockSum(9))]);
    disk.step(
        &mut bench,
        Event::Write {
            token: Token(2),
            request,
        },
    );
    disk.step(&mut bench, Event::Drain);
    assert!(bench.core.is_drained(), "before the time to read it again");
    assert!(!disk.uploaded.concat().contains(&bad));
    assert_eq!(bench.core.snapshot().unreadable_blocks, 0);
}
