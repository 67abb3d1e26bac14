//! Looks at entries as the gateway makes them for the file service: what the core knows of them first, then what local
//! metadata has, read some time later. Checkpoints may come and go between.

use crate::files::{COUNTER_COUNT, counter_key};
use crate::metadata::Metadata;
use crate::operation::Operation;
use crate::world::World;
use std::collections::BTreeMap;
use std::sync::Arc;
use tombolo_core::checkpoint::{MetadataRead, Table};
use tombolo_core::{Core, EntryLookup, EntryValue};

type Entry = (Vec<u8>, Arc<[u8]>);

/// The entries in `from..end`, at most `limit` of them, in as many rounds as it takes.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Names it in the model.
    number: u64,
    client: usize,
    from: Vec<u8>,
    end: Vec<u8>,
    limit: usize,
    /// What the core said in this round.
    changed: Vec<(Vec<u8>, EntryValue)>,
    found: Vec<Entry>,
}

/// One entry.
#[derive(Debug)]
pub(crate) struct Get {
    number: u64,
    client: usize,
    key: Vec<u8>,
    known: EntryLookup,
}

impl Scan {
    fn wanted(&self) -> usize {
        self.limit - self.found.len()
    }

    fn ask_core(&mut self, core: &Core) {
        self.changed = core.changed_entries(&self.from, &self.end, self.wanted());
    }

    /// Lays what the core said over what metadata says now. False: there is more to be found.
    fn merge(&mut self, metadata: &Metadata) -> bool {
        let wanted = self.wanted();
        let stored: Vec<_> = metadata.entries(&self.from, &self.end).take(wanted).collect();
        let last_changed = self.changed.last().map(|(key, _)| key);
        let last_changed = last_changed.filter(|_| self.changed.len() == wanted);
        let last_stored = stored.last().map(|(key, _)| *key);
        let last_stored = last_stored.filter(|_| stored.len() == wanted);
        // Beyond the first of the two that was cut short nothing is known.
        let known_to = [last_changed, last_stored].into_iter().flatten().min().cloned();
        let mut merged: BTreeMap<&Vec<u8>, EntryValue> = BTreeMap::new();
        merged.extend(stored.iter().map(|(key, value)| (*key, Some(Arc::from(*value)))));
        merged.extend(self.changed.iter().map(|(key, value)| (key, value.clone())));
        merged.retain(|key, _| known_to.as_ref().is_none_or(|last| *key <= last));
        let present = merged
            .into_iter()
            .filter_map(|(key, value)| Some((key.clone(), value?)));
        self.found.extend(present.take(wanted));
        match known_to {
            Some(last) if self.found.len() < self.limit => {
                self.from = last;
                self.from.push(0);
                false
            }
            _ => true,
        }
    }
}

/// Everything that a core and its metadata say of the entries in `from..end`, `limit` at a time.
pub(crate) fn scan_all(core: &Core, metadata: &Metadata, limit: usize) -> Vec<Entry> {
    let mut all = Vec::new();
    let mut from = Vec::new();
    loop {
        let mut scan = Scan {
            number: 0,
            client: 0,
            from,
            end: END.to_vec(),
            limit,
            changed: Vec::new(),
            found: Vec::new(),
        };
        loop {
            scan.ask_core(core);
            if scan.merge(metadata) {
                break;
            }
        }
        let is_last = scan.found.len() < limit;
        all.append(&mut scan.found);
        match all.last() {
            Some((last, _)) if !is_last => from = [&last[..], &[0]].concat(),
            _ => return all,
        }
    }
}

/// Behind every key that is used.
const END: &[u8] = &[0xff];

impl World {
    pub(crate) fn look_at_entries(&mut self, client: usize) {
        self.check_counters(&self.core);
        self.check_changed_maps();
        let number = self.clients.next_number();
        match self.clients.prng.below(2) {
            0 => self.begin_get(client, number),
            _ => self.begin_scan(client, number),
        }
    }

    fn begin_get(&mut self, client: usize, number: u64) {
        let key = self.entry_key();
        self.model.begin_scan(number, &key, &[&key[..], &[0]].concat());
        let get = Get {
            number,
            client,
            known: self.core.entry(&key),
            key,
        };
        let micros = self.metadata_micros();
        self.schedule(micros, Operation::Get(get));
    }

    fn begin_scan(&mut self, client: usize, number: u64) {
        let mut bounds = [self.entry_key(), self.entry_key()];
        bounds.sort();
        let [from, end] = match self.clients.prng.below(3) {
            0 => [Vec::new(), END.to_vec()],
            _ => bounds,
        };
        let limit_max = if self.clients.prng.chance(500) { 4 } else { 100 };
        let limit = 1 + self.clients.prng.below(limit_max);
        self.model.begin_scan(number, &from, &end);
        let scan = Scan {
            number,
            client,
            from,
            end,
            limit: limit as usize,
            changed: Vec::new(),
            found: Vec::new(),
        };
        self.go_on_scanning(scan);
    }

    fn go_on_scanning(&mut self, mut scan: Scan) {
        scan.ask_core(&self.core);
        let micros = self.metadata_micros();
        self.schedule(micros, Operation::Scan(scan));
    }

    /// A reader that is held up between core and metadata may see any number of checkpoints.
    fn metadata_micros(&mut self) -> u64 {
        let delays = &self.scenario.delays;
        let range = if self.prng.chance(200) {
            delays.checkpoint
        } else {
            delays.metadata_read
        };
        delays.of(range, &mut self.prng)
    }

    pub(crate) fn end_get(&mut self, get: Get) {
        let value = match get.known {
            EntryLookup::Known(value) => value,
            EntryLookup::Stored => {
                let Ok(stored) = self.metadata.get(Table::Entries, &get.key);
                stored.map(Arc::from)
            }
        };
        let found: Vec<Entry> = value.into_iter().map(|value| (get.key.clone(), value)).collect();
        self.say(|| format!("entry {:02x?}: {}", get.key, found.len()));
        self.model.check_scan(get.number, &found, 2);
        self.client_rests(get.client);
    }

    pub(crate) fn end_scan_round(&mut self, mut scan: Scan) {
        if !scan.merge(&self.metadata) {
            return self.go_on_scanning(scan);
        }
        self.say(|| format!("scan {} of at most {}: {}", scan.number, scan.limit, scan.found.len()));
        self.model.check_scan(scan.number, &scan.found, scan.limit);
        self.client_rests(scan.client);
    }

    pub(crate) fn check_counters(&self, core: &Core) {
        for key in (0..COUNTER_COUNT).map(counter_key) {
            let expected = self.model.state().counters.get(&key).copied().unwrap_or(0);
            assert_eq!(core.counter(&key), expected, "counter {key:02x?}");
        }
    }

    /// Entries, as far as a scan through the core finds them, are the model's.
    pub(crate) fn check_entries(&mut self, core: &Core) {
        for limit in [1 + self.prng.below(6) as usize, 10_000] {
            let found = scan_all(core, &self.metadata, limit);
            let expected = &self.model.state().entries;
            for (key, value) in &found {
                let held = expected.get(key).map(|held| &held[..]);
                assert_eq!(held, Some(&value[..]), "entry {key:02x?} is not the one of this prefix");
            }
            let found_keys: Vec<&Vec<u8>> = found.iter().map(|(key, _)| key).collect();
            assert_eq!(
                found_keys,
                expected.keys().collect::<Vec<_>>(),
                "the entries of this prefix"
            );
        }
    }
}
