//! From bytes to requests. Pure; every byte of a message is accounted for.
//!
//! A message comes in two parts, because the data of a WRITE goes straight into a vector of its own: the arguments (all
//! that follows the header), and that data, which is empty for every other opcode. [`split`] makes the two of a message
//! in one piece.

use super::abi::*;
use super::arguments::{Arguments, XATTR_VALUE_BYTES_MAX};
use super::flags::bits::*;
use super::flags::{CREATION_WITH_ATTRIBUTES, WRITE_WITH_ATTRIBUTES};
use super::malformed::Malformed;
use super::opcode::Opcode;
use super::request::*;
use super::wire::Wire;

/// Header, arguments and data of a message that arrived whole; `None` when it is shorter than a header.
pub fn split(message: &[u8]) -> Option<(InHeader, &[u8], Vec<u8>)> {
    let header = InHeader::get(message.get(..IN_HEADER_BYTES)?);
    let cut = match header.opcode == Opcode::Write.number() {
        true => WRITE_HEAD_BYTES.min(message.len()),
        false => message.len(),
    };
    Some((header, &message[IN_HEADER_BYTES..cut], message[cut..].to_vec()))
}

/// Fails on an opcode that this crate knows nothing of.
pub fn parse_header(header: &InHeader) -> Result<RequestHeader, Malformed> {
    let opcode = Opcode::from_number(header.opcode).ok_or(Malformed::UnknownOpcode { number: header.opcode })?;
    Ok(RequestHeader {
        opcode,
        unique: header.unique,
        node: header.nodeid,
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
    })
}

/// INIT, DESTROY, INTERRUPT and ATTACH are not requests to the owner of the files; [`Malformed::OutOfPlace`] says so of
/// those that whoever calls this has not dealt with.
pub fn parse(header: &InHeader, arguments: &[u8], data: Vec<u8>) -> Result<(RequestHeader, Request), Malformed> {
    let parsed = parse_header(header)?;
    let extension_bytes = usize::from(header.total_extlen) * 8;
    let left = arguments.len().checked_sub(extension_bytes);
    // Extensions (security contexts, supplementary groups) are sent only when asked for, and nobody here asks.
    let left = left.ok_or(Malformed::Extension { bytes: extension_bytes })?;
    let fields = Arguments {
        opcode: parsed.opcode,
        rest: &arguments[..left],
    };
    Ok((parsed, parse_request(fields, data)?))
}

fn parse_request(mut fields: Arguments<'_>, data: Vec<u8>) -> Result<Request, Malformed> {
    let opcode = fields.opcode;
    let request = match opcode {
        Opcode::Lookup => Request::Lookup { name: fields.name()? },
        Opcode::Forget => {
            let lookups = fields.take::<ForgetIn>()?.nlookup;
            Request::Forget { lookups }
        }
        Opcode::BatchForget => Request::BatchForget(batch_forget(&mut fields)?),
        Opcode::Getattr => {
            let given: GetattrIn = fields.take()?;
            let fh = (given.getattr_flags & GETATTR_FH != 0).then_some(given.fh);
            Request::Getattr { fh }
        }
        Opcode::Setattr => Request::Setattr(setattr(&fields.take()?)),
        Opcode::Readlink => Request::Readlink,
        Opcode::Symlink => Request::Symlink {
            name: fields.name()?,
            target: fields.target()?,
        },
        Opcode::Mknod => mknod(&mut fields)?,
        Opcode::Mkdir => mkdir(&mut fields)?,
        Opcode::Unlink => Request::Unlink { name: fields.name()? },
        Opcode::Rmdir => Request::Rmdir { name: fields.name()? },
        Opcode::Rename | Opcode::Rename2 => rename(&mut fields)?,
        Opcode::Link => Request::Link {
            node: fields.take::<LinkIn>()?.oldnodeid,
            name: fields.name()?,
        },
        Opcode::Open => open(&fields.take()?),
        Opcode::Opendir => {
            let flags = fields.take::<OpenIn>()?.flags;
            Request::Opendir { flags }
        }
        Opcode::Read => Request::Read(read(&fields.take()?)),
        Opcode::Write => return write(fields, data).map(Request::Write),
        Opcode::Statfs => Request::Statfs,
        Opcode::Release => Request::Release(release(&fields.take()?)),
        Opcode::Releasedir => {
            let ReleaseIn { fh, flags, .. } = fields.take()?;
            Request::Releasedir { fh, flags }
        }
        Opcode::Fsync | Opcode::Fsyncdir => fsync(opcode, &fields.take()?),
        Opcode::Setxattr => setxattr(&mut fields)?,
        Opcode::Getxattr => {
            let size = fields.take::<GetxattrIn>()?.size;
            let name = fields.xattr_name()?;
            Request::Getxattr { name, size }
        }
        Opcode::Listxattr => {
            let size = fields.take::<GetxattrIn>()?.size;
            Request::Listxattr { size }
        }
        Opcode::Removexattr => {
            let name = fields.xattr_name()?;
            Request::Removexattr { name }
        }
        Opcode::Flush => {
            let FlushIn { fh, lock_owner, .. } = fields.take()?;
            Request::Flush { fh, lock_owner }
        }
        Opcode::Readdir => Request::Readdir(readdir(&fields.take()?)),
        Opcode::Readdirplus => Request::Readdirplus(readdir(&fields.take()?)),
        Opcode::Getlk => Request::Getlk(lock_request(&fields.take()?)?),
        Opcode::Setlk | Opcode::Setlkw => Request::Setlk {
            lock: lock_request(&fields.take()?)?,
            wait: opcode == Opcode::Setlkw,
        },
        Opcode::Access => {
            let mask = fields.take::<AccessIn>()?.mask;
            Request::Access { mask }
        }
        Opcode::Create => create(&mut fields)?,
        Opcode::Tmpfile => tmpfile(&mut fields)?,
        Opcode::Fallocate => fallocate(&fields.take()?),
        Opcode::Lseek => {
            let LseekIn { fh, offset, whence, .. } = fields.take()?;
            Request::Lseek { fh, offset, whence }
        }
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => Request::CopyFileRange(copy_range(&fields.take()?)),
        Opcode::Syncfs => {
            fields.take::<SyncfsIn>()?;
            Request::Syncfs
        }
        Opcode::Statx => statx(&fields.take()?),
        Opcode::Ioctl => return Err(Malformed::NoIoctl),
        Opcode::Bmap | Opcode::Poll | Opcode::NotifyReply | Opcode::SetupMapping | Opcode::RemoveMapping => {
            return Err(Malformed::NotServed { opcode });
        }
        Opcode::Init | Opcode::Destroy | Opcode::Interrupt | Opcode::Attach => {
            return Err(Malformed::OutOfPlace { opcode });
        }
    };
    fields.finish()?;
    Ok(request)
}

/// The request that an INTERRUPT is about.
pub fn parse_interrupt(arguments: &[u8]) -> Result<u64, Malformed> {
    let mut fields = Arguments {
        opcode: Opcode::Interrupt,
        rest: arguments,
    };
    let unique = fields.take::<InterruptIn>()?.unique;
    fields.finish().map(|()| unique)
}

fn batch_forget(fields: &mut Arguments<'_>) -> Result<Vec<Forgotten>, Malformed> {
    let announced = fields.take::<BatchForgetIn>()?.count as usize;
    let found = fields.rest.len() / ForgetOne::BYTES;
    if announced != found {
        let opcode = fields.opcode;
        return Err(Malformed::CountMismatch {
            opcode,
            announced,
            found,
        });
    }
    let mut forgotten = Vec::with_capacity(found);
    for _ in 0..found {
        let ForgetOne { nodeid, nlookup } = fields.take()?;
        forgotten.push(Forgotten {
            node: nodeid,
            lookups: nlookup,
        });
    }
    Ok(forgotten)
}

fn setattr(given: &SetattrIn) -> SetAttributes {
    let has = |bit: u32| given.valid & bit != 0;
    let time = |seconds: u64, nanoseconds: u32| Timestamp {
        seconds: seconds as i64,
        nanoseconds,
    };
    let set_time = |bit, now_bit, to| match (has(bit), has(now_bit)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::To(to)),
        (false, false) => None,
    };
    SetAttributes {
        fh: has(FATTR_FH).then_some(given.fh),
        mode: has(FATTR_MODE).then_some(given.mode),
        uid: has(FATTR_UID).then_some(given.uid),
        gid: has(FATTR_GID).then_some(given.gid),
        size: has(FATTR_SIZE).then_some(given.size),
        atime: set_time(FATTR_ATIME, FATTR_ATIME_NOW, time(given.atime, given.atimensec)),
        mtime: set_time(FATTR_MTIME, FATTR_MTIME_NOW, time(given.mtime, given.mtimensec)),
        ctime: has(FATTR_CTIME).then(|| time(given.ctime, given.ctimensec)),
        lock_owner: has(FATTR_LOCKOWNER).then_some(given.lock_owner),
        kill_privileges: has(FATTR_KILL_SUIDGID),
    }
}

fn mknod(fields: &mut Arguments<'_>) -> Result<Request, Malformed> {
    let given: MknodIn = fields.take()?;
    let attributes = creation_attributes(fields, given.padding)?;
    Ok(Request::Mknod {
        name: fields.name()?,
        mode: given.mode,
        device: given.rdev,
        umask: given.umask,
        attributes,
    })
}

fn creation_attributes(fields: &mut Arguments<'_>, flags: u32) -> Result<Option<Box<SetAttributes>>, Malformed> {
    match flags & CREATION_WITH_ATTRIBUTES {
        0 => Ok(None),
        _ => Ok(Some(Box::new(setattr(&fields.take()?)))),
    }
}

fn mkdir(fields: &mut Arguments<'_>) -> Result<Request, Malformed> {
    let MkdirIn { mode, umask } = fields.take()?;
    let name = fields.name()?;
    Ok(Request::Mkdir { name, mode, umask })
}

fn rename(fields: &mut Arguments<'_>) -> Result<Request, Malformed> {
    let Rename2In { newdir, flags, .. } = match fields.opcode {
        Opcode::Rename2 => fields.take()?,
        _ => Rename2In {
            newdir: fields.take::<RenameIn>()?.newdir,
            ..Rename2In::default()
        },
    };
    Ok(Request::Rename {
        name: fields.name()?,
        new_parent: newdir,
        new_name: fields.name()?,
        flags,
    })
}

fn open(given: &OpenIn) -> Request {
    Request::Open {
        flags: given.flags,
        kill_privileges: given.open_flags & OPEN_KILL_SUIDGID != 0,
    }
}

fn read(given: &ReadIn) -> Read {
    Read {
        fh: given.fh,
        offset: given.offset,
        size: given.size,
        flags: given.flags,
        lock_owner: (given.read_flags & READ_LOCKOWNER != 0).then_some(given.lock_owner),
    }
}

fn write(mut fields: Arguments<'_>, data: Vec<u8>) -> Result<Write, Malformed> {
    let given: WriteIn = fields.take()?;
    fields.finish()?;
    if given.size as usize != data.len() {
        return Err(Malformed::CountMismatch {
            opcode: fields.opcode,
            announced: given.size as usize,
            found: data.len(),
        });
    }
    Ok(Write {
        fh: given.fh,
        offset: given.offset,
        flags: given.flags,
        lock_owner: (given.write_flags & WRITE_LOCKOWNER != 0).then_some(given.lock_owner),
        from_cache: given.write_flags & WRITE_CACHE != 0,
        kill_privileges: given.write_flags & WRITE_KILL_SUIDGID != 0,
        wants_attributes: given.write_flags & WRITE_WITH_ATTRIBUTES != 0,
        data,
    })
}

fn release(given: &ReleaseIn) -> Release {
    Release {
        fh: given.fh,
        flags: given.flags,
        flush: given.release_flags & RELEASE_FLUSH != 0,
        unlock_flock: given.release_flags & RELEASE_FLOCK_UNLOCK != 0,
        lock_owner: given.lock_owner,
    }
}

fn fsync(opcode: Opcode, given: &FsyncIn) -> Request {
    let fh = given.fh;
    let data_only = given.fsync_flags & FSYNC_FDATASYNC != 0;
    match opcode {
        Opcode::Fsyncdir => Request::Fsyncdir { fh, data_only },
        _ => Request::Fsync { fh, data_only },
    }
}

fn setxattr(fields: &mut Arguments<'_>) -> Result<Request, Malformed> {
    let given: SetxattrIn = fields.take()?;
    let name = fields.xattr_name()?;
    let announced = given.size as usize;
    if announced > XATTR_VALUE_BYTES_MAX {
        return Err(Malformed::XattrValueTooLong { bytes: announced });
    }
    let found = fields.rest.len();
    if announced != found {
        let opcode = fields.opcode;
        return Err(Malformed::CountMismatch {
            opcode,
            announced,
            found,
        });
    }
    Ok(Request::Setxattr {
        name,
        value: fields.bytes(announced)?.to_vec(),
        flags: given.flags,
        clear_setgid: given.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0,
    })
}

fn readdir(given: &ReadIn) -> Readdir {
    Readdir {
        fh: given.fh,
        offset: given.offset,
        size: given.size,
    }
}

fn lock_request(given: &LkIn) -> Result<LockRequest, Malformed> {
    Ok(LockRequest {
        fh: given.fh,
        owner: given.owner,
        lock: file_lock(&given.lk)?,
        flock: given.lk_flags & LK_FLOCK != 0,
    })
}

fn file_lock(given: &super::abi::FileLock) -> Result<super::request::FileLock, Malformed> {
    let kind = match i64::from(given.r#type) {
        kind if kind == i64::from(libc::F_RDLCK) => LockType::Read,
        kind if kind == i64::from(libc::F_WRLCK) => LockType::Write,
        kind if kind == i64::from(libc::F_UNLCK) => LockType::Unlock,
        kind => {
            return Err(Malformed::Value {
                what: "a lock's type",
                value: kind as u64,
            });
        }
    };
    if given.start > given.end {
        return Err(Malformed::Value {
            what: "the start of a lock that ends before it",
            value: given.start,
        });
    }
    Ok(super::request::FileLock {
        start: given.start,
        end: given.end,
        kind,
        pid: given.pid,
    })
}

fn create(fields: &mut Arguments<'_>) -> Result<Request, Malformed> {
    let given: CreateIn = fields.take()?;
    let attributes = creation_attributes(fields, given.open_flags)?;
    Ok(Request::Create {
        name: fields.name()?,
        flags: given.flags,
        mode: given.mode,
        umask: given.umask,
        kill_privileges: given.open_flags & OPEN_KILL_SUIDGID != 0,
        attributes,
    })
}

/// The name that comes along is the kernel's stand-in, "/", and means nothing.
fn tmpfile(fields: &mut Arguments<'_>) -> Result<Request, Malformed> {
    let CreateIn { flags, mode, umask, .. } = fields.take()?;
    fields.string()?;
    Ok(Request::Tmpfile { flags, mode, umask })
}

fn fallocate(given: &FallocateIn) -> Request {
    Request::Fallocate {
        fh: given.fh,
        offset: given.offset,
        length: given.length,
        mode: given.mode,
    }
}

fn copy_range(given: &CopyFileRangeIn) -> CopyRange {
    CopyRange {
        fh_in: given.fh_in,
        offset_in: given.off_in,
        node_out: given.nodeid_out,
        fh_out: given.fh_out,
        offset_out: given.off_out,
        length: given.len,
        flags: given.flags,
    }
}

fn statx(given: &StatxIn) -> Request {
    Request::Statx {
        fh: (given.getattr_flags & GETATTR_FH != 0).then_some(given.fh),
        flags: given.sx_flags,
        mask: given.sx_mask,
    }
}
