//! What is written to find out what a client can do, as in section III of the paper.

use super::workloads::{Contents, File, Seeds};
use tombolo_base::{Prng, names};

names! {
    /// What is asked of a system.
    pub enum Probe: "probe" {
        /// Many small files in one request.
        Bundling = "bundling",
        /// Large files in several.
        Chunking = "chunking",
        /// Text, and text that is said to be a picture.
        Compression = "compression",
        /// Contents that the store has already.
        Dedup = "dedup",
        /// Files of which a part has changed.
        Delta = "delta",
        /// From one client to another past the store.
        PeerToPeer = "peer-to-peer",
    }
}

/// Files that are written together, and removed after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stimulus {
    /// For the report.
    pub name: String,
    /// What is written.
    pub files: Vec<File>,
}

impl Stimulus {
    /// Of all its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Numbers of files of [`bundling`], all of one megabyte together.
pub const BUNDLES: [u64; 3] = [1, 10, 100];
const MEGABYTE: u64 = 1_000_000;
/// Of files that pass boundaries of chunks between 1 and 20 MB.
const CHUNKED_MB: [u64; 8] = [1, 2, 3, 5, 7, 9, 13, 20];
const COMPRESSED_BYTES: [u64; 3] = [100_000, 500_000, 1_000_000];
/// Of [`dedup`].
pub const DEDUP_BYTES: u64 = 4_000_000;
/// Of [`peer_to_peer`].
pub const PEER_BYTES: u64 = 2_000_000;
/// Bytes before, and bytes that are added.
const DELTAS: [(u64, u64); 2] = [(MEGABYTE, 100_000), (10 * MEGABYTE, MEGABYTE)];

/// One megabyte in 1, 10 and 100 files.
pub fn bundling(seeds: &mut Seeds) -> Vec<Stimulus> {
    let mut of_count = |count| Stimulus {
        name: format!("{count} files of {} kB", 1_000 / count),
        files: (0..count)
            .map(|index| binary(format!("bundle-{count}/{index}.bin"), MEGABYTE / count, seeds))
            .collect(),
    };
    BUNDLES.into_iter().map(&mut of_count).collect()
}

/// Single files of growing size.
pub fn chunking(seeds: &mut Seeds) -> Vec<Stimulus> {
    let mut of_size = |megabytes| Stimulus {
        name: format!("{megabytes} MB"),
        files: vec![binary(format!("chunk/{megabytes}.bin"), megabytes * MEGABYTE, seeds)],
    };
    CHUNKED_MB.into_iter().map(&mut of_size).collect()
}

/// Text of growing size, then text that looks like a picture.
pub fn compression(seeds: &mut Seeds) -> Vec<Stimulus> {
    let mut of_size = |bytes, contents| {
        let (name, extension) = match contents {
            Contents::FakeJpeg => ("fake JPEG", "jpg"),
            _ => ("text", "txt"),
        };
        let file = File {
            path: format!("compress/{bytes}.{extension}"),
            contents,
            bytes,
            seed: seeds.take(),
        };
        Stimulus {
            name: format!("{name}, {} kB", bytes / 1_000),
            files: vec![file],
        }
    };
    let mut stimuli: Vec<Stimulus> = COMPRESSED_BYTES
        .into_iter()
        .map(|bytes| of_size(bytes, Contents::Text))
        .collect();
    stimuli.push(of_size(MEGABYTE, Contents::FakeJpeg));
    stimuli
}

/// New, the same in a second folder under another name, the same in a third; the last one is the first again, to be written
/// after all of them were removed.
pub fn dedup(seeds: &mut Seeds) -> [Stimulus; 4] {
    let first = binary("dedup-1/original.bin".into(), DEDUP_BYTES, seeds);
    let at = |name: &str, path: &str| Stimulus {
        name: name.into(),
        files: vec![File {
            path: path.into(),
            ..first.clone()
        }],
    };
    [
        at("new", "dedup-1/original.bin"),
        at("in a second folder", "dedup-2/other.bin"),
        at("in a third folder", "dedup-3/original.bin"),
        at("restored after all were removed", "dedup-1/original.bin"),
    ]
}

/// What two clients are given.
pub fn peer_to_peer(seeds: &mut Seeds) -> Stimulus {
    Stimulus {
        name: "a file for the other client".into(),
        files: vec![binary("peer/file.bin".into(), PEER_BYTES, seeds)],
    }
}

fn binary(path: String, bytes: u64, seeds: &mut Seeds) -> File {
    File {
        path,
        contents: Contents::Binary,
        bytes,
        seed: seeds.take(),
    }
}

names! {
    /// Where new data goes into a file.
    pub enum Position: "position" {
        /// Nothing of what was there moves.
        End = "end",
        /// All of it does.
        Start = "start",
        /// What is behind does.
        Random = "random offset",
    }
}

/// A file that is replaced by itself with something added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What is written first.
    pub file: File,
    /// Where.
    pub position: Position,
    /// In bytes from the beginning.
    pub offset: u64,
    /// What is added.
    pub added_bytes: u64,
    seed: u64,
}

impl Change {
    /// For the report.
    pub fn name(&self) -> String {
        let (file, added) = (self.file.bytes / 1_000, self.added_bytes / 1_000);
        format!("{added} kB at the {} of {file} kB", self.position)
    }

    /// Of the file that replaces the first.
    pub fn bytes(&self) -> u64 {
        self.file.bytes + self.added_bytes
    }

    /// The whole file that replaces the first.
    pub fn make(&self) -> Vec<u8> {
        let mut made = self.file.make();
        let mut added = vec![0; self.added_bytes as usize];
        Prng::new(self.seed).fill(&mut added);
        made.splice(self.offset as usize..self.offset as usize, added);
        made
    }
}

/// Each position in a small and in a large file.
pub fn delta(seeds: &mut Seeds) -> Vec<Change> {
    let mut changes = Vec::new();
    for (bytes, added_bytes) in DELTAS {
        for position in Position::ALL {
            let file = binary(format!("delta/{bytes}-{}.bin", changes.len()), bytes, seeds);
            let offset = match position {
                Position::End => bytes,
                Position::Start => 0,
                // Away from both ends, which are asked for already.
                Position::Random => bytes / 4 + Prng::new(seeds.take()).below(bytes / 2),
            };
            changes.push(Change {
                file,
                position,
                offset,
                added_bytes,
                seed: seeds.take(),
            });
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn seeds() -> Seeds {
        Seeds::of(3, 4)
    }

    #[test]
    fn bundles_are_one_megabyte_each() {
        for (stimulus, count) in bundling(&mut seeds()).iter().zip(BUNDLES) {
            assert_eq!((stimulus.files.len() as u64, stimulus.bytes()), (count, MEGABYTE));
        }
    }

    #[test]
    fn a_replica_has_the_same_bytes_and_another_place() {
        let steps = dedup(&mut seeds());
        let contents: BTreeSet<Vec<u8>> = steps.iter().map(|step| step.files[0].make()).collect();
        assert_eq!(contents.len(), 1);
        let paths: Vec<&str> = steps.iter().map(|step| step.files[0].path.as_str()).collect();
        assert_eq!(paths.iter().collect::<BTreeSet<_>>().len(), 3);
        assert_eq!(paths[0], paths[3]);
    }

    #[test]
    fn a_change_keeps_what_was_there() {
        for change in delta(&mut seeds()) {
            let (before, after) = (change.file.make(), change.make());
            let offset = change.offset as usize;
            assert_eq!(after.len() as u64, change.bytes());
            assert_eq!(after[..offset], before[..offset]);
            assert_eq!(after[offset + change.added_bytes as usize..], before[offset..]);
        }
    }

    #[test]
    fn no_two_stimuli_share_contents_that_should_not() {
        let mut seeds = seeds();
        let mut stimuli = bundling(&mut seeds);
        stimuli.extend(chunking(&mut seeds));
        stimuli.extend(compression(&mut seeds));
        stimuli.push(peer_to_peer(&mut seeds));
        let files: Vec<&File> = stimuli.iter().flat_map(|stimulus| &stimulus.files).collect();
        assert_eq!(
            files.iter().map(|file| file.seed).collect::<BTreeSet<_>>().len(),
            files.len()
        );
        assert_eq!(
            files.iter().map(|file| &file.path).collect::<BTreeSet<_>>().len(),
            files.len()
        );
    }
}
