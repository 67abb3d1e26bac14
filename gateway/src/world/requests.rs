//! Requests under way: the bytes that the core never sees, and who gets the answer.

use crate::meters::Started;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard};
use tombolo_core::{Answer, Refusal, Span, Token};
use tombolo_nbd::Completion;

/// Who gets the answer.
pub enum Reply {
    Client(Completion, Started),
    /// One of several parts of a client's request.
    Part(Arc<Parts>),
    /// A block that a partial write needs; `tail` says which of the two.
    Merge {
        parent: Token,
        tail: bool,
    },
    Channel(SyncSender<Result<Answer, Refusal>>),
    /// Runs on the thread that brings the answer, so it must not wait.
    Call(AnswerCall),
}

pub type AnswerCall = Box<dyn FnOnce(Result<Answer, Refusal>, Data) + Send>;

/// A client's request that was split; it is answered when the last part is.
pub struct Parts {
    state: Mutex<PartsState>,
}

struct PartsState {
    left: usize,
    refusal: Option<Refusal>,
    client: Option<(Completion, Started)>,
}

impl Parts {
    pub fn new(count: usize, completion: Completion, started: Started) -> Arc<Self> {
        let client = Some((completion, started));
        Arc::new(Self {
            state: Mutex::new(PartsState {
                left: count,
                refusal: None,
                client,
            }),
        })
    }

    /// Counts a part; the last one gets the client and the first refusal.
    pub fn finish(&self, result: Result<(), Refusal>) -> Option<(Completion, Started, Option<Refusal>)> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.left -= 1;
        if let Err(refusal) = result {
            state.refusal.get_or_insert(refusal);
        }
        if state.left > 0 {
            return None;
        }
        let refusal = state.refusal.take();
        state
            .client
            .take()
            .map(|(completion, started)| (completion, started, refusal))
    }
}

/// The bytes of a request.
pub enum Data {
    None,
    /// Whole blocks, being read; the client asked for `skip..skip + length` of them.
    Read {
        buffer: Vec<u8>,
        skip: usize,
        length: usize,
    },
    /// Whole blocks, to be written.
    Write {
        buffer: Bytes,
    },
    /// Whole blocks of which the client wrote `skip..skip + length`; the rest is read first, under a lock.
    Merge {
        buffer: Vec<u8>,
        skip: usize,
        length: usize,
        span: Span,
        force_unit_access: bool,
        reads: u8,
    },
    /// A map query for the bytes `skip..skip + length` of the span.
    Status {
        skip: u64,
        length: u64,
    },
}

pub struct Pending {
    pub data: Data,
    pub reply: Reply,
}

impl Pending {
    pub fn plain(reply: Reply) -> Self {
        Self {
            data: Data::None,
            reply,
        }
    }
}

#[derive(Default)]
pub struct Requests {
    pending: Mutex<HashMap<Token, Pending>>,
    next: AtomicU64,
}

impl Requests {
    pub fn insert(&self, pending: Pending) -> Token {
        let token = Token(self.next.fetch_add(1, Ordering::Relaxed));
        self.lock().insert(token, pending);
        token
    }

    pub fn take(&self, token: Token) -> Option<Pending> {
        self.lock().remove(&token)
    }

    /// Works on the request's bytes in place.
    pub fn with<T>(&self, token: Token, work: impl FnOnce(&mut Data) -> T) -> Option<T> {
        self.lock().get_mut(&token).map(|pending| work(&mut pending.data))
    }

    /// Takes what is to be written, for I/O, which must not happen under the lock.
    pub fn take_written(&self, token: Token) -> Bytes {
        self.with(token, |data| match data {
            Data::Write { buffer } => std::mem::take(buffer),
            Data::Merge { buffer, .. } => std::mem::take(buffer).into(),
            Data::Read { .. } | Data::None | Data::Status { .. } => Bytes::new(),
        })
        .unwrap_or_default()
    }

    /// Takes the buffer of a read out, until [`Requests::put_buffer`].
    pub fn take_buffer(&self, token: Token) -> Vec<u8> {
        self.with(token, |data| match data {
            Data::Read { buffer, .. } => std::mem::take(buffer),
            Data::Write { .. } | Data::Merge { .. } | Data::None | Data::Status { .. } => Vec::new(),
        })
        .unwrap_or_default()
    }

    pub fn put_buffer(&self, token: Token, bytes: Vec<u8>) {
        self.with(token, |data| {
            if let Data::Read { buffer, .. } = data {
                *buffer = bytes;
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Pending>> {
        self.pending.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
