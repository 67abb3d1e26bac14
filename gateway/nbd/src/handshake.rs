//! The negotiation, as a state machine without I/O: bytes in, bytes out, until a client has chosen an export.
//!
//! | state   | waits for        | next                                        |
//! |---------|------------------|---------------------------------------------|
//! | Flags   | 4 bytes          | Options                                     |
//! | Options | one whole option | Options, or the end: transmission, finished |
//!
//! Owns what was agreed so far. Does not own the socket, the time limit, or the memory for unread input: an option
//! is at most [`OPTION_BYTES_MAX`] long, and the caller needs room for one.

use crate::protocol::{
    CLIENT_FLAGS_BYTES, CONTEXT_ALLOCATION, CONTEXT_RESIZE, CONTEXTS, DecodeError, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES,
    GREETING_MAGIC, MetaContext, MetaQuery, OPTION_HEADER_BYTES, OPTION_MAGIC, OptionRequest, decode_option,
    decode_option_header, info_type, option::OptionReplies, option_code, option_reply, reply::ContextSet,
    transmission_flag,
};
use crate::{Export, ExportInfo, Exports, OpenError};

#[cfg(doc)]
use crate::protocol::OPTION_BYTES_MAX;

/// Any length and offset is served; this is what suits the store behind.
pub const BLOCK_BYTES_MIN: u32 = 1;
/// A block of the store.
pub const BLOCK_BYTES_PREFERRED: u32 = 4096;
/// Zeroes after the answer to EXPORT_NAME, unless both sides agreed to leave them out.
const EXPORT_NAME_PADDING: [u8; 124] = [0; 124];

/// A violation that ends the connection, because the protocol has no reply for it or the stream is out of step.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what happened")]
pub enum HandshakeError {
    #[error("client flags {found:#x} have bits that were not offered")]
    ClientFlags { found: u32 },
    #[error("not an NBD option")]
    Option(#[from] DecodeError),
    #[error("option {code} from a client that did not agree to fixed newstyle")]
    NotFixed { code: u32 },
    #[error("EXPORT_NAME cannot be answered with an error")]
    ExportName(#[source] DecodeError),
    #[error("EXPORT_NAME cannot be answered with an error")]
    Open(#[source] OpenError),
}

/// What one step came to.
pub enum Step {
    /// Nothing was consumed: at least `bytes_min` bytes are needed.
    NeedMore {
        /// In all, from the first byte that was not consumed.
        bytes_min: usize,
    },
    /// `consumed` bytes are dealt with; step again.
    Continue {
        /// Bytes.
        consumed: usize,
    },
    /// The client takes its leave, once `out` is sent.
    Finished {
        /// Bytes.
        consumed: usize,
    },
    /// Whatever follows `consumed` belongs to the transmission phase.
    Transmission {
        /// Bytes.
        consumed: usize,
        /// On what.
        agreed: Box<Agreed>,
    },
}

/// What was agreed on for the transmission phase.
pub struct Agreed {
    /// The export's.
    pub name: String,
    /// Opened.
    pub export: Box<dyn Export>,
    /// What the client was told of it.
    pub info: ExportInfo,
    /// Replies are structured.
    pub structured: bool,
    /// What block status answers.
    pub contexts: ContextSet,
}

#[derive(Debug)]
enum State {
    Flags,
    Options,
}

/// The negotiation of one connection, from the greeting to the choice of an export.
#[derive(Debug)]
pub struct Handshake {
    state: State,
    block_bytes_max: u32,
    fixed: bool,
    no_zeroes: bool,
    structured: bool,
    /// The last successful SET_META_CONTEXT; it counts only for the export it named.
    contexts: Option<(String, ContextSet)>,
}

/// How an option left the negotiation.
enum Next {
    Option,
    Finished,
    Transmission(Box<Agreed>),
}

impl Handshake {
    /// Also writes the greeting to `out`.
    pub fn new(block_bytes_max: u32, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&GREETING_MAGIC.to_be_bytes());
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        Self {
            state: State::Flags,
            block_bytes_max,
            fixed: false,
            no_zeroes: false,
            structured: false,
            contexts: None,
        }
    }

    /// Takes the next message from the start of `input`, if it is there as a whole, and appends the answer to `out`.
    pub fn step(&mut self, input: &[u8], exports: &dyn Exports, out: &mut Vec<u8>) -> Result<Step, HandshakeError> {
        match self.state {
            State::Flags => self.on_flags(input),
            State::Options => self.on_option(input, exports, out),
        }
    }

    fn on_flags(&mut self, input: &[u8]) -> Result<Step, HandshakeError> {
        let Some(bytes) = input.first_chunk::<CLIENT_FLAGS_BYTES>() else {
            return Ok(Step::NeedMore {
                bytes_min: CLIENT_FLAGS_BYTES,
            });
        };
        let found = u32::from_be_bytes(*bytes);
        if found & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
            return Err(HandshakeError::ClientFlags { found });
        }
        self.fixed = found & u32::from(FLAG_FIXED_NEWSTYLE) != 0;
        self.no_zeroes = found & u32::from(FLAG_NO_ZEROES) != 0;
        self.state = State::Options;
        Ok(Step::Continue {
            consumed: CLIENT_FLAGS_BYTES,
        })
    }

    fn on_option(&mut self, input: &[u8], exports: &dyn Exports, out: &mut Vec<u8>) -> Result<Step, HandshakeError> {
        let Some(head) = input.first_chunk::<OPTION_HEADER_BYTES>() else {
            return Ok(Step::NeedMore {
                bytes_min: OPTION_HEADER_BYTES,
            });
        };
        let header = decode_option_header(head)?;
        if !self.fixed && header.code != option_code::EXPORT_NAME {
            return Err(HandshakeError::NotFixed { code: header.code });
        }
        let consumed = OPTION_HEADER_BYTES + header.length;
        let Some(data) = input.get(OPTION_HEADER_BYTES..consumed) else {
            return Ok(Step::NeedMore { bytes_min: consumed });
        };
        let mut replies = OptionReplies { code: header.code, out };
        let next = match decode_option(header.code, data) {
            Ok(option) => self.answer(option, exports, &mut replies)?,
            Err(error) if header.code == option_code::EXPORT_NAME => return Err(HandshakeError::ExportName(error)),
            Err(error) => {
                self.refuse_malformed(header.code, &error, &mut replies);
                Next::Option
            }
        };
        Ok(match next {
            Next::Option => Step::Continue { consumed },
            Next::Finished => Step::Finished { consumed },
            Next::Transmission(agreed) => Step::Transmission { consumed, agreed },
        })
    }

    fn refuse_malformed(&mut self, code: u32, error: &DecodeError, replies: &mut OptionReplies<'_>) {
        if code == option_code::SET_META_CONTEXT {
            self.contexts = None;
        }
        let kind = match error {
            DecodeError::TooLong { .. } => option_reply::ERR_TOO_BIG,
            DecodeError::Magic { .. }
            | DecodeError::Truncated { .. }
            | DecodeError::Trailing { .. }
            | DecodeError::NotUtf8 { .. } => option_reply::ERR_INVALID,
        };
        replies.error(kind, &error.to_string());
    }

    fn answer(
        &mut self,
        option: OptionRequest<'_>,
        exports: &dyn Exports,
        replies: &mut OptionReplies<'_>,
    ) -> Result<Next, HandshakeError> {
        match option {
            OptionRequest::ExportName(name) => return self.on_export_name(name, exports, replies.out),
            OptionRequest::Abort => {
                replies.ack();
                return Ok(Next::Finished);
            }
            OptionRequest::Go { name, items } => return Ok(self.on_go(name, &items, exports, replies)),
            OptionRequest::Info { name, items } => match exports.describe(name) {
                Ok(info) => self.send_info(name, &info, &items, replies),
                Err(error) => refuse_open(&error, replies),
            },
            OptionRequest::List => {
                for name in exports.list() {
                    let description = exports.describe(&name).map(|info| info.description).unwrap_or_default();
                    replies.server(&name, &description);
                }
                replies.ack();
            }
            OptionRequest::StartTls => replies.error(
                option_reply::ERR_POLICY,
                "this socket does not offer TLS; access to it is granted by its file mode",
            ),
            OptionRequest::StructuredReply => {
                self.structured = true;
                replies.ack();
            }
            OptionRequest::ListMetaContext(query) => self.on_list_contexts(&query, exports, replies),
            OptionRequest::SetMetaContext(query) => self.on_set_contexts(&query, exports, replies),
            OptionRequest::Unknown { code } => {
                replies.error(option_reply::ERR_UNSUP, &format!("option {code} is not supported"));
            }
        }
        Ok(Next::Option)
    }

    fn on_export_name(&mut self, name: &str, exports: &dyn Exports, out: &mut Vec<u8>) -> Result<Next, HandshakeError> {
        let agreed = self.agree(name, exports).map_err(HandshakeError::Open)?;
        out.extend_from_slice(&agreed.info.size_bytes.to_be_bytes());
        out.extend_from_slice(&self.transmission_flags(&agreed.info).to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&EXPORT_NAME_PADDING);
        }
        Ok(Next::Transmission(agreed))
    }

    fn on_go(&mut self, name: &str, items: &[u16], exports: &dyn Exports, replies: &mut OptionReplies<'_>) -> Next {
        match self.agree(name, exports) {
            Ok(agreed) => {
                self.send_info(name, &agreed.info, items, replies);
                Next::Transmission(agreed)
            }
            Err(error) => {
                refuse_open(&error, replies);
                Next::Option
            }
        }
    }

    fn agree(&self, name: &str, exports: &dyn Exports) -> Result<Box<Agreed>, OpenError> {
        let export = exports.open(name)?;
        let contexts = match &self.contexts {
            Some((chosen_for, contexts)) if chosen_for == name => *contexts,
            _ => ContextSet::default(),
        };
        Ok(Box::new(Agreed {
            name: name.to_owned(),
            info: export.info(),
            export,
            structured: self.structured,
            contexts,
        }))
    }

    /// All that the server knows is sent whether asked for or not, except the texts, which only matter to who asks.
    fn send_info(&self, name: &str, info: &ExportInfo, items: &[u16], replies: &mut OptionReplies<'_>) {
        replies.info_export(info.size_bytes, self.transmission_flags(info));
        replies.info_block_size(BLOCK_BYTES_MIN, BLOCK_BYTES_PREFERRED, self.block_bytes_max);
        if items.contains(&info_type::NAME) {
            replies.info_text(info_type::NAME, name);
        }
        if items.contains(&info_type::DESCRIPTION) && !info.description.is_empty() {
            replies.info_text(info_type::DESCRIPTION, &info.description);
        }
        replies.ack();
    }

    fn transmission_flags(&self, info: &ExportInfo) -> u16 {
        use transmission_flag::*;
        let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | CAN_MULTI_CONN;
        if info.read_only {
            flags |= READ_ONLY;
        }
        if self.structured {
            flags |= SEND_DF;
        }
        flags
    }

    fn on_list_contexts(&self, query: &MetaQuery<'_>, exports: &dyn Exports, replies: &mut OptionReplies<'_>) {
        if !self.check_contexts(query, exports, replies) {
            return;
        }
        for context in CONTEXTS {
            if query.queries.is_empty() || query.queries.iter().any(|query| lists(query, context)) {
                replies.meta_context(0, context);
            }
        }
        replies.ack();
    }

    fn on_set_contexts(&mut self, query: &MetaQuery<'_>, exports: &dyn Exports, replies: &mut OptionReplies<'_>) {
        self.contexts = None;
        if !self.check_contexts(query, exports, replies) {
            return;
        }
        let chosen = |context: MetaContext| query.queries.contains(&context.name);
        for context in CONTEXTS {
            if chosen(context) {
                replies.meta_context(context.id, context);
            }
        }
        replies.ack();
        let contexts = ContextSet {
            allocation: chosen(CONTEXT_ALLOCATION),
            resize: chosen(CONTEXT_RESIZE),
        };
        self.contexts = Some((query.name.to_owned(), contexts));
    }

    /// False when the error has been sent already.
    fn check_contexts(&self, query: &MetaQuery<'_>, exports: &dyn Exports, replies: &mut OptionReplies<'_>) -> bool {
        if !self.structured {
            replies.error(
                option_reply::ERR_INVALID,
                "metadata contexts need structured replies: negotiate them first",
            );
            return false;
        }
        match exports.describe(query.name) {
            Ok(_) => true,
            Err(error) => {
                refuse_open(&error, replies);
                false
            }
        }
    }
}

/// A query lists a context by its name, or all of a namespace by the namespace and its colon.
fn lists(query: &str, context: MetaContext) -> bool {
    query == context.name || (query.ends_with(':') && context.name.starts_with(query))
}

fn refuse_open(error: &OpenError, replies: &mut OptionReplies<'_>) {
    let kind = match error {
        // The protocol defines ERR_UNKNOWN as "not available", which is both.
        OpenError::NotFound { .. } | OpenError::Unavailable { .. } => option_reply::ERR_UNKNOWN,
        OpenError::Denied { .. } => option_reply::ERR_POLICY,
        OpenError::Shutdown => option_reply::ERR_SHUTDOWN,
    };
    replies.error(kind, &error.to_string());
}
