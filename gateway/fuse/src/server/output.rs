//! Messages to one client over its socket, from any thread.
//!
//! Mechanism: a message is queued; whoever finds nobody writing becomes the writer and sends all that is queued with as
//! few system calls as possible. Nobody waits for the client: what a full socket does not take is left to a thread of
//! its own, which exists from the first time it was needed. The thread that reads requests gathers replies until it
//! would wait for the next request.
//!
//! A request counts as in flight until its reply is written, so what queues here is within the connection's limits.
//! A client that takes nothing for too long is cut off, and with it goes what it holds of the memory of all.
//! Notifications have a limit of their own; a client that takes no more of them is cut off, for it would believe in
//! what is no longer so.
//!
//! Invariant: `writing` while exactly one thread holds a batch or a batch lies in `handover`.

use super::in_flight::InFlight;
use crate::completion::{Held, Replies};
use crate::interrupts::Interrupts;
use crate::protocol::notify::Notification;
use crate::protocol::reply::Encoded;
use crate::service::NotifySink;
use std::io::{self, IoSlice};
use std::mem;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle, ThreadId};
use tombolo_transport::Sink;

/// What the reading thread gathers before it writes.
const GATHERED_MESSAGES_MAX: usize = 64;
const GATHERED_BYTES_MAX: usize = 256 * 1024;
/// Slices per system call: the head and body of [`GATHERED_MESSAGES_MAX`] messages.
const SLICES_MAX: usize = 2 * GATHERED_MESSAGES_MAX;
/// About 4 MiB.
const NOTIFICATIONS_MAX: usize = 64 * 1024;

pub struct Output {
    /// Itself, for the writer thread.
    own: Weak<Self>,
    socket: Arc<UnixStream>,
    in_flight: Arc<InFlight>,
    interrupts: Interrupts,
    queue: Mutex<Queue>,
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
    /// The thread that may leave replies queued, for it will flush.
    gatherer: Option<ThreadId>,
    notifications: usize,
    /// Notifications are wanted: the client has its answer to ATTACH.
    notifying: bool,
    /// The socket is of no more use: messages are dropped.
    closed: bool,
}

struct Queued {
    message: Encoded,
    /// `None` for a notification.
    held: Option<Held>,
}

impl Output {
    pub fn new(socket: Arc<UnixStream>, in_flight: Arc<InFlight>) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            socket,
            in_flight,
            interrupts: Interrupts::default(),
            queue: Mutex::default(),
            writer_wakes: Condvar::new(),
        })
    }

    /// Every critical section leaves the queue consistent, so a panic elsewhere does not make it unusable.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifications before this are dropped: what a client has cached before it attached is its own affair.
    pub fn start_notifying(&self) {
        self.lock().notifying = true;
    }

    /// The calling thread reads requests from now on, and calls [`Output::flush`] before it waits.
    pub fn start_gathering(&self) {
        self.lock().gatherer = Some(thread::current().id());
    }

    /// Sends what was gathered; the calling thread gathers no more.
    pub fn stop_gathering(&self) {
        let mut queue = self.lock();
        queue.gatherer = None;
        self.write(queue);
    }

    pub fn flush(&self) {
        self.write(self.lock());
    }

    /// Closes the socket now; later messages are dropped.
    pub fn close(&self) {
        let mut queue = self.lock();
        self.close_locked(&mut queue);
    }

    fn close_locked(&self, queue: &mut Queue) {
        queue.closed = true;
        queue.waiting_bytes = 0;
        self.socket.close();
        let dropped = mem::take(&mut queue.waiting);
        self.release(queue, &dropped);
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

    fn release(&self, queue: &mut Queue, sent: &[Queued]) {
        for queued in sent {
            match queued.held {
                Some(held) => self.in_flight.release(held),
                None => queue.notifications -= 1,
            }
        }
    }

    fn push(&self, queue: &mut Queue, message: Encoded, held: Option<Held>) {
        queue.waiting_bytes += message.bytes();
        queue.waiting.push(Queued { message, held });
    }

    fn take_batch(queue: &mut Queue) -> Batch {
        queue.writing = true;
        queue.waiting_bytes = 0;
        let spare = mem::take(&mut queue.spare);
        Batch {
            messages: mem::replace(&mut queue.waiting, spare),
            next: 0,
            bytes_sent: 0,
        }
    }

    /// Ends the writing of a batch and gives back what its requests held.
    fn retire(&self, mut batch: Batch, outcome: io::Result<()>) -> MutexGuard<'_, Queue> {
        let mut queue = self.lock();
        self.release(&mut queue, &batch.messages);
        batch.messages.clear();
        queue.spare = batch.messages;
        if let Err(error) = outcome {
            match error.kind() {
                // Who would not wait has not come here with it.
                io::ErrorKind::WouldBlock => {
                    tracing::warn!("a client has taken nothing of its answers for too long; its connection is closed");
                }
                _ => tracing::debug!(%error, "the client takes no more messages"),
            }
            self.close_locked(&mut queue);
        }
        queue
    }

    fn write<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) {
        if queue.writing {
            return;
        }
        while !queue.waiting.is_empty() {
            let mut batch = Self::take_batch(&mut queue);
            drop(queue);
            let outcome = match batch.send(&self.socket, false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.hand_over(batch),
                outcome => outcome,
            };
            queue = self.retire(batch, outcome);
        }
        queue.writing = false;
    }

    fn hand_over(&self, batch: Batch) {
        let mut queue = self.lock();
        if queue.closed {
            // The writer thread may be gone already.
            drop(queue);
            self.retire(batch, Err(io::ErrorKind::NotConnected.into())).writing = false;
            return;
        }
        queue.handover = Some(batch);
        if queue.writer.is_none() {
            match self.start_writer() {
                Ok(writer) => queue.writer = Some(writer),
                Err(error) => return self.give_up(queue, error),
            }
        }
        self.writer_wakes.notify_one();
    }

    fn start_writer(&self) -> io::Result<JoinHandle<()>> {
        let own = self.own.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        thread::Builder::new()
            .name("fuse-writer".into())
            .spawn(move || own.run_writer())
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
                let outcome = batch.send(&self.socket, true);
                queue = self.retire(batch, outcome);
                queue = self.write_waiting(queue);
            } else if queue.closed {
                return;
            } else {
                queue = self.writer_wakes.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// The writer thread's part: sends what has queued up meanwhile, however long that takes.
    fn write_waiting<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        while !queue.waiting.is_empty() {
            let mut batch = Self::take_batch(&mut queue);
            drop(queue);
            let outcome = batch.send(&self.socket, true);
            queue = self.retire(batch, outcome);
        }
        queue.writing = false;
        queue
    }
}

impl Replies for Output {
    fn reply(&self, reply: Encoded, held: Held) {
        let mut queue = self.lock();
        if queue.closed {
            return self.in_flight.release(held);
        }
        self.push(&mut queue, reply, Some(held));
        let gathers = queue.gatherer == Some(thread::current().id())
            && queue.waiting.len() < GATHERED_MESSAGES_MAX
            && queue.waiting_bytes < GATHERED_BYTES_MAX;
        if !gathers {
            self.write(queue);
        }
    }

    fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }
}

impl NotifySink for Output {
    fn notify(&self, notification: Notification) {
        let mut queue = self.lock();
        if queue.closed || !queue.notifying {
            return;
        }
        if queue.notifications == NOTIFICATIONS_MAX {
            tracing::error!("a client takes no notifications; its connection is closed");
            return self.close_locked(&mut queue);
        }
        queue.notifications += 1;
        let message = Encoded {
            head: notification.encode(),
            body: Vec::new(),
        };
        self.push(&mut queue, message, None);
        self.write(queue);
    }
}

/// Messages on their way to the socket, and how far they have got.
struct Batch {
    messages: Vec<Queued>,
    next: usize,
    /// Of the message `next`.
    bytes_sent: usize,
}

impl Batch {
    /// Sends everything, or stops at the first error, from where it can be taken up again.
    fn send(&mut self, socket: &UnixStream, wait: bool) -> io::Result<()> {
        while self.next < self.messages.len() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.gather(&mut slices);
            match socket.send(&slices[..count], wait)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => self.advance(sent),
            }
        }
        Ok(())
    }

    fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut count = 0;
        let mut skip = self.bytes_sent;
        for queued in self.messages[self.next..].iter().take(SLICES_MAX / 2) {
            for part in [&queued.message.head, &queued.message.body] {
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
        while let Some(queued) = self.messages.get(self.next) {
            let Some(beyond) = self.bytes_sent.checked_sub(queued.message.bytes()) else {
                return;
            };
            self.bytes_sent = beyond;
            self.next += 1;
        }
    }
}
