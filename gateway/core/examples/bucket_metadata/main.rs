//! Metadata in the bucket: candidates side by side, with real encodings, real sealing, and a bucket that counts.
//!
//! ```text
//! cargo run --release -p tombolo-core --example bucket_metadata -- check --seeds 20
//! cargo run --release -p tombolo-core --example bucket_metadata -- changes --blocks 1000000 --interval 5,60,600
//! cargo run --release -p tombolo-core --example bucket_metadata -- snapshots --blocks 1000000
//! cargo run --release -p tombolo-core --example bucket_metadata -- payloads
//! ```
//! Prints rows of a Markdown table, or with `--json` an object a line. Results: docs/results/bucket-metadata.md.
//!
//! | module       | holds                                                                    |
//! |--------------|--------------------------------------------------------------------------|
//! | `store`      | the bucket, sealed nodes in objects, cleaning                            |
//! | `codec`      | records, pointers, and their bytes                                       |
//! | `tree`       | the copy-on-write B-tree, without and with segments                      |
//! | `runs`       | sorted runs with versions                                                |
//! | `lifetimes`  | dead lists, of nodes and of references                                   |
//! | `references` | counts of PVBNs' lives                                                   |
//! | `check`      | everything beside a reference model                                      |
//! | `measure`    | what is measured                                                         |

mod candidate;
mod check;
mod codec;
mod lifetimes;
mod measure;
mod references;
mod runs;
mod store;
mod structure;
mod tree;
mod workload;

pub use candidate::Candidate;
use clap::{Args, Parser, Subcommand};
use workload::Workload;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
#[command(about = "Measure candidates for the metadata in the bucket")]
struct Arguments {
    #[command(subcommand)]
    part: Part,
    /// A JSON object a line instead of a Markdown table.
    #[arg(long, global = true)]
    json: bool,
    #[arg(long, global = true, default_value_t = 1)]
    seed: u64,
    /// Which candidates; all of them if none is named.
    #[arg(long, global = true, value_delimiter = ',')]
    candidate: Vec<Candidate>,
}

#[derive(Subcommand)]
enum Part {
    /// Compare reads, and what deleted snapshots free, with a reference model.
    Check {
        #[arg(long, default_value_t = 10)]
        seeds: u64,
    },
    /// What checkpoints upload, and what a cold read costs.
    Changes(ChangesArguments),
    /// A snapshot after each checkpoint; then one in the middle is deleted.
    Snapshots(SnapshotsArguments),
    /// Records with values of their own: entries of the file service, object descriptors.
    Payloads {
        #[arg(long, default_value_t = 1_000_000)]
        keys: u64,
    },
}

#[derive(Args)]
pub struct ChangesArguments {
    /// Mapped blocks.
    #[arg(long, value_delimiter = ',', default_value = "100000,1000000,10000000")]
    blocks: Vec<u64>,
    /// Seconds between checkpoints.
    #[arg(long, value_delimiter = ',', default_value = "5,60,600")]
    interval: Vec<u64>,
    #[arg(long, value_delimiter = ',', default_value = "random,sequential")]
    workload: Vec<Workload>,
    /// Changed blocks a second, if not 10,000 random or 25,600 sequential ones.
    #[arg(long)]
    rate: Option<u64>,
    #[command(flatten)]
    shape: SegmentShape,
    /// Changed blocks after which a candidate that postpones work counts as settled, and over which it is measured; as
    /// many as there are blocks, if that is less.
    #[arg(long, default_value_t = 20_000_000)]
    cycle_max: u64,
    /// A measurement ends early, after whole checkpoints, when so many bytes were put.
    #[arg(long, default_value_t = 4 << 30)]
    put_bytes_max: u64,
}

/// What the candidates with segments have, if not the defaults.
#[derive(Args, Clone, Copy, Default)]
pub struct SegmentShape {
    #[arg(long)]
    fanout: Option<usize>,
    #[arg(long)]
    segments_max: Option<usize>,
    /// Bytes of segments before a leaf, in percent of the leaf.
    #[arg(long)]
    leaf_pending_percent: Option<usize>,
    #[arg(long)]
    node_pending_kib: Option<usize>,
}

#[derive(Args)]
pub struct SnapshotsArguments {
    #[arg(long, default_value_t = 1_000_000)]
    blocks: u64,
    #[arg(long, default_value_t = 1_000)]
    snapshots: u32,
    /// Random changes between two snapshots.
    #[arg(long, default_value_t = 10_000)]
    changes: u64,
    #[command(flatten)]
    shape: SegmentShape,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let candidates = match arguments.candidate.as_slice() {
        [] => <Candidate as clap::ValueEnum>::value_variants(),
        named => named,
    };
    let mut table = measure::Table::new(arguments.json);
    match &arguments.part {
        Part::Check { seeds } => {
            for &candidate in candidates {
                for seed in arguments.seed..arguments.seed + seeds {
                    check::check(candidate, seed, None)
                        .map_err(|failure| format!("{}, seed {seed}: {failure}", candidate.name()))?;
                }
                for fault in check::Fault::ALL {
                    if check::check(candidate, arguments.seed, Some(fault)).is_ok() {
                        return Err(format!("{}: {fault:?} is not found", candidate.name()).into());
                    }
                }
                println!(
                    "{}: seeds {} to {} agree, all faults found",
                    candidate.name(),
                    arguments.seed,
                    arguments.seed + seeds - 1
                );
            }
        }
        Part::Changes(changes) => measure::changes(candidates, changes, arguments.seed, &mut table)?,
        Part::Snapshots(snapshots) => measure::snapshots(candidates, snapshots, arguments.seed, &mut table)?,
        Part::Payloads { keys } => measure::payloads(candidates, *keys, arguments.seed, &mut table)?,
    }
    Ok(())
}
