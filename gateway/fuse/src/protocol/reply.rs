//! Answers, and the bytes they become.

use super::abi::{
    Attr, AttrOut, CopyFileRangeOut, EntryOut, GetxattrOut, Kstatfs, LkOut, LseekOut, OPEN_OUT_BYTES, OUT_HEADER_BYTES,
    OpenOut, OutHeader, StatfsOut, StatxAttr, StatxOut, SxTime, WriteOut,
};
use super::arguments::TARGET_BYTES_MAX;
use super::opcode::Opcode;
use super::request::{FileLock, LockType, Request, Timestamp};
use super::wire::Wire;
use crate::Errno;
use std::time::Duration;

/// What stat(2) and statx(2) tell of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub node: u64,
    pub size: u64,
    /// Of 512 bytes.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Only STATX has room for it.
    pub btime: Timestamp,
    /// Type and permissions.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Of a device node, as mknod(2) encodes it in 32 bits.
    pub device: u32,
    pub block_bytes: u32,
    /// Of `fuse_attr`. The kernel ignores [`super::flags::ATTRIBUTES_ACCESS_ACL`] and its like.
    pub flags: u32,
}

/// A node with a name; node 0 says that there is none, which the client may believe for `entry_valid`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub node: u64,
    pub generation: u64,
    pub entry_valid: Duration,
    pub attributes_valid: Duration,
    pub attributes: Attributes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    pub fh: u64,
    /// `FOPEN_` of [`super::flags::bits`].
    pub flags: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Blocks of `block_bytes`: all, free, and free to those without privileges.
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub block_bytes: u32,
    pub name_bytes_max: u32,
}

/// | answers | requests |
/// |---|---|
/// | `Entry` | LOOKUP, SYMLINK, MKNOD, MKDIR, LINK |
/// | `Attributes` | GETATTR, SETATTR |
/// | `Statx` | STATX |
/// | `Opened` | OPEN, OPENDIR |
/// | `Created` | CREATE, TMPFILE |
/// | `Data` | READ (short only at the end), READLINK, READDIR, READDIRPLUS, GETXATTR and LISTXATTR with a size |
/// | `XattrSize` | GETXATTR and LISTXATTR without |
/// | `Written` | WRITE |
/// | `WrittenWith`: attributes too, which are the file's after the write | WRITE that wants them |
/// | `Copied` | COPY_FILE_RANGE |
/// | `Position` | LSEEK |
/// | `Lock` | GETLK: the lock in the way, or type `Unlock` |
/// | `Statfs` | STATFS |
/// | `Done` | everything else |
///
/// Any other pairing is reported to the client as EIO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    Entry(Entry),
    Attributes { valid: Duration, attributes: Attributes },
    Statx { valid: Duration, attributes: Attributes },
    Opened(Opened),
    Created(Entry, Opened),
    Data(Vec<u8>),
    XattrSize(u32),
    Written(u32),
    WrittenWith { bytes: u32, attributes: Attributes },
    Copied(u64),
    Position(u64),
    Lock(FileLock),
    Statfs(Statfs),
}

impl Reply {
    /// The answer to GETXATTR or LISTXATTR with this `size`.
    pub fn sized(value: Vec<u8>, size: u32) -> Result<Self, Errno> {
        match size as usize {
            0 => Ok(Self::XattrSize(value.len() as u32)),
            room if value.len() > room => Err(Errno::new(libc::ERANGE)),
            _ => Ok(Self::Data(value)),
        }
    }
}

/// What the answer to a request has to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub unique: u64,
    pub opcode: Opcode,
    /// What the request asked for or brought, in bytes, where that bounds the answer.
    pub size: u64,
    /// A WRITE's answer is to bring attributes.
    pub attributes: bool,
}

impl Expected {
    pub fn of(unique: u64, opcode: Opcode, request: &Request) -> Self {
        let size = match request {
            Request::Read(read) => read.size.into(),
            Request::Readdir(readdir) | Request::Readdirplus(readdir) => readdir.size.into(),
            Request::Getxattr { size, .. } | Request::Listxattr { size } => (*size).into(),
            Request::Write(write) => write.data.len() as u64,
            Request::CopyFileRange(copy) => copy.length,
            Request::Readlink => TARGET_BYTES_MAX as u64,
            _ => 0,
        };
        let attributes = matches!(request, Request::Write(write) if write.wants_attributes);
        Self {
            unique,
            opcode,
            size,
            attributes,
        }
    }
}

/// A message on its way to the client: `head` has the header and all fixed parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    pub head: Vec<u8>,
    pub body: Vec<u8>,
}

impl Encoded {
    pub fn error(unique: u64, errno: Errno) -> Self {
        let header = OutHeader {
            len: OUT_HEADER_BYTES as u32,
            error: -errno.number(),
            unique,
        };
        Self {
            head: header.to_bytes(),
            body: Vec::new(),
        }
    }

    pub fn done(unique: u64) -> Self {
        Self::parts(unique, |_| (), Vec::new())
    }

    fn parts(unique: u64, fixed: impl FnOnce(&mut Vec<u8>), body: Vec<u8>) -> Self {
        let mut head = Vec::with_capacity(OUT_HEADER_BYTES + EntryOut::BYTES + OPEN_OUT_BYTES);
        OutHeader::default().put(&mut head);
        fixed(&mut head);
        let header = OutHeader {
            len: (head.len() + body.len()) as u32,
            error: 0,
            unique,
        };
        head[..OUT_HEADER_BYTES].copy_from_slice(&header.to_bytes());
        Self { head, body }
    }
}

/// `None` when the reply does not answer such a request.
pub fn encode(expected: Expected, reply: Reply) -> Option<Encoded> {
    if !fits(expected, &reply) {
        return None;
    }
    let unique = expected.unique;
    let fixed = |fixed: &dyn Fn(&mut Vec<u8>)| Encoded::parts(unique, fixed, Vec::new());
    Some(match reply {
        Reply::Done => Encoded::done(unique),
        Reply::Entry(entry) => fixed(&|out| entry_out(&entry).put(out)),
        Reply::Attributes { valid, attributes } => fixed(&|out| attr_out(valid, &attributes).put(out)),
        Reply::Statx { valid, attributes } => fixed(&|out| statx_out(valid, &attributes).put(out)),
        Reply::Opened(opened) => fixed(&|out| put_opened(opened, out)),
        Reply::Created(entry, opened) => fixed(&|out| {
            entry_out(&entry).put(out);
            put_opened(opened, out);
        }),
        Reply::Data(data) => Encoded::parts(unique, |_| (), data),
        Reply::XattrSize(size) => fixed(&|out| GetxattrOut { size, padding: 0 }.put(out)),
        Reply::Written(size) => fixed(&|out| WriteOut { size, padding: 0 }.put(out)),
        Reply::WrittenWith { bytes, attributes } => fixed(&|out| {
            WriteOut {
                size: bytes,
                padding: 0,
            }
            .put(out);
            attr(&attributes).put(out);
        }),
        Reply::Copied(bytes) => fixed(&|out| put_copied(expected.opcode, bytes, out)),
        Reply::Position(offset) => fixed(&|out| LseekOut { offset }.put(out)),
        Reply::Lock(lock) => fixed(&|out| LkOut { lk: file_lock(&lock) }.put(out)),
        Reply::Statfs(statfs) => fixed(&|out| statfs_out(&statfs).put(out)),
    })
}

fn fits(expected: Expected, reply: &Reply) -> bool {
    let size = expected.size;
    match (expected.opcode, reply) {
        (Opcode::Lookup | Opcode::Symlink | Opcode::Mknod | Opcode::Mkdir | Opcode::Link, Reply::Entry(_))
        | (Opcode::Getattr | Opcode::Setattr, Reply::Attributes { .. })
        | (Opcode::Statx, Reply::Statx { .. })
        | (Opcode::Open | Opcode::Opendir, Reply::Opened(_))
        | (Opcode::Create | Opcode::Tmpfile, Reply::Created(..))
        | (Opcode::Lseek, Reply::Position(_))
        | (Opcode::Getlk, Reply::Lock(_))
        | (Opcode::Statfs, Reply::Statfs(_)) => true,
        (Opcode::Read | Opcode::Readlink | Opcode::Readdir | Opcode::Readdirplus, Reply::Data(data)) => {
            data.len() as u64 <= size
        }
        (Opcode::Getxattr | Opcode::Listxattr, Reply::Data(data)) => size > 0 && data.len() as u64 <= size,
        (Opcode::Getxattr | Opcode::Listxattr, Reply::XattrSize(_)) => size == 0,
        (Opcode::Write, Reply::Written(bytes)) => u64::from(*bytes) <= size && !expected.attributes,
        (Opcode::Write, Reply::WrittenWith { bytes, .. }) => u64::from(*bytes) <= size && expected.attributes,
        (Opcode::CopyFileRange, Reply::Copied(copied)) => *copied <= size.min(u32::MAX.into()),
        (Opcode::CopyFileRange64, Reply::Copied(copied)) => *copied <= size,
        (opcode, Reply::Done) => answers_done(opcode),
        _ => false,
    }
}

fn answers_done(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Unlink
            | Opcode::Rmdir
            | Opcode::Rename
            | Opcode::Rename2
            | Opcode::Release
            | Opcode::Releasedir
            | Opcode::Fsync
            | Opcode::Fsyncdir
            | Opcode::Setxattr
            | Opcode::Removexattr
            | Opcode::Flush
            | Opcode::Setlk
            | Opcode::Setlkw
            | Opcode::Access
            | Opcode::Fallocate
            | Opcode::Syncfs
    )
}

pub fn entry_out(entry: &Entry) -> EntryOut {
    EntryOut {
        nodeid: entry.node,
        generation: entry.generation,
        entry_valid: entry.entry_valid.as_secs(),
        attr_valid: entry.attributes_valid.as_secs(),
        entry_valid_nsec: entry.entry_valid.subsec_nanos(),
        attr_valid_nsec: entry.attributes_valid.subsec_nanos(),
        attr: attr(&entry.attributes),
    }
}

fn attr_out(valid: Duration, attributes: &Attributes) -> AttrOut {
    AttrOut {
        attr_valid: valid.as_secs(),
        attr_valid_nsec: valid.subsec_nanos(),
        dummy: 0,
        attr: attr(attributes),
    }
}

fn attr(of: &Attributes) -> Attr {
    Attr {
        ino: of.node,
        size: of.size,
        blocks: of.blocks,
        atime: of.atime.seconds as u64,
        mtime: of.mtime.seconds as u64,
        ctime: of.ctime.seconds as u64,
        atimensec: of.atime.nanoseconds,
        mtimensec: of.mtime.nanoseconds,
        ctimensec: of.ctime.nanoseconds,
        mode: of.mode,
        nlink: of.links,
        uid: of.uid,
        gid: of.gid,
        rdev: of.device,
        blksize: of.block_bytes,
        flags: of.flags,
    }
}

fn statx_out(valid: Duration, of: &Attributes) -> StatxOut {
    let time = |time: Timestamp| SxTime {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds,
        __reserved: 0,
    };
    let stat = StatxAttr {
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        blksize: of.block_bytes,
        nlink: of.links,
        uid: of.uid,
        gid: of.gid,
        mode: of.mode as u16,
        ino: of.node,
        size: of.size,
        blocks: of.blocks,
        atime: time(of.atime),
        btime: time(of.btime),
        ctime: time(of.ctime),
        mtime: time(of.mtime),
        rdev_major: libc::major(of.device.into()),
        rdev_minor: libc::minor(of.device.into()),
        ..StatxAttr::default()
    };
    StatxOut {
        attr_valid: valid.as_secs(),
        attr_valid_nsec: valid.subsec_nanos(),
        stat,
        ..StatxOut::default()
    }
}

fn put_opened(opened: Opened, out: &mut Vec<u8>) {
    let fixed = OpenOut {
        fh: opened.fh,
        open_flags: opened.flags,
    };
    fixed.put(out);
    out.resize(out.len() + OPEN_OUT_BYTES - OpenOut::BYTES, 0);
}

fn put_copied(opcode: Opcode, bytes: u64, out: &mut Vec<u8>) {
    match opcode {
        Opcode::CopyFileRange64 => CopyFileRangeOut { bytes_copied: bytes }.put(out),
        // Whether it fits has been seen to.
        _ => WriteOut {
            size: bytes as u32,
            padding: 0,
        }
        .put(out),
    }
}

pub(super) fn file_lock(lock: &FileLock) -> super::abi::FileLock {
    let kind = match lock.kind {
        LockType::Read => libc::F_RDLCK,
        LockType::Write => libc::F_WRLCK,
        LockType::Unlock => libc::F_UNLCK,
    };
    super::abi::FileLock {
        start: lock.start,
        end: lock.end,
        r#type: kind as u32,
        pid: lock.pid,
    }
}

fn statfs_out(of: &Statfs) -> StatfsOut {
    let st = Kstatfs {
        blocks: of.blocks,
        bfree: of.blocks_free,
        bavail: of.blocks_available,
        files: of.inodes,
        ffree: of.inodes_free,
        bsize: of.block_bytes,
        namelen: of.name_bytes_max,
        frsize: of.block_bytes,
        ..Kstatfs::default()
    };
    StatfsOut { st }
}
