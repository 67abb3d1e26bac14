//! Entries changed since the last checkpoint, laid over those in local metadata; and the counters, all of which are in
//! memory (a share has two).

use crate::core_state::Core;
use crate::event::{Answer, Token};
use crate::format::record::{LinkRun, Record, hole_records};
use crate::state::entry_overlay::{EntryLookup, EntryValue};
use crate::state::extent_map::{ExtentMap, Target};
use alloc::{collections::BTreeMap, vec::Vec};
use tombolo_base::{EntryChange, MetadataChange, Span, VolumeId};

impl Core {
    pub(crate) fn commit_change(&mut self, token: Token, change: MetadataChange, links: Vec<LinkRun>) {
        let mut records = hole_records(change.holes);
        records.extend(links.into_iter().map(Record::Link));
        if !change.entries.is_empty() {
            records.push(Record::Entries(change.entries));
        }
        let end = self.commit(records);
        self.acknowledge_at(end, token, Answer::Committed, None);
    }

    pub(crate) fn apply_entries(&mut self, changes: &[EntryChange]) {
        for change in changes {
            match change {
                EntryChange::Put { key, value } => self.overlay.entries.set(key, Some(value.as_slice().into())),
                EntryChange::Delete { key } => self.overlay.entries.set(key, None),
                EntryChange::Add { key, amount } => {
                    let counter = self.counters_of_entries.entry(key.clone()).or_insert(0);
                    *counter = counter.saturating_add(*amount);
                    let value = *counter;
                    if value == 0 {
                        self.counters_of_entries.remove(key);
                    }
                    self.overlay.entries.set_counter(key, value);
                }
            }
        }
    }

    /// Whether memory knows the entry. What is [`EntryLookup::Stored`] is found in local metadata read after this call,
    /// as long as nobody changes the entry meanwhile.
    pub fn entry(&self, key: &[u8]) -> EntryLookup {
        match (self.overlay.entries.get(key), &self.frozen) {
            (EntryLookup::Stored, Some(frozen)) => frozen.entries.get(key),
            (found, _) => found,
        }
    }

    /// The changed entries with `from <= key < end`, ascending, at most `limit` of them; they go before what local
    /// metadata, read after this call, says of the same keys. With `limit` of them there may be more behind the last.
    pub(crate) fn changed_entries(&self, from: &[u8], end: &[u8], limit: usize) -> Vec<(Vec<u8>, EntryValue)> {
        let mut merged: BTreeMap<&Vec<u8>, &EntryValue> = BTreeMap::new();
        if let Some(frozen) = &self.frozen {
            merged.extend(frozen.entries.range(from, end).take(limit));
        }
        merged.extend(self.overlay.entries.range(from, end).take(limit));
        let owned = merged.into_iter().take(limit);
        owned.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// The first map from `volume` on with blocks that have been mapped since the last checkpoint.
    pub fn next_changed_map(&self, volume: VolumeId) -> Option<VolumeId> {
        let frozen = self.frozen.as_ref().and_then(|frozen| frozen.map.next_mapped(volume));
        [self.overlay.map.next_mapped(volume), frozen]
            .into_iter()
            .flatten()
            .min()
    }

    /// The first block of the span that may be mapped since the last checkpoint.
    pub(crate) fn next_changed_block(&self, span: Span) -> Option<u64> {
        let next = |map: &ExtentMap| map.next_mapped_block(span.volume, span.first, span.end());
        let frozen = self.frozen.as_ref().and_then(|frozen| next(&frozen.map));
        [next(&self.overlay.map), frozen].into_iter().flatten().min()
    }

    /// Whether blocks of the map, changed since the last checkpoint, are mapped now.
    pub fn has_changed_map(&self, volume: VolumeId) -> bool {
        if self.overlay.map.next_mapped(volume) == Some(volume) {
            return true;
        }
        let Some(frozen) = &self.frozen else { return false };
        let mapped = frozen.map.overlaps(volume, 0, u64::MAX).into_iter();
        let mut mapped = mapped.filter(|extent| extent.target != Target::Hole);
        // What lies under a newer extent, a hole as it must be here, does not count.
        mapped.any(|extent| {
            let covered: u64 = self
                .overlay
                .map
                .overlaps(volume, extent.first, extent.end())
                .iter()
                .map(|newer| newer.count)
                .sum();
            covered < extent.count
        })
    }

    /// A counter's value; an absent one is nothing.
    pub fn counter(&self, key: &[u8]) -> i64 {
        self.counters_of_entries.get(key).copied().unwrap_or(0)
    }
}
