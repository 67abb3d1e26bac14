//! What the core tells the two policies, and what it does with what they say.

use super::*;
use crate::event::{Command, Event, Lanes};
use crate::state::extent_map::Extent;
use crate::state::slots::SlotState;
use crate::test_bench::{Bench, FIRST_PVBN, SLOTS, Told, VOLUME, is_fetch};
use alloc::vec::Vec;
use std::sync::{Arc, Mutex};
use tombolo_base::{Instant, Span};
use tombolo_billing::Table;
use tombolo_cache::{Access as Use, Alternatives, Capacity, Cause, Lru, Policy};
use tombolo_prefetch::{Gaps, Outcome, Statistics, Suggestion};

fn holding_fetches() -> Bench {
    Bench::new().holding(is_fetch)
}

fn is_demand(fetch: &Command) -> bool {
    matches!(fetch, Command::Fetch { demand: true, .. })
}

#[test]
fn a_miss_is_told_once_and_its_address_goes_along() {
    let mut bench = holding_fetches();
    let fetches = bench.read(5, 1);
    assert_eq!(bench.last_access(), (Outcome::Miss, 0));
    assert!(bench.read(5, 1).is_empty(), "the second reader joins");
    assert_eq!(bench.last_access(), (Outcome::Partial, 0));
    bench.arrive(&fetches[0]);
    bench.read(5, 1);
    assert_eq!(bench.last_access(), (Outcome::Hit, 0));
    let access = Use {
        block: Pvbn(FIRST_PVBN + 5),
        address: address(VOLUME, 5),
        sequential: Some(true),
    };
    let told = bench.told.lock().unwrap();
    let [Told::Miss(missed), Told::Insert(arrival), Told::Touch(touched)] = told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((missed, arrival.access, touched), (access, access, access));
    assert_eq!((arrival.cause, arrival.object), (Cause::Demand, FIRST_PVBN));
    assert_eq!(arrival.latency_us, 2_000);
}

#[test]
fn reads_are_counted_by_how_much_of_them_the_cache_had() {
    let mut bench = holding_fetches();
    let mut fetches = bench.read(0, 2);
    // It waits for what is on its way.
    bench.read(1, 1);
    fetches.iter().for_each(|fetch| bench.arrive(fetch));
    fetches = bench.read(0, 3);
    fetches.iter().for_each(|fetch| bench.arrive(fetch));
    for first in 0..3 {
        bench.read(first, 1);
    }
    let counters = bench.counters();
    assert_eq!(
        (counters.reads_missed, counters.reads_partial, counters.reads_hit),
        (2, 1, 3)
    );
    // By blocks: 0 and 1 were fetched, 1 was waited for; then 0 and 1 were there, and 2 was not; then all were.
    assert_eq!(
        (counters.complete_misses, counters.partial_misses, counters.hits),
        (3, 1, 5)
    );
}

/// An eighth of the cache may be on its way, the block that is read included. Of what the path carries three quarters are for prefetch, in several requests; one alone always goes, and demand beside them.
#[test]
fn no_more_is_fetched_ahead_than_the_path_carries() {
    for (fetch_blocks, ahead) in [(1, 0), (10, 0), (16, 7), (20, 7), (usize::MAX, 7)] {
        let mut bench = holding_fetches();
        bench.step(Event::Lanes(Lanes {
            fetches: 8,
            fetch_blocks,
            ..Lanes::default()
        }));
        bench.suggest(1, 8);
        let fetches = bench.read(0, 1);
        let blocks = |fetch: &Command| match fetch {
            Command::Fetch { items, demand, .. } => (items.len(), *demand),
            _ => panic!("fetches alone are held"),
        };
        let found: Vec<_> = fetches.iter().map(blocks).collect();
        match ahead {
            0 => assert_eq!(found, [(1, true)], "{fetch_blocks} blocks"),
            ahead => assert_eq!(found, [(1, true), (ahead, false)], "{fetch_blocks} blocks"),
        }
        if ahead == 0 {
            bench.finish(&fetches[0]);
            let rest = bench.take_fetches();
            assert_eq!(
                rest.iter().map(blocks).collect::<Vec<_>>(),
                [(7, false)],
                "it goes when nothing else does"
            );
        }
    }
}

#[test]
fn prefetched_blocks_are_marked_until_their_first_read() {
    let mut bench = holding_fetches();
    bench.suggest(1, 4);
    let mut fetches = bench.read(0, 1);
    let ahead = fetches.pop().unwrap();
    assert!(!is_demand(&ahead) && is_demand(&fetches[0]), "demand goes first");
    bench.arrive(&ahead);
    assert_eq!(
        bench.prefetch_outcomes(),
        [(1, 4, PrefetchOutcome::Arrived { waited: false })]
    );
    bench.read(1, 2);
    assert_eq!(bench.last_access(), (Outcome::Hit, 2));
    bench.read(1, 2);
    assert_eq!(bench.last_access(), (Outcome::Hit, 0));
    let counters = bench.counters();
    assert_eq!((counters.prefetched, counters.used, counters.accesses), (4, 2, 4));
    bench.evict_all();
    // Spared once, then evicted; AMP calls that old.
    let expected = [
        (3, 2, PrefetchOutcome::Aged),
        (3, 2, PrefetchOutcome::Evicted { aged: true }),
    ];
    assert_eq!(bench.prefetch_outcomes(), expected);
    assert_eq!(bench.counters().wasted, 2);
}

#[test]
fn a_reader_that_joins_a_prefetch_is_its_first_use() {
    let mut bench = holding_fetches();
    bench.suggest(1, 2);
    let ahead = bench.read(0, 1).pop().unwrap();
    bench.read(1, 1);
    assert_eq!(bench.last_access(), (Outcome::Partial, 1));
    bench.arrive(&ahead);
    assert_eq!(
        bench.prefetch_outcomes(),
        [(1, 2, PrefetchOutcome::Arrived { waited: true })]
    );
    let counters = bench.counters();
    assert_eq!((counters.used, counters.accesses), (1, 1));
    bench.read(1, 2);
    assert_eq!(bench.last_access(), (Outcome::Hit, 1));
}

#[test]
fn what_does_not_come_is_told_too() {
    let mut bench = holding_fetches();
    bench.suggest(1, 2);
    let fetch = bench.read(0, 1).pop().unwrap();
    bench.fail_fetch(&fetch, true);
    assert_eq!(bench.prefetch_outcomes(), [(1, 2, PrefetchOutcome::Dropped)]);
    assert_eq!(bench.counters().dropped, 2);
}

#[test]
fn fetches_are_counted_by_how_they_ended() {
    let mut bench = holding_fetches();
    let counted = |bench: &Bench| {
        let snapshot = bench.core.snapshot();
        let counters = snapshot.counters;
        (counters.fetches, counters.fetch_failures, snapshot.store.error)
    };
    let arriving = bench.read(0, 1).pop().unwrap();
    let fetch = bench.read(5, 1).pop().unwrap();
    assert_eq!(bench.core.snapshot().fetches_in_flight, 2);
    bench.fail_fetch(&fetch, true);
    assert_eq!(counted(&bench), (2, 1, Some("away".into())));
    bench.arrive(&arriving);
    assert_eq!(counted(&bench), (2, 1, None));
}

#[test]
fn what_is_not_worth_its_price_is_not_fetched() {
    let mut bench = holding_fetches();
    bench.core.set_economy(Economy {
        prices: Table::AwsS3Standard.prices().units(),
        microdollars_per_second: Some(0),
    });
    bench.suggest(1, 4);
    let fetches = bench.read(0, 1);
    assert!(fetches.len() == 1 && is_demand(&fetches[0]));
    assert_eq!(bench.prefetch_outcomes(), [(1, 4, PrefetchOutcome::Dropped)]);
    let counters = bench.counters();
    assert_eq!((counters.suggestions_refused, counters.blocks_refused), (1, 4));
    assert_eq!(counters.prefetched, 0);
}

#[test]
fn gaps_of_a_suggestion_are_not_fetched() {
    let mut bench = holding_fetches();
    let gaps = Gaps {
        period_blocks: 4,
        part_blocks: 2,
    };
    bench.suggest_with_gaps(1, 10, Some(gaps));
    let ahead = bench.read(0, 1).pop().unwrap();
    bench.arrive(&ahead);
    assert_eq!(bench.counters().prefetched, 6, "by one request");
    let is_there: Vec<bool> = (1..11)
        .map(|block| bench.core.slots.find(Pvbn(FIRST_PVBN + block)).is_some())
        .collect();
    let part = [true, true, false, false];
    assert_eq!(is_there, [&part[..], &part, &part[..2]].concat());
}

/// Asks at each read for four blocks: 0, 1, 2, and a hole.
struct Asker(Arc<Mutex<Vec<[bool; 4]>>>);

impl Prefetcher for Asker {
    fn name(&self) -> &'static str {
        "asker"
    }

    fn on_read(&mut self, _: Instant, _: Access, _: &mut Vec<Suggestion>) -> Pattern {
        panic!("it wants to know what is at hand")
    }

    fn uses_residency(&self) -> bool {
        true
    }

    fn on_read_of(
        &mut self,
        _: Instant,
        access: Access,
        residency: &mut dyn Residency,
        _: &mut Vec<Suggestion>,
    ) -> Pattern {
        let found = [0, 1, 2, 64].map(|block| residency.is_at_hand(access.volume, block));
        self.0.lock().unwrap().push(found);
        Pattern::Random
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

#[test]
fn a_prefetcher_may_ask_what_is_at_hand() {
    let (mut bench, found) = (holding_fetches(), Arc::default());
    let asker = Box::new(Asker(Arc::clone(&found)));
    bench.core.set_prefetcher(asker, Addressing::Logical);
    bench.core.overlay.map.insert(Extent {
        volume: VOLUME,
        first: 64,
        count: 1,
        target: Target::Hole,
    });
    let fetches = bench.read(0, 1);
    bench.arrive(&fetches[0]);
    bench.read(1, 1);
    bench.read(0, 1);
    let expected = [
        [false, false, false, true],
        [true, false, false, true],
        [true, true, false, true],
    ];
    assert_eq!(*found.lock().unwrap(), expected);
    assert_eq!(bench.core.tally().prefetch, "asker");
}

#[test]
fn other_policies_see_copies_as_one_block_and_what_was_replaced_as_none() {
    let mut bench = holding_fetches();
    bench.core.alternatives = Some(Alternatives::new(SLOTS));
    let copy = |first, pvbn| Extent {
        volume: VOLUME,
        first,
        count: 1,
        target: Target::At(pvbn),
    };
    let hits = |bench: &Bench| {
        let comparison = bench.core.policies().comparison;
        let lru = comparison.alternatives.iter().find(|one| one.policy == Policy::Lru);
        (comparison.reads, lru.unwrap().hits)
    };
    bench.core.overlay.map.insert(copy(64, Pvbn(FIRST_PVBN)));
    let fetches = bench.read(0, 1);
    bench.arrive(&fetches[0]);
    assert_eq!(hits(&bench), (1, 0));
    bench.read(64, 1);
    assert_eq!(hits(&bench), (2, 1));
    let span = Span {
        volume: VOLUME,
        first: 0,
        count: 1,
    };
    bench.write(1_000, span, 7);
    let written = Pvbn(bench.core.next_pvbn().0 - 1);
    bench.core.overlay.map.insert(copy(65, written));
    bench.read(65, 1);
    assert_eq!(hits(&bench), (3, 2));
    bench.write(1_001, span, 8);
    bench.read(65, 1);
    assert_eq!(hits(&bench), (4, 2), "that it is another's, too, is not known here");
    bench.read(0, 1);
    assert_eq!(hits(&bench), (5, 3));
}

fn lru() -> Box<dyn Replacement> {
    Box::new(Lru::new(Capacity::of_blocks(SLOTS)))
}

#[test]
fn a_change_of_policy_leaves_time_for_others_and_is_the_only_one() {
    let mut bench = holding_fetches();
    bench.suggest(1, 4);
    let ahead = bench.read(0, 1).pop().unwrap();
    bench.arrive(&ahead);
    assert_eq!(bench.core.slots.clean_count(), 4);
    bench.core.config.sweep_blocks_max = 1;
    bench.core.set_replacement(lru());
    let mut left = Vec::new();
    // A millisecond apart.
    for _ in 0..5 {
        bench.step(Event::Tick);
        left.extend(bench.core.slots.left_to_hand_over());
    }
    assert_eq!(left, [3, 3, 2, 2, 1]);
    let refused = ReplacementChanging { blocks_left: 1 };
    assert_eq!(bench.core.check_replacement_settled(), Err(refused));
    for _ in 0..5 {
        bench.step(Event::Tick);
    }
    assert_eq!(bench.core.check_replacement_settled(), Ok(()));
}

#[test]
fn a_change_of_policy_keeps_blocks_and_drops_marks() {
    let mut bench = holding_fetches();
    bench.suggest(1, 4);
    let ahead = bench.read(0, 1).pop().unwrap();
    bench.arrive(&ahead);
    assert_eq!(bench.core.policies().unread_blocks, 4);
    let clean = bench.core.slots.clean_count();
    bench.core.set_replacement(lru());
    assert_eq!(bench.core.slots.clean_count(), clean);
    assert_eq!(bench.core.slots.left_to_hand_over(), Some(clean as usize));
    bench.pass_millis(1);
    assert_eq!(bench.core.slots.left_to_hand_over(), None);
    let replaced = bench.core.take_replaced().map(|policy| (policy.name(), policy.len()));
    assert_eq!(replaced, Some(("recorder", 0)));
    let policies = bench.core.policies();
    assert_eq!(policies.unread_blocks, 0);
    let names: Vec<_> = policies.tallies.iter().map(|tally| tally.replacement).collect();
    assert_eq!(names, ["recorder", "lru"]);
    let slot = bench.core.slots.find(Pvbn(FIRST_PVBN + 1)).unwrap();
    assert_eq!(bench.core.slots.state(slot), SlotState::Clean);
    bench.read(1, 1);
    assert_eq!(bench.last_access(), (Outcome::Hit, 0));
}
