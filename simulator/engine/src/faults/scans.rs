//! Clients that look at entries, as the file service does: what the core knows of them first, then what local metadata
//! has, read some time later. Checkpoints may come and go between.

use crate::faults::files::{COUNTER_COUNT, counter_key};
use crate::faults::metadata::Metadata;
use crate::faults::operation::Operation;
use crate::faults::service::thread_of;
use crate::faults::world::World;
use std::sync::Arc;
use tombolo_core::local_metadata::{MetadataRead, Table};
use tombolo_core::{Core, EntryLookup, EntryScan, StoredEntry};

/// An [`EntryScan`] of a client's.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Names it in the model.
    number: u64,
    client: usize,
    limit: usize,
    scan: EntryScan,
}

/// One entry.
#[derive(Debug)]
pub(crate) struct Get {
    number: u64,
    client: usize,
    key: Vec<u8>,
    known: EntryLookup,
}

/// Everything that a core and its metadata say of the entries in `from..end`, `limit` at a time.
pub(crate) fn scan_all(core: &Core, metadata: &Metadata, limit: usize) -> Vec<StoredEntry> {
    let mut all = Vec::new();
    let mut from = Vec::new();
    loop {
        let mut scan = EntryScan::new(&from, END, limit);
        while scan.begin_round(core) {
            let stored = stored_entries(&scan, metadata);
            scan.end_round(stored);
        }
        let mut found = scan.into_found();
        let is_last = found.len() < limit;
        all.append(&mut found);
        match all.last() {
            Some((last, _)) if !is_last => from = [&last[..], &[0]].concat(),
            _ => return all,
        }
    }
}

/// What local metadata says in a scan's round.
fn stored_entries(scan: &EntryScan, metadata: &Metadata) -> Vec<StoredEntry> {
    let stored = metadata.entries(scan.from(), scan.end(), scan.wanted());
    stored.into_iter().map(|(key, value)| (key, Arc::from(value))).collect()
}

/// Behind every key that is used.
const END: &[u8] = &[0xff];

impl World {
    pub(crate) fn look_at_entries(&mut self, client: usize) {
        self.check_counters(&self.core);
        self.check_changed_maps();
        match self.clients.prng.below(2) {
            0 => {
                let key = self.entry_key();
                let get = self.new_get(client, key);
                self.schedule_get(get);
            }
            _ => self.begin_scan(client),
        }
    }

    pub(crate) fn new_get(&mut self, client: usize, key: Vec<u8>) -> Get {
        let number = self.clients.next_number();
        self.model.begin_scan(number, &key, &[&key[..], &[0]].concat());
        Get {
            number,
            client,
            known: self.core.entry(&key),
            key,
        }
    }

    pub(crate) fn schedule_get(&mut self, get: Get) {
        let micros = self.metadata_micros();
        self.schedule(micros, Operation::Get(get));
    }

    fn begin_scan(&mut self, client: usize) {
        let mut bounds = [self.entry_key(), self.entry_key()];
        bounds.sort();
        let [from, end] = match self.clients.prng.below(3) {
            0 => [Vec::new(), END.to_vec()],
            _ => bounds,
        };
        let limit_max = if self.clients.prng.chance(500) { 4 } else { 100 };
        let limit = 1 + self.clients.prng.below(limit_max);
        let scan = self.new_scan(client, &from, &end, limit as usize);
        self.go_on_scanning(scan);
    }

    pub(crate) fn new_scan(&mut self, client: usize, from: &[u8], end: &[u8], limit: usize) -> Scan {
        let number = self.clients.next_number();
        self.model.begin_scan(number, from, end);
        Scan {
            number,
            client,
            limit,
            scan: EntryScan::new(from, end, limit),
        }
    }

    pub(crate) fn go_on_scanning(&mut self, mut scan: Scan) {
        if scan.scan.begin_round(&self.core) {
            let micros = self.metadata_micros();
            return self.schedule(micros, Operation::Scan(scan));
        }
        let found = scan.scan.into_found();
        self.say(|| format!("scan {} of at most {}: {}", scan.number, scan.limit, found.len()));
        self.model.check_scan(scan.number, &found, scan.limit);
        match thread_of(scan.client) {
            Some(thread) => self.reply_found(thread, found, true),
            None => self.client_rests(scan.client),
        }
    }

    /// A reader that is held up between core and metadata may see any number of checkpoints.
    pub(crate) fn metadata_micros(&mut self) -> u64 {
        let delays = &self.scenario.delays;
        let range = if self.prng.chance(200) {
            delays.checkpoint
        } else {
            delays.metadata_read
        };
        delays.of(range, &mut self.prng)
    }

    pub(crate) fn end_get(&mut self, get: Get) {
        let client = get.client;
        let found = self.found_by(get);
        match thread_of(client) {
            Some(thread) => self.reply_found(thread, found, false),
            None => self.client_rests(client),
        }
    }

    pub(crate) fn found_by(&mut self, get: Get) -> Vec<StoredEntry> {
        let Ok(value) = get.known.or_stored(|| {
            let stored = self.metadata.get(Table::Entries, &get.key);
            stored.map(|stored| stored.map(Arc::from))
        });
        let found: Vec<StoredEntry> = value.into_iter().map(|value| (get.key.clone(), value)).collect();
        self.say(|| format!("entry {:02x?}: {}", get.key, found.len()));
        self.model.check_scan(get.number, &found, 2);
        found
    }

    pub(crate) fn end_scan_round(&mut self, mut scan: Scan) {
        scan.scan.end_round(stored_entries(&scan.scan, &self.metadata));
        self.go_on_scanning(scan);
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
