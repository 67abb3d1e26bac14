//! Creation, resize, flush mode and deletion of volumes: journal records like any other change, answered when durable.

use crate::core_state::Core;
use crate::event::{Answer, Refusal, Token};
use crate::format::record::Record;
use crate::format::superblock::Volume;
use crate::state::writes::VolumeChange;
use alloc::{string::String, vec, vec::Vec};
use tombolo_base::{FlushMode, VolumeId};

impl Core {
    pub(crate) fn change_volume(&mut self, token: Token, change: VolumeChange) {
        match change {
            VolumeChange::Create { name, blocks, flush } => self.create_volume(token, name, blocks, flush),
            VolumeChange::Resize { volume, blocks } => self.resize_volume(token, volume, blocks),
            VolumeChange::FlushMode { volume, flush } => self.set_flush_mode(token, volume, flush),
            VolumeChange::Delete { volume } => self.delete_volume(token, volume),
        }
    }

    fn create_volume(&mut self, token: Token, name: String, blocks: u64, flush: FlushMode) {
        if let Err(refusal) = self.check_flush_mode(flush) {
            return self.answer(token, Err(refusal));
        }
        if self.volume_named(&name).is_some() {
            return self.answer(token, Err(Refusal::VolumeExists(name)));
        }
        let volume = VolumeId(self.next_volume);
        let created = Record::Create {
            volume,
            blocks,
            flush,
            name,
        };
        self.change_volumes(token, volume, vec![created]);
    }

    fn resize_volume(&mut self, token: Token, volume: VolumeId, blocks: u64) {
        let Some(found) = self.volumes.get(&volume) else {
            return self.answer(token, Err(Refusal::UnknownVolume(volume)));
        };
        let flush = found.flush;
        let mut records = Vec::new();
        if blocks < found.blocks {
            records.push(Record::Hole {
                volume,
                first: blocks,
                count: found.blocks - blocks,
            });
        }
        records.push(Record::Resize { volume, blocks, flush });
        self.change_volumes(token, volume, records);
    }

    fn set_flush_mode(&mut self, token: Token, volume: VolumeId, flush: FlushMode) {
        let found = self.volumes.get(&volume).ok_or(Refusal::UnknownVolume(volume));
        match found.and_then(|found| self.check_flush_mode(flush).map(|()| found.blocks)) {
            Ok(blocks) => self.change_volumes(token, volume, vec![Record::Resize { volume, blocks, flush }]),
            Err(refusal) => self.answer(token, Err(refusal)),
        }
    }

    /// What flushes of the volume wait for. A file's map does not say it: its share does.
    pub fn flush_mode(&self, volume: VolumeId) -> FlushMode {
        self.volumes.get(&volume).map(|found| found.flush).unwrap_or_default()
    }

    fn delete_volume(&mut self, token: Token, volume: VolumeId) {
        if !self.volumes.contains_key(&volume) {
            return self.answer(token, Err(Refusal::UnknownVolume(volume)));
        }
        self.change_volumes(token, volume, vec![Record::Delete { volume }]);
    }

    fn change_volumes(&mut self, token: Token, volume: VolumeId, records: Vec<Record>) {
        if let Some(error) = &self.failed {
            return self.answer(token, Err(Refusal::Failed(error.clone())));
        }
        let end = self.commit(records);
        self.acknowledge_at(end, token, Answer::Volume(volume), Some(FlushMode::Local));
    }

    /// Effects of volume records on everything but slots; shared by live operation and replay. Returns the range
    /// that the record unmaps.
    pub(crate) fn apply_volume_record(&mut self, record: &Record) -> Option<(VolumeId, u64)> {
        match record {
            Record::Create {
                volume,
                blocks,
                flush,
                name,
            } => {
                self.next_volume = self.next_volume.max(volume.0 + 1);
                self.volumes.insert(
                    *volume,
                    Volume {
                        id: *volume,
                        name: name.clone(),
                        blocks: *blocks,
                        flush: *flush,
                    },
                );
                None
            }
            Record::Resize { volume, blocks, flush } => {
                if let Some(found) = self.volumes.get_mut(volume) {
                    found.blocks = *blocks;
                    found.flush = *flush;
                }
                None
            }
            Record::Delete { volume } => self.volumes.remove(volume).map(|found| (found.id, found.blocks)),
            _ => None,
        }
    }
}
