//! Carries out the core's commands. What needs no waiting is done here and now, and its outcome joins `events`; the
//! rest goes to workers, which submit events themselves when they are done.

use super::Gateway;
use super::metadata::{Reading, RecordError};
use super::requests::{Data, Pending, Reply};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tombolo_base::{BLOCK_BYTES, BlockSum, Lcbn};
use tombolo_core::local_metadata::{MetadataFault, load_descriptor, load_map_page};
use tombolo_core::{
    Answer, Command, DiskError, Event, JournalMark, JournalWrite, MetadataError, ReadPiece, Refusal, Token, WritePiece,
};

/// Between two looks whether a full disk has room again.
/// Each look takes what room there is for a moment.
const FULL_DISK_RETRY: Duration = Duration::from_secs(1);

const SPARE_SEGMENT: &str = "the journal's next segment";

impl Gateway {
    pub(super) fn execute(self: &Arc<Self>, command: Command, events: &mut Vec<Event>) {
        match command {
            Command::Answer { token, result } => self.answer(token, result),
            Command::WriteSlots { token, pieces } => events.push(self.write_slots(token, &pieces)),
            Command::ReadSlots { token, pieces } => self.read_slots(token, pieces, events),
            Command::Merge { token } => {
                let sums = self.requests.merge(token);
                events.push(Event::Merged { token, sums });
            }
            Command::WriteJournal(write) => events.extend(self.write_journal(write)),
            Command::Sync { mark } => self.sync(mark),
            Command::TrimJournal { keep_from } => {
                let gateway = self.clone();
                self.checkpointing.run(move || {
                    if let Err(error) = gateway.journal.remove_below(keep_from) {
                        tracing::warn!(%error, keep_from, "old journal segments could not be removed");
                    }
                });
            }
            Command::LoadPage {
                volume,
                page,
                generation,
            } => {
                let load = move |reading: &Reading<'_>| load_map_page(reading, volume, page);
                let loaded = move |result| Event::PageLoaded {
                    volume,
                    page,
                    generation,
                    result,
                };
                self.load_record(load, loaded, events);
            }
            Command::LoadDescriptor { pvbn } => {
                let load = move |reading: &Reading<'_>| {
                    load_descriptor(reading, pvbn).map(|descriptor| descriptor.map(Arc::new))
                };
                let loaded = move |result| Event::DescriptorLoaded { pvbn, result };
                self.load_record(load, loaded, events);
            }
            Command::Fetch {
                fetch,
                descriptor,
                items,
                demand,
            } => self.fetch(fetch, descriptor, items, demand),
            Command::Hash { job, items } => self.hash(job, items),
            Command::Upload { job, items } => self.upload(job, items),
            // Done under the core's lock.
            Command::Remember { .. } => {}
            Command::Forget { blocks } => self.forget_fingerprints(blocks),
            Command::Verify { job, descriptor } => self.verify(job, descriptor),
            Command::FindCopies { job, fingerprints } => self.find_copies(job, fingerprints),
            Command::TellLoss(loss) => self.tell_loss(&loss),
            Command::Checkpoint { frozen, pages_max } => self.checkpoint(frozen, pages_max),
            Command::Publish { point } => self.publish(point),
        }
    }

    /// `None`: there is no room now. Nothing is lost by that, so the write waits for room, and its clients with it.
    fn write_journal(self: &Arc<Self>, write: JournalWrite) -> Option<Event> {
        let result = match self.journal.write(&write) {
            Err(error) if is_full(&error) => {
                let gateway = self.clone();
                self.journaling.run(move || gateway.write_journal_waiting(&write));
                return None;
            }
            result => result,
        };
        if write.offset == 0 {
            self.make_spare_segment(write.segment + 1);
        }
        Some(journal_written(&write, result))
    }

    fn write_journal_waiting(self: &Arc<Self>, write: &JournalWrite) {
        let result = self.wait_for_room("the journal", write.segment, false, || self.journal.write(write));
        self.make_spare_segment(write.segment + 1);
        self.submit(journal_written(write, result));
    }

    /// So that the next segment is there when the disk is full, and no write waits for its making.
    /// `segment` is the next to be begun.
    pub(super) fn make_spare_segment(self: &Arc<Self>, segment: u64) {
        let gateway = self.clone();
        self.journaling
            .run(move || gateway.make_spare_segment_waiting(segment, false));
    }

    /// The same at a start, when the first change may need the segment: the core hears before it that there is no room.
    pub(super) fn make_first_spare_segment(self: &Arc<Self>, segment: u64) {
        let error = self.journal.make_spare().err().filter(is_full);
        if let Some(error) = &error {
            self.report_no_room(SPARE_SEGMENT, segment, error);
        }
        let (gateway, is_told) = (self.clone(), error.is_some());
        self.journaling
            .run(move || gateway.make_spare_segment_waiting(segment, is_told));
    }

    fn make_spare_segment_waiting(self: &Arc<Self>, segment: u64, is_told: bool) {
        let made = self.wait_for_room(SPARE_SEGMENT, segment, is_told, || self.journal.make_spare());
        if let Err(error) = made {
            // Whoever needs it will find the same, and tell the core.
            tracing::warn!(%error, "the journal's next segment could not be made ahead");
        }
    }

    /// Until the disk has room for `what`, which `segment` needs. `is_told`: the core knows already that there is none.
    fn wait_for_room(
        self: &Arc<Self>,
        what: &str,
        segment: u64,
        mut is_told: bool,
        attempt: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        loop {
            match attempt() {
                Err(error) if is_full(&error) => {
                    if !is_told {
                        self.report_no_room(what, segment, &error);
                    }
                    is_told = true;
                    thread::sleep(FULL_DISK_RETRY);
                }
                result => {
                    if is_told {
                        tracing::info!("there is room for {what} again");
                        self.submit(Event::JournalHasRoom);
                    }
                    return result;
                }
            }
        }
    }

    /// What clients change then waits before it is in the journal's order, and can be refused.
    fn report_no_room(self: &Arc<Self>, what: &str, segment: u64, error: &io::Error) {
        tracing::warn!(%error, "no room for {what}; what clients change waits until there is some");
        self.submit(Event::JournalFull { segment });
    }

    fn answer(&self, token: Token, result: Result<Answer, Refusal>) {
        let Some(Pending { data, reply }) = self.requests.take(token) else {
            return;
        };
        if let Err(refusal) = &result {
            tracing::debug!(token = token.0, %refusal, "request refused");
        }
        self.reply(reply, result, data);
    }

    pub(crate) fn reply(&self, reply: Reply, result: Result<Answer, Refusal>, data: Data) {
        match reply {
            Reply::Channel(sender) => {
                let _ = sender.send(result);
            }
            Reply::Call(call) => call(result, data),
            Reply::Edge => {}
            Reply::Client(client, started) => {
                self.meters.observe(&started, result.is_ok());
                client.answer(result, data);
            }
        }
    }

    fn write_slots(&self, token: Token, pieces: &[WritePiece]) -> Event {
        let buffer = self.requests.take_written(token);
        let write = |piece: &WritePiece| {
            let start = piece.index as usize * BLOCK_BYTES;
            self.cache.write(
                piece.slots.first,
                &buffer[start..start + piece.slots.count as usize * BLOCK_BYTES],
            )
        };
        let result = pieces
            .iter()
            .try_for_each(write)
            .map_err(|error| disk_error("cache file write", &error));
        Event::SlotsWritten { token, result }
    }

    fn read_slots(self: &Arc<Self>, token: Token, pieces: Vec<ReadPiece>, events: &mut Vec<Event>) {
        let mut buffer = self.requests.take_buffer(token);
        let mut corrupt = Vec::new();
        for (done, piece) in pieces.iter().enumerate() {
            let bytes = piece_bytes(&mut buffer, piece);
            match self.cache.try_read(piece.slot, bytes) {
                Ok(true) => find_corrupt(piece, bytes, &mut corrupt),
                // The disk is slow and others wait on this thread: a worker reads the rest.
                Ok(false) => {
                    let gateway = self.clone();
                    return self
                        .io
                        .run(move || gateway.read_slots_waiting(token, &pieces[done..], buffer, corrupt));
                }
                Err(error) => {
                    return events.push(self.read_one_by_one(token, &pieces[done..], buffer, corrupt, &error));
                }
            }
        }
        self.requests.put_buffer(token, buffer);
        events.push(Event::SlotsRead {
            token,
            result: Ok(()),
            corrupt,
            unreadable: Vec::new(),
        });
    }

    /// After a failed read of a piece: what can be read is, and the core has copies of most of the rest elsewhere.
    fn read_one_by_one(
        &self,
        token: Token,
        pieces: &[ReadPiece],
        mut buffer: Vec<u8>,
        mut corrupt: Vec<Lcbn>,
        error: &io::Error,
    ) -> Event {
        let error = disk_error("cache file read", error);
        let mut unreadable = Vec::new();
        for block in pieces.iter().flat_map(blocks_of) {
            let bytes = piece_bytes(&mut buffer, &block);
            // Once more at once: what fails now and then is no bad sector.
            let read = self.cache.read(block.slot, bytes);
            match read.or_else(|_| self.cache.read(block.slot, bytes)) {
                Ok(()) => find_corrupt(&block, bytes, &mut corrupt),
                Err(_) => unreadable.push(block.slot),
            }
        }
        self.requests.put_buffer(token, buffer);
        Event::SlotsRead {
            token,
            result: match unreadable.is_empty() {
                true => Ok(()),
                false => Err(error),
            },
            corrupt,
            unreadable,
        }
    }

    fn read_slots_waiting(
        self: &Arc<Self>,
        token: Token,
        pieces: &[ReadPiece],
        mut buffer: Vec<u8>,
        mut corrupt: Vec<Lcbn>,
    ) {
        for (done, piece) in pieces.iter().enumerate() {
            let bytes = piece_bytes(&mut buffer, piece);
            match self.cache.read(piece.slot, bytes) {
                Ok(()) => find_corrupt(piece, bytes, &mut corrupt),
                Err(error) => {
                    return self.submit(self.read_one_by_one(token, &pieces[done..], buffer, corrupt, &error));
                }
            }
        }
        self.requests.put_buffer(token, buffer);
        self.submit(Event::SlotsRead {
            token,
            result: Ok(()),
            corrupt,
            unreadable: Vec::new(),
        });
    }

    /// Cache file and journal side by side: recovery checks the data of every record that was not yet known to be
    /// durable, so neither has to wait for the other. Whoever ends last tells the core, and answers.
    fn sync(self: &Arc<Self>, mark: JournalMark) {
        let needs_cache = self.cache.needs_sync();
        let under_way = Arc::new(SyncUnderWay {
            left: AtomicUsize::new(1 + usize::from(needs_cache)),
            result: Mutex::new(Ok(())),
        });
        if needs_cache {
            let (gateway, under_way) = (self.clone(), under_way.clone());
            self.cache_syncing.run(move || {
                let result = gateway.cache.sync();
                let result = result.map_err(|error| disk_error("cache file sync", &error));
                gateway.part_synced(mark, &under_way, result);
            });
        }
        let gateway = self.clone();
        self.syncing.run(move || {
            let result = gateway.journal.sync();
            let result = result.map_err(|error| disk_error("journal sync", &error));
            gateway.part_synced(mark, &under_way, result);
        });
    }

    fn part_synced(self: &Arc<Self>, mark: JournalMark, under_way: &SyncUnderWay, result: Result<(), DiskError>) {
        if let Some(result) = under_way.end_of_part(result) {
            self.synced(mark, result);
        }
    }

    fn synced(self: &Arc<Self>, mark: JournalMark, result: Result<(), DiskError>) {
        if result.is_ok() {
            self.cache.note_journal(mark);
        }
        self.submit(Event::Synced { result });
    }

    /// Here and now, unless the store has to be asked.
    fn load_record<T>(
        self: &Arc<Self>,
        load: impl Fn(&Reading<'_>) -> Result<T, MetadataFault<MetadataError>> + Send + 'static,
        loaded: impl FnOnce(Result<T, MetadataError>) -> Event + Send + 'static,
        events: &mut Vec<Event>,
    ) {
        let (found, is_lacking) = match self.metadata.read_kept() {
            Ok((reading, is_lacking)) => (load(&reading).map_err(MetadataError::from), is_lacking),
            Err(error) => (Err(RecordError::from(error).into()), Arc::default()),
        };
        if !is_lacking.load(Ordering::Relaxed) {
            return events.push(loaded(found));
        }
        // Many may have to wait for the few threads, and each as long as for data.
        let until = Instant::now() + self.cloud.patience;
        let gateway = self.clone();
        self.lacking.run(move || {
            let found = match gateway.metadata.read_until(until) {
                Ok(reading) => load(&reading).map_err(MetadataError::from),
                Err(error) => Err(RecordError::from(error).into()),
            };
            gateway.submit(loaded(found));
        });
    }
}

/// Of cache file and journal.
struct SyncUnderWay {
    left: AtomicUsize,
    result: Mutex<Result<(), DiskError>>,
}

impl SyncUnderWay {
    /// What became of both, told to the one that ends last.
    fn end_of_part(&self, part: Result<(), DiskError>) -> Option<Result<(), DiskError>> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        if result.is_ok() {
            *result = part;
        }
        let is_last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        is_last.then(|| result.clone())
    }
}

fn journal_written(write: &JournalWrite, result: io::Result<()>) -> Event {
    Event::JournalWritten {
        lsn: write.lsn,
        end: write.end,
        result: result.map_err(|error| disk_error("journal write", &error)),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn blocks_of(piece: &ReadPiece) -> impl Iterator<Item = ReadPiece> {
    (0u32..).zip(&piece.sums).map(|(offset, sum)| ReadPiece {
        index: piece.index + offset,
        slot: Lcbn(piece.slot.0 + offset),
        sums: vec![*sum],
    })
}

fn piece_bytes<'b>(buffer: &'b mut [u8], piece: &ReadPiece) -> &'b mut [u8] {
    let start = piece.index as usize * BLOCK_BYTES;
    &mut buffer[start..start + piece.sums.len() * BLOCK_BYTES]
}

/// Wrong bytes do not stay in the buffer: the block may be a hole by the time that it is looked for again.
fn find_corrupt(piece: &ReadPiece, bytes: &mut [u8], corrupt: &mut Vec<Lcbn>) {
    for (offset, (block, sum)) in (0u32..).zip(bytes.chunks_exact_mut(BLOCK_BYTES).zip(&piece.sums)) {
        if BlockSum::of(block) != *sum {
            block.fill(0);
            corrupt.push(Lcbn(piece.slot.0 + offset));
        }
    }
}

pub(super) fn disk_error(operation: &'static str, error: &io::Error) -> DiskError {
    tracing::error!(operation, %error, "local disk");
    DiskError {
        operation,
        reason: error.to_string(),
    }
}
