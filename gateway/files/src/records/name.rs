//! Directory entries: each is there twice, by name and by position.

use super::{begin, read_number, read_type, writer};
use crate::types::{FileType, NAME_BYTES_MAX};
use tombolo_base::DecodeError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameRecord {
    pub inode: u64,
    pub file_type: FileType,
    pub cookie: u64,
}

impl NameRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = writer(18);
        writer
            .u64(self.inode)
            .u8(self.file_type.directory_type())
            .u64(self.cookie);
        writer.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "name record";
        let mut reader = begin(what, bytes)?;
        let record = Self {
            inode: read_number(&mut reader, what)?,
            file_type: read_type(&mut reader)?,
            cookie: read_number(&mut reader, what)?,
        };
        reader.finish(what)?;
        Ok(record)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieRecord {
    pub inode: u64,
    pub file_type: FileType,
    pub name: Vec<u8>,
}

impl CookieRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = writer(10 + self.name.len());
        writer
            .u64(self.inode)
            .u8(self.file_type.directory_type())
            .bytes(&self.name);
        writer.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "cookie record";
        let mut reader = begin(what, bytes)?;
        let inode = read_number(&mut reader, what)?;
        let file_type = read_type(&mut reader)?;
        let name = reader.bytes(what, reader.remaining())?;
        match (1..=NAME_BYTES_MAX).contains(&name.len()) {
            true => Ok(Self {
                inode,
                file_type,
                name: name.to_vec(),
            }),
            false => Err(DecodeError::Invalid {
                what: "name's length",
                value: name.len() as u64,
            }),
        }
    }
}
