//! Requests as the owner of the files sees them.
//!
//! Names are 1 to 255 bytes without NUL and `/`; "." and ".." get through, for a lookup may ask for them. Offsets,
//! sizes and flags are as the client sent them: only what the wire format itself says was checked. `fh` is whatever an
//! answer to OPEN, CREATE or OPENDIR gave out.

use super::flags::UNIQUE_RESEND;
use super::opcode::Opcode;

/// What every request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    pub opcode: Opcode,
    /// As it came, [`UNIQUE_RESEND`] included; the reply repeats it.
    pub unique: u64,
    /// The node that the request is about; 1 is the root. Meaningless in FORGETs and INTERRUPT.
    pub node: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

impl RequestHeader {
    /// The client sends this request again, because its answer may have got lost.
    pub fn is_resent(&self) -> bool {
        self.unique & UNIQUE_RESEND != 0
    }

    /// The same each time that a request is sent.
    pub fn request_id(&self) -> u64 {
        self.unique & !UNIQUE_RESEND
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Lookup {
        name: Vec<u8>,
    },
    /// The client gives back what lookups and creations counted for [`RequestHeader::node`]. Has no reply.
    Forget {
        lookups: u64,
    },
    /// Has no reply.
    BatchForget(Vec<Forgotten>),
    Getattr {
        fh: Option<u64>,
    },
    Setattr(SetAttributes),
    Readlink,
    Symlink {
        name: Vec<u8>,
        target: Vec<u8>,
    },
    Mknod {
        name: Vec<u8>,
        mode: u32,
        device: u32,
        umask: u32,
        /// What the new inode has from the first moment on.
        attributes: Option<Box<SetAttributes>>,
    },
    Mkdir {
        name: Vec<u8>,
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: Vec<u8>,
    },
    Rmdir {
        name: Vec<u8>,
    },
    /// RENAME and RENAME2; `flags` are those of renameat2(2).
    Rename {
        name: Vec<u8>,
        new_parent: u64,
        new_name: Vec<u8>,
        flags: u32,
    },
    /// A further name for `node`, in the directory of the header.
    Link {
        node: u64,
        name: Vec<u8>,
    },
    Open {
        flags: u32,
        kill_privileges: bool,
    },
    Read(Read),
    Write(Write),
    Statfs,
    Release(Release),
    Fsync {
        fh: u64,
        data_only: bool,
    },
    Setxattr {
        name: Vec<u8>,
        value: Vec<u8>,
        /// XATTR_CREATE, XATTR_REPLACE.
        flags: u32,
        /// Setting the access ACL is to clear setgid.
        clear_setgid: bool,
    },
    /// `size` 0 asks for the size only, which [`super::reply::Reply::XattrSize`] answers; a value that is larger than
    /// another size is ERANGE.
    Getxattr {
        name: Vec<u8>,
        size: u32,
    },
    /// As with [`Request::Getxattr`].
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: Vec<u8>,
    },
    /// A descriptor was closed: the locks of `lock_owner` go.
    Flush {
        fh: u64,
        lock_owner: u64,
    },
    Opendir {
        flags: u32,
    },
    Readdir(Readdir),
    Readdirplus(Readdir),
    Releasedir {
        fh: u64,
        flags: u32,
    },
    Fsyncdir {
        fh: u64,
        data_only: bool,
    },
    Getlk(LockRequest),
    /// SETLK and SETLKW.
    Setlk {
        lock: LockRequest,
        wait: bool,
    },
    /// access(2)'s mask.
    Access {
        mask: u32,
    },
    Create {
        name: Vec<u8>,
        flags: u32,
        mode: u32,
        umask: u32,
        kill_privileges: bool,
        /// As for [`Request::Mknod`].
        attributes: Option<Box<SetAttributes>>,
    },
    /// A file without a name, for the directory of the header.
    Tmpfile {
        flags: u32,
        mode: u32,
        umask: u32,
    },
    Fallocate {
        fh: u64,
        offset: u64,
        length: u64,
        /// As in fallocate(2).
        mode: u32,
    },
    Lseek {
        fh: u64,
        offset: u64,
        /// As in lseek(2); clients ask for SEEK_DATA and SEEK_HOLE.
        whence: u32,
    },
    CopyFileRange(CopyRange),
    Syncfs,
    Statx {
        fh: Option<u64>,
        flags: u32,
        mask: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten {
    pub node: u64,
    pub lookups: u64,
}

/// Seconds and nanoseconds since 1970; before it, seconds are negative and nanoseconds still count forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp {
    pub seconds: i64,
    pub nanoseconds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    To(Timestamp),
    /// To the server's time.
    Now,
}

/// `None` leaves an attribute as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    pub fh: Option<u64>,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    pub ctime: Option<Timestamp>,
    pub lock_owner: Option<u64>,
    pub kill_privileges: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    /// Of open(2).
    pub flags: u32,
    pub lock_owner: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub fh: u64,
    pub offset: u64,
    /// Of open(2): with O_SYNC or O_DSYNC the data is stable when answered.
    pub flags: u32,
    pub lock_owner: Option<u64>,
    /// Written back from the client's page cache: `fh` is a guess.
    pub from_cache: bool,
    pub kill_privileges: bool,
    /// The answer is to bring the attributes, as [`super::reply::Reply::WrittenWith`] does.
    pub wants_attributes: bool,
    pub data: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub fh: u64,
    pub flags: u32,
    /// `lock_owner`'s POSIX locks go.
    pub flush: bool,
    /// `lock_owner`'s flock lock goes.
    pub unlock_flock: bool,
    pub lock_owner: u64,
}

/// Entries after the one whose cookie is `offset`, from the start with 0, in at most `size` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readdir {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockType {
    Read,
    Write,
    Unlock,
}

/// Bytes `start..=end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    pub start: u64,
    pub end: u64,
    pub kind: LockType,
    pub pid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    pub fh: u64,
    pub owner: u64,
    pub lock: FileLock,
    /// A flock(2) lock; a POSIX one otherwise.
    pub flock: bool,
}

/// From the header's node to `node_out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    pub fh_in: u64,
    pub offset_in: u64,
    pub node_out: u64,
    pub fh_out: u64,
    pub offset_out: u64,
    pub length: u64,
    pub flags: u64,
}

impl Request {
    /// False for requests that only look at names and attributes, and so are done in microseconds.
    pub fn may_wait(&self) -> bool {
        match self {
            Self::Lookup { .. }
            | Self::Forget { .. }
            | Self::BatchForget(_)
            | Self::Getattr { .. }
            | Self::Readlink
            | Self::Statfs
            | Self::Getxattr { .. }
            | Self::Listxattr { .. }
            | Self::Readdir(_)
            | Self::Readdirplus(_)
            | Self::Opendir { .. }
            | Self::Getlk(_)
            | Self::Access { .. }
            | Self::Statx { .. } => false,
            Self::Setattr(_)
            | Self::Symlink { .. }
            | Self::Mknod { .. }
            | Self::Mkdir { .. }
            | Self::Unlink { .. }
            | Self::Rmdir { .. }
            | Self::Rename { .. }
            | Self::Link { .. }
            | Self::Open { .. }
            | Self::Read(_)
            | Self::Write(_)
            | Self::Release(_)
            | Self::Fsync { .. }
            | Self::Setxattr { .. }
            | Self::Removexattr { .. }
            | Self::Flush { .. }
            | Self::Releasedir { .. }
            | Self::Fsyncdir { .. }
            | Self::Setlk { .. }
            | Self::Create { .. }
            | Self::Tmpfile { .. }
            | Self::Fallocate { .. }
            | Self::Lseek { .. }
            | Self::CopyFileRange(_)
            | Self::Syncfs => true,
        }
    }

    /// What the request and its answer hold in memory, in bytes.
    pub fn charge_bytes(&self) -> usize {
        match self {
            Self::Read(read) => read.size as usize,
            Self::Write(write) => write.data.len(),
            Self::Readdir(readdir) | Self::Readdirplus(readdir) => readdir.size as usize,
            Self::Setxattr { value, .. } => value.len(),
            Self::Getxattr { size, .. } | Self::Listxattr { size } => *size as usize,
            _ => 0,
        }
    }
}
