//! When a slot may be used again: only when a record that makes its block dispensable is durable (R3 of docs/FORMAT.md).
//! And what may be uploaded: only blocks whose record is durable (R7). Both are looked at as it happens, for blocks
//! written in the present life, so that no crash has to come at the right moment.

use std::collections::BTreeMap;
use tombolo_base::{Lcbn, Pvbn, VolumeId};
use tombolo_core::LinkRun;
use tombolo_core::record::Record;

#[derive(Debug, Default)]
pub(crate) struct Reuse {
    /// What each slot holds the only copy of.
    slots: BTreeMap<u32, Pvbn>,
    /// The LSN behind the record of each block written.
    written: BTreeMap<Pvbn, u64>,
    places: BTreeMap<(VolumeId, u64), Pvbn>,
    /// The LSN behind the first record that made the block dispensable.
    dispensable: BTreeMap<Pvbn, u64>,
    /// Everything below is durable; pieces beyond it from start to end.
    durable: u64,
    ahead: BTreeMap<u64, u64>,
    /// Journal writes that have completed: order, start and end.
    unsynced: Vec<(u64, u64, u64)>,
}

impl Reuse {
    pub fn after(recovered: u64) -> Self {
        Self {
            durable: recovered,
            ..Self::default()
        }
    }

    pub fn on_journal_written(&mut self, order: u64, lsn: u64, end: u64) {
        self.unsynced.push((order, lsn, end));
    }

    pub fn on_synced(&mut self, upto: u64) {
        let synced = self.unsynced.extract_if(.., |(order, ..)| *order <= upto);
        self.ahead.extend(synced.map(|(_, lsn, end)| (lsn, end)));
        while let Some(end) = self.ahead.remove(&self.durable) {
            self.durable = end;
        }
    }

    pub fn on_checkpoint(&mut self, lsn: u64) {
        self.durable = self.durable.max(lsn);
        while let Some((start, end)) = self.ahead.first_key_value().map(|(start, end)| (*start, *end))
            && start <= self.durable
        {
            self.ahead.remove(&start);
            self.durable = self.durable.max(end);
        }
    }

    pub fn on_record(&mut self, record: &Record, end: u64) {
        match record {
            Record::Write {
                volume,
                first,
                pvbn,
                slots,
                sums,
            } => {
                self.replace(*volume, *first, first + sums.len() as u64, end);
                for (offset, slot) in (0u64..).zip(slots.iter().flat_map(|run| run.slots())) {
                    let pvbn = pvbn.plus(offset);
                    self.slots.insert(slot.0, pvbn);
                    self.places.insert((*volume, first + offset), pvbn);
                    self.written.insert(pvbn, end);
                }
            }
            Record::Hole { volume, first, count }
            | Record::Link(LinkRun {
                volume, first, count, ..
            }) => self.replace(*volume, *first, first + count, end),
            Record::Delete { volume } => self.replace(*volume, 0, u64::MAX, end),
            Record::Redirect { count, from, .. } => {
                (0..u64::from(*count)).for_each(|offset| self.dispense(from.plus(offset), end));
            }
            Record::Object(descriptor) => {
                descriptor
                    .blocks()
                    .iter()
                    .for_each(|block| self.dispense(block.pvbn, end));
            }
            Record::Create { .. } | Record::Resize { .. } | Record::Entries(_) => {}
        }
    }

    fn replace(&mut self, volume: VolumeId, first: u64, end: u64, lsn: u64) {
        while let Some((&place, &pvbn)) = self.places.range((volume, first)..(volume, end)).next() {
            self.places.remove(&place);
            self.dispense(pvbn, lsn);
        }
    }

    fn dispense(&mut self, pvbn: Pvbn, lsn: u64) {
        self.dispensable.entry(pvbn).or_insert(lsn);
    }

    /// The core gives the slot to something else.
    pub fn check_use(&mut self, slot: Lcbn) {
        if let Some(pvbn) = self.slots.remove(&slot.0) {
            let lsn = self.dispensable.get(&pvbn);
            assert!(
                lsn.is_some_and(|lsn| *lsn <= self.durable),
                "slot {} is used again while PVBN {} may still need it: dispensable by {lsn:?}, durable is {}",
                slot.0,
                pvbn.0,
                self.durable
            );
        }
    }

    pub fn check_upload(&self, pvbn: Pvbn) {
        let lsn = self.written.get(&pvbn);
        assert!(
            lsn.is_none_or(|lsn| *lsn <= self.durable),
            "PVBN {} is uploaded before its record is durable: {lsn:?}, durable is {}",
            pvbn.0,
            self.durable
        );
    }
}
