//! Changes as a gateway would bring them.

use crate::codec::Record;
use clap::ValueEnum;
use tombolo_base::Prng;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Single blocks all over a map in which no two blocks continue each other.
    Random,
    /// The same, nine of ten in the first tenth of the map.
    Hot,
    /// Two streams of 1 MiB writes side by side, over a map of such runs.
    Sequential,
}

/// Blocks of one sequential write.
const WRITE_BLOCKS: u64 = 256;

impl Workload {
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Hot => "hot",
            Self::Sequential => "sequential",
        }
    }

    /// Blocks a second: 10,000 random ones, 100 MiB sequentially.
    pub fn rate(self) -> u64 {
        match self {
            Self::Random | Self::Hot => 10_000,
            Self::Sequential => 25_600,
        }
    }

    fn record_blocks(self) -> u64 {
        match self {
            Self::Random | Self::Hot => 1,
            Self::Sequential => WRITE_BLOCKS,
        }
    }

    /// Key, value and nothing else, 8 bytes each, for each record of so many changed blocks.
    pub fn raw_bytes(self, changes: u64) -> u64 {
        16 * changes / self.record_blocks()
    }

    pub fn initial(self, blocks: u64, seed: u64) -> impl Iterator<Item = Record> {
        let length = self.record_blocks();
        let mut prng = Prng::new(seed);
        (0..blocks / length).map(move |index| Record {
            start: index * length,
            value: prng.below(2 * blocks / length) * length,
            length: length as u32,
            version: 0,
        })
    }
}

pub struct Changes {
    workload: Workload,
    blocks: u64,
    prng: Prng,
    next_pvbn: u64,
    /// Sequential writes so far.
    writes: u64,
}

impl Changes {
    pub fn new(workload: Workload, blocks: u64, seed: u64) -> Self {
        Self {
            workload,
            blocks,
            prng: Prng::new(!seed),
            next_pvbn: 2 * blocks,
            writes: 0,
        }
    }

    pub fn next_pvbn(&self) -> u64 {
        self.next_pvbn
    }

    /// What `count` changed blocks leave: sorted, the last change of each block.
    pub fn next(&mut self, count: u64) -> Vec<Record> {
        let length = self.workload.record_blocks();
        let mut records: Vec<Record> = (0..count / length)
            .map(|_| {
                let value = self.next_pvbn;
                self.next_pvbn += length;
                Record {
                    start: self.start(),
                    value,
                    length: length as u32,
                    version: 0,
                }
            })
            .collect();
        // A stable sort leaves changes of one block in their order; the last counts.
        records.sort_by_key(|record| record.start);
        records.reverse();
        records.dedup_by_key(|record| record.start);
        records.reverse();
        records
    }

    fn start(&mut self) -> u64 {
        match self.workload {
            Workload::Random => self.prng.below(self.blocks),
            Workload::Hot if self.prng.chance(900) => self.prng.below(self.blocks / 10),
            Workload::Hot => self.prng.below(self.blocks),
            Workload::Sequential => {
                let writes = self.blocks / WRITE_BLOCKS;
                let stream = self.writes % 2 * (writes / 2);
                let start = (self.writes / 2 + stream) % writes * WRITE_BLOCKS;
                self.writes += 1;
                start
            }
        }
    }
}
