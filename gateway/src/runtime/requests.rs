//! Requests under way: the bytes that the core never sees, and who gets the answer.

use crate::metrics::requests::{BlockOperation, Started};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tombolo_base::BlockSum;
use tombolo_core::{Answer, Refusal, Token};

/// Who gets the answer.
pub enum Reply {
    Client(Box<dyn Client>, Started<BlockOperation>),
    /// A block that a partial write keeps in part; never answered.
    Edge,
    Channel(SyncSender<Result<Answer, Refusal>>),
    /// Runs on the thread that brings the answer, so it must not wait.
    Call(AnswerCall),
}

/// A client of a front end, which waits for the answer to one request.
pub trait Client: Send {
    /// Nobody waits for it any more.
    fn is_gone(&self) -> bool;

    /// Runs on the thread that brings the answer, so it must not wait.
    fn answer(self: Box<Self>, result: Result<Answer, Refusal>, data: Data);
}

pub type AnswerCall = Box<dyn FnOnce(Result<Answer, Refusal>, Data) + Send>;

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
    /// Whole blocks, to be written; of the first and the last some bytes are to be kept ([`Data::merge`]).
    Partial {
        buffer: Vec<u8>,
        head: Edge,
        tail: Edge,
    },
    /// A map query for the bytes `skip..skip + length` of the span.
    Status {
        skip: u64,
        length: u64,
    },
}

/// Bytes that a partial write keeps at its beginning, or at its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Edge {
    pub bytes: usize,
    /// The read of the block that they are in, as [`tombolo_core::PartialWrite`] has it.
    pub read: Option<Token>,
}

impl Data {
    /// Whether bytes go to a host, or come from one.
    fn is_moved(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Write { .. } | Self::Partial { .. } => true,
            Self::None | Self::Status { .. } => false,
        }
    }

    /// Takes over what is kept of the blocks that were read.
    fn merge(&mut self, first: &[u8], last: &[u8]) {
        if let Self::Partial { buffer, head, tail } = self {
            buffer[..head.bytes].copy_from_slice(&first[..head.bytes]);
            let kept = buffer.len() - tail.bytes;
            buffer[kept..].copy_from_slice(&last[last.len() - tail.bytes..]);
        }
    }

    fn edges(&self) -> [Edge; 2] {
        match self {
            Self::Partial { head, tail, .. } => [*head, *tail],
            _ => Default::default(),
        }
    }
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
    reads_and_writes: AtomicU64,
}

impl Requests {
    pub fn insert(&self, pending: Pending) -> Token {
        if pending.data.is_moved() {
            self.reads_and_writes.fetch_add(1, Ordering::Relaxed);
        }
        let token = Token(self.next.fetch_add(1, Ordering::Relaxed));
        self.lock().insert(token, pending);
        token
    }

    /// How many there have been. Only hosts make such requests, while the file service asks for other things of its own accord.
    pub fn reads_and_writes(&self) -> u64 {
        self.reads_and_writes.load(Ordering::Relaxed)
    }

    /// Takes the request, and what it has had read.
    pub fn take(&self, token: Token) -> Option<Pending> {
        let mut requests = self.lock();
        let taken = requests.remove(&token)?;
        for edge in taken.data.edges() {
            edge.read.and_then(|read| requests.remove(&read));
        }
        Some(taken)
    }

    /// Lays a partial write's bytes over what its edges hold. Sums of its blocks; none if it is not known.
    pub fn merge(&self, token: Token) -> Vec<Option<BlockSum>> {
        let mut requests = self.lock();
        let Some(edges) = requests.get(&token).map(|pending| pending.data.edges()) else {
            return Vec::new();
        };
        let mut read = |edge: Edge| match edge.read.and_then(|read| requests.remove(&read)) {
            Some(Pending {
                data: Data::Read { buffer, .. },
                ..
            }) => Some(buffer),
            _ => None,
        };
        let (first, last) = (read(edges[0]), read(edges[1]));
        // One block that is both is read once.
        let first = first.unwrap_or_default();
        let last = last.as_ref().unwrap_or(&first);
        let Some(pending) = requests.get_mut(&token) else {
            return Vec::new();
        };
        pending.data.merge(&first, last);
        match &pending.data {
            Data::Partial { buffer, .. } => BlockSum::of_blocks(buffer),
            _ => Vec::new(),
        }
    }

    /// Reads of clients that have gone.
    pub fn abandoned_reads(&self) -> Vec<Token> {
        let pending = self.lock();
        let abandoned = pending
            .iter()
            .filter(|(_, pending)| match (&pending.data, &pending.reply) {
                (Data::Read { .. }, Reply::Client(client, _)) => client.is_gone(),
                _ => false,
            });
        abandoned.map(|(token, _)| *token).collect()
    }

    /// Works on the request's bytes in place.
    pub fn with<T>(&self, token: Token, work: impl FnOnce(&mut Data) -> T) -> Option<T> {
        self.lock().get_mut(&token).map(|pending| work(&mut pending.data))
    }

    /// Takes what is to be written, for I/O, which must not happen under the lock.
    pub fn take_written(&self, token: Token) -> Bytes {
        self.with(token, |data| match data {
            Data::Write { buffer } => std::mem::take(buffer),
            Data::Partial { buffer, .. } => std::mem::take(buffer).into(),
            Data::Read { .. } | Data::None | Data::Status { .. } => Bytes::new(),
        })
        .unwrap_or_default()
    }

    /// Takes the buffer of a read out, until [`Requests::put_buffer`].
    pub fn take_buffer(&self, token: Token) -> Vec<u8> {
        self.with(token, |data| match data {
            Data::Read { buffer, .. } => std::mem::take(buffer),
            Data::Write { .. } | Data::Partial { .. } | Data::None | Data::Status { .. } => Vec::new(),
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
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
