//! What the world tells the core, and what the core asks of the world. Every command that does something comes back
//! as an event, with its success or its failure.

use crate::format::cache_header::JournalMark;
use crate::format::page::MapPage;
use crate::format::record::{LinkRun, Lsn, SlotRun};
use crate::state::journal::JournalWrite;
use crate::state::overlay::Frozen;
use alloc::{string::String, sync::Arc, vec::Vec};
use tombolo_base::{BlockSum, Fingerprint, Lcbn, MetadataChange, ObjectDescriptor, Pvbn, Span, VolumeId};
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
    pub span: Span,
    /// Blocks of the span that become holes. The request's buffer has those before them, then those behind them.
    pub zeroes: Option<Span>,
    /// An entry for each of the others, `None` for a block of zeroes.
    pub sums: Vec<Option<BlockSum>>,
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
    pub span: Span,
    /// Names the read of the first block, if that keeps bytes: what it holds comes through [`Command::ReadSlots`] under
    /// this token, which is never answered.
    pub head: Option<Token>,
    /// Likewise the last block. One block that is both is read as `head`.
    pub tail: Option<Token>,
    /// Blocks of the span that become holes. The request's buffer has those before them, then those behind them.
    pub zeroes: Option<Span>,
    pub force_unit_access: bool,
}

impl PartialWrite {
    /// The blocks before those that become holes, and those behind them.
    pub fn written(&self) -> [Span; 2] {
        self.span.around(self.zeroes)
    }
}

#[derive(Clone, Debug)]
pub enum Event {
    /// Answered with the blocks' contents through [`Command::ReadSlots`], one or several of them.
    Read {
        token: Token,
        /// Whose reads are taken together when patterns are looked for.
        client: ClientId,
        span: Span,
    },
    /// Whole blocks.
    Write {
        token: Token,
        request: WriteRequest,
    },
    /// Changes entries and maps in one step. A link makes blocks the same as blocks that are in the cloud.
    Commit {
        token: Token,
        change: MetadataChange,
        links: Vec<LinkRun>,
    },
    /// Turns blocks into holes (TRIM, WRITE ZEROES).
    Zero {
        token: Token,
        span: Span,
        force_unit_access: bool,
    },
    /// Everything acknowledged so far to stable storage.
    Flush {
        token: Token,
    },
    /// A write that changes its first or last block only in part, in one step.
    WritePartly {
        token: Token,
        write: PartialWrite,
    },
    /// [`Command::Merge`] is carried out. `sums` has an entry per block of the request's buffer.
    Merged {
        token: Token,
        sums: Vec<Option<BlockSum>>,
    },
    /// Which blocks are mapped.
    Status {
        token: Token,
        span: Span,
    },
    /// What blocks are mapped to.
    Resolve {
        token: Token,
        span: Span,
    },
    /// The client is gone: a read, and what has not begun, is dropped without an answer.
    Cancel {
        token: Token,
    },
    VolumeCreate {
        token: Token,
        name: String,
        blocks: u64,
    },
    VolumeResize {
        token: Token,
        volume: VolumeId,
        blocks: u64,
    },
    VolumeDelete {
        token: Token,
        volume: VolumeId,
    },
    /// Upload everything that is dirty now.
    Drain,
    /// Make a checkpoint now, whatever the interval (before a clean stop).
    CheckpointNow,

    SlotsWritten {
        token: Token,
        result: Result<(), DiskError>,
    },
    /// `corrupt` lists slots whose bytes do not match their sum.
    /// When the result is an error, `unreadable` lists the slots that it came from.
    SlotsRead {
        token: Token,
        result: Result<(), DiskError>,
        corrupt: Vec<Lcbn>,
        unreadable: Vec<Lcbn>,
    },
    JournalWritten {
        lsn: Lsn,
        end: Lsn,
        result: Result<(), DiskError>,
    },
    Synced {
        result: Result<(), DiskError>,
    },
    PageLoaded {
        volume: VolumeId,
        page: u64,
        generation: u64,
        result: Result<MapPage, MetadataError>,
    },
    DescriptorLoaded {
        pvbn: Pvbn,
        result: Result<Option<Arc<ObjectDescriptor>>, MetadataError>,
    },
    /// One result per block of the fetch.
    Fetched {
        fetch: JobId,
        result: Result<Vec<Result<BlockSum, BlockLoss>>, StoreFailure>,
    },
    /// One result per block of the job.
    Hashed {
        job: JobId,
        results: Vec<HashResult>,
    },
    Uploaded {
        job: JobId,
        result: Result<ObjectDescriptor, UploadFailure>,
    },
    /// The object is there in its full length; `retryable` is false if not.
    Verified {
        job: JobId,
        result: Result<(), StoreFailure>,
    },
    /// What the fingerprint index knows, one for each.
    CopiesFound {
        job: JobId,
        copies: Vec<Option<Pvbn>>,
    },
    Checkpointed {
        result: Result<(), MetadataError>,
    },
    /// There is no room on the disk for this segment, which is not begun yet, nor for any behind it. Changes that would go
    /// there wait, and are refused with [`Refusal::Busy`] in the end.
    JournalFull {
        segment: u64,
    },
    /// There is room again.
    JournalHasRoom,
    /// The machine's clock was set: what it says now, in microseconds since 1970.
    WallClock {
        micros: u64,
    },
    /// Time has passed; due whenever [`crate::Core::next_deadline`] has come.
    Tick,
}

/// A run of blocks of a read whose contents lie in consecutive slots. Blocks of no piece read as zeroes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPiece {
    /// Position in the request's buffer, in blocks.
    pub index: u32,
    pub slot: Lcbn,
    pub sums: Vec<BlockSum>,
}

/// A run of blocks of a write that goes into consecutive slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePiece {
    /// Position in the request's buffer, in blocks.
    pub index: u32,
    pub slots: SlotRun,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashItem {
    pub pvbn: Pvbn,
    pub slot: Lcbn,
    pub sum: BlockSum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashResult {
    /// `existing` is what the fingerprint index knows.
    Done {
        fingerprint: Fingerprint,
        existing: Option<Pvbn>,
    },
    /// The slot does not hold what its sum says.
    Corrupt,
    /// The slot could not be read; to be tried again.
    Unreadable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadItem {
    pub pvbn: Pvbn,
    pub slot: Lcbn,
    pub sum: BlockSum,
    pub fingerprint: Fingerprint,
}

/// Blocks of one object to fetch, each into its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchItem {
    /// Index into the descriptor's blocks; ascending.
    pub index: u16,
    pub slot: Lcbn,
}

#[derive(Clone, Debug)]
pub enum Command {
    Answer {
        token: Token,
        result: Result<Answer, Refusal>,
    },
    WriteSlots {
        token: Token,
        pieces: Vec<WritePiece>,
    },
    ReadSlots {
        token: Token,
        pieces: Vec<ReadPiece>,
    },
    /// Lay the request's bytes over what its edges hold ([`PartialWrite`]), which has been read.
    Merge {
        token: Token,
    },
    WriteJournal(JournalWrite),
    /// Cache file and every journal segment written so far to stable storage; then, before the outcome is told, a note
    /// of `mark` outside the journal, which need not be on stable storage before the next sync is.
    Sync {
        mark: JournalMark,
    },
    /// Segments below this number are not needed any more.
    TrimJournal {
        keep_from: u64,
    },
    LoadPage {
        volume: VolumeId,
        page: u64,
        generation: u64,
    },
    /// The object that holds `pvbn` ([`crate::local_metadata::load_descriptor`]).
    LoadDescriptor {
        pvbn: Pvbn,
    },
    /// One ranged GET that spans the items; blocks go into their slots after verification.
    Fetch {
        fetch: JobId,
        descriptor: Arc<ObjectDescriptor>,
        items: Vec<FetchItem>,
        demand: bool,
    },
    /// Read the slots, verify the sums, compute fingerprints, look them up.
    Hash {
        job: JobId,
        items: Vec<HashItem>,
    },
    /// Read the slots, verify the sums, make an object, PUT it.
    Upload {
        job: JobId,
        items: Vec<UploadItem>,
    },
    /// These fingerprints are in the cloud now.
    Remember {
        descriptor: Arc<ObjectDescriptor>,
    },
    /// These fingerprints stand for blocks that are lost.
    Forget {
        blocks: Vec<(Fingerprint, Pvbn)>,
    },
    /// Ask the store, without reading it, for the object and its length.
    Verify {
        job: JobId,
        descriptor: Arc<ObjectDescriptor>,
    },
    /// Look these fingerprints up.
    FindCopies {
        job: JobId,
        fingerprints: Vec<Fingerprint>,
    },
    /// Log a loss of data.
    TellLoss(Loss),
    /// Bring local metadata up to the frozen state: cache file and journal to stable storage, then the transactions of
    /// a [`crate::Merge`] with this `pages_max`, each durable before the next. With the last goes the fingerprint
    /// index, as it is when this command is carried out, before any later [`Command::Remember`] (and the same again
    /// when the command is repeated with the same state after a failure): a fingerprint in the durable index whose
    /// object's journal record is lost in a crash would make later writes point to nothing.
    Checkpoint {
        frozen: Arc<Frozen>,
        pages_max: usize,
    },
}

/// What a client gets when all went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// The change is in the journal.
    Committed,
    /// The buffer that the world filled holds the blocks.
    Read,
    /// From the beginning of the span, perhaps not to its end.
    Status(Vec<StatusRun>),
    /// Likewise.
    Resolved(Vec<ResolvedRun>),
    Volume(VolumeId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRun {
    pub count: u64,
    pub mapped: bool,
}

/// What a run of blocks is mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedRun {
    pub count: u64,
    pub source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Hole,
    /// In the cloud, at consecutive PVBNs from this one on: other blocks may be linked to them.
    Stored(Pvbn),
    /// Not in the cloud yet.
    Dirty,
}

/// Why a client's request was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("blocks {first}..{end} lie beyond the volume's end at block {blocks}")]
    OutOfRange { first: u64, end: u64, blocks: u64 },
    #[error("volume {0:?} does not exist")]
    UnknownVolume(VolumeId),
    #[error("a volume named {0:?} exists already")]
    VolumeExists(String),
    #[error("a request of {0} blocks is larger than the cache can take at once")]
    TooLarge(u64),
    #[error(
        "the cap on changes that are not in the cloud, or not in local metadata, is reached, or the local disk is full; try again"
    )]
    Busy,
    #[error("the cloud cannot be reached at the moment; try again: {0}")]
    CloudUnavailable(String),
    #[error("block {block} (PVBN {}) is lost: {reason}", pvbn.0)]
    Lost { block: u64, pvbn: Pvbn, reason: String },
    #[error("local disk: {0}")]
    Disk(DiskError),
    #[error("local metadata: {0}")]
    Metadata(MetadataError),
    #[error("the gateway has stopped accepting changes after a local disk failure: {0}")]
    Failed(DiskError),
}

/// A failure of the cache file or the journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} failed: {reason}")]
pub struct DiskError {
    pub operation: &'static str,
    pub reason: String,
}

/// A failure of local metadata.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MetadataError(pub String);

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
    pub count: u64,
    pub cause: LossCause,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LossCause {
    /// The object is missing or altered.
    Stored {
        object: Arc<ObjectDescriptor>,
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
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadFailure {
    Store(StoreFailure),
    /// These slots do not hold what their sums say.
    Corrupt(Vec<Pvbn>),
    /// These slots could not be read.
    Disk {
        error: DiskError,
        unreadable: Vec<Pvbn>,
    },
}
