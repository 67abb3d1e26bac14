//! Shares, and the numbers not yet given out.

use super::{begin, read_number, read_time, write_time, writer};
use crate::types::Timestamp;
use tombolo_base::{DecodeError, FlushMode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareRecord {
    pub id: u32,
    pub root: u64,
    /// 0 for none.
    pub quota_bytes: u64,
    pub created: Timestamp,
    pub being_deleted: bool,
    pub flush: FlushMode,
}

const BEING_DELETED: u8 = 1;
const FLUSH_TO_BUCKET: u8 = 2;

impl ShareRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = writer(40);
        writer.u32(self.id).u64(self.root).u64(self.quota_bytes);
        write_time(&mut writer, self.created);
        let being_deleted = if self.being_deleted { BEING_DELETED } else { 0 };
        let flush = match self.flush {
            FlushMode::Local => 0,
            FlushMode::Bucket => FLUSH_TO_BUCKET,
        };
        writer.u8(being_deleted | flush);
        writer.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "share record";
        let mut reader = begin(what, bytes)?;
        let (id, root) = (reader.u32(what)?, read_number(&mut reader, what)?);
        let (quota_bytes, created) = (reader.u64(what)?, read_time(&mut reader, what)?);
        let flags = reader.u8(what)?;
        reader.finish(what)?;
        if flags & !(BEING_DELETED | FLUSH_TO_BUCKET) != 0 {
            let value = flags.into();
            return Err(DecodeError::Invalid { what, value });
        }
        let record = Self {
            id,
            root,
            quota_bytes,
            created,
            being_deleted: flags & BEING_DELETED != 0,
            flush: match flags & FLUSH_TO_BUCKET {
                0 => FlushMode::Local,
                _ => FlushMode::Bucket,
            },
        };
        Ok(record)
    }
}

/// The least numbers that were never given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdAllocatorRecord {
    pub inode: u64,
    pub share: u32,
    pub session: u64,
}

impl IdAllocatorRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = writer(21);
        writer.u64(self.inode).u32(self.share).u64(self.session);
        writer.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "numbers record";
        let mut reader = begin(what, bytes)?;
        let record = Self {
            inode: read_number(&mut reader, what)?,
            share: reader.u32(what)?,
            session: read_number(&mut reader, what)?,
        };
        reader.finish(what)?;
        Ok(record)
    }
}
