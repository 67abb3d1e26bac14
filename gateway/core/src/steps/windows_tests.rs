//! Reads that are larger than the cache, or whose clients go, or whose blocks never come.

use super::*;
use crate::config::Config;
use crate::event::Event;
use crate::format::page::PAGE_ENTRIES;
use crate::state::extent_map::Extent;
use crate::test_bench::{Bench, FIRST_PVBN, VOLUME, is_checkpoint, is_fetch};

const SLOTS: u32 = 32;

fn holding_fetches_and_checkpoints() -> Bench {
    let config = Config {
        slot_count: SLOTS,
        dirty_blocks_max: 8,
        ..Config::default()
    };
    Bench::with(config).holding(|command| is_fetch(command) || is_checkpoint(command))
}

/// With those that follow.
fn arrive_all(bench: &mut Bench, mut fetches: Vec<Command>) {
    while let Some(fetch) = fetches.pop() {
        bench.finish(&fetch);
        fetches.extend(bench.take_fetches());
    }
}

#[test]
fn a_read_of_more_blocks_than_there_are_slots_is_answered() {
    let mut bench = holding_fetches_and_checkpoints();
    let fetches = bench.read(0, 64);
    arrive_all(&mut bench, fetches);
    assert_eq!(bench.take_answers(), [(1, true)]);
    assert_eq!(bench.core.reads.reserved, 0);
    let dispensable = bench.core.slots.take(SLOTS, None);
    assert!(dispensable.is_some(), "nothing is held any more");
}

#[test]
fn many_large_reads_are_all_answered() {
    let mut bench = holding_fetches_and_checkpoints();
    let fetches = (0..20).flat_map(|first| bench.read(first, 40)).collect();
    arrive_all(&mut bench, fetches);
    let mut answered = bench.take_answers();
    answered.sort_unstable();
    assert_eq!(answered, (1..=20).map(|token| (token, true)).collect::<Vec<_>>());
    assert!(bench.core.reads.queue.is_empty());
}

#[test]
fn a_client_that_leaves_makes_room() {
    let mut bench = holding_fetches_and_checkpoints();
    let mut fetches: Vec<_> = (0..6).flat_map(|index| bench.read(10 * index, 10)).collect();
    assert!(!fetches.is_empty() && !bench.core.reads.queue.is_empty());
    for token in (1..=6).map(Token) {
        bench.step(Event::Cancel { token });
    }
    assert_eq!(bench.core.reads.reserved, 0);
    assert!(bench.core.reads.queue.is_empty() && bench.answers.is_empty());
    // What was under way for them arrives late and is of use to others.
    fetches.splice(0..0, bench.take_fetches());
    arrive_all(&mut bench, fetches);
    let fetches = bench.read(0, 64);
    arrive_all(&mut bench, fetches);
    assert_eq!(bench.take_answers(), [(7, true)]);
}

#[test]
fn a_read_for_which_nothing_comes_is_refused() {
    let mut bench = holding_fetches_and_checkpoints();
    for index in 0..6 {
        bench.read(10 * index, 4);
    }
    let deadline = bench.core.next_deadline().unwrap();
    assert!(deadline <= Instant(60_000_000 + 10_000));
    bench.now = 60_000_000 - 1_000;
    bench.step(Event::Tick);
    assert!(bench.answers.is_empty());
    bench.now += 10_000;
    bench.step(Event::Tick);
    assert_eq!(bench.answers.len(), 6);
    let unavailable =
        |(_, result): &(Token, Result<Answer, Refusal>)| matches!(result, Err(Refusal::CloudUnavailable(_)));
    assert!(bench.answers.iter().all(unavailable));
    assert_eq!(bench.core.counters.reads_refused, 6);
    assert_eq!(bench.core.reads.reserved, 0);
}

#[test]
fn a_read_asks_at_once_for_all_pages_of_the_map_that_it_needs() {
    let mut bench = Bench::new().holding(|command| matches!(command, Command::LoadPage { .. }));
    bench.read(PAGE_ENTRIES - 2, 4);
    let pages = bench.held.iter().map(|command| match command {
        Command::LoadPage { page, .. } => *page,
        other => panic!("{other:?}"),
    });
    assert_eq!(pages.collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_read_that_meets_a_block_of_no_known_object_says_which() {
    let mut bench = Bench::new();
    bench.core.overlay.map.insert(Extent {
        volume: VOLUME,
        first: 64,
        count: 1,
        target: Target::At(Pvbn(FIRST_PVBN + 1_000)),
    });
    bench.read(60, 5);
    assert!(matches!(bench.answers[..], [(_, Err(Refusal::Lost { block: 64, .. }))]));
}

#[test]
fn a_cache_file_that_gives_nothing_back_ends_the_read() {
    let mut bench = Bench::new();
    bench.fails = Box::new(|command, event| {
        if let (Command::ReadSlots { pieces, .. }, Event::SlotsRead { result, unreadable, .. }) = (command, event) {
            *result = Err(DiskError {
                operation: "cache file read",
                reason: "EIO".into(),
            });
            unreadable.extend(pieces.iter().map(|piece| piece.slot));
        }
    });
    bench.read(0, 1);
    assert!(
        matches!(bench.answers[..], [(_, Err(Refusal::Disk(_)))]),
        "{:?}",
        bench.answers
    );
    assert_eq!(bench.count(is_fetch), 1 + SLOTS_DROPPED_MAX_PER_BLOCK as usize);
}
