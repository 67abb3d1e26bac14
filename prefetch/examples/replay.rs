//! The policies on a trace: complete misses and prefetch efficiency with an LRU cache of a share of the unique blocks.
//!
//! Standard input: a read per line, `first count` in blocks. `… | cargo run --release -p tombolo-prefetch --example replay
//! [PERCENT] [POLICY …]`. Fetches take no time and there are no writes: this compares policies, it predicts no gateway.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::BufRead;
use tombolo_base::{Instant, VolumeId};
use tombolo_billing::Table;
use tombolo_prefetch::{
    Access, Admission, Class, ClientId, Feedback, FutureRead, GraphConfig, Offer, Oracle, OracleConfig, Outcome,
    PolicyConfig, PolicyName, PrefetchOutcome, Prefetcher, Suggestion, Tag,
};

const VOLUME: VolumeId = VolumeId(1);

struct Slot {
    used: u64,
    /// Set while nobody has read what a prefetch brought.
    unread: Option<(Tag, Class)>,
}

#[derive(Default)]
struct Cache {
    capacity: usize,
    slots: HashMap<u64, Slot>,
    order: BTreeMap<u64, u64>,
    uses: u64,
}

impl Cache {
    /// Makes a block the most recently used one; returns what had to go unread.
    fn touch(&mut self, block: u64, unread: Option<(Tag, Class)>) -> Option<(u64, Tag)> {
        self.uses += 1;
        let slot = Slot {
            used: self.uses,
            unread,
        };
        if let Some(before) = self.slots.insert(block, slot) {
            self.order.remove(&before.used);
        }
        self.order.insert(self.uses, block);
        if self.slots.len() <= self.capacity {
            return None;
        }
        let (_, victim) = self.order.pop_first()?;
        let slot = self.slots.remove(&victim)?;
        slot.unread.map(|(tag, _)| (victim, tag))
    }
}

#[derive(Default)]
struct Result {
    missed_reads: u64,
    missed_blocks: u64,
    prefetched: u64,
    used: u64,
}

fn run(policy: &mut dyn Prefetcher, admission: &mut Admission, reads: &[(u64, u64)], capacity: usize) -> Result {
    let mut cache = Cache {
        capacity,
        ..Cache::default()
    };
    policy.resize(capacity as u64);
    let mut result = Result::default();
    let mut suggestions: Vec<Suggestion> = Vec::new();
    for (at, &(first, count)) in reads.iter().enumerate() {
        let now = Instant::from_millis(at as u64 * 10);
        let mut prefetched = 0;
        let mut missed = 0;
        for block in first..first + count {
            match cache.slots.get(&block) {
                Some(Slot {
                    unread: Some((_, class)),
                    ..
                }) => {
                    prefetched += 1;
                    admission.on_used(*class, 1);
                }
                Some(_) => {}
                None => missed += 1,
            }
            evicted(policy, now, cache.touch(block, None));
        }
        result.used += prefetched;
        result.missed_blocks += missed;
        result.missed_reads += u64::from(missed > 0);
        let outcome = if missed > 0 { Outcome::Miss } else { Outcome::Hit };
        let access = Access {
            client: ClientId(0),
            volume: VOLUME,
            first,
            count,
            outcome,
            prefetched,
        };
        suggestions.clear();
        policy.on_read(now, access, &mut suggestions);
        for suggestion in &suggestions {
            let absent = (suggestion.first..suggestion.end())
                .filter(|block| !cache.slots.contains_key(block))
                .count();
            let offer = Offer {
                blocks: absent as u64,
                ..Offer::whole(suggestion)
            };
            if absent == 0 || !admission.admits(&offer) {
                continue;
            }
            admission.on_fetched(&offer);
            for block in suggestion.first..suggestion.end() {
                if !cache.slots.contains_key(&block) {
                    result.prefetched += 1;
                    let gone = cache.touch(block, Some((suggestion.tag, suggestion.class)));
                    evicted(policy, now, gone);
                }
            }
        }
    }
    result
}

fn evicted(policy: &mut dyn Prefetcher, now: Instant, gone: Option<(u64, Tag)>) {
    if let Some((first, tag)) = gone {
        let prefetch_outcome = PrefetchOutcome::Evicted { aged: false };
        policy.on_feedback(
            now,
            Feedback {
                volume: VOLUME,
                first,
                count: 1,
                tag,
                prefetch_outcome,
            },
        );
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let percent: usize = arguments.next().and_then(|word| word.parse().ok()).unwrap_or(10);
    let chosen: HashSet<String> = arguments.collect();
    let reads: Vec<(u64, u64)> = std::io::stdin()
        .lock()
        .lines()
        .map_while(std::io::Result::ok)
        .filter_map(|line| {
            let mut words = line.split_whitespace().map(|word| word.parse::<u64>().ok());
            Some((words.next()??, words.next()??.max(1)))
        })
        .collect();
    let unique: HashSet<u64> = reads.iter().flat_map(|(first, count)| *first..first + count).collect();
    let blocks: u64 = reads.iter().map(|(_, count)| count).sum();
    let capacity = unique.len() * percent / 100;
    println!(
        "{} reads, {blocks} blocks, {} unique, cache {capacity}",
        reads.len(),
        unique.len()
    );
    println!(
        "{:<14} {:>12} {:>13} {:>12} {:>6} {:>8} {:>8} {:>8}",
        "policy", "missed reads", "missed blocks", "prefetched", "PE %", "nodes", "edges", "seconds"
    );
    let future = reads
        .iter()
        .map(|&(first, count)| FutureRead {
            volume: VOLUME,
            first,
            count,
        })
        .collect();
    let oracle = Oracle::new(
        OracleConfig {
            look_ahead: 8,
            blocks_per_second_max: None,
        },
        future,
    );
    let built = |config: PolicyConfig| config.build();
    let mut policies: Vec<(String, Option<u64>, Box<dyn Prefetcher>)> = PolicyName::ALL
        .into_iter()
        .map(|name| (name.to_string(), None, built(PolicyConfig::of(name))))
        .collect();
    for track_blocks in [1, 4] {
        let config = GraphConfig {
            track_blocks,
            ..GraphConfig::default()
        };
        policies.push((
            format!("graph T={track_blocks}"),
            None,
            built(PolicyConfig::Graph(config)),
        ));
    }
    for permille in [250, 500] {
        let thresholds = GraphConfig {
            track_blocks: 4,
            threshold_miss_permille: permille,
            threshold_hit_permille: permille,
            ..GraphConfig::default()
        };
        policies.push((
            format!("graph T=4 L>{permille}"),
            None,
            built(PolicyConfig::Graph(thresholds)),
        ));
    }
    for knob in [1000, 100, 30] {
        policies.push((
            format!("graph ${knob}u/s"),
            Some(knob),
            built(PolicyConfig::of(PolicyName::Graph)),
        ));
    }
    policies.push(("oracle".into(), None, Box::new(oracle)));
    // S3 Standard, and 100 ms for a fetch.
    let prices = Table::AwsS3Standard.prices().units();
    for (label, knob, mut policy) in policies
        .into_iter()
        .filter(|(label, ..)| chosen.is_empty() || chosen.contains(label))
    {
        let mut admission = Admission::new(prices, knob, 100_000);
        let started = std::time::Instant::now();
        let result = run(policy.as_mut(), &mut admission, &reads, capacity);
        let statistics = policy.statistics();
        println!(
            "{:<14} {:>11.2}% {:>12.2}% {:>12} {:>6.1} {:>8} {:>8} {:>8.1}",
            label,
            result.missed_reads as f64 * 100.0 / reads.len() as f64,
            result.missed_blocks as f64 * 100.0 / blocks as f64,
            result.prefetched,
            result.used as f64 * 100.0 / result.prefetched.max(1) as f64,
            statistics.nodes,
            statistics.edges,
            started.elapsed().as_secs_f64(),
        );
    }
}
