//! Requests as bytes: a client's side, and the other half of [`super::parse`] for tests.

use super::abi::*;
use super::flags::bits::*;
use super::flags::{CREATION_WITH_ATTRIBUTES, WRITE_WITH_ATTRIBUTES};
use super::opcode::Opcode;
use super::request::*;
use super::wire::Wire;

/// The whole message. The header's opcode decides between the forms that a request has (RENAME and RENAME2, say).
pub fn encode(header: &RequestHeader, request: &Request) -> Vec<u8> {
    let mut message = InHeader::default().to_bytes();
    put_arguments(header.opcode, request, &mut message);
    let fixed = InHeader {
        len: message.len() as u32,
        opcode: header.opcode.number(),
        unique: header.unique,
        nodeid: header.node,
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        ..InHeader::default()
    };
    message[..IN_HEADER_BYTES].copy_from_slice(&fixed.to_bytes());
    message
}

/// The request that `interrupted` stands for is to be taken back. Has no answer.
pub fn encode_interrupt(unique: u64, interrupted: u64) -> Vec<u8> {
    let header = InHeader {
        len: (IN_HEADER_BYTES + InterruptIn::BYTES) as u32,
        opcode: Opcode::Interrupt.number(),
        unique,
        ..InHeader::default()
    };
    let mut message = header.to_bytes();
    InterruptIn { unique: interrupted }.put(&mut message);
    message
}

/// The opcode by which a request is sent unless there is a reason for another.
pub fn opcode_of(request: &Request) -> Opcode {
    match request {
        Request::Lookup { .. } => Opcode::Lookup,
        Request::Forget { .. } => Opcode::Forget,
        Request::BatchForget(_) => Opcode::BatchForget,
        Request::Getattr { .. } => Opcode::Getattr,
        Request::Setattr(_) => Opcode::Setattr,
        Request::Readlink => Opcode::Readlink,
        Request::Symlink { .. } => Opcode::Symlink,
        Request::Mknod { .. } => Opcode::Mknod,
        Request::Mkdir { .. } => Opcode::Mkdir,
        Request::Unlink { .. } => Opcode::Unlink,
        Request::Rmdir { .. } => Opcode::Rmdir,
        Request::Rename { .. } => Opcode::Rename2,
        Request::Link { .. } => Opcode::Link,
        Request::Open { .. } => Opcode::Open,
        Request::Read(_) => Opcode::Read,
        Request::Write(_) => Opcode::Write,
        Request::Statfs => Opcode::Statfs,
        Request::Release(_) => Opcode::Release,
        Request::Fsync { .. } => Opcode::Fsync,
        Request::Setxattr { .. } => Opcode::Setxattr,
        Request::Getxattr { .. } => Opcode::Getxattr,
        Request::Listxattr { .. } => Opcode::Listxattr,
        Request::Removexattr { .. } => Opcode::Removexattr,
        Request::Flush { .. } => Opcode::Flush,
        Request::Opendir { .. } => Opcode::Opendir,
        Request::Readdir(_) => Opcode::Readdir,
        Request::Readdirplus(_) => Opcode::Readdirplus,
        Request::Releasedir { .. } => Opcode::Releasedir,
        Request::Fsyncdir { .. } => Opcode::Fsyncdir,
        Request::Getlk(_) => Opcode::Getlk,
        Request::Setlk { wait: false, .. } => Opcode::Setlk,
        Request::Setlk { wait: true, .. } => Opcode::Setlkw,
        Request::Access { .. } => Opcode::Access,
        Request::Create { .. } => Opcode::Create,
        Request::Tmpfile { .. } => Opcode::Tmpfile,
        Request::Fallocate { .. } => Opcode::Fallocate,
        Request::Lseek { .. } => Opcode::Lseek,
        Request::CopyFileRange(_) => Opcode::CopyFileRange,
        Request::Syncfs => Opcode::Syncfs,
        Request::Statx { .. } => Opcode::Statx,
    }
}

fn put_arguments(opcode: Opcode, request: &Request, out: &mut Vec<u8>) {
    match request {
        Request::Lookup { name } | Request::Unlink { name } | Request::Rmdir { name } => put_string(name, out),
        Request::Removexattr { name } => put_string(name, out),
        Request::Forget { lookups } => ForgetIn { nlookup: *lookups }.put(out),
        Request::BatchForget(forgotten) => put_batch_forget(forgotten, out),
        Request::Getattr { fh } => {
            let (getattr_flags, fh) = optional_fh(*fh);
            let dummy = 0;
            GetattrIn {
                getattr_flags,
                dummy,
                fh,
            }
            .put(out);
        }
        Request::Setattr(set) => setattr_in(set).put(out),
        Request::Readlink | Request::Statfs => {}
        Request::Symlink { name, target } => {
            put_string(name, out);
            put_string(target, out);
        }
        Request::Mknod {
            name,
            mode,
            device,
            umask,
            attributes,
        } => {
            MknodIn {
                mode: *mode,
                rdev: *device,
                umask: *umask,
                padding: bit(attributes.is_some(), CREATION_WITH_ATTRIBUTES),
            }
            .put(out);
            put_creation_attributes(attributes.as_deref(), out);
            put_string(name, out);
        }
        Request::Mkdir { name, mode, umask } => {
            MkdirIn {
                mode: *mode,
                umask: *umask,
            }
            .put(out);
            put_string(name, out);
        }
        Request::Rename {
            name,
            new_parent,
            new_name,
            flags,
        } => {
            match opcode {
                Opcode::Rename => RenameIn { newdir: *new_parent }.put(out),
                _ => Rename2In {
                    newdir: *new_parent,
                    flags: *flags,
                    padding: 0,
                }
                .put(out),
            }
            put_string(name, out);
            put_string(new_name, out);
        }
        Request::Link { node, name } => {
            LinkIn { oldnodeid: *node }.put(out);
            put_string(name, out);
        }
        Request::Open { flags, kill_privileges } => OpenIn {
            flags: *flags,
            open_flags: bit(*kill_privileges, OPEN_KILL_SUIDGID),
        }
        .put(out),
        Request::Opendir { flags } => OpenIn {
            flags: *flags,
            open_flags: 0,
        }
        .put(out),
        Request::Setxattr {
            name,
            value,
            flags,
            clear_setgid,
        } => {
            SetxattrIn {
                size: value.len() as u32,
                flags: *flags,
                setxattr_flags: bit(*clear_setgid, SETXATTR_ACL_KILL_SGID),
                padding: 0,
            }
            .put(out);
            put_string(name, out);
            out.extend_from_slice(value);
        }
        Request::Getxattr { name, size } => {
            put_size(*size, out);
            put_string(name, out);
        }
        Request::Listxattr { size } => put_size(*size, out),
        Request::Access { mask } => AccessIn {
            mask: *mask,
            padding: 0,
        }
        .put(out),
        Request::Create {
            name,
            flags,
            mode,
            umask,
            kill_privileges,
            attributes,
        } => {
            let kill = bit(*kill_privileges, OPEN_KILL_SUIDGID);
            let with_attributes = bit(attributes.is_some(), CREATION_WITH_ATTRIBUTES);
            put_create(*flags, *mode, *umask, kill | with_attributes, out);
            put_creation_attributes(attributes.as_deref(), out);
            put_string(name, out);
        }
        Request::Tmpfile { flags, mode, umask } => {
            put_create(*flags, *mode, *umask, 0, out);
            // The kernel's stand-in for a name.
            put_string(b"/", out);
        }
        Request::Syncfs => SyncfsIn { padding: 0 }.put(out),
        Request::Statx { fh, flags, mask } => {
            let (getattr_flags, fh) = optional_fh(*fh);
            StatxIn {
                getattr_flags,
                reserved: 0,
                fh,
                sx_flags: *flags,
                sx_mask: *mask,
            }
            .put(out);
        }
        Request::Read(_)
        | Request::Write(_)
        | Request::Release(_)
        | Request::Fsync { .. }
        | Request::Flush { .. }
        | Request::Readdir(_)
        | Request::Readdirplus(_)
        | Request::Releasedir { .. }
        | Request::Fsyncdir { .. }
        | Request::Getlk(_)
        | Request::Setlk { .. }
        | Request::Fallocate { .. }
        | Request::Lseek { .. }
        | Request::CopyFileRange(_) => put_with_handle(request, out),
    }
}

/// Requests about an open file or directory.
fn put_with_handle(request: &Request, out: &mut Vec<u8>) {
    match request {
        Request::Read(read) => ReadIn {
            fh: read.fh,
            offset: read.offset,
            size: read.size,
            read_flags: bit(read.lock_owner.is_some(), READ_LOCKOWNER),
            lock_owner: read.lock_owner.unwrap_or(0),
            flags: read.flags,
            padding: 0,
        }
        .put(out),
        Request::Write(write) => put_write(write, out),
        Request::Release(release) => ReleaseIn {
            fh: release.fh,
            flags: release.flags,
            release_flags: bit(release.flush, RELEASE_FLUSH) | bit(release.unlock_flock, RELEASE_FLOCK_UNLOCK),
            lock_owner: release.lock_owner,
        }
        .put(out),
        Request::Releasedir { fh, flags } => ReleaseIn {
            fh: *fh,
            flags: *flags,
            ..ReleaseIn::default()
        }
        .put(out),
        Request::Fsync { fh, data_only } | Request::Fsyncdir { fh, data_only } => FsyncIn {
            fh: *fh,
            fsync_flags: bit(*data_only, FSYNC_FDATASYNC),
            padding: 0,
        }
        .put(out),
        Request::Flush { fh, lock_owner } => FlushIn {
            fh: *fh,
            lock_owner: *lock_owner,
            ..FlushIn::default()
        }
        .put(out),
        Request::Readdir(readdir) | Request::Readdirplus(readdir) => ReadIn {
            fh: readdir.fh,
            offset: readdir.offset,
            size: readdir.size,
            ..ReadIn::default()
        }
        .put(out),
        Request::Getlk(lock) | Request::Setlk { lock, .. } => put_lock(lock, out),
        Request::Fallocate {
            fh,
            offset,
            length,
            mode,
        } => FallocateIn {
            fh: *fh,
            offset: *offset,
            length: *length,
            mode: *mode,
            padding: 0,
        }
        .put(out),
        Request::Lseek { fh, offset, whence } => LseekIn {
            fh: *fh,
            offset: *offset,
            whence: *whence,
            padding: 0,
        }
        .put(out),
        Request::CopyFileRange(copy) => CopyFileRangeIn {
            fh_in: copy.fh_in,
            off_in: copy.offset_in,
            nodeid_out: copy.node_out,
            fh_out: copy.fh_out,
            off_out: copy.offset_out,
            len: copy.length,
            flags: copy.flags,
        }
        .put(out),
        _ => unreachable!("the caller gives only requests about an open file"),
    }
}

fn bit(on: bool, bit: u32) -> u32 {
    if on { bit } else { 0 }
}

fn optional_fh(fh: Option<u64>) -> (u32, u64) {
    (bit(fh.is_some(), GETATTR_FH), fh.unwrap_or(0))
}

fn put_string(string: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(string);
    out.push(0);
}

fn put_size(size: u32, out: &mut Vec<u8>) {
    GetxattrIn { size, padding: 0 }.put(out);
}

fn put_creation_attributes(attributes: Option<&SetAttributes>, out: &mut Vec<u8>) {
    if let Some(set) = attributes {
        setattr_in(set).put(out);
    }
}

fn put_create(flags: u32, mode: u32, umask: u32, open_flags: u32, out: &mut Vec<u8>) {
    CreateIn {
        flags,
        mode,
        umask,
        open_flags,
    }
    .put(out);
}

fn put_batch_forget(forgotten: &[Forgotten], out: &mut Vec<u8>) {
    BatchForgetIn {
        count: forgotten.len() as u32,
        dummy: 0,
    }
    .put(out);
    for one in forgotten {
        ForgetOne {
            nodeid: one.node,
            nlookup: one.lookups,
        }
        .put(out);
    }
}

fn put_write(write: &Write, out: &mut Vec<u8>) {
    WriteIn {
        fh: write.fh,
        offset: write.offset,
        size: write.data.len() as u32,
        write_flags: bit(write.lock_owner.is_some(), WRITE_LOCKOWNER)
            | bit(write.from_cache, WRITE_CACHE)
            | bit(write.kill_privileges, WRITE_KILL_SUIDGID)
            | bit(write.wants_attributes, WRITE_WITH_ATTRIBUTES),
        lock_owner: write.lock_owner.unwrap_or(0),
        flags: write.flags,
        padding: 0,
    }
    .put(out);
    out.extend_from_slice(&write.data);
}

fn put_lock(lock: &LockRequest, out: &mut Vec<u8>) {
    LkIn {
        fh: lock.fh,
        owner: lock.owner,
        lk: super::reply::file_lock(&lock.lock),
        lk_flags: bit(lock.flock, LK_FLOCK),
        padding: 0,
    }
    .put(out);
}

fn setattr_in(set: &SetAttributes) -> SetattrIn {
    let mut valid = bit(set.fh.is_some(), FATTR_FH)
        | bit(set.mode.is_some(), FATTR_MODE)
        | bit(set.uid.is_some(), FATTR_UID)
        | bit(set.gid.is_some(), FATTR_GID)
        | bit(set.size.is_some(), FATTR_SIZE)
        | bit(set.ctime.is_some(), FATTR_CTIME)
        | bit(set.lock_owner.is_some(), FATTR_LOCKOWNER)
        | bit(set.kill_privileges, FATTR_KILL_SUIDGID);
    let mut time = |time: Option<SetTime>, to: u32, now: u32| match time {
        None => Timestamp::default(),
        Some(SetTime::Now) => {
            valid |= to | now;
            Timestamp::default()
        }
        Some(SetTime::To(time)) => {
            valid |= to;
            time
        }
    };
    let atime = time(set.atime, FATTR_ATIME, FATTR_ATIME_NOW);
    let mtime = time(set.mtime, FATTR_MTIME, FATTR_MTIME_NOW);
    let ctime = set.ctime.unwrap_or_default();
    SetattrIn {
        valid,
        fh: set.fh.unwrap_or(0),
        size: set.size.unwrap_or(0),
        lock_owner: set.lock_owner.unwrap_or(0),
        atime: atime.seconds as u64,
        mtime: mtime.seconds as u64,
        ctime: ctime.seconds as u64,
        atimensec: atime.nanoseconds,
        mtimensec: mtime.nanoseconds,
        ctimensec: ctime.nanoseconds,
        mode: set.mode.unwrap_or(0),
        uid: set.uid.unwrap_or(0),
        gid: set.gid.unwrap_or(0),
        ..SetattrIn::default()
    }
}
