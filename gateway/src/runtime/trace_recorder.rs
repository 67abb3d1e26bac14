//! Records what clients ask for into a trace file (docs/FORMAT.md, "Traces"), for the simulator.
//!
//! A client's thread looks at one flag; while nothing is recorded that is all. While something is, it puts the request
//! into a bounded queue, and where the queue is full the record is dropped and counted: recording never waits, and
//! never makes a client wait. One thread takes all that is in the queue at a time, makes names for the contents, and
//! writes: the lock is held for one record, or for the exchange of two lists.
//!
//! Contents are named by SHA-256 over a salt and the block's sum. The salt is drawn for each trace and kept nowhere, so
//! that a trace tells which of its blocks are equal, and nothing else of them.

use super::open::fresh_identity;
use crate::admin::model::{ControlError, ErrorKind, TraceState, TraceStatus};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tombolo_base::{BlockSum, Fingerprint, VolumeId};
use tombolo_core::{ClientId, Event, Span};
use tombolo_trace::columnar::{FileHeader, Writer};
use tombolo_trace::{Operation, Record};

/// Requests that wait to be taken from the queue; as many may have been taken and wait to be written.
const QUEUE_REQUESTS_MAX: usize = 1 << 14;
/// Sums that wait with them, 8 MiB.
const QUEUE_SUMS_MAX: usize = 1 << 19;
/// The writer looks into the queue as often: were it woken for each request, the client would pay for that.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// A reader of the unfinished file misses no more than this.
const CHUNK_AGE_MAX: Duration = Duration::from_secs(5);
/// What a request may add to the file: NBD allows 32 MiB, that is names of 8192 blocks.
const RECORD_BYTES_MAX: u64 = 1 << 17;
const BLOCK_BYTES: u64 = tombolo_base::BLOCK_BYTES as u64;

#[derive(Default)]
pub struct Recorder {
    is_active: Arc<AtomicBool>,
    queue: Arc<Mutex<Queue>>,
    /// The latest recording.
    recording: Mutex<Option<Recording>>,
    /// Held by whoever starts or stops.
    change: Mutex<()>,
}

struct Recording {
    path: PathBuf,
    bytes_max: u64,
    thread: Option<JoinHandle<()>>,
    counts: Arc<Counts>,
}

/// How far the writer has come.
#[derive(Default)]
struct Counts {
    records: AtomicU64,
    dropped: AtomicU64,
    bytes: AtomicU64,
    end: Mutex<Option<End>>,
}

/// Why the writer has ended.
#[derive(Clone, Debug)]
enum End {
    Stopped,
    Full,
    Failed(String),
}

/// From the clients' threads to the writer.
#[derive(Default)]
struct Queue {
    /// Time zero of the recording; `None`: it was stopped, or there is none.
    began: Option<Instant>,
    waiting: Batch,
}

/// Requests on their way to the file, in their order.
#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    /// Those of all entries, one after the other.
    sums: Vec<Option<BlockSum>>,
    /// Requests for which there was no room, after the last entry or between any.
    dropped: u64,
}

struct Entry {
    time_us: u64,
    operation: Operation,
    client: ClientId,
    span: Span,
    sum_count: usize,
}

impl Queue {
    fn put(&mut self, operation: Operation, client: ClientId, span: Span, sums: &[Option<BlockSum>]) {
        let Some(began) = self.began else {
            return;
        };
        let Batch {
            entries,
            sums: waiting_sums,
            dropped,
        } = &mut self.waiting;
        if entries.len() == QUEUE_REQUESTS_MAX || waiting_sums.len() + sums.len() > QUEUE_SUMS_MAX {
            *dropped += 1;
            return;
        }
        waiting_sums.extend_from_slice(sums);
        entries.push(Entry {
            // Taken under the lock, so that times do not go back in the file.
            time_us: began.elapsed().as_micros() as u64,
            operation,
            client,
            span,
            sum_count: sums.len(),
        });
    }
}

impl Batch {
    /// As large as the queue gets, so that no client waits while a list is moved to where it can grow. Memory that is not
    /// used is not touched.
    fn with_room() -> Self {
        Self {
            entries: Vec::with_capacity(QUEUE_REQUESTS_MAX),
            sums: Vec::with_capacity(QUEUE_SUMS_MAX),
            dropped: 0,
        }
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.sums.clear();
        self.dropped = 0;
    }
}

impl Recorder {
    /// Notes what a client asks for.
    pub fn note(&self, client: ClientId, event: &Event) {
        if self.is_active.load(Ordering::Relaxed) {
            self.note_event(client, event);
        }
    }

    #[cold]
    fn note_event(&self, client: ClientId, event: &Event) {
        match event {
            Event::Read { span, .. } => self.put(client, Operation::Read, *span, &[]),
            Event::Write { request, .. } => self.put(client, Operation::Write, request.span, &request.sums),
            // What the blocks will hold is not known yet.
            Event::WritePartly { write, .. } => {
                let written = write.written().into_iter().filter(|span| span.count > 0);
                written.for_each(|span| self.put(client, Operation::Write, span, &[]));
                let zeroes = write.zeroes.into_iter();
                zeroes.for_each(|span| self.put(client, Operation::Discard, span, &[]));
            }
            Event::Zero { span, .. } => self.put(client, Operation::Discard, *span, &[]),
            Event::Flush { .. } => self.put(client, Operation::Flush, NOTHING, &[]),
            Event::Commit { change, .. } => {
                let holes = change.holes.iter();
                holes.for_each(|span| self.put(client, Operation::Discard, *span, &[]));
            }
            _ => {}
        }
    }

    fn put(&self, client: ClientId, operation: Operation, span: Span, sums: &[Option<BlockSum>]) {
        lock(&self.queue).put(operation, client, span, sums);
    }

    /// Begins to record into a new file.
    pub fn start(&self, path: &Path, bytes_max: u64) -> Result<TraceStatus, ControlError> {
        let _change = lock(&self.change);
        if self.status().state == TraceState::Recording {
            let message = "a trace is being recorded; stop it first";
            return Err(ControlError::new(ErrorKind::Busy, message));
        }
        self.end();
        let refuse = |error: io::Error| {
            let kind = match error.kind() {
                io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
                _ => ErrorKind::Invalid,
            };
            ControlError::new(kind, format!("{}: {error}", path.display()))
        };
        let counts = Arc::new(Counts::default());
        let job = WriterJob {
            writer: open(path).map_err(refuse)?,
            salt: salt().map_err(refuse)?,
            queue: self.queue.clone(),
            counts: counts.clone(),
            bytes_max,
        };
        *lock(&self.queue) = Queue {
            began: Some(Instant::now()),
            waiting: Batch::with_room(),
        };
        let is_active = self.is_active.clone();
        let work = move || job.run(&is_active);
        let thread = thread::Builder::new()
            .name("trace".into())
            .spawn(work)
            .map_err(refuse)?;
        *lock(&self.recording) = Some(Recording {
            path: path.to_owned(),
            bytes_max,
            thread: Some(thread),
            counts,
        });
        self.is_active.store(true, Ordering::Relaxed);
        tracing::info!(path = %path.display(), "recording a trace");
        Ok(self.status())
    }

    /// Ends the recording and waits until the file is whole.
    pub fn stop(&self) -> TraceStatus {
        let _change = lock(&self.change);
        self.end();
        self.status()
    }

    fn end(&self) {
        self.is_active.store(false, Ordering::Relaxed);
        lock(&self.queue).began = None;
        let thread = lock(&self.recording)
            .as_mut()
            .and_then(|recording| recording.thread.take());
        // Without the lock: clients do not wait for the disk.
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the recorder's thread panicked");
        }
    }

    pub fn status(&self) -> TraceStatus {
        let recording = lock(&self.recording);
        let Some(recording) = &*recording else {
            return TraceStatus::default();
        };
        let counts = &recording.counts;
        let (state, error) = match &*lock(&counts.end) {
            None => (TraceState::Recording, None),
            Some(End::Stopped) => (TraceState::Finished, None),
            Some(End::Full) => (TraceState::Full, None),
            Some(End::Failed(reason)) => (TraceState::Failed, Some(reason.clone())),
        };
        TraceStatus {
            state,
            path: Some(recording.path.display().to_string()),
            records: counts.records.load(Ordering::Relaxed),
            dropped: counts.dropped.load(Ordering::Relaxed),
            bytes: counts.bytes.load(Ordering::Relaxed),
            bytes_max: recording.bytes_max,
            error,
        }
    }
}

const NOTHING: Span = Span {
    volume: VolumeId(0),
    first: 0,
    count: 0,
};

type TraceWriter = Writer<BufWriter<File>>;

fn open(path: &Path) -> io::Result<TraceWriter> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let header = FileHeader {
        identity: fresh_identity(),
        began_us: since_epoch.as_micros() as u64,
        ..FileHeader::default()
    };
    Writer::new(BufWriter::new(file), header)
}

/// Without entropy there is no trace: it would give contents away.
fn salt() -> io::Result<[u8; 32]> {
    let mut salt = [0; 32];
    // SAFETY: the buffer is ours and as long as said.
    match unsafe { libc::getrandom(salt.as_mut_ptr().cast(), salt.len(), 0) } {
        32 => Ok(salt),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The thread that writes.
struct WriterJob {
    writer: TraceWriter,
    salt: [u8; 32],
    queue: Arc<Mutex<Queue>>,
    counts: Arc<Counts>,
    bytes_max: u64,
}

impl WriterJob {
    fn run(mut self, is_active: &AtomicBool) {
        let result = self.write_all();
        is_active.store(false, Ordering::Relaxed);
        *lock(&self.queue) = Queue::default();
        let counts = self.counts.clone();
        let end = match result.and_then(|end| self.finish().map(|()| end)) {
            Ok(end) => end,
            Err(error) => {
                tracing::error!(%error, "the recording of the trace ends here");
                End::Failed(error.to_string())
            }
        };
        *lock(&counts.end) = Some(end);
    }

    /// Until the recording is stopped, or the file is as large as it may be.
    fn write_all(&mut self) -> io::Result<End> {
        let mut chunk_due = Instant::now() + CHUNK_AGE_MAX;
        let mut batch = Batch::with_room();
        loop {
            let is_stopped = self.take(&mut batch);
            if !self.write_batch(&batch)? {
                return Ok(End::Full);
            }
            if is_stopped {
                return Ok(End::Stopped);
            }
            if Instant::now() >= chunk_due {
                self.writer.end_chunk()?;
                self.writer.get_mut().flush()?;
                chunk_due = Instant::now() + CHUNK_AGE_MAX;
            }
            if batch.entries.is_empty() {
                thread::sleep(LOOK_INTERVAL);
            }
        }
    }

    /// Takes what waits, in exchange for the memory of what is written. Whether nothing more will come.
    fn take(&self, batch: &mut Batch) -> bool {
        batch.clear();
        let mut queue = lock(&self.queue);
        std::mem::swap(&mut queue.waiting, batch);
        queue.began.is_none()
    }

    /// Whether the file has room for more.
    fn write_batch(&mut self, batch: &Batch) -> io::Result<bool> {
        let mut sums = batch.sums.as_slice();
        for entry in &batch.entries {
            let (own, others) = sums.split_at(entry.sum_count);
            sums = others;
            self.write(entry, own)?;
            if self.writer.bytes_at_most() + RECORD_BYTES_MAX >= self.bytes_max {
                return Ok(false);
            }
        }
        self.writer.dropped(batch.dropped);
        self.counts.dropped.fetch_add(batch.dropped, Ordering::Relaxed);
        Ok(true)
    }

    fn write(&mut self, entry: &Entry, sums: &[Option<BlockSum>]) -> io::Result<()> {
        let Span { volume, first, count } = entry.span;
        let name = |sum: &Option<BlockSum>| sum.map_or(0, |sum| name_of(&self.salt, sum));
        let record = Record {
            time_us: entry.time_us,
            operation: entry.operation,
            client: entry.client.0,
            volume: volume.0,
            first,
            count,
            bytes: count.saturating_mul(BLOCK_BYTES),
            contents: sums.iter().map(name).collect(),
        };
        self.writer.push(&record)?;
        let counts = &self.counts;
        counts.records.store(self.writer.records(), Ordering::Relaxed);
        counts.bytes.store(self.writer.bytes(), Ordering::Relaxed);
        Ok(())
    }

    fn finish(self) -> io::Result<()> {
        let counts = self.counts;
        let file = self
            .writer
            .finish()?
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        counts.bytes.store(file.metadata()?.len(), Ordering::Relaxed);
        Ok(())
    }
}

/// Never zero, which names a block of zeroes.
fn name_of(salt: &[u8; 32], sum: BlockSum) -> u64 {
    let mut salted = [0; 40];
    salted[..32].copy_from_slice(salt);
    salted[32..].copy_from_slice(&sum.0.to_le_bytes());
    let mut name = [0; 8];
    name.copy_from_slice(&Fingerprint::of(&salted).0[..8]);
    u64::from_le_bytes(name).max(1)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
