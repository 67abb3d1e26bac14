//! Storage as the file service's threads see it: every call goes to the world, which answers when it will.

use super::threads::call;
use bytes::Bytes;
use std::any::Any;
use std::sync::Arc;
use tombolo_base::{BlockSum, FlushMode, MetadataChange, Span, VolumeId};
use tombolo_core::{Core, LinkRun, ResolvedRun, StatusRun};
use tombolo_file_storage::CoreAccess;
use tombolo_files::storage::{Entry, NO_SESSION, ReadDone, StorageError, SyncDone};

type Question = Box<dyn FnOnce(&Core) -> Box<dyn Any + Send> + Send>;

/// What a thread asks of the world.
pub(super) enum Call {
    Get(Vec<u8>),
    Scan {
        from: Vec<u8>,
        end: Vec<u8>,
        limit: usize,
    },
    Counter(Vec<u8>),
    Core(Question),
    /// The first page of the volume from `page` on that local metadata has.
    StoredPage {
        volume: VolumeId,
        page: u64,
    },
    /// The first volume from this one on of which local metadata has a page.
    StoredMap(VolumeId),
    Commit {
        change: MetadataChange,
        links: Vec<LinkRun>,
    },
    Write {
        span: Span,
        data: Bytes,
        sums: Vec<Option<BlockSum>>,
        change: MetadataChange,
    },
    /// Of the service's own for the edge of a write, or of a client's.
    Read {
        span: Span,
        is_edge: bool,
    },
    Status(Span),
    Resolve(Span),
    Sync(FlushMode),
}

impl Call {
    pub fn is_of_metadata(&self) -> bool {
        matches!(
            self,
            Self::Get(_) | Self::Scan { .. } | Self::StoredPage { .. } | Self::StoredMap(_)
        )
    }
}

pub(super) enum Reply {
    Entry(Option<Arc<[u8]>>),
    Entries(Vec<Entry>),
    Counter(i64),
    Core(Box<dyn Any + Send>),
    Page(Option<u64>),
    Map(Option<VolumeId>),
    Done,
    Bytes(Vec<u8>),
    Status(Vec<StatusRun>),
    Resolved(Vec<ResolvedRun>),
}

pub(super) type Replied = Result<Reply, StorageError>;

/// The world, called from its threads.
pub(super) struct SimulatedAccess;

pub(super) type SimulatedStorage = tombolo_file_storage::FileStorage<SimulatedAccess>;

/// The part of a reply that a call is answered with.
macro_rules! reply {
    ($call:expr, $part:ident) => {
        match call($call)? {
            Reply::$part(part) => part,
            _ => unreachable!("another call is answered"),
        }
    };
}

impl CoreAccess for SimulatedAccess {
    const COPY_BLOCKS_MAX: u64 = 8;

    fn entry(&self, key: &[u8]) -> Result<Option<Arc<[u8]>>, StorageError> {
        Ok(reply!(Call::Get(key.to_vec()), Entry))
    }

    fn entries(&self, from: &[u8], end: &[u8], limit: usize) -> Result<Vec<Entry>, StorageError> {
        let (from, end) = (from.to_vec(), end.to_vec());
        Ok(reply!(Call::Scan { from, end, limit }, Entries))
    }

    fn sum(&self, key: &[u8]) -> Result<i64, StorageError> {
        Ok(reply!(Call::Counter(key.to_vec()), Counter))
    }

    fn ask_core<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Result<T, StorageError> {
        let answer = reply!(Call::Core(Box::new(|core| Box::new(question(core)))), Core);
        Ok(*answer.downcast().expect("the question's answer"))
    }

    fn next_stored_page(&self, volume: VolumeId, page: u64) -> Result<Option<u64>, StorageError> {
        Ok(reply!(Call::StoredPage { volume, page }, Page))
    }

    fn next_stored_map(&self, volume: VolumeId) -> Result<Option<VolumeId>, StorageError> {
        Ok(reply!(Call::StoredMap(volume), Map))
    }

    fn status(&self, span: Span) -> Result<Vec<StatusRun>, StorageError> {
        Ok(reply!(Call::Status(span), Status))
    }

    fn resolve(&self, span: Span) -> Result<Vec<ResolvedRun>, StorageError> {
        Ok(reply!(Call::Resolve(span), Resolved))
    }

    fn read_blocks(&self, span: Span) -> Result<Vec<u8>, StorageError> {
        read(span, false)
    }

    fn begin_read(&self, session: u64, span: Span, done: ReadDone) {
        done(read(span, session == NO_SESSION));
    }

    fn write_blocks(
        &self,
        span: Span,
        data: Bytes,
        sums: Vec<Option<BlockSum>>,
        change: MetadataChange,
    ) -> Result<(), StorageError> {
        call(Call::Write {
            span,
            data,
            sums,
            change,
        })
        .map(drop)
    }

    fn commit_change(&self, change: MetadataChange, links: Vec<LinkRun>) -> Result<(), StorageError> {
        call(Call::Commit { change, links }).map(drop)
    }

    fn begin_sync(&self, mode: FlushMode, done: SyncDone) {
        done(call(Call::Sync(mode)).map(drop));
    }
}

fn read(span: Span, is_edge: bool) -> Result<Vec<u8>, StorageError> {
    Ok(reply!(Call::Read { span, is_edge }, Bytes))
}
