//! Those of the built-in defects that take more than leaving something out.

use crate::clients::no_span;
use crate::request::Kind;
use crate::world::World;
use tombolo_base::{EntryChange, VolumeId};
use tombolo_core::record::{Batch, Record};
use tombolo_core::{Event, MetadataChange};

impl World {
    /// Sends a write's entries ahead of it, as a commit.
    pub(crate) fn split_change(&mut self, client: usize, event: &mut Event) {
        if let Event::Write { change, .. } = event
            && !change.entries.is_empty()
        {
            let entries = std::mem::take(&mut change.entries);
            let change = MetadataChange {
                entries,
                holes: Vec::new(),
            };
            let links = Vec::new();
            self.ask(client, Kind::Commit { change, links }, no_span(VolumeId(0)), Vec::new());
        }
    }
}

/// The batch with as many bytes, in which an entry that nobody asks for takes the place of the others.
pub(crate) fn without_entries(mut batch: Batch, identity: u64) -> Vec<u8> {
    let bytes_of = |record: &Record| {
        let records = vec![record.clone()];
        let (lsn, durable_lsn) = (batch.lsn, batch.durable_lsn);
        let alone = Batch {
            lsn,
            durable_lsn,
            records,
        };
        alone.encode(identity).len()
    };
    let stray = |length: usize| {
        let (key, value) = (b"~".to_vec(), vec![0; length]);
        Record::Entries(vec![EntryChange::Put { key, value }])
    };
    let empty = bytes_of(&stray(0));
    let lengths: Vec<usize> = batch.records.iter().map(bytes_of).collect();
    for (record, length) in batch.records.iter_mut().zip(lengths) {
        if matches!(record, Record::Entries(_)) {
            *record = stray(length - empty);
        }
    }
    batch.encode(identity)
}
