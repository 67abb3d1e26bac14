//! Where a trace lies and how it is to be read.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A trace to read, and how to read it. Plain data, for the jobs of the simulator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// Its format, or [`Format::Auto`].
    #[serde(default)]
    pub format: Format,
    /// In which units its records are wanted.
    #[serde(default)]
    pub view: View,
    /// What the addresses of the trace count, in bytes, where that is not what the format says.
    #[serde(default)]
    pub unit_bytes: Option<u32>,
    /// What is done where its time goes back.
    #[serde(default)]
    pub time_order: TimeOrder,
    /// Ends the trace after this many records.
    #[serde(default)]
    pub limit: Option<u64>,
    /// A file that ends in the middle of something is read up to there, without an error.
    #[serde(default)]
    pub allow_truncated: bool,
}

impl Source {
    /// The file, with everything as usual.
    pub fn of(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            ..Self::default()
        }
    }
}

/// The formats, with what tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Told by the contents, and where they do not tell, by the file's name.
    #[default]
    Auto,
    /// The project's own (docs/FORMAT.md).
    Tbtr,
    /// `start count 0 number`, in sectors of 512 bytes; the traces of the ARC paper.
    Arc,
    /// libCacheSim's `oracleGeneral`: 24 bytes a record.
    OracleGeneral,
    /// VMware's `vscsiStats`, version 1 or 2.
    Vscsi,
    /// Columns named by a first line.
    Csv,
    /// `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: Microsoft Research, Cambridge.
    Msr,
    /// The kernel's binary block trace, one CPU's file.
    Blktrace,
    /// What `blkparse` prints.
    Blkparse,
    /// `time_us op block count [contents]`.
    Blocks,
    /// `time_us op file offset length [contents]`.
    Files,
    /// What `nfsdump` prints of NFS versions 2 and 3; Ellard's traces.
    Nfsdump,
    /// `time_ns device sector count write(0)|read(1)`: MQSim.
    Mqsim,
    /// `time id bytes`: objects of a web cache.
    Objects,
    /// One number a line.
    Ids,
    /// Numbers of 32 bits, without anything else.
    #[serde(rename = "u32-le")]
    U32Le,
    /// Keys of 32 bits, the most significant byte first.
    #[serde(rename = "u32-be")]
    U32Be,
}

impl Format {
    /// Each once.
    pub const ALL: [Self; 17] = [
        Self::Auto,
        Self::Tbtr,
        Self::Arc,
        Self::OracleGeneral,
        Self::Vscsi,
        Self::Csv,
        Self::Msr,
        Self::Blktrace,
        Self::Blkparse,
        Self::Blocks,
        Self::Files,
        Self::Nfsdump,
        Self::Mqsim,
        Self::Objects,
        Self::Ids,
        Self::U32Le,
        Self::U32Be,
    ];

    /// The word that names it in jobs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tbtr => "tbtr",
            Self::Arc => "arc",
            Self::OracleGeneral => "oracle-general",
            Self::Vscsi => "vscsi",
            Self::Csv => "csv",
            Self::Msr => "msr",
            Self::Blktrace => "blktrace",
            Self::Blkparse => "blkparse",
            Self::Blocks => "blocks",
            Self::Files => "files",
            Self::Nfsdump => "nfsdump",
            Self::Mqsim => "mqsim",
            Self::Objects => "objects",
            Self::Ids => "ids",
            Self::U32Le => "u32-le",
            Self::U32Be => "u32-be",
        }
    }
}

/// What a record's `first` and `count` count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// Blocks of 4 KiB, all that the request touches.
    #[default]
    Blocks,
    /// The trace's own units: sectors, pages.
    Units,
    /// A request is for one thing, named by its address, whatever its size.
    Ids,
}

/// What to do about a record that is older than the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeOrder {
    /// It ends the reading with an error.
    #[default]
    Error,
    /// It gets the time of the one before it.
    Clamp,
    /// Records are put in order, as far as they are no more than [`SORT_WINDOW`] records away from their places.
    Sort,
}

/// Records that [`TimeOrder::Sort`] holds.
pub const SORT_WINDOW: usize = 1 << 16;
