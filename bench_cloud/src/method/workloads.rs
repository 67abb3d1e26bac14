//! Files to write: what they are called, how long they are, and their bytes, from a seed.

use tombolo_base::Prng;

const WORDS: [&str; 32] = [
    "storage",
    "cloud",
    "the",
    "of",
    "and",
    "file",
    "folder",
    "gateway",
    "object",
    "bucket",
    "network",
    "latency",
    "in",
    "to",
    "a",
    "is",
    "that",
    "for",
    "measure",
    "paper",
    "service",
    "client",
    "upload",
    "download",
    "with",
    "as",
    "block",
    "which",
    "was",
    "on",
    "benchmark",
    "synchronization",
];
/// Enough for a program that looks at the beginning: SOI, and APP0 with the JFIF identifier.
const JPEG_HEAD: [u8; 20] = [
    0xff, 0xd8, 0xff, 0xe0, 0, 16, b'J', b'F', b'I', b'F', 0, 1, 1, 0, 0, 1, 0, 1, 0, 0,
];

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contents {
    /// Nobody can make it smaller.
    Binary,
    /// Random words of a small dictionary.
    Text,
    /// Text behind the head of a JPEG.
    FakeJpeg,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct File {
    /// Below the benchmark's folder.
    pub path: String,
    /// Of what kind.
    pub contents: Contents,
    /// Its length.
    pub bytes: u64,
    /// Two files with one seed and length are equal.
    pub seed: u64,
}

impl File {
    /// What is to be written.
    pub fn make(&self) -> Vec<u8> {
        let mut made = Vec::with_capacity(self.bytes as usize + 16);
        let mut random = Prng::new(self.seed);
        match self.contents {
            Contents::Binary => {
                made.resize(self.bytes as usize, 0);
                random.fill(&mut made);
            }
            Contents::Text => {}
            Contents::FakeJpeg => made.extend_from_slice(&JPEG_HEAD),
        }
        while made.len() < self.bytes as usize {
            let word = WORDS[random.below(WORDS.len() as u64) as usize];
            made.extend_from_slice(word.as_bytes());
            made.push(if random.chance(100) { b'\n' } else { b' ' });
        }
        made.truncate(self.bytes as usize);
        made
    }
}

/// Seeds that have nothing to do with each other.
#[derive(Clone, Debug)]
pub struct Seeds(Prng);

impl Seeds {
    /// Of a purpose within a run.
    pub fn of(seed: u64, purpose: u64) -> Self {
        Self(Prng::new(Prng::new(seed).next_u64() ^ Prng::new(!purpose).next_u64()))
    }

    /// The next one.
    pub fn take(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// One row of the paper's table IV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// As the paper counts.
    pub number: u32,
    /// Of random bytes; replicas included.
    pub binary_files: u64,
    /// Of words; replicas included.
    pub text_files: u64,
    /// Of all files.
    pub bytes: u64,
    /// Files that equal another one.
    pub replicas: u64,
    /// Of these.
    pub replica_bytes: u64,
}

/// All of table IV. The text of the paper calls the files of workload 4 files of 1 kB once; with its total they have 10 kB.
pub const WORKLOADS: [Workload; 6] = [
    workload(1, (1, 0), 100_000, (0, 0)),
    workload(2, (1, 0), 1_000_000, (0, 0)),
    workload(3, (1, 0), 20_000_000, (0, 0)),
    workload(4, (50, 50), 1_000_000, (0, 0)),
    workload(5, (194, 171), 87_000_000, (97, 5_400_000)),
    workload(6, (172, 140), 77_000_000, (136, 5_500_000)),
];

const fn workload(number: u32, files: (u64, u64), bytes: u64, replicas: (u64, u64)) -> Workload {
    Workload {
        number,
        binary_files: files.0,
        text_files: files.1,
        bytes,
        replicas: replicas.0,
        replica_bytes: replicas.1,
    }
}

impl Workload {
    /// All files, replicas included.
    pub fn files(&self) -> u64 {
        self.binary_files + self.text_files
    }

    /// Its files, new ones for each seed. Sizes are as uneven as a user's: most are small, a few hold most of the bytes. Only
    /// without replicas are all of a size, as the paper says of workload 4.
    pub fn make(&self, seeds: &mut Seeds) -> Vec<File> {
        let binary_pairs = self.replicas * self.binary_files / self.files().max(1);
        let single_bytes = self.bytes - 2 * self.replica_bytes;
        let single = self.files() - 2 * self.replicas;
        let single_binary = self.binary_files - 2 * binary_pairs;
        let paired_sizes = sizes(self.replicas, self.replica_bytes, true, seeds);
        let single_sizes = sizes(single, single_bytes, self.replicas > 0, seeds);
        let mut files = Vec::new();
        for (index, bytes) in paired_sizes.into_iter().enumerate() {
            let file = self.file("original", index, kind(index as u64, binary_pairs), bytes, seeds.take());
            let path = self.path("replica", index, file.contents);
            files.push(File { path, ..file.clone() });
            files.push(file);
        }
        for (index, bytes) in single_sizes.into_iter().enumerate() {
            files.push(self.file("file", index, kind(index as u64, single_binary), bytes, seeds.take()));
        }
        shuffle(&mut files, seeds.take());
        files
    }

    fn file(&self, name: &str, index: usize, contents: Contents, bytes: u64, seed: u64) -> File {
        File {
            path: self.path(name, index, contents),
            contents,
            bytes,
            seed,
        }
    }

    /// In folders of a few dozen.
    fn path(&self, name: &str, index: usize, contents: Contents) -> String {
        let extension = if contents == Contents::Text { "txt" } else { "bin" };
        format!("workload-{}-{}/{name}-{index}.{extension}", self.number, index / 32)
    }
}

fn kind(index: u64, binary: u64) -> Contents {
    if index < binary {
        Contents::Binary
    } else {
        Contents::Text
    }
}

/// So many sizes with this sum, none of them zero.
fn sizes(count: u64, sum: u64, is_uneven: bool, seeds: &mut Seeds) -> Vec<u64> {
    let mut random = Prng::new(seeds.take());
    // The square of the reciprocal of a uniform variable has a heavy tail; bounded, so that none has more than a tenth or so.
    let weights: Vec<u64> = (0..count)
        .map(|_| {
            if is_uneven {
                1_000_000 / (20 + random.below(1_000))
            } else {
                1
            }
        })
        .map(|weight| if is_uneven { weight * weight / 1_000 + 1 } else { weight })
        .collect();
    let total: u64 = weights.iter().sum();
    let mut sizes: Vec<u64> = weights.iter().map(|weight| (sum * weight / total).max(1)).collect();
    let given: u64 = sizes.iter().sum();
    if let Some(largest) = sizes.iter_mut().max() {
        *largest = *largest + sum - given;
    }
    sizes
}

fn shuffle(files: &mut [File], seed: u64) {
    let mut random = Prng::new(seed);
    for index in (1..files.len()).rev() {
        files.swap(index, random.below(index as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn workloads_have_the_files_bytes_and_replicas_of_table_iv() {
        for workload in WORKLOADS {
            let files = workload.make(&mut Seeds::of(7, u64::from(workload.number)));
            let count = |contents| files.iter().filter(|file| file.contents == contents).count() as u64;
            assert_eq!(count(Contents::Binary), workload.binary_files, "{workload:?}");
            assert_eq!(count(Contents::Text), workload.text_files, "{workload:?}");
            assert_eq!(
                files.iter().map(|file| file.bytes).sum::<u64>(),
                workload.bytes,
                "{workload:?}"
            );
            let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
            assert_eq!(paths.len() as u64, workload.files());
            let mut equal: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            for file in &files {
                equal.entry(file.seed).or_default().push(file.bytes);
            }
            let replicas: Vec<&Vec<u64>> = equal.values().filter(|sizes| sizes.len() == 2).collect();
            assert_eq!(replicas.len() as u64, workload.replicas);
            assert_eq!(
                replicas.iter().map(|sizes| sizes[1]).sum::<u64>(),
                workload.replica_bytes
            );
        }
    }

    #[test]
    fn sizes_are_uneven_where_a_user_has_many_files() {
        let mut sizes: Vec<u64> = WORKLOADS[4]
            .make(&mut Seeds::of(1, 1))
            .iter()
            .map(|file| file.bytes)
            .collect();
        sizes.sort_unstable();
        let top: u64 = sizes[sizes.len() * 9 / 10..].iter().sum();
        assert!(top > 87_000_000 / 3, "a tenth of the files holds {top} bytes");
        assert!(
            sizes[sizes.len() / 2] < 87_000_000 / 365,
            "the median is below the mean"
        );
        let equal: BTreeSet<u64> = WORKLOADS[3]
            .make(&mut Seeds::of(1, 1))
            .iter()
            .map(|file| file.bytes)
            .collect();
        assert_eq!(equal, BTreeSet::from([10_000]));
    }

    #[test]
    fn contents_are_what_they_are_called() {
        let made = |contents, seed| {
            File {
                path: String::new(),
                contents,
                bytes: 10_000,
                seed,
            }
            .make()
        };
        let distinct = |bytes: &[u8]| bytes.iter().collect::<BTreeSet<_>>().len();
        assert_eq!(distinct(&made(Contents::Binary, 1)), 256);
        assert!(distinct(&made(Contents::Text, 1)) < 30);
        assert!(made(Contents::FakeJpeg, 1).starts_with(&[0xff, 0xd8, 0xff]));
        assert_eq!(made(Contents::Text, 1), made(Contents::Text, 1));
        assert_ne!(made(Contents::Text, 1), made(Contents::Text, 2));
        assert_eq!(made(Contents::FakeJpeg, 1).len(), 10_000);
    }

    #[test]
    fn another_seed_or_purpose_makes_other_files() {
        let files = |seed, purpose| WORKLOADS[5].make(&mut Seeds::of(seed, purpose));
        assert_eq!(files(1, 2), files(1, 2));
        let seeds: BTreeSet<u64> = [(1, 2), (1, 3), (2, 2), (2, 1)]
            .iter()
            .flat_map(|(seed, purpose)| files(*seed, *purpose))
            .map(|file| file.seed)
            .collect();
        assert_eq!(seeds.len(), 4 * 176);
    }
}
