//! Unix stream sockets as [`Source`] and [`Sink`]. The system calls that the standard library does not offer are
//! here: sending without waiting, and receiving into memory that was not zeroed first.

use crate::connection::{Sink, Source};
use std::io::{self, IoSlice, Read};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The shortest wait that a deadline leaves: zero would mean "for ever" to the socket.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// Room for two replies of 1 MiB in the socket, so that the sender need not wake for every few pages that the client
/// takes, and answers from other threads rarely find it full. The kernel counts its own overhead too, and doubles
/// what it is asked for to make up for it.
static SEND_BUFFER_BYTES: libc::c_int = 2 << 20;

pub struct SocketSource {
    stream: Arc<UnixStream>,
    /// What a client gets to take something of an answer, or to send something of what it has announced.
    client_timeout: Duration,
    deadline: Option<Instant>,
}

impl SocketSource {
    pub fn new(stream: Arc<UnixStream>, client_timeout: Duration) -> Self {
        Self {
            stream,
            client_timeout,
            deadline: None,
        }
    }

    fn apply_deadline(&self) -> io::Result<()> {
        let Some(deadline) = self.deadline else {
            return Ok(());
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left.max(WAIT_MIN)))
    }
}

impl Source for SocketSource {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.apply_deadline()?;
            match (&*self.stream).read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A client may be without a wish for as long as it likes.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.deadline.is_none() => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                outcome => return outcome,
            }
        }
    }

    fn receive_payload(&mut self, payload: &mut Vec<u8>, count: usize) -> io::Result<()> {
        payload.reserve_exact(count);
        let mut left = count;
        while left > 0 {
            let spare = &mut payload.spare_capacity_mut()[..left];
            // SAFETY: `spare` is `left` bytes of memory that this call alone may write; the descriptor is open
            // because `self` holds the stream.
            let received = unsafe {
                libc::recv(
                    self.stream.as_raw_fd(),
                    spare.as_mut_ptr().cast(),
                    left,
                    libc::MSG_WAITALL,
                )
            };
            match usize::try_from(received) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(received) => {
                    // SAFETY: the kernel has just initialised `received` bytes, at most `left`, after the old length.
                    unsafe { payload.set_len(payload.len() + received) };
                    left -= received;
                }
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.deadline = deadline;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait = left.unwrap_or(self.client_timeout).max(WAIT_MIN);
        self.stream.set_write_timeout(Some(wait))?;
        self.stream.set_read_timeout(Some(wait))
    }
}

pub struct SocketSink(pub Arc<UnixStream>);

impl Sink for SocketSink {
    fn send(&self, slices: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
        // SAFETY: an all-zero `msghdr` is a valid, empty message.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = slices.as_ptr().cast_mut().cast();
        message.msg_iovlen = slices.len() as _;
        let flags = libc::MSG_NOSIGNAL | if wait { 0 } else { libc::MSG_DONTWAIT };
        loop {
            // SAFETY: `IoSlice` is guaranteed to have the layout of `iovec`; `sendmsg` only reads through it, and the
            // slices outlive the call.
            let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &message, flags) };
            match usize::try_from(sent) {
                Ok(sent) => return Ok(sent),
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }

    fn close(&self) {
        // Fails only when the peer has closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// As far as the process may: beyond the system's limit only with CAP_NET_ADMIN. Smaller is slower, not wrong.
pub fn enlarge_send_buffer(stream: &UnixStream) {
    let set = |option: libc::c_int| {
        // SAFETY: the value is one `c_int`, which lives through the call, and its size is given.
        let outcome = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const SEND_BUFFER_BYTES).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        outcome == 0
    };
    if !set(libc::SO_SNDBUFFORCE) && !set(libc::SO_SNDBUF) {
        tracing::debug!("the send buffer stays as it is");
    }
}

/// Waits until one of two descriptors can be read; says whether the first can.
pub fn wait_for_either(first: &impl AsRawFd, second: &impl AsRawFd) -> io::Result<bool> {
    let mut polled = [first.as_raw_fd(), second.as_raw_fd()].map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    loop {
        // SAFETY: `polled` is an array of two valid entries.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as _, -1) };
        if ready > 0 {
            return Ok(polled[0].revents != 0);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}
