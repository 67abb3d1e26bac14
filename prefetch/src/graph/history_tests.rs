//! The history against a map of ranges, balanced expansion against Dijkstra, and the codec against damage.

use super::*;
use crate::Likelihood;
use crate::graph::{Candidate, Expansion, Limits, Restorer};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const VOLUME: VolumeId = VolumeId(7);
const WINDOW: u64 = 1000;

fn config() -> HistoryConfig {
    HistoryConfig {
        nodes_max: 1 << 20,
        edges_max: 1 << 20,
        window_micros: WINDOW,
        degree_initial: 64,
    }
}

fn range(first: u64, count: u64) -> Range {
    Range {
        volume: VOLUME,
        first,
        count,
    }
}

/// One edge of the model: events as (window, how often).
type Events = Vec<(u64, u32)>;

/// The slow and obvious graph: ranges by start, out-edges by target start.
#[derive(Clone, Debug, Default)]
struct Model {
    nodes: BTreeMap<u64, (u64, BTreeMap<u64, Events>)>,
}

impl Model {
    fn covering(&self, block: u64) -> Option<u64> {
        let (first, (count, _)) = self.nodes.range(..=block).next_back()?;
        (block < first + count).then_some(*first)
    }

    fn split(&mut self, at: u64) {
        let Some(first) = self.covering(at).filter(|first| *first < at) else {
            return;
        };
        let (count, edges) = self.nodes.remove(&first).unwrap();
        self.nodes.insert(first, (at - first, BTreeMap::new()));
        self.nodes.insert(at, (first + count - at, edges));
    }

    fn count(events: &Events, window: u64) -> u32 {
        events
            .iter()
            .filter(|(at, _)| window - at <= 1)
            .map(|(_, count)| count)
            .sum()
    }

    fn record(&mut self, window: u64, previous: Option<u64>, first: u64, count: u64) -> u64 {
        let end = first + count;
        self.split(first);
        self.split(end);
        let mut at = first;
        while at < end {
            let border = end.min((at / 16 + 1) * 16);
            at = match self.nodes.get(&at) {
                Some((count, _)) => at + count,
                None => {
                    let to = self.nodes.range(at..border).next().map_or(border, |(start, _)| *start);
                    self.nodes.insert(at, (to - at, BTreeMap::new()));
                    to
                }
            };
        }
        if let Some(from) = previous.and_then(|block| self.covering(block)) {
            let edges = &mut self.nodes.get_mut(&from).unwrap().1;
            edges.retain(|_, events| Self::count(events, window) > 0);
            if !edges.contains_key(&first) && edges.len() >= OUT_DEGREE_MAX {
                let least = *edges
                    .iter()
                    .min_by_key(|(to, events)| (Self::count(events, window), **to))
                    .unwrap()
                    .0;
                edges.remove(&least);
            }
            let events = edges.entry(first).or_default();
            match events.last_mut().filter(|(at, _)| *at == window) {
                Some((_, count)) => *count += 1,
                None => events.push((window, 1)),
            }
        }
        self.covering(end - 1).unwrap()
    }

    /// Successors with the part and the whole of their likelihoods.
    fn successors(&self, from: u64, window: u64) -> Vec<(u64, u64, u64)> {
        let (count, edges) = &self.nodes[&from];
        let counts: BTreeMap<u64, u64> = edges
            .iter()
            .map(|(to, events)| (*to, u64::from(Self::count(events, window))))
            .filter(|(_, count)| *count > 0)
            .collect();
        let total: u64 = counts.values().sum();
        let adjacent = from + count;
        let mut found: Vec<_> = counts
            .iter()
            .filter(|(to, _)| **to != adjacent)
            .map(|(to, count)| (*to, *count, total))
            .collect();
        if self.nodes.contains_key(&adjacent) {
            found.push((adjacent, 1 + counts.get(&adjacent).unwrap_or(&0), 1 + total));
        }
        found
    }

    /// Dijkstra on -ln L by scanning for the nearest node, in real numbers.
    fn distances(&self, from: u64, window: u64) -> BTreeMap<u64, f64> {
        let mut distances = BTreeMap::from([(from, 0.0f64)]);
        let mut done = BTreeSet::new();
        loop {
            let nearest = distances.iter().filter(|(node, _)| !done.contains(*node));
            let Some((node, distance)) = nearest.min_by(|a, b| a.1.total_cmp(b.1)).map(|(n, d)| (*n, *d)) else {
                return distances;
            };
            done.insert(node);
            for (to, part, whole) in self.successors(node, window) {
                let through = distance - (part as f64 / whole as f64).ln();
                let known = distances.entry(to).or_insert(f64::INFINITY);
                *known = known.min(through);
            }
        }
    }
}

/// By start of the node: its length, and its successors with part and whole of their likelihoods.
type Contents = BTreeMap<u64, (u64, BTreeSet<(u64, u64, u64)>)>;

fn contents(history: &History, now: Instant) -> Contents {
    let mut found = BTreeMap::new();
    for id in (0..history.nodes.len() as u32).filter(|id| history.nodes[*id].len() > 0) {
        let range = history.range(NodeId(id));
        let mut successors = BTreeSet::new();
        history.for_each_successor(id, now, |to, part, whole| {
            successors.insert((history.range(NodeId(to)).first, part, whole));
        });
        found.insert(range.first, (range.count, successors));
    }
    found
}

fn model_contents(model: &Model, window: u64) -> Contents {
    let successors = |first: &u64| model.successors(*first, window).into_iter().collect();
    model
        .nodes
        .iter()
        .map(|(first, (count, _))| (*first, (*count, successors(first))))
        .collect()
}

/// Reads as (step in time, first, count, whether the one before counts as previous).
type Reads = Vec<(u64, u64, u64, bool)>;

fn reads(blocks: u64, length: usize) -> impl Strategy<Value = Reads> {
    prop::collection::vec((0u64..300, 0..blocks, 1u64..40, prop::bool::weighted(0.9)), 1..length)
}

fn replay(history: &mut History, model: &mut Model, reads: &Reads, mut each: impl FnMut(&History, &Model, u64, u64)) {
    let (mut now, mut previous) = (5, None);
    for &(step, first, count, follows) in reads {
        now += step;
        let before = previous.filter(|_| follows);
        let node = history
            .record(Instant(now), before.map(|block| (VOLUME, block)), range(first, count))
            .unwrap();
        let expected = model.record(now / WINDOW, before, first, count);
        assert_eq!(history.range(node).first, expected);
        previous = Some(first + count - 1);
        each(history, model, now, expected);
    }
}

fn expand(history: &History, from: u64, now: u64, threshold: Likelihood) -> Vec<Candidate> {
    let limits = Limits {
        threshold,
        blocks_max: u64::MAX,
        candidates_max: usize::MAX,
    };
    let mut out = Vec::new();
    let source = history.find(VOLUME, from).unwrap();
    Expansion::default().run(history, source, Instant(now), limits, |range| range.count, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn equals_the_map_of_ranges(reads in reads(400, 120)) {
        let (mut history, mut model) = (History::new(config()), Model::default());
        replay(&mut history, &mut model, &reads, |history, model, now, _| {
            history.check_invariants();
            assert_eq!(contents(history, Instant(now)), model_contents(model, now / WINDOW));
        });
    }

    /// More than sixteen successors: the least counted ones give way, in the model as well.
    #[test]
    fn the_out_degree_is_bounded(targets in prop::collection::vec(0u64..40, 1..300)) {
        let (mut history, mut model) = (History::new(config()), Model::default());
        let reads: Reads = targets.iter().flat_map(|to| [(0, 0, 1, true), (1, 100 + to * 10, 1, true)]).collect();
        replay(&mut history, &mut model, &reads, |history, model, now, _| {
            assert_eq!(contents(history, Instant(now)), model_contents(model, now / WINDOW));
        });
        history.check_invariants();
    }

    /// Order and likelihoods of all candidates are those of shortest paths under -ln L.
    #[test]
    fn balanced_expansion_is_dijkstra(reads in reads(300, 150), permille in 1u32..400) {
        let (mut history, mut model) = (History::new(config()), Model::default());
        let (mut now, mut from) = (0, 0);
        replay(&mut history, &mut model, &reads, |_, _, at, node| (now, from) = (at, node));
        let found = expand(&history, from, now, Likelihood::from_permille(permille));
        let distances = model.distances(from, now / WINDOW);
        let threshold = f64::from(permille) / 1000.0;
        for candidate in &found {
            let real = f64::from(candidate.likelihood.bits()) / f64::from(1 << 30);
            let expected = (-distances[&candidate.range.first]).exp();
            prop_assert!((real - expected).abs() < 1e-6, "{} {}", real, expected);
        }
        prop_assert!(found.windows(2).all(|pair| pair[0].likelihood >= pair[1].likelihood));
        let starts: BTreeSet<u64> = found.iter().map(|candidate| candidate.range.first).collect();
        prop_assert_eq!(starts.len(), found.len());
        for (node, distance) in distances {
            let likelihood = (-distance).exp();
            if node != from && (likelihood - threshold).abs() > 1e-6 {
                prop_assert_eq!(starts.contains(&node), likelihood > threshold, "{} {}", node, likelihood);
            }
        }
    }

    /// What a split does to likelihoods: nothing, for any path through the node that was split.
    #[test]
    fn splitting_preserves_path_products(reads in reads(300, 100), at in 1u64..300) {
        let (mut history, mut model) = (History::new(config()), Model::default());
        let (mut now, mut from) = (0, 0);
        replay(&mut history, &mut model, &reads, |_, _, at, node| (now, from) = (at, node));
        let before = model.distances(from, now / WINDOW);
        prop_assume!(model.covering(at) != Some(from));
        model.split(at);
        let after = model.distances(from, now / WINDOW);
        for (node, distance) in before {
            prop_assert!((after[&node] - distance).abs() < 1e-9);
        }
    }

    /// Merging changes no likelihood. Forgetting takes nodes away, and with them what only they led to.
    #[test]
    fn sweeping_preserves_what_is_remembered(reads in reads(300, 100), pause in 0u64..3000, forget: bool) {
        let window_micros = if forget { WINDOW } else { u64::MAX };
        let steps = u64::from(forget);
        let reads: Reads = reads.into_iter().map(|read| (read.0 * steps, read.1, read.2, read.3)).collect();
        let (mut history, mut model) = (History::new(HistoryConfig { window_micros, ..config() }), Model::default());
        let (mut now, mut from) = (0, 0);
        replay(&mut history, &mut model, &reads, |_, _, at, node| (now, from) = (at, node));
        now += pause * steps;
        let before = history.node_count();
        (0..3).for_each(|_| history.sweep(Instant(now), 10_000));
        history.check_invariants();
        prop_assert!(history.node_count() <= before);
        let Some(source) = history.find(VOLUME, from) else {
            prop_assert!(forget);
            return Ok(());
        };
        // Merged with what lies before it, the source has other successors than it had.
        prop_assume!(history.range(source).first == from);
        let distances = model.distances(from, now / WINDOW);
        for candidate in expand(&history, from, now, Likelihood::from_permille(50)) {
            let real = f64::from(candidate.likelihood.bits()) / f64::from(1 << 30);
            for block in candidate.range.first..candidate.range.first + candidate.range.count {
                let Some(node) = model.covering(block) else { panic!("{block} was never read") };
                let expected = (-distances[&node]).exp();
                prop_assert!(node == from || real < expected + 1e-6);
                prop_assert!(node == from || forget || real > expected - 1e-6);
            }
        }
    }

    #[test]
    fn survives_a_restart(reads in reads(4000, 200), pause in 0u64..2500) {
        let (mut history, mut model) = (History::new(config()), Model::default());
        let mut now = 0;
        replay(&mut history, &mut model, &reads, |_, _, at, _| now = at);
        now += pause;
        history.set_degree(NodeId(0), 9, 3);
        let bytes = history.encode(Instant(now));
        // The clock of the new life begins anywhere.
        let reborn = Instant(17);
        let restored = History::decode(config(), reborn, &bytes).unwrap();
        restored.check_invariants();
        prop_assert_eq!(contents(&restored, reborn), contents(&history, Instant(now)));
        prop_assert_eq!(restored.phase(reborn), history.phase(Instant(now)));
        // A window later, both have forgotten the same.
        let later = |now: Instant| now.plus_micros(WINDOW);
        prop_assert_eq!(contents(&restored, later(reborn)), contents(&history, later(Instant(now))));
        prop_assert_eq!(restored.encode(reborn).len(), bytes.len());
    }

    /// Damage anywhere is found; no input panics, whatever its sums say.
    #[test]
    fn damage_is_found(reads in reads(4000, 60), at: prop::sample::Index, bit in 0u8..8, cut: prop::sample::Index) {
        let (mut history, mut model) = (History::new(config()), Model::default());
        replay(&mut history, &mut model, &reads, |_, _, _, _| ());
        let bytes = history.encode(Instant(1_000_000));
        let mut damaged = bytes.clone();
        damaged[at.index(bytes.len())] ^= 1 << bit;
        prop_assert!(History::decode(config(), Instant(0), &damaged).is_err());
        prop_assert!(History::decode(config(), Instant(0), &bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn no_chunk_panics(payload in prop::collection::vec(any::<u8>(), 0..400), nodes in 0u32..60) {
        let header = History::new(config()).encode_header(Instant(0));
        let mut restorer = Restorer::new(config(), Instant(0), &header).unwrap();
        let mut chunk = (payload.len() as u32).to_le_bytes().to_vec();
        chunk.extend(nodes.to_le_bytes());
        chunk.extend(tombolo_base::BlockSum::of(&payload).0.to_le_bytes());
        chunk.extend(&payload);
        let _ = restorer.nodes(&chunk);
        let _ = restorer.edges(&chunk);
        let mut history = restorer.finish();
        history.check_invariants();
        history.sweep(Instant(9), 1000);
        history.check_invariants();
    }
}

/// Rebuilt at random: whatever the bound, it holds, and the graph stays sound.
#[test]
fn the_bounds_hold_under_pressure() {
    let config = HistoryConfig {
        nodes_max: 3000,
        edges_max: 1000,
        ..config()
    };
    let mut history = History::new(config);
    let mut prng = tombolo_base::Prng::new(3);
    let mut previous = None;
    for step in 0..60_000u64 {
        let read = range(
            prng.below(1 << 30),
            1 + prng.below(if step % 100 == 0 { 2000 } else { 20 }),
        );
        let node = history.record(Instant(step), previous, read);
        let last = history.range(node.unwrap());
        previous = Some((VOLUME, last.first + last.count - 1));
        if step % 1000 == 0 {
            history.check_invariants();
            history.sweep(Instant(step), 100);
        }
    }
    history.check_invariants();
    assert!(history.evicted_count() > 50_000);
    assert!(history.bytes() <= History::bytes_max(&config));
    history.forget_volume(VOLUME);
    history.check_invariants();
    history.sweep(Instant(60_000), usize::MAX);
    history.check_invariants();
    assert_eq!((history.node_count(), history.edge_count()), (0, 0));
}

#[test]
fn what_is_read_again_outlives_what_is_not() {
    let mut history = History::new(HistoryConfig {
        nodes_max: 2048,
        ..config()
    });
    let mut previous = None;
    for step in 0..20_000u64 {
        let first = if step % 4 == 0 {
            (step / 4 % 100) * 1000
        } else {
            (1 << 40) + step * 100
        };
        history.record(Instant(step), previous, range(first, 1));
        previous = Some((VOLUME, first));
    }
    let kept = (0..100)
        .filter(|place| history.find(VOLUME, place * 1000).is_some())
        .count();
    assert!(kept >= 90, "{kept} of 100");
}

#[test]
fn parts_that_nothing_distinguishes_are_merged() {
    let mut history = History::new(config());
    history.record(Instant(1), None, range(0, 16));
    history.record(Instant(1), Some((VOLUME, 15)), range(1000, 4));
    history.record(Instant(1), None, range(8, 4));
    assert_eq!(history.node_count(), 4, "0 to 8, to 12, to 16, and 1000");
    (0..3).for_each(|_| history.sweep(Instant(1), 100));
    history.check_invariants();
    assert_eq!(history.range(history.find(VOLUME, 12).unwrap()), range(0, 16));
    assert_eq!(expand(&history, 0, 1, Likelihood::ONE)[0].range, range(1000, 4));
    // An edge to the second part keeps it apart.
    history.record(Instant(1), Some((VOLUME, 1003)), range(8, 8));
    (0..3).for_each(|_| history.sweep(Instant(1), 100));
    assert_eq!(history.node_count(), 3);
}

#[test]
fn golden_likelihoods() {
    let mut history = History::new(config());
    let mut previous = None;
    let mut read = |first, count| {
        history.record(Instant(1), previous, range(first, count));
        previous = Some((VOLUME, first + count - 1));
    };
    // A is followed by B three times and by C once; D lies right behind A.
    for next in [1000, 1000, 2000, 1000] {
        read(0, 8);
        read(next, 4);
    }
    read(8, 8);
    let found: Vec<_> = expand(&history, 0, 1, Likelihood::from_permille(100))
        .iter()
        .map(|c| (c.range.first, c.likelihood))
        .collect();
    // B 3/4; from B: A (excluded) 2/3, D 1/3, so 1/4; C 1/4; D directly 1/5.
    let expected = [
        (1000, Likelihood::ratio(3, 4)),
        (8, Likelihood::ratio(1, 4)),
        (2000, Likelihood::ratio(1, 4)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn addresses_out_of_range_are_not_taken() {
    let mut history = History::new(config());
    for (volume, first, count) in [(1, crate::BLOCKS_MAX, 1), (1, u64::MAX, 2), (1, 5, 0)] {
        assert_eq!(
            history.record(
                Instant(0),
                None,
                Range {
                    volume: VolumeId(volume),
                    first,
                    count
                }
            ),
            None
        );
    }
    let edge = Range {
        volume: VolumeId(u64::MAX),
        first: crate::BLOCKS_MAX - 70,
        count: 70,
    };
    assert!(history.record(Instant(0), None, edge).is_some());
    assert!(history.record(Instant(0), None, range(0, 16)).is_some());
    let mut out = Vec::new();
    let source = history.find(edge.volume, edge.first).unwrap();
    let limits = Limits {
        threshold: Likelihood::ZERO,
        blocks_max: 999,
        candidates_max: 99,
    };
    Expansion::default().run(&history, source, Instant(0), limits, |range| range.count, &mut out);
    assert_eq!(
        out.iter().map(|c| c.range.count).sum::<u64>(),
        64,
        "the place behind, and not the volume numbered next"
    );
}

#[test]
fn golden_bytes() {
    let mut history = History::new(config());
    history.record(Instant(1500), None, range(3, 2));
    history.record(Instant(1500), Some((VOLUME, 4)), range(130, 1));
    let bytes = history.encode(Instant(1500));
    assert_eq!(bytes[..16], *b"TMBHIST\0\x02\0\0\0\x01\0\0\0");
    assert_eq!(bytes[16..32], [1000u64.to_le_bytes(), 500u64.to_le_bytes()].concat());
    // One volume, 7. The first place is 0; start 3, two blocks, one edge: eight places on, start 2, once. Then 130: no edge.
    let volumes = [1, 14];
    let first = [0, 3, 1, 1, 16, 2, 1];
    let second = [16, 2, 0, 0];
    assert_eq!(bytes[56..], [&volumes[..], &first[..], &second[..]].concat());
    assert_eq!(bytes[40..48], [13, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn golden_bytes_of_several_volumes() {
    let mut history = History::new(config());
    let file = |inode, first| Range {
        volume: VolumeId::of_inode(inode),
        ..range(first, 1)
    };
    history.record(Instant(0), None, file(9, 0));
    history.record(Instant(0), Some((VolumeId::of_inode(9), 0)), file(8, 16));
    // Two volumes: 2^63 + 9, seen as 9 - 2^63, and one less.
    let volumes = [2, 0xed, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1];
    // The edge goes to the second volume's second place: 2^42 + 1 places on.
    let first = [0, 0, 0, 1, 0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 2, 0, 1];
    let second = [0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 2, 0, 0, 0];
    assert_eq!(
        history.encode(Instant(0))[56..],
        [&volumes[..], &first[..], &second[..]].concat()
    );
}

/// By the node's range, with its volume: its successors with part and whole of their likelihoods.
type AddressedContents = BTreeMap<Range, BTreeSet<(Range, u64, u64)>>;

fn addressed_contents(history: &History, now: Instant) -> AddressedContents {
    let mut found = BTreeMap::new();
    for id in (0..history.nodes.len() as u32).filter(|id| history.nodes[*id].len() > 0) {
        let mut successors = BTreeSet::new();
        history.for_each_successor(id, now, |to, part, whole| {
            successors.insert((history.range(NodeId(to)), part, whole));
        });
        found.insert(history.range(NodeId(id)), successors);
    }
    found
}

/// Small volumes and large inode numbers.
fn volume(number: u64) -> VolumeId {
    if number.is_multiple_of(2) {
        VolumeId(number)
    } else {
        VolumeId::of_inode((u64::MAX >> 1) - number)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Volumes come and go, so that numbers are given anew. A forgotten one is neither found, nor suggested, nor written.
    #[test]
    fn many_volumes(steps in prop::collection::vec((0u64..8, 0u64..100, 1u64..40, 0u8..20), 1..150)) {
        let (mut history, mut known, mut previous) = (History::new(config()), BTreeSet::new(), None);
        let now = Instant(1);
        for (number, first, count, forget) in steps {
            let read = Range { volume: volume(number), first, count };
            if forget == 0 {
                history.forget_volume(read.volume);
                known.retain(|(volume, _)| *volume != read.volume);
            } else {
                prop_assert!(history.record(now, previous, read).is_some());
                known.extend((first..first + count).map(|block| (read.volume, block)));
                previous = Some((read.volume, first + count - 1));
            }
            history.check_invariants();
        }
        for (number, block) in (0..8).flat_map(|number| (0..140).map(move |block| (number, block))) {
            let address = (volume(number), block);
            let found = history.find(address.0, address.1);
            prop_assert_eq!(found.is_some(), known.contains(&address));
            let Some(source) = found else { continue };
            let limits = Limits { threshold: Likelihood::ZERO, blocks_max: u64::MAX, candidates_max: 50 };
            let mut out = Vec::new();
            Expansion::default().run(&history, source, now, limits, |range| range.count, &mut out);
            prop_assert!(out.iter().all(|c| known.contains(&(c.range.volume, c.range.first))));
        }
        let restored = History::decode(config(), now, &history.encode(now)).unwrap();
        restored.check_invariants();
        let blocks = |history: &History| -> BTreeSet<(VolumeId, u64)> {
            let ranges = addressed_contents(history, now).into_keys();
            ranges.flat_map(|range| (0..range.count).map(move |at| (range.volume, range.first + at))).collect()
        };
        prop_assert_eq!(blocks(&restored), known.clone());
        // What is swept away leaves what is written.
        history.sweep(now, usize::MAX);
        history.check_invariants();
        prop_assert_eq!(blocks(&history), known);
        let swept = History::decode(config(), now, &history.encode(now)).unwrap();
        prop_assert_eq!(addressed_contents(&swept, now), addressed_contents(&history, now));
    }
}

#[test]
fn volumes_that_do_not_fit_are_not_learnt_until_others_give_way() {
    let config = HistoryConfig {
        nodes_max: 2048,
        ..config()
    };
    let mut history = History::new(config);
    let file = |inode| Range {
        volume: VolumeId::of_inode(inode),
        ..range(0, 1)
    };
    // One volume with as many nodes as there are others, which are as many as fit. The clock hand comes to its nodes first.
    (0..512).for_each(|place| assert!(history.record(Instant(0), None, range(place * 100, 1)).is_some()));
    (1..512).for_each(|inode| assert!(history.record(Instant(0), None, file(inode)).is_some()));
    assert_eq!(config.volumes_max(), 512);
    assert_eq!(history.record(Instant(0), None, file(1000)), None);
    assert!(history.record(Instant(0), None, file(511)).is_some(), "a known one");
    assert_eq!(history.evicted_count(), 1);
    let learnt = (0..600).find(|_| history.record(Instant(0), None, file(1000)).is_some());
    assert!(learnt.is_some());
    history.check_invariants();
    assert!(history.bytes() <= History::bytes_max(&config));
}

#[test]
fn a_number_is_given_again_when_all_nodes_have_expired() {
    let mut history = History::new(config());
    let file = |inode| Range {
        volume: VolumeId::of_inode(inode),
        ..range(0, 1)
    };
    for inode in 0..100_000 {
        let now = Instant(inode * WINDOW);
        assert!(history.record(now, None, file(inode)).is_some());
        history.sweep(now, 10);
    }
    history.check_invariants();
    assert!(history.node_count() < 10);
    assert!(
        history.bytes()
            <= History::bytes_max(&HistoryConfig {
                nodes_max: 10,
                edges_max: 10,
                ..config()
            })
    );
}
