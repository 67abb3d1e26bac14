//! Descriptors that come with the bytes of a Unix socket.

use crate::socket::{Sink, message_of, retry, send_message};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Descriptors that may come with one message; the kernel's own limit is 253.
pub const DESCRIPTORS_MAX: usize = 64;

/// Sends all of `bytes`, the descriptors with the first of them.
pub fn send_with_descriptors(socket: &UnixStream, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let mut control = control_buffer();
    let slices = [IoSlice::new(bytes)];
    let mut message = message_of(&slices);
    if !descriptors.is_empty() {
        put_descriptors(&mut message, &mut control, descriptors)?;
    }
    let sent = send_message(socket, &message, true)?;
    socket.send_all(&bytes[sent..])
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
#[expect(clippy::cast_ptr_alignment, reason = "read unaligned")]
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
