//! Which runs to merge next. Size-tiered over neighbours in age, since the newest entry must stay the newest.
//!
//! A run is worth rewriting when the newer ones together are as large: then every rewriting at least doubles the
//! run an entry lies in, so an entry is rewritten at most log2(entries / memtable) times, and runs that are left
//! alone grow at least twofold with age, so there are at most that many of them.

use crate::{Config, RunId};
use alloc::vec::Vec;
use core::ops::Range;

/// A merge takes no more inputs at once, so that each keeps a useful share of the buffer.
const INPUTS_MAX: usize = 16;
/// A run smaller than this share of a memtable counts as if it had it: small flushes join at once, and do not
/// make a long tail of ever smaller runs.
const SMALL_RUN_SHARE: u64 = 16;

/// Neighbouring runs to merge, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergePlan {
    /// They become one.
    pub inputs: Vec<RunId>,
}

/// Decides over `entry_counts`, newest first, of the runs that no merge is working on.
pub(crate) fn plan(entry_counts: &[u64], config: &Config) -> Option<Range<usize>> {
    let small = (config.memtable_entries_max as u64 / SMALL_RUN_SHARE).max(1);
    let weights: Vec<u64> = entry_counts.iter().map(|count| (*count).max(small)).collect();
    worthwhile(&weights).or_else(|| excess(&weights, config.runs_max))
}

/// The longest stretch from the newest run on whose oldest is no larger than the rest.
fn worthwhile(weights: &[u64]) -> Option<Range<usize>> {
    let mut newer = 0;
    let mut end = 0;
    for (index, weight) in weights.iter().take(INPUTS_MAX).enumerate() {
        if index > 0 && *weight <= newer {
            end = index + 1;
        }
        newer += weight;
    }
    (end > 0).then_some(0..end)
}

/// The cheapest stretch that brings the count back to `runs_max`.
fn excess(weights: &[u64], runs_max: usize) -> Option<Range<usize>> {
    let length = (weights.len().checked_sub(runs_max).filter(|excess| *excess > 0)? + 1).min(INPUTS_MAX);
    (0..=weights.len() - length)
        .map(|start| start..start + length)
        .min_by_key(|stretch| weights[stretch.clone()].iter().sum::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            memtable_entries_max: 160,
            ..Config::default()
        }
    }

    #[test]
    fn equal_neighbours_join_and_larger_ones_wait() {
        assert_eq!(plan(&[100], &config()), None);
        assert_eq!(plan(&[100, 100], &config()), Some(0..2));
        assert_eq!(plan(&[100, 201], &config()), None);
        assert_eq!(plan(&[100, 100, 200, 5000], &config()), Some(0..3));
        // Ten is a sixteenth of the memtable: below it runs count alike.
        assert_eq!(plan(&[1, 10], &config()), Some(0..2));
        assert_eq!(plan(&[1, 11], &config()), None);
    }

    #[test]
    fn too_many_runs_join_where_it_is_cheapest() {
        let config = Config {
            runs_max: 3,
            ..config()
        };
        assert_eq!(plan(&[100, 201, 402, 900], &config), Some(0..2));
        assert_eq!(plan(&[10_000, 20_001, 90_000], &config), None);
    }

    #[test]
    fn full_flushes_stay_few_and_are_seldom_rewritten() {
        let config = config();
        let (mut runs, mut rewritten, mut inserted) = (Vec::<u64>::new(), 0, 0);
        for _ in 0..2_000 {
            runs.insert(0, 160);
            inserted += 160;
            while let Some(stretch) = plan(&runs, &config) {
                let merged: u64 = runs.drain(stretch.clone()).sum();
                rewritten += merged;
                runs.insert(stretch.start, merged);
            }
            assert!(runs.len() <= config.runs_max, "{runs:?}");
        }
        assert!(rewritten / inserted <= 11, "{}", rewritten / inserted);
    }
}
