//! Requests that come from `/dev/fuse`, over descriptors that a client has brought along.
//!
//! Mechanism: the kernel keeps one queue of requests per mount, from which every descriptor reads, and remembers per
//! descriptor which requests await their reply; so a reply goes to the descriptor that the request came from. Each
//! thread waits, reads, carries out, answers. There is one more thread whenever the last idle one takes a request that
//! may wait, up to `threads_max`. How much is under way the kernel bounds (`max_background`, and a request per process).
//!
//! Nothing here sends notifications: the kernel may take a directory's lock for one, which is free only once a request
//! on that directory is answered, and a thread that waits for that cannot be killed. They go over the socket, to the
//! process that holds the mount ([`crate::mount`]), whose death nobody waits for.

use super::connection::Connection;
use super::device_io::{MessageBuffer, Received, Waiter, Wakeup, set_nonblocking};
use super::intake::{Begun, Intake};
use crate::Errno;
use crate::completion::Replies;
use crate::interrupts::Interrupts;
use crate::mount::system::is_disconnected;
use crate::protocol::notify::Notification;
use crate::protocol::reply::Encoded;
use crate::service::Session;
use std::fs::File;
use std::io::{self, IoSlice, PipeReader, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope};
use tombolo_transport::{Held, InFlight, Message};

/// The descriptors of one mount.
pub struct Devices {
    queues: Vec<Arc<dyn Replies>>,
    files: Vec<Arc<File>>,
    shared: Arc<Shared>,
    stopped: PipeReader,
    /// Dropped to stop all threads.
    stop: Mutex<Option<PipeWriter>>,
}

struct Shared {
    in_flight: Arc<InFlight>,
    interrupts: Interrupts,
    /// Replies lead nowhere: the requests are left to be sent again.
    muted: AtomicBool,
}

/// One descriptor, as the way of the replies to what was read from it.
struct DeviceReplies {
    device: Arc<File>,
    shared: Arc<Shared>,
}

impl Devices {
    pub fn new(descriptors: Vec<OwnedFd>, in_flight: Arc<InFlight>) -> io::Result<Self> {
        let (stopped, stop) = io::pipe()?;
        let shared = Arc::new(Shared {
            in_flight,
            interrupts: Interrupts::default(),
            muted: AtomicBool::new(false),
        });
        let files: Vec<Arc<File>> = descriptors.into_iter().map(|fd| Arc::new(File::from(fd))).collect();
        files.iter().try_for_each(|file| set_nonblocking(&**file))?;
        let queue = |device: &Arc<File>| -> Arc<dyn Replies> {
            Arc::new(DeviceReplies {
                device: Arc::clone(device),
                shared: Arc::clone(&shared),
            })
        };
        Ok(Self {
            queues: files.iter().map(queue).collect(),
            files,
            shared,
            stopped,
            stop: Mutex::new(Some(stop)),
        })
    }

    /// Has the kernel send again what was read by others and never answered. Before any thread reads.
    pub fn ask_to_resend(&self) -> io::Result<()> {
        let Some(device) = self.files.first() else {
            return Ok(());
        };
        (&**device).write_all(&Notification::Resend.encode())
    }

    /// The file system was unmounted, or its connection aborted.
    pub fn are_disconnected(&self) -> bool {
        self.files.iter().any(|file| is_disconnected(file).unwrap_or(false))
    }

    /// Threads read no more.
    pub fn stop(&self) {
        drop(self.stop.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// SlotTransition readable when the threads have stopped, or are about to.
    pub fn stopped(&self) -> &PipeReader {
        &self.stopped
    }

    pub fn mute(&self) {
        self.shared.muted.store(true, Ordering::SeqCst);
    }

    pub fn interrupts(&self) -> &Interrupts {
        &self.shared.interrupts
    }
}

impl Replies for DeviceReplies {
    fn reply(&self, reply: Encoded, held: Held) {
        if !self.shared.muted.load(Ordering::SeqCst) {
            self.send(&reply);
        }
        self.shared.in_flight.release([held]);
    }

    fn interrupts(&self) -> &Interrupts {
        &self.shared.interrupts
    }
}

impl DeviceReplies {
    /// A reply that the kernel does not take would leave a process waiting for ever, so it gets an error instead.
    fn send(&self, reply: &Encoded) {
        let Err(error) = self.write(reply) else {
            return;
        };
        if is_of_no_interest(&error) {
            return;
        }
        tracing::error!(%error, bytes = reply.bytes(), "the kernel does not take a reply");
        let mut unique = [0; 8];
        unique.copy_from_slice(&reply.head[8..16]);
        let failure = Encoded::error(u64::from_ne_bytes(unique), Errno::IO);
        if let Err(error) = self.write(&failure)
            && !is_of_no_interest(&error)
        {
            tracing::error!(%error, "nor an error in its place");
        }
    }

    fn write(&self, reply: &Encoded) -> io::Result<()> {
        let slices = [IoSlice::new(&reply.head), IoSlice::new(&reply.body)];
        let count = if reply.body.is_empty() { 1 } else { 2 };
        loop {
            match (&*self.device).write_vectored(&slices[..count]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // All or nothing: the kernel takes messages whole.
                outcome => return outcome.map(|_| ()),
            }
        }
    }
}

/// The request was taken back (ENOENT), or the file system is gone.
fn is_of_no_interest(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENODEV | libc::ECONNABORTED)
    )
}

/// The threads of one mount.
pub struct DeviceThreads<'a> {
    pub connection: &'a Connection,
    pub devices: &'a Devices,
    pub session: Arc<dyn Session>,
    pub threads_max: usize,
    pub data_bytes_max: usize,
    pub threads: AtomicUsize,
    pub idle: AtomicUsize,
}

impl DeviceThreads<'_> {
    /// Starts the first thread; the others follow as they are needed. The scope ends when all have ended.
    pub fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let place = self.threads.fetch_add(1, Ordering::Relaxed);
        if place >= self.threads_max {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let name = format!("fuse-{}-{place}", self.connection.id);
        let spawned = thread::Builder::new()
            .name(name)
            .spawn_scoped(scope, move || self.run(scope, place));
        if let Err(error) = spawned {
            tracing::error!(%error, "no further thread to serve a mount with");
            if self.threads.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.devices.stop();
            }
        }
    }

    fn run<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, place: usize) {
        if let Err(error) = self.work(scope, place % self.devices.files.len()) {
            tracing::error!(%error, "a device cannot be served any more");
            self.devices.stop();
        }
    }

    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, queue: usize) -> io::Result<()> {
        let device = &*self.devices.files[queue];
        let waiter = Waiter::new(device, &self.devices.stopped)?;
        let mut buffer = MessageBuffer::new(self.data_bytes_max);
        loop {
            self.idle.fetch_add(1, Ordering::SeqCst);
            let wakeup = waiter.wait();
            self.idle.fetch_sub(1, Ordering::SeqCst);
            if wakeup? == Wakeup::Stop {
                return Ok(());
            }
            match buffer.read(device)? {
                Received::Message(header) => self.take_in(scope, queue, &header, &mut buffer),
                Received::Nothing => {}
                Received::Unmounted => {
                    self.session.unmounted();
                    self.devices.stop();
                    return Ok(());
                }
            }
        }
    }

    fn take_in<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        queue: usize,
        header: &crate::protocol::abi::InHeader,
        buffer: &mut MessageBuffer,
    ) {
        let intake = Intake {
            replies: &self.devices.queues[queue],
            in_flight: &self.connection.in_flight,
        };
        let (arguments, data) = buffer.parts(header);
        match intake.begin(header, arguments, data, || ()) {
            Begun::Job(job) => {
                if self.session.may_wait(&job.request) && self.idle.load(Ordering::SeqCst) == 0 {
                    self.start(scope);
                }
                job.carry_out(&*self.session);
            }
            Begun::Dealt => {}
            // What was read is not answered, and sent again to whoever serves the mount next.
            Begun::Ended => self.devices.stop(),
        }
    }
}
