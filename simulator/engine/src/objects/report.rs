//! What a run tells.

use super::cloud::{Location, Traffic};
use serde::{Deserialize, Serialize};
use tombolo_billing::{Dollars, Held};

/// What came of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// As in the job.
    pub policy: String,
    /// The size of the cache.
    pub cache_bytes: u64,
    /// Distinct objects, and their bytes, each counted once at its largest.
    pub objects: u64,
    /// As `objects`.
    pub object_bytes: u64,
    /// Reads.
    pub gets: RequestCounts,
    /// Writes.
    pub puts: RequestCounts,
    /// Of all requests; a PUT is a hit when an older version of the object was in the cache.
    pub hit_ratio: f64,
    /// The same by bytes.
    pub byte_hit_ratio: f64,
    /// Requests for objects larger than the cache.
    pub passed_by: u64,
    /// What clients waited.
    pub latency_ms: LatencyMs,
    /// From all locations.
    pub downloads: Transfers,
    /// To all locations.
    pub uploads: Uploads,
    /// Sizes of what was downloaded.
    pub downloads_by_size: Vec<SizeBucket>,
    /// As they stand in the job.
    pub locations: Vec<LocationReport>,
    /// Of all locations.
    pub dollars: Dollars,
    /// From the first request to the end.
    pub virtual_seconds: f64,
    /// What the policy's tables take.
    pub metadata_bytes: u64,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// All of them.
    pub requests: u64,
    /// Found in the cache.
    pub hits: u64,
    /// Not found there.
    pub misses: u64,
    /// Asked for.
    pub bytes: u64,
    /// Of those, by hits.
    pub bytes_hit: u64,
}

/// Transfers of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transfers {
    /// How many.
    pub objects: u64,
    /// Of what size together.
    pub bytes: u64,
}

/// Uploads, by what caused them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Uploads {
    /// A request waited for them, to make room.
    pub on_demand: Transfers,
    /// The daemon's, and those of what was still dirty at the end.
    pub background: Transfers,
    /// Writes that go to the cloud at once.
    pub through: Transfers,
    /// Evictions that waited for the rest of an upload of the daemon's.
    pub waited_for: u64,
}

/// What clients waited, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyMs {
    /// Of all requests.
    pub mean: f64,
    /// Of reads.
    pub mean_get: f64,
    /// Of writes.
    pub mean_put: f64,
    /// Pairs of a share of the requests and the latency that it does not exceed.
    pub quantiles: [(f64, f64); 10],
}

/// Objects of a range of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeBucket {
    /// Up to this size and above that of the bucket before; none: no limit.
    pub kib_max: Option<u32>,
    /// How many.
    pub objects: u64,
}

/// The share of one location.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LocationReport {
    /// As in the job.
    pub name: String,
    /// That lie there.
    pub objects: u64,
    /// Downloads.
    pub gets: u64,
    /// Uploads.
    pub puts: u64,
    /// Downloaded.
    pub bytes_down: u64,
    /// Uploaded.
    pub bytes_up: u64,
    /// What it charges.
    pub dollars: Dollars,
}

const SHARES: [f64; 10] = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999];
const KIB_LIMITS: [u32; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/// Latencies of all requests of one kind.
pub(super) fn latency(gets_us: Vec<u64>, puts_us: Vec<u64>) -> LatencyMs {
    let (mean_get, mean_put) = (mean_ms(&gets_us), mean_ms(&puts_us));
    let mut all = gets_us;
    all.extend(puts_us);
    all.sort_unstable();
    let at = |share: f64| {
        let rank = (share * all.len() as f64).ceil() as usize;
        all.get(rank.max(1) - 1).map_or(0.0, |us| *us as f64 / 1e3)
    };
    LatencyMs {
        mean: mean_ms(&all),
        mean_get,
        mean_put,
        quantiles: SHARES.map(|share| (share, at(share))),
    }
}

fn mean_ms(latencies_us: &[u64]) -> f64 {
    let total: u64 = latencies_us.iter().sum();
    total as f64 / 1e3 / latencies_us.len().max(1) as f64
}

/// Counts of downloads by size.
#[derive(Clone, Debug, Default)]
pub(super) struct SizeCounts([u64; KIB_LIMITS.len() + 1]);

impl SizeCounts {
    pub fn count(&mut self, bytes: u32) {
        let at = KIB_LIMITS.partition_point(|kib| u64::from(*kib) * 1024 < u64::from(bytes));
        self.0[at] += 1;
    }

    pub fn buckets(&self) -> Vec<SizeBucket> {
        let limits = KIB_LIMITS.iter().map(|kib| Some(*kib)).chain([None]);
        let bucket = |(kib_max, objects): (Option<u32>, &u64)| SizeBucket {
            kib_max,
            objects: *objects,
        };
        limits.zip(&self.0).map(bucket).collect()
    }
}

/// What one location holds and has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holding {
    pub objects: u64,
    pub bytes: u64,
}

pub(super) fn location(place: &Location, traffic: &Traffic, holding: Holding, seconds: f64) -> LocationReport {
    let prices = &place.prices;
    let held = Held {
        bytes: holding.bytes,
        objects: holding.objects,
    };
    let storage = prices.of_storage(prices.charged_bytes(&held) * seconds);
    let dollars = prices.of_usage(&traffic.used()).with_storage(storage);
    LocationReport {
        name: place.name.clone(),
        objects: holding.objects,
        gets: traffic.gets,
        puts: traffic.puts,
        bytes_down: traffic.bytes_down,
        bytes_up: traffic.bytes_up,
        dollars,
    }
}

pub(super) fn total_dollars(locations: &[LocationReport]) -> Dollars {
    let items = locations.iter().map(|location| location.dollars);
    items.fold(Dollars::default(), |sum, dollars| sum.plus(&dollars))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_list() {
        let told = latency(
            (1..=900).rev().map(|ms| ms * 1000).collect(),
            (901..=1000).map(|ms| ms * 1000).collect(),
        );
        assert_eq!(told.mean, 500.5);
        assert_eq!((told.mean_get, told.mean_put), (450.5, 950.5));
        assert_eq!(told.quantiles[4], (0.5, 500.0));
        assert_eq!(told.quantiles[9], (0.999, 999.0));
        assert_eq!(latency(vec![], vec![]).mean, 0.0);
    }

    #[test]
    fn a_size_falls_under_the_first_limit_that_holds_it() {
        let mut counts = SizeCounts::default();
        [1, 1024, 1025, 20_480, 20_481, u32::MAX]
            .into_iter()
            .for_each(|bytes| counts.count(bytes));
        let filled: Vec<_> = counts
            .buckets()
            .into_iter()
            .filter(|bucket| bucket.objects > 0)
            .collect();
        let expected = [(Some(1), 2), (Some(2), 1), (Some(20), 1), (Some(50), 1), (None, 1)];
        assert_eq!(
            filled
                .iter()
                .map(|bucket| (bucket.kib_max, bucket.objects))
                .collect::<Vec<_>>(),
            expected
        );
    }
}
