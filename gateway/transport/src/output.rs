//! Messages to one client, from any thread.
//!
//! Mechanism: a message is queued; whoever finds nobody writing becomes the writer and sends all that is queued with as
//! few system calls as possible. Three kinds of thread write:
//!
//! | thread             | when the socket is full                                                                |
//! |--------------------|----------------------------------------------------------------------------------------|
//! | the reading thread | as [`WhenFull`] says. It gathers replies until it would wait for the next request.     |
//! | any other          | never waits: hands the rest to the connection's writer thread                          |
//! | the writer thread  | waits; exists from the first time it was needed                                        |
//!
//! So a client that does not read its replies cannot hold up the owner of the data; if it takes nothing for too long, it
//! loses its connection and with it what it holds of the memory of all. A request counts as in flight until its reply is
//! written, so what queues here is within the connection's limits. Messages that nobody asked for have a limit of their
//! own.
//!
//! Invariants: `writing` while exactly one thread holds a batch or a batch lies in `handover`; replies are queued only for
//! requests that were admitted.

use crate::in_flight::{Held, InFlight};
use crate::socket::Sink;
use std::io::{self, IoSlice};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

/// What the reading thread gathers before it writes.
const GATHERED_MESSAGES_MAX: usize = 64;
const GATHERED_BYTES_MAX: usize = 256 * 1024;
/// Slices per system call: the head and body of [`GATHERED_MESSAGES_MAX`] messages.
const SLICES_MAX: usize = 2 * GATHERED_MESSAGES_MAX;

/// A message as it is sent: a short head, and a body that is never copied.
pub trait Message: Send + 'static {
    /// What is sent first.
    fn head(&self) -> &[u8];

    /// What follows the head; may be empty.
    fn body(&self) -> &[u8];

    /// Length of both.
    fn bytes(&self) -> usize {
        self.head().len() + self.body().len()
    }
}

/// What the reading thread does when it has something to send and the socket is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits, and meanwhile reads nothing: it is this client's own.
    Wait,
    /// It goes on, as any other thread.
    HandOver,
}

/// What is to be sent to one client.
pub struct Output<M, S: ?Sized> {
    /// Names the writer thread.
    protocol: &'static str,
    sink: Arc<S>,
    in_flight: Arc<InFlight>,
    reader_waits: bool,
    queue: Mutex<Queue<M>>,
    writer_wakes: Condvar,
}

struct Queue<M> {
    waiting: Vec<Queued<M>>,
    waiting_bytes: usize,
    /// An empty vector to swap in, so that its allocation is used again.
    spare: Vec<Queued<M>>,
    writing: bool,
    handover: Option<Batch<M>>,
    writer: Option<JoinHandle<()>>,
    /// The thread that may leave replies queued, for it will flush.
    reader: Option<ThreadId>,
    /// Messages that nobody asked for, those in a batch included.
    unasked: usize,
    /// The socket is of no more use: messages are dropped.
    closed: bool,
}

struct Queued<M> {
    message: M,
    /// `None` if nobody asked for it.
    held: Option<Held>,
}

impl<M: Message> Queue<M> {
    fn new() -> Self {
        Self {
            waiting: Vec::new(),
            waiting_bytes: 0,
            spare: Vec::new(),
            writing: false,
            handover: None,
            writer: None,
            reader: None,
            unasked: 0,
            closed: false,
        }
    }

    fn push(&mut self, message: M, held: Option<Held>) {
        self.waiting_bytes += message.bytes();
        self.waiting.push(Queued { message, held });
    }

    fn is_enough(&self) -> bool {
        self.waiting.len() >= GATHERED_MESSAGES_MAX || self.waiting_bytes >= GATHERED_BYTES_MAX
    }

    fn take_batch(&mut self) -> Batch<M> {
        self.writing = true;
        self.waiting_bytes = 0;
        let spare = mem::take(&mut self.spare);
        Batch {
            messages: mem::replace(&mut self.waiting, spare),
            next: 0,
            bytes_sent: 0,
        }
    }
}

impl<M: Message, S: Sink + ?Sized + 'static> Output<M, S> {
    /// `protocol` names the writing thread, `reader` says what the reading thread does when the socket is full.
    pub fn new(protocol: &'static str, sink: Arc<S>, in_flight: Arc<InFlight>, reader: WhenFull) -> Arc<Self> {
        Arc::new(Self {
            protocol,
            sink,
            in_flight,
            reader_waits: reader == WhenFull::Wait,
            queue: Mutex::new(Queue::new()),
            writer_wakes: Condvar::new(),
        })
    }

    /// Every critical section leaves the queue consistent, so a panic elsewhere does not make it unusable.
    fn lock(&self) -> MutexGuard<'_, Queue<M>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The requests whose replies go through here.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// The calling thread reads requests from now on, and calls [`Output::flush`] before it waits.
    pub fn start_gathering(&self) {
        self.lock().reader = Some(thread::current().id());
    }

    /// Sends what was gathered; the calling thread gathers no more.
    pub fn stop_gathering(self: &Arc<Self>) {
        let mut queue = self.lock();
        queue.reader = None;
        self.write(queue, self.reader_waits);
    }

    /// Sends what the reading thread has gathered.
    pub fn flush(self: &Arc<Self>) {
        self.write(self.lock(), self.reader_waits);
    }

    /// Queues the reply to one admitted request and sees to it that it is written. Only the reading thread may leave it
    /// queued.
    pub fn reply(self: &Arc<Self>, reply: M, held: Held) {
        let calling = thread::current().id();
        let mut queue = self.lock();
        if queue.closed {
            drop(queue);
            return self.release([held]);
        }
        queue.push(reply, Some(held));
        if queue.reader != Some(calling) {
            self.write(queue, false);
        } else if queue.is_enough() {
            self.write(queue, self.reader_waits);
        }
    }

    /// Queues a message that nobody asked for, without waiting. False: the client has yet to take `unasked_max` such
    /// messages.
    pub fn notify(self: &Arc<Self>, message: M, unasked_max: usize) -> bool {
        let mut queue = self.lock();
        if queue.closed {
            return true;
        }
        if queue.unasked >= unasked_max {
            return false;
        }
        queue.unasked += 1;
        queue.push(message, None);
        self.write(queue, false);
        true
    }

    /// Admits nothing more; closes the socket when the last admitted request is answered. What a client has sent
    /// besides stays unanswered: it is to be sent again on a new connection.
    pub fn close_when_idle(&self) {
        if self.in_flight.end() {
            self.sink.close();
        }
    }

    /// Closes the socket now; later messages are dropped.
    pub fn close(&self) {
        self.close_locked(&mut self.lock());
    }

    fn close_locked(&self, queue: &mut Queue<M>) {
        queue.closed = true;
        queue.waiting_bytes = 0;
        self.sink.close();
        self.in_flight.close();
        let dropped = mem::take(&mut queue.waiting);
        queue.unasked -= self.release_all(&dropped);
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

    fn release(&self, answered: impl IntoIterator<Item = Held>) {
        if self.in_flight.release(answered) {
            self.sink.close();
        }
    }

    /// Says how many of the messages nobody asked for.
    fn release_all(&self, messages: &[Queued<M>]) -> usize {
        self.release(messages.iter().filter_map(|queued| queued.held));
        messages.iter().filter(|queued| queued.held.is_none()).count()
    }

    /// Sends what is queued, and what queues up meanwhile, unless somebody is about it already.
    fn write<'a>(self: &'a Arc<Self>, mut queue: MutexGuard<'a, Queue<M>>, waits: bool) {
        if queue.writing {
            return;
        }
        while !queue.waiting.is_empty() {
            let mut batch = queue.take_batch();
            drop(queue);
            let outcome = match batch.send(&*self.sink, waits) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !waits => return self.hand_over(batch),
                outcome => outcome,
            };
            queue = self.retire(batch, outcome);
        }
        queue.writing = false;
    }

    /// Ends the writing of a batch and gives back what its requests held.
    fn retire(&self, mut batch: Batch<M>, outcome: io::Result<()>) -> MutexGuard<'_, Queue<M>> {
        let unasked = self.release_all(&batch.messages);
        batch.messages.clear();
        let mut queue = self.lock();
        queue.unasked -= unasked;
        queue.spare = batch.messages;
        if let Err(error) = outcome {
            self.report(&error);
            self.close_locked(&mut queue);
        }
        queue
    }

    fn report(&self, error: &io::Error) {
        let protocol = self.protocol;
        match error.kind() {
            // Who would not wait has not come here with it.
            io::ErrorKind::WouldBlock => tracing::warn!(
                protocol,
                "a client has taken nothing of its answers for too long; its connection is closed"
            ),
            _ => tracing::debug!(protocol, %error, "the client takes no more messages"),
        }
    }

    fn hand_over(self: &Arc<Self>, batch: Batch<M>) {
        let mut queue = self.lock();
        if self.ensure_writer(&mut queue) {
            queue.handover = Some(batch);
            self.writer_wakes.notify_one();
        } else {
            drop(queue);
            let outcome = Err(io::ErrorKind::NotConnected.into());
            self.retire(batch, outcome).writing = false;
        }
    }

    /// Starts the writer thread if there is none. False when none can be had, so that the client has to connect anew, or
    /// when the socket was closed meanwhile: then it may be gone already.
    fn ensure_writer(self: &Arc<Self>, queue: &mut Queue<M>) -> bool {
        if queue.closed || queue.writer.is_some() {
            return !queue.closed;
        }
        let output = Arc::clone(self);
        let spawned = thread::Builder::new()
            .name(format!("{}-writer", self.protocol))
            .spawn(move || output.run_writer());
        match spawned {
            Ok(writer) => queue.writer = Some(writer),
            Err(error) => tracing::error!(%error, "no thread to write replies with; the connection is closed"),
        }
        queue.writer.is_some()
    }

    fn run_writer(self: Arc<Self>) {
        let mut queue = self.lock();
        loop {
            if let Some(mut batch) = queue.handover.take() {
                drop(queue);
                let outcome = batch.send(&*self.sink, true);
                queue = self.retire(batch, outcome);
                queue.writing = false;
                self.write(queue, true);
                queue = self.lock();
            } else if queue.closed {
                return;
            } else {
                queue = self.writer_wakes.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Messages on their way to the socket, and how far they have got.
struct Batch<M> {
    messages: Vec<Queued<M>>,
    next: usize,
    /// Of the message `next`.
    bytes_sent: usize,
}

impl<M: Message> Batch<M> {
    /// Sends everything, or stops at the first error, from where it can be taken up again.
    fn send(&mut self, sink: &(impl Sink + ?Sized), waits: bool) -> io::Result<()> {
        while self.next < self.messages.len() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.gather(&mut slices);
            match sink.send(&slices[..count], waits)? {
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
            for part in [queued.message.head(), queued.message.body()] {
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

#[cfg(test)]
mod tests;
