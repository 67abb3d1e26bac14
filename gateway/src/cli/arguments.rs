mod bench;
mod export;
mod share;

pub(super) use bench::{BenchCommand, Choice, CloudArguments};
pub(super) use export::{ExportCommand, HowToWrite, IscsiOptions, NfsOptions, SmbOptions};
pub(super) use share::{MountArguments, ShareCommand};

use crate::admin::model::FlushMode;
use crate::settings::ByteSize;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed
  2  wrong usage, a wrong setting, or a request that the gateway calls invalid
  3  no gateway answers on the admin socket
  4  there is no such volume or share
  5  the name is taken
  6  busy: in use, or the store cannot be reached; try again later
  7  a check has found something, or blocks were lost before a drain could upload them";

/// The Tombolo storage gateway: local disks and file shares in front of an object store, deduplicated and compressed.
#[derive(Debug, Parser)]
#[command(name = "tombolo", version, after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub connection: Connection,
    #[command(subcommand)]
    pub command: Command,
}

/// How the running gateway is found.
#[derive(Debug, Args)]
pub(super) struct Connection {
    /// The gateway's admin socket [default: of --config, else $TOMBOLO_SOCKET, else /run/tombolo/admin.sock]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The settings file
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the gateway until SIGTERM or SIGINT
    Serve(ServeOptions),
    /// Make a state directory of what the store holds, after the loss of the one before
    Recover(RecoverOptions),
    /// Show what a state directory has and its store lacks, and copy it out: for a gateway that was taken over from. The gateway
    /// must have stopped; nothing is changed
    Salvage(SalvageOptions),
    /// Change the local cache, with the gateway stopped
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Create, list, resize, set and delete volumes
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Create, list, limit, set, mount and delete shares
    #[command(subcommand)]
    Share(ShareCommand),
    /// Make a volume or a share known to a protocol server
    #[command(subcommand)]
    Export(ExportCommand),
    /// Show what the gateway is doing, most important figures first
    Status {
        /// Print everything as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show and change what is evicted and what is fetched ahead
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Record what clients ask for into a file, for the simulator
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Upload everything that the store does not have yet
    Drain(DrainOptions),
    /// Bring local metadata up to the journal, so that a restart soon has little to replay
    Checkpoint {
        /// Of this named store alone, in place of all stores
        #[arg(long, value_name = "NAME")]
        store: Option<String>,
        /// Print what there was to replay as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show and replace the keys that objects in the store are encrypted with
    #[command(subcommand)]
    Key(KeyCommand),
    /// Check all shares for contradictions, or the store with everything that refers to it, while they are in use
    Check {
        /// Compare local metadata, the store's and the fingerprint index, and read and verify every object in the store, which
        /// costs its requests and egress
        #[arg(long)]
        store: bool,
        /// Go on where the last check of the store was interrupted, if it was
        #[arg(long, requires = "store")]
        resume: bool,
        /// Check this named store alone, or its shares, in place of all; "default" is the first
        #[arg(long, value_name = "NAME")]
        of: Option<String>,
        /// Print the result as one JSON object, of several stores one for each, a line each, and the progress as such to standard
        /// error
        #[arg(long)]
        json: bool,
    },
    /// Check a settings file and report every fault at once
    CheckConfig {
        /// Print the faults as a JSON list
        #[arg(long)]
        json: bool,
    },
    /// Show the settings in force, defaults included
    Settings {
        /// Print docs/CONFIGURATION.md
        #[arg(long, hide = true)]
        markdown: bool,
        /// Print a JSON list of keys, values, permitted values and reasons
        #[arg(long)]
        json: bool,
    },
    /// Show the shipped prices of stores, or print one table as a price file
    Prices {
        /// The table to print
        table: Option<String>,
        /// Print a JSON object of the table, or of all by name
        #[arg(long)]
        json: bool,
    },
    /// Show the gateway's metrics in Prometheus's text format
    Metrics(MetricsArguments),
    /// Measure mounted systems; needs no running gateway
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Print docs/openapi.json
    #[command(hide = true)]
    Openapi,
}

#[derive(Debug, Args)]
pub(super) struct ServeOptions {
    /// Start also when a part of the state directory is lost, on what is left of it and on what the store holds. A start without
    /// this is refused then and says what is lost; what is lost by it is lost for good
    #[arg(long)]
    pub accept_loss: bool,
}

#[derive(Debug, Args)]
pub(super) struct RecoverOptions {
    /// The store, in place of [store] url: a url, or the NAME of [store.named.NAME], with its state directory
    #[arg(long, value_name = "URL|NAME")]
    pub store: Option<String>,
    /// The state directory to make, in place of state_directory; it must be empty, or hold an interrupted recovery
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The file with the master key, in place of [store] master_key_file
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Do not wait whether the gateway that wrote the store is alive. If it is, it accepts no changes any more, and what it has
    /// not uploaded is only in its state directory
    #[arg(long)]
    pub take_over: bool,
    /// Go back to an earlier state that the store has kept: a root's number from --list, or the last one before a time such as
    /// 2026-11-23T05:00:00Z. What came after it is left behind
    #[arg(long, value_name = "ROOT|TIME")]
    pub at: Option<String>,
    /// Only show the states that the store has kept
    #[arg(long, conflicts_with_all = ["at", "take_over", "state"])]
    pub list: bool,
    /// Print progress and result as JSON objects, one per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum CacheCommand {
    /// Make it as large as [cache] size says now. Needs no store, and loses nothing; interrupted, it is run again
    Resize {
        /// That of this named store, which its cache_size is for, in place of the first
        #[arg(long, value_name = "NAME")]
        store: Option<String>,
        /// Print what was done as one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(super) struct SalvageOptions {
    /// A directory to make: changed ranges of volumes as sparse files, changed files whole, and the list as salvage.json
    #[arg(long, value_name = "DIR")]
    pub copy_to: Option<PathBuf>,
    /// Of this named store, in place of the first
    #[arg(long, value_name = "NAME")]
    pub store: Option<String>,
    /// Print everything as one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(super) struct MetricsArguments {
    /// Only the names of all series; needs no running gateway
    #[arg(long)]
    pub names: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// List the ids of all keys; no key is shown
    List {
        /// In this named store, in place of the first
        #[arg(long, value_name = "NAME")]
        store: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Make another data key for what is uploaded from now on, or encrypt the data keys with another master key
    Rotate {
        /// A file on the gateway's machine with the new master key (64 hexadecimal digits, mode 0600), which alone opens the
        /// data keys from then on
        #[arg(long, value_name = "FILE")]
        master_key_file: Option<PathBuf>,
        /// A key of AWS KMS (id, ARN or alias): it wraps a new master key, and alone can unwrap it from then on
        #[arg(long, value_name = "KEY", conflicts_with = "master_key_file")]
        master_key_kms: Option<String>,
        /// In this named store, in place of the first
        #[arg(long, value_name = "NAME")]
        store: Option<String>,
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum VolumeCommand {
    /// Create a volume; it takes no space before it is written to
    Create {
        name: String,
        /// A multiple of 4KiB, such as 10GiB
        #[arg(long)]
        size: ByteSize,
        /// What its flushes (FLUSH, FUA, SYNCHRONIZE CACHE) wait for
        #[arg(long, value_name = "MODE", default_value = "local")]
        flush: FlushMode,
        /// Where it lives: a store that [store.named.NAME] names, in place of the first
        #[arg(long, value_name = "NAME")]
        store: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// List all volumes
    List {
        #[arg(long)]
        json: bool,
    },
    /// Change the size of a volume
    Resize {
        name: String,
        /// A multiple of 4KiB, such as 10GiB
        #[arg(long)]
        size: ByteSize,
        /// Permit a smaller size; what lies beyond it is lost
        #[arg(long)]
        allow_shrink: bool,
        #[arg(long)]
        json: bool,
    },
    /// Change what a volume's flushes wait for
    Set {
        name: String,
        /// What its flushes (FLUSH, FUA, SYNCHRONIZE CACHE) wait for from now on
        #[arg(long, value_name = "MODE")]
        flush: FlushMode,
        #[arg(long)]
        json: bool,
    },
    /// Delete a volume and all its data
    Delete {
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum TraceCommand {
    /// Start to record operations, addresses, times, clients, and which blocks are equal; no contents
    Start {
        /// A file that does not exist yet, in a directory that the gateway may write to
        file: PathBuf,
        /// Stop when the file has reached this size
        #[arg(long, default_value = "1GiB")]
        max_size: ByteSize,
        /// In this named store, in place of the first
        #[arg(long, value_name = "NAME")]
        store: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Stop, and wait until the file is complete
    Stop {
        /// In this named store, in place of the first
        #[arg(long, value_name = "NAME")]
        store: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Show the progress of the recording
    Status {
        /// In this named store, in place of the first
        #[arg(long, value_name = "NAME")]
        store: Option<String>,
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Show the policies in use, their settings, and what each pair has achieved since the start
    Show {
        /// In this named store, in place of the first
        #[arg(long, value_name = "NAME")]
        store: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Change policies of all stores until the next start; what is cached stays
    Set {
        /// Keys of [prefetch], or replacement of [cache], as in the settings file: combination=sarc_graph,
        /// graph_threshold_hit_permille=300; wait_microdollars_per_second=unset
        #[arg(required = true, value_name = "KEY=VALUE")]
        changes: Vec<String>,
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(super) struct DrainOptions {
    /// Wait until the store has everything
    #[arg(long)]
    pub wait: bool,
    /// Stop waiting after this many seconds (exit code 6); the drain itself goes on
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    pub timeout_s: Option<u64>,
    /// Of this named store alone, in place of all stores
    #[arg(long, value_name = "NAME")]
    pub store: Option<String>,
    /// Print the progress as JSON objects, one per line
    #[arg(long)]
    pub json: bool,
}
