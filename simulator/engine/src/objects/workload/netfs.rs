//! Requests that a file server's load makes over an object store: a stand-in for the paper's Netfs workload (filebench's
//! `networkfs` personality over s3fs), of which sizes and counts are printed.
//!
//! Parameters are the personality's: one loop reads three files, rewrites six (reads one whole, creates another, writes
//! as much into it, deletes the first) and appends to three; ten loops a second. Files are found by an index that is
//! gamma-distributed (shape 0.1, half the number of files to the unit), rounded up to the next file that exists, or
//! for a new one does not. What is written into a new file is the size that the file read was laid out with, not what
//! appends have made of it.
//!
//! Mapping to objects: a file is an object; a read is a GET; a creation is a PUT of one byte (there are no empty objects
//! here) and, when it is closed, a PUT of the whole; an append is a GET and a PUT of the whole. Deletions are left out, as
//! the paper's table 1 counts none: an object that comes back is written anew. s3fs also copies an object onto itself,
//! which is a PUT, whenever it changes times, owner or mode: that often after each change of a file's contents as
//! `metadata_puts` says. With four the mix is 4.25 PUTs a GET, and the paper's 4.37; without any it is 1.25.

use super::super::job::{Error, check_positive, setting};
use super::{Builder, Operation, Workload};
use crate::random;
use crate::replay::Progress;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tombolo_base::Prng;

const INDEX_SHAPE: f64 = 0.1;
const READS: u32 = 3;
const REWRITES: u32 = 6;
const APPENDS: u32 = 3;
const CHANGES: u32 = REWRITES + APPENDS;
const METADATA_PUTS_MAX: u32 = 100;

/// Per cent, and kilobytes from and to.
type Table = [(u64, u64, u64)];
const FILE_KIB: &Table = &[
    (33, 1, 1),
    (21, 1, 3),
    (13, 3, 5),
    (10, 5, 11),
    (8, 11, 21),
    (5, 21, 43),
    (4, 43, 85),
    (3, 85, 171),
    (2, 171, 341),
    (1, 341, 1707),
];
const WRITE_KIB: &Table = &[(50, 9, 15), (14, 17, 23), (14, 33, 39), (12, 65, 71), (10, 129, 135)];

/// Its parameters.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Netfs {
    /// The last loop is finished, so there may be some more.
    pub requests: u64,
    /// Names that files can have.
    #[serde(default = "all_files")]
    pub files: u32,
    /// Of which so many in a thousand exist at first.
    #[serde(default = "three_fifths")]
    pub allocated_permille: u64,
    /// PUTs of the whole object after each change, by which its metadata change.
    #[serde(default)]
    pub metadata_puts: u32,
    /// Each loop is some requests.
    #[serde(default = "ten")]
    pub loops_per_s: f64,
    /// Decides everything that is drawn.
    pub seed: u64,
}

fn all_files() -> u32 {
    100_000
}

fn three_fifths() -> u64 {
    600
}

fn ten() -> f64 {
    10.0
}

struct Files<'a> {
    prng: Prng,
    /// As they were laid out.
    planned_bytes: Vec<u64>,
    bytes: Vec<u64>,
    existing: BTreeSet<u32>,
    absent: BTreeSet<u32>,
    metadata_puts: u32,
    builder: Builder<'a>,
    time_us: u64,
}

impl Netfs {
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.files < 100 {
            return Err(setting("workload.files", self.files, "100 or more are needed"));
        }
        if !(100..=900).contains(&self.allocated_permille) {
            let permitted = "it must be between 100 and 900";
            return Err(setting(
                "workload.allocated_permille",
                self.allocated_permille,
                permitted,
            ));
        }
        if self.metadata_puts > METADATA_PUTS_MAX {
            let permitted = "100 at the most";
            return Err(setting("workload.metadata_puts", self.metadata_puts, permitted));
        }
        check_positive("workload.loops_per_s", self.loops_per_s)
    }

    pub(super) fn build(&self, progress: Progress<'_>) -> Result<Workload, Error> {
        let mut files = Files::new(self, progress);
        let mut loops = 0u64;
        while (files.builder.workload.requests.len() as u64) < self.requests {
            files.time_us = (loops as f64 / self.loops_per_s * 1e6) as u64;
            files.one_loop()?;
            loops += 1;
        }
        files.builder.finish(true)
    }
}

fn draw_bytes(prng: &mut Prng, table: &Table) -> u64 {
    let mut percent = prng.below(100);
    for (share, from, to) in table {
        if percent < *share {
            return (from + prng.below(to - from + 1)) * 1024;
        }
        percent -= share;
    }
    unreachable!("the shares of a table are a hundred");
}

impl<'a> Files<'a> {
    fn new(spec: &Netfs, progress: Progress<'a>) -> Self {
        let mut prng = Prng::new(spec.seed);
        let planned_bytes: Vec<u64> = (0..spec.files).map(|_| draw_bytes(&mut prng, FILE_KIB)).collect();
        let (existing, absent) = (0..spec.files).partition(|_| prng.chance(spec.allocated_permille));
        let mut builder = Builder::new(progress);
        let longest_loop = READS + 3 * REWRITES + 2 * APPENDS + CHANGES * spec.metadata_puts;
        builder
            .workload
            .requests
            .reserve((spec.requests + u64::from(longest_loop)) as usize);
        Self {
            prng,
            bytes: planned_bytes.clone(),
            planned_bytes,
            existing,
            absent,
            metadata_puts: spec.metadata_puts,
            builder,
            time_us: 0,
        }
    }

    fn one_loop(&mut self) -> Result<(), Error> {
        for _ in 0..READS {
            let file = self.pick(true);
            self.add(file, Operation::Get)?;
        }
        for _ in 0..REWRITES {
            self.rewrite()?;
        }
        for _ in 0..APPENDS {
            self.append()?;
        }
        Ok(())
    }

    fn rewrite(&mut self) -> Result<(), Error> {
        let old = self.pick(true);
        self.add(old, Operation::Get)?;
        let new = self.pick(false);
        self.bytes[new as usize] = 1;
        self.add(new, Operation::Put)?;
        self.bytes[new as usize] = self.planned_bytes[old as usize];
        self.change(new)?;
        self.absent.remove(&new);
        self.existing.insert(new);
        self.existing.remove(&old);
        self.absent.insert(old);
        Ok(())
    }

    /// Appends up to the size of a write.
    fn append(&mut self) -> Result<(), Error> {
        let file = self.pick(true);
        self.add(file, Operation::Get)?;
        let bytes_max = draw_bytes(&mut self.prng, WRITE_KIB);
        self.bytes[file as usize] += 1 + self.prng.below(bytes_max);
        self.change(file)
    }

    /// The contents, then the metadata.
    fn change(&mut self, file: u32) -> Result<(), Error> {
        for _ in 0..=self.metadata_puts {
            self.add(file, Operation::Put)?;
        }
        Ok(())
    }

    fn pick(&mut self, exists: bool) -> u32 {
        let files = self.bytes.len() as u64;
        let drawn = random::gamma(&mut self.prng, INDEX_SHAPE) * (files / 2) as f64;
        let index = (drawn as u64 % files) as u32;
        let set = if exists { &self.existing } else { &self.absent };
        let next = set.range(index..).next().or_else(|| set.first());
        *next.expect("each rewrite makes one file and deletes one")
    }

    fn add(&mut self, file: u32, operation: Operation) -> Result<(), Error> {
        let bytes = self.bytes[file as usize];
        self.builder.add(self.time_us, u64::from(file), bytes, operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts that one loop must have, and the mean size that follows from the personality's table.
    #[test]
    fn the_mix_is_the_personalitys() {
        let spec = Netfs {
            requests: 27_000,
            files: 100_000,
            allocated_permille: 600,
            metadata_puts: 0,
            loops_per_s: 10.0,
            seed: 5,
        };
        let built = spec.build(&mut |_, _| Ok(())).unwrap();
        let puts = built
            .requests
            .iter()
            .filter(|request| request.operation == Operation::Put);
        assert_eq!(puts.count(), built.requests.len() / 27 * 15);
        assert_eq!(built.requests.last().unwrap().time_us, 99_900_000);
        let prng = &mut Prng::new(1);
        let sum: u64 = (0..200_000).map(|_| draw_bytes(prng, FILE_KIB)).sum();
        let mean_kib = sum as f64 / 200_000.0 / 1024.0;
        assert!((26.0..28.5).contains(&mean_kib), "{mean_kib}");
    }

    /// Table 1 of the paper has 135,949 GETs and 594,433 PUTs.
    #[test]
    fn with_four_changes_of_metadata_the_mix_is_nearly_the_papers() {
        let spec = Netfs {
            requests: 63_000,
            files: 20_000,
            allocated_permille: 600,
            metadata_puts: 4,
            loops_per_s: 10.0,
            seed: 5,
        };
        let requests = spec.build(&mut |_, _| Ok(())).unwrap().requests;
        assert_eq!(requests.len(), 63_000);
        let puts = requests
            .iter()
            .filter(|request| request.operation == Operation::Put)
            .count();
        let [found, printed] = [(puts, requests.len()), (594_433, 730_382)].map(|(puts, all)| puts as f64 / all as f64);
        assert!((found - printed).abs() < 0.01, "{found}, printed {printed}");
    }

    #[test]
    fn what_is_read_has_the_size_that_was_written_last() {
        let spec = Netfs {
            requests: 20_000,
            files: 500,
            allocated_permille: 600,
            metadata_puts: 0,
            loops_per_s: 10.0,
            seed: 6,
        };
        let mut sizes = std::collections::HashMap::new();
        for request in spec.build(&mut |_, _| Ok(())).unwrap().requests {
            let before = sizes.insert(request.object, request.bytes);
            if request.operation == Operation::Get {
                assert!(before.is_none_or(|bytes| bytes == request.bytes));
            }
        }
    }
}
