//! A state directory of which a part is lost: what exactly is gone, and, if that is accepted, a state directory that is whole
//! again without it. The start that follows is an ordinary one.
//!
//! | lost           | what becomes of it                                                                              |
//! |----------------|-------------------------------------------------------------------------------------------------|
//! | cache file     | an empty one; blocks that were dirty read as errors until they are overwritten                  |
//! | its newest     | of an older copy the slots that hold what their sums say are kept; otherwise as above            |
//! | local metadata | made again of what the store holds; the journal, kept since then, is replayed over it           |
//! | journal        | local metadata or the store, whichever is newer; what came after it is lost, and numbers skipped |
//! | copy of root   | the store's root, if this state directory has put it                                             |
//!
//! What is left is recovered in memory first, so that the loss is known before anything is changed. Then each step leaves a
//! directory that is refused as before, or one that is whole: who is interrupted begins anew.
//!
//! It owns the order of these steps. Which state to begin with, and what is lost by it, is the core's to say
//! ([`tombolo_core::recovery::Remains`]).

use super::cache_file::{self, CacheFile};
use super::clock;
use super::durable_file;
use super::first_start::Paths;
use super::from_store::{FromStore, make_index, merge, new_metadata, publish_metadata, skipped_numbers};
use super::generation::Generation;
use super::journal_files::JournalFiles;
use super::loss_report::{AdoptedRoot, LossReport, LostBytes, LostChanges};
use super::metadata::{Metadata, MetadataOpenError};
use super::metadata_file::{DATA_FILE, MetadataFileError};
use super::open::{Disk, OpenError, Options};
use super::policies;
use super::publishing::{KeptRoot, RootError, is_older, writer_name};
use super::recover::{RecoverError, RecoverProgress, open_store, runtime, work_directory};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::runtime::Runtime;
use tombolo_base::{BLOCK_BYTES, Instant, Pvbn, VolumeId, WallTime};
use tombolo_cloud_driver::ObjectStore;
use tombolo_core::cache_header::{CacheHeader, JournalMark, Mark};
use tombolo_core::local_metadata::{Entry, MetadataRead, Table};
use tombolo_core::publisher::{KnownRoot, NotTheWriter, Publisher, RootWriter};
use tombolo_core::record::SegmentHeader;
use tombolo_core::recovery::{
    Base, Bases, LocalBase, LocalDisk as _, LostBlocks, Parts, PublishedPoint, RecoveryError, Remains, WhatIsLeft,
    go_on_behind, load_superblock, lost_blocks, recover, settle, skip_pvbns,
};
use tombolo_core::root::Root;
use tombolo_core::{Core, EntryScan, MetadataError, Policies, Superblock};

/// How long a refusal waits for the store to say that it is there.
const EXAMINE_PATIENCE: Duration = Duration::from_secs(4);

/// Why a start on what is left is not possible either.
#[derive(Debug, thiserror::Error)]
pub enum LocalLossError {
    #[error(
        "with it goes the last that said whose state directory this is; move it away and run `tombolo recover`, which brings \
         back what the store has"
    )]
    Unknown,
    #[error("what is left goes on from what the store holds: {0}")]
    Store(#[from] RecoverError),
    #[error(
        "what is left goes on from what the store holds, and the store did not answer ({0}), so it is not known what is lost; \
         start again when it answers"
    )]
    NoAnswer(String),
    #[error(
        "the store's writer is {0}, and not this state directory, so nothing here goes on from what it holds; move the state \
         directory away and run `tombolo recover`"
    )]
    OtherWriter(String),
    #[error("{path}: {error}")]
    Disk { path: std::path::PathBuf, error: io::Error },
    #[error("recovery of what is left: {0}")]
    Recovery(RecoveryError<MetadataError>),
    #[error("local metadata: {0}")]
    Metadata(String),
}

/// Whether a start was refused because a part of the state directory is lost.
pub fn is_one(error: &OpenError) -> bool {
    match error {
        OpenError::MetadataLost(_) | OpenError::JournalLost(_) | OpenError::CacheCut { .. } => true,
        OpenError::MetadataOpen(error) => metadata_is_damaged(error),
        OpenError::Root(error) => matches!(error, RootError::Kept { .. } | RootError::KeptMissing { .. }),
        OpenError::Recovery { error, .. } => matches!(
            error,
            RecoveryError::Metadata(_)
                | RecoveryError::SuperblockMissing
                | RecoveryError::JournalCorrupt { .. }
                | RecoveryError::JournalMissing { .. }
                | RecoveryError::JournalCut { .. }
                | RecoveryError::CacheMissing { .. }
                | RecoveryError::CacheOlder { .. }
                | RecoveryError::CacheHeader(_)
        ),
        _ => false,
    }
}

/// Not what the disk refuses, perhaps for the moment.
fn metadata_is_damaged(error: &MetadataOpenError) -> bool {
    match error {
        MetadataOpenError::File(error) => !matches!(error, MetadataFileError::Disk { .. }),
        MetadataOpenError::Lmdb { error, .. } => matches!(
            error,
            heed::Error::Mdb(
                heed::MdbError::Corrupted
                    | heed::MdbError::Invalid
                    | heed::MdbError::PageNotFound
                    | heed::MdbError::VersionMismatch
            )
        ),
        MetadataOpenError::Table { .. } | MetadataOpenError::Backing { .. } => true,
    }
}

/// Whether what is lost is local metadata.
fn is_of_metadata(error: &OpenError) -> bool {
    match error {
        OpenError::MetadataLost(_) | OpenError::MetadataOpen(_) => true,
        OpenError::Recovery { error, .. } => {
            matches!(error, RecoveryError::Metadata(_) | RecoveryError::SuperblockMissing)
        }
        _ => false,
    }
}

/// What the start was refused for, and what else is known to be lost.
#[derive(Clone, Copy)]
struct Lost {
    metadata: bool,
    root: bool,
}

impl Lost {
    fn of(refused: &OpenError) -> Self {
        Self {
            metadata: is_of_metadata(refused),
            root: matches!(refused, OpenError::Root(_)),
        }
    }

    fn metadata_too(self) -> Self {
        Self { metadata: true, ..self }
    }
}

/// What would be lost by a start on what is left. Nothing is changed.
pub fn examine(options: &Options, refused: &OpenError) -> Result<LossReport, LocalLossError> {
    let lost = Lost::of(refused);
    let remaining = Remaining::look(options, lost)?;
    let found = match &remaining.left.metadata {
        Some(metadata) if remaining.remains.base == Base::Local => remaining.recover(metadata),
        _ => remaining.recover_without_metadata(),
    };
    match found {
        Ok(found) => {
            found.report.write_if_long();
            Ok(found.report)
        }
        // Damage that shows only when it is read.
        Err(LocalLossError::Recovery(RecoveryError::Metadata(_))) if remaining.left.metadata.is_some() => {
            let remaining = Remaining::look(options, lost.metadata_too())?;
            let report = remaining.recover_without_metadata()?.report;
            report.write_if_long();
            Ok(report)
        }
        Err(error) => Err(error),
    }
}

/// Makes the state directory whole again, without what is lost.
pub fn accept(options: &Options, refused: &OpenError) -> Result<LossReport, LocalLossError> {
    let lost = Lost::of(refused);
    let remaining = Remaining::look(options, lost)?;
    match remaining.mend() {
        Err(LocalLossError::Recovery(RecoveryError::Metadata(_))) if remaining.left.metadata.is_some() => {
            drop(remaining);
            Remaining::look(options, lost.metadata_too())?.mend()
        }
        mended => mended,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheState {
    Whole,
    /// It notes less than was flushed: an older copy, or a power loss has taken the note.
    Behind,
    Cut,
    HeaderUnreadable,
    Missing,
}

/// What the store holds of this state directory.
struct InStore {
    root: Root,
    kept: KeptRoot,
    /// The local copy was lost, and has been made again in memory.
    is_adopted: bool,
}

/// The parts that are there.
struct Left<'o> {
    options: &'o Options,
    runtime: Runtime,
    paths: Paths,
    identity: u64,
    metadata: Option<Metadata>,
    cache: Option<CacheFile>,
    cache_state: CacheState,
    mark: Option<Mark>,
    /// The file that has the marks too, as it is.
    marks_beside: Vec<u8>,
    journal: Option<JournalFiles>,
    /// What is known of the store without asking it.
    kept: Option<KeptRoot>,
}

/// The parts that are there, and how far they lead.
struct Remaining<'o> {
    left: Left<'o>,
    in_store: Option<InStore>,
    /// What the store is known to hold.
    published: Option<PublishedPoint>,
    remains: Remains,
}

struct Recovered {
    core: Core,
    report: LossReport,
}

fn at(path: &Path) -> impl Fn(io::Error) -> LocalLossError + use<> {
    let path = path.to_owned();
    move |error| LocalLossError::Disk {
        path: path.clone(),
        error,
    }
}

fn metadata_failed(error: &dyn std::fmt::Display) -> LocalLossError {
    LocalLossError::Metadata(error.to_string())
}

impl Left<'_> {
    fn disk(&self) -> Disk<'_> {
        Disk {
            cache: self.cache.as_ref(),
            journal: self.journal.as_ref(),
            marks_beside: &self.marks_beside,
        }
    }

    fn find(&self, bases: &Bases) -> Result<Option<Remains>, LocalLossError> {
        let found = Remains::find(&self.disk(), self.identity, bases, self.mark);
        found.map_err(|error| LocalLossError::Recovery(RecoveryError::Disk(error)))
    }

    /// What the cache file notes, if it is known to be the newest that it has noted.
    fn newest_mark(&self) -> Option<Mark> {
        self.mark.filter(|_| self.cache_state != CacheState::Behind)
    }

    /// `None`: it holds nothing yet.
    fn ask_store(&self, writer: RootWriter) -> Result<Option<InStore>, LocalLossError> {
        let state = &self.options.state_directory;
        let found = self.with_store(&|from_store| match from_store.find_root() {
            Err(RecoverError::NoRoot) => Ok(None),
            found => found.map(Some),
        })?;
        let Some((found, root)) = found else {
            return Ok(None);
        };
        let other = || LocalLossError::OtherWriter(root.writer.clone());
        if root.identity != self.identity {
            return Err(other());
        }
        let mut kept = match KeptRoot::read(state, writer.clone()) {
            Err(RootError::Kept { path, .. }) => KeptRoot {
                path,
                publisher: Publisher::new(writer.clone(), None, Vec::new()),
            },
            read => read.map_err(RecoverError::Root)?,
        };
        let is_adopted = kept.publisher.current().is_none() && kept.publisher.attempts().is_empty();
        if is_adopted {
            let known = KnownRoot {
                root: root.clone(),
                salt: found.salt,
            };
            kept.publisher = Publisher::new(writer, Some(known), Vec::new());
        }
        match kept.publisher.found(Some(found.salt)) {
            Ok(()) => Ok(Some(InStore { root, kept, is_adopted })),
            Err(NotTheWriter::Other | NotTheWriter::RootMissing) => match kept.publisher.current() {
                Some(known) if is_older(&root, &known.root) => {
                    let older = RootError::Older(root.sequence, known.root.sequence);
                    Err(RecoverError::Root(older).into())
                }
                _ => Err(other()),
            },
        }
    }

    fn with_store<T>(&self, action: &dyn Fn(&FromStore<'_>) -> Result<T, RecoverError>) -> Result<T, LocalLossError> {
        let runtime = &self.runtime;
        // Whoever accepts the loss needs the store, and waits for it. A refusal is to come soon.
        if !self.options.accept_loss {
            answers(runtime, &self.options.store)?;
        }
        let (store, keys) = open_store(runtime, self.options)?;
        let from_store = FromStore {
            runtime,
            store,
            keys: &keys,
            work: work_directory(&self.options.state_directory),
            paths: &self.paths,
            options: self.options,
            tell: &tell,
        };
        Ok(action(&from_store)?)
    }
}

impl<'o> Remaining<'o> {
    fn look(options: &'o Options, lost: Lost) -> Result<Self, LocalLossError> {
        let state = &options.state_directory;
        let paths = Paths::new(state);
        let cache = CacheFile::open(&paths.cache).map_err(at(&paths.cache))?;
        let header = cache
            .as_ref()
            .and_then(|cache| CacheHeader::decode(cache.header()).ok());
        let cache_state = match (&cache, &header) {
            (None, _) => CacheState::Missing,
            (Some(_), None) => CacheState::HeaderUnreadable,
            (Some(cache), Some(_)) if cache.cut().is_some() => CacheState::Cut,
            (Some(_), Some(_)) => CacheState::Whole,
        };
        let mark = header.map(|header| header.mark);
        let marks_beside = cache_file::marks_beside(&paths.flushed);
        let journal = match paths.journal.is_dir() {
            true => {
                let files = JournalFiles::open(paths.journal.clone(), options.core.segment_bytes);
                Some(files.map_err(at(&paths.journal))?)
            }
            false => None,
        };
        let noted = mark.map(|mark| mark.metadata_bytes);
        let opened = (!lost.metadata).then(|| Metadata::open(&paths.metadata, options.metadata_map_bytes, noted));
        let metadata = match opened {
            Some(Err(error)) if !metadata_is_damaged(&error) => return Err(metadata_failed(&error)),
            opened => opened.and_then(Result::ok),
        };
        let superblock = metadata.as_ref().and_then(superblock_of);
        let metadata = metadata.filter(|_| superblock.is_some());
        let identity = superblock.as_ref().map(|superblock| superblock.journal_identity);
        let identity = identity.or(header.map(|header| header.identity));
        let identity = identity
            .or_else(|| journal.as_ref().and_then(identity_of_journal))
            .ok_or(LocalLossError::Unknown)?;
        if let Some(found) = header.map(|header| header.identity).filter(|found| *found != identity) {
            let expected = identity;
            return Err(LocalLossError::Recovery(RecoveryError::CacheForeign {
                found,
                expected,
            }));
        }
        let slot_count = superblock.as_ref().map(|superblock| superblock.slot_count);
        let slot_count = slot_count.or(header.map(|header| header.slot_count));
        let configured = options.core.slot_count;
        if let Some(found) = slot_count.filter(|found| *found != configured) {
            return Err(LocalLossError::Recovery(RecoveryError::SlotCount { found, configured }));
        }
        let writer = RootWriter {
            identity,
            name: writer_name(state),
            lease_ms: options.writer.lease_ms,
            roots_kept: options.writer.roots_kept,
        };
        let left = Left {
            options,
            runtime: runtime()?,
            paths,
            identity,
            metadata,
            cache,
            cache_state,
            mark,
            marks_beside,
            journal,
            kept: KeptRoot::read(state, writer.clone()).ok(),
        };
        if let Some(metadata) = left.metadata.as_ref().filter(|metadata| metadata.behind().is_some()) {
            left.with_store(&|from_store| {
                metadata.attach(from_store.nodes());
                Ok(())
            })?;
        }
        let local = superblock.as_ref().map(LocalBase::from);
        let published = left.kept.as_ref().and_then(|kept| kept.publisher.published());
        let bucket = published.map(|point| point.lsn);
        if let Some(remains) = left.find(&Bases { local, bucket })?
            && remains.base == Base::Local
            && !remains.journal_is_damaged
            && !lost.root
        {
            return Ok(Self::new(left, None, published, remains));
        }
        let in_store = left.ask_store(writer)?;
        if lost.root && in_store.is_none() {
            return Err(LocalLossError::Store(RecoverError::NoRoot));
        }
        let published = in_store
            .as_ref()
            .and_then(|in_store| in_store.kept.publisher.published());
        let bucket = published.map(|point| point.lsn);
        let remains = left.find(&Bases { local, bucket })?;
        let remains = remains.ok_or(LocalLossError::Store(RecoverError::NoRoot))?;
        Ok(Self::new(left, in_store, published, remains))
    }

    fn new(mut left: Left<'o>, in_store: Option<InStore>, published: Option<PublishedPoint>, remains: Remains) -> Self {
        let noted = left.mark.map(|mark| mark.journal.lsn);
        if left.cache_state == CacheState::Whole && noted < Some(remains.durable) {
            left.cache_state = CacheState::Behind;
        }
        Self {
            left,
            in_store,
            published,
            remains,
        }
    }

    fn view<'d>(&self, disk: &'d Disk<'d>) -> WhatIsLeft<'d, Disk<'d>> {
        WhatIsLeft::new(
            disk,
            self.remains,
            self.left.identity,
            self.left.options.core.slot_count,
            self.left.newest_mark(),
        )
    }

    fn parts(&self) -> Parts {
        let options = self.left.options;
        Parts {
            config: options.core.clone(),
            wall_micros: clock::wall_micros(),
            policies: Policies {
                replacement: policies::replacement(options.policies.replacement, options.core.slot_count),
                prefetcher: Box::new(tombolo_prefetch::NoPrefetch),
                addressing: options.policies.addressing,
                economy: options.policies.economy,
            },
            published: self.published,
        }
    }

    fn recover(&self, metadata: &Metadata) -> Result<Recovered, LocalLossError> {
        let core = {
            let reading = metadata.read().map_err(|error| metadata_failed(&error))?;
            self.recover_onto(&reading)?
        };
        let report = self.report(&core, |from, end, limit| {
            metadata.entries(from, end, limit).unwrap_or_default()
        });
        Ok(Recovered { core, report })
    }

    /// What is dirty follows from the journal alone: the store has everything before.
    fn recover_without_metadata(&self) -> Result<Recovered, LocalLossError> {
        let superblock = Superblock {
            lsn: self.remains.lsn,
            segment: self.remains.segment,
            ..Superblock::first(self.left.identity, self.left.options.core.slot_count)
        };
        let core = self.recover_onto(&Nothing(superblock.encode()))?;
        let report = self.report(&core, |_, _, _| Vec::new());
        Ok(Recovered { core, report })
    }

    fn recover_onto<M: MetadataRead<Error = MetadataError>>(&self, metadata: &M) -> Result<Core, LocalLossError> {
        let disk = self.left.disk();
        // So late that all that is dirty was written after the beginning.
        let now = Instant(clock::wall_micros());
        let recovered = recover(now, self.parts(), metadata, &self.view(&disk));
        let (core, _) = recovered.map_err(LocalLossError::Recovery)?;
        Ok(core)
    }

    fn report(
        &self,
        core: &Core,
        stored: impl Fn(&[u8], &[u8], usize) -> Vec<tombolo_files::storage::Entry>,
    ) -> LossReport {
        let lost = match self.left.cache_state {
            // Without a loss of the journal a slot that is whole has what the journal says, or is found out later.
            CacheState::Whole if !self.remains.journal_is_damaged => Vec::new(),
            _ => lost_blocks(core, &self.left.disk()),
        };
        LossReport {
            blocks: named(core, lost, stored),
            changes: self.lost_changes(),
            root_adopted: self
                .in_store
                .as_ref()
                .filter(|in_store| in_store.is_adopted)
                .map(root_of),
            metadata_made_again: (self.remains.base == Base::Bucket).then(|| self.root_time()).flatten(),
            list: LossReport::path(&self.left.options.state_directory),
        }
    }

    fn root_time(&self) -> Option<WallTime> {
        self.in_store.as_ref().map(|in_store| in_store.root.time)
    }

    fn lost_changes(&self) -> Option<LostChanges> {
        let remains = &self.remains;
        if !remains.journal_is_damaged {
            return None;
        }
        let checkpointed = || modified(&self.left.paths.metadata.join(DATA_FILE));
        let after = remains.reached_time.or_else(|| match remains.base {
            Base::Bucket => self.root_time(),
            Base::Local => checkpointed(),
        });
        // Each sync leaves a mark in the cache file.
        let until = modified(&self.left.paths.cache).max(remains.newest_time).max(after);
        Some(LostChanges {
            from: remains.reached,
            to: remains.durable.max(remains.reached),
            flushed_is_here: self.left.newest_mark().is_some() && remains.reached >= remains.durable,
            mixed_to: remains.mixed_to,
            after,
            until,
        })
    }

    fn mend(&self) -> Result<LossReport, LocalLossError> {
        let work = work_directory(&self.left.options.state_directory);
        let rebuilt = match (self.remains.base, &self.in_store) {
            (Base::Bucket, Some(in_store)) => {
                let (root, segment) = (&in_store.root, self.remains.segment);
                self.left.with_store(&|from_store| from_store.make(root, segment))?;
                let opened = Metadata::open(&new_metadata(&work), self.left.options.metadata_map_bytes, Some(0));
                Some(opened.map_err(|error| metadata_failed(&error))?)
            }
            _ => None,
        };
        let metadata = rebuilt.as_ref().or(self.left.metadata.as_ref());
        let metadata = metadata.ok_or(LocalLossError::Unknown)?;
        let Recovered { core, report } = self.recover(metadata)?;
        report.tell();
        if report.is_loss() {
            let runtime_directory = &self.left.options.runtime_directory;
            Generation::end(runtime_directory, self.left.identity).map_err(at(runtime_directory))?;
        }
        if let Some(cache) = self.left.cache.as_ref().filter(|_| rebuilt.is_some()) {
            cache.forget_metadata().map_err(at(&self.left.paths.cache))?;
        }
        if self.left.newest_mark().is_none() {
            let before = superblock_of(metadata).ok_or(LocalLossError::Unknown)?;
            merge(metadata, skip_pvbns(before, &core))?;
        }
        if self.remains.journal_is_damaged {
            self.settle(core, metadata)?;
        }
        let end = superblock_of(metadata).ok_or(LocalLossError::Unknown)?;
        if let Some(rebuilt) = rebuilt {
            rebuilt.close();
            publish_metadata(&work, &self.left.paths)?;
        }
        if let Some(in_store) = self.in_store.as_ref().filter(|in_store| in_store.is_adopted) {
            in_store.kept.keep().map_err(RecoverError::Root)?;
        }
        self.mend_cache(&end)?;
        if self.remains.journal_is_damaged {
            self.remove_journal()?;
        }
        if work.exists() {
            fs::remove_dir_all(&work).map_err(at(&work))?;
        }
        Ok(report)
    }

    /// Brings what was recovered into local metadata, which then goes on behind everything that the lost part of the journal
    /// may have used.
    fn settle(&self, core: Core, metadata: &Metadata) -> Result<(), LocalLossError> {
        merge(metadata, settle(core))?;
        let options = self.left.options;
        make_index(metadata, &self.left.paths, options, &tell)?;
        let settled = superblock_of(metadata).ok_or(LocalLossError::Unknown)?;
        let noted = self.left.mark.unwrap_or_default().next_pvbn;
        let asked = self.in_store.as_ref().map(|in_store| &in_store.kept);
        let kept = asked.into_iter().chain(&self.left.kept).map(|kept| &kept.publisher);
        let roots = kept.flat_map(|publisher| publisher.current().into_iter().chain(publisher.attempts()));
        let roots: Vec<&Root> = roots.map(|known| &known.root).collect();
        let next_pvbn = roots.iter().map(|root| root.next_pvbn).fold(noted, u64::max);
        let next_volume = roots.iter().map(|root| root.next_volume).fold(0, u64::max);
        let key = tombolo_files::next_numbers_key();
        let numbers = skipped_numbers(metadata)?;
        let entry = numbers.as_ref().map(|value| (&key[..], &value[..]));
        let highest = (Pvbn(next_pvbn), next_volume);
        merge(metadata, go_on_behind(settled, &self.remains, highest, entry))?;
        Ok(())
    }

    /// Its note must not lie before the superblock, or it would be taken for an older copy.
    fn mend_cache(&self, end: &Superblock) -> Result<(), LocalLossError> {
        let path = &self.left.paths.cache;
        let mut header = self.view(&self.left.disk()).cache_file_header();
        if header.mark.journal.lsn < end.lsn {
            header.mark.journal = JournalMark {
                segment: end.segment,
                lsn: end.lsn,
            };
        }
        match self.left.cache_state {
            CacheState::Whole if !self.remains.journal_is_damaged => Ok(()),
            CacheState::Missing => cache_file::make(path, &header).and_then(|()| durable_file::publish(path)),
            CacheState::Whole | CacheState::Behind | CacheState::Cut | CacheState::HeaderUnreadable => {
                cache_file::mend(path, &header)
            }
        }
        .map_err(at(path))
    }

    fn remove_journal(&self) -> Result<(), LocalLossError> {
        let path = &self.left.paths.journal;
        let removed = durable_file::make_directory(path).and_then(|()| durable_file::sync_directory_of(path));
        removed.map_err(at(path))?;
        if let Some(journal) = &self.left.journal {
            let removed = journal.remove_below(u64::MAX);
            removed.map_err(at(path))?;
        }
        durable_file::sync_directory(path).map_err(at(path))
    }
}

/// Once it has answered, what is needed of it is asked for with all patience.
fn answers(runtime: &Runtime, store: &Arc<dyn ObjectStore>) -> Result<(), LocalLossError> {
    match runtime.block_on(async { tokio::time::timeout(EXAMINE_PATIENCE, store.check()).await }) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) if error.kind().is_retryable() => Err(LocalLossError::NoAnswer(error.to_string())),
        Ok(Err(error)) => Err(RecoverError::Store(error).into()),
        Err(_) => Err(LocalLossError::NoAnswer(format!(
            "within {} s",
            EXAMINE_PATIENCE.as_secs()
        ))),
    }
}

fn root_of(in_store: &InStore) -> AdoptedRoot {
    AdoptedRoot {
        sequence: in_store.root.sequence,
        time: in_store.root.time,
    }
}

fn tell(progress: RecoverProgress) {
    tracing::info!(?progress, "local metadata is made again");
}

fn superblock_of(metadata: &Metadata) -> Option<Superblock> {
    load_superblock(&metadata.read().ok()?).ok().flatten()
}

fn identity_of_journal(journal: &JournalFiles) -> Option<u64> {
    let disk = Disk {
        cache: None,
        journal: Some(journal),
        marks_beside: &[],
    };
    let segments = disk.segments().ok()?;
    let mut headers = segments.into_iter().filter_map(|segment| {
        let bytes = disk.read_segment(segment).ok()?;
        SegmentHeader::decode(&bytes).ok()
    });
    headers.next().map(|header| header.journal_identity)
}

fn modified(path: &Path) -> Option<WallTime> {
    let modified = fs::metadata(path).and_then(|found| found.modified()).ok()?;
    let since = modified.duration_since(UNIX_EPOCH).ok()?;
    Some(WallTime(since.as_secs() as u32))
}

/// With names for people.
fn named(
    core: &Core,
    lost: Vec<LostBlocks>,
    stored: impl Fn(&[u8], &[u8], usize) -> Vec<tombolo_files::storage::Entry>,
) -> Vec<LostBytes> {
    let inodes: BTreeSet<u64> = lost.iter().filter_map(|run| run.volume.inode()).collect();
    let paths = tombolo_files::paths_of(&inodes, |from, end, limit| {
        let mut scan = EntryScan::new(from, end, limit);
        while scan.begin_round(core) {
            scan.end_round(stored(scan.from(), scan.end(), scan.wanted()));
        }
        scan.into_found()
    });
    let name_of = |volume: VolumeId| match volume.inode() {
        Some(inode) => paths.get(&inode).map_or_else(
            || format!("the file with inode {inode}"),
            |path| format!("the file {path}"),
        ),
        None => core.volume(volume).map_or_else(
            || format!("volume number {}", volume.0),
            |found| format!("volume {}", found.name),
        ),
    };
    let block_bytes = BLOCK_BYTES as u64;
    lost.into_iter()
        .map(|run| LostBytes {
            name: name_of(run.volume),
            offset: run.first * block_bytes,
            bytes: run.count * block_bytes,
            since: run.since,
        })
        .collect()
}

/// Local metadata of which nothing is known but its position.
struct Nothing(Vec<u8>);

impl MetadataRead for Nothing {
    type Error = MetadataError;

    fn get(&self, table: Table, _: &[u8]) -> Result<Option<Vec<u8>>, MetadataError> {
        Ok((table == Table::Super).then(|| self.0.clone()))
    }

    fn ceiling(&self, _: Table, _: &[u8]) -> Result<Option<Entry>, MetadataError> {
        Ok(None)
    }

    fn floor(&self, _: Table, _: &[u8]) -> Result<Option<Entry>, MetadataError> {
        Ok(None)
    }
}
