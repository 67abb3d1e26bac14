//! An inode's granted locks as bytes, little endian:
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version, 2 |
//! | 4 | count of locks |
//! | 46 each | family (0 POSIX, 1 flock), kind (0 read, 1 write), session, owner, start, end, handle (u64 each), pid (u32) |

use super::granted::{GrantedLocks, merges};
use super::{Lock, LockFamily, LockKind, LockOwner, LockRange};
use tombolo_base::{DecodeError, ENTRY_VALUE_BYTES_MAX, Reader, Writer};

const VERSION: u8 = 2;
const HEAD_BYTES: usize = 5;
const LOCK_BYTES: usize = 46;
/// What an inode may hold: a round figure below what a value has room for.
pub const LOCKS_PER_RECORD_MAX: usize = 1536;
const _: () = assert!(HEAD_BYTES + LOCK_BYTES * LOCKS_PER_RECORD_MAX <= ENTRY_VALUE_BYTES_MAX);

pub fn encode(granted: &GrantedLocks) -> Vec<u8> {
    let mut writer = Writer::with_capacity(HEAD_BYTES + LOCK_BYTES * granted.len());
    writer.u8(VERSION).u32(granted.len() as u32);
    for (family, lock) in granted.iter() {
        writer
            .u8(match family {
                LockFamily::Posix => 0,
                LockFamily::Flock => 1,
            })
            .u8(match lock.kind {
                LockKind::Read => 0,
                LockKind::Write => 1,
            })
            .u64(lock.owner.session)
            .u64(lock.owner.owner)
            .u64(lock.range.start)
            .u64(lock.range.end)
            .u64(lock.handle)
            .u32(lock.pid);
    }
    writer.0
}

/// Refuses what [`encode`] would never have written, conflicting locks among it.
pub fn decode(bytes: &[u8]) -> Result<GrantedLocks, DecodeError> {
    let mut reader = Reader::new(bytes);
    match reader.u8("version of a lock record")? {
        VERSION => {}
        other => return Err(invalid("version of a lock record", other.into())),
    }
    let count = reader.u32("count of locks")?;
    if count as usize > LOCKS_PER_RECORD_MAX {
        return Err(invalid("count of locks", count.into()));
    }
    let mut granted = GrantedLocks::default();
    for _ in 0..count {
        let (family, lock) = decode_lock(&mut reader)?;
        check_against(&granted, family, &lock)?;
        granted.insert(family, lock);
    }
    reader.finish("lock record")?;
    Ok(granted)
}

fn decode_lock(reader: &mut Reader<'_>) -> Result<(LockFamily, Lock), DecodeError> {
    let family = match reader.u8("family of a lock")? {
        0 => LockFamily::Posix,
        1 => LockFamily::Flock,
        other => return Err(invalid("family of a lock", other.into())),
    };
    let kind = match reader.u8("kind of a lock")? {
        0 => LockKind::Read,
        1 => LockKind::Write,
        other => return Err(invalid("kind of a lock", other.into())),
    };
    let owner = LockOwner {
        session: reader.u64("session of a lock")?,
        owner: reader.u64("owner of a lock")?,
    };
    let range = LockRange {
        start: reader.u64("start of a lock")?,
        end: reader.u64("end of a lock")?,
    };
    let handle = reader.u64("handle of a lock")?;
    let pid = reader.u32("pid of a lock")?;
    if range.start > range.end {
        return Err(invalid("end of a lock", range.end));
    }
    let lock = Lock {
        owner,
        range,
        kind,
        pid,
        handle,
    };
    Ok((family, lock))
}

fn check_against(granted: &GrantedLocks, family: LockFamily, lock: &Lock) -> Result<(), DecodeError> {
    let own_overlaps = |held: &Lock| held.owner == lock.owner && held.range.overlaps(lock.range);
    let clashes = |held: &Lock| held.conflicts(lock) || own_overlaps(held) || merges(held, lock);
    match granted.iter().any(|(of, held)| of == family && clashes(held)) {
        true => Err(invalid("start of a lock that clashes with another", lock.range.start)),
        false => Ok(()),
    }
}

fn invalid(what: &'static str, value: u64) -> DecodeError {
    DecodeError::Invalid { what, value }
}
