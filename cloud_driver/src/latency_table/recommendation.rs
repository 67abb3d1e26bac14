//! Size and parallelism that a store's figures recommend, by the procedure of Hou et al. (MSST 2016), section V. Pure.
//!
//! Size: the smallest whose bandwidth, one request at a time, is within 5 % of the peak. Parallelism: from the largest size on,
//! raised until the mean latency is more than 10 % above that of one request at a time; each smaller size begins where the larger
//! one ended. Where repeats differ so much that the rise may be above the bound, the lower parallelism is taken. From where on
//! more requests bring no more bandwidth is the other end of what is sensible.

use super::{Cell, Cells};
use serde::Serialize;

const BANDWIDTH_TOLERANCE: f64 = 0.05;
const LATENCY_RISE_MAX: f64 = 0.10;

/// What one size bears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Degree {
    /// Of the objects.
    pub size_bytes: u64,
    /// Requests at once.
    pub parallelism: u32,
    /// The next one may have done as well; repeats differ too much to tell.
    pub unsure: bool,
    /// The largest that was measured: more may do as well.
    pub bounded: bool,
}

/// For one kind of request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The recommended size.
    pub size_bytes: u64,
    /// Of one request at a time.
    pub peak_bytes_per_s: f64,
    /// By ascending size, not empty.
    pub degrees: Vec<Degree>,
    /// Where the most bandwidth of all was.
    pub best_size_bytes: u64,
    /// The same.
    pub best_parallelism: u32,
    /// The most bandwidth of all.
    pub best_bytes_per_s: f64,
    /// (size, parallelism): the least within 5 % of the most bandwidth that the size has; by ascending size, not empty.
    pub saturating: Vec<(u64, u32)>,
}

impl Recommendation {
    /// A size that was not measured one request at a time is compared with the fewest that it was measured with.
    pub fn of(cells: &Cells) -> Self {
        let rows: Vec<Vec<&Cell>> = cells.rows().collect();
        let single: Vec<&Cell> = rows.iter().map(|row| row[0]).collect();
        let fewest = single.iter().map(|cell| cell.parallelism).min().unwrap_or(1);
        let single = || single.iter().filter(|cell| cell.parallelism == fewest);
        let peak = single().map(|cell| cell.bytes_per_s).fold(0.0, f64::max);
        let near_peak = single().find(|cell| cell.bytes_per_s >= (1.0 - BANDWIDTH_TOLERANCE) * peak);
        // Of equals the first, so the smallest.
        let most = |best: &'_ Cell, cell: &'_ Cell| cell.bytes_per_s > best.bytes_per_s;
        let best = cells
            .iter()
            .fold(rows[0][0], |best, cell| if most(best, cell) { cell } else { best });
        Self {
            size_bytes: near_peak.map_or(best.size_bytes, |cell| cell.size_bytes),
            peak_bytes_per_s: peak,
            degrees: degrees(&rows),
            best_size_bytes: best.size_bytes,
            best_parallelism: best.parallelism,
            best_bytes_per_s: best.bytes_per_s,
            saturating: rows.iter().map(|row| saturating(row)).collect(),
        }
    }

    /// Requests of this size that hardly wait for each other. Between measured sizes it is interpolated, by the logarithm of the
    /// size, and rounded down.
    pub fn parallelism(&self, size_bytes: u64) -> u32 {
        let last = self.degrees.len() - 1;
        let right = self.degrees.partition_point(|degree| degree.size_bytes < size_bytes);
        let right = self.degrees[right.min(last)];
        let left = self.degrees.iter().rfind(|degree| degree.size_bytes <= size_bytes);
        let Some(left) = left.filter(|left| left.size_bytes < right.size_bytes) else {
            return right.parallelism;
        };
        let place = |bytes: u64| (bytes as f64).ln();
        let share = (place(size_bytes) - place(left.size_bytes)) / (place(right.size_bytes) - place(left.size_bytes));
        let (low, high) = (f64::from(left.parallelism), f64::from(right.parallelism));
        (low + (high - low) * share + 1e-9) as u32
    }

    /// Requests of this size that use all bandwidth: of the nearest size that was measured.
    pub fn saturating_parallelism(&self, size_bytes: u64) -> u32 {
        let distance = |bytes: u64| ((bytes as f64).ln() - (size_bytes.max(1) as f64).ln()).abs();
        let nearest = self
            .saturating
            .iter()
            .min_by(|left, right| distance(left.0).total_cmp(&distance(right.0)));
        nearest.map_or(1, |(_, parallelism)| *parallelism)
    }
}

fn degrees(rows: &[Vec<&Cell>]) -> Vec<Degree> {
    let mut found = Vec::with_capacity(rows.len());
    let mut start = 1;
    for row in rows.iter().rev() {
        let bound = row[0].mean_ms * (1.0 + LATENCY_RISE_MAX);
        let (mut parallelism, mut unsure) = (start, false);
        for cell in row.iter().filter(|cell| cell.parallelism > start) {
            if cell.mean_ms + cell.mean_ms_deviation > bound {
                unsure = cell.mean_ms <= bound;
                break;
            }
            parallelism = cell.parallelism;
        }
        found.push(Degree {
            size_bytes: row[0].size_bytes,
            parallelism,
            unsure,
            bounded: row.last().is_none_or(|cell| parallelism >= cell.parallelism),
        });
        start = parallelism;
    }
    found.reverse();
    found
}

fn saturating(row: &[&Cell]) -> (u64, u32) {
    let most = row.iter().map(|cell| cell.bytes_per_s).fold(0.0, f64::max);
    let enough = row
        .iter()
        .find(|cell| cell.bytes_per_s >= (1.0 - BANDWIDTH_TOLERANCE) * most);
    (row[0].size_bytes, enough.map_or(1, |cell| cell.parallelism))
}

#[cfg(test)]
mod tests {
    use super::super::tests::cell;
    use super::*;
    use proptest::prelude::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn recommendation(cells: Vec<Cell>) -> Recommendation {
        Recommendation::of(&Cells::new(cells).unwrap())
    }

    fn row(size_bytes: u64, points: &[(u32, f64)]) -> Vec<Cell> {
        points
            .iter()
            .map(|(parallelism, ms)| cell(size_bytes, *parallelism, *ms))
            .collect()
    }

    /// The figures of the paper, and what it reads from them.
    #[test]
    fn the_procedure_gives_the_paper_s_answers() {
        let small = [
            (1, 20.0),
            (2, 20.0),
            (4, 20.0),
            (8, 20.5),
            (16, 21.5),
            (32, 30.0),
            (64, 60.0),
        ];
        let found = recommendation(
            [
                row(64 * KIB, &small),
                row(
                    MIB,
                    &[(1, 33.0), (2, 33.0), (4, 34.0), (8, 36.0), (16, 50.0), (32, 100.0)],
                ),
                row(4 * MIB, &[(1, 100.0), (2, 101.0), (4, 108.0), (8, 190.0), (16, 380.0)]),
                row(16 * MIB, &[(1, 400.0), (2, 800.0)]),
            ]
            .concat(),
        );
        assert_eq!(found.size_bytes, 4 * MIB);
        let sizes = [KIB, 64 * KIB, 256 * KIB, 300 * KIB, 2 * MIB, 4 * MIB, 64 * MIB];
        assert_eq!(sizes.map(|size| found.parallelism(size)), [16, 16, 12, 11, 6, 4, 1]);
        assert_eq!(
            [KIB, MIB, 64 * MIB].map(|size| found.saturating_parallelism(size)),
            [32, 16, 1]
        );
    }

    #[test]
    fn a_size_that_was_not_measured_alone_is_compared_with_what_there_is() {
        let found = recommendation([row(KIB, &[(4, 10.0), (8, 10.5)]), row(MIB, &[(4, 50.0), (8, 99.0)])].concat());
        assert_eq!((found.parallelism(KIB), found.parallelism(MIB)), (8, 4));
        assert_eq!(found.size_bytes, MIB);
    }

    proptest! {
        /// A store as in the paper's emulator: a fixed time, a bandwidth for each connection and one for all. What is
        /// recommended follows from these numbers alone.
        #[test]
        fn made_up_stores_are_seen_through(
            fixed_ms in 1.0..200.0f64, alone in 1e6..1e8f64, together in 1e6..1e9f64, wanted in 1..(64u64 << 20),
        ) {
            let sizes = [KIB, 16 * KIB, 256 * KIB, 4 * MIB];
            let parallelisms = [1, 2, 4, 8, 16, 32, 64];
            let latency_ms = |size: u64, count: u32| fixed_ms + size as f64 / alone.min(together / f64::from(count)) * 1e3;
            let cells = sizes.iter().flat_map(|size| parallelisms.map(|count| cell(*size, count, latency_ms(*size, count))));
            let found = recommendation(cells.collect());
            let rate = |size: u64| size as f64 / latency_ms(size, 1);
            let peak = sizes.into_iter().map(rate).fold(0.0, f64::max);
            prop_assert_eq!(Some(found.size_bytes), sizes.into_iter().find(|size| rate(*size) >= 0.95 * peak));
            for degree in &found.degrees {
                let bound = 1.1 * latency_ms(degree.size_bytes, 1);
                let bearable = |count: &u32| latency_ms(degree.size_bytes, *count) <= bound;
                let most = parallelisms.into_iter().rfind(bearable);
                prop_assert_eq!(Some(degree.parallelism), most);
                prop_assert_eq!(found.parallelism(degree.size_bytes), degree.parallelism);
            }
            // No smaller size bears less, so between two of them it lies between theirs.
            let (largest, smallest) = (found.degrees[3].parallelism, found.degrees[0].parallelism);
            prop_assert!((largest..=smallest).contains(&found.parallelism(wanted)));
            prop_assert!(found.parallelism(wanted) >= found.parallelism(wanted + 1));
        }
    }
}
