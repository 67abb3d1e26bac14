//! What the world tells the core, and what the core asks of the world. Every command that does something comes back
//! as an event, with its success or its failure.

use crate::config::Config;
use crate::format::cache_header::JournalMark;
use crate::format::local_metadata::MetadataFault;
use crate::format::page::MapPage;
use crate::format::record::{LinkRun, Lsn, SlotRun};
use crate::state::journal::JournalWrite;
use crate::state::overlay::Frozen;
use crate::state::unpublished::RecoveryPoint;
use alloc::string::{String, ToString as _};
use alloc::{sync::Arc, vec::Vec};
use tombolo_base::{BlockSum, Fingerprint, FlushMode, Lcbn, MetadataChange, ObjectDescriptor, Pvbn, Span, VolumeId};
use tombolo_prefetch::ClientId;

/// Names one request of a client; chosen by the world, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Names one piece of background work; chosen by the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// A write of whole blocks.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// Every block that is written, those that become holes included.
    pub span: Span,
    /// Blocks of the span that become holes. The request's buffer has those before them, then those behind them.
    pub zeroes: Option<Span>,
    /// An entry for each of the others, `None` for a block of zeroes.
    pub sums: Vec<Option<BlockSum>>,
    /// Answered when it is flushed in the volume's mode, not before.
    pub force_unit_access: bool,
    /// Made in the same step: after a crash all of it is there, or nothing.
    pub change: MetadataChange,
}

impl WriteRequest {
    /// Of all blocks of the span, and of nothing else.
    pub fn new(span: Span, sums: Vec<Option<BlockSum>>) -> Self {
        Self {
            span,
            zeroes: None,
            sums,
            force_unit_access: false,
            change: MetadataChange::default(),
        }
    }

    /// The blocks before those that become holes, and those behind them.
    pub fn written(&self) -> [Span; 2] {
        self.span.around(self.zeroes)
    }

    /// Blocks that are not zero, and need a slot each.
    pub(crate) fn slots_needed(&self) -> u32 {
        self.sums.iter().flatten().count() as u32
    }

    /// Everything that it changes.
    pub(crate) fn changed_spans(&self) -> Vec<Span> {
        [&[self.span], &self.change.holes[..]].concat()
    }
}

/// A write of blocks of which the first, the last, or both keep some of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialWrite {
    /// Every block that is touched, whole or in part, those that become holes included.
    pub span: Span,
    /// Names the read of the first block, if that keeps bytes: what it holds comes through [`Command::ReadSlots`] under
    /// this token, which is never answered.
    pub head: Option<Token>,
    /// Likewise the last block. One block that is both is read as `head`.
    pub tail: Option<Token>,
    /// Blocks of the span that become holes. The request's buffer has those before them, then those behind them.
    pub zeroes: Option<Span>,
    /// Answered when it is on stable storage, not before.
    pub force_unit_access: bool,
}

impl PartialWrite {
    /// The blocks before those that become holes, and those behind them.
    pub fn written(&self) -> [Span; 2] {
        self.span.around(self.zeroes)
    }
}

/// How many requests may be in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// PUTs of objects at once.
    pub uploads: usize,
    /// Blocks of all of them together; one object always may go.
    pub upload_blocks: usize,
    /// GETs at once.
    pub fetches: usize,
    /// Blocks that all of them bring together; one GET always may go.
    pub fetch_blocks: usize,
}

impl Lanes {
    /// As many as are permitted.
    pub(crate) fn all(config: &Config) -> Self {
        let lanes = Self {
            uploads: config.uploads_max,
            upload_blocks: config.upload_blocks_max,
            fetches: config.fetches_max,
            fetch_blocks: config.fetch_blocks_max,
        };
        lanes.within(config)
    }

    /// As many as are permitted, and one of each at the least.
    pub(crate) fn within(self, config: &Config) -> Self {
        Self {
            uploads: self.uploads.clamp(1, config.uploads_max.max(1)),
            upload_blocks: self.upload_blocks.clamp(1, config.upload_blocks_max.max(1)),
            fetches: self.fetches.clamp(1, config.fetches_max.max(1)),
            fetch_blocks: self.fetch_blocks.clamp(1, config.fetch_blocks_max.max(1)),
        }
    }
}

/// What the world tells the core: what clients and administrators ask for, and what became of the core's commands.
#[derive(Clone, Debug)]
pub enum Event {
    /// Answered with the blocks' contents through [`Command::ReadSlots`], one or several of them.
    Read {
        /// Names the request until it is answered; for its windows too.
        token: Token,
        /// Whose reads are taken together when patterns are looked for.
        client: ClientId,
        /// Refused as a whole with [`Refusal::OutOfRange`] where the volume does not reach so far.
        span: Span,
    },
    /// Whole blocks.
    Write {
        /// Names the request until it is answered.
        token: Token,
        /// Refused with [`Refusal::TooLarge`] where it needs more slots than may be dirty.
        request: WriteRequest,
    },
    /// Changes entries and maps in one step. A link makes blocks the same as blocks that are in the cloud.
    Commit {
        /// Names the request until it is answered, with [`Answer::Committed`].
        token: Token,
        /// Its holes come first in the journal, its entries last.
        change: MetadataChange,
        /// Which blocks, each run with what it is linked to; behind the holes.
        links: Vec<LinkRun>,
    },
    /// Turns blocks into holes (TRIM, WRITE ZEROES).
    Zero {
        /// Names the request until it is answered.
        token: Token,
        /// May be empty, or hold holes already.
        span: Span,
        /// Answered when it is on stable storage, not before.
        force_unit_access: bool,
    },
    /// Everything acknowledged so far to stable storage, or to the bucket.
    Flush {
        /// Names the request until it is answered.
        token: Token,
        /// What the volume or share has that it is asked of. With [`FlushMode::Bucket`] a recovery point begins at once; refused
        /// with [`Refusal::Busy`] when the store brings none.
        mode: FlushMode,
    },
    /// A write that changes its first or last block only in part, in one step.
    WritePartly {
        /// Names the request until it is answered, and its lock on the blocks.
        token: Token,
        /// Where the bytes go. They stay with the world, which is told to lay them over the edges.
        write: PartialWrite,
    },
    /// [`Command::Merge`] is carried out.
    Merged {
        /// As in the command.
        token: Token,
        /// In the buffer's order; `None` for a block of zeroes.
        sums: Vec<Option<BlockSum>>,
    },
    /// Which blocks are mapped.
    Status {
        /// Names the request until it is answered, with [`Answer::Status`].
        token: Token,
        /// The answer may stop short of its end: who wants the rest asks again.
        span: Span,
    },
    /// What blocks are mapped to.
    Resolve {
        /// Names the request until it is answered, with [`Answer::Resolved`].
        token: Token,
        /// The answer may stop short of its end: who wants the rest asks again.
        span: Span,
    },
    /// The client is gone: a read, and what has not begun, is dropped without an answer.
    Cancel {
        /// Of the request that is dropped. A write that goes on is answered as ever.
        token: Token,
    },
    /// Makes a volume of holes. Answered with its number when that is durable.
    VolumeCreate {
        /// Names the request until it is answered.
        token: Token,
        /// At most 255 bytes, for which the caller answers: the journal's record has one byte for the length.
        name: String,
        /// Its size, at most [`crate::record::VOLUME_BLOCKS_MAX`], for which the caller answers.
        blocks: u64,
        /// What its flushes wait for, forced writes (FUA) among them. Refused with [`Refusal::NoRecoveryPoints`] where they would
        /// wait for ever.
        flush: FlushMode,
    },
    /// Answered when it is durable. What lies beyond a lesser size becomes holes in the same step.
    VolumeResize {
        /// Names the request until it is answered.
        token: Token,
        /// Refused with [`Refusal::UnknownVolume`] where there is none.
        volume: VolumeId,
        /// The new size, at most [`crate::record::VOLUME_BLOCKS_MAX`], for which the caller answers.
        blocks: u64,
    },
    /// Answered when it is durable. Counts for every flush that comes after that.
    VolumeFlushMode {
        /// Names the request until it is answered.
        token: Token,
        /// Refused with [`Refusal::UnknownVolume`] where there is none.
        volume: VolumeId,
        /// What its flushes wait for from then on; refused as with a new volume.
        flush: FlushMode,
    },
    /// Answered when it is durable. Its number is not given out again.
    VolumeDelete {
        /// Names the request until it is answered.
        token: Token,
        /// Refused with [`Refusal::UnknownVolume`] where there is none.
        volume: VolumeId,
    },
    /// Upload everything that is dirty now.
    Drain,
    /// So many requests suit the store now; never more than the [`crate::Config`] permits, and one at the least.
    Lanes(Lanes),
    /// Make a checkpoint now, whatever the interval (before a clean stop).
    CheckpointNow,

    /// [`Command::WriteSlots`] is carried out, not yet synced.
    SlotsWritten {
        /// As in the command.
        token: Token,
        /// An error: nobody knows which slots it hit. The write is refused, and none of them is used for a while.
        result: Result<(), DiskError>,
    },
    /// [`Command::ReadSlots`] is carried out.
    SlotsRead {
        /// As in the command.
        token: Token,
        /// An error where any slot could not be read; the window is read again, or the read refused.
        result: Result<(), DiskError>,
        /// Slots whose bytes do not match their sum.
        corrupt: Vec<Lcbn>,
        /// Slots that the error came from. Empty although there is an error: nobody knows, and the read is refused.
        unreadable: Vec<Lcbn>,
    },
    /// [`Command::WriteJournal`] is carried out, not yet synced. These may come in any order.
    JournalWritten {
        /// As in the command.
        lsn: Lsn,
        /// As in the command.
        end: Lsn,
        /// An error ends all changes in this life ([`Refusal::Failed`]).
        result: Result<(), DiskError>,
    },
    /// [`Command::Sync`] is carried out.
    Synced {
        /// An error ends all changes in this life ([`Refusal::Failed`]).
        result: Result<(), DiskError>,
    },
    /// [`Command::LoadPage`] is carried out.
    PageLoaded {
        /// As in the command.
        volume: VolumeId,
        /// As in the command.
        page: u64,
        /// As in the command. When a checkpoint has been completed since, the page is asked for again.
        generation: u64,
        /// An empty page where local metadata has none.
        result: Result<MapPage, MetadataError>,
    },
    /// [`Command::LoadDescriptor`] is carried out.
    DescriptorLoaded {
        /// As in the command.
        pvbn: Pvbn,
        /// `None`: no object there holds the block.
        result: Result<Option<Arc<ObjectDescriptor>>, MetadataError>,
    },
    /// [`Command::Fetch`] is carried out.
    Fetched {
        /// As in the command.
        fetch: JobId,
        /// The sum of what was written into each slot, in the order of the items; or why nothing came at all.
        result: Result<Vec<Result<BlockSum, BlockLoss>>, StoreFailure>,
    },
    /// [`Command::Hash`] is carried out.
    Hashed {
        /// As in the command.
        job: JobId,
        /// In the order of the items.
        results: Vec<HashResult>,
    },
    /// [`Command::Upload`] is carried out.
    Uploaded {
        /// As in the command.
        job: JobId,
        /// What was put: the items' blocks, in their order.
        result: Result<ObjectDescriptor, UploadFailure>,
    },
    /// [`Command::Verify`] is carried out. No error: the object is there in its full length.
    Verified {
        /// As in the command.
        job: JobId,
        /// A failure that is not retryable is the store's word that the object is missing or has another length.
        result: Result<(), StoreFailure>,
    },
    /// [`Command::FindCopies`] is carried out.
    CopiesFound {
        /// As in the command.
        job: JobId,
        /// What the fingerprint index has for each, in their order; `None`: nothing.
        copies: Vec<Option<Pvbn>>,
    },
    /// [`Command::Checkpoint`] is carried out.
    Checkpointed {
        /// After an error the command comes again, with the same state.
        result: Result<(), MetadataError>,
    },
    /// The store was asked for a part of local metadata that is still there, for whatever purpose. Not every answer
    /// need be told, but the first after a failure.
    StoreAsked {
        /// A failure that is not retryable is an answer too.
        result: Result<(), StoreFailure>,
    },
    /// [`Command::Publish`] is carried out.
    Published {
        /// No error: the bucket holds the point, and the local copy of its root says so durably.
        result: Result<(), PublishFailure>,
    },
    /// No change may be accepted any more.
    Stop {
        /// Why.
        reason: StopReason,
    },
    /// There is no room on the disk for this segment, which is not begun yet, nor for any behind it. Changes that would go
    /// there wait, and are refused with [`Refusal::Busy`] in the end.
    JournalFull {
        /// Its number; a segment behind it cannot be begun either.
        segment: u64,
    },
    /// There is room again.
    JournalHasRoom,
    /// The machine's clock was set.
    WallClock {
        /// What it says now, in microseconds since 1970.
        micros: u64,
    },
    /// Time has passed; due whenever [`crate::Core::next_deadline`] has come.
    Tick,
}

/// A run of blocks of a read whose contents lie in consecutive slots. Blocks that no window has a piece for are zeroes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPiece {
    /// Position in the request's buffer, in blocks.
    pub index: u32,
    /// The first of as many consecutive slots as there are sums.
    pub slot: Lcbn,
    /// What the bytes of each slot have to sum up to. A slot that differs is told as corrupt.
    pub sums: Vec<BlockSum>,
}

/// A run of blocks of a write that goes into consecutive slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePiece {
    /// Position in the request's buffer, in blocks.
    pub index: u32,
    /// As many as there are blocks, each for one, in order.
    pub slots: SlotRun,
}

/// A dirty block to be hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashItem {
    /// Which block; they ascend within a job.
    pub pvbn: Pvbn,
    /// Where its bytes lie. It is not reused before the job has ended.
    pub slot: Lcbn,
    /// What its bytes have to sum up to.
    pub sum: BlockSum,
}

/// What became of a [`HashItem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashResult {
    /// The slot was read and holds what its sum says.
    Done {
        /// Of those bytes.
        fingerprint: Fingerprint,
        /// What the fingerprint index has for the same contents. The core judges whether that may be used.
        existing: Option<Pvbn>,
    },
    /// The slot does not hold what its sum says.
    Corrupt,
    /// The slot could not be read; to be tried again.
    Unreadable,
}

/// A block of an object that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadItem {
    /// Ascending within an object.
    pub pvbn: Pvbn,
    /// Where its bytes lie. It is not reused before the upload has ended.
    pub slot: Lcbn,
    /// What its bytes have to sum up to.
    pub sum: BlockSum,
    /// What was found when it was hashed; goes into the descriptor.
    pub fingerprint: Fingerprint,
}

/// Blocks of one object to fetch, each into its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchItem {
    /// Index into the descriptor's blocks; ascending.
    pub index: u16,
    /// Where the block goes. It holds nothing else until the fetch has ended.
    pub slot: Lcbn,
}

/// What the core asks of the world. Each comes back as the event that is named with it; one without is not waited for.
#[derive(Clone, Debug)]
pub enum Command {
    /// The end of a client's request.
    Answer {
        /// The request's.
        token: Token,
        /// What the client gets, or why it gets nothing.
        result: Result<Answer, Refusal>,
    },
    /// Write blocks of the request's buffer into slots, without a sync; for [`Event::SlotsWritten`].
    WriteSlots {
        /// The write's.
        token: Token,
        /// In the buffer's order.
        pieces: Vec<WritePiece>,
    },
    /// Read slots into the request's buffer and verify the sums, window by window; for [`Event::SlotsRead`].
    ReadSlots {
        /// The read's, or that of an edge ([`PartialWrite`]).
        token: Token,
        /// In the buffer's order; another window's are not among them.
        pieces: Vec<ReadPiece>,
    },
    /// Lay the request's bytes over what its edges hold ([`PartialWrite`]), which has been read.
    Merge {
        /// The partial write's; for [`Event::Merged`].
        token: Token,
    },
    /// Write a batch to its place, without a sync; for [`Event::JournalWritten`].
    WriteJournal(JournalWrite),
    /// Cache file and every journal segment written so far to stable storage; then, before the outcome is told, a note
    /// of `mark` outside the journal, which need not be on stable storage before the next sync is. For
    /// [`Event::Synced`].
    Sync {
        /// Up to where batches had been written when the command was made.
        mark: JournalMark,
    },
    /// Segments below this number are not needed any more.
    TrimJournal {
        /// The lowest that is needed.
        keep_from: u64,
    },
    /// A page of a volume's map ([`crate::local_metadata::load_map_page`]); for [`Event::PageLoaded`].
    LoadPage {
        /// Whose map.
        volume: VolumeId,
        /// Its number: blocks from [`crate::PAGE_ENTRIES`] times that on.
        page: u64,
        /// To be handed back: how many checkpoints had been completed when the page was asked for.
        generation: u64,
    },
    /// The object that holds `pvbn` ([`crate::local_metadata::load_descriptor`]).
    LoadDescriptor {
        /// A block that it holds, not always the first; for [`Event::DescriptorLoaded`].
        pvbn: Pvbn,
    },
    /// One ranged GET that spans the items; blocks go into their slots after verification.
    Fetch {
        /// For [`Event::Fetched`].
        fetch: JobId,
        /// The object, and what its blocks have to be.
        descriptor: Arc<ObjectDescriptor>,
        /// At least one.
        items: Vec<FetchItem>,
        /// Whether a client waits for it already; else it is prefetch.
        demand: bool,
    },
    /// Read the slots, verify the sums, compute fingerprints, look them up.
    Hash {
        /// For [`Event::Hashed`].
        job: JobId,
        /// In PVBN order, at least one.
        items: Vec<HashItem>,
    },
    /// Read the slots, verify the sums, make an object, PUT it.
    Upload {
        /// For [`Event::Uploaded`].
        job: JobId,
        /// In PVBN order, at least one, at most [`tombolo_base::OBJECT_BLOCKS_MAX`].
        items: Vec<UploadItem>,
    },
    /// These fingerprints are in the cloud now.
    Remember {
        /// Of an object that was confirmed: which blocks have them.
        descriptor: Arc<ObjectDescriptor>,
    },
    /// These fingerprints stand for blocks that are lost.
    Forget {
        /// Each is removed only if the index names this PVBN for it.
        blocks: Vec<(Fingerprint, Pvbn)>,
    },
    /// Ask the store, without reading it, for the object and its length.
    Verify {
        /// For [`Event::Verified`].
        job: JobId,
        /// The object, and what length it has to have.
        descriptor: Arc<ObjectDescriptor>,
    },
    /// Look these fingerprints up.
    FindCopies {
        /// For [`Event::CopiesFound`].
        job: JobId,
        /// Of blocks that readers wait for, at least one.
        fingerprints: Vec<Fingerprint>,
    },
    /// Log a loss of data.
    TellLoss(Loss),
    /// Bring local metadata up to the frozen state: cache file and journal to stable storage, then the transactions of
    /// a [`crate::Merge`] with this `pages_max`, each durable before the next. With the last goes the fingerprint
    /// index, as it is when this command is carried out, before any later [`Command::Remember`] (and the same again
    /// when the command is repeated with the same state after a failure): a fingerprint in the durable index whose
    /// object's journal record is lost in a crash would make later writes point to nothing. For
    /// [`Event::Checkpointed`].
    Checkpoint {
        /// What has changed up to its superblock's LSN. It stays the same until the checkpoint has been completed.
        frozen: Arc<Frozen>,
        /// [`Config::checkpoint_pages_max`](crate::Config::checkpoint_pages_max).
        pages_max: usize,
    },
    /// Tell the bucket of a recovery point ([`crate::publisher`]): put the journal objects, then the root in place of the one
    /// before, then keep a durable copy of it. For [`Event::Published`]. After a failure it comes again with the same point.
    Publish {
        /// Every object that it refers to is in the store, and every record in it is durable here.
        point: Arc<RecoveryPoint>,
    },
}

/// What a client gets when all went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Written, turned into holes, or flushed.
    Done,
    /// The change is in the journal.
    Committed,
    /// The buffer that the world filled holds the blocks.
    Read,
    /// From the beginning of the span, perhaps not to its end.
    Status(Vec<StatusRun>),
    /// Likewise.
    Resolved(Vec<ResolvedRun>),
    /// It was made, resized or deleted, and that is durable.
    Volume(VolumeId),
}

/// A run of blocks that are all mapped, or all not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRun {
    /// Blocks, at least one.
    pub count: u64,
    /// False for a hole.
    pub mapped: bool,
}

/// What a run of blocks is mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedRun {
    /// Blocks, at least one.
    pub count: u64,
    /// Of the run's first block; the others follow it one by one.
    pub source: Source,
}

/// Where the contents of a block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nowhere: it reads as zeroes.
    Hole,
    /// In the cloud, at consecutive PVBNs from this one on: other blocks may be linked to them.
    Stored(Pvbn),
    /// Not in the cloud yet.
    Dirty,
}

/// Why a client's request was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The span reaches beyond the volume.
    #[error("blocks {first}..{end} lie beyond the volume's end at block {blocks}")]
    OutOfRange {
        /// The span's first block.
        first: u64,
        /// Behind its last; `u64::MAX` where no number is so large.
        end: u64,
        /// The volume's size.
        blocks: u64,
    },
    /// There is none of this number, or none any more: it may have been deleted while the request waited.
    #[error("volume {0:?} does not exist")]
    UnknownVolume(VolumeId),
    /// No two volumes have one name at a time.
    #[error("a volume named {0:?} exists already")]
    VolumeExists(String),
    /// Blocks other than zeroes, more than may ever be dirty at once. The same request never succeeds.
    #[error("a request of {0} blocks is larger than the cache can take at once")]
    TooLarge(u64),
    /// A change waited longer than `stall_timeout_ms` for the cap, a slot, a checkpoint or the disk. Or a flush, in vain, for the
    /// bucket; a write that was to be flushed is made then, and is kept if nothing else fails.
    #[error(
        "the cap on changes that are not in the cloud, or not in local metadata, is reached, or the local disk is full, or the cloud \
         does not take what is to be flushed to it; try again"
    )]
    Busy,
    /// No flush is ever answered that would wait for the bucket.
    #[error("the bucket is told of no recovery points, so flushes cannot wait for one")]
    NoRecoveryPoints,
    /// What a request needs of the store, a block or a part of local metadata, could not be had after all attempts, or
    /// nothing came during `read_timeout_ms`.
    #[error("the cloud cannot be reached at the moment; try again: {0}")]
    CloudUnavailable(String),
    /// A read's block cannot be had: its object is missing or altered, or its only copy went bad.
    #[error("block {block} (PVBN {}) is lost: {reason}", pvbn.0)]
    Lost {
        /// Its number in the volume.
        block: u64,
        /// What it maps to.
        pvbn: Pvbn,
        /// What was found, in words.
        reason: String,
    },
    /// The cache file could not be read or written for this request; others go on.
    #[error("local disk: {0}")]
    Disk(DiskError),
    /// Maps or descriptors could not be read for this request; others go on. Never [`MetadataError::Unanswered`], which
    /// is told as [`Refusal::CloudUnavailable`].
    #[error("local metadata: {0}")]
    Metadata(MetadataError),
    /// Every change and flush since then, until a restart; reads go on. The reason is the first one.
    #[error("the gateway has stopped accepting changes: {0}")]
    Failed(StopReason),
}

/// Why no change is accepted any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopReason {
    /// The local disk failed on the way to stable storage.
    #[error("local disk: {0}")]
    Disk(#[from] DiskError),
    /// Another gateway has become the writer of the bucket.
    #[error(
        "{0} has taken over the store; what this gateway has not uploaded is in its state directory alone: copy it from the exports, \
         or stop this gateway and run `tombolo salvage`"
    )]
    Fenced(String),
    /// Somebody looks at a state directory from which nothing is served.
    #[error("the state directory is open for reading alone")]
    ReadOnly,
}

/// Why the bucket was not told of a recovery point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishFailure {
    /// The store did not answer, or the local copy could not be kept: to be tried again.
    Retry(StoreFailure),
    /// Another writer's root is there.
    Fenced(String),
}

/// A failure of the cache file or the journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} failed: {reason}")]
pub struct DiskError {
    /// What was tried, as "journal write".
    pub operation: &'static str,
    /// What the system said.
    pub reason: String,
}

/// Why local metadata could not be read or changed. Of a gateway that was recovered from its store a part may still be
/// there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// What is here.
    #[error("{0}")]
    Local(String),
    /// The store has what was asked for, and does not answer: the same may succeed later.
    #[error("a part of it is still in the store, which does not answer: {0}")]
    Unanswered(String),
    /// What the store should have is missing or altered there. The reason names the object.
    #[error("a part of it is still in the store, and is missing or altered there: {0}")]
    Altered(String),
}

impl From<MetadataFault<MetadataError>> for MetadataError {
    fn from(fault: MetadataFault<Self>) -> Self {
        match fault {
            MetadataFault::Store(error) => error,
            damaged => Self::Local(damaged.to_string()),
        }
    }
}

/// A store that is away is the same to a client whether it has the data or what leads there.
impl From<MetadataError> for Refusal {
    fn from(error: MetadataError) -> Self {
        match error {
            MetadataError::Unanswered(reason) => Self::CloudUnavailable(reason),
            error => Self::Metadata(error),
        }
    }
}

/// Why one block of a fetch did not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockLoss {
    /// The object does not hold what it should.
    Altered(String),
    /// The block could not be written to its slot.
    Disk(DiskError),
}

/// Blocks that were found to be lost; told once.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The first of them, where that is known: volume and block.
    pub place: Option<(VolumeId, u64)>,
    /// Neighbours from `place` on. Zero: a whole object is gone, and its blocks are told as they are read.
    pub count: u64,
    /// The same for all of them.
    pub cause: LossCause,
}

/// Why blocks are lost.
#[derive(Clone, Debug, PartialEq)]
pub enum LossCause {
    /// The object is missing or altered.
    Stored {
        /// Which one.
        object: Arc<ObjectDescriptor>,
        /// What the store, or the verification, said of it.
        reason: String,
    },
    /// The only copy went bad before it was uploaded.
    Local(String),
}

/// Why a whole GET failed, after the driver's own retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    /// The same request may succeed later.
    pub retryable: bool,
    /// What the driver said.
    pub reason: String,
}

/// Why an object was not put into the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadFailure {
    /// The PUT failed, after the driver's own retries.
    Store(StoreFailure),
    /// These slots do not hold what their sums say.
    Corrupt(Vec<Pvbn>),
    /// These slots could not be read.
    Disk {
        /// What the disk said.
        error: DiskError,
        /// They are left out of the next attempt. Empty: nobody knows which it was, and all are tried again.
        unreadable: Vec<Pvbn>,
    },
}
