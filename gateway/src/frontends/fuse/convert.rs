//! Between the file service's terms and FUSE's.

use tombolo_base::BLOCK_BYTES;
use tombolo_files::{self as files, FileError};
use tombolo_fuse::protocol::flags::{ATTRIBUTES_ACCESS_ACL, ATTRIBUTES_DEFAULT_ACL};
use tombolo_fuse::protocol::request as fuse;
use tombolo_fuse::{Attributes, Errno};

pub fn errno(error: &FileError) -> Errno {
    Errno::new(error.errno())
}

pub fn attributes(found: &files::Attributes) -> Attributes {
    Attributes {
        node: found.inode,
        size: found.size,
        blocks: found.sectors(),
        atime: timestamp(found.atime),
        mtime: timestamp(found.mtime),
        ctime: timestamp(found.ctime),
        btime: timestamp(found.btime),
        mode: found.mode,
        links: found.links,
        uid: found.uid,
        gid: found.gid,
        device: found.device,
        block_bytes: BLOCK_BYTES as u32,
        flags: match found.has_xattrs {
            true => ATTRIBUTES_ACCESS_ACL | ATTRIBUTES_DEFAULT_ACL,
            false => 0,
        },
    }
}

pub fn timestamp(time: files::Timestamp) -> fuse::Timestamp {
    fuse::Timestamp {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    }
}

pub fn set_attributes(set: &fuse::SetAttributes) -> files::SetAttributes {
    files::SetAttributes {
        mode: set.mode,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set.atime.map(set_time),
        mtime: set.mtime.map(set_time),
        kill_privileges: set.kill_privileges,
    }
}

fn set_time(set: fuse::SetTime) -> files::SetTime {
    match set {
        fuse::SetTime::Now => files::SetTime::Now,
        fuse::SetTime::To(time) => files::SetTime::To(files::Timestamp::new(time.seconds, time.nanoseconds)),
    }
}

pub fn rename_mode(flags: u32) -> Result<files::RenameMode, FileError> {
    match flags {
        0 => Ok(files::RenameMode::Replace),
        libc::RENAME_NOREPLACE => Ok(files::RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Ok(files::RenameMode::Exchange),
        _ => Err(FileError::Invalid("flags of a rename")),
    }
}

pub fn xattr_flags(flags: u32, clear_setgid: bool) -> Result<files::XattrFlags, FileError> {
    let mode = match flags as i32 {
        0 => files::XattrMode::Any,
        libc::XATTR_CREATE => files::XattrMode::Create,
        libc::XATTR_REPLACE => files::XattrMode::Replace,
        _ => return Err(FileError::Invalid("flags of an extended attribute")),
    };
    Ok(files::XattrFlags {
        mode,
        kill_setgid: clear_setgid,
    })
}

pub fn open_flags(flags: u32, kill_privileges: bool) -> files::OpenFlags {
    let has = |flag: i32| flags as i32 & flag != 0;
    files::OpenFlags {
        truncate: has(libc::O_TRUNC),
        kill_privileges,
        exclusive: has(libc::O_EXCL),
    }
}

/// Whether a write with these flags is to be stable when it is answered.
pub fn is_synchronous(flags: u32) -> bool {
    flags as i32 & (libc::O_SYNC | libc::O_DSYNC) != 0
}

pub fn seek(whence: u32) -> Result<files::Seek, FileError> {
    match whence as i32 {
        libc::SEEK_DATA => Ok(files::Seek::Data),
        libc::SEEK_HOLE => Ok(files::Seek::Hole),
        _ => Err(FileError::Invalid("whence of a seek")),
    }
}
