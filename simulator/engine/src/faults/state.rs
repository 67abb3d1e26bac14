//! What the volumes, the files' maps, the entries and the counters hold, and what one record changes of it.

use crate::faults::contents::{Value, ZERO};
use std::collections::BTreeMap;
use std::rc::Rc;
use tombolo_base::{EntryChange, FlushMode, VolumeId};
use tombolo_core::Span;
use tombolo_core::record::VOLUME_BLOCKS_MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeModel {
    pub name: String,
    pub flush: FlushMode,
    pub values: Vec<Value>,
}

#[derive(Clone, Debug, Default)]
pub struct State {
    pub volumes: BTreeMap<VolumeId, VolumeModel>,
    /// Of each file's map the blocks that are not holes. A file without any is left out.
    pub files: BTreeMap<VolumeId, BTreeMap<u64, Value>>,
    pub entries: BTreeMap<Vec<u8>, Rc<[u8]>>,
    /// Those that are nothing are left out.
    pub counters: BTreeMap<Vec<u8>, i64>,
}

/// What one record of the journal does.
#[derive(Clone, Debug)]
pub enum Effect {
    Write {
        volume: VolumeId,
        first: u64,
        pvbn: u64,
        values: Vec<Value>,
    },
    /// Blocks that get PVBNs which others hold already.
    Link {
        volume: VolumeId,
        first: u64,
        pvbn: u64,
        values: Vec<Value>,
    },
    Hole {
        volume: VolumeId,
        first: u64,
        count: u64,
    },
    Entries(Vec<EntryChange>),
    Create {
        volume: VolumeId,
        name: String,
        blocks: u64,
        flush: FlushMode,
    },
    Resize {
        volume: VolumeId,
        blocks: u64,
        flush: FlushMode,
    },
    Delete {
        volume: VolumeId,
    },
}

impl State {
    /// What the block reads as; beyond the end, and where nothing exists, zeroes.
    pub fn value(&self, volume: VolumeId, block: u64) -> Value {
        let found = match volume.inode() {
            Some(_) => self.files.get(&volume).and_then(|blocks| blocks.get(&block)),
            None => self
                .volumes
                .get(&volume)
                .and_then(|found| found.values.get(block as usize)),
        };
        found.copied().unwrap_or(ZERO)
    }

    pub fn values(&self, span: Span) -> Vec<Value> {
        (span.first..span.end())
            .map(|block| self.value(span.volume, block))
            .collect()
    }

    /// Blocks of a file that are not holes.
    pub fn mapped(&self, span: Span) -> impl Iterator<Item = (u64, Value)> {
        let blocks = self.files.get(&span.volume).into_iter();
        let blocks = blocks.flat_map(move |blocks| blocks.range(span.first..span.end()));
        blocks
            .filter(|(_, value)| **value != ZERO)
            .map(|(block, value)| (*block, *value))
    }

    /// In blocks; `None`: there is no such volume.
    pub fn size_of(&self, volume: VolumeId) -> Option<u64> {
        match volume.inode() {
            Some(_) => Some(VOLUME_BLOCKS_MAX),
            None => self.volumes.get(&volume).map(|found| found.values.len() as u64),
        }
    }

    /// What flushes of the volume wait for.
    pub fn flush_mode(&self, volume: VolumeId) -> FlushMode {
        self.volumes.get(&volume).map(|found| found.flush).unwrap_or_default()
    }

    pub fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Write {
                volume, first, values, ..
            }
            | Effect::Link {
                volume, first, values, ..
            } => self.put(*volume, *first, values),
            Effect::Hole { volume, first, count } => self.punch(*volume, *first, *count),
            Effect::Entries(changes) => {
                for change in changes {
                    self.change_entry(change);
                }
            }
            Effect::Create {
                volume,
                name,
                blocks,
                flush,
            } => {
                let fresh = VolumeModel {
                    name: name.clone(),
                    flush: *flush,
                    values: vec![ZERO; *blocks as usize],
                };
                assert!(
                    self.volumes.insert(*volume, fresh).is_none(),
                    "volume ids are not reused"
                );
            }
            Effect::Resize { volume, blocks, flush } => {
                let found = self.volumes.get_mut(volume).expect("a resized volume exists");
                found.values.resize(*blocks as usize, ZERO);
                found.flush = *flush;
            }
            Effect::Delete { volume } => {
                assert!(self.volumes.remove(volume).is_some(), "a deleted volume exists");
            }
        }
    }

    fn put(&mut self, volume: VolumeId, first: u64, values: &[Value]) {
        if values.is_empty() {
            return;
        }
        if volume.inode().is_some() {
            assert!(
                first + values.len() as u64 <= VOLUME_BLOCKS_MAX,
                "a file's map has an end"
            );
            let blocks = self.files.entry(volume).or_default();
            return blocks.extend((first..).zip(values.iter().copied()));
        }
        let found = self
            .volumes
            .get_mut(&volume)
            .expect("a write goes to a volume that exists");
        let end = first as usize + values.len();
        assert!(end <= found.values.len(), "a write stays within its volume");
        found.values[first as usize..end].copy_from_slice(values);
    }

    fn punch(&mut self, volume: VolumeId, first: u64, count: u64) {
        let end = first + count;
        if volume.inode().is_some() {
            assert!(end <= VOLUME_BLOCKS_MAX, "a file's map has an end");
            if let Some(blocks) = self.files.get_mut(&volume) {
                blocks.retain(|block, _| !(first..end).contains(block));
                if blocks.is_empty() {
                    self.files.remove(&volume);
                }
            }
            return;
        }
        let found = self
            .volumes
            .get_mut(&volume)
            .expect("a hole goes to a volume that exists");
        assert!(end as usize <= found.values.len(), "a hole stays within its volume");
        found.values[first as usize..end as usize].fill(ZERO);
    }

    fn change_entry(&mut self, change: &EntryChange) {
        match change {
            EntryChange::Put { key, value } => {
                self.entries.insert(key.clone(), Rc::from(&value[..]));
            }
            EntryChange::Delete { key } => {
                self.entries.remove(key);
            }
            EntryChange::Add { key, amount } => {
                let value = self.counters.remove(key).unwrap_or(0).saturating_add(*amount);
                if value != 0 {
                    self.counters.insert(key.clone(), value);
                }
            }
        }
    }
}
