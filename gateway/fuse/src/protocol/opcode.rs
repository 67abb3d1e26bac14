//! What a request is about.

macro_rules! opcodes {
    ($($name:ident = $number:literal, $c_name:literal since $minor:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Opcode { $($name = $number,)* }

        impl Opcode {
            /// Number, name in C, and the protocol's minor version that brought it; 0 for this project's own.
            pub const ALL: &[(Self, &'static str, u32)] = &[$((Self::$name, $c_name, $minor),)*];

            /// `None` for one that this crate knows nothing of.
            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            pub fn number(self) -> u32 {
                self as u32
            }
        }
    };
}

opcodes! {
    Lookup = 1, "FUSE_LOOKUP" since 1;
    Forget = 2, "FUSE_FORGET" since 1;
    Getattr = 3, "FUSE_GETATTR" since 1;
    Setattr = 4, "FUSE_SETATTR" since 1;
    Readlink = 5, "FUSE_READLINK" since 1;
    Symlink = 6, "FUSE_SYMLINK" since 1;
    Mknod = 8, "FUSE_MKNOD" since 1;
    Mkdir = 9, "FUSE_MKDIR" since 1;
    Unlink = 10, "FUSE_UNLINK" since 1;
    Rmdir = 11, "FUSE_RMDIR" since 1;
    Rename = 12, "FUSE_RENAME" since 1;
    Link = 13, "FUSE_LINK" since 1;
    Open = 14, "FUSE_OPEN" since 1;
    Read = 15, "FUSE_READ" since 1;
    Write = 16, "FUSE_WRITE" since 1;
    Statfs = 17, "FUSE_STATFS" since 1;
    Release = 18, "FUSE_RELEASE" since 1;
    Fsync = 20, "FUSE_FSYNC" since 1;
    Setxattr = 21, "FUSE_SETXATTR" since 1;
    Getxattr = 22, "FUSE_GETXATTR" since 1;
    Listxattr = 23, "FUSE_LISTXATTR" since 1;
    Removexattr = 24, "FUSE_REMOVEXATTR" since 1;
    Flush = 25, "FUSE_FLUSH" since 1;
    Init = 26, "FUSE_INIT" since 1;
    Opendir = 27, "FUSE_OPENDIR" since 1;
    Readdir = 28, "FUSE_READDIR" since 1;
    Releasedir = 29, "FUSE_RELEASEDIR" since 1;
    Fsyncdir = 30, "FUSE_FSYNCDIR" since 1;
    Getlk = 31, "FUSE_GETLK" since 7;
    Setlk = 32, "FUSE_SETLK" since 7;
    Setlkw = 33, "FUSE_SETLKW" since 7;
    Access = 34, "FUSE_ACCESS" since 3;
    Create = 35, "FUSE_CREATE" since 3;
    Interrupt = 36, "FUSE_INTERRUPT" since 7;
    Bmap = 37, "FUSE_BMAP" since 7;
    Destroy = 38, "FUSE_DESTROY" since 7;
    Ioctl = 39, "FUSE_IOCTL" since 11;
    Poll = 40, "FUSE_POLL" since 11;
    NotifyReply = 41, "FUSE_NOTIFY_REPLY" since 15;
    BatchForget = 42, "FUSE_BATCH_FORGET" since 16;
    Fallocate = 43, "FUSE_FALLOCATE" since 19;
    Readdirplus = 44, "FUSE_READDIRPLUS" since 21;
    Rename2 = 45, "FUSE_RENAME2" since 23;
    Lseek = 46, "FUSE_LSEEK" since 24;
    CopyFileRange = 47, "FUSE_COPY_FILE_RANGE" since 28;
    SetupMapping = 48, "FUSE_SETUPMAPPING" since 31;
    RemoveMapping = 49, "FUSE_REMOVEMAPPING" since 31;
    Syncfs = 50, "FUSE_SYNCFS" since 34;
    Tmpfile = 51, "FUSE_TMPFILE" since 37;
    Statx = 52, "FUSE_STATX" since 39;
    CopyFileRange64 = 53, "FUSE_COPY_FILE_RANGE_64" since 45;
    Attach = 0x5442_0001, "TOMBOLO_ATTACH" since 0;
}

impl Opcode {
    /// Answered by nothing at all.
    pub fn has_no_reply(self) -> bool {
        matches!(self, Self::Forget | Self::BatchForget | Self::Interrupt)
    }
}
