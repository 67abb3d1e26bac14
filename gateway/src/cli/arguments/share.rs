use crate::admin::model::FlushMode;
use crate::settings::{ByteSize, ByteSizeError};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Subcommand)]
pub(in super::super) enum ShareCommand {
    /// Create a share; it takes no space before it is written to
    Create {
        name: String,
        /// The most that its files may occupy: a multiple of 4KiB, such as 10GiB
        #[arg(long, value_name = "SIZE")]
        quota: Option<ByteSize>,
        /// What its flushes (fsync, COMMIT, stable writes; over NFS changes of names too) wait for
        #[arg(long, value_name = "MODE", default_value = "local")]
        flush: FlushMode,
        /// Where it lives: a store that [store.named.NAME] names, in place of the first
        #[arg(long, value_name = "NAME")]
        store: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// List all shares and who uses them
    List {
        #[arg(long)]
        json: bool,
    },
    /// Change what the files of a share may occupy
    Quota {
        name: String,
        /// A multiple of 4KiB, such as 10GiB, or none. Less than is used deletes nothing, but nothing more fits
        #[arg(value_name = "SIZE|none")]
        quota: QuotaArgument,
        #[arg(long)]
        json: bool,
    },
    /// Change what a share's flushes wait for
    Set {
        name: String,
        /// What its flushes (fsync, COMMIT, stable writes; over NFS changes of names too) wait for from now on
        #[arg(long, value_name = "MODE")]
        flush: FlushMode,
        #[arg(long)]
        json: bool,
    },
    /// Delete a share and all its files
    Delete {
        name: String,
        /// Even if it is in use; its clients then get errors
        #[arg(long)]
        force: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[arg(long)]
        json: bool,
    },
    /// Mount a share on this machine and hold the mount until SIGTERM or SIGINT; as root
    ///
    /// The mount survives a restart of the gateway: whoever uses it waits until it is back.
    Mount(MountArguments),
}

#[derive(Debug, Args)]
pub(in super::super) struct MountArguments {
    pub name: String,
    /// An existing directory
    pub directory: PathBuf,
    /// Mount it read-only
    #[arg(long)]
    pub read_only: bool,
    /// How many requests of the mount the gateway serves at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
}

/// A size, or `none`.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct QuotaArgument(pub Option<ByteSize>);

impl FromStr for QuotaArgument {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, ByteSizeError> {
        match text {
            "none" => Ok(Self(None)),
            size => size.parse().map(|size| Self(Some(size))),
        }
    }
}
