//! The policy: what it suggests for known patterns, how degrees adapt, and that its pieces work together.

use super::*;
use crate::testing::{EndlessCache, read, suggested_for_random_reads, withstands_anything};
use proptest::prelude::*;

fn config() -> GraphConfig {
    GraphConfig {
        memory_bytes_max: 8 << 20,
        track_blocks: 1,
        threshold_miss_permille: 100,
        threshold_hit_permille: 250,
        memo_micros: 0,
        ..GraphConfig::default()
    }
}

fn suggestions(policy: &mut Graph, now: u64, access: Access) -> Vec<Suggestion> {
    let mut out = Vec::new();
    policy.on_read(Instant(now), access, &mut out);
    policy.check_invariants();
    out
}

fn ranges(suggestions: &[Suggestion]) -> Vec<(u64, u64)> {
    suggestions.iter().map(|s| (s.first, s.count)).collect()
}

#[test]
fn golden_loop_is_learnt_in_one_turn() {
    let (mut cache, mut policy) = (EndlessCache::new(), Graph::new(config()));
    let places = [10u64, 5000, 900, 70_000, 33];
    for place in places {
        assert_eq!(cache.read(&mut policy, place, 3), []);
    }
    assert_eq!(
        cache.read(&mut policy, 10, 3),
        [(5000, 3), (900, 3), (70_000, 3), (33, 3)]
    );
    assert_eq!(cache.missed, 5);
}

#[test]
fn golden_tracks_are_whole_and_not_repeated() {
    let mut policy = Graph::new(GraphConfig {
        track_blocks: 16,
        ..config()
    });
    for first in [0u64, 100, 105, 300, 0] {
        suggestions(&mut policy, 1, read(first, 2));
    }
    // 100 and 105 share the track from 96 on; 300 lies in that from 288 on.
    assert_eq!(ranges(&suggestions(&mut policy, 1, read(0, 2))), [(96, 16), (288, 16)]);
}

#[test]
fn golden_random_and_sequential_reads_leave_the_graph_alone() {
    assert_eq!(suggested_for_random_reads(&mut Graph::new(config()), 3_000), 0);
    let (mut cache, mut policy) = (EndlessCache::new(), Graph::new(config()));
    for step in 0..1000 {
        cache.read(&mut policy, step * 8, 8);
    }
    assert_eq!(policy.history.node_count(), 2, "only the stream's head");
    assert!(cache.missed <= 3, "{}", cache.missed);
    let mut naive = Graph::new(GraphConfig {
        populate: Populate::Every,
        ..config()
    });
    let mut cache = EndlessCache::new();
    (0..1000).for_each(|step| {
        cache.read(&mut naive, step * 8, 8);
    });
    assert_eq!(naive.history.node_count(), 1000);
}

#[test]
fn jumps_between_streams_are_foreseen() {
    let (mut cache, mut policy) = (EndlessCache::new(), Graph::new(config()));
    let turn = |policy: &mut Graph, cache: &mut EndlessCache| {
        let before = cache.missed;
        for stream in [5u64, 2, 9] {
            (0..20).for_each(|step| {
                cache.read(policy, (stream << 20) + step * 4, 4);
            });
        }
        cache.missed - before
    };
    assert_eq!(turn(&mut policy, &mut cache), 9);
    let mut cold = EndlessCache::new();
    // Emptied cache, same history: only the very first head has to be waited for.
    assert!(turn(&mut policy, &mut cold) <= 5, "the heads follow each other");
}

#[test]
fn clients_have_histories_of_their_own_unless_told_otherwise() {
    for (scope, expected) in [
        (Scope::Client, vec![(200, 1)]),
        (Scope::Global, vec![(1000, 1), (200, 1), (2000, 1)]),
    ] {
        let mut policy = Graph::new(GraphConfig { scope, ..config() });
        let client = |id, first| Access {
            client: ClientId(id),
            ..read(first, 1)
        };
        for (id, first) in [(1, 100), (2, 1000), (1, 200), (2, 2000), (1, 100)] {
            suggestions(&mut policy, 1, client(id, first));
        }
        assert_eq!(
            ranges(&suggestions(&mut policy, 1, client(1, 100))),
            expected,
            "{scope:?}"
        );
    }
}

#[test]
fn a_hit_asks_for_more_likelihood_than_a_miss() {
    let mut policy = Graph::new(config());
    // 0 is followed by 1000, 2000, … 6000, each once: 1/6.
    for target in 1..=6 {
        suggestions(&mut policy, 1, read(0, 1));
        suggestions(&mut policy, 1, read(target * 1000, 1));
    }
    let hit = Access {
        outcome: Outcome::Hit,
        ..read(0, 1)
    };
    assert_eq!(suggestions(&mut policy, 1, hit), []);
    assert!(suggestions(&mut policy, 1, read(0, 1)).len() >= 5);
}

/// A policy that has learnt 0 -> 1000 -> 2000, of eight blocks each, and what it suggests at 0.
fn learnt(config: GraphConfig) -> (Graph, Vec<Suggestion>) {
    let mut policy = Graph::new(config);
    for first in [0u64, 1000, 2000] {
        suggestions(&mut policy, 1, read(first, 8));
    }
    let found = suggestions(&mut policy, 1, read(0, 8));
    (policy, found)
}

#[test]
fn it_rests_while_nothing_is_missed() {
    let (mut policy, _) = learnt(config());
    let mut suggests = |access| !suggestions(&mut policy, 1, access).is_empty();
    let hit = |first| Access {
        outcome: Outcome::Hit,
        ..read(first, 8)
    };
    let places = [1000, 2000, 0].into_iter().cycle().take(QUIET_READS as usize);
    let suggested: Vec<bool> = places.map(|first| suggests(hit(first))).collect();
    let (last, before) = suggested.split_last().unwrap();
    assert!(before.iter().all(|suggested| *suggested) && !last);
    assert!(!suggests(hit(2000)));
    assert!(!suggests(hit(5000)), "and nothing is recorded");
    assert!(suggests(read(0, 8)), "a miss");
    assert!(suggests(hit(1000)));
    assert_eq!(policy.history.find(VolumeId(1), 5000), None);
}

#[test]
fn candidates_are_bounded() {
    for candidates_max in [1, 32, 100] {
        let mut policy = Graph::new(GraphConfig {
            degree_initial: 1000,
            candidates_max,
            ..config()
        });
        for turn in 0..200 {
            suggestions(&mut policy, 1, read(turn * 1000, 1));
        }
        assert_eq!(suggestions(&mut policy, 1, read(0, 1)).len(), candidates_max);
    }
}

/// A cache that holds what lies below.
struct Below(u64);

impl Residency for Below {
    fn is_at_hand(&mut self, _volume: VolumeId, block: u64) -> bool {
        block < self.0
    }
}

fn suggested_of(policy: &mut Graph, access: Access, below: u64) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    policy.on_read_of(Instant(2), access, &mut Below(below), &mut out);
    ranges(&out)
}

#[test]
fn what_is_at_hand_uses_up_no_absent_budget() {
    for (budget, expected) in [
        (Budget::Every, [(1000, 8), (2000, 2)]),
        (Budget::Absent, [(1000, 8), (2000, 7)]),
    ] {
        let (mut policy, _) = learnt(GraphConfig {
            degree_initial: 10,
            degree_max: 10,
            budget,
            ..config()
        });
        assert_eq!(policy.uses_residency(), budget == Budget::Absent);
        assert_eq!(
            suggested_of(&mut policy, read(0, 8), 1005),
            expected,
            "three of 1000's are absent"
        );
    }
}

#[test]
fn what_was_read_lately_is_not_fetched_again_at_once() {
    let (mut policy, _) = learnt(GraphConfig {
        skips_recently_read: true,
        ..config()
    });
    policy.resize(64 * 8);
    for first in [1000, 2000] {
        suggested_of(&mut policy, read(first, 8), 0);
    }
    assert_eq!(suggested_of(&mut policy, read(0, 8), 0), []);
    assert_eq!(
        suggested_of(&mut policy, read(0, 8), 1008),
        [(1000, 8)],
        "it is at hand"
    );
    let elsewhere = |first| Access {
        client: ClientId(1),
        ..read(first, 20)
    };
    for first in [10_000, 20_000] {
        suggested_of(&mut policy, elsewhere(first), 0);
    }
    assert_eq!(
        suggested_of(&mut policy, read(0, 8), 0),
        [(1000, 8), (2000, 8)],
        "64 blocks later"
    );
}

fn source_degree(policy: &Graph) -> (u16, u16) {
    policy
        .history
        .degree(policy.history.find(VolumeId(1), 0).unwrap())
        .unwrap()
}

#[test]
fn degrees_follow_the_outcomes() {
    let config = GraphConfig {
        degree_initial: 32,
        ..config()
    };
    let (mut policy, found) = learnt(config.clone());
    assert_eq!(ranges(&found), [(1000, 8), (2000, 8)]);
    assert_eq!(source_degree(&policy), (32, 16));
    // Sixteen blocks less the distance of 16: the first one is the trigger.
    assert_eq!((found[0].trigger, found[1].trigger), (Some(1000), None));
    let feedback = |first, count, prefetch_outcome| Feedback {
        volume: VolumeId(1),
        first,
        count,
        tag: found[0].tag,
        prefetch_outcome,
    };
    policy.on_feedback(
        Instant(1),
        feedback(1000, 8, PrefetchOutcome::Arrived { waited: false }),
    );
    assert_eq!(source_degree(&policy), (32, 16));
    policy.on_feedback(Instant(1), feedback(1000, 8, PrefetchOutcome::Arrived { waited: true }));
    assert_eq!(source_degree(&policy), (32, 24));
    policy.on_feedback(Instant(1), feedback(1000, 8, PrefetchOutcome::Arrived { waited: true }));
    assert_eq!(source_degree(&policy), (32, 31), "below p");
    // The last block is read: p rises by the read's length.
    suggestions(&mut policy, 2, read(2000, 8));
    assert_eq!(source_degree(&policy), (40, 31));
    // Evicted unread: nothing yet. Read then: one off for each track.
    policy.on_feedback(Instant(3), feedback(1000, 3, PrefetchOutcome::Evicted { aged: false }));
    assert_eq!(source_degree(&policy), (40, 31));
    suggestions(&mut policy, 4, read(1000, 8));
    assert_eq!(source_degree(&policy), (37, 31));
    suggestions(&mut policy, 4, read(1000, 8));
    assert_eq!(source_degree(&policy), (37, 31), "a ghost is read once");
}

#[test]
fn an_end_that_was_evicted_does_not_raise_the_degree() {
    let (mut policy, found) = learnt(GraphConfig {
        degree_initial: 32,
        ..config()
    });
    let end = Feedback {
        volume: VolumeId(1),
        first: 2000,
        count: 8,
        tag: found[1].tag,
        prefetch_outcome: PrefetchOutcome::Evicted { aged: false },
    };
    policy.on_feedback(Instant(2), end);
    suggestions(&mut policy, 3, read(2000, 8));
    assert_eq!(source_degree(&policy), (24, 16), "eight ghosts were read");
}

#[test]
fn the_degree_bounds_what_is_fetched() {
    let (_, found) = learnt(GraphConfig {
        degree_initial: 10,
        degree_max: 10,
        ..config()
    });
    assert_eq!(ranges(&found), [(1000, 8), (2000, 2)]);
}

#[test]
fn triggers_alone_expand_what_was_fetched_ahead() {
    let config = GraphConfig {
        expand: Expand::AtTriggers,
        degree_initial: 12,
        ..config()
    };
    let mut policy = Graph::new(config);
    for first in [0u64, 1000, 2000, 3000, 4000, 5000] {
        suggestions(&mut policy, 1, read(first, 4));
    }
    let found = suggestions(&mut policy, 1, read(0, 4));
    // Twelve blocks, a distance of six: the trigger is the sixth block.
    assert_eq!(ranges(&found), [(1000, 4), (2000, 4), (3000, 4)]);
    assert_eq!(found[1].trigger, Some(2001));
    let hit = |first| Access {
        outcome: Outcome::Hit,
        prefetched: 4,
        ..read(first, 4)
    };
    assert_eq!(suggestions(&mut policy, 1, hit(1000)), []);
    assert_eq!(
        ranges(&suggestions(&mut policy, 1, hit(2000))),
        [(3000, 4), (4000, 4), (5000, 4)]
    );
    assert_eq!(suggestions(&mut policy, 1, hit(3000)), []);
    assert!(
        !suggestions(&mut policy, 1, read(1000, 4)).is_empty(),
        "a miss always does"
    );
}

#[test]
fn candidates_are_remembered_for_a_minute() {
    let mut policy = Graph::new(GraphConfig {
        memo_micros: 60_000_000,
        ..config()
    });
    let start = 1_000_000;
    for (at, first) in [0u64, 1000, 0, 2000, 2000, 2000].into_iter().enumerate() {
        suggestions(&mut policy, start + at as u64, read(first, 1));
    }
    let young = suggestions(&mut policy, start + 50_000_000, read(0, 1));
    assert_eq!(ranges(&young), [(1000, 1)], "the list of the second read of 0");
    let old = suggestions(&mut policy, start + 61_000_000, read(0, 1));
    assert_eq!(ranges(&old), [(1000, 1), (2000, 1)]);
}

#[test]
fn history_survives_a_restart() {
    let (policy, found) = learnt(config());
    let bytes = policy.history().unwrap().encode(Instant(5));
    let history = History::decode(config().history(), Instant(0), &bytes).unwrap();
    let mut reborn = Graph::with_history(config(), history);
    assert_eq!(ranges(&suggestions(&mut reborn, 1, read(0, 8))), ranges(&found));
}

#[test]
fn memory_is_bounded_and_reported() {
    let mut policy = Graph::new(config());
    let mut prng = tombolo_base::Prng::new(5);
    let mut out = Vec::new();
    for step in 0..300_000 {
        out.clear();
        policy.on_read(Instant(step), read(prng.below(1 << 32), 1), &mut out);
    }
    let statistics = policy.statistics();
    assert!(policy.history.evicted_count() > 0);
    // The least bound is four pieces of each kind.
    assert!(
        policy.history.bytes() as u64 <= (8 << 20) + (1 << 20),
        "{}",
        policy.history.bytes()
    );
    assert!(statistics.nodes > 65_000 && statistics.edges > 0 && statistics.bytes > policy.history.bytes());
}

#[test]
fn tables_grow_with_the_cache_within_bounds() {
    let mut policy = Graph::new(config());
    let mut bytes_with = |cache_blocks| {
        policy.resize(cache_blocks);
        policy.statistics().bytes
    };
    let small = bytes_with(0);
    assert_eq!(bytes_with(64 * GHOSTS_DIVISOR), small, "the least");
    let entry_bytes = 32 + 1;
    // A quarter of 65,536 blocks is 16,384 in place of 64; a sixteenth, twice, 4,096.
    let grown = (16_384 - 64 + 2 * (4_096 - 64)) * entry_bytes;
    assert_eq!(bytes_with(1 << 16), small + grown);
    assert!(bytes_with(u64::MAX) <= small + (100 << 20));
    assert_eq!(bytes_with(0), small);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn survives_anything(seed: u64, every: bool, triggers: bool, track_log in 0u32..7) {
        let config = GraphConfig {
            populate: if every { Populate::Every } else { Populate::Random },
            expand: if triggers { Expand::AtTriggers } else { Expand::EveryRead },
            track_blocks: 1 << track_log,
            memo_micros: 60_000_000,
            memo_entries: 64,
            degree_initial: 4,
            degree_max: 100,
            clients_max: 2,
            budget: if every { Budget::Absent } else { Budget::Every },
            skips_recently_read: triggers,
            candidates_max: 1 << track_log,
            ..config()
        };
        withstands_anything(&mut Graph::new(config), seed);
    }

    /// Prefetched blocks lie within a track of what was read before: nothing is made up.
    #[test]
    fn only_what_was_read_is_suggested(reads in prop::collection::vec((0u64..500, 1u64..6), 1..200)) {
        let mut policy = Graph::new(config());
        let mut known = std::collections::BTreeSet::new();
        for (step, (first, count)) in reads.into_iter().enumerate() {
            known.extend(first..first + count);
            for suggestion in suggestions(&mut policy, step as u64, read(first, count)) {
                if suggestion.class == Class::History {
                    prop_assert!((suggestion.first..suggestion.end()).all(|block| known.contains(&block)));
                }
            }
        }
    }
}
