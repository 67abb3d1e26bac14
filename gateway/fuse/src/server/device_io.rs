//! The system calls on `/dev/fuse` that the standard library does not offer: waiting without a stampede, and reading
//! into memory that was not zeroed first.

use crate::protocol::abi::{IN_HEADER_BYTES, InHeader, WRITE_HEAD_BYTES};
use crate::protocol::opcode::Opcode;
use crate::protocol::wire::Wire;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// What a request may have besides a WRITE's data: the largest extended attribute fits many times.
const ROOM_BYTES: usize = 4096;
/// Data from this size on is handed on in the buffer it was read into; less is copied, so that a small write does not
/// hold a large buffer.
const HANDED_ON_BYTES_MIN: usize = 128 * 1024;

const DEVICE: u64 = 0;
const STOP: u64 = 1;

/// One thread's wait for requests or the end. Of all threads that wait for one device, a request wakes one.
pub struct Waiter {
    epoll: OwnedFd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    Request,
    Stop,
}

impl Waiter {
    /// `stop` is to become readable, or be closed at its other end, when there is to be no more waiting.
    pub fn new(device: &impl AsFd, stop: &impl AsFd) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let waiter = Self { epoll };
        waiter.add(device, libc::EPOLLIN | libc::EPOLLEXCLUSIVE, DEVICE)?;
        waiter.add(stop, libc::EPOLLIN, STOP)?;
        Ok(waiter)
    }

    fn add(&self, watched: &impl AsFd, events: libc::c_int, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: token,
        };
        let (epoll, watched) = (self.epoll.as_raw_fd(), watched.as_fd().as_raw_fd());
        // SAFETY: both descriptors are open, and the event lives through the call.
        match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, watched, &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub fn wait(&self) -> io::Result<Wakeup> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
        loop {
            // SAFETY: `events` has room for as many as are asked for.
            let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), 2, -1) };
            match usize::try_from(count) {
                Ok(count) if events[..count].iter().any(|event| event.u64 == STOP) => return Ok(Wakeup::Stop),
                Ok(_) => return Ok(Wakeup::Request),
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }
}

/// Makes reading from the device fail rather than wait. Whoever else has this open file is affected too.
pub fn set_nonblocking(device: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: takes no pointers.
    let flags = unsafe { libc::fcntl(device.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: takes no pointers.
    if flags < 0 || unsafe { libc::fcntl(device.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// What a device had to say.
pub enum Received {
    /// The buffer holds a message.
    Message(InHeader),
    /// Nothing: another thread was faster, or the request was taken back.
    Nothing,
    /// The file system was unmounted, or its connection aborted.
    Unmounted,
}

/// Takes one message at a time. The part up to a WRITE's data and the rest are apart, so that the data need not be
/// copied.
pub struct MessageBuffer {
    head: [u8; WRITE_HEAD_BYTES],
    head_bytes: usize,
    body: Vec<u8>,
    body_bytes_max: usize,
    joined: Vec<u8>,
}

impl MessageBuffer {
    pub fn new(data_bytes_max: usize) -> Self {
        Self {
            head: [0; WRITE_HEAD_BYTES],
            head_bytes: 0,
            body: Vec::new(),
            body_bytes_max: data_bytes_max + ROOM_BYTES,
            joined: Vec::new(),
        }
    }

    pub fn read(&mut self, device: &impl AsRawFd) -> io::Result<Received> {
        match self.read_bytes(device) {
            Ok(bytes) if self.head_bytes < IN_HEADER_BYTES => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a message of {bytes} bytes"),
            )),
            Ok(_) => Ok(Received::Message(InHeader::get(&self.head[..IN_HEADER_BYTES]))),
            Err(error) => match error.raw_os_error() {
                // ENOENT: the request was taken back while it was being read.
                Some(libc::EAGAIN | libc::EINTR | libc::ENOENT) => Ok(Received::Nothing),
                Some(libc::ENODEV | libc::ECONNABORTED) => Ok(Received::Unmounted),
                _ => Err(error),
            },
        }
    }

    fn read_bytes(&mut self, device: &impl AsRawFd) -> io::Result<usize> {
        self.body.clear();
        self.body.reserve_exact(self.body_bytes_max);
        let slices = [
            libc::iovec {
                iov_base: self.head.as_mut_ptr().cast(),
                iov_len: self.head.len(),
            },
            libc::iovec {
                iov_base: self.body.as_mut_ptr().cast(),
                iov_len: self.body_bytes_max,
            },
        ];
        // SAFETY: the first slice is all of `head`; the second lies within the capacity just reserved. Both are this
        // call's alone, and `slices` outlives it.
        let bytes = unsafe { libc::readv(device.as_raw_fd(), slices.as_ptr(), slices.len() as _) };
        let bytes = usize::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
        self.head_bytes = bytes.min(self.head.len());
        // SAFETY: the kernel has filled `head` first, and then this many bytes of `body`.
        unsafe { self.body.set_len(bytes - self.head_bytes) };
        Ok(bytes)
    }

    /// Arguments of the message that was read, and the data if it is a WRITE.
    pub fn parts(&mut self, header: &InHeader) -> (&[u8], Vec<u8>) {
        if header.opcode == Opcode::Write.number() {
            return (&self.head[IN_HEADER_BYTES..self.head_bytes], take_data(&mut self.body));
        }
        if self.body.is_empty() {
            return (&self.head[IN_HEADER_BYTES..self.head_bytes], Vec::new());
        }
        self.joined.clear();
        self.joined.extend_from_slice(&self.head[IN_HEADER_BYTES..]);
        self.joined.extend_from_slice(&self.body);
        (&self.joined, Vec::new())
    }
}

fn take_data(body: &mut Vec<u8>) -> Vec<u8> {
    match body.len() >= HANDED_ON_BYTES_MIN {
        true => mem::take(body),
        false => body.clone(),
    }
}
