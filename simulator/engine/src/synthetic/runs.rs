//! Long sequential runs and the files that they read. Printed: more than 60 % of all blocks are read in runs of fewer than
//! ten, and the longest run has about 10,000 (section 3.1 on figure 5). Assumed: the law between, the sizes of requests,
//! and how often a file is read.

use super::model;
use super::popularity::Popularity;
use crate::random;
use tombolo_base::Prng;

/// Of all blocks that are read. A little of the rest is long too, where files happen to lie side by side.
pub const BLOCK_SHARE: f64 = 0.36;
/// In blocks: what figure 5 counts as long, and the longest.
pub const SHORTEST: u64 = 10;
pub const LONGEST: u64 = 10_000;
/// Blocks of a request, both ends included: 16 to 64 KiB.
pub const REQUEST: (u64, u64) = (4, 16);
/// Runs over a file, on average, in the whole trace.
const RUNS_PER_FILE: f64 = 3.0;
/// Lengths between a shortest and twice that are one class.
const CLASSES: usize = 10;

/// Of a run, in blocks. Half as many runs are longer than a length as are longer than half of it (a Pareto law of
/// exponent 1), and all that would be longer than the longest are that long.
fn mean_length() -> f64 {
    SHORTEST as f64 * (1.0 + (LONGEST as f64 / SHORTEST as f64).ln())
}

/// Of a request of a run, in blocks; the last of each run is cut off at its end.
pub fn mean_request() -> f64 {
    let sizes = REQUEST.0..=REQUEST.1;
    let count = (REQUEST.1 - REQUEST.0 + 1) as f64;
    let mean = sizes.clone().sum::<u64>() as f64 / count;
    let square = sizes.map(|size| size * size).sum::<u64>() as f64 / count;
    // What the last request would exceed the run's end by: renewal theory's mean, for lengths beyond a few requests.
    let excess = (square - mean) / (2.0 * mean);
    mean_length() * mean / (mean_length() + excess)
}

/// Where runs begin and how long they are.
#[derive(Clone, Debug)]
pub struct RunFiles {
    classes: Vec<Class>,
    /// Goes round [0, 1) in steps of the golden ratio: lengths then cover their law evenly, and the longest is met in
    /// every thousand runs or so, whatever the seed.
    point: f64,
}

/// Files of about one size.
#[derive(Clone, Debug)]
struct Class {
    first: u64,
    file_blocks: u64,
    popularity: Popularity,
}

const GOLDEN: f64 = 0.618_033_988_749_894_9;

impl RunFiles {
    /// For so many blocks read in runs altogether. The files begin at `next`, which is moved behind them.
    pub fn new(prng: &mut Prng, run_blocks: f64, next: &mut u64) -> Self {
        let runs = run_blocks / mean_length();
        let classes = (0..CLASSES).map(|class| {
            let file_blocks = (SHORTEST << (class + 1)).min(LONGEST);
            // The last one holds all that is longer, too.
            let share = 0.5f64.powi(if class + 1 < CLASSES { class + 1 } else { class } as i32);
            let files = (runs * share / RUNS_PER_FILE).ceil().max(1.0) as u32;
            let first = *next;
            *next += u64::from(files) * file_blocks;
            let popularity = Popularity::new(prng, files, model::EXPONENT);
            Class {
                first,
                file_blocks,
                popularity,
            }
        });
        let classes = classes.collect();
        let point = random::unit(prng);
        Self { classes, point }
    }

    /// The first block and the length of the next run.
    pub fn draw(&mut self, prng: &mut Prng) -> (u64, u64) {
        self.point = (self.point + GOLDEN).fract();
        let length = (SHORTEST as f64 / (1.0 - self.point)).round().min(LONGEST as f64) as u64;
        let fits = |class: &Class| length <= class.file_blocks;
        let at = self.classes.iter().position(fits).unwrap_or(CLASSES - 1);
        let class = &self.classes[at];
        let file = class.popularity.draw(prng) as u64;
        (class.first + file * class.file_blocks, length)
    }

    /// A day has passed.
    pub fn drift(&mut self, prng: &mut Prng) {
        for class in &mut self.classes {
            class.popularity.drift(prng, model::DRIFT_PERMILLE);
        }
    }
}

/// The next request of a run, in blocks.
pub fn request(prng: &mut Prng, left: u64) -> u64 {
    (REQUEST.0 + prng.below(REQUEST.1 - REQUEST.0 + 1)).min(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_requests_and_files_are_as_computed() {
        let prng = &mut Prng::new(1);
        let mut next = 7;
        let mut files = RunFiles::new(prng, 1e6, &mut next);
        let (mut runs, mut blocks, mut requests, mut longest) = (0u64, 0, 0u64, 0);
        for _ in 0..20_000 {
            let (first, length) = files.draw(prng);
            assert!(first >= 7 && first + length <= next);
            assert!((SHORTEST..=LONGEST).contains(&length));
            (runs, blocks, longest) = (runs + 1, blocks + length, length.max(longest));
            let mut left = length;
            while left > 0 {
                left -= request(prng, left);
                requests += 1;
            }
        }
        assert_eq!(longest, LONGEST);
        let (mean, of_request) = (blocks as f64 / runs as f64, blocks as f64 / requests as f64);
        assert!((mean / mean_length() - 1.0).abs() < 0.02, "{mean} {}", mean_length());
        assert!(
            (of_request / mean_request() - 1.0).abs() < 0.02,
            "{of_request} {}",
            mean_request()
        );
    }

    #[test]
    fn every_two_thousand_runs_have_one_of_the_longest() {
        for seed in 0..20 {
            let prng = &mut Prng::new(seed);
            let mut files = RunFiles::new(prng, 1e5, &mut 0);
            assert!((0..2_000).any(|_| files.draw(prng).1 == LONGEST), "seed {seed}");
        }
    }
}
