//! How much memory a new run's filter and fence should take, decided before the run is written.
//!
//! The filter on storage has the size that the run deserves by its share of the index. In memory it is folded to what
//! is free when it is loaded, and loaded again when more becomes free: the bound holds at every moment, also while
//! the inputs of a merge still hold the memory that its output will have.

use crate::{Config, fence, filter, page::PAGE_ENTRIES};

/// The shape of a run's guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub filter: filter::Shape,
    pub fence_stride: u64,
}

impl Grant {
    pub fn fence_bytes(&self, entry_count: u64) -> u64 {
        fence::post_count(page_count(entry_count), self.fence_stride) * fence::POST_BYTES as u64
    }
}

pub(crate) fn page_count(entry_count: u64) -> u64 {
    entry_count.div_ceil(PAGE_ENTRIES as u64)
}

/// Bits that each halving of a run's size adds, in sixteenths: 1 / ln 2. A false positive costs one read whatever the
/// size of the run, so the sum of their rates is least when the rate is proportional to the size (Dayan et al.,
/// Monkey, 2017): small runs get more bits per entry, and hardly any memory.
const BITS16_PER_HALVING: u64 = 23;

/// `entry_count` is an upper bound, since a merge does not know how many of its entries hide one another;
/// `entry_count_all` counts the whole index with the new run.
///
/// A fence takes at most three quarters of what is free, so that the next ones are not left with nothing.
pub(crate) fn grant(config: &Config, entry_count: u64, entry_count_all: u64, fence_bytes_free: u64) -> Grant {
    let bits16 = bits16_per_entry(config, entry_count, entry_count_all);
    Grant {
        filter: filter::Shape::plan(entry_count, bits16, config.filter_bytes_max),
        fence_stride: fence::stride_for(page_count(entry_count), fence_bytes_free / 4 * 3),
    }
}

/// A run that is the whole index leaves room for a quarter as many entries again.
fn bits16_per_entry(config: &Config, entry_count: u64, entry_count_all: u64) -> u64 {
    let all = entry_count_all.max(entry_count).max(1);
    let even = config.filter_bytes_max * 8 * 16 / (all / 4 * 5 + 1);
    let halvings = u64::from((all / entry_count.max(1)).ilog2());
    (even + BITS16_PER_HALVING * halvings).min(16 * u64::from(config.filter_bits_per_entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_runs_get_more_bits_than_the_largest() {
        let config = Config {
            filter_bytes_max: 1 << 20,
            ..Config::default()
        };
        let bits = [4_000_000, 1_000_000, 10_000].map(|count| bits16_per_entry(&config, count, 4_000_000) / 16);
        assert_eq!(bits, [1, 4, 12]);
        let shape = grant(&config, 4_000_000, 4_000_000, 0).filter;
        assert!(shape.bytes() <= (1 << 20) * 4 / 5);
    }

    #[test]
    fn fences_leave_a_quarter_of_what_is_free() {
        let config = Config::default();
        assert_eq!(grant(&config, 10_200, 10_200, 1_100).fence_stride, 1);
        let grant = grant(&config, 10_200, 10_200, 1_000);
        assert_eq!((grant.fence_stride, grant.fence_bytes(10_200)), (2, 400));
    }
}
