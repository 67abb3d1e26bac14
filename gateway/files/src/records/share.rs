//! Shares, and the numbers not yet given out.

use super::{begin, read_number, read_time, write_time, writer};
use crate::types::Timestamp;
use tombolo_base::DecodeError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareRecord {
    pub id: u32,
    pub root: u64,
    /// 0 for none.
    pub quota_bytes: u64,
    pub created: Timestamp,
    pub being_deleted: bool,
}

impl ShareRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = writer(40);
        writer.u32(self.id).u64(self.root).u64(self.quota_bytes);
        write_time(&mut writer, self.created);
        writer.u8(self.being_deleted.into());
        writer.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "share record";
        let mut reader = begin(what, bytes)?;
        let record = Self {
            id: reader.u32(what)?,
            root: read_number(&mut reader, what)?,
            quota_bytes: reader.u64(what)?,
            created: read_time(&mut reader, what)?,
            being_deleted: match reader.u8(what)? {
                0 => false,
                1 => true,
                value => {
                    let value = value.into();
                    return Err(DecodeError::Invalid { what, value });
                }
            },
        };
        reader.finish(what)?;
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
