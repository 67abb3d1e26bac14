//! Files and tasks. A project has files of log-normal sizes, some more popular than others, and tasks that read parts of
//! them in an order of their own. A new file takes an old one's place, which nobody looks for any more.

use super::model;
use super::popularity::Popularity;
use crate::random;
use tombolo_base::Prng;

/// Blocks that are read or written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub first: u64,
    pub blocks: u64,
}

#[derive(Clone, Debug)]
pub struct Project {
    files: Vec<Extent>,
    popularity: Popularity,
    /// Large enough for every request.
    largest: Extent,
    pub tasks: Vec<Vec<Extent>>,
}

/// Files that are looked at for one that is large enough.
const TRIES: usize = 32;

/// Log-normal, by median and sigma.
pub fn lognormal(prng: &mut Prng, (median, sigma): (f64, f64)) -> f64 {
    median * (sigma * random::normal(prng)).exp()
}

fn clamped(prng: &mut Prng, law: (f64, f64), range: (f64, f64)) -> u64 {
    lognormal(prng, law).clamp(range.0, range.1) as u64
}

/// One and more, with the given mean: after each the next comes with the same probability.
pub fn geometric(prng: &mut Prng, mean: f64) -> u64 {
    let again = 1.0 - 1.0 / mean;
    let mut count = 1;
    while random::unit(prng) < again {
        count += 1;
    }
    count
}

/// Blocks of a read that belongs to no long run.
pub fn short_read(prng: &mut Prng, mean: f64) -> u64 {
    geometric(prng, mean).min(model::SHORT_READ_MAX)
}

impl Project {
    /// `read_mean`: blocks of a read. Files begin at `next`, which is moved behind them.
    pub fn new(prng: &mut Prng, templates: u32, read_mean: f64, next: &mut u64) -> Self {
        let count = clamped(prng, model::FILES, model::FILES_RANGE);
        let mut file = |blocks: u64| {
            let first = *next;
            *next += blocks;
            Extent { first, blocks }
        };
        let mut files: Vec<_> = (1..count)
            .map(|_| file(clamped(prng, model::FILE_BLOCKS, (1.0, model::FILE_BLOCKS_MAX))))
            .collect();
        let largest = file(4 * model::WHOLE_WRITE);
        files.push(largest);
        let popularity = Popularity::new(prng, files.len() as u32, model::EXPONENT);
        let mut project = Self {
            files,
            popularity,
            largest,
            tasks: Vec::new(),
        };
        project.tasks = (0..templates).map(|_| project.task(prng, read_mean)).collect();
        project
    }

    fn task(&self, prng: &mut Prng, read_mean: f64) -> Vec<Extent> {
        let steps = clamped(prng, model::STEPS, model::STEPS_RANGE);
        (0..steps)
            .map(|_| {
                let blocks = short_read(prng, read_mean);
                self.extent(prng, blocks)
            })
            .collect()
    }

    /// So many blocks, at most [`model::WHOLE_WRITE`], of one of the files, popular ones first.
    pub fn extent(&self, prng: &mut Prng, blocks: u64) -> Extent {
        let found = (0..TRIES).find_map(|_| {
            let file = self.files[self.popularity.draw(prng)];
            (file.blocks >= blocks).then_some(file)
        });
        let file = found.unwrap_or(self.largest);
        let offset = match prng.chance(model::FILE_START_PERMILLE) {
            true => 0,
            false => prng.below(file.blocks - blocks + 1),
        };
        Extent {
            first: file.first + offset,
            blocks,
        }
    }

    /// A file that is new takes the place of any.
    pub fn add(&mut self, prng: &mut Prng, file: Extent) {
        let place = self.popularity.any(prng);
        self.files[place] = file;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_lie_in_the_projects_files_and_are_as_large_as_asked() {
        let prng = &mut Prng::new(1);
        let mut next = 100;
        let mut project = Project::new(prng, 3, 1.8, &mut next);
        assert_eq!(project.tasks.len(), 3);
        project.add(prng, Extent { first: next, blocks: 2 });
        for _ in 0..10_000 {
            let blocks = 1 + prng.below(model::WHOLE_WRITE);
            let extent = project.extent(prng, blocks);
            assert_eq!(extent.blocks, blocks);
            assert!(extent.first >= 100 && extent.first + blocks <= next + 2);
        }
    }

    #[test]
    fn short_reads_have_their_mean() {
        let prng = &mut Prng::new(2);
        for mean in [1.35, 1.76] {
            let sum: u64 = (0..200_000).map(|_| short_read(prng, mean)).sum();
            assert!((sum as f64 / 200_000.0 / mean - 1.0).abs() < 0.01);
        }
    }
}
