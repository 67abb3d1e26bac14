//! Unix stream sockets: the system calls that the standard library does not offer. Sending without waiting and without
//! a signal, receiving into memory that was not zeroed first, and asking whether the peer is gone.

use std::io::{self, IoSlice, Read};
use std::mem;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Room for two replies of 1 MiB in the socket, so that the sender need not wake for every few pages that the client
/// takes, and answers from other threads rarely find it full. The kernel counts its own overhead too, and doubles
/// what it is asked for to make up for it.
static SEND_BUFFER_BYTES: libc::c_int = 2 << 20;

/// Where a connection's bytes come from.
pub trait Source {
    /// Waits for bytes; zero means the end.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Appends exactly `count` bytes.
    fn receive_payload(&mut self, payload: &mut Vec<u8>, count: usize) -> io::Result<()> {
        let start = payload.len();
        payload.resize(start + count, 0);
        let mut filled = start;
        while filled < payload.len() {
            match self.receive(&mut payload[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                received => filled += received,
            }
        }
        Ok(())
    }
}

/// Where a connection's messages go.
pub trait Sink: Send + Sync {
    /// Sends some of the bytes and says how many; [`io::ErrorKind::WouldBlock`] if none can be taken, with `wait` only
    /// after the time that a client gets for that.
    fn send(&self, slices: &[IoSlice<'_>], wait: bool) -> io::Result<usize>;

    /// Ends both directions: the source reaches its end, sending fails.
    fn close(&self);

    /// Sends all of `bytes`, and waits as long as that takes.
    fn send_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.send(&[IoSlice::new(bytes)], true)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => bytes = &bytes[sent..],
            }
        }
        Ok(())
    }
}

impl Source for Arc<UnixStream> {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&**self).read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }

    fn receive_payload(&mut self, payload: &mut Vec<u8>, count: usize) -> io::Result<()> {
        payload.reserve_exact(count);
        let mut left = count;
        while left > 0 {
            let spare = &mut payload.spare_capacity_mut()[..left];
            let (start, fd) = (spare.as_mut_ptr().cast(), self.as_raw_fd());
            // SAFETY: `spare` is `left` bytes of memory that this call alone may write.
            let received = retry(|| unsafe { libc::recv(fd, start, left, libc::MSG_WAITALL) })?;
            if received == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // SAFETY: the kernel has just initialised `received` bytes, at most `left`, after the old length.
            unsafe { payload.set_len(payload.len() + received) };
            left -= received;
        }
        Ok(())
    }
}

impl Sink for UnixStream {
    fn send(&self, slices: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
        send_message(self, &message_of(slices), wait)
    }

    fn close(&self) {
        // Fails only when the peer has closed already.
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// A message that consists of `slices` and must not outlive them.
pub(crate) fn message_of(slices: &[IoSlice<'_>]) -> libc::msghdr {
    // SAFETY: an all-zero `msghdr` is a valid, empty message.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len() as _;
    message
}

pub(crate) fn send_message(socket: &UnixStream, message: &libc::msghdr, wait: bool) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: `IoSlice` is guaranteed to have the layout of `iovec`; `sendmsg` only reads what the message points to,
    // all of which outlives the call.
    retry(|| unsafe { libc::sendmsg(socket.as_raw_fd(), message, flags) })
}

pub(crate) fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(count) => return Ok(count),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// The peer has closed its end, or the connection was shut down here.
pub fn peer_is_gone(socket: &UnixStream) -> bool {
    let mut polled = [libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLRDHUP,
        revents: 0,
    }];
    // SAFETY: `polled` is an array of one valid entry.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), 1, 0) };
    ready > 0
}

/// As far as the process may: beyond the system's limit only with CAP_NET_ADMIN. Smaller is slower, not wrong.
pub fn enlarge_send_buffer(socket: &UnixStream) {
    let set = |option: libc::c_int| {
        // SAFETY: the value is one `c_int`, which lives through the call, and its size is given.
        let outcome = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
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

/// Waits until one of two descriptors can be read or was closed; says whether that is so of the first.
pub fn wait_for_either(first: &impl AsRawFd, second: &impl AsRawFd) -> io::Result<bool> {
    let mut polled = [first.as_raw_fd(), second.as_raw_fd()].map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: `polled` is an array of two valid entries.
    retry(|| unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as _, -1) } as isize)?;
    Ok(polled[0].revents != 0)
}
