//! What the server needs from its owner: exports by name, and requests answered in any order.

use crate::Completion;

/// The exports of one server.
pub trait Exports: Send + Sync + 'static {
    /// Every name that a client may open.
    fn list(&self) -> Vec<String>;

    /// What a client is told before it opens `name`. Has no lasting effect.
    fn describe(&self, name: &str) -> Result<ExportInfo, OpenError>;

    /// Called once per connection that enters transmission. The export is dropped after the connection's last answer.
    fn open(&self, name: &str) -> Result<Box<dyn Export>, OpenError>;
}

/// One client's view of one export.
pub trait Export: Send + Sync {
    /// Asked once per connection: to the client, the size does not change while it stays connected.
    fn info(&self) -> ExportInfo;

    /// Starts `request`. It lies within [`Export::info`]'s size, has at least one byte where a range is meant, and
    /// changes nothing on a read-only export. Runs on the connection's reading thread and should not wait: while it
    /// does, the connection reads nothing and sends no answers gathered before. Durability: `Done` to a `Flush`
    /// promises that every write answered before it is stable; `fua` promises the same of that one request.
    fn submit(&self, request: Request, completion: Completion);

    /// The client has gone: reads whose [`Completion::is_client_gone`] need not be carried out. Those completions are to be
    /// dropped; everything else goes on.
    fn client_gone(&self) {}
}

/// What a client is told of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Any number of bytes.
    pub size_bytes: u64,
    /// Whatever changes data is refused.
    pub read_only: bool,
    /// For people; empty when there is nothing to say.
    pub description: String,
}

/// Why an export cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum OpenError {
    #[error("no export is named {name:?}")]
    NotFound { name: String },
    #[error("export {name:?} is refused: {reason}")]
    Denied { name: String, reason: String },
    #[error("export {name:?} is not available: {reason}")]
    Unavailable { name: String, reason: String },
    #[error("the server is shutting down")]
    Shutdown,
}

/// What an export is asked for; offsets and lengths in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Answered by [`Answer::Data`].
    Read {
        /// Where.
        offset: u64,
        /// At least one.
        length: u32,
    },
    /// Answered by [`Answer::Done`].
    Write {
        /// Where.
        offset: u64,
        /// At least one byte.
        data: Vec<u8>,
        /// Force unit access: stable before it is answered.
        fua: bool,
    },
    /// What was answered before is stable when this is answered.
    Flush,
    /// The bytes are not needed any more.
    Trim {
        /// Where.
        offset: u64,
        /// At least one.
        length: u32,
        /// As of a write.
        fua: bool,
    },
    /// `no_hole` asks that the range stay allocated.
    WriteZeroes {
        /// Where.
        offset: u64,
        /// At least one.
        length: u32,
        /// As of a write.
        fua: bool,
        /// Keeps the range allocated.
        no_hole: bool,
    },
    /// With `request_one` only the first extent is wanted.
    BlockStatus {
        /// Where.
        offset: u64,
        /// At least one.
        length: u32,
        /// The first extent suffices.
        request_one: bool,
    },
}

/// `Data` answers a read with exactly its length; `Extents` answers a block status, consecutive from its offset;
/// `Done` answers everything else. Any other pairing is reported to the client as an I/O error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is carried out.
    Done,
    /// The bytes that were read.
    Data(Vec<u8>),
    /// At least one.
    Extents(Vec<Extent>),
}

/// A part of a block status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// In bytes, at least one.
    pub length: u32,
    /// Not allocated: a write there may need new space.
    pub hole: bool,
    /// Reads as zeroes.
    pub zero: bool,
}

/// The errors that NBD can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[expect(missing_docs, reason = "the messages are those of the protocol's numbers")]
pub enum NbdError {
    #[error("operation not permitted")]
    Perm,
    #[error("input/output error")]
    Io,
    #[error("out of memory")]
    NoMem,
    #[error("invalid request")]
    Invalid,
    #[error("no space left")]
    NoSpace,
    #[error("request too large")]
    Overflow,
    #[error("operation not supported")]
    NotSupported,
    #[error("the server is shutting down")]
    Shutdown,
}
