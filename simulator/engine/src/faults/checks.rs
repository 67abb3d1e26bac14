//! What is looked at as a whole: the state that a recovery finds, the maps that are said to have changed, and the
//! tables of local metadata when nothing is left in memory.

use crate::faults::files::file;
use crate::faults::metadata::Metadata;
use crate::faults::world::World;
use std::collections::{BTreeMap, BTreeSet};
use tombolo_base::{Instant, ObjectDescriptor, Pvbn, VolumeId};
use tombolo_core::local_metadata::{MetadataRead, Table, load_map_page, map_key};
use tombolo_core::record::{Batch, Record};
use tombolo_core::{Answer, Command, Core, Event, MapPage, PAGE_ENTRIES, ResolvedRun, Span, Token};

impl World {
    /// What has changed since the last checkpoint stays within twice its limits, even if none can be made; beyond them
    /// only what was under way already. A life with other settings than the one before begins with what that one left.
    pub(crate) fn check_bounds(&mut self) {
        let snapshot = self.core.snapshot();
        self.life.room_waits +=
            u64::from(snapshot.waits_for_checkpoint || snapshot.waits_for_journal || snapshot.waits_for_recovery_point);
        let (scenario, config) = (&self.scenario, &self.scenario.config);
        let requests = (scenario.client_count * scenario.requests_per_client + 2 * scenario.share_clients) as u64;
        let flushing = (config.hash_jobs_max * config.hash_blocks) as u64
            + (2 * config.uploads_max * config.object_blocks_max) as u64;
        let under_way = 2 * (requests * (2 * scenario.write_blocks_max + 8) + 2 * flushing);
        assert!(
            snapshot.overlay_extents <= self.life.first_extents + 2 * (config.overlay_extents_max as u64 + under_way),
            "{} extents are not in a checkpoint",
            snapshot.overlay_extents
        );
        assert!(
            snapshot.replay_records <= self.life.first_records + snapshot.replay_records_max + 2 + 2 * under_way,
            "{} records would be replayed",
            snapshot.replay_records
        );
    }

    /// What is said of the age of data at risk is a bound, whatever has happened since: never less than the truth, and
    /// more only by what is lost to seconds at each start.
    pub(crate) fn check_age(&self) {
        let snapshot = self.core.snapshot();
        let (Some(pvbn), Some(told)) = (snapshot.oldest_dirty_pvbn, snapshot.oldest_dirty) else {
            return;
        };
        let Some((_, written)) = self.written_at.range(..=pvbn).next_back() else {
            panic!("PVBN {} is dirty and was never written", pvbn.0);
        };
        let excess = written.saturating_sub(told.0);
        let most = 2_000_000 * (1 + self.lives) + (self.now - written) / 64;
        assert!(
            told.0 <= *written && excess <= most,
            "PVBN {} was written at {written}, and {} is said",
            pvbn.0,
            told.0
        );
    }

    pub(crate) fn note_written(&mut self, batch: &Batch) {
        for record in &batch.records {
            if let Record::Write { pvbn, .. } = record {
                self.written_at.insert(*pvbn, self.now);
            }
        }
    }

    /// Entries, counters and maps are those of one prefix of the journal, the model's. `probe` is a core of the same
    /// recovery that nobody uses afterwards, as looking at maps fills its caches.
    pub(crate) fn check_recovered(&mut self, probe: &mut Core) {
        self.check_counters(probe);
        self.check_entries(probe);
        self.check_maps(probe);
        // By now the probe may have frozen its changes for a checkpoint.
        self.check_entries(probe);
    }

    fn check_maps(&self, probe: &mut Core) {
        let state = self.model.state();
        for (volume, found) in &state.volumes {
            assert_eq!(
                probe.flush_mode(*volume),
                found.flush,
                "what flushes of {volume:?} wait for"
            );
            self.check_map(probe, *volume, 0, found.values.len() as u64);
        }
        let files: BTreeSet<VolumeId> = (0..self.scenario.file_count)
            .map(file)
            .chain(state.files.keys().copied())
            .collect();
        for file in files {
            let blocks = state.files.get(&file);
            // Around each mapped block, so that what should be a hole is looked at too.
            let mut next = 0;
            for block in blocks.into_iter().flat_map(BTreeMap::keys) {
                if *block >= next {
                    let first = (block / PAGE_ENTRIES) * PAGE_ENTRIES;
                    self.check_map(probe, file, first, PAGE_ENTRIES);
                    next = first + PAGE_ENTRIES;
                }
            }
            if blocks.is_none() {
                self.check_map(probe, file, 0, PAGE_ENTRIES);
            }
        }
    }

    fn check_map(&self, probe: &mut Core, volume: VolumeId, first: u64, count: u64) {
        let mut block = first;
        while block < first + count {
            let span = Span {
                volume,
                first: block,
                count: first + count - block,
            };
            for run in resolve_now(probe, &self.metadata, Instant(self.now), span) {
                for offset in 0..run.count {
                    let value = self.model.state().value(volume, block + offset);
                    assert!(
                        self.model.is_source_of(run.source, offset, value),
                        "block {} of {volume:?} is {run:?} at {offset}, and {value:#x} in this prefix",
                        block + offset
                    );
                }
                block += run.count;
            }
        }
    }

    /// Between what the core says has changed and what metadata has, no mapped file is passed over.
    pub(crate) fn check_changed_maps(&self) {
        let files = &self.model.state().files;
        for volume in (0..self.scenario.file_count).map(file) {
            let candidate = [self.core.next_changed_map(volume), self.next_stored_map(volume)];
            let candidate = candidate.into_iter().flatten().min();
            let mapped = files.range(volume..).next().map(|(found, _)| *found);
            assert!(
                mapped.is_none_or(|mapped| candidate.is_some_and(|candidate| candidate <= mapped)),
                "from {volume:?} on the first mapped file is {mapped:?}, not {candidate:?}"
            );
            let is_mapped = files.contains_key(&volume);
            let is_changed = self.core.has_changed_map(volume);
            assert!(is_mapped || !is_changed, "{volume:?} is told to have mapped blocks");
            let is_stored = self.next_stored_map(volume) == Some(volume);
            assert!(!is_mapped || is_changed || is_stored, "{volume:?} has mapped blocks");
        }
    }

    /// The number of the volume's first page from `page` on.
    pub(crate) fn next_stored_page(&self, volume: VolumeId, page: u64) -> Option<u64> {
        let Ok(found) = self.metadata.ceiling(Table::Map, &map_key(volume, page));
        let (found, number) = map_of(&found?.0);
        (found == volume).then_some(number)
    }

    pub(crate) fn next_stored_map(&self, volume: VolumeId) -> Option<VolumeId> {
        let Ok(found) = self.metadata.ceiling(Table::Map, &map_key(volume, 0));
        found.map(|(key, _)| map_of(&key).0)
    }

    /// With everything in a checkpoint: the maps say what the model says, the reference counts equal the number of
    /// blocks that map to each PVBN, and entries and counters are the model's to the byte.
    pub(crate) fn check_tables(&mut self) {
        let metadata = self.metadata.whole();
        let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
        let mut mapped: BTreeMap<VolumeId, u64> = BTreeMap::new();
        for (key, bytes) in metadata.table(Table::Map) {
            let page = MapPage::decode(bytes).expect("a map page");
            let (volume, number) = map_of(key);
            for entry in 0..PAGE_ENTRIES as u16 {
                if let (Some(pvbn), _) = page.get(entry) {
                    self.check_block(volume, number * PAGE_ENTRIES + u64::from(entry), pvbn);
                    *counted.entry(pvbn.0).or_default() += 1;
                    *mapped.entry(volume).or_default() += 1;
                }
            }
        }
        assert_eq!(mapped, self.mapped_blocks(), "mapped blocks of each volume and file");
        assert_eq!(references(&metadata), counted, "reference counts equal the map");
        self.check_audit();
        let state = self.model.state();
        let entries = state.entries.iter().map(|(key, value)| (&key[..], &value[..]));
        assert!(entries.eq(metadata.table(Table::Entries)), "the table of entries");
        let counters = state.counters.iter();
        let counters = counters.map(|(key, value)| (key.clone(), value.to_le_bytes().to_vec()));
        let stored = metadata.table(Table::Counters);
        let stored = stored.map(|(key, value)| (key.to_vec(), value.to_vec()));
        assert!(counters.eq(stored), "the table of counters");
        let snapshot = self.core.snapshot();
        assert_eq!((snapshot.overlay_extents, snapshot.overlay_entry_bytes), (0, 0));
    }

    /// The bucket as a whole. A PVBN stands for one content, in whatever objects it lies: those whose confirmation a crash
    /// lost hold it too. And no content is confirmed under two PVBNs, unless the first was lost.
    pub(crate) fn check_bucket(&self) {
        let mut contents = BTreeMap::new();
        let is_own = |descriptor: &ObjectDescriptor| !self.strange.contains(&descriptor.id().key());
        for descriptor in self.store.descriptors().filter(is_own) {
            for packed in descriptor.blocks() {
                let before = contents.insert(packed.pvbn, packed.fingerprint);
                assert!(
                    before.is_none_or(|before| before == packed.fingerprint),
                    "PVBN {} stands for two contents",
                    packed.pvbn.0
                );
            }
        }
        let mut names = BTreeMap::new();
        let mut confirmed = BTreeSet::new();
        for (_, bytes) in self.metadata.whole().table(Table::Objects) {
            let descriptor = ObjectDescriptor::decode(bytes).expect("metadata is whole");
            confirmed.insert(descriptor.id().key());
            for packed in descriptor.blocks() {
                let other = names.insert(packed.fingerprint, packed.pvbn);
                assert!(
                    other.is_none_or(|other| other == packed.pvbn) || self.forgotten.contains(&packed.fingerprint),
                    "PVBNs {other:?} and {} have the same contents",
                    packed.pvbn.0
                );
            }
        }
        // So contents that the bucket holds under two PVBNs are those of an object whose confirmation a crash lost.
        for key in self.store.keys() {
            assert!(
                confirmed.contains(key) || self.orphans.contains(key),
                "object {key} is referred to by nothing, and no crash has lost its confirmation"
            );
        }
    }

    /// Recovery finds no fingerprint of a block whose confirmation it does not find as well: the index is never ahead of
    /// the checkpoint and of the journal behind it.
    pub(crate) fn check_index(&self) {
        for descriptor in self.store.descriptors() {
            for packed in descriptor.blocks() {
                let known = self.index.lookup(&self.files, &packed.fingerprint);
                assert!(
                    known.is_none_or(|pvbn| self.life.confirmed_pvbns.contains(&pvbn)),
                    "the index names PVBN {known:?}, of which nothing else knows"
                );
            }
        }
    }

    fn check_block(&self, volume: VolumeId, block: u64, pvbn: Pvbn) {
        let value = self.model.state().value(volume, block);
        assert_eq!(
            self.model.value_of_pvbn(pvbn),
            Some(value),
            "block {block} of {volume:?} maps to PVBN {}",
            pvbn.0
        );
    }

    /// How many blocks the model has in each volume and file that has any.
    fn mapped_blocks(&self) -> BTreeMap<VolumeId, u64> {
        let state = self.model.state();
        let volumes = state.volumes.iter().map(|(volume, found)| {
            let mapped = found
                .values
                .iter()
                .filter(|value| **value != crate::faults::contents::ZERO);
            (*volume, mapped.count() as u64)
        });
        let files = state.files.iter().map(|(file, blocks)| (*file, blocks.len() as u64));
        volumes.chain(files).filter(|(_, count)| *count > 0).collect()
    }
}

/// Volume and page.
pub(crate) fn map_of(key: &[u8]) -> (VolumeId, u64) {
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("a map key holds two u64"));
    (VolumeId(number(&key[..8])), number(&key[8..]))
}

/// Resolves the head of a span at once; what else the core asks for is not done.
fn resolve_now(core: &mut Core, metadata: &Metadata, now: Instant, span: Span) -> Vec<ResolvedRun> {
    let token = Token(u64::MAX);
    let mut events = vec![Event::Resolve { token, span }];
    let mut resolved = None;
    while let Some(event) = events.pop() {
        let mut commands = Vec::new();
        core.step(now, event, &mut commands);
        for command in commands {
            match command {
                Command::LoadPage {
                    volume,
                    page,
                    generation,
                } => events.push(Event::PageLoaded {
                    volume,
                    page,
                    generation,
                    result: Ok(load_map_page(metadata, volume, page).expect("metadata is whole")),
                }),
                Command::Answer { token: of, result } if of == token => match result {
                    Ok(Answer::Resolved(runs)) => resolved = Some(runs),
                    other => panic!("a resolution is answered by {other:?}"),
                },
                _ => {}
            }
        }
    }
    resolved.expect("a resolution is answered")
}

pub(crate) fn references(metadata: &Metadata) -> BTreeMap<u64, u64> {
    let mut references = BTreeMap::new();
    for (key, bytes) in metadata.table(Table::References) {
        let mut number = [0; 8];
        number.copy_from_slice(key);
        let first = u64::from_be_bytes(number) * PAGE_ENTRIES;
        // Each run: start u8, length - 1 u8, count u64.
        for run in bytes.chunks_exact(10) {
            let mut count = [0; 8];
            count.copy_from_slice(&run[2..]);
            for entry in u64::from(run[0])..=u64::from(run[0]) + u64::from(run[1]) {
                references.insert(first + entry, u64::from_le_bytes(count));
            }
        }
    }
    references
}
