//! Entries and block maps for the file service: [`CoreAccess`] over the gateway.

use crate::runtime::requests::{AnswerCall, Data, Pending, Reply};
use crate::runtime::{Gateway, RecordError};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use tombolo_base::{BLOCK_BYTES, BlockSum, FlushMode, MetadataChange, Span, VolumeId};
use tombolo_core::local_metadata::{MetadataRead, Table, map_key};
use tombolo_core::{
    Answer, ClientId, Core, EntryScan, Event, LinkRun, MetadataError, ResolvedRun, StatusRun, Token, WriteRequest,
};
use tombolo_file_storage::{CoreAccess, storage_error};
use tombolo_files::storage::{Entry, NO_SESSION, ReadDone, StorageError, SyncDone};

/// What the file service works on.
pub type FileStorage = tombolo_file_storage::FileStorage<GatewayAccess>;

/// The gateway as the file service sees it.
#[derive(Clone)]
pub struct GatewayAccess(pub Arc<Gateway>);

/// From this number on clients are sessions; below it they are connections.
pub(crate) const SESSION_CLIENTS: u32 = 1 << 31;

/// Whose pattern a session's reads belong to.
fn client_of(session: u64) -> ClientId {
    match session {
        NO_SESSION => ClientId::default(),
        session => ClientId(SESSION_CLIENTS | session as u32),
    }
}

impl GatewayAccess {
    fn send(&self, data: Data, reply: Reply, event: impl FnOnce(Token) -> Event) {
        let token = self.0.requests.insert(Pending { data, reply });
        let event = event(token);
        self.0.recorder.note(client_of_event(&event), &event);
        self.0.submit(event);
    }

    /// Waits for the answer, which as a rule is there at once.
    fn ask(&self, data: Data, event: impl FnOnce(Token) -> Event) -> Result<Answer, StorageError> {
        let (sender, receiver) = sync_channel(1);
        self.send(data, Reply::Channel(sender), event);
        let answer = receiver
            .recv()
            .map_err(|_| StorageError::Failed("the gateway is stopping".into()))?;
        answer.map_err(|refusal| storage_error(&refusal))
    }

    fn read_core(&self, client: ClientId, span: Span, done: ReadDone) {
        let length = span.count as usize * BLOCK_BYTES;
        let data = Data::Read {
            buffer: vec![0; length],
            skip: 0,
            length,
        };
        let call: AnswerCall = Box::new(move |result, data| {
            done(match (result, data) {
                (Ok(_), Data::Read { buffer, .. }) => Ok(buffer),
                (Ok(_), _) => Err(StorageError::Failed("a read was answered without data".into())),
                (Err(refusal), _) => Err(storage_error(&refusal)),
            });
        });
        self.send(data, Reply::Call(call), |token| Event::Read { token, client, span });
    }
}

impl CoreAccess for GatewayAccess {
    /// 1 MiB.
    const COPY_BLOCKS_MAX: u64 = 256;

    fn entry(&self, key: &[u8]) -> Result<Option<Arc<[u8]>>, StorageError> {
        let known = self.0.core().entry(key);
        known.or_stored(|| self.0.metadata.entry(key).map_err(record_error))
    }

    fn entries(&self, from: &[u8], end: &[u8], limit: usize) -> Result<Vec<Entry>, StorageError> {
        let mut scan = EntryScan::new(from, end, limit);
        while scan.begin_round(&self.0.core()) {
            let stored = self.0.metadata.entries(scan.from(), scan.end(), scan.wanted());
            scan.end_round(stored.map_err(record_error)?);
        }
        Ok(scan.into_found())
    }

    fn sum(&self, key: &[u8]) -> Result<i64, StorageError> {
        Ok(self.0.core().counter(key))
    }

    /// Holds the core no longer than the question takes.
    fn ask_core<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Result<T, StorageError> {
        Ok(question(&self.0.core()))
    }

    /// Ends its transaction before it returns: a thread may have one at a time, and a map query needs one.
    fn next_stored_page(&self, volume: VolumeId, page: u64) -> Result<Option<u64>, StorageError> {
        let reading = self.0.metadata.read().map_err(record_error)?;
        let found = reading.ceiling(Table::Map, &map_key(volume, page));
        let found = found.map_err(metadata_error)?;
        let page = found.filter(|(key, _)| volume_of(key) == Some(volume));
        Ok(page.and_then(|(key, _)| page_of(&key)))
    }

    fn next_stored_map(&self, volume: VolumeId) -> Result<Option<VolumeId>, StorageError> {
        let reading = self.0.metadata.read().map_err(record_error)?;
        let found = reading.ceiling(Table::Map, &map_key(volume, 0));
        let found = found.map_err(metadata_error)?;
        Ok(found.and_then(|(key, _)| volume_of(&key)))
    }

    fn status(&self, span: Span) -> Result<Vec<StatusRun>, StorageError> {
        match self.ask(Data::None, |token| Event::Status { token, span })? {
            Answer::Status(found) => Ok(found),
            _ => Err(no_map()),
        }
    }

    fn resolve(&self, span: Span) -> Result<Vec<ResolvedRun>, StorageError> {
        match self.ask(Data::None, |token| Event::Resolve { token, span })? {
            Answer::Resolved(found) => Ok(found),
            _ => Err(no_map()),
        }
    }

    fn read_blocks(&self, span: Span) -> Result<Vec<u8>, StorageError> {
        let (sender, receiver) = sync_channel(1);
        let done: ReadDone = Box::new(move |result| {
            let _ = sender.send(result);
        });
        self.read_core(ClientId::default(), span, done);
        receiver
            .recv()
            .unwrap_or_else(|_| Err(StorageError::Failed("the gateway is stopping".into())))
    }

    fn begin_read(&self, session: u64, span: Span, done: ReadDone) {
        self.read_core(client_of(session), span, done);
    }

    fn write_blocks(
        &self,
        span: Span,
        data: Bytes,
        sums: Vec<Option<BlockSum>>,
        change: MetadataChange,
    ) -> Result<(), StorageError> {
        let event = |token| Event::Write {
            token,
            request: WriteRequest {
                change,
                ..WriteRequest::new(span, sums)
            },
        };
        self.ask(Data::Write { buffer: data }, event).map(|_| ())
    }

    fn commit_change(&self, change: MetadataChange, links: Vec<LinkRun>) -> Result<(), StorageError> {
        let event = |token| Event::Commit { token, change, links };
        self.ask(Data::None, event).map(|_| ())
    }

    fn begin_sync(&self, mode: FlushMode, done: SyncDone) {
        let call: AnswerCall = Box::new(move |result, _| {
            done(result.map(|_| ()).map_err(|refusal| storage_error(&refusal)));
        });
        self.send(Data::None, Reply::Call(call), |token| Event::Flush { token, mode });
    }
}

fn no_map() -> StorageError {
    StorageError::Failed("a map query was answered without a map".into())
}

/// Only reads tell whose they are.
fn client_of_event(event: &Event) -> ClientId {
    match event {
        Event::Read { client, .. } => *client,
        _ => ClientId::default(),
    }
}

fn volume_of(key: &[u8]) -> Option<VolumeId> {
    let bytes = key.get(..8)?.try_into().ok()?;
    Some(VolumeId(u64::from_be_bytes(bytes)))
}

fn page_of(key: &[u8]) -> Option<u64> {
    let bytes = key.get(8..16)?.try_into().ok()?;
    Some(u64::from_be_bytes(bytes))
}

/// What the core would refuse a request with that needs the same.
fn metadata_error(error: MetadataError) -> StorageError {
    storage_error(&error.into())
}

fn record_error(error: impl Into<RecordError>) -> StorageError {
    metadata_error(error.into().into())
}

#[cfg(test)]
mod tests;
