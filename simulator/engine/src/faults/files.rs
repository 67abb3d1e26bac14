//! Clients of the file service: data and entries that change together, commits, links, and looks at what has changed.
//!
//! As in the service, a link has its two files to itself; every other one goes without, to see that nothing but its
//! result depends on that. Nobody cancels a request of theirs: the service waits for each.

use crate::faults::contents::Value;
use crate::faults::linking::Linking;
use crate::faults::operation::Operation;
use crate::faults::request::Kind;
use crate::faults::world::World;
use tombolo_base::{ENTRY_KEY_BYTES_MAX, EntryChange, VolumeId};
use tombolo_core::record::VOLUME_BLOCKS_MAX;
use tombolo_core::{Event, Link, MetadataChange, Span};

/// A part of each file's map at its very end is used too.
pub(crate) const FAR: u64 = VOLUME_BLOCKS_MAX - 1024;
/// Spans reach at most this far beyond the scenario's `file_blocks`.
pub(crate) const FILE_SPAN_BLOCKS_MAX: u64 = 40;

/// Most uploads are done within this time.
const DRAIN_MICROS_MAX: u64 = 400_000;

/// The files of a world: neighbours, and one with the greatest number there is.
pub(crate) fn file(index: u64) -> VolumeId {
    VolumeId::of_inode(if index == 0 { (1 << 63) - 1 } else { index })
}

impl World {
    pub(crate) fn work_on_files(&mut self, client: usize) {
        let Some(file) = self.free_file() else {
            return self.look_at_entries(client);
        };
        match self.clients.prng.below(1000) {
            0..=219 => {
                let span = self.file_span(file, self.scenario.read_blocks_max);
                self.ask(client, Kind::Read, span, Vec::new());
            }
            220..=499 => self.ask_file_write(client, file),
            500..=679 => self.ask_commit(client, file),
            680..=749 => self.ask_link(client),
            750..=819 => self.drain_and_link(client),
            820..=929 => self.look_at_entries(client),
            930..=949 => {
                let span = self.file_span(file, FILE_SPAN_BLOCKS_MAX);
                self.ask(client, Kind::Status, span, Vec::new());
            }
            // Their share would say in which mode.
            950..=979 => {
                let mode = self.draw_flush_mode();
                self.ask_flush(client, mode);
            }
            _ => {
                self.step(Event::Drain);
                self.client_rests(client);
            }
        }
    }

    /// A file that no link has to itself.
    fn free_file(&mut self) -> Option<VolumeId> {
        let file = file(self.clients.prng.below(self.scenario.file_count));
        (!self.is_held(file)).then_some(file)
    }

    fn is_held(&self, file: VolumeId) -> bool {
        let mut requests = self.requests.values();
        requests.any(|request| matches!(&request.kind, Kind::Link(linking) if linking.holds(file)))
    }

    fn is_in_use(&self, file: VolumeId) -> bool {
        let mut requests = self.requests.values();
        requests.any(|request| request.spans().iter().any(|span| span.volume == file))
    }

    pub(crate) fn file_span(&mut self, volume: VolumeId, count_max: u64) -> Span {
        let prng = &mut self.clients.prng;
        let start = if prng.chance(60) { FAR } else { 0 };
        let reach = if prng.chance(500) {
            24
        } else {
            self.scenario.file_blocks
        };
        let count = if prng.chance(10) {
            0
        } else {
            1 + prng.below(count_max.min(FILE_SPAN_BLOCKS_MAX))
        };
        Span {
            volume,
            first: start + prng.below(reach),
            count,
        }
    }

    fn ask_file_write(&mut self, client: usize, file: VolumeId) {
        let span = self.file_span(file, self.scenario.write_blocks_max);
        let values = self.fresh_values(span.count);
        let force_unit_access = self.clients.prng.chance(100);
        let change = self.draw_change(file);
        let kind = Kind::Write {
            force_unit_access,
            change,
        };
        self.ask(client, kind, span, values);
    }

    fn ask_commit(&mut self, client: usize, file: VolumeId) {
        let change = if self.clients.prng.chance(10) {
            MetadataChange::default()
        } else {
            self.draw_change(file)
        };
        let nothing = Span {
            volume: file,
            first: 0,
            count: 0,
        };
        let kind = Kind::Commit {
            change,
            links: Vec::new(),
        };
        self.ask(client, kind, nothing, Vec::new());
    }

    /// A link that comes when there has been time to upload something.
    fn drain_and_link(&mut self, client: usize) {
        self.step(Event::Drain);
        let micros = self.clients.prng.below(DRAIN_MICROS_MAX);
        self.schedule(micros, Operation::ClientLinks(client));
    }

    pub(crate) fn ask_link(&mut self, client: usize) {
        if self.is_calm {
            return;
        }
        let (Some(source), Some(target)) = (self.free_file(), self.free_file()) else {
            return self.client_rests(client);
        };
        let mut from = self.file_span(source, FILE_SPAN_BLOCKS_MAX);
        let mut to = self.file_span(target, 1);
        if source != target && self.clients.prng.chance(200) {
            // Nearly all of it is empty.
            to.first = to.first.min(from.first);
            from.count = VOLUME_BLOCKS_MAX - from.first;
        }
        to.count = from.count;
        if from.overlaps(&to) {
            return self.client_rests(client);
        }
        let is_exclusive = !self.is_in_use(source) && !self.is_in_use(target) && self.clients.prng.chance(500);
        // Without holes: they could lie in the source or the target, which are to be the same afterwards.
        let change = self.draw_entries(target);
        let link = Link::new(from, to, change, self.scenario.write_blocks_max);
        self.go_on_linking(client, Box::new(Linking::new(link, is_exclusive)));
    }

    /// Entries, and now and then holes of any length in any file.
    fn draw_change(&mut self, file: VolumeId) -> MetadataChange {
        let mut change = self.draw_entries(file);
        while self.clients.prng.chance(250) {
            let Some(volume) = self.free_file() else { break };
            let hole = self.draw_hole(volume);
            change.holes.push(hole);
        }
        change
    }

    fn draw_hole(&mut self, volume: VolumeId) -> Span {
        let span = self.file_span(volume, FILE_SPAN_BLOCKS_MAX);
        let count = match self.clients.prng.below(100) {
            // To the end of the map, as a file is cut short or removed.
            0..=14 => VOLUME_BLOCKS_MAX - span.first,
            // Beyond it: to be refused, with all that goes with it.
            15 => VOLUME_BLOCKS_MAX,
            16 => u64::MAX,
            _ => span.count,
        };
        Span { count, ..span }
    }

    /// Among them one with a value of its own, so that no two changes are the same.
    fn draw_entries(&mut self, file: VolumeId) -> MetadataChange {
        let mut entries = Vec::new();
        for _ in 0..self.clients.prng.below(4) {
            let change = self.draw_entry_change();
            entries.push(change);
        }
        let record = EntryChange::Put {
            key: [&b"D"[..], &file.0.to_be_bytes()].concat(),
            value: self.fresh_entry_value(),
        };
        let place = self.clients.prng.below(entries.len() as u64 + 1) as usize;
        entries.insert(place, record);
        MetadataChange {
            entries,
            holes: Vec::new(),
        }
    }

    fn draw_entry_change(&mut self) -> EntryChange {
        let kind = self.clients.prng.below(100);
        match kind {
            0..=44 => EntryChange::Put {
                key: self.entry_key(),
                value: if kind == 0 {
                    Vec::new()
                } else {
                    self.fresh_entry_value()
                },
            },
            45..=74 => EntryChange::Delete { key: self.entry_key() },
            _ => {
                let prng = &mut self.clients.prng;
                EntryChange::Add {
                    key: counter_key(prng.below(COUNTER_COUNT)),
                    // Small enough to come back to nothing now and then; rarely one that meets the counter's bounds.
                    amount: match prng.below(40) {
                        0 => i64::MAX - 1,
                        1 => i64::MIN + 1,
                        other => other as i64 % 5 - 2,
                    },
                }
            }
        }
    }

    /// One of some seventy keys, of which many are the beginning of others.
    pub(crate) fn entry_key(&mut self) -> Vec<u8> {
        let prng = &mut self.clients.prng;
        let mut key = vec![b"NX"[prng.below(2) as usize]];
        for _ in 0..prng.below(4) {
            key.push([0, b'a', 0xff][prng.below(3) as usize]);
        }
        if prng.chance(20) {
            key.resize(ENTRY_KEY_BYTES_MAX, b'z');
        }
        key
    }

    fn fresh_entry_value(&mut self) -> Vec<u8> {
        self.clients.next_stamp += 1;
        let mut value = self.clients.next_stamp.to_le_bytes().to_vec();
        let prng = &mut self.clients.prng;
        let padding = if prng.chance(50) {
            prng.below(3_000)
        } else {
            prng.below(40)
        };
        value.resize(value.len() + padding as usize, 0xe5);
        value
    }

    pub(crate) fn fresh_values(&mut self, count: u64) -> Vec<Value> {
        (0..count)
            .map(|_| self.clients.value(self.scenario.common_values))
            .collect()
    }
}

pub(crate) const COUNTER_COUNT: u64 = 4;

/// Counters have keys of their own, in the midst of the others.
pub(crate) fn counter_key(index: u64) -> Vec<u8> {
    vec![b'U', index as u8]
}
