//! An inode as a request works on it: its records, read together and put together.

use crate::error::FileError;
use crate::records::{Directory, FileRecord, InodeRecord, Kind};
use crate::types::{Attributes, Caller, FileType, MODE_GROUP_EXECUTE, MODE_SETGID, MODE_SETUID, SetTime, Timestamp};

/// What a directory shows as its size.
const DIRECTORY_BYTES: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub inode: u64,
    pub record: InodeRecord,
    /// Regular files only.
    pub file: Option<FileRecord>,
}

impl Node {
    pub fn file_type(&self) -> FileType {
        self.record.file_type()
    }

    pub fn directory(&self) -> Result<&Directory, FileError> {
        match &self.record.kind {
            Kind::Directory(directory) => Ok(directory),
            Kind::Symlink { .. } | Kind::Other => Err(FileError::NotDirectory),
        }
    }

    pub fn directory_mut(&mut self) -> Result<&mut Directory, FileError> {
        match &mut self.record.kind {
            Kind::Directory(directory) => Ok(directory),
            Kind::Symlink { .. } | Kind::Other => Err(FileError::NotDirectory),
        }
    }

    pub fn is_directory(&self) -> bool {
        matches!(self.record.kind, Kind::Directory(_))
    }

    /// A subdirectory's `..` is a link to its parent.
    pub fn add_subdirectory(&mut self) {
        self.record.links = self.record.links.saturating_add(1);
    }

    pub fn remove_subdirectory(&mut self) {
        self.record.links = self.record.links.saturating_sub(1);
    }

    fn times(&mut self) -> (&mut Timestamp, &mut Timestamp) {
        match &mut self.file {
            Some(file) => (&mut file.mtime, &mut file.ctime),
            None => (&mut self.record.mtime, &mut self.record.ctime),
        }
    }

    /// The inode changes now: its ctime grows, whatever the clock says.
    pub fn stamp(&mut self, now: Timestamp) -> Timestamp {
        let (_, ctime) = self.times();
        *ctime = stamped(*ctime, now);
        *ctime
    }

    /// Its contents change now. The mtime is the ctime, because clients tell from either that there is something new.
    pub fn modify(&mut self, now: Timestamp) {
        let stamp = self.stamp(now);
        *self.times().0 = stamp;
    }

    pub fn set_times(&mut self, atime: Option<SetTime>, mtime: Option<SetTime>, stamp: Timestamp) {
        let resolve = |time| match time {
            SetTime::Now => stamp,
            SetTime::To(time) => time,
        };
        if let Some(atime) = atime {
            self.record.atime = resolve(atime);
        }
        if let Some(mtime) = mtime {
            *self.times().0 = resolve(mtime);
        }
    }

    /// As Linux does on a write: setuid goes, and setgid too; but where it is the old mark of mandatory locking, without
    /// the right to execute, those in the file's group leave it.
    pub fn drop_setuid_and_setgid(&mut self, is_in_group: bool) {
        self.record.mode &= !MODE_SETUID;
        if self.record.mode & MODE_GROUP_EXECUTE != 0 || !is_in_group {
            self.record.mode &= !MODE_SETGID;
        }
    }

    /// As far as the service can know: callers' other groups it is not told of.
    pub fn is_in_group(&self, caller: &Caller) -> bool {
        caller.uid == 0 || caller.gid == self.record.gid
    }

    pub fn attributes(&self) -> Attributes {
        let record = &self.record;
        let (size, allocated_blocks) = match (&self.file, &record.kind) {
            (Some(file), _) => (file.size, file.allocated_blocks),
            (None, Kind::Directory(_)) => (DIRECTORY_BYTES, 0),
            (None, Kind::Symlink { target }) => (target.len() as u64, 0),
            (None, Kind::Other) => (0, 0),
        };
        let (mtime, ctime) = match &self.file {
            Some(file) => (file.mtime, file.ctime),
            None => (record.mtime, record.ctime),
        };
        Attributes {
            inode: self.inode,
            file_type: self.file_type(),
            mode: record.mode,
            uid: record.uid,
            gid: record.gid,
            links: record.links,
            device: record.device,
            size,
            allocated_blocks,
            atime: record.atime,
            mtime,
            ctime,
            btime: record.btime,
            change: nanoseconds(ctime),
            has_xattrs: record.xattr_name_bytes > 0,
        }
    }
}

/// The ctime after a change at `now` of what had `before`.
pub fn stamped(before: Timestamp, now: Timestamp) -> Timestamp {
    now.max(before.next())
}

fn nanoseconds(time: Timestamp) -> u64 {
    let seconds = time.seconds.cast_unsigned().wrapping_mul(1_000_000_000);
    seconds.wrapping_add(u64::from(time.nanoseconds))
}
