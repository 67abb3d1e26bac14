//! Sessions, what they hold open after its last name is gone, and what they have been answered.

use super::{begin, read_number, writer};
use crate::types::SessionKind;
use tombolo_base::DecodeError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    pub share: u32,
    pub incarnation: u64,
    pub kind: SessionKind,
    pub client: Vec<u8>,
}

impl SessionRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = writer(14 + self.client.len());
        let kind = match self.kind {
            SessionKind::Client => 0,
            SessionKind::Kernel => 1,
        };
        writer
            .u32(self.share)
            .u64(self.incarnation)
            .u8(kind)
            .bytes(&self.client);
        writer.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "session record";
        let mut reader = begin(what, bytes)?;
        Ok(Self {
            share: reader.u32(what)?,
            incarnation: reader.u64(what)?,
            kind: match reader.u8(what)? {
                0 => SessionKind::Client,
                1 => SessionKind::Kernel,
                value => {
                    let value = value.into();
                    return Err(DecodeError::Invalid { what, value });
                }
            },
            client: reader.bytes(what, reader.remaining())?.to_vec(),
        })
    }
}

/// Sessions that hold an inode without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanRecord {
    pub holders: Vec<u64>,
}

impl OrphanRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = writer(1 + 8 * self.holders.len());
        for holder in &self.holders {
            writer.u64(*holder);
        }
        writer.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "orphan record";
        let mut reader = begin(what, bytes)?;
        let mut holders = Vec::with_capacity(reader.remaining() / 8);
        while reader.remaining() > 0 {
            holders.push(read_number(&mut reader, what)?);
        }
        match holders.is_empty() {
            true => Err(DecodeError::Invalid { what, value: 0 }),
            false => Ok(Self { holders }),
        }
    }
}

/// What a request that changes something came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Entry(u64),
    /// So many were copied.
    Bytes(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRecord {
    pub number: u64,
    pub outcome: Outcome,
}

impl ReplayRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = writer(18);
        writer.u64(self.number);
        match self.outcome {
            Outcome::Done => writer.u8(0),
            Outcome::Entry(inode) => writer.u8(1).u64(inode),
            Outcome::Bytes(bytes) => writer.u8(2).u64(bytes),
        };
        writer.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "replay record";
        let mut reader = begin(what, bytes)?;
        let number = reader.u64(what)?;
        let outcome = match reader.u8(what)? {
            0 => Outcome::Done,
            1 => Outcome::Entry(read_number(&mut reader, what)?),
            2 => Outcome::Bytes(reader.u64(what)?),
            value => {
                let value = value.into();
                return Err(DecodeError::Invalid { what, value });
            }
        };
        reader.finish(what)?;
        Ok(Self { number, outcome })
    }
}
