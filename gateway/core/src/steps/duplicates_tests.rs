//! What becomes of the copy of a written block whose contents the cloud has already.

use super::*;
use crate::event::Event;
use crate::state::prefetched::address;
use crate::test_bench::{Bench, FIRST_PVBN, Told, VOLUME, is_fetch, span};
use tombolo_cache::{Access, Cause};

/// Where the duplicate is written; the contents are those of `ORIGINAL`.
const BLOCK: u64 = 100;
const ORIGINAL: Pvbn = Pvbn(FIRST_PVBN + 3);
const SUM: u64 = 3;

fn holding_syncs_and_fetches() -> Bench {
    Bench::new().holding(|command| is_sync(command) || is_fetch(command))
}

fn is_sync(command: &Command) -> bool {
    matches!(command, Command::Sync { .. })
}

fn sync(bench: &mut Bench) {
    bench.core.want_sync();
    bench.step(Event::Tick);
    bench.finish_held(is_sync);
    assert_eq!(bench.count_held(is_sync), 0);
}

/// Writes the duplicates and lets them be found out; the redirects are not durable yet.
fn write_duplicates(bench: &mut Bench, count: u64) {
    bench.write(u64::MAX, span(BLOCK, count), SUM);
    assert_eq!(bench.held.len(), 0);
    sync(bench);
    bench.now += 3_600_000_000;
    bench.step(Event::Tick);
    assert!(bench.core.dirty.is_empty());
}

/// Whether reading one block, which is then at hand, took a fetch.
fn is_missed(bench: &mut Bench, block: u64) -> bool {
    let fetches = bench.read(block, 1);
    fetches.iter().for_each(|fetch| bench.arrive(fetch));
    !fetches.is_empty()
}

#[test]
fn a_duplicate_stays_in_the_cache_as_a_copy_of_the_original() {
    let mut bench = holding_syncs_and_fetches();
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
    let mut bench = holding_syncs_and_fetches();
    write_duplicates(&mut bench, 1);
    bench.evict_all();
    assert!(bench.core.slots.find(ORIGINAL).is_some());
    sync(&mut bench);
    bench.evict_all();
    assert_eq!(bench.core.slots.find(ORIGINAL), None);
}

#[test]
fn one_copy_is_enough() {
    let mut bench = holding_syncs_and_fetches();
    write_duplicates(&mut bench, 3);
    sync(&mut bench);
    assert_eq!(bench.core.slots.clean_count(), 1);
    let mut bench = holding_syncs_and_fetches();
    assert!(is_missed(&mut bench, 3));
    write_duplicates(&mut bench, 2);
    sync(&mut bench);
    assert_eq!(bench.core.slots.clean_count(), 1);
}

#[test]
fn a_copy_on_its_way_is_enough() {
    let mut bench = holding_syncs_and_fetches();
    let fetches = bench.read(3, 1);
    write_duplicates(&mut bench, 1);
    bench.arrive(&fetches[0]);
    assert!(!is_missed(&mut bench, BLOCK));
    sync(&mut bench);
    assert_eq!(bench.core.slots.clean_count(), 1);
}

#[test]
fn an_overwritten_duplicate_takes_nothing_from_others() {
    let mut bench = holding_syncs_and_fetches();
    write_duplicates(&mut bench, 1);
    sync(&mut bench);
    bench.zero(u64::MAX, span(BLOCK, 1));
    assert!(!is_missed(&mut bench, 3));
}

#[test]
fn a_duplicate_with_a_bad_copy_is_fetched() {
    let mut bench = holding_syncs_and_fetches();
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
    let mut bench = holding_syncs_and_fetches();
    write_duplicates(&mut bench, 1);
    sync(&mut bench);
    let slot = bench.core.slots.find(ORIGINAL).unwrap();
    bench.fails = Box::new(move |_, event| {
        if let Event::SlotsRead { corrupt, .. } = event {
            corrupt.push(slot);
        }
    });
    let fetches = bench.read(BLOCK, 1);
    let counters = bench.core.counters;
    assert_eq!((counters.slots_stale, counters.slots_corrupt), (0, 1));
    assert_eq!(fetches.len(), 1);
}
