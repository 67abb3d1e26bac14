//! Entries and block maps for the file service: [`Storage`] over the core.

use super::Gateway;
use super::requests::{AnswerCall, Data, Pending, Reply};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use tombolo_base::{BLOCK_BYTES, BlockSum, VolumeId, is_zero};
use tombolo_core::checkpoint::{MetadataRead, Table, map_key};
use tombolo_core::{
    Answer, ClientId, Core, EntryScan, Event, LinkRun, MetadataChange, PAGE_ENTRIES, Refusal, ResolvedRun, Source,
    Span, Token,
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
        self.commit_with(change, Vec::new())
    }

    fn write(
        &self,
        span: FileSpan,
        data: Bytes,
        sums: Vec<Option<BlockSum>>,
        change: Change,
    ) -> Result<(), StorageError> {
        let span = core_span(span);
        let change = core_change(change);
        let event = |token| Event::Write {
            token,
            span,
            sums,
            force_unit_access: false,
            locked: false,
            change,
        };
        self.ask(Data::Write { buffer: data }, event).map(|_| ())
    }

    fn read(&self, session: u64, span: FileSpan, done: ReadDone) {
        let client = client_of(session);
        let span = core_span(span);
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

    fn map(&self, span: FileSpan) -> Result<Vec<MapRun>, StorageError> {
        let mut runs: Vec<MapRun> = Vec::new();
        let mut push = |count, mapped| match runs.last_mut() {
            Some(last) if last.mapped == mapped => last.count += count,
            _ => runs.push(MapRun { count, mapped }),
        };
        let mut rest = core_span(span);
        while let Some(skipped) = self.next_look(&rest)? {
            if skipped > 0 {
                push(skipped, false);
                rest = behind(rest, skipped);
                continue;
            }
            let Answer::Status(found) = self.ask(Data::None, |token| Event::Status { token, span: rest })? else {
                return Err(no_map());
            };
            rest = behind(rest, found.iter().map(|run| run.count).sum());
            found.iter().for_each(|run| push(run.count, run.mapped));
        }
        Ok(runs)
    }

    fn link(&self, from: FileSpan, to_inode: u64, to_first: u64, change: Change) -> Result<(), StorageError> {
        let (mut holes, mut links) = (change.holes, Vec::new());
        let mut first = to_first;
        let mut source = from.first;
        for run in self.resolve(core_span(from))? {
            let to = FileSpan {
                inode: to_inode,
                first,
                count: run.count,
            };
            match run.source {
                Source::Hole => holes.push(to),
                Source::Stored(pvbn) => links.push(LinkRun {
                    volume: VolumeId::of_inode(to_inode),
                    first,
                    count: run.count,
                    pvbn,
                }),
                // It may still turn out to be a duplicate and move: its contents are copied within the cache, and
                // deduplication makes them one again.
                Source::Dirty => self.copy(FileSpan { first: source, ..to }, from.inode, to)?,
            }
            first += run.count;
            source += run.count;
        }
        let entries = change.entries;
        self.commit_with(Change { entries, holes }, links)
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

    fn commit_with(&self, change: Change, links: Vec<LinkRun>) -> Result<(), StorageError> {
        let change = core_change(change);
        let event = |token| Event::Commit { token, change, links };
        self.ask(Data::None, event).map(|_| ())
    }

    fn resolve(&self, span: Span) -> Result<Vec<ResolvedRun>, StorageError> {
        let mut runs = Vec::new();
        let mut rest = span;
        while let Some(skipped) = self.next_look(&rest)? {
            if skipped > 0 {
                runs.push(ResolvedRun {
                    count: skipped,
                    source: Source::Hole,
                });
                rest = behind(rest, skipped);
                continue;
            }
            let Answer::Resolved(found) = self.ask(Data::None, |token| Event::Resolve { token, span: rest })? else {
                return Err(no_map());
            };
            rest = behind(rest, found.iter().map(|run| run.count).sum());
            runs.extend(found);
        }
        Ok(runs)
    }

    /// How many blocks of the span can be skipped as holes before the core is asked; `None` at its end. A file may be
    /// vast and nearly empty.
    fn next_look(&self, rest: &Span) -> Result<Option<u64>, StorageError> {
        Ok(match rest.count {
            0 => None,
            1..=PAGE_ENTRIES => Some(0),
            _ => Some(self.next_candidate(*rest)? - rest.first),
        })
    }

    /// The first block of the span that may be mapped, else its end.
    fn next_candidate(&self, span: Span) -> Result<u64, StorageError> {
        let changed = self.0.core().next_changed_block(span);
        let stored = self.next_stored_page(span.volume, span.first / PAGE_ENTRIES)?;
        let stored = stored.map(|page| (page * PAGE_ENTRIES).max(span.first));
        let next = [changed, stored].into_iter().flatten().min();
        Ok(next.unwrap_or(u64::MAX).min(span.end()))
    }

    fn copy(&self, from: FileSpan, from_inode: u64, to: FileSpan) -> Result<(), StorageError> {
        let mut done = 0;
        while done < to.count {
            let count = COPY_BLOCKS_MAX.min(to.count - done);
            let part = |inode, first| FileSpan { inode, first, count };
            let data = self.read_now(part(from_inode, from.first + done))?;
            let sums = data
                .chunks_exact(BLOCK_BYTES)
                .map(|block| (!is_zero(block)).then(|| BlockSum::of(block)))
                .collect();
            self.write(part(to.inode, to.first + done), data.into(), sums, Change::default())?;
            done += count;
        }
        Ok(())
    }

    fn read_now(&self, span: FileSpan) -> Result<Vec<u8>, StorageError> {
        let (sender, receiver) = sync_channel(1);
        self.read(
            NO_SESSION,
            span,
            Box::new(move |result| {
                let _ = sender.send(result);
            }),
        );
        receiver
            .recv()
            .unwrap_or_else(|_| Err(StorageError::Failed("the gateway is stopping".into())))
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

/// The span without its first blocks.
fn behind(span: Span, count: u64) -> Span {
    Span {
        first: span.first + count,
        count: span.count - count,
        ..span
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

fn metadata_error(error: heed::Error) -> StorageError {
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
