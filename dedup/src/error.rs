//! What can go wrong, and what the caller should do about it.

use crate::{ConfigFaults, RunFile, RunId};
use tombolo_base::DecodeError;

/// An error of the index. None of them costs data: an entry that cannot be read costs one chance to deduplicate.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum IndexError<E> {
    #[error("{file}: cannot {operation}; repeat later, or drop the run")]
    Storage {
        file: RunFile,
        operation: &'static str,
        #[source]
        source: E,
    },
    /// Treat the fingerprint as unknown (the block is stored once more) and drop the run when convenient.
    #[error("{run}, page {page} is corrupt: {fault}; treat the fingerprint as unknown, or drop the run")]
    CorruptPage { run: RunId, page: u64, fault: PageFault },
    #[error("{run} is corrupt: {fault}; drop the run")]
    CorruptRun { run: RunId, fault: RunFault },
    #[error(transparent)]
    Insert(#[from] InsertError),
    #[error("{run}: an earlier step of this merge failed; abandon it and delete its files")]
    MergeFailed { run: RunId },
    #[error(transparent)]
    Config(ConfigFaults),
}

/// Why an entry was not taken. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum InsertError {
    #[error("the memtable holds its {entries_max} entries; flush it, then repeat")]
    MemtableFull { entries_max: usize },
    #[error("PVBN {0:#x} is reserved: it marks a removed entry")]
    ReservedPvbn(u64),
}

/// The index no longer expects this work: an input was dropped, or it was adopted or abandoned before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{run} is not expected any more; delete its files")]
pub struct StaleRun {
    /// Not needed by anybody any more.
    pub run: RunId,
}

/// Why a page is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum PageFault {
    #[error("checksum is {found:#018x}, the bytes sum to {computed:#018x}")]
    Checksum { found: u64, computed: u64 },
    #[error("it says that it is page {found}")]
    Misplaced { found: u32 },
    #[error("it holds {found} entries instead of {expected}")]
    EntryCount { found: u16, expected: u16 },
    #[error("its keys do not follow those of the page before")]
    Order,
}

/// Why a whole run is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum RunFault {
    #[error("{file} has {found} bytes instead of {expected}")]
    Length { file: RunFile, found: u64, expected: u64 },
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl<E> IndexError<E> {
    pub(crate) fn storage(file: RunFile, operation: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Storage {
            file,
            operation,
            source,
        }
    }
}
