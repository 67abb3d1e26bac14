//! The storage that the index asks for: named append-only files. The caller supplies it; tests supply a hostile one.

use core::fmt;

/// Names a run. Assigned in ascending order, never used twice within one state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

impl fmt::Display for RunId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "run {}", self.0)
    }
}

/// The two files of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunPart {
    /// The sorted pages and the footer.
    Entries,
    /// The filter and the fence: read once, when the run is opened.
    Guide,
}

/// One file of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunFile {
    /// Whose file it is.
    pub run: RunId,
    /// Which of the two.
    pub part: RunPart,
}

impl fmt::Display for RunFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            RunPart::Entries => write!(out, "{}, entries", self.run),
            RunPart::Guide => write!(out, "{}, guide", self.run),
        }
    }
}

/// Append-only files, read at random once written. Methods take `&self` so that lookups, one flush and merges may
/// go on at the same time on several threads; one file is only ever written by one of them.
pub trait RunStorage {
    /// What reading or writing a file can end in.
    type Error: core::error::Error + 'static;

    /// Makes an empty file, replacing what an earlier attempt may have left under that name. Safe to repeat.
    fn create(&self, file: RunFile) -> Result<(), Self::Error>;

    /// Appends all of `bytes`. After a failure the length is unknown; the file is created anew or deleted.
    fn append(&self, file: RunFile, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Returns once the file's bytes *and its name* survive a power loss. Safe to repeat.
    fn sync(&self, file: RunFile) -> Result<(), Self::Error>;

    /// Fills `bytes` from `offset_bytes`; reaching the end of the file first is an error.
    fn read(&self, file: RunFile, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// The file's length in bytes; an absent file is an error.
    fn length(&self, file: RunFile) -> Result<u64, Self::Error>;

    /// Deletes both files of a run. Files that are absent already are no error, so a deletion may be repeated.
    fn delete(&self, run: RunId) -> Result<(), Self::Error>;
}
