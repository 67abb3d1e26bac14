//! Error numbers that a reply can carry.

use crate::protocol::malformed::Malformed;

/// An errno of Linux, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(i32);

/// The kernel takes no reply with a number beyond this.
const ERRNO_MAX: i32 = 511;

impl Errno {
    /// `EAGAIN`.
    pub const AGAIN: Self = Self(libc::EAGAIN);
    /// `EBUSY`.
    pub const BUSY: Self = Self(libc::EBUSY);
    /// `EINVAL`.
    pub const INVAL: Self = Self(libc::EINVAL);
    /// `EIO`.
    pub const IO: Self = Self(libc::EIO);
    /// `ENOENT`.
    pub const NOENT: Self = Self(libc::ENOENT);
    /// `ENOSYS`.
    pub const NOSYS: Self = Self(libc::ENOSYS);
    /// `EPROTO`.
    pub const PROTO: Self = Self(libc::EPROTO);

    /// What is no error number becomes EIO, so that a reply is always one that the client can take.
    pub fn new(number: i32) -> Self {
        match number {
            1..=ERRNO_MAX => Self(number),
            _ => Self::IO,
        }
    }

    /// As in <errno.h>, positive.
    pub fn number(self) -> i32 {
        self.0
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(out)
    }
}

impl std::error::Error for Errno {}

impl From<&Malformed> for Errno {
    fn from(malformed: &Malformed) -> Self {
        Self(match malformed {
            // The kernel remembers ENOSYS and asks no more.
            Malformed::UnknownOpcode { .. } | Malformed::NotServed { .. } => libc::ENOSYS,
            // To an ioctl it would mean something else.
            Malformed::NoIoctl => libc::ENOTTY,
            Malformed::Length { .. }
            | Malformed::Unterminated { .. }
            | Malformed::NulInName { .. }
            | Malformed::SlashInName
            | Malformed::CountMismatch { .. }
            | Malformed::Extension { .. }
            | Malformed::Value { .. } => libc::EINVAL,
            // As for an empty path.
            Malformed::EmptyName => libc::ENOENT,
            Malformed::NameTooLong { .. } | Malformed::TargetTooLong { .. } => libc::ENAMETOOLONG,
            // As setxattr(2) has it.
            Malformed::XattrNameTooLong { .. } => libc::ERANGE,
            Malformed::XattrValueTooLong { .. } => libc::E2BIG,
            Malformed::OutOfPlace { .. } => libc::EPROTO,
        })
    }
}
