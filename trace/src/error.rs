//! Why a trace cannot be read.

use std::fmt;
use std::io;

/// Why a trace cannot be read, and where.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {place}: {fault}")]
pub struct TraceError {
    /// The trace's name.
    pub file: String,
    /// Where in the file.
    pub place: Place,
    /// What was found there.
    pub fault: Fault,
}

/// Where it went wrong, in what the file holds once it is decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// No place in particular.
    File,
    /// Lines begin with 1.
    Line(u64),
    /// In bytes, once decompressed.
    Offset(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => out.write_str("file"),
            Self::Line(line) => write!(out, "line {line}"),
            Self::Offset(offset) => write!(out, "byte {offset}"),
        }
    }
}

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum Fault {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the format cannot be told from contents or name; say which it is")]
    UnknownFormat,
    #[error(
        "it is a DataSeries file, which is not read: make text of it with ds2txt --csv (dstotxt), \
         or with ds2ellardnfs if it holds an NFS trace"
    )]
    DataSeries,
    #[error("the file ends in the middle of {0}")]
    Truncated(&'static str),
    #[error("{field} is missing")]
    Missing { field: &'static str },
    #[error("{field} is {found:?}, which is not {permitted}")]
    Malformed {
        field: &'static str,
        found: String,
        permitted: &'static str,
    },
    #[error("{field} is {value}, which is not {permitted}")]
    OutOfRange {
        field: &'static str,
        value: u64,
        permitted: &'static str,
    },
    #[error("time goes back from {before} to {time} us; say whether to clamp or to sort")]
    TimeGoesBack { before: u64, time: u64 },
    #[error("{what} has the wrong checksum")]
    Checksum { what: &'static str },
    #[error("the line is longer than {max} bytes")]
    LineTooLong { max: usize },
    #[error("there are {found} contents for {count} blocks")]
    Contents { found: usize, count: u64 },
}
