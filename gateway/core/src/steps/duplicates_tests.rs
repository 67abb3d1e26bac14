//! What becomes of the copy of a written block whose contents the cloud has already.

use super::*;
use crate::event::{Event, Token, WriteRequest};
use crate::state::prefetch_state::Economy;
use crate::state::prefetched::address;
use crate::test_bench::{Bench, FIRST_PVBN, Told, VOLUME};
use tombolo_base::{BlockSum, Span};
use tombolo_cache::{Access, Cause};
use tombolo_prefetch::ClientId;

/// Where the duplicate is written; the contents are those of `ORIGINAL`.
const BLOCK: u64 = 100;
const ORIGINAL: Pvbn = Pvbn(FIRST_PVBN + 3);
const SUM: BlockSum = BlockSum(77);

/// Carries out what the core asks for, but for syncs and fetches: those are handed back.
fn carry_out(bench: &mut Bench) -> Vec<Command> {
    let mut left = Vec::new();
    while !bench.out.is_empty() {
        for command in core::mem::take(&mut bench.out) {
            match command {
                Command::WriteSlots { token, .. } => bench.step(Event::SlotsWritten { token, result: Ok(()) }),
                Command::WriteJournal(write) => {
                    let (lsn, end, result) = (write.lsn, write.end, Ok(()));
                    bench.step(Event::JournalWritten { lsn, end, result });
                }
                Command::Hash { job, items } => {
                    let fingerprint = Fingerprint([3; 32]);
                    let existing = Some(ORIGINAL);
                    let results = items.iter().map(|_| HashResult::Done { fingerprint, existing });
                    let results = results.collect();
                    bench.step(Event::Hashed { job, results });
                }
                Command::ReadSlots { token, pieces } => {
                    assert!(pieces.iter().all(|piece| piece.sums.iter().all(|sum| *sum == SUM)));
                    let (result, corrupt, unreadable) = (Ok(()), Vec::new(), Vec::new());
                    bench.step(Event::SlotsRead {
                        token,
                        result,
                        corrupt,
                        unreadable,
                    });
                }
                Command::Verify { job, .. } => bench.step(Event::Verified { job, result: Ok(()) }),
                Command::Sync { .. } | Command::Fetch { .. } => left.push(command),
                _ => {}
            }
        }
    }
    left
}

fn sync(bench: &mut Bench) {
    bench.core.want_sync();
    bench.step(Event::Tick);
    assert!(matches!(carry_out(bench)[..], [Command::Sync { .. }]));
    bench.step(Event::Synced { result: Ok(()) });
    assert!(carry_out(bench).is_empty());
}

/// Writes the duplicates and lets them be found out; the redirects are not durable yet.
fn write_duplicates(bench: &mut Bench, count: u64) {
    let (volume, first) = (VOLUME, BLOCK);
    bench.step(Event::Write {
        token: Token(u64::MAX),
        request: WriteRequest::new(Span { volume, first, count }, vec![Some(SUM); count as usize]),
    });
    assert!(carry_out(bench).is_empty());
    sync(bench);
    bench.now += 3_600_000_000;
    bench.step(Event::Tick);
    carry_out(bench);
    assert!(bench.core.dirty.is_empty());
}

/// Whether reading one block, which is then at hand, took a fetch.
fn is_missed(bench: &mut Bench, block: u64) -> bool {
    let fetches = bench.read(block, 1);
    let is_missed = !fetches.is_empty();
    fetches.into_iter().for_each(|fetch| bench.arrive(fetch));
    is_missed
}

#[test]
fn a_duplicate_stays_in_the_cache_as_a_copy_of_the_original() {
    let mut bench = Bench::new(Economy::default());
    write_duplicates(&mut bench, 1);
    assert!(!is_missed(&mut bench, BLOCK), "before its redirect is durable");
    sync(&mut bench);
    assert!(!is_missed(&mut bench, BLOCK));
    assert!(!is_missed(&mut bench, 3), "the original");
    let told = bench.told.lock().unwrap().clone();
    let [Told::Insert(arrival), Told::Touch(_), Told::Touch(_)] = told[..] else {
        panic!("{told:?}")
    };
    let access = Access {
        address: address(VOLUME, BLOCK),
        ..Access::to(ORIGINAL)
    };
    assert_eq!(
        (arrival.access, arrival.cause, arrival.object),
        (access, Cause::Write, FIRST_PVBN)
    );
}

#[test]
fn a_duplicate_is_not_evicted_before_its_redirect_is_durable() {
    let mut bench = Bench::new(Economy::default());
    write_duplicates(&mut bench, 1);
    bench.evict_all();
    assert!(bench.core.slots.find(ORIGINAL).is_some());
    sync(&mut bench);
    bench.evict_all();
    assert_eq!(bench.core.slots.find(ORIGINAL), None);
}

#[test]
fn one_copy_is_enough() {
    let mut bench = Bench::new(Economy::default());
    write_duplicates(&mut bench, 3);
    sync(&mut bench);
    assert_eq!(bench.core.slots.clean_count(), 1);
    let mut bench = Bench::new(Economy::default());
    assert!(is_missed(&mut bench, 3));
    write_duplicates(&mut bench, 2);
    sync(&mut bench);
    assert_eq!(bench.core.slots.clean_count(), 1);
}

#[test]
fn a_copy_on_its_way_is_enough() {
    let mut bench = Bench::new(Economy::default());
    let mut fetches = bench.read(3, 1);
    write_duplicates(&mut bench, 1);
    bench.arrive(fetches.pop().unwrap());
    assert!(!is_missed(&mut bench, BLOCK));
    sync(&mut bench);
    assert_eq!(bench.core.slots.clean_count(), 1);
}

#[test]
fn an_overwritten_duplicate_takes_nothing_from_others() {
    let mut bench = Bench::new(Economy::default());
    write_duplicates(&mut bench, 1);
    sync(&mut bench);
    let (volume, first, count) = (VOLUME, BLOCK, 1);
    bench.step(Event::Zero {
        token: Token(u64::MAX),
        span: Span { volume, first, count },
        force_unit_access: false,
    });
    carry_out(&mut bench);
    assert!(!is_missed(&mut bench, 3));
}

#[test]
fn a_duplicate_with_a_bad_copy_is_fetched() {
    let mut bench = Bench::new(Economy::default());
    write_duplicates(&mut bench, 1);
    let slot = bench.core.slots.find(ORIGINAL).unwrap();
    bench.core.lose_dirty(slot, ALTERED);
    assert!(is_missed(&mut bench, BLOCK));
    assert_eq!(bench.core.counters.blocks_lost, 0);
    sync(&mut bench);
    assert!(!is_missed(&mut bench, BLOCK));
}

#[test]
fn a_copy_that_was_proven_and_went_bad_is_counted_and_fetched() {
    let mut bench = Bench::new(Economy::default());
    write_duplicates(&mut bench, 1);
    sync(&mut bench);
    let slot = bench.core.slots.find(ORIGINAL).unwrap();
    let (volume, first, count) = (VOLUME, BLOCK, 1);
    bench.step(Event::Read {
        token: Token(99),
        client: ClientId(7),
        span: Span { volume, first, count },
    });
    let reading = core::mem::take(&mut bench.out)
        .into_iter()
        .find_map(|command| match command {
            Command::ReadSlots { token, .. } => Some(token),
            _ => None,
        });
    bench.step(Event::SlotsRead {
        token: reading.expect("it is in the cache"),
        result: Ok(()),
        corrupt: vec![slot],
        unreadable: Vec::new(),
    });
    let counters = bench.core.counters;
    assert_eq!((counters.slots_stale, counters.slots_corrupt), (0, 1));
    assert_eq!(bench.fetches().len(), 1);
}
