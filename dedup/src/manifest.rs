//! The manifest: which runs make up the index, newest first. The caller stores its bytes atomically with its
//! checkpoint, and that moment decides which runs exist.
//!
//! ```text
//!   0  magic "TMBFPM01"      8
//!   8  generation            u64   ascending with each manifest issued
//!  16  next run id           u64   above every id assigned so far
//!  24  run count             u32
//!  28  reserved, zero        u32
//!  32  per run, newest first: run id u64, entry count u64
//!  ..  XXH3-64 of all before u64
//! ```

use crate::RunId;
use alloc::vec::Vec;
use tombolo_base::{DecodeError, Reader, Writer};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: u64 = u64::from_le_bytes(*b"TMBFPM01");
const FIXED_BYTES: usize = 32;
const RUN_BYTES: usize = 16;

/// One run of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestRun {
    /// Names its files.
    pub run: RunId,
    /// Entries in it, removed ones included.
    pub entry_count: u64,
}

/// The default is the manifest of an empty index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Rises with each manifest that is made.
    pub generation: u64,
    /// The number of the run that is written next; none is given twice.
    pub next_run: u64,
    /// Newest first: an entry in an earlier run hides those in later ones.
    pub runs: Vec<ManifestRun>,
}

impl Manifest {
    /// With a magic number before and a sum behind it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(FIXED_BYTES + self.runs.len() * RUN_BYTES + 8);
        out.u64(MAGIC)
            .u64(self.generation)
            .u64(self.next_run)
            .u32(self.runs.len() as u32)
            .u32(0);
        for run in &self.runs {
            out.u64(run.run.0).u64(run.entry_count);
        }
        let sum = xxh3_64(&out.0);
        out.u64(sum);
        out.0
    }

    /// All of `bytes` must be one manifest.
    ///
    /// # Errors
    /// When it is not one, or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let magic = reader.u64("manifest magic")?;
        if magic != MAGIC {
            return Err(invalid("manifest magic", magic));
        }
        let generation = reader.u64("manifest generation")?;
        let next_run = reader.u64("manifest next run")?;
        let count = reader.u32("manifest run count")?;
        let reserved = reader.u32("manifest reserved field")?;
        if reserved != 0 {
            return Err(invalid("manifest reserved field", u64::from(reserved)));
        }
        let mut runs: Vec<ManifestRun> = Vec::new();
        for _ in 0..count {
            let run = RunId(reader.u64("manifest run id")?);
            if run.0 >= next_run || runs.iter().any(|other| other.run == run) {
                return Err(invalid("manifest run id", run.0));
            }
            let entry_count = reader.u64("manifest entry count")?;
            runs.push(ManifestRun { run, entry_count });
        }
        let computed = xxh3_64(&bytes[..reader.offset()]);
        let found = reader.u64("manifest checksum")?;
        if found != computed {
            return Err(DecodeError::Checksum {
                what: "manifest",
                found,
                computed,
            });
        }
        reader.finish("manifest")?;
        Ok(Self {
            generation,
            next_run,
            runs,
        })
    }
}

fn invalid(what: &'static str, value: u64) -> DecodeError {
    DecodeError::Invalid { what, value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Manifest {
        Manifest {
            generation: 3,
            next_run: 9,
            runs: [(8, 100), (2, 5_000_000_000)]
                .map(|(run, entry_count)| ManifestRun {
                    run: RunId(run),
                    entry_count,
                })
                .to_vec(),
        }
    }

    #[test]
    fn golden_bytes() {
        let mut expected = b"TMBFPM01".to_vec();
        expected.extend([3, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([8, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([2, 0, 0, 0, 0, 0, 0, 0, 0x00, 0xf2, 0x05, 0x2a, 1, 0, 0, 0]);
        expected.extend([0x85, 0xc7, 0x4e, 0xd4, 0x68, 0xc0, 0xb0, 0xd0]);
        assert_eq!(sample().encode(), expected);
    }

    #[test]
    fn round_trip_of_empty_and_full() {
        for manifest in [Manifest::default(), sample()] {
            assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_or_cut_is_found(position in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = sample().encode();
            let index = position.index(bytes.len());
            prop_assert!(Manifest::decode(&bytes[..index]).is_err());
            bytes[index] ^= 1 << bit;
            prop_assert!(Manifest::decode(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Manifest::decode(&bytes);
        }
    }
}
