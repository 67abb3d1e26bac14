//! Attributes: one record for every inode, and a second one for a regular file, which is all that a data write changes.

use super::{begin, read_number, read_time, write_time, writer};
use crate::types::{
    FILE_BYTES_MAX, FileType, MODE_PERMISSIONS, MODE_SETGID, MODE_SETUID, MODE_TYPE, SYMLINK_BYTES_MAX, Timestamp,
};
use tombolo_base::{BLOCK_BYTES, DecodeError, Reader};

/// Bits of [`InodeRecord::flags`]: which special extended attributes there are, so that most requests need not look.
pub mod inode_flag {
    pub const ACCESS_ACL: u8 = 1;
    pub const DEFAULT_ACL: u8 = 2;
    pub const CAPABILITY: u8 = 4;
    pub const ALL: u8 = 7;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeRecord {
    pub share: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// 0 for an orphan.
    pub links: u32,
    pub device: u32,
    pub flags: u8,
    /// What a list of the extended attributes' names takes, a NUL behind each.
    pub xattr_name_bytes: u32,
    pub atime: Timestamp,
    /// Of a regular file: as it was created; what counts is in its [`FileRecord`].
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory(Directory),
    Symlink { target: Vec<u8> },
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Itself for the root of a share.
    pub parent: u64,
    /// Given to the next name; never to two.
    pub cookie_next: u64,
    /// Names in it.
    pub entries: u64,
}

impl InodeRecord {
    pub fn file_type(&self) -> FileType {
        FileType::of_mode(self.mode).unwrap_or(FileType::Regular)
    }

    /// Whether a write may have to take something away.
    pub fn is_privileged(&self) -> bool {
        self.mode & (MODE_SETUID | MODE_SETGID) != 0 || self.flags & inode_flag::CAPABILITY != 0
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut writer = writer(128);
        for field in [self.share, self.mode, self.uid, self.gid, self.links, self.device] {
            writer.u32(field);
        }
        writer.u8(self.flags).u32(self.xattr_name_bytes);
        for time in [self.atime, self.mtime, self.ctime, self.btime] {
            write_time(&mut writer, time);
        }
        match &self.kind {
            Kind::Directory(directory) => {
                writer
                    .u64(directory.parent)
                    .u64(directory.cookie_next)
                    .u64(directory.entries);
            }
            Kind::Symlink { target } => {
                writer.bytes(target);
            }
            Kind::Other => (),
        }
        writer.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "inode record";
        let mut reader = begin(what, bytes)?;
        let mut fields = [0; 6];
        for field in &mut fields {
            *field = reader.u32(what)?;
        }
        let [share, mode, uid, gid, links, device] = fields;
        let flags = reader.u8(what)?;
        let xattr_name_bytes = reader.u32(what)?;
        let mut times = [Timestamp::default(); 4];
        for time in &mut times {
            *time = read_time(&mut reader, what)?;
        }
        let [atime, mtime, ctime, btime] = times;
        let kind = read_kind(&mut reader, mode)?;
        reader.finish(what)?;
        if flags & !inode_flag::ALL != 0 {
            let value = flags.into();
            return Err(DecodeError::Invalid { what, value });
        }
        Ok(Self {
            share,
            mode,
            uid,
            gid,
            links,
            device,
            flags,
            xattr_name_bytes,
            atime,
            mtime,
            ctime,
            btime,
            kind,
        })
    }
}

fn read_kind(reader: &mut Reader<'_>, mode: u32) -> Result<Kind, DecodeError> {
    let invalid = |what, value: u64| DecodeError::Invalid { what, value };
    let type_bits = mode & MODE_TYPE;
    if mode & !(MODE_TYPE | MODE_PERMISSIONS) != 0 || type_bits == 0 {
        return Err(invalid("mode", mode.into()));
    }
    match FileType::of_mode(mode).ok_or(invalid("mode", mode.into()))? {
        FileType::Directory => Ok(Kind::Directory(Directory {
            parent: read_number(reader, "parent")?,
            cookie_next: read_number(reader, "next cookie")?,
            entries: read_number(reader, "entry count")?,
        })),
        FileType::Symlink if (1..=SYMLINK_BYTES_MAX).contains(&reader.remaining()) => Ok(Kind::Symlink {
            target: reader.bytes("symlink", reader.remaining())?.to_vec(),
        }),
        FileType::Symlink => Err(invalid("symlink's length", reader.remaining() as u64)),
        _ => Ok(Kind::Other),
    }
}

/// Flags of a [`FileRecord`] as stored.
const PRIVILEGED: u8 = 1;
const UNSETTLED: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    pub share: u32,
    /// The file has setuid, setgid or capabilities, which a write may have to take away.
    pub is_privileged: bool,
    /// A copy by reference had begun when this was written: blocks may be mapped that are not counted, also beyond the
    /// end. Whoever changes data next counts anew.
    pub is_unsettled: bool,
    pub size: u64,
    pub allocated_blocks: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

impl FileRecord {
    /// Blocks up to the end, the last one counted whole.
    pub fn blocks(&self) -> u64 {
        self.size.div_ceil(BLOCK_BYTES as u64)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut writer = writer(48);
        let privileged = if self.is_privileged { PRIVILEGED } else { 0 };
        let unsettled = if self.is_unsettled { UNSETTLED } else { 0 };
        writer.u32(self.share).u8(privileged | unsettled);
        writer.u64(self.size).u64(self.allocated_blocks);
        write_time(&mut writer, self.mtime);
        write_time(&mut writer, self.ctime);
        writer.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "file record";
        let mut reader = begin(what, bytes)?;
        let share = reader.u32(what)?;
        let flags = reader.u8(what)?;
        let record = Self {
            share,
            is_privileged: flags & PRIVILEGED != 0,
            is_unsettled: flags & UNSETTLED != 0,
            size: reader.u64(what)?,
            allocated_blocks: reader.u64(what)?,
            mtime: read_time(&mut reader, what)?,
            ctime: read_time(&mut reader, what)?,
        };
        reader.finish(what)?;
        let invalid = |value| DecodeError::Invalid { what, value };
        if flags & !(PRIVILEGED | UNSETTLED) != 0 {
            return Err(invalid(flags.into()));
        }
        if record.size > FILE_BYTES_MAX || record.allocated_blocks > record.blocks() {
            return Err(invalid(record.size));
        }
        Ok(record)
    }
}
