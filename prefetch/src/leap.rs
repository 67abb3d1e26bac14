//! Leap (Al Maruf and Chowdhury, ATC'20): majority-trend prefetching, which also follows strides.
//!
//! Each client has the last 32 deltas between starts of its reads. On a miss the trend is the Boyer-Moore majority of the
//! newest eighth of them, of twice as many, and so on until one exists. The window is the next power of two above the
//! hits on prefetched blocks since the last prefetch, at most 8 reads, and shrinks by no more than half at a time; with no
//! hits it is 1 if the read follows the trend, else 0. Prefetched are reads like the present one along the trend, or,
//! when there is none, along the last trend.
//!
//! From memory of the paper as regards the window without hits. A partial miss counts as a miss here: with a slow
//! store the next reads have to be asked for before the last ones have come.

use crate::{
    Access, Class, Likelihood, Outcome, Pattern, Prefetcher, Statistics, Suggestion, Tag, suggest,
    table::{Address, Table},
};
use alloc::vec::Vec;
use tombolo_base::Instant;

const DELTAS: usize = 32;
/// Reads that one read may have prefetched, whatever is set.
pub(crate) const WINDOW_READS_MAX: u64 = 64;

/// Leap's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeapConfig {
    /// Reads that are prefetched at once, at the most.
    pub window_reads_max: u64,
    /// Clients whose strides are remembered.
    pub clients_max: usize,
}

impl Default for LeapConfig {
    fn default() -> Self {
        Self {
            window_reads_max: 8,
            clients_max: 256,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct History {
    last: u64,
    deltas: [i64; DELTAS],
    /// Where the next delta goes.
    head: usize,
    len: usize,
    hits: u64,
    window: u64,
    trend: i64,
}

/// Leap (Al Maruf and Chowdhury, ATC'20): follows the stride that most of a client's last reads had.
#[derive(Debug)]
pub struct Leap {
    window_reads_max: u64,
    clients: Table<History>,
}

impl Leap {
    /// Knows no client yet.
    pub fn new(config: LeapConfig) -> Self {
        Self {
            window_reads_max: config.window_reads_max.clamp(1, WINDOW_READS_MAX),
            clients: Table::new(config.clients_max.clamp(1, 1 << 16)),
        }
    }
}

impl History {
    fn push(&mut self, delta: i64) {
        self.deltas[self.head] = delta;
        self.head = (self.head + 1) % DELTAS;
        self.len = (self.len + 1).min(DELTAS);
    }

    /// The newest deltas, the newest first.
    fn newest(&self, count: usize) -> impl Iterator<Item = i64> + '_ {
        (1..=count.min(self.len)).map(|back| self.deltas[(self.head + DELTAS - back) % DELTAS])
    }

    /// The delta that more than half of the newest `count` equal.
    fn majority(&self, count: usize) -> Option<i64> {
        let (mut candidate, mut votes) = (0, 0u32);
        for delta in self.newest(count) {
            if votes == 0 {
                (candidate, votes) = (delta, 1);
            } else if delta == candidate {
                votes += 1;
            } else {
                votes -= 1;
            }
        }
        let count = count.min(self.len);
        let support = self.newest(count).filter(|delta| *delta == candidate).count();
        (support > count / 2 && count > 0).then_some(candidate)
    }

    fn find_trend(&self) -> Option<i64> {
        let mut count = DELTAS / 8;
        loop {
            if let Some(trend) = self.majority(count) {
                return Some(trend);
            }
            count *= 2;
            if count > DELTAS {
                return None;
            }
        }
    }

    fn next_window(&mut self, follows_trend: bool, max: u64) -> u64 {
        let wanted = match self.hits {
            0 => u64::from(follows_trend),
            hits => (hits + 1).next_power_of_two().min(max),
        };
        self.hits = 0;
        self.window = wanted.max(self.window / 2);
        self.window
    }
}

impl Prefetcher for Leap {
    fn name(&self) -> &'static str {
        "leap"
    }

    fn on_read(&mut self, _now: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        if !access.is_valid() {
            return Pattern::Random;
        }
        let key = Address {
            volume: access.volume.0,
            block: u64::from(access.client.0),
        };
        let Some(history) = self.clients.get(key) else {
            let history = History {
                last: access.first,
                ..History::default()
            };
            self.clients.insert(key, history);
            return Pattern::Random;
        };
        let delta = access.first as i64 - history.last as i64;
        let follows_trend = delta == history.trend && delta != 0;
        history.last = access.first;
        history.push(delta);
        history.hits = (history.hits + u64::from(access.prefetched > 0)).min(1 << 20);
        let pattern = if follows_trend && delta == access.count as i64 {
            Pattern::Sequential
        } else {
            Pattern::Random
        };
        if access.outcome == Outcome::Hit {
            return pattern;
        }
        let window = history.next_window(follows_trend, self.window_reads_max);
        if let Some(trend) = history.find_trend() {
            history.trend = trend;
        }
        let support = history.newest(DELTAS).filter(|delta| *delta == history.trend).count() as u64;
        let likelihood = Likelihood::ratio(support, history.len as u64);
        suggest_along(access, history.trend, window, likelihood, suggestions);
        pattern
    }

    fn statistics(&self) -> Statistics {
        Statistics {
            bytes: self.clients.bytes(),
            ..Statistics::default()
        }
    }
}

/// Reads like this one along a stride; those that touch become one range.
fn suggest_along(access: Access, stride: i64, window: u64, likelihood: Likelihood, suggestions: &mut Vec<Suggestion>) {
    if stride == 0 {
        return;
    }
    let made = suggestions.len();
    for step in 1..=window as i64 {
        let first = access.first as i64 + stride * step;
        if first < 0 {
            break;
        }
        let suggestion = Suggestion {
            volume: access.volume,
            first: first as u64,
            count: access.count,
            gaps: None,
            class: if stride == access.count as i64 {
                Class::Sequential
            } else {
                Class::History
            },
            likelihood,
            trigger: None,
            tag: Tag(0),
        };
        match suggestions[made..].last_mut() {
            Some(last) if last.end() == suggestion.first && suggestion.end() <= crate::BLOCKS_MAX => {
                last.count += suggestion.count;
            }
            _ => suggest(suggestions, suggestion),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{EndlessCache, suggested_for_random_reads, withstands_anything};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn policy() -> Leap {
        Leap::new(LeapConfig::default())
    }

    #[test]
    fn golden_stride() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy());
        let suggested: Vec<_> = (0..9).map(|step| cache.read(&mut policy, step * 100, 4)).collect();
        assert_eq!(suggested[..3], [vec![], vec![], vec![(300, 4)]]);
        // One hit (300), then the miss at 400 takes two, then two hits and the miss at 700 four.
        assert_eq!(suggested[3..5], [vec![], vec![(500, 4), (600, 4)]]);
        assert_eq!(suggested[7], [(800, 4), (900, 4), (1000, 4), (1100, 4)]);
        assert_eq!(cache.missed, 5);
    }

    #[test]
    fn golden_sequential_reads_are_one_range() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy());
        let suggested: Vec<_> = (0..8).map(|step| cache.read(&mut policy, 50 + step * 8, 8)).collect();
        assert_eq!(suggested[7], [(50 + 64, 32)]);
    }

    #[test]
    fn a_stride_with_noise_is_still_found() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy());
        for step in 0..200 {
            cache.read(&mut policy, 1_000_000 - step * 50, 2);
            if step % 10 == 9 {
                // Away and back again: two odd deltas.
                cache.read(&mut policy, 5_000_000 + step, 1);
            }
        }
        assert!(cache.missed < 100, "{}", cache.missed);
    }

    #[test]
    fn random_reads_and_loops() {
        assert_eq!(suggested_for_random_reads(&mut policy(), 5_000), 0);
        let (mut cache, mut policy) = (EndlessCache::new(), policy());
        for _ in 0..20 {
            for place in [10, 5000, 900, 70_000] {
                cache.read(&mut policy, place, 1);
            }
        }
        assert!(cache.prefetched < 8, "a loop has no stride");
    }

    proptest! {
        /// Boyer-Moore against counting.
        #[test]
        fn the_majority_is_the_majority(deltas in prop::collection::vec(-2i64..3, 0..60), count in 1usize..40) {
            let mut history = History::default();
            deltas.iter().for_each(|delta| history.push(*delta));
            let newest: Vec<i64> = deltas.iter().rev().take(count.min(DELTAS)).copied().collect();
            let mut counts = BTreeMap::new();
            newest.iter().for_each(|delta| *counts.entry(*delta).or_insert(0usize) += 1);
            let expected = counts.iter().find(|(_, votes)| **votes > newest.len() / 2).map(|(delta, _)| *delta);
            prop_assert_eq!(history.majority(count), expected);
        }

        #[test]
        fn survives_anything(seed: u64) {
            withstands_anything(&mut policy(), seed);
        }
    }
}
