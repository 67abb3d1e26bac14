//! Entries and block maps for the file service: [`Storage`] over the core.

use super::Gateway;
use super::requests::{AnswerCall, Data, Pending, Reply};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use tombolo_base::{BLOCK_BYTES, BlockSum, VolumeId};
use tombolo_core::checkpoint::{MetadataRead, Table, map_key};
use tombolo_core::{
    Answer, ClientId, Core, EntryScan, Event, Link, LinkRun, LinkStep, MapWalk, MetadataChange, PAGE_ENTRIES, Refusal,
    Span, Token, WalkStep,
};
use tombolo_files::storage::{Change, Entry, FileSpan, MapRun, NO_SESSION, ReadDone, Storage, StorageError, SyncDone};

/// The gateway as the file service sees it.
#[derive(Clone)]
pub struct FileStorage(pub Arc<Gateway>);

/// Dirty blocks are copied by as many at a time, 1 MiB.
const COPY_BLOCKS_MAX: u64 = 256;
/// From this number on clients are sessions; below it they are connections.
pub(super) const SESSION_CLIENTS: u32 = 1 << 31;

/// Whose pattern a session's reads belong to.
fn client_of(session: u64) -> ClientId {
    match session {
        NO_SESSION => ClientId::default(),
        session => ClientId(SESSION_CLIENTS | session as u32),
    }
}

impl Storage for FileStorage {
    fn get(&self, key: &[u8]) -> Result<Option<Arc<[u8]>>, StorageError> {
        let known = self.0.core().entry(key);
        known.or_stored(|| self.0.metadata.entry(key).map_err(metadata_error))
    }

    fn scan(&self, from: &[u8], end: &[u8], limit: usize) -> Result<Vec<Entry>, StorageError> {
        let mut scan = EntryScan::new(from, end, limit);
        while self.ask_core(|core| scan.begin_round(core)) {
            let stored = self.0.metadata.entries(scan.from(), scan.end(), scan.wanted());
            scan.end_round(stored.map_err(metadata_error)?);
        }
        Ok(scan.into_found())
    }

    fn counter(&self, key: &[u8]) -> Result<i64, StorageError> {
        Ok(self.0.core().counter(key))
    }

    fn commit(&self, change: Change) -> Result<(), StorageError> {
        self.commit_core(core_change(change), Vec::new())
    }

    fn write(
        &self,
        span: FileSpan,
        data: Bytes,
        sums: Vec<Option<BlockSum>>,
        change: Change,
    ) -> Result<(), StorageError> {
        self.write_core(core_span(span), data, sums, core_change(change))
    }

    fn read(&self, session: u64, span: FileSpan, done: ReadDone) {
        self.read_core(client_of(session), core_span(span), done);
    }

    fn map(&self, span: FileSpan) -> Result<Vec<MapRun>, StorageError> {
        let mut runs: Vec<MapRun> = Vec::new();
        let mut push = |count, mapped| match runs.last_mut() {
            _ if count == 0 => {}
            Some(last) if last.mapped == mapped => last.count += count,
            _ => runs.push(MapRun { count, mapped }),
        };
        let mut walk = MapWalk::new(core_span(span));
        loop {
            match self.ask_core(|core| walk.step(core)) {
                WalkStep::StoredPage { volume, page } => {
                    let skipped = walk.on_stored_page(self.next_stored_page(volume, page)?);
                    push(skipped, false);
                }
                WalkStep::Ask(span) => {
                    let Answer::Status(found) = self.ask(Data::None, |token| Event::Status { token, span })? else {
                        return Err(no_map());
                    };
                    walk.advance(found.iter().map(|run| run.count).sum());
                    found.iter().for_each(|run| push(run.count, run.mapped));
                }
                WalkStep::Done => return Ok(runs),
            }
        }
    }

    fn link(&self, from: FileSpan, to_inode: u64, to_first: u64, change: Change) -> Result<(), StorageError> {
        let from = core_span(from);
        let to = Span {
            volume: VolumeId::of_inode(to_inode),
            first: to_first,
            count: from.count,
        };
        let mut link = Link::new(from, to, core_change(change), COPY_BLOCKS_MAX);
        loop {
            match self.ask_core(|core| link.step(core)) {
                LinkStep::StoredPage { volume, page } => link.on_stored_page(self.next_stored_page(volume, page)?),
                LinkStep::Resolve(span) => {
                    let Answer::Resolved(found) = self.ask(Data::None, |token| Event::Resolve { token, span })? else {
                        return Err(no_map());
                    };
                    link.on_resolved(&found);
                }
                LinkStep::Copy { from, to } => {
                    self.copy(from, to)?;
                    link.on_copied();
                }
                LinkStep::Commit { change, links } => return self.commit_core(change, links),
            }
        }
    }

    fn next_mapped(&self, from: u64) -> Result<Option<u64>, StorageError> {
        let mut from = from;
        loop {
            let volume = VolumeId::of_inode(from);
            let stored = self.next_stored_map(volume)?;
            let changed = self.0.core().next_changed_map(volume);
            let Some(inode) = [stored, changed].into_iter().flatten().min().and_then(VolumeId::inode) else {
                return Ok(None);
            };
            // Local metadata may hold pages that newer holes cover.
            if self.has_mapped_blocks(inode)? {
                return Ok(Some(inode));
            }
            from = inode + 1;
        }
    }

    fn sync(&self, done: SyncDone) {
        let call: AnswerCall = Box::new(move |result, _| {
            done(result.map(|_| ()).map_err(|refusal| storage_error(&refusal)));
        });
        self.send(Data::None, call, |token| Event::Flush { token });
    }
}

impl FileStorage {
    fn send(&self, data: Data, call: AnswerCall, event: impl FnOnce(Token) -> Event) {
        let reply = Reply::Call(call);
        let token = self.0.requests.insert(Pending { data, reply });
        let event = event(token);
        self.0.recorder.note(client_of_event(&event), &event);
        self.0.drive(event);
    }

    /// Holds the core no longer than the question takes.
    fn ask_core<T>(&self, question: impl FnOnce(&Core) -> T) -> T {
        question(&self.0.core())
    }

    /// Waits for the answer, which as a rule is there at once.
    fn ask(&self, data: Data, event: impl FnOnce(Token) -> Event) -> Result<Answer, StorageError> {
        let (sender, receiver) = sync_channel(1);
        let reply = Reply::Channel(sender);
        let token = self.0.requests.insert(Pending { data, reply });
        let event = event(token);
        self.0.recorder.note(client_of_event(&event), &event);
        self.0.drive(event);
        let answer = receiver
            .recv()
            .map_err(|_| StorageError::Failed("the gateway is stopping".into()))?;
        answer.map_err(|refusal| storage_error(&refusal))
    }

    fn commit_core(&self, change: MetadataChange, links: Vec<LinkRun>) -> Result<(), StorageError> {
        let event = |token| Event::Commit { token, change, links };
        self.ask(Data::None, event).map(|_| ())
    }

    fn copy(&self, from: Span, to: Span) -> Result<(), StorageError> {
        let data = self.read_now(from)?;
        let sums = BlockSum::of_blocks(&data);
        self.write_core(to, data.into(), sums, MetadataChange::default())
    }

    fn write_core(
        &self,
        span: Span,
        data: Bytes,
        sums: Vec<Option<BlockSum>>,
        change: MetadataChange,
    ) -> Result<(), StorageError> {
        let event = |token| Event::Write {
            token,
            span,
            sums,
            force_unit_access: false,
            change,
        };
        self.ask(Data::Write { buffer: data }, event).map(|_| ())
    }

    fn read_now(&self, span: Span) -> Result<Vec<u8>, StorageError> {
        let (sender, receiver) = sync_channel(1);
        let done: ReadDone = Box::new(move |result| {
            let _ = sender.send(result);
        });
        self.read_core(ClientId::default(), span, done);
        receiver
            .recv()
            .unwrap_or_else(|_| Err(StorageError::Failed("the gateway is stopping".into())))
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
        self.send(data, call, |token| Event::Read { token, client, span });
    }

    /// The first volume from `volume` on of which local metadata has a page.
    fn next_stored_map(&self, volume: VolumeId) -> Result<Option<VolumeId>, StorageError> {
        let reading = self.0.metadata.read().map_err(metadata_error)?;
        let found = reading.ceiling(Table::Map, &map_key(volume, 0));
        let found = found.map_err(StorageError::Failed)?;
        Ok(found.and_then(|(key, _)| volume_of(&key)))
    }

    fn has_mapped_blocks(&self, inode: u64) -> Result<bool, StorageError> {
        let volume = VolumeId::of_inode(inode);
        if self.0.core().has_changed_map(volume) {
            return Ok(true);
        }
        let mut page = 0;
        while let Some(number) = self.next_stored_page(volume, page)? {
            let span = FileSpan {
                inode,
                first: number * PAGE_ENTRIES,
                count: PAGE_ENTRIES,
            };
            if self.map(span)?.iter().any(|run| run.mapped) {
                return Ok(true);
            }
            page = number + 1;
        }
        Ok(false)
    }

    /// Ends its transaction before it returns: a thread may have one at a time, and a map query needs one.
    fn next_stored_page(&self, volume: VolumeId, page: u64) -> Result<Option<u64>, StorageError> {
        let reading = self.0.metadata.read().map_err(metadata_error)?;
        let found = reading.ceiling(Table::Map, &map_key(volume, page));
        let found = found.map_err(StorageError::Failed)?;
        let page = found.filter(|(key, _)| volume_of(key) == Some(volume));
        Ok(page.and_then(|(key, _)| page_of(&key)))
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

fn core_span(span: FileSpan) -> Span {
    Span {
        volume: VolumeId::of_inode(span.inode),
        first: span.first,
        count: span.count,
    }
}

fn core_change(change: Change) -> MetadataChange {
    MetadataChange {
        entries: change.entries,
        holes: change.holes.into_iter().map(core_span).collect(),
    }
}

fn metadata_error(error: impl std::fmt::Display) -> StorageError {
    StorageError::Failed(format!("local metadata: {error}"))
}

fn storage_error(refusal: &Refusal) -> StorageError {
    let reason = refusal.to_string();
    match refusal {
        Refusal::Busy | Refusal::CloudUnavailable(_) => StorageError::Busy(reason),
        Refusal::Lost { .. } => StorageError::Lost(reason),
        Refusal::OutOfRange { .. }
        | Refusal::UnknownVolume(_)
        | Refusal::VolumeExists(_)
        | Refusal::TooLarge(_)
        | Refusal::Disk(_)
        | Refusal::Metadata(_)
        | Refusal::Failed(_) => StorageError::Failed(reason),
    }
}

#[cfg(test)]
#[path = "files/tests.rs"]
mod tests;
