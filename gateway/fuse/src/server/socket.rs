//! Unix stream sockets: the system calls that the standard library does not offer. Sending without waiting and without
//! a signal, receiving descriptors, receiving into memory that was not zeroed first, and asking whether the peer is
//! gone.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Descriptors that may come with one message; the kernel's own limit is 253.
pub const DESCRIPTORS_MAX: usize = 64;

/// Room for two replies of 1 MiB in the socket, so that the sender need not wake for every few pages that the client
/// takes. The kernel counts its own overhead too, and doubles what it is asked for to make up for it.
static SEND_BUFFER_BYTES: libc::c_int = 2 << 20;

/// Sends some of the bytes and says how many; [`io::ErrorKind::WouldBlock`] if none can be taken, with `wait`
/// only after the socket's own timeout.
pub fn send(socket: &UnixStream, slices: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
    // SAFETY: an all-zero `msghdr` is a valid, empty message.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len() as _;
    send_message(socket, &message, wait)
}

fn send_message(socket: &UnixStream, message: &libc::msghdr, wait: bool) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: `IoSlice` is guaranteed to have the layout of `iovec`; `sendmsg` only reads what the message points to,
    // all of which outlives the call.
    retry(|| unsafe { libc::sendmsg(socket.as_raw_fd(), message, flags) })
}

/// Sends all of `bytes`, the descriptors with the first of them.
pub fn send_with_descriptors(socket: &UnixStream, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let mut control = control_buffer();
    let slices = [IoSlice::new(bytes)];
    // SAFETY: an all-zero `msghdr` is a valid, empty message.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = 1;
    if !descriptors.is_empty() {
        put_descriptors(&mut message, &mut control, descriptors)?;
    }
    let mut sent = send_message(socket, &message, true)?;
    while sent < bytes.len() {
        sent += send(socket, &[IoSlice::new(&bytes[sent..])], true)?;
    }
    Ok(())
}

/// Aligned as `cmsghdr` wants it.
type ControlBuffer = [u64; 40];
const _: () = assert!(size_of::<ControlBuffer>() >= size_of::<libc::cmsghdr>() + DESCRIPTORS_MAX * size_of::<RawFd>());

fn control_buffer() -> ControlBuffer {
    [0; 40]
}

fn put_descriptors(message: &mut libc::msghdr, control: &mut ControlBuffer, descriptors: &[RawFd]) -> io::Result<()> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = mem::size_of_val(descriptors) as libc::c_uint;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: pure arithmetic on a length that is bounded above.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(bytes) } as _;
    // SAFETY: `msg_control` points to a buffer of at least `msg_controllen` bytes, aligned for `cmsghdr` and large
    // enough for one header and the descriptors, as the assertion above shows.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
        std::ptr::copy_nonoverlapping(
            descriptors.as_ptr().cast::<u8>(),
            libc::CMSG_DATA(header),
            bytes as usize,
        );
    }
    Ok(())
}

/// Receives bytes, and adds the descriptors that came with them; zero bytes mean the end. More descriptors than
/// [`DESCRIPTORS_MAX`] are [`io::ErrorKind::InvalidData`].
pub fn receive_with_descriptors(
    socket: &UnixStream,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut control = control_buffer();
    let mut slices = [IoSliceMut::new(buffer)];
    // SAFETY: an all-zero `msghdr` is a valid, empty message.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = slices.as_mut_ptr().cast();
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<ControlBuffer>() as _;
    // SAFETY: `IoSliceMut` is guaranteed to have the layout of `iovec`; both buffers outlive the call and are as long
    // as the message says.
    let received = retry(|| unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) })?;
    take_descriptors(&message, descriptors);
    match message.msg_flags & libc::MSG_CTRUNC {
        0 => Ok(received),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors")),
    }
}

/// What the kernel has put into a message's control buffer.
fn take_descriptors(message: &libc::msghdr, descriptors: &mut Vec<OwnedFd>) {
    // SAFETY: the kernel has just filled in `msg_control` and `msg_controllen`, and the buffer is alive; the CMSG
    // functions stay within it. Descriptors are copied out unaligned, and each is new and owned by nobody else.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for index in 0..bytes / size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

/// Appends exactly `count` bytes.
pub fn receive_payload(socket: &UnixStream, payload: &mut Vec<u8>, count: usize) -> io::Result<()> {
    payload.reserve_exact(count);
    let mut left = count;
    while left > 0 {
        let spare = &mut payload.spare_capacity_mut()[..left];
        let (start, fd) = (spare.as_mut_ptr().cast(), socket.as_raw_fd());
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

fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
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

/// Ends both directions: whoever reads reaches the end, sending fails.
pub fn close(socket: &UnixStream) {
    // Fails only when the peer has closed already.
    let _ = socket.shutdown(Shutdown::Both);
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
