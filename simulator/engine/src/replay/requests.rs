//! The trace's records as requests to the gateway: volumes numbered, requests that are too large for the cache cut into
//! parts.

use super::error::Error;
use hashbrown::HashMap;
use tombolo_base::VolumeId;
use tombolo_core::Span;
use tombolo_trace::{Operation, Reader, Record, Source, View, open};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Discard,
    Flush,
}

#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub time_us: u64,
    pub kind: Kind,
    pub client: u32,
    pub span: Span,
    /// Names of the contents, one a block, if the trace has them.
    pub contents: &'a [u64],
    /// It is not the first part of its record.
    pub is_rest: bool,
}

pub struct Requests {
    reader: Box<dyn Reader>,
    record: Record,
    /// Blocks of the record that have been handed out; all of them: the next record is due.
    done: u64,
    is_begun: bool,
    blocks_max: u64,
    volumes: HashMap<u64, u64>,
    latest: Option<(u64, VolumeId)>,
}

impl Requests {
    pub fn open(source: &Source, blocks_max: u64) -> Result<Self, Error> {
        if source.view != View::Blocks {
            let reason = "a gateway serves blocks; use the view \"blocks\"".into();
            return Err(Error::Job {
                field: "trace.view",
                reason,
            });
        }
        Ok(Self {
            reader: open(source)?,
            record: Record::default(),
            done: 0,
            is_begun: false,
            blocks_max,
            volumes: HashMap::new(),
            latest: None,
        })
    }

    pub fn next(&mut self) -> Result<Option<Request<'_>>, Error> {
        if !self.is_begun || self.done >= self.record.count {
            loop {
                if !self.reader.next(&mut self.record)? {
                    return Ok(None);
                }
                // A transfer of nothing is nothing.
                if self.record.count > 0 || self.record.operation == Operation::Flush {
                    break;
                }
            }
            self.is_begun = true;
            self.done = 0;
        }
        let volume = self.volume_of(self.record.volume);
        let record = &self.record;
        let kind = match record.operation {
            Operation::Read => Kind::Read,
            Operation::Write => Kind::Write,
            Operation::Discard => Kind::Discard,
            Operation::Flush => Kind::Flush,
        };
        let left = record.count - self.done;
        let count = match kind {
            Kind::Read | Kind::Write => left.min(self.blocks_max),
            Kind::Discard | Kind::Flush => left,
        };
        let first = record.first + self.done;
        let start = self.done as usize;
        let is_rest = start > 0;
        self.done += count;
        let contents = record.contents.get(start..start + count as usize).unwrap_or(&[]);
        Ok(Some(Request {
            time_us: record.time_us,
            kind,
            client: record.client,
            span: Span { volume, first, count },
            contents,
            is_rest,
        }))
    }

    /// Volumes are files' maps to the core, which need not be made and have no end.
    fn volume_of(&mut self, name: u64) -> VolumeId {
        if let Some((latest, volume)) = self.latest
            && latest == name
        {
            return volume;
        }
        let next = self.volumes.len() as u64 + 1;
        let volume = VolumeId::of_inode(*self.volumes.entry(name).or_insert(next));
        self.latest = Some((name, volume));
        volume
    }
}
