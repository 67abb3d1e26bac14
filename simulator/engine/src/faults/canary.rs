//! Those of the built-in defects that take more than leaving something out.

use crate::faults::clients::no_span;
use crate::faults::metadata::Metadata;
use crate::faults::operation::Operation;
use crate::faults::request::Kind;
use crate::faults::scenario::Canary;
use crate::faults::world::World;
use tombolo_base::{EntryChange, VolumeId};
use tombolo_core::local_metadata::{MetadataRead, Table};
use tombolo_core::record::{Batch, Record};
use tombolo_core::slot_page::{SlotEntry, decode_slot_page, encode_slot_page};
use tombolo_core::{Event, Frozen, MetadataChange};

impl World {
    /// Sends a write's entries ahead of it, as a commit.
    pub(crate) fn split_change(&mut self, client: usize, event: &mut Event) {
        if let Event::Write { request, .. } = event
            && !request.change.entries.is_empty()
        {
            let entries = std::mem::take(&mut request.change.entries);
            let change = MetadataChange {
                entries,
                holes: Vec::new(),
            };
            let links = Vec::new();
            self.ask(client, Kind::Commit { change, links }, no_span(VolumeId(0)), Vec::new());
        }
    }
}

impl World {
    /// What the file service commits, without what a canary leaves out; and the part that comes some time later.
    pub(crate) fn maim(&mut self, entries: Vec<EntryChange>) -> (Vec<EntryChange>, Option<Vec<EntryChange>>) {
        let without = |tag: u8| entries.iter().filter(|entry| entry.key()[0] != tag).cloned().collect();
        match self.scenario.canary {
            Some(Canary::ForgetRequests) => (without(b'R'), None),
            Some(Canary::ForgetLocks) => (without(b'L'), None),
            Some(Canary::SplitRename) => split(entries, |first, entry| {
                let is_name = |entry: &EntryChange| matches!(entry.key()[0], b'N' | b'C');
                is_name(first) && is_name(entry) && entry.key()[1..9] != first.key()[1..9]
            }),
            Some(Canary::SplitInode) => split(entries, |first, entry| {
                first.key()[0] == b'I' && entry.key()[0] == b'D' && entry.key()[1..] == first.key()[1..]
            }),
            _ => (entries, None),
        }
    }

    /// The rest of a commit that is made in two.
    pub(crate) fn commit_later(&mut self, client: usize, change: MetadataChange) {
        let links = Vec::new();
        self.schedule(
            LATER_MICROS,
            Operation::AskLater(client, Kind::Commit { change, links }),
        );
    }
}

/// The checkpoint's slot pages, in which a slot that was dirty before and is free now is as it was.
pub(crate) fn with_dirty_slots(frozen: &Frozen, before: &Metadata) -> Vec<(u32, Vec<u8>)> {
    let entries = |bytes: &[u8]| decode_slot_page(bytes).expect("the core has made the page");
    let keep = |(page, bytes): &(u32, Vec<u8>)| {
        let Ok(old) = before.get(Table::Slots, &page.to_be_bytes());
        let old = old.map(|bytes| entries(&bytes)).unwrap_or_default();
        let old = old.into_iter().map(Some).chain(std::iter::repeat(None));
        let kept = entries(bytes).into_iter().zip(old).map(|pair| match pair {
            (SlotEntry::Free, Some(dirty @ SlotEntry::Dirty { .. })) => dirty,
            (now, _) => now,
        });
        (*page, encode_slot_page(kept))
    };
    frozen.slot_pages.iter().map(keep).collect()
}

/// Long enough for a crash to come between the two.
const LATER_MICROS: u64 = 10_000;

/// From the first entry on that is to come later because of one before it.
fn split(
    mut entries: Vec<EntryChange>,
    is_later: impl Fn(&EntryChange, &EntryChange) -> bool,
) -> (Vec<EntryChange>, Option<Vec<EntryChange>>) {
    let is_split = |at: &usize| entries[..*at].iter().any(|first| is_later(first, &entries[*at]));
    let rest = (0..entries.len()).find(is_split).map(|at| entries.split_off(at));
    (entries, rest)
}

/// The batch with as many bytes, in which an entry that nobody asks for takes the place of the others.
pub(crate) fn without_entries(mut batch: Batch, identity: u64) -> Vec<u8> {
    let bytes_of = |record: &Record| {
        let records = vec![record.clone()];
        let (lsn, durable_lsn, time) = (batch.lsn, batch.durable_lsn, batch.time);
        let alone = Batch {
            lsn,
            durable_lsn,
            time,
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
