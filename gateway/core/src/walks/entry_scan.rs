//! Looks at entries: what the core knows of them laid over what local metadata has.
//!
//! A round asks the core first and local metadata second. A checkpoint in between then shows an entry twice, with the
//! same value; the other way round it would show it not at all. The caller may read local metadata at any time after
//! the core was asked, without the core's lock.

use crate::core_state::Core;
use crate::state::entry_overlay::EntryValue;
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

/// A key and its value.
pub type StoredEntry = (Vec<u8>, Arc<[u8]>);

/// The entries with `from <= key < end`, ascending, at most `limit` of them, in as many rounds as it takes.
///
/// ```text
/// while scan.begin_round(&core) {
///     scan.end_round(read_local_metadata(scan.from(), scan.end(), scan.wanted()));
/// }
/// ```
#[derive(Debug)]
pub struct EntryScan {
    from: Vec<u8>,
    end: Vec<u8>,
    limit: usize,
    /// What the core said in this round.
    changed: Vec<(Vec<u8>, EntryValue)>,
    found: Vec<StoredEntry>,
    is_done: bool,
}

impl EntryScan {
    /// Without asking anybody yet. `limit` zero, or an empty range, finds nothing.
    pub fn new(from: &[u8], end: &[u8], limit: usize) -> Self {
        Self {
            from: from.to_vec(),
            end: end.to_vec(),
            limit,
            changed: Vec::new(),
            found: Vec::new(),
            is_done: from >= end || limit == 0,
        }
    }

    /// Asks the core. True: local metadata is to be read now, for [`EntryScan::end_round`]; false: the scan is done.
    pub fn begin_round(&mut self, core: &Core) -> bool {
        if !self.is_done {
            self.changed = core.changed_entries(&self.from, &self.end, self.wanted());
        }
        !self.is_done
    }

    /// The range of this round.
    pub fn from(&self) -> &[u8] {
        &self.from
    }

    /// Where the scan ends, this key excluded; the same in all rounds.
    pub fn end(&self) -> &[u8] {
        &self.end
    }

    /// Entries that are still to be found, and as many are to be read in this round.
    pub fn wanted(&self) -> usize {
        self.limit - self.found.len()
    }

    /// Takes the first [`EntryScan::wanted`] entries of the round's range as local metadata has them, ascending.
    pub fn end_round(&mut self, stored: Vec<StoredEntry>) {
        let wanted = self.wanted();
        let changed = core::mem::take(&mut self.changed);
        let last_changed = last_of_full(&changed, wanted);
        let last_stored = last_of_full(&stored, wanted);
        // Beyond the first of the two that was cut short nothing is known.
        let known_to = [last_changed, last_stored].into_iter().flatten().min().cloned();
        let mut merged: BTreeMap<Vec<u8>, EntryValue> = BTreeMap::new();
        merged.extend(stored.into_iter().map(|(key, value)| (key, Some(value))));
        merged.extend(changed);
        merged.retain(|key, _| known_to.as_ref().is_none_or(|last| key <= last));
        let present = merged.into_iter().filter_map(|(key, value)| Some((key, value?)));
        self.found.extend(present.take(wanted));
        match known_to {
            Some(mut last) => {
                last.push(0);
                self.from = last;
                self.is_done = self.found.len() == self.limit || self.from >= self.end;
            }
            None => self.is_done = true,
        }
    }

    /// What was found, ascending; to be taken when [`EntryScan::begin_round`] has said that the scan is done.
    pub fn into_found(self) -> Vec<StoredEntry> {
        self.found
    }
}

/// The last key of a list that was cut short.
fn last_of_full<T>(entries: &[(Vec<u8>, T)], wanted: usize) -> Option<&Vec<u8>> {
    let last = entries.last().filter(|_| entries.len() == wanted);
    last.map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Token};
    use crate::test_bench::Bench;
    use tombolo_base::{EntryChange, MetadataChange};

    /// Keys that the core has changed, with `None` for those it has deleted, and keys that local metadata has.
    fn scan(changed: &[(u8, Option<u8>)], stored: &[(u8, u8)], range: [u8; 2], limit: usize) -> Vec<(u8, u8)> {
        let entries = changed.iter().map(|(key, value)| match value {
            Some(value) => EntryChange::Put {
                key: vec![*key],
                value: vec![*value],
            },
            None => EntryChange::Delete { key: vec![*key] },
        });
        let mut bench = Bench::new();
        bench.step(Event::Commit {
            token: Token(1),
            change: MetadataChange {
                entries: entries.collect(),
                holes: Vec::new(),
            },
            links: Vec::new(),
        });
        let mut scan = EntryScan::new(&range[..1], &range[1..], limit);
        while scan.begin_round(&bench.core) {
            let within = stored
                .iter()
                .filter(|(key, _)| scan.from() <= [*key].as_slice() && [*key].as_slice() < scan.end());
            let read = within.take(scan.wanted());
            let read = read.map(|(key, value)| (vec![*key], Arc::from([*value].as_slice())));
            let read = read.collect();
            scan.end_round(read);
        }
        let found = scan.into_found();
        found.iter().map(|(key, value)| (key[0], value[0])).collect()
    }

    #[test]
    fn changed_entries_lie_over_stored_ones_whatever_the_limit() {
        let changed = [
            (2, Some(20)),
            (3, None),
            (4, None),
            (5, None),
            (7, Some(70)),
            (9, Some(90)),
        ];
        let stored = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (8, 8)];
        let all = [(1, 1), (2, 20), (6, 6), (7, 70), (8, 8), (9, 90)];
        for limit in 0..=8 {
            for from in 0..=10 {
                for end in 0..=10 {
                    let within = all.iter().filter(|(key, _)| (from..end).contains(key));
                    let expected: Vec<(u8, u8)> = within.take(limit).copied().collect();
                    assert_eq!(
                        scan(&changed, &stored, [from, end], limit),
                        expected,
                        "{limit} from {from} to {end}"
                    );
                }
            }
        }
    }
}
