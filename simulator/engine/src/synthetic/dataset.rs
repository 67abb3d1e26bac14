//! What the paper prints of its two data sets, and what follows from that by arithmetic.

use super::runs;
use serde::{Deserialize, Serialize};
use tombolo_base::BLOCK_BYTES;

/// One of the paper's two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dataset {
    /// A file server of marketing, sales and finance: documents, databases, images of virtual machines.
    Corp,
    /// A file server of engineers: home directories, source code, builds.
    Eng,
}

/// Table 1 of the Tombolo paper, collected below file system and deduplication; the last line from section 3.1. Gigabytes
/// are taken for decimal ones.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the table's own lines")]
pub struct Printed {
    pub clients: u64,
    pub days: u64,
    pub reads: u64,
    pub writes: u64,
    pub read_gb: f64,
    pub written_gb: f64,
    /// New data after deduplication.
    pub growth_gb: f64,
    pub stored_tb: f64,
}

const CORP: Printed = Printed {
    clients: 5_261,
    days: 42,
    reads: 19_876_155,
    writes: 3_968_452,
    read_gb: 203.8,
    written_gb: 119.9,
    growth_gb: 82.3,
    stored_tb: 3.0,
};

const ENG: Printed = Printed {
    clients: 2_654,
    days: 38,
    reads: 23_818_465,
    writes: 4_416_026,
    read_gb: 192.1,
    written_gb: 87.2,
    growth_gb: 63.7,
    stored_tb: 19.0,
};

const GB: f64 = 1e9;
const TB: f64 = 1e12;

impl Dataset {
    /// Both, in the paper's order.
    pub const ALL: [Self; 2] = [Self::Corp, Self::Eng];

    /// What the paper says of it.
    pub fn printed(self) -> &'static Printed {
        match self {
            Self::Corp => &CORP,
            Self::Eng => &ENG,
        }
    }
}

fn blocks(bytes: f64) -> f64 {
    bytes / BLOCK_BYTES as f64
}

impl Printed {
    /// Blocks of all reads.
    pub fn read_blocks(&self) -> f64 {
        blocks(self.read_gb * GB)
    }

    /// Blocks that were there before the trace.
    pub fn stored_blocks(&self) -> f64 {
        blocks(self.stored_tb * TB)
    }

    /// Of a write, in blocks: 7.4 and 4.8.
    pub fn mean_write(&self) -> f64 {
        blocks(self.written_gb * GB) / self.writes as f64
    }

    /// Of what is written, what is new after deduplication: 69 % and 73 %.
    pub fn new_share(&self) -> f64 {
        self.growth_gb / self.written_gb
    }

    /// Blocks that are read in long runs.
    pub fn run_blocks(&self) -> f64 {
        self.read_blocks() * runs::BLOCK_SHARE
    }

    /// Reads that belong to long runs.
    pub fn run_reads(&self) -> f64 {
        self.run_blocks() / runs::mean_request()
    }

    /// Of a read that belongs to no long run, in blocks, so that all together come to the printed bytes.
    pub fn mean_short_read(&self) -> f64 {
        (self.read_blocks() - self.run_blocks()) / (self.reads as f64 - self.run_reads())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_paper() {
        let percent = |dataset: Dataset| (dataset.printed().new_share() * 100.0).round();
        assert_eq!(Dataset::ALL.map(percent), [69.0, 73.0]);
        let mean = |dataset: Dataset| (dataset.printed().mean_write() * 10.0).round() / 10.0;
        assert_eq!(Dataset::ALL.map(mean), [7.4, 4.8]);
    }

    #[test]
    fn short_and_long_reads_come_to_the_printed_bytes() {
        for dataset in Dataset::ALL {
            let printed = dataset.printed();
            let short = printed.mean_short_read() * (printed.reads as f64 - printed.run_reads());
            let all = short + printed.run_reads() * runs::mean_request();
            assert!((all / printed.read_blocks() - 1.0).abs() < 1e-9);
            assert!((1.0..3.0).contains(&printed.mean_short_read()), "{dataset:?}");
        }
    }
}
