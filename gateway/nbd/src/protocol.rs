//! The NBD wire format: constants, and encoders and decoders over slices. No I/O, no state, no allocation beyond
//! what the input itself occupies. All integers are big-endian. Source: the NBD protocol document, `doc/proto.md`.

pub mod option;
pub mod reply;
pub mod request;

mod fields;

pub use option::{MetaQuery, OptionHeader, OptionRequest, decode_option, decode_option_header};
pub use request::{RequestHeader, decode_request_header};

/// "NBDMAGIC": opens the greeting.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT": closes the greeting and opens each option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Before each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Before each simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Before each chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Length of a request without its data.
pub const REQUEST_HEADER_BYTES: usize = 28;
/// Length of an option without its data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Length of a client's answer to the greeting.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// An option longer than this ends the connection: none that the server knows needs more.
pub const OPTION_BYTES_MAX: usize = 64 * 1024;
/// The protocol's own limit on strings.
pub const NAME_BYTES_MAX: usize = 4096;

/// Handshake flags of server and client.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Of the greeting and of the client's answer: EXPORT_NAME is answered without padding.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Transmission flags.
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub mod transmission_flag {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Option numbers.
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub mod option_code {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of option replies.
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub mod option_reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR + 1;
    pub const ERR_POLICY: u32 = ERROR + 2;
    pub const ERR_INVALID: u32 = ERROR + 3;
    pub const ERR_UNKNOWN: u32 = ERROR + 6;
    pub const ERR_SHUTDOWN: u32 = ERROR + 7;
    pub const ERR_TOO_BIG: u32 = ERROR + 9;
}

/// Items of information about an export.
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub mod info_type {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Command numbers.
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISCONNECT: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Command flags.
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub mod command_flag {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQUEST_ONE: u16 = 1 << 3;
}

/// Types and flags of structured reply chunks.
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub mod chunk {
    pub const FLAG_DONE: u16 = 1 << 0;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// Status bits of `base:allocation`.
pub const STATE_HOLE: u32 = 1 << 0;
/// Of an extent: it reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;

/// A metadata context that the server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaContext {
    /// What block status names it by.
    pub id: u32,
    /// `NAMESPACE:LEAF`.
    pub name: &'static str,
}

/// Which parts are holes, and which read as zeroes.
pub const CONTEXT_ALLOCATION: MetaContext = MetaContext {
    id: 1,
    name: "base:allocation",
};
/// Whoever negotiates it asks to be disconnected when the export's size changes, to connect anew and see the new
/// size. As a block status it says nothing: all flags are zero.
pub const CONTEXT_RESIZE: MetaContext = MetaContext {
    id: 2,
    name: "x-tombolo:resize",
};
/// All that can be negotiated.
pub const CONTEXTS: [MetaContext; 2] = [CONTEXT_ALLOCATION, CONTEXT_RESIZE];

/// What was wrong with bytes from a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum DecodeError {
    #[error("{what}: magic is {found:#x}, expected {expected:#x}")]
    Magic {
        what: &'static str,
        found: u64,
        expected: u64,
    },
    #[error("{what}: needs {needed} bytes, {available} left")]
    Truncated {
        what: &'static str,
        needed: usize,
        available: usize,
    },
    #[error("{what}: {count} bytes follow the end")]
    Trailing { what: &'static str, count: usize },
    #[error("{what}: {length} bytes, at most {length_max} are allowed")]
    TooLong {
        what: &'static str,
        length: usize,
        length_max: usize,
    },
    #[error("{what}: not UTF-8")]
    NotUtf8 { what: &'static str },
}
