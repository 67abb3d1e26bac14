//! The policies on a trace: complete misses and prefetch efficiency with an LRU cache of a share of the unique blocks.
//!
//! Standard input: a read per line, `first count` in blocks. `… | cargo run --release -p tombolo-prefetch --example replay
//! [PERCENT] [POLICY …]`. Fetches take no time and there are no writes: this compares policies, it predicts no gateway.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::BufRead;
use tombolo_base::{Instant, VolumeId};
use tombolo_prefetch::{
    Access, Class, ClientId, Fate, Feedback, FutureRead, Oracle, OracleConfig, Outcome, PolicyConfig, PolicyName,
    Prefetcher, Suggestion, Tag,
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
    /// Makes a block the most recently used one; returns what had to go.
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

fn run(policy: &mut dyn Prefetcher, reads: &[(u64, u64)], capacity: usize) -> Result {
    let mut cache = Cache {
        capacity,
        ..Cache::default()
    };
    let mut result = Result::default();
    let mut suggestions: Vec<Suggestion> = Vec::new();
    for (at, &(first, count)) in reads.iter().enumerate() {
        let now = Instant::from_millis(at as u64 * 10);
        let mut prefetched = 0;
        let mut missed = 0;
        for block in first..first + count {
            match cache.slots.get(&block) {
                Some(slot) => prefetched += u64::from(slot.unread.is_some()),
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
        let fate = Fate::Evicted { aged: false };
        policy.on_feedback(
            now,
            Feedback {
                volume: VOLUME,
                first,
                count: 1,
                tag,
                fate,
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
        "{:<12} {:>12} {:>13} {:>12} {:>6} {:>8} {:>8} {:>8}",
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
    let mut policies: Vec<Box<dyn Prefetcher>> = PolicyName::ALL
        .iter()
        .map(|name| PolicyConfig::of(*name).build())
        .collect();
    policies.push(Box::new(oracle));
    for mut policy in policies
        .into_iter()
        .filter(|policy| chosen.is_empty() || chosen.contains(policy.name()))
    {
        let started = std::time::Instant::now();
        let result = run(policy.as_mut(), &reads, capacity);
        let statistics = policy.statistics();
        println!(
            "{:<12} {:>11.2}% {:>12.2}% {:>12} {:>6.1} {:>8} {:>8} {:>8.1}",
            policy.name(),
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
