//! What goes into requests and comes out of them.

use crate::error::FileError;
use tombolo_base::FlushMode;

/// Longest name of a directory entry, a share, an extended attribute, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest target of a symbolic link (`PATH_MAX` without its NUL).
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Largest file.
pub const FILE_BYTES_MAX: u64 = 1 << 48;
/// Most hard links to one file. Directories are not limited: each subdirectory counts as a link.
pub const LINKS_MAX: u32 = 65_000;
/// Largest value of an extended attribute, and the most bytes that a list of names may take.
pub const XATTR_BYTES_MAX: usize = 65_536;
/// Stands for the root directory of the caller's share in every request. No inode has this number.
pub const ROOT: u64 = 1;

/// Time since 1970, in the real world's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// May be negative.
    pub seconds: i64,
    /// Below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// `nanoseconds` below 1,000,000,000.
    pub const fn new(seconds: i64, nanoseconds: u32) -> Self {
        Self { seconds, nanoseconds }
    }

    /// The next instant that can be told from this one.
    pub fn next(self) -> Self {
        match self.nanoseconds {
            999_999_999.. => Self::new(self.seconds.saturating_add(1), 0),
            nanoseconds => Self::new(self.seconds, nanoseconds + 1),
        }
    }
}

/// Bits of a mode that are permissions, setuid, setgid and sticky.
pub const MODE_PERMISSIONS: u32 = 0o7777;
/// Bits of a mode that are the type.
pub const MODE_TYPE: u32 = 0o170_000;
/// The file runs as its owner.
pub const MODE_SETUID: u32 = 0o4000;
/// The file runs as its group; of a directory: what is made in it has its group.
pub const MODE_SETGID: u32 = 0o2000;
/// Without it setgid is not a privilege.
pub const MODE_GROUP_EXECUTE: u32 = 0o010;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// With bytes.
    Regular,
    /// With names.
    Directory,
    /// With a target.
    Symlink,
    /// With a device number.
    CharacterDevice,
    /// With a device number.
    BlockDevice,
    /// Only a name here; the client does the rest.
    Fifo,
    /// Only a name here; the client does the rest.
    Socket,
}

impl FileType {
    /// The type bits of `mode`; none count as a regular file, as in mknod(2).
    pub fn of_mode(mode: u32) -> Option<Self> {
        Self::of_directory_type(((mode & MODE_TYPE) >> 12) as u8).or((mode & MODE_TYPE == 0).then_some(Self::Regular))
    }

    /// The type bits of a mode.
    pub fn mode(self) -> u32 {
        u32::from(self.directory_type()) << 12
    }

    /// `DT_REG` and the like, as directory entries have it; the type bits of a mode are the same shifted by 12.
    pub fn directory_type(self) -> u8 {
        match self {
            Self::Fifo => 1,
            Self::CharacterDevice => 2,
            Self::Directory => 4,
            Self::BlockDevice => 6,
            Self::Regular => 8,
            Self::Symlink => 10,
            Self::Socket => 12,
        }
    }

    /// The reverse of [`Self::directory_type`].
    pub fn of_directory_type(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Fifo,
            2 => Self::CharacterDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::Regular,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => return None,
        })
    }
}

/// Who asks, and when.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Who.
    pub session: u64,
    /// The share that the session is on; inodes of others are [`FileError::Stale`].
    pub share: u32,
    /// Owner of what the request creates.
    pub uid: u32,
    /// Group of what the request creates, unless the directory hands down its own.
    pub gid: u32,
    /// When.
    pub now: Timestamp,
    /// Which of its requests.
    pub request: Request,
}

/// Which request of its session this is, so that one that is sent again after a crash is not carried out twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Request {
    /// Not remembered: the caller never sends it again.
    #[default]
    Unnumbered,
    /// Number as the session counts: no other request that is under way has it. It grows by 2 or more.
    Number(u64),
    /// Perhaps carried out before, under this number.
    Again(u64),
}

/// What stat(2) tells of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub inode: u64,
    /// What it is.
    pub file_type: FileType,
    /// Type and permissions.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its names; of a directory also those of its subdirectories to it.
    pub links: u32,
    /// Number of a device file, else 0.
    pub device: u32,
    /// In bytes.
    pub size: u64,
    /// Blocks of [`tombolo_base::BLOCK_BYTES`] that hold data.
    pub allocated_blocks: u64,
    /// Set by creation and by requests only; reading does not change it.
    pub atime: Timestamp,
    /// The last change of its bytes or names.
    pub mtime: Timestamp,
    /// Grows with every change of the inode, so it can serve as a version.
    pub ctime: Timestamp,
    /// When the inode was created.
    pub btime: Timestamp,
    /// `ctime` in nanoseconds: equal exactly when nothing changed.
    pub change: u64,
    /// Extended attributes; without any there is no ACL either.
    pub has_xattrs: bool,
}

impl Attributes {
    /// What stat(2) calls blocks: units of 512 bytes.
    pub fn sectors(&self) -> u64 {
        self.allocated_blocks * (tombolo_base::BLOCK_BYTES as u64 / 512)
    }
}

/// The answer to everything that finds or makes a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub inode: u64,
    /// As they are now.
    pub attributes: Attributes,
}

/// Which time is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The caller's.
    Now,
    /// This one.
    To(Timestamp),
}

/// What to change; `None` leaves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits; type bits are ignored.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// In bytes; of regular files only.
    pub size: Option<u64>,
    /// The last use.
    pub atime: Option<SetTime>,
    /// The last change.
    pub mtime: Option<SetTime>,
    /// With `size`: also clear setuid and setgid, as for a caller without `CAP_FSETID`.
    pub kill_privileges: bool,
}

/// What a new inode shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Type and permissions, not yet masked.
    pub mode: u32,
    /// Applied unless the directory has a default ACL.
    pub umask: u32,
    /// Number of a device file, else 0.
    pub device: u32,
    /// What is to be other than usual from the first moment on: owner, group, times, and a file's size.
    pub attributes: SetAttributes,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// It is made empty.
    pub truncate: bool,
    /// With `truncate`: clear setuid and setgid.
    pub kill_privileges: bool,
    /// [`crate::FileService::create`] only: an existing name is [`FileError::Exists`].
    pub exclusive: bool,
}

/// What renameat2(2) calls flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// What has the new name is replaced.
    #[default]
    Replace,
    /// [`FileError::Exists`] when something has the new name.
    NoReplace,
    /// Both change names.
    Exchange,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct NameIn<'a> {
    /// The directory.
    pub parent: u64,
    /// 1 to 255 bytes, without slashes and zeroes.
    pub name: &'a [u8],
}

/// A part of a directory: the entries whose cookies are greater than `after` and less than `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// 0: from the beginning.
    pub after: u64,
    /// `u64::MAX`: to the end.
    pub end: u64,
}

impl From<u64> for Positions {
    /// All after this cookie; 0: all.
    fn from(after: u64) -> Self {
        Self { after, end: u64::MAX }
    }
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name.
    pub name: Vec<u8>,
    /// What it names.
    pub inode: u64,
    /// Of what it names.
    pub file_type: FileType,
    /// To go on after this entry.
    pub cookie: u64,
    /// When they were asked for; never for `..`.
    pub attributes: Option<Attributes>,
}

/// Whether it may or must be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    #[default]
    Any,
    /// It must not be there.
    Create,
    /// It must be there.
    Replace,
}

/// How to set an extended attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrFlags {
    /// Whether it may or must be there.
    pub mode: XattrMode,
    /// With an access ACL: clear setgid, as for a caller who is not in the file's group.
    pub kill_setgid: bool,
}

/// What fallocate(2) calls mode. Space is promised by the quota's count only when it is written: an allocation is thin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// The range shall be writable; the file grows to hold it.
    Extend,
    /// As above, but the size stays.
    KeepSize,
    /// The range becomes a hole; the size stays.
    PunchHole,
    /// The range reads as zeroes; the file grows to hold it.
    ZeroRange,
    /// As above, but the size stays.
    ZeroRangeKeepSize,
}

impl Allocate {
    /// From the bits of fallocate(2). Inserting and collapsing ranges are not supported.
    pub fn of_flags(flags: u32) -> Result<Self, FileError> {
        const KEEP_SIZE: u32 = 0x01;
        const PUNCH_HOLE: u32 = 0x02;
        const ZERO_RANGE: u32 = 0x10;
        const UNSHARE_RANGE: u32 = 0x40;
        match flags & !UNSHARE_RANGE {
            0 => Ok(Self::Extend),
            KEEP_SIZE => Ok(Self::KeepSize),
            bits if bits == PUNCH_HOLE | KEEP_SIZE => Ok(Self::PunchHole),
            ZERO_RANGE => Ok(Self::ZeroRange),
            bits if bits == ZERO_RANGE | KEEP_SIZE => Ok(Self::ZeroRangeKeepSize),
            _ => Err(FileError::NotSupported("this mode of fallocate")),
        }
    }
}

/// What lseek(2) looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that may not be zeroes.
    Data,
    /// A hole, or the end.
    Hole,
}

/// One side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub inode: u64,
    /// In bytes.
    pub offset: u64,
}

/// What statfs(2) answers, sizes in blocks of [`tombolo_base::BLOCK_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesystemStatus {
    /// The quota, or more than anybody needs.
    pub blocks: u64,
    /// What may still be written.
    pub blocks_free: u64,
    /// Those in use, and `inodes_free`.
    pub inodes: u64,
    /// More than anybody needs.
    pub inodes_free: u64,
}

/// A share, as administration sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareStatus {
    /// As clients name it.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// The inode of its root directory.
    pub root: u64,
    /// 0 for none.
    pub quota_bytes: u64,
    /// When.
    pub created: Timestamp,
    /// In blocks that hold data.
    pub used_bytes: u64,
    /// Files, directories and all else, the root included.
    pub inodes: u64,
    /// Its deletion has begun; it takes no sessions. Deleting it again goes on where it was.
    pub being_deleted: bool,
    /// What its flushes wait for.
    pub flush: FlushMode,
    /// Sessions on it, connected or not.
    pub sessions: usize,
}

/// How a session's client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// Over a socket. After a restart of the service it opens again what it has open.
    Client,
    /// A kernel's mount, which goes on with what it had open before a restart and says with FORGET when it is done.
    Kernel,
}

/// Who wants a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest<'a> {
    /// Its name, 1 to 255 bytes.
    pub client: &'a [u8],
    /// The share's name.
    pub share: &'a str,
    /// A client that has lost its state comes with another number; its old session is ended then.
    pub incarnation: u64,
    /// How it behaves.
    pub kind: SessionKind,
}

/// A session, begun or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionStart {
    /// Its number.
    pub session: u64,
    /// The share's number.
    pub share: u32,
    /// The inode of the share's root directory.
    pub root: u64,
    /// The session existed already, with its locks and open files.
    pub resumed: bool,
}

/// A session, as administration sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// Its number.
    pub session: u64,
    /// The client's name.
    pub client: Vec<u8>,
    /// The share's number.
    pub share: u32,
    /// How the client behaves.
    pub kind: SessionKind,
    /// Connections that are attached now.
    pub attached: usize,
}

/// For the other sessions, which may have cached what has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalidation {
    /// The session that made the change; 0 for the service itself.
    pub origin: u64,
    /// The share's number.
    pub share: u32,
    /// What has changed.
    pub what: Changed,
}

/// What a cache may have to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Data and attributes. A length of 0 means up to the end.
    Data {
        /// Whose.
        inode: u64,
        /// In bytes.
        offset: u64,
        /// In bytes.
        length: u64,
    },
    /// Attributes alone.
    Attributes {
        /// Whose.
        inode: u64,
    },
    /// The name was added, removed, or names another inode. `inode` is what it named before, else 0.
    Name {
        /// The directory.
        parent: u64,
        /// In it.
        name: Vec<u8>,
        /// What it named before.
        inode: u64,
    },
}
