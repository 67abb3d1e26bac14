//! Advisory locks between openers of one directory, in this process and in others. The kernel drops them with the process.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    Shared,
    Exclusive,
}

/// Waits for the lock. It belongs to this opening of the file and ends when `file` is closed.
pub(super) fn lock(file: &File, lock: Lock) -> io::Result<()> {
    loop {
        match flock(file, operation(lock)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// False when another opening holds a lock that forbids this one.
pub(super) fn try_lock(file: &File, lock: Lock) -> io::Result<bool> {
    match flock(file, operation(lock) | libc::LOCK_NB) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

fn operation(lock: Lock) -> libc::c_int {
    match lock {
        Lock::Shared => libc::LOCK_SH,
        Lock::Exclusive => libc::LOCK_EX,
    }
}

fn flock(file: &File, operation: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed; flock touches no memory of ours.
    match unsafe { libc::flock(file.as_raw_fd(), operation) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
