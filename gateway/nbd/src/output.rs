//! Replies of one connection, from any thread, and the count of what is in flight.
//!
//! Mechanism: a reply is queued; whoever finds nobody writing becomes the writer and sends all that is queued with as
//! few system calls as possible. Three kinds of thread write:
//!
//! | thread               | when the socket is full                                                        |
//! |----------------------|--------------------------------------------------------------------------------|
//! | the reading thread   | waits: it is this client's own. It gathers replies until it would wait anyway. |
//! | any completing one   | never waits: hands the rest to the connection's writer thread                  |
//! | the writer thread    | waits; exists from the first time it was needed                                |
//!
//! So a client that does not read its replies cannot hold up the owner of the data; if it takes nothing for too long, it
//! loses its connection and with it what it holds of the memory of all. A request counts as in flight until its reply is
//! written, so what queues here is within the connection's limits.
//!
//! Invariants: `writing` while exactly one thread holds a batch or a batch lies in `handover`; replies are queued
//! only for requests that were admitted.

use crate::protocol::reply::Reply;
use std::io::{self, IoSlice};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use tombolo_transport::{Account, Sink};

/// What the reading thread gathers before it writes.
const GATHERED_REPLIES_MAX: usize = 64;
const GATHERED_BYTES_MAX: usize = 256 * 1024;
/// Slices per system call: the head and body of [`GATHERED_REPLIES_MAX`] replies.
const SLICES_MAX: usize = 2 * GATHERED_REPLIES_MAX;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub requests_max: usize,
    pub bytes_max: usize,
}

pub struct Output {
    sink: Arc<dyn Sink>,
    limits: Limits,
    /// Its part of what all clients hold.
    account: Account,
    reader: ThreadId,
    queue: Mutex<Queue>,
    reader_wakes: Condvar,
    writer_wakes: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Queued>,
    waiting_bytes: usize,
    /// An empty vector to swap in, so that its allocation is used again.
    spare: Vec<Queued>,
    writing: bool,
    handover: Option<Batch>,
    writer: Option<JoinHandle<()>>,
    requests: usize,
    bytes: usize,
    reader_waits: bool,
    /// No further request is admitted; the connection closes once nothing is in flight.
    closing: bool,
    /// The socket is of no more use: replies are dropped.
    closed: bool,
    client_gone: bool,
}

struct Queued {
    reply: Reply,
    charge_bytes: usize,
}

impl Output {
    /// Must be called on the thread that reads the connection.
    pub fn new(sink: Arc<dyn Sink>, limits: Limits, account: Account) -> Arc<Self> {
        Arc::new(Self {
            sink,
            limits,
            account,
            reader: thread::current().id(),
            queue: Mutex::default(),
            reader_wakes: Condvar::new(),
            writer_wakes: Condvar::new(),
        })
    }

    /// Every critical section leaves the queue consistent, so a panic elsewhere does not make it unusable.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request in, waiting until there is room; false when the connection takes no more. A request larger
    /// than the limit is let in alone. Only the reading thread calls this.
    pub fn admit(&self, charge_bytes: usize) -> bool {
        if !self.admit_here(charge_bytes) {
            return false;
        }
        if self.account.try_take(charge_bytes) {
            return true;
        }
        // What was gathered must not wait for other clients.
        self.flush();
        let is_admitted = self.account.take(charge_bytes, || {
            let queue = self.lock();
            queue.closing || queue.closed
        });
        if !is_admitted {
            self.forget(&mut self.lock(), 1, charge_bytes);
        }
        is_admitted
    }

    /// Within the connection's own limits.
    fn admit_here(&self, charge_bytes: usize) -> bool {
        let mut queue = self.lock();
        loop {
            if queue.closing || queue.closed {
                return false;
            }
            let room = queue.requests < self.limits.requests_max && queue.bytes + charge_bytes <= self.limits.bytes_max;
            if room || queue.requests == 0 {
                queue.requests += 1;
                queue.bytes += charge_bytes;
                return true;
            }
            queue = self.wait_for_release(queue);
        }
    }

    /// Sends what was gathered or, if there is nothing to send, sleeps until a reply has been written.
    fn wait_for_release<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        if !queue.waiting.is_empty() && !queue.writing {
            self.write_all_queued(queue);
            return self.lock();
        }
        queue.reader_waits = true;
        queue = self.reader_wakes.wait(queue).unwrap_or_else(PoisonError::into_inner);
        queue.reader_waits = false;
        queue
    }

    /// Queues the reply of one admitted request and sees to it that it is written. Only the reading thread may leave
    /// it queued, until [`Output::flush`].
    pub fn reply(self: &Arc<Self>, reply: Reply, charge_bytes: usize) {
        let on_reader = thread::current().id() == self.reader;
        let mut queue = self.lock();
        if queue.closed {
            self.release(&mut queue, 1, charge_bytes);
            return;
        }
        queue.waiting_bytes += reply.bytes();
        queue.waiting.push(Queued { reply, charge_bytes });
        if queue.writing {
            return;
        }
        if !on_reader {
            self.write_without_waiting(queue);
        } else if queue.waiting.len() >= GATHERED_REPLIES_MAX || queue.waiting_bytes >= GATHERED_BYTES_MAX {
            self.write_all_queued(queue);
        }
    }

    /// Sends what the reading thread has gathered.
    pub fn flush(&self) {
        let queue = self.lock();
        if !queue.waiting.is_empty() && !queue.writing {
            self.write_all_queued(queue);
        }
    }

    /// After the last request was read; false when that is because no more are admitted.
    pub fn set_client_gone(&self) -> bool {
        let mut queue = self.lock();
        queue.client_gone = !queue.closing;
        queue.client_gone
    }

    pub fn is_client_gone(&self) -> bool {
        self.lock().client_gone
    }

    /// Waits until every admitted request is answered and written, or the socket is of no use.
    pub fn wait_until_idle(&self) {
        let mut queue = self.lock();
        while queue.requests > 0 && !queue.closed {
            queue = self.wait_for_release(queue);
        }
    }

    /// Admits nothing more; closes the socket when the last admitted request is answered. What a client has sent
    /// besides stays unanswered: it is to be sent again on a new connection.
    pub fn close_when_idle(&self) {
        let mut queue = self.lock();
        queue.closing = true;
        self.release(&mut queue, 0, 0);
    }

    /// Closes the socket now; later replies are dropped.
    pub fn close(&self) {
        let mut queue = self.lock();
        self.close_locked(&mut queue);
    }

    fn close_locked(&self, queue: &mut Queue) {
        queue.closed = true;
        let dropped = mem::take(&mut queue.waiting);
        queue.waiting_bytes = 0;
        let bytes = dropped.iter().map(|queued| queued.charge_bytes).sum();
        self.sink.close();
        self.release(queue, dropped.len(), bytes);
        self.writer_wakes.notify_all();
    }

    /// After [`Output::close`]: waits for the writer thread, if there ever was one.
    pub fn join_writer(&self) {
        let writer = self.lock().writer.take();
        if let Some(writer) = writer {
            // It has no result; a panic there has been reported by the panic hook.
            let _ = writer.join();
        }
    }

    fn release(&self, queue: &mut Queue, requests: usize, bytes: usize) {
        self.account.give_back(bytes);
        self.forget(queue, requests, bytes);
    }

    fn forget(&self, queue: &mut Queue, requests: usize, bytes: usize) {
        queue.requests -= requests;
        queue.bytes -= bytes;
        if queue.closing && queue.requests == 0 {
            self.sink.close();
        }
        // Waking costs a system call whether anyone sleeps or not.
        if queue.reader_waits {
            self.reader_wakes.notify_one();
        }
    }

    fn take_batch(queue: &mut Queue) -> Batch {
        queue.writing = true;
        queue.waiting_bytes = 0;
        let spare = mem::take(&mut queue.spare);
        Batch {
            replies: mem::replace(&mut queue.waiting, spare),
            reply_next: 0,
            bytes_sent: 0,
        }
    }

    /// Ends the writing of a batch and gives back what its requests held.
    fn retire(&self, mut batch: Batch, outcome: io::Result<()>) -> MutexGuard<'_, Queue> {
        let (requests, bytes) = (batch.replies.len(), batch.charge_bytes());
        batch.replies.clear();
        let mut queue = self.lock();
        queue.spare = batch.replies;
        self.release(&mut queue, requests, bytes);
        if let Err(error) = outcome {
            match error.kind() {
                // Who would not wait has not come here with it.
                io::ErrorKind::WouldBlock => {
                    tracing::warn!(
                        requests = queue.requests,
                        "an NBD client has taken nothing of its answers for too long; its connection is closed"
                    );
                }
                _ => tracing::debug!(%error, "the client takes no more replies"),
            }
            self.close_locked(&mut queue);
        }
        queue
    }

    fn write_all_queued<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) {
        while !queue.waiting.is_empty() {
            let mut batch = Self::take_batch(&mut queue);
            drop(queue);
            let outcome = batch.send_waiting(&*self.sink);
            queue = self.retire(batch, outcome);
        }
        queue.writing = false;
    }

    fn write_without_waiting<'a>(self: &'a Arc<Self>, mut queue: MutexGuard<'a, Queue>) {
        while !queue.waiting.is_empty() {
            let mut batch = Self::take_batch(&mut queue);
            drop(queue);
            let outcome = match batch.send(&*self.sink, false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.hand_over(batch),
                outcome => outcome,
            };
            queue = self.retire(batch, outcome);
        }
        queue.writing = false;
    }

    fn hand_over(self: &Arc<Self>, batch: Batch) {
        let mut queue = self.lock();
        queue.handover = Some(batch);
        if queue.writer.is_none() {
            let output = Arc::clone(self);
            match thread::Builder::new()
                .name("nbd-writer".into())
                .spawn(move || output.run_writer())
            {
                Ok(writer) => queue.writer = Some(writer),
                Err(error) => return self.give_up(queue, error),
            }
        }
        self.writer_wakes.notify_one();
    }

    /// No thread can be had: the client has to connect anew.
    fn give_up(&self, mut queue: MutexGuard<'_, Queue>, error: io::Error) {
        tracing::error!(%error, "no thread to write replies with; the connection is closed");
        let batch = queue.handover.take();
        drop(queue);
        if let Some(batch) = batch {
            self.retire(batch, Err(error)).writing = false;
        }
    }

    fn run_writer(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(mut batch) = queue.handover.take() {
                drop(queue);
                let outcome = batch.send_waiting(&*self.sink);
                self.write_all_queued(self.retire(batch, outcome));
                queue = self.lock();
            } else if queue.closed {
                return;
            } else {
                queue = self.writer_wakes.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Replies on their way to the socket, and how far they have got.
struct Batch {
    replies: Vec<Queued>,
    reply_next: usize,
    /// Of the reply `reply_next`.
    bytes_sent: usize,
}

impl Batch {
    fn charge_bytes(&self) -> usize {
        self.replies.iter().map(|queued| queued.charge_bytes).sum()
    }

    fn send_waiting(&mut self, sink: &dyn Sink) -> io::Result<()> {
        self.send(sink, true)
    }

    /// Sends everything, or stops at the first error, from where it can be taken up again.
    fn send(&mut self, sink: &dyn Sink, wait: bool) -> io::Result<()> {
        while self.reply_next < self.replies.len() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.gather(&mut slices);
            match sink.send(&slices[..count], wait)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => self.advance(sent),
            }
        }
        Ok(())
    }

    fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut count = 0;
        let mut skip = self.bytes_sent;
        for queued in self.replies[self.reply_next..].iter().take(SLICES_MAX / 2) {
            for part in [queued.reply.head(), queued.reply.body()] {
                let skipped = skip.min(part.len());
                skip -= skipped;
                if skipped < part.len() {
                    slices[count] = IoSlice::new(&part[skipped..]);
                    count += 1;
                }
            }
        }
        count
    }

    fn advance(&mut self, sent: usize) {
        self.bytes_sent += sent;
        while let Some(queued) = self.replies.get(self.reply_next) {
            let Some(beyond) = self.bytes_sent.checked_sub(queued.reply.bytes()) else {
                return;
            };
            self.bytes_sent = beyond;
            self.reply_next += 1;
        }
    }
}
