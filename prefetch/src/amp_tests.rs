//! AMP against the paper's own formulation (flags on pages, a record at the last page of each set), golden sequences,
//! and a stream over a slow link.

use super::*;
use crate::testing::{EndlessCache, read, suggested_for_random_reads, withstands_anything};
use crate::{Graph, GraphConfig};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn policy(growth: TriggerGrowth, degree_blocks_max: u64) -> Amp {
    Amp::new(AmpConfig {
        growth,
        degree_blocks_max,
        ..AmpConfig::default()
    })
}

#[test]
fn golden_single_block_reads() {
    let (mut cache, mut policy) = (EndlessCache::new(), policy(TriggerGrowth::Additive, 256));
    let suggested: Vec<_> = (0..60).map(|block| cache.read(&mut policy, block, 1)).collect();
    let given: Vec<_> = suggested
        .iter()
        .enumerate()
        .filter(|(_, s)| !s.is_empty())
        .map(|(at, s)| (at, s[0]))
        .collect();
    // p is 1 at first; the miss at 1 fetches one block and makes it 2. Each set is read to its last block, which adds
    // one to p; while g is 0, that is when the next set is fetched.
    let sets = [
        (2, 1),
        (3, 3),
        (6, 4),
        (10, 5),
        (15, 6),
        (21, 7),
        (28, 8),
        (36, 9),
        (45, 10),
        (55, 11),
    ];
    assert_eq!(
        given,
        [1, 2, 5, 9, 14, 20, 27, 35, 44, 54]
            .into_iter()
            .zip(sets)
            .collect::<Vec<_>>()
    );
    assert_eq!(cache.missed, 2);
}

#[test]
fn golden_larger_reads_are_asynchronous_at_once() {
    let (mut cache, mut policy) = (EndlessCache::new(), policy(TriggerGrowth::SetLength, 4096));
    let suggested: Vec<_> = (0..8).map(|step| cache.read(&mut policy, step * 8, 8)).collect();
    // Second read: p was 8, becomes 16; the trigger lies 2 before the last block: 21, in the third read.
    assert_eq!(suggested[..2], [vec![], vec![(16, 8)]]);
    assert_eq!(suggested[2], [(24, 24)]);
    assert_eq!(cache.missed, 2);
}

#[test]
fn random_reads_are_left_alone() {
    assert_eq!(
        suggested_for_random_reads(&mut policy(TriggerGrowth::SetLength, 4096), 5_000),
        0
    );
    let (mut cache, mut policy) = (EndlessCache::new(), policy(TriggerGrowth::SetLength, 4096));
    (0..200).for_each(|step| assert_eq!(cache.read(&mut policy, step * 100, 4), []));
}

#[test]
fn interleaved_streams_and_loops_miss_only_at_their_heads() {
    let (mut cache, mut policy) = (EndlessCache::new(), policy(TriggerGrowth::SetLength, 4096));
    for _ in 0..2 {
        for step in 0..100 {
            for stream in 0..50 {
                cache.read(&mut policy, (stream << 30) + step * 8, 8);
            }
        }
    }
    assert_eq!(cache.missed, 100);
}

#[test]
fn streams_need_room_while_they_are_read() {
    let (mut cache, mut policy) = (EndlessCache::new(), policy(TriggerGrowth::SetLength, 256));
    let need = |policy: &Amp, micros| policy.sequential_need_blocks(Instant(micros));
    assert_eq!(need(&policy, 0), 0);
    cache.read(&mut policy, 1 << 20, 8);
    assert_eq!(need(&policy, 0), 0, "nothing was prefetched for it yet");
    (0..8).for_each(|step| drop(cache.read(&mut policy, step * 8, 8)));
    let (p, g) = policy.degree(Tag(1)).unwrap();
    assert!(p > 8 && g > 0);
    assert_eq!(need(&policy, 0), 2 * p + g);
    (0..8).for_each(|step| drop(cache.read(&mut policy, 4096 + step * 8, 8)));
    assert_eq!(policy.degree(Tag(2)), Some((p, g)));
    assert_eq!(
        need(&policy, 0),
        2 * (2 * p + g),
        "one stream does not take the other's room"
    );
    assert_eq!(need(&policy, 3_600_000_000), 0, "nobody has read on for an hour");

    let (mut cache, mut graph) = (EndlessCache::new(), Graph::new(GraphConfig::default()));
    (0..8).for_each(|step| drop(cache.read(&mut graph, step * 8, 8)));
    assert!(
        graph.sequential_need_blocks(Instant(0)) > 0,
        "GRAPH's streams are AMP's"
    );
}

#[test]
fn unread_evictions_shrink_and_late_arrivals_grow() {
    let mut policy = policy(TriggerGrowth::SetLength, 4096);
    let mut out = Vec::new();
    policy.on_read(Instant(0), read(0, 16), &mut out);
    policy.on_read(Instant(1), read(16, 16), &mut out);
    let (suggestion, tag) = (out[0], out[0].tag);
    assert_eq!(
        (suggestion.first, suggestion.count, policy.degree(tag)),
        (32, 16, Some((32, 2)))
    );
    let feedback = |first, count, prefetch_outcome| Feedback {
        volume: VolumeId(1),
        first,
        count,
        tag,
        prefetch_outcome,
    };
    policy.on_feedback(Instant(9), feedback(32, 16, PrefetchOutcome::Arrived { waited: true }));
    assert_eq!(policy.degree(tag), Some((32, 18)));
    policy.on_feedback(Instant(9), feedback(32, 16, PrefetchOutcome::Arrived { waited: true }));
    assert_eq!(policy.degree(tag), Some((32, 18)), "a set arrives once");
    policy.on_feedback(Instant(10), feedback(40, 3, PrefetchOutcome::Aged));
    policy.on_feedback(Instant(10), feedback(40, 3, PrefetchOutcome::Evicted { aged: true }));
    assert_eq!(policy.degree(tag), Some((29, 15)));
    policy.on_feedback(Instant(10), feedback(44, 4, PrefetchOutcome::Evicted { aged: false }));
    assert_eq!(
        policy.degree(tag),
        Some((25, 11)),
        "the last block of the set is old now"
    );
    let hit = Access {
        outcome: Outcome::Hit,
        ..read(32, 16)
    };
    policy.on_read(Instant(11), hit, &mut out);
    assert_eq!(policy.degree(tag), Some((25, 11)), "so its reading does not raise p");
    policy.on_feedback(Instant(12), feedback(0, 5000, PrefetchOutcome::Aged));
    assert_eq!(policy.degree(tag), Some((1, 0)));
}

/// One reader at `blocks_per_second` over a link where each fetch takes `fetch_micros`; returns the stalls.
fn stalls(growth: TriggerGrowth, blocks_per_second: u64, fetch_micros: u64, blocks: u64) -> u64 {
    let mut policy = policy(growth, 4096);
    let mut arrivals: BTreeMap<u64, (u64, Suggestion)> = BTreeMap::new();
    let (mut now, mut stalls, mut out) = (1_000_000u64, 0, Vec::new());
    let mut resident_to = 0;
    for block in 0..blocks {
        let deliver =
            |policy: &mut Amp, arrivals: &mut BTreeMap<u64, (u64, Suggestion)>, now: u64, waiting: Option<u64>| {
                let mut resident = 0;
                while let Some(entry) = arrivals.first_entry().filter(|entry| entry.get().0 <= now) {
                    let (at, set) = entry.remove();
                    resident = set.end();
                    let waited = waiting.is_some_and(|block| block == set.first);
                    let prefetch_outcome = PrefetchOutcome::Arrived { waited };
                    policy.on_feedback(
                        Instant(at),
                        Feedback {
                            volume: set.volume,
                            first: set.first,
                            count: set.count,
                            tag: set.tag,
                            prefetch_outcome,
                        },
                    );
                }
                resident
            };
        resident_to = resident_to.max(deliver(&mut policy, &mut arrivals, now, None));
        let coming = arrivals
            .values()
            .find(|(_, set)| (set.first..set.end()).contains(&block))
            .copied();
        let outcome = match coming {
            _ if block < resident_to => Outcome::Hit,
            Some(_) => Outcome::Partial,
            None => Outcome::Miss,
        };
        out.clear();
        policy.on_read(
            Instant(now),
            Access {
                outcome,
                ..read(block, 1)
            },
            &mut out,
        );
        policy.check_invariants();
        for set in &out {
            arrivals.insert(set.first, (now + fetch_micros, *set));
        }
        if outcome != Outcome::Hit {
            stalls += 1;
            now = now.max(coming.map_or(now + fetch_micros, |(at, _)| at));
            resident_to = resident_to
                .max(block + 1)
                .max(deliver(&mut policy, &mut arrivals, now, Some(block)));
        }
        now += 1_000_000 / blocks_per_second;
    }
    stalls
}

#[test]
fn a_wide_area_link_is_bridged_by_the_set_length_and_the_rate() {
    let set_length = stalls(TriggerGrowth::SetLength, 1000, 500_000, 100_000);
    let rate = stalls(TriggerGrowth::Rate, 1000, 500_000, 100_000);
    let additive = stalls(TriggerGrowth::Additive, 1000, 500_000, 100_000);
    assert!(set_length <= 20, "{set_length}");
    assert!(rate <= additive && rate <= 200, "{rate}");
    assert!(additive >= 10 * set_length, "{additive}");
}

/// The paper's formulation for one stream: tags on pages, a record (p, g) at the last page of each set.
#[derive(Default)]
struct Model {
    tags: BTreeSet<u64>,
    old: BTreeSet<u64>,
    /// Last pages of prefetched sets that were not hit yet.
    lasts: Vec<u64>,
    newest: u64,
    record: (u64, u64),
    next: u64,
}

impl Model {
    fn read(&mut self, count: u64, miss: bool, growth: TriggerGrowth, max: u64) -> Option<(u64, u64)> {
        let (begin, end) = (self.next, self.next + count);
        let first_read = begin == 0;
        self.next = end;
        if miss {
            let former = self.record;
            self.record.0 = (former.0 + count).min(max);
            if self.record.0 > APT {
                self.record.1 = match growth {
                    TriggerGrowth::Additive => 2,
                    _ => former.1.max(2),
                };
            }
            self.record.1 = self.record.1.min(self.record.0 - 1);
            self.tags.clear();
            self.lasts.clear();
            return (!first_read).then(|| self.issue(end, former.0));
        }
        let hit: Vec<u64> = self.lasts.iter().copied().filter(|last| *last < end).collect();
        self.lasts.retain(|last| *last >= end);
        for last in hit {
            if !self.old.contains(&last) {
                self.record.0 = (self.record.0 + count).min(max);
            }
        }
        let tagged = self.tags.range(..end).next().is_some();
        self.tags.retain(|page| *page >= end);
        if !tagged {
            return None;
        }
        let (first, p) = (self.newest.max(end), self.record.0);
        Some(self.issue(first, p))
    }

    fn issue(&mut self, first: u64, count: u64) -> (u64, u64) {
        let last = first + count - 1;
        self.record.0 = self.record.0.max(self.record.1 + 1);
        // A page that is fetched anew, after a miss has ended the sets before, is as young as any.
        self.old.retain(|page| !(first..=last).contains(page));
        self.tags.insert(last.saturating_sub(self.record.1).max(first));
        self.lasts.push(last);
        self.newest = last + 1;
        (first, count)
    }

    fn age(&mut self, page: u64) {
        self.old.insert(page);
        self.record.0 = (self.record.0 - 1).max(1);
        self.record.1 = self.record.1.saturating_sub(1).min(self.record.0 - 1);
    }
}

proptest! {
    #[test]
    fn equals_the_papers_formulation(
        steps in prop::collection::vec((1u64..20, 0u8..10, prop::collection::vec(0u64..60, 0..3)), 1..120),
        additive: bool,
        max in 4u64..200,
    ) {
        let growth = if additive { TriggerGrowth::Additive } else { TriggerGrowth::SetLength };
        let (mut policy, mut model) = (policy(growth, max), Model::default());
        let (mut at, mut tag) = (0, None);
        for (step, (count, miss, aged)) in steps.into_iter().enumerate() {
            let miss = miss == 0 || step == 0;
            let mut out = Vec::new();
            let outcome = if miss { Outcome::Miss } else { Outcome::Hit };
            policy.on_read(Instant(step as u64), Access { outcome, ..read(at, count) }, &mut out);
            at += count;
            let expected = model.read(count, miss, growth, max);
            prop_assert_eq!(out.first().map(|s| (s.first, s.count)), expected);
            tag = tag.or(out.first().map(|s| s.tag));
            let Some(tag) = tag else { continue };
            prop_assert_eq!(policy.degree(tag), Some(model.record));
            for back in aged {
                // Only the two newest sets are of interest to the policy; others are closed in the model as well.
                let page = at + back;
                if page < model.newest && !model.old.contains(&page) {
                    model.age(page);
                    let feedback = Feedback { volume: VolumeId(1), first: page, count: 1, tag, prefetch_outcome: PrefetchOutcome::Aged };
                    policy.on_feedback(Instant(step as u64), feedback);
                }
            }
            policy.check_invariants();
        }
    }

    #[test]
    fn survives_anything(seed: u64, growth in 0u8..3) {
        let growth = [TriggerGrowth::Additive, TriggerGrowth::SetLength, TriggerGrowth::Rate][usize::from(growth)];
        withstands_anything(&mut policy(growth, 300), seed);
    }
}
