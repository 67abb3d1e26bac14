//! Volumes as NBD exports: cuts a client's bytes into blocks, and says in NBD's terms how it went.

use super::{SESSION_CLIENTS, Stores};
use crate::metrics::requests::{BlockOperation, Started};
use crate::runtime::Gateway;
use crate::runtime::requests::{Client, Data, Edge, Pending, Reply};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tombolo_base::{BLOCK_BYTES, BlockSum, VolumeId};
use tombolo_core::{Answer, ClientId, Event, PartialWrite, Refusal, Span, StatusRun, Token, WriteRequest};
use tombolo_nbd::{self as nbd, Completion, Export, ExportInfo, Exports, NbdError, OpenError, Request};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn begin(request: &Request) -> Started<BlockOperation> {
    let (operation, bytes) = match request {
        Request::Read { length, .. } => (BlockOperation::Read, u64::from(*length)),
        Request::Write { data, .. } => (BlockOperation::Write, data.len() as u64),
        Request::Flush => (BlockOperation::Flush, 0),
        Request::Trim { length, .. } => (BlockOperation::Trim, u64::from(*length)),
        Request::WriteZeroes { length, .. } => (BlockOperation::WriteZeroes, u64::from(*length)),
        Request::BlockStatus { .. } => (BlockOperation::BlockStatus, 0),
    };
    Started::now(operation, bytes)
}

impl Client for Completion {
    fn is_gone(&self) -> bool {
        self.is_client_gone()
    }

    fn answer(self: Box<Self>, result: Result<Answer, Refusal>, data: Data) {
        self.complete(nbd_answer(result, data));
    }
}

/// Every volume of every store under its name.
pub struct VolumeExports(pub Arc<Stores>);

struct VolumeExport {
    gateway: Arc<Gateway>,
    volume: VolumeId,
    info: ExportInfo,
    client: ClientId,
}

impl Drop for VolumeExport {
    fn drop(&mut self) {
        self.gateway
            .clients()
            .entry(self.volume)
            .and_modify(|count| *count -= 1);
    }
}

impl VolumeExports {
    fn find(&self, name: &str) -> Result<(Arc<Gateway>, VolumeId, ExportInfo), OpenError> {
        let (store, volume) = self.0.volume(name).ok_or_else(|| self.not_found(name))?;
        let gateway = store.gateway.clone();
        let info = ExportInfo {
            size_bytes: volume.blocks * BLOCK,
            read_only: false,
            description: format!("Tombolo volume {name}, generation {:016x}", gateway.generation.number()),
        };
        Ok((gateway, volume.id, info))
    }

    fn not_found(&self, name: &str) -> OpenError {
        let name = name.to_owned();
        match self.0.may_be_absent() {
            Some(reason) => OpenError::Unavailable { name, reason },
            None => OpenError::NotFound { name },
        }
    }
}

impl Exports for VolumeExports {
    fn list(&self) -> Vec<String> {
        self.0.volume_names()
    }

    fn describe(&self, name: &str) -> Result<ExportInfo, OpenError> {
        self.find(name).map(|(_, _, info)| info)
    }

    fn open(&self, name: &str) -> Result<Box<dyn Export>, OpenError> {
        let (gateway, volume, info) = self.find(name)?;
        *gateway.clients().entry(volume).or_insert(0) += 1;
        // The first connection is 1: zero is who is nobody in particular.
        let begun = gateway.connections_begun.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(VolumeExport {
            gateway,
            volume,
            info,
            client: ClientId(begun % SESSION_CLIENTS + 1),
        }))
    }
}

impl Export for VolumeExport {
    /// Its reads hold slots, and may wait for the store for long.
    fn client_gone(&self) {
        for token in self.gateway.requests.abandoned_reads() {
            self.gateway.submit(Event::Cancel { token });
            self.gateway.requests.take(token);
        }
    }

    fn info(&self) -> ExportInfo {
        self.info.clone()
    }

    fn submit(&self, request: Request, completion: Completion) {
        let reply = Reply::Client(Box::new(completion), begin(&request));
        match request {
            Request::Read { offset, length } => self.read(offset, length, reply),
            Request::Write { offset, data, fua } => self.write(offset, data, fua, reply),
            Request::Flush => self.flush(Pending::plain(reply)),
            Request::Trim { offset, length, fua } => self.trim(offset, length, fua, reply),
            Request::WriteZeroes {
                offset,
                length,
                fua,
                no_hole: _,
            } => self.zero(offset, length, fua, reply),
            Request::BlockStatus {
                offset,
                length,
                request_one: _,
            } => {
                let span = self.enclosing(offset, u64::from(length));
                let data = Data::Status {
                    skip: offset % BLOCK,
                    length: u64::from(length),
                };
                self.send(Pending { data, reply }, |token| Event::Status { token, span });
            }
        }
    }
}

impl VolumeExport {
    fn send(&self, pending: Pending, event: impl FnOnce(Token) -> Event) {
        let token = self.gateway.requests.insert(pending);
        let event = event(token);
        self.gateway.recorder.note(self.client, &event);
        self.gateway.submit(event);
    }

    fn flush(&self, pending: Pending) {
        let mode = self.gateway.core().flush_mode(self.volume);
        self.send(pending, |token| Event::Flush { token, mode });
    }

    fn enclosing(&self, offset: u64, length: u64) -> Span {
        let first = offset / BLOCK;
        Span {
            volume: self.volume,
            first,
            count: (offset + length).div_ceil(BLOCK) - first,
        }
    }

    fn read(&self, offset: u64, length: u32, reply: Reply) {
        let span = self.enclosing(offset, u64::from(length));
        let buffer = vec![0; (span.count * BLOCK) as usize];
        let data = Data::Read {
            buffer,
            skip: (offset % BLOCK) as usize,
            length: length as usize,
        };
        self.send(Pending { data, reply }, |token| Event::Read {
            token,
            client: self.client,
            span,
        });
    }

    fn write(&self, offset: u64, data: Vec<u8>, fua: bool, reply: Reply) {
        let span = self.enclosing(offset, data.len() as u64);
        if offset.is_multiple_of(BLOCK) && data.len().is_multiple_of(BLOCK_BYTES) {
            let sums = BlockSum::of_blocks(&data);
            let pending = Pending {
                data: Data::Write { buffer: data.into() },
                reply,
            };
            return self.send(pending, |token| Event::Write {
                token,
                request: WriteRequest {
                    force_unit_access: fua,
                    ..WriteRequest::new(span, sums)
                },
            });
        }
        let (head, tail) = kept_bytes(offset, data.len() as u64);
        let mut buffer = vec![0; (span.count * BLOCK) as usize];
        buffer[head..head + data.len()].copy_from_slice(&data);
        self.write_partly(span, buffer, (head, tail), None, fua, reply);
    }

    /// Writes the buffer except for so many bytes at its beginning and its end, which stay as they are.
    fn write_partly(
        &self,
        span: Span,
        buffer: Vec<u8>,
        (head, tail): (usize, usize),
        zeroes: Option<Span>,
        fua: bool,
        reply: Reply,
    ) {
        let is_one_block = buffer.len() == BLOCK_BYTES;
        let head = self.edge(head, head > 0);
        let tail = self.edge(tail, tail > 0 && !(is_one_block && head.read.is_some()));
        let write = PartialWrite {
            span,
            head: head.read,
            tail: tail.read,
            zeroes,
            force_unit_access: fua,
        };
        let data = Data::Partial { buffer, head, tail };
        self.send(Pending { data, reply }, |token| Event::WritePartly { token, write });
    }

    fn edge(&self, bytes: usize, is_read: bool) -> Edge {
        let data = || Data::Read {
            buffer: vec![0; BLOCK_BYTES],
            skip: 0,
            length: BLOCK_BYTES,
        };
        let pending = is_read.then(|| Pending {
            data: data(),
            reply: Reply::Edge,
        });
        let read = pending.map(|pending| self.gateway.requests.insert(pending));
        Edge { bytes, read }
    }

    /// Advice: whole blocks only.
    fn trim(&self, offset: u64, length: u32, fua: bool, reply: Reply) {
        let (first, end) = (offset.div_ceil(BLOCK), (offset + u64::from(length)) / BLOCK);
        if first >= end && !fua {
            return self.gateway.reply(reply, Ok(Answer::Done), Data::None);
        }
        let pending = Pending::plain(reply);
        if first >= end {
            return self.flush(pending);
        }
        let span = Span {
            volume: self.volume,
            first,
            count: end - first,
        };
        self.send(pending, |token| Event::Zero {
            token,
            span,
            force_unit_access: fua,
        });
    }

    /// Every byte must read as zero afterwards: whole blocks become holes, the rest is written, all in one step.
    fn zero(&self, offset: u64, length: u32, fua: bool, reply: Reply) {
        let length = u64::from(length);
        let span = self.enclosing(offset, length);
        let (head, tail) = kept_bytes(offset, length);
        let (first, end) = (offset.div_ceil(BLOCK), (offset + length) / BLOCK);
        let whole = Span {
            first,
            count: end.saturating_sub(first),
            ..span
        };
        if (head, tail) == (0, 0) {
            self.send(Pending::plain(reply), |token| Event::Zero {
                token,
                span,
                force_unit_access: fua,
            });
        } else if whole.count == 0 {
            self.write(offset, vec![0; length as usize], fua, reply);
        } else {
            let buffer = vec![0; ((span.count - whole.count) * BLOCK) as usize];
            self.write_partly(span, buffer, (head, tail), Some(whole), fua, reply);
        }
    }
}

/// Bytes that a request leaves alone in its first block, and in its last.
fn kept_bytes(offset: u64, length: u64) -> (usize, usize) {
    let (start, end) = (offset % BLOCK, (offset + length) % BLOCK);
    (start as usize, ((BLOCK - end) % BLOCK) as usize)
}

/// An answer of the core in NBD's terms.
fn nbd_answer(result: Result<Answer, Refusal>, data: Data) -> Result<nbd::Answer, NbdError> {
    match (result, data) {
        (
            Ok(Answer::Read),
            Data::Read {
                mut buffer,
                skip,
                length,
            },
        ) => {
            buffer.truncate(skip + length);
            if skip > 0 {
                buffer.drain(..skip);
            }
            Ok(nbd::Answer::Data(buffer))
        }
        (Ok(Answer::Status(runs)), Data::Status { skip, length }) => {
            Ok(nbd::Answer::Extents(extents(&runs, skip, length)))
        }
        (Ok(_), _) => Ok(nbd::Answer::Done),
        (Err(refusal), _) => Err(nbd_error(&refusal)),
    }
}

fn extents(runs: &[StatusRun], skip: u64, length: u64) -> Vec<nbd::Extent> {
    let (mut skip, mut left) = (skip, length);
    let mut extents = Vec::with_capacity(runs.len());
    for run in runs {
        let bytes = (run.count * BLOCK).saturating_sub(skip).min(left);
        skip = skip.saturating_sub(run.count * BLOCK);
        left -= bytes;
        if bytes > 0 {
            extents.push(nbd::Extent {
                length: bytes as u32,
                hole: !run.mapped,
                zero: !run.mapped,
            });
        }
    }
    extents
}

/// What a client is told. ENOMEM means "try again": the tgt plugin turns it into BUSY.
fn nbd_error(refusal: &Refusal) -> NbdError {
    match refusal {
        Refusal::OutOfRange { .. } | Refusal::VolumeExists(_) | Refusal::TooLarge(_) => NbdError::Invalid,
        // The volume was deleted under its client.
        Refusal::UnknownVolume(_) => NbdError::Shutdown,
        Refusal::Busy | Refusal::CloudUnavailable(_) => NbdError::NoMem,
        Refusal::Lost { .. }
        | Refusal::Disk(_)
        | Refusal::Metadata(_)
        | Refusal::NoRecoveryPoints
        | Refusal::Failed(_) => NbdError::Io,
    }
}
