//! A trace's requests as keys, in parts.

use crate::replay::Error;
use hashbrown::{HashMap, HashSet};
use tombolo_trace::{Operation, Reader, Record, Source, open};

/// Keys of one volume are its addresses; those of others lie apart.
const VOLUME_SHIFT: u32 = 46;
const VOLUMES_MAX: u64 = 1 << 17;

/// Keys in order, and which of the requests are writes.
#[derive(Debug, Default)]
pub struct Part {
    pub keys: Vec<u64>,
    is_write: Vec<u64>,
}

impl Part {
    pub fn clear(&mut self) {
        self.keys.clear();
        self.is_write.clear();
    }

    fn push(&mut self, key: u64, is_write: bool) {
        let at = self.keys.len();
        if at.is_multiple_of(64) {
            self.is_write.push(0);
        }
        self.is_write[at / 64] |= u64::from(is_write) << (at % 64);
        self.keys.push(key);
    }

    pub fn is_write(&self, at: usize) -> bool {
        self.is_write[at / 64] & 1 << (at % 64) != 0
    }

    pub fn writes(&self) -> u64 {
        self.is_write.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

pub fn distinct(parts: &[Part]) -> u64 {
    let keys = parts.iter().flat_map(|part| &part.keys);
    keys.collect::<HashSet<_>>().len() as u64
}

pub struct Requests {
    reader: Box<dyn Reader>,
    record: Record,
    /// Numbers of the volumes, in the order in which they came.
    volumes: HashMap<u64, u64>,
    latest: Option<(u64, u64)>,
}

impl Requests {
    pub fn open(source: &Source) -> Result<Self, Error> {
        Ok(Self {
            reader: open(source)?,
            record: Record::default(),
            volumes: HashMap::new(),
            latest: None,
        })
    }

    /// Adds whole records until the part has so many keys; false when there is nothing more.
    pub fn fill(&mut self, part: &mut Part, keys: usize) -> Result<bool, Error> {
        while part.keys.len() < keys && self.reader.next(&mut self.record)? {
            let is_write = match self.record.operation {
                Operation::Read => false,
                Operation::Write => true,
                Operation::Discard | Operation::Flush => continue,
            };
            let base = self.base_of_volume()?;
            for key in self.record.first..self.record.end() {
                part.push(base.wrapping_add(key), is_write);
            }
        }
        Ok(!part.keys.is_empty())
    }

    fn base_of_volume(&mut self) -> Result<u64, Error> {
        let volume = self.number_of(self.record.volume);
        if volume > 0 && (volume >= VOLUMES_MAX || self.record.end() > 1 << VOLUME_SHIFT) {
            let reason = "keys of several volumes must be below 2^46, in 2^17 volumes".into();
            let field = "trace";
            return Err(Error::Job { field, reason });
        }
        Ok(volume << VOLUME_SHIFT)
    }

    fn number_of(&mut self, name: u64) -> u64 {
        if let Some((latest, number)) = self.latest
            && latest == name
        {
            return number;
        }
        let next = self.volumes.len() as u64;
        let number = *self.volumes.entry(name).or_insert(next);
        self.latest = Some((name, number));
        number
    }
}
