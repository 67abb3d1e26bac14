//! What the file service asks of its storage and takes more than one question to the core: maps of files, links between
//! them, and which files have a map at all. The daemon and the simulation bring what [`CoreAccess`] says, each in its way,
//! and share the rest.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
#![warn(missing_docs, clippy::unwrap_used)]

use bytes::Bytes;
use std::sync::Arc;
use tombolo_base::{BlockSum, FlushMode, MetadataChange, Span, VolumeId};
use tombolo_core::{Core, Link, LinkRun, LinkStep, MapWalk, PAGE_ENTRIES, Refusal, ResolvedRun, StatusRun, WalkStep};
use tombolo_files::storage::{Entry, MapRun, ReadDone, Storage, StorageError, SyncDone};

/// The core and its local metadata, for a thread that waits for each answer.
pub trait CoreAccess {
    /// Dirty blocks are copied by as many at a time.
    const COPY_BLOCKS_MAX: u64;

    /// [`Storage::get`].
    fn entry(&self, key: &[u8]) -> Result<Option<Arc<[u8]>>, StorageError>;

    /// [`Storage::scan`].
    fn entries(&self, from: &[u8], end: &[u8], limit: usize) -> Result<Vec<Entry>, StorageError>;

    /// [`Storage::counter`].
    fn sum(&self, key: &[u8]) -> Result<i64, StorageError>;

    /// What the core answers at once.
    fn ask_core<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Result<T, StorageError>;

    /// The number of the volume's first page from `page` on that local metadata has. Must not be in a transaction of
    /// local metadata any more when it returns: the next question may need one.
    fn next_stored_page(&self, volume: VolumeId, page: u64) -> Result<Option<u64>, StorageError>;

    /// The first volume from `volume` on of which local metadata has a page.
    fn next_stored_map(&self, volume: VolumeId) -> Result<Option<VolumeId>, StorageError>;

    /// [`tombolo_core::Event::Status`].
    fn status(&self, span: Span) -> Result<Vec<StatusRun>, StorageError>;

    /// [`tombolo_core::Event::Resolve`].
    fn resolve(&self, span: Span) -> Result<Vec<ResolvedRun>, StorageError>;

    /// [`tombolo_core::Event::Read`], for nobody in particular.
    fn read_blocks(&self, span: Span) -> Result<Vec<u8>, StorageError>;

    /// [`Storage::read`].
    fn begin_read(&self, session: u64, span: Span, done: ReadDone);

    /// [`tombolo_core::Event::Write`].
    fn write_blocks(
        &self,
        span: Span,
        data: Bytes,
        sums: Vec<Option<BlockSum>>,
        change: MetadataChange,
    ) -> Result<(), StorageError>;

    /// [`tombolo_core::Event::Commit`].
    fn commit_change(&self, change: MetadataChange, links: Vec<LinkRun>) -> Result<(), StorageError>;

    /// [`Storage::sync`].
    fn begin_sync(&self, mode: FlushMode, done: SyncDone);
}

/// The file service's storage over a core.
#[derive(Clone, Debug)]
pub struct FileStorage<A>(pub A);

impl<A: CoreAccess + Send + Sync + 'static> Storage for FileStorage<A> {
    fn get(&self, key: &[u8]) -> Result<Option<Arc<[u8]>>, StorageError> {
        self.0.entry(key)
    }

    fn scan(&self, from: &[u8], end: &[u8], limit: usize) -> Result<Vec<Entry>, StorageError> {
        self.0.entries(from, end, limit)
    }

    fn counter(&self, key: &[u8]) -> Result<i64, StorageError> {
        self.0.sum(key)
    }

    fn commit(&self, change: MetadataChange) -> Result<(), StorageError> {
        self.0.commit_change(change, Vec::new())
    }

    fn write(
        &self,
        span: Span,
        data: Bytes,
        sums: Vec<Option<BlockSum>>,
        change: MetadataChange,
    ) -> Result<(), StorageError> {
        self.0.write_blocks(span, data, sums, change)
    }

    fn read(&self, session: u64, span: Span, done: ReadDone) {
        self.0.begin_read(session, span, done);
    }

    fn map(&self, span: Span) -> Result<Vec<MapRun>, StorageError> {
        map(&self.0, span)
    }

    fn link(&self, from: Span, to: Span, change: MetadataChange) -> Result<(), StorageError> {
        link(&self.0, from, to, change)
    }

    fn next_mapped(&self, from: u64) -> Result<Option<u64>, StorageError> {
        next_mapped(&self.0, from)
    }

    fn sync(&self, mode: FlushMode, done: SyncDone) {
        self.0.begin_sync(mode, done);
    }
}

/// [`Storage::map`].
fn map(access: &impl CoreAccess, span: Span) -> Result<Vec<MapRun>, StorageError> {
    let mut runs: Vec<MapRun> = Vec::new();
    let mut push = |count, mapped| match runs.last_mut() {
        _ if count == 0 => {}
        Some(last) if last.mapped == mapped => last.count += count,
        _ => runs.push(MapRun { count, mapped }),
    };
    let mut walk = MapWalk::new(span);
    loop {
        let step;
        (walk, step) = access.ask_core(move |core| {
            let step = walk.step(core);
            (walk, step)
        })?;
        match step {
            WalkStep::StoredPage { volume, page } => {
                let skipped = walk.on_stored_page(access.next_stored_page(volume, page)?);
                push(skipped, false);
            }
            WalkStep::Ask(span) => {
                let found = access.status(span)?;
                walk.advance(found.iter().map(|run| run.count).sum());
                found.iter().for_each(|run| push(run.count, run.mapped));
            }
            WalkStep::Done => return Ok(runs),
        }
    }
}

/// [`Storage::link`].
fn link<A: CoreAccess>(access: &A, from: Span, to: Span, change: MetadataChange) -> Result<(), StorageError> {
    let mut link = Link::new(from, to, change, A::COPY_BLOCKS_MAX);
    loop {
        let step;
        (link, step) = access.ask_core(move |core| {
            let step = link.step(core);
            (link, step)
        })?;
        match step {
            LinkStep::StoredPage { volume, page } => link.on_stored_page(access.next_stored_page(volume, page)?),
            LinkStep::Resolve(span) => link.on_resolved(&access.resolve(span)?),
            LinkStep::Copy { from, to } => {
                copy(access, from, to)?;
                link.on_copied();
            }
            LinkStep::Commit { change, links } => return access.commit_change(change, links),
        }
    }
}

fn copy(access: &impl CoreAccess, from: Span, to: Span) -> Result<(), StorageError> {
    let data = access.read_blocks(from)?;
    let sums = BlockSum::of_blocks(&data);
    access.write_blocks(to, data.into(), sums, MetadataChange::default())
}

/// [`Storage::next_mapped`].
fn next_mapped(access: &impl CoreAccess, from: u64) -> Result<Option<u64>, StorageError> {
    let mut from = from;
    loop {
        let volume = VolumeId::of_inode(from);
        let stored = access.next_stored_map(volume)?;
        let changed = access.ask_core(move |core| core.next_changed_map(volume))?;
        let Some(inode) = [stored, changed].into_iter().flatten().min().and_then(VolumeId::inode) else {
            return Ok(None);
        };
        // Local metadata may hold pages that newer holes cover.
        if has_mapped_blocks(access, inode)? {
            return Ok(Some(inode));
        }
        from = inode + 1;
    }
}

fn has_mapped_blocks(access: &impl CoreAccess, inode: u64) -> Result<bool, StorageError> {
    let volume = VolumeId::of_inode(inode);
    if access.ask_core(move |core| core.has_changed_map(volume))? {
        return Ok(true);
    }
    let mut page = 0;
    while let Some(number) = access.next_stored_page(volume, page)? {
        let span = Span::of_file(inode, number * PAGE_ENTRIES, PAGE_ENTRIES);
        if map(access, span)?.iter().any(|run| run.mapped) {
            return Ok(true);
        }
        page = number + 1;
    }
    Ok(false)
}

/// What a refusal of the core is to the file service.
pub fn storage_error(refusal: &Refusal) -> StorageError {
    let reason = refusal.to_string();
    match refusal {
        Refusal::Busy | Refusal::CloudUnavailable(_) => StorageError::Busy(reason),
        Refusal::Lost { .. } => StorageError::Lost(reason),
        Refusal::OutOfRange { .. }
        | Refusal::UnknownVolume(_)
        | Refusal::VolumeExists(_)
        | Refusal::TooLarge(_)
        | Refusal::NoRecoveryPoints
        | Refusal::Disk(_)
        | Refusal::Metadata(_)
        | Refusal::Failed(_) => StorageError::Failed(reason),
    }
}
