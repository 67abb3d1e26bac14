//! Bits and numbers of `<linux/fuse.h>`, in one table per kind so that a test can compare them with the header.

macro_rules! numbers {
    ($(#[$attribute:meta])* $table:ident: $type:ty { $($name:ident = $value:expr, $c_name:literal since $minor:literal;)* }) => {
        $(pub const $name: $type = $value;)*

        $(#[$attribute])*
        pub const $table: &[(&str, u64, u32)] = &[$(($c_name, $name as u64, $minor),)*];
    };
}

/// FUSE_INIT, both halves: bits 32.. are `flags2` on the wire.
pub mod init {
    numbers! {
        /// Name in C, value, minor version.
        TABLE: u64 {
            ASYNC_READ = 1 << 0, "FUSE_ASYNC_READ" since 6;
            POSIX_LOCKS = 1 << 1, "FUSE_POSIX_LOCKS" since 7;
            ATOMIC_O_TRUNC = 1 << 3, "FUSE_ATOMIC_O_TRUNC" since 9;
            EXPORT_SUPPORT = 1 << 4, "FUSE_EXPORT_SUPPORT" since 10;
            BIG_WRITES = 1 << 5, "FUSE_BIG_WRITES" since 9;
            DONT_MASK = 1 << 6, "FUSE_DONT_MASK" since 12;
            FLOCK_LOCKS = 1 << 10, "FUSE_FLOCK_LOCKS" since 17;
            AUTO_INVAL_DATA = 1 << 12, "FUSE_AUTO_INVAL_DATA" since 20;
            DO_READDIRPLUS = 1 << 13, "FUSE_DO_READDIRPLUS" since 21;
            READDIRPLUS_AUTO = 1 << 14, "FUSE_READDIRPLUS_AUTO" since 21;
            ASYNC_DIO = 1 << 15, "FUSE_ASYNC_DIO" since 22;
            PARALLEL_DIROPS = 1 << 18, "FUSE_PARALLEL_DIROPS" since 25;
            POSIX_ACL = 1 << 20, "FUSE_POSIX_ACL" since 26;
            MAX_PAGES = 1 << 22, "FUSE_MAX_PAGES" since 28;
            CACHE_SYMLINKS = 1 << 23, "FUSE_CACHE_SYMLINKS" since 28;
            HANDLE_KILLPRIV_V2 = 1 << 28, "FUSE_HANDLE_KILLPRIV_V2" since 33;
            SETXATTR_EXT = 1 << 29, "FUSE_SETXATTR_EXT" since 33;
            INIT_EXT = 1 << 30, "FUSE_INIT_EXT" since 36;
            HAS_RESEND = 1 << 39, "FUSE_HAS_RESEND" since 40;
        }
    }
}

/// Everything else that is a bit or a number.
pub mod bits {
    numbers! {
        /// Name in C, value, minor version.
        TABLE: u32 {
            ROOT_ID = 1, "FUSE_ROOT_ID" since 1;
            KERNEL_VERSION = 7, "FUSE_KERNEL_VERSION" since 1;
            FATTR_MODE = 1 << 0, "FATTR_MODE" since 1;
            FATTR_UID = 1 << 1, "FATTR_UID" since 1;
            FATTR_GID = 1 << 2, "FATTR_GID" since 1;
            FATTR_SIZE = 1 << 3, "FATTR_SIZE" since 1;
            FATTR_ATIME = 1 << 4, "FATTR_ATIME" since 1;
            FATTR_MTIME = 1 << 5, "FATTR_MTIME" since 1;
            FATTR_FH = 1 << 6, "FATTR_FH" since 9;
            FATTR_ATIME_NOW = 1 << 7, "FATTR_ATIME_NOW" since 9;
            FATTR_MTIME_NOW = 1 << 8, "FATTR_MTIME_NOW" since 9;
            FATTR_LOCKOWNER = 1 << 9, "FATTR_LOCKOWNER" since 9;
            FATTR_CTIME = 1 << 10, "FATTR_CTIME" since 23;
            FATTR_KILL_SUIDGID = 1 << 11, "FATTR_KILL_SUIDGID" since 33;
            GETATTR_FH = 1 << 0, "FUSE_GETATTR_FH" since 9;
            OPEN_KILL_SUIDGID = 1 << 0, "FUSE_OPEN_KILL_SUIDGID" since 33;
            RELEASE_FLUSH = 1 << 0, "FUSE_RELEASE_FLUSH" since 8;
            RELEASE_FLOCK_UNLOCK = 1 << 1, "FUSE_RELEASE_FLOCK_UNLOCK" since 17;
            LK_FLOCK = 1 << 0, "FUSE_LK_FLOCK" since 9;
            WRITE_CACHE = 1 << 0, "FUSE_WRITE_CACHE" since 9;
            WRITE_LOCKOWNER = 1 << 1, "FUSE_WRITE_LOCKOWNER" since 9;
            WRITE_KILL_SUIDGID = 1 << 2, "FUSE_WRITE_KILL_SUIDGID" since 33;
            READ_LOCKOWNER = 1 << 1, "FUSE_READ_LOCKOWNER" since 9;
            FSYNC_FDATASYNC = 1 << 0, "FUSE_FSYNC_FDATASYNC" since 31;
            SETXATTR_ACL_KILL_SGID = 1 << 0, "FUSE_SETXATTR_ACL_KILL_SGID" since 33;
            EXPIRE_ONLY = 1 << 0, "FUSE_EXPIRE_ONLY" since 38;
            FOPEN_DIRECT_IO = 1 << 0, "FOPEN_DIRECT_IO" since 1;
            FOPEN_KEEP_CACHE = 1 << 1, "FOPEN_KEEP_CACHE" since 1;
            FOPEN_CACHE_DIR = 1 << 3, "FOPEN_CACHE_DIR" since 28;
            NOTIFY_INVAL_INODE = 2, "FUSE_NOTIFY_INVAL_INODE" since 12;
            NOTIFY_INVAL_ENTRY = 3, "FUSE_NOTIFY_INVAL_ENTRY" since 12;
            NOTIFY_DELETE = 6, "FUSE_NOTIFY_DELETE" since 18;
            NOTIFY_RESEND = 7, "FUSE_NOTIFY_RESEND" since 40;
        }
    }
}

/// In `fuse_attr.flags` on a socket, when ATTACH promised so: there may be an access ACL, or a default ACL. Without the bit
/// there is none, and nobody need ask.
pub const ATTRIBUTES_ACCESS_ACL: u32 = 1 << 30;
pub const ATTRIBUTES_DEFAULT_ACL: u32 = 1 << 31;

/// In `fuse_write_in.write_flags` on a socket, when ATTACH promised so: the answer is `fuse_write_out` with a `fuse_attr`
/// behind it.
pub const WRITE_WITH_ATTRIBUTES: u32 = 1 << 31;

/// In `fuse_mknod_in.padding` and `fuse_create_in.open_flags` on a socket, when ATTACH promised so: a `fuse_setattr_in`
/// stands before the name. What it sets of owner, group, size and times the new inode has from the first moment on.
pub const CREATION_WITH_ATTRIBUTES: u32 = 1 << 31;

/// Set in `unique` of a request that the client sends again, because its answer may have got lost
/// (FUSE_UNIQUE_RESEND).
pub const UNIQUE_RESEND: u64 = 1 << 63;
/// FUSE_DEV_IOC_CLONE: `_IOR(229, 0, uint32_t)`.
pub const DEVICE_IOCTL_CLONE: u64 = 0x8004_e500;
/// FUSE_MIN_READ_BUFFER.
pub const READ_BUFFER_BYTES_MIN: usize = 8192;
