//! Creation, resize and deletion of volumes: journal records like any other change, answered when durable.

use crate::core_state::Core;
use crate::event::{Answer, Refusal, Token};
use crate::format::record::Record;
use crate::format::superblock::Volume;
use crate::state::writes::VolumeChange;
use alloc::{string::String, vec, vec::Vec};
use tombolo_base::VolumeId;

impl Core {
    pub(crate) fn change_volume(&mut self, token: Token, change: VolumeChange) {
        match change {
            VolumeChange::Create { name, blocks } => self.create_volume(token, name, blocks),
            VolumeChange::Resize { volume, blocks } => self.resize_volume(token, volume, blocks),
            VolumeChange::Delete { volume } => self.delete_volume(token, volume),
        }
    }

    fn create_volume(&mut self, token: Token, name: String, blocks: u64) {
        if self.volume_named(&name).is_some() {
            return self.answer(token, Err(Refusal::VolumeExists(name)));
        }
        let volume = VolumeId(self.next_volume);
        self.change_volumes(token, volume, vec![Record::Create { volume, blocks, name }]);
    }

    fn resize_volume(&mut self, token: Token, volume: VolumeId, blocks: u64) {
        let Some(found) = self.volumes.get(&volume) else {
            return self.answer(token, Err(Refusal::UnknownVolume(volume)));
        };
        let mut records = Vec::new();
        if blocks < found.blocks {
            records.push(Record::Hole {
                volume,
                first: blocks,
                count: found.blocks - blocks,
            });
        }
        records.push(Record::Resize { volume, blocks });
        self.change_volumes(token, volume, records);
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
        self.acknowledge_at(end, token, Answer::Volume(volume), true);
    }

    /// Effects of volume records on everything but slots; shared by live operation and replay. Returns the range
    /// that the record unmaps.
    pub(crate) fn apply_volume_record(&mut self, record: &Record) -> Option<(VolumeId, u64)> {
        match record {
            Record::Create { volume, blocks, name } => {
                self.next_volume = self.next_volume.max(volume.0 + 1);
                self.volumes.insert(
                    *volume,
                    Volume {
                        id: *volume,
                        name: name.clone(),
                        blocks: *blocks,
                    },
                );
                None
            }
            Record::Resize { volume, blocks } => {
                if let Some(found) = self.volumes.get_mut(volume) {
                    found.blocks = *blocks;
                }
                None
            }
            Record::Delete { volume } => self.volumes.remove(volume).map(|found| (found.id, found.blocks)),
            _ => None,
        }
    }
}
