//! `tombolo bench`.

use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use tombolo_bench_cloud::method::probes::Probe;

const HELP: &str = "\
The system under test must reach its store through this command, which passes everything on and counts it: point the system's
endpoint at the address of --listen (plain HTTP, so that requests can be told apart; of TLS only bytes and connections are seen),
and name the store itself with --store. Then

  tombolo bench cloud --store 127.0.0.1:7070 --listen 127.0.0.1:7071 --folder /mnt/under-test \\
      --start 'mount the system' --remount 'unmount it, drop its caches, mount it again'

writes new files below the folder, waits after each step until nothing has passed for --quiet-s, and removes them at the end. Give
it more quiet time than the system waits before it uploads. Commands are run by sh; a program that one leaves running should have
its output elsewhere. Everything takes about 15 minutes with --repeats 1, most of it silence; the paper has 20 repeats with more
than 5 minutes between them.

A body of no more than 4 KiB counts as control, not as payload. Verdicts and workloads follow Bocchi, Drago and Mellia, Personal
Cloud Storage Benchmarks and Comparison (2017).";

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum BenchCommand {
    /// Find out what a mounted cloud file system does on the wire, and how fast: any system, not only this one
    #[command(after_help = HELP, after_long_help = HELP)]
    Cloud(CloudArguments),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct CloudArguments {
    /// A folder of the mounted system
    #[arg(long, value_name = "DIR")]
    pub folder: PathBuf,
    /// The address of the system's store
    #[arg(long, value_name = "IP:PORT")]
    pub store: SocketAddr,
    /// Where the system finds its store instead
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7071")]
    pub listen: SocketAddr,
    /// Mounts the system, once its store can be reached through here; else it must be mounted already
    #[arg(long, value_name = "COMMAND")]
    pub start: Option<String>,
    /// Makes the system forget what it has cached; without it downloads are not measured
    #[arg(long, value_name = "COMMAND")]
    pub remount: Option<String>,
    /// The same data at a second mount, for propagation and peer-to-peer; it is read there as soon as it is seen
    #[arg(long, value_name = "DIR", requires = "second_listen")]
    pub second_folder: Option<PathBuf>,
    /// Where the second mount finds its store
    #[arg(long, value_name = "IP:PORT", requires = "second_folder")]
    pub second_listen: Option<SocketAddr>,
    /// What to ask for: bundling, chunking, compression, dedup, delta, peer-to-peer; `none` for nothing [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub probes: Option<Vec<Choice<Probe>>>,
    /// Which of the workloads 1 to 6 to measure; `none` for nothing [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub workloads: Option<Vec<Choice<WorkloadNumber>>>,
    /// How often to measure each workload
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub repeats: u32,
    /// Between two workloads, at least; up to twice as long
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub gap_s: u64,
    /// Silence that says that the system is done with what it was given, before and after each step
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub quiet_s: u64,
    /// Bytes that may pass in the silence, such as a lease that is renewed
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10)]
    pub noise_bytes: u64,
    /// The longest time for each thing that is waited for
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub limit_s: u64,
    /// Makes the same files again [default: other ones each time]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Print everything that was seen as one JSON object; else two tables in Markdown
    #[arg(long)]
    pub json: bool,
}

/// One of a list, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Choice<T> {
    None,
    One(T),
}

impl<T: std::str::FromStr> std::str::FromStr for Choice<T> {
    type Err = T::Err;

    fn from_str(word: &str) -> Result<Self, T::Err> {
        if word == "none" {
            Ok(Self::None)
        } else {
            word.parse().map(Self::One)
        }
    }
}

/// Of the paper's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct WorkloadNumber(pub u32);

impl std::str::FromStr for WorkloadNumber {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word.parse() {
            Ok(number @ 1..=6) => Ok(Self(number)),
            _ => Err(format!("{word:?} is no workload; there are 1 to 6")),
        }
    }
}
