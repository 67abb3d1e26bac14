//! The structures of `<linux/fuse.h>`, with the kernel's own field names.

use super::wire::{Wire, wire_structs};

wire_structs! {
    InHeader = "fuse_in_header" since 38 {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        total_extlen: u16,
        padding: u16,
    }
    OutHeader = "fuse_out_header" since 1 {
        len: u32,
        error: i32,
        unique: u64,
    }
    Attr = "fuse_attr" since 32 {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    SxTime = "fuse_sx_time" since 39 {
        tv_sec: i64,
        tv_nsec: u32,
        __reserved: i32,
    }
    StatxAttr = "fuse_statx" since 39 {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        __spare0: [u16; 1],
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: SxTime,
        btime: SxTime,
        ctime: SxTime,
        mtime: SxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        __spare2: [u64; 14],
    }
    Kstatfs = "fuse_kstatfs" since 9 {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    FileLock = "fuse_file_lock" since 9 {
        start: u64,
        end: u64,
        r#type: u32,
        pid: u32,
    }
    EntryOut = "fuse_entry_out" since 9 {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }
    ForgetIn = "fuse_forget_in" since 1 {
        nlookup: u64,
    }
    ForgetOne = "fuse_forget_one" since 16 {
        nodeid: u64,
        nlookup: u64,
    }
    BatchForgetIn = "fuse_batch_forget_in" since 16 {
        count: u32,
        dummy: u32,
    }
    GetattrIn = "fuse_getattr_in" since 9 {
        getattr_flags: u32,
        dummy: u32,
        fh: u64,
    }
    AttrOut = "fuse_attr_out" since 9 {
        attr_valid: u64,
        attr_valid_nsec: u32,
        dummy: u32,
        attr: Attr,
    }
    StatxIn = "fuse_statx_in" since 39 {
        getattr_flags: u32,
        reserved: u32,
        fh: u64,
        sx_flags: u32,
        sx_mask: u32,
    }
    StatxOut = "fuse_statx_out" since 39 {
        attr_valid: u64,
        attr_valid_nsec: u32,
        flags: u32,
        spare: [u64; 2],
        stat: StatxAttr,
    }
    MknodIn = "fuse_mknod_in" since 12 {
        mode: u32,
        rdev: u32,
        umask: u32,
        padding: u32,
    }
    MkdirIn = "fuse_mkdir_in" since 12 {
        mode: u32,
        umask: u32,
    }
    RenameIn = "fuse_rename_in" since 1 {
        newdir: u64,
    }
    Rename2In = "fuse_rename2_in" since 23 {
        newdir: u64,
        flags: u32,
        padding: u32,
    }
    LinkIn = "fuse_link_in" since 1 {
        oldnodeid: u64,
    }
    SetattrIn = "fuse_setattr_in" since 23 {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    OpenIn = "fuse_open_in" since 32 {
        flags: u32,
        open_flags: u32,
    }
    CreateIn = "fuse_create_in" since 32 {
        flags: u32,
        mode: u32,
        umask: u32,
        open_flags: u32,
    }
    /// The last field is `padding` before minor 40 and `backing_id` from then on.
    OpenOut = "fuse_open_out" since 9 {
        fh: u64,
        open_flags: u32,
    }
    ReleaseIn = "fuse_release_in" since 9 {
        fh: u64,
        flags: u32,
        release_flags: u32,
        lock_owner: u64,
    }
    FlushIn = "fuse_flush_in" since 9 {
        fh: u64,
        unused: u32,
        padding: u32,
        lock_owner: u64,
    }
    ReadIn = "fuse_read_in" since 9 {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    WriteIn = "fuse_write_in" since 9 {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    WriteOut = "fuse_write_out" since 1 {
        size: u32,
        padding: u32,
    }
    StatfsOut = "fuse_statfs_out" since 9 {
        st: Kstatfs,
    }
    FsyncIn = "fuse_fsync_in" since 1 {
        fh: u64,
        fsync_flags: u32,
        padding: u32,
    }
    SetxattrIn = "fuse_setxattr_in" since 33 {
        size: u32,
        flags: u32,
        setxattr_flags: u32,
        padding: u32,
    }
    GetxattrIn = "fuse_getxattr_in" since 1 {
        size: u32,
        padding: u32,
    }
    GetxattrOut = "fuse_getxattr_out" since 1 {
        size: u32,
        padding: u32,
    }
    LkIn = "fuse_lk_in" since 9 {
        fh: u64,
        owner: u64,
        lk: FileLock,
        lk_flags: u32,
        padding: u32,
    }
    LkOut = "fuse_lk_out" since 9 {
        lk: FileLock,
    }
    AccessIn = "fuse_access_in" since 1 {
        mask: u32,
        padding: u32,
    }
    /// `unused` is eleven words up to minor 45.
    InitIn = "fuse_init_in" since 36 {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        flags2: u32,
        unused: [u32; 11],
    }
    /// What follows `flags2` has been given meanings since; all of it is zero here.
    InitOut = "fuse_init_out" since 36 {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
    }
    InterruptIn = "fuse_interrupt_in" since 9 {
        unique: u64,
    }
    FallocateIn = "fuse_fallocate_in" since 19 {
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
        padding: u32,
    }
    Dirent = "fuse_dirent" since 1 {
        ino: u64,
        off: u64,
        namelen: u32,
        r#type: u32,
    }
    NotifyInvalInodeOut = "fuse_notify_inval_inode_out" since 12 {
        ino: u64,
        off: i64,
        len: i64,
    }
    NotifyInvalEntryOut = "fuse_notify_inval_entry_out" since 38 {
        parent: u64,
        namelen: u32,
        flags: u32,
    }
    NotifyDeleteOut = "fuse_notify_delete_out" since 18 {
        parent: u64,
        child: u64,
        namelen: u32,
        padding: u32,
    }
    LseekIn = "fuse_lseek_in" since 24 {
        fh: u64,
        offset: u64,
        whence: u32,
        padding: u32,
    }
    LseekOut = "fuse_lseek_out" since 24 {
        offset: u64,
    }
    CopyFileRangeIn = "fuse_copy_file_range_in" since 28 {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }
    CopyFileRangeOut = "fuse_copy_file_range_out" since 45 {
        bytes_copied: u64,
    }
    SyncfsIn = "fuse_syncfs_in" since 34 {
        padding: u64,
    }
}

/// Length of what precedes every request.
pub const IN_HEADER_BYTES: usize = InHeader::BYTES;
/// Length of what precedes every reply.
pub const OUT_HEADER_BYTES: usize = OutHeader::BYTES;
/// Where the data of a WRITE begins.
pub const WRITE_HEAD_BYTES: usize = InHeader::BYTES + WriteIn::BYTES;
/// [`OpenOut`]'s full size in C, its tail of zeroes included.
pub const OPEN_OUT_BYTES: usize = 16;
/// [`InitOut`]'s full size in C, its tail of zeroes included.
pub const INIT_OUT_BYTES: usize = 64;

const _: () = assert!(IN_HEADER_BYTES == 40 && OUT_HEADER_BYTES == 16 && WRITE_HEAD_BYTES == 80);
const _: () = assert!(OpenOut::BYTES + 4 == OPEN_OUT_BYTES && InitOut::BYTES + 28 == INIT_OUT_BYTES);
