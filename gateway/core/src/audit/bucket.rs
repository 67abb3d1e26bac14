//! Local metadata against the bucket's: the tree part by part as [`crate::bucket_tree::read_tree`] gives it, then the journal
//! behind it.
//!
//! Both are at other positions of the journal, since clients go on. What has changed between them is known exactly, though: the
//! core keeps in memory what the last checkpoint lacks and what the bucket lacks ([`Moving`]). Whatever is in neither must be the
//! same in both.

use super::{AuditFinding, Listed, MapRuns};
use crate::bucket_tree::{JournalChanges, TreeContents};
use crate::core_state::Core;
use crate::format::local_metadata::{Entry, MetadataFault, MetadataRead, Table, decode, get};
use crate::format::superblock::{Superblock, Volume};
use crate::state::entry_overlay::{Entries, EntryLookup};
use crate::state::extent_map::{Extent, ExtentMap, Target};
use crate::state::overlay::Frozen;
use crate::state::unpublished::RecoveryPoint;
use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use tombolo_base::{Pvbn, VolumeId};

/// What may differ between local metadata and the bucket's at one moment: what one of the two has not been told yet.
#[derive(Clone, Debug, Default)]
pub struct Moving {
    /// Nothing is known of what the bucket has, so nothing can be compared.
    pub is_all: bool,
    /// What is frozen is shared: the core is held up for a copy of the rest alone.
    frozen: Option<Arc<Frozen>>,
    point: Option<Arc<RecoveryPoint>>,
    /// Since what is frozen: what the checkpoint lacks, and what the point lacks.
    maps: [ExtentMap; 2],
    entries: [Entries; 2],
    counters: BTreeSet<Vec<u8>>,
    volumes: BTreeSet<VolumeId>,
    objects: BTreeSet<u64>,
    /// As they are now.
    current: BTreeMap<VolumeId, Volume>,
}

impl Moving {
    fn maps(&self) -> impl Iterator<Item = &ExtentMap> {
        let frozen = self.frozen.iter().map(|frozen| &frozen.map);
        let point = self.point.iter().map(|point| &point.map);
        self.maps.iter().chain(frozen).chain(point)
    }

    fn entries(&self) -> impl Iterator<Item = &Entries> {
        let frozen = self.frozen.iter().map(|frozen| &frozen.entries);
        let point = self.point.iter().map(|point| &point.entries);
        self.entries.iter().chain(frozen).chain(point)
    }

    fn has_entry(&self, key: &[u8]) -> bool {
        self.entries().any(|entries| entries.get(key) != EntryLookup::Stored)
    }

    fn has_counter(&self, key: &[u8]) -> bool {
        self.counters.contains(key) || self.entries().any(|entries| entries.counter(key).is_some())
    }

    fn has_object(&self, first: u64) -> bool {
        let is_frozen = self
            .frozen
            .as_ref()
            .is_some_and(|frozen| frozen.objects.contains_key(&first));
        let is_in_point = self
            .point
            .as_ref()
            .is_some_and(|point| point.objects.contains_key(&first));
        is_frozen || is_in_point || self.objects.contains(&first)
    }

    fn has_volume(&self, volume: VolumeId) -> bool {
        let is_in_point = self
            .point
            .as_ref()
            .is_some_and(|point| point.volumes.contains_key(&volume));
        is_in_point || self.volumes.contains(&volume)
    }

    /// The parts of a range that have not moved and are not in `besides`.
    fn settled(&self, besides: &ExtentMap, volume: VolumeId, first: u64, end: u64, take: &mut dyn FnMut(u64, u64)) {
        let maps = || self.maps().chain([besides]);
        let mut block = first;
        while block < end {
            if let Some(moved) = maps().find_map(|map| map.get(volume, block)) {
                block = moved.end();
                continue;
            }
            let next = maps().filter_map(|map| map.next_start(volume, block, end)).min();
            let next = next.unwrap_or(end);
            take(block, next);
            block = next;
        }
    }
}

impl Core {
    /// What has changed since the last checkpoint, or since the point that the bucket was told of last. Takes time with how much
    /// that is.
    pub fn moving(&self) -> Moving {
        let (overlay, unpublished) = (&self.overlay, &self.unpublished);
        let point = unpublished.frozen.as_ref().map(|frozen| frozen.point.clone());
        let is_point_whole = point.as_ref().is_some_and(|point| point.is_whole);
        Moving {
            is_all: !unpublished.is_on || unpublished.is_whole || is_point_whole,
            frozen: self.frozen.clone(),
            point,
            maps: [overlay.map.clone(), unpublished.map.clone()],
            entries: [overlay.entries.clone(), unpublished.entries.clone()],
            counters: unpublished.counters.clone(),
            volumes: unpublished.volumes.clone(),
            objects: overlay
                .objects
                .keys()
                .chain(unpublished.objects.keys())
                .copied()
                .collect(),
            current: self.volumes.clone().into_iter().collect(),
        }
    }
}

/// A comparison under way.
pub struct BucketAudit<'a, R: MetadataRead> {
    reader: &'a R,
    moving: &'a Moving,
    journal: &'a JournalChanges,
    find: &'a mut dyn FnMut(AuditFinding),
    maps: MapJoin<'a, R>,
    entries: TableJoin,
    counters: TableJoin,
    objects: TableJoin,
    /// Blocks and records of the bucket that were looked at.
    pub compared: u64,
}

type Audited<R> = Result<(), MetadataFault<<R as MetadataRead>::Error>>;

impl<'a, R: MetadataRead> BucketAudit<'a, R> {
    /// `moving` MUST be of the moment at which `reader` began to show local metadata, and at which the tree and the journal
    /// behind it were what the bucket has.
    pub fn new(
        reader: &'a R,
        moving: &'a Moving,
        journal: &'a JournalChanges,
        find: &'a mut dyn FnMut(AuditFinding),
    ) -> Self {
        Self {
            reader,
            moving,
            journal,
            find,
            maps: MapJoin::new(MapRuns::new(reader, VolumeId(0), 0)),
            entries: TableJoin::new(Table::Entries),
            counters: TableJoin::new(Table::Counters),
            objects: TableJoin::new(Table::Objects),
            compared: 0,
        }
    }

    /// The next part of the tree.
    ///
    /// # Errors
    /// When local metadata cannot be read.
    pub fn take(&mut self, part: &Frozen) -> Audited<R> {
        // In the order of local metadata.
        for run in part.map.iter() {
            self.compared += run.count;
            if !self.is_deleted(run.volume) {
                self.join_run(run)?;
            }
        }
        for (key, value) in part.entries.iter_from(&[]) {
            self.join_record(Table::Entries, key, value.as_deref().unwrap_or_default())?;
        }
        for (key, value) in part.entries.counters() {
            self.join_record(Table::Counters, key, &value.to_le_bytes())?;
        }
        for (first, descriptor) in &part.objects {
            self.join_record(Table::Objects, &first.to_be_bytes(), &descriptor.encode())?;
        }
        Ok(())
    }

    /// What local metadata has besides, and the journal. `None`: there is no tree.
    ///
    /// # Errors
    /// When local metadata cannot be read.
    pub fn finish(mut self, contents: Option<&TreeContents>) -> Result<u64, MetadataFault<R::Error>> {
        self.skip_runs(VolumeId(u64::MAX), u64::MAX)?;
        for table in [Table::Entries, Table::Counters, Table::Objects] {
            self.skip_records(table, None)?;
        }
        self.compare_journal()?;
        self.compare_volumes(contents)?;
        Ok(self.compared)
    }

    /// The journal says that it is gone, and with it what the tree maps.
    fn is_deleted(&self, volume: VolumeId) -> bool {
        matches!(self.journal.volumes.get(&volume), Some(None))
    }

    /// Local runs before a block, which the tree does not have.
    fn skip_runs(&mut self, volume: VolumeId, block: u64) -> Audited<R> {
        while let Some(run) = self.maps.peek()? {
            if (run.volume, run.first) >= (volume, block) {
                break;
            }
            let before = match run.volume == volume {
                true => run.count.min(block - run.first),
                false => run.count,
            };
            self.maps.consume(before);
            let run = Extent { count: before, ..run };
            self.tell_run(run, Target::Hole, &self.journal.map);
        }
        Ok(())
    }

    fn join_run(&mut self, bucket: Extent) -> Audited<R> {
        let mut bucket = bucket;
        self.skip_runs(bucket.volume, bucket.first)?;
        while bucket.count > 0 {
            let (local, count) = match self.maps.peek()? {
                Some(run) if run.volume == bucket.volume && run.first < bucket.end() => match run.first {
                    first if first == bucket.first => (run.target, run.count.min(bucket.count)),
                    first => (Target::Hole, first - bucket.first),
                },
                _ => (Target::Hole, bucket.count),
            };
            if local != Target::Hole {
                self.maps.consume(count);
            }
            if local != bucket.target {
                let local = Extent {
                    count,
                    target: local,
                    ..bucket
                };
                self.tell_run(local, bucket.target, &self.journal.map);
            }
            bucket.first += count;
            bucket.count -= count;
            bucket.target = bucket.target.plus(count);
        }
        Ok(())
    }

    /// The parts of a difference that are neither on their way nor in `besides`.
    fn tell_run(&mut self, local: Extent, bucket: Target, besides: &ExtentMap) {
        let find = &mut *self.find;
        self.moving
            .settled(besides, local.volume, local.first, local.end(), &mut |first, end| {
                let skipped = first - local.first;
                find(AuditFinding::Map {
                    local: Extent {
                        volume: local.volume,
                        first,
                        count: end - first,
                        target: local.target.plus(skipped),
                    },
                    bucket: bucket.plus(skipped),
                });
            });
    }

    fn table(&mut self, table: Table) -> &mut TableJoin {
        match table {
            Table::Counters => &mut self.counters,
            Table::Objects => &mut self.objects,
            _ => &mut self.entries,
        }
    }

    /// Local records before a key, or all that are left, which the tree does not have.
    fn skip_records(&mut self, table: Table, until: Option<&[u8]>) -> Audited<R> {
        let reader = self.reader;
        while let Some((key, _)) = self.table(table).peek(reader)? {
            if until.is_some_and(|until| key.as_slice() >= until) {
                break;
            }
            let key = key.clone();
            self.table(table).next = None;
            self.tell_record(table, &key, Listed::Locally)?;
        }
        Ok(())
    }

    fn join_record(&mut self, table: Table, key: &[u8], value: &[u8]) -> Audited<R> {
        self.compared += 1;
        self.skip_records(table, Some(key))?;
        let reader = self.reader;
        match self.table(table).peek(reader)? {
            Some((found, local)) if found == key => {
                let is_same = local == value;
                self.table(table).next = None;
                match is_same {
                    true => Ok(()),
                    false => self.tell_record(table, key, Listed::Differently),
                }
            }
            _ => self.tell_record(table, key, Listed::InBucket),
        }
    }

    /// Unless it is on its way or the journal has it anew.
    fn tell_record(&mut self, table: Table, key: &[u8], listed: Listed) -> Audited<R> {
        let (moving, journal) = (self.moving, self.journal);
        let is_expected = match table {
            Table::Counters => moving.has_counter(key) || journal.counters.contains_key(key),
            Table::Objects => {
                let first = super::number_of(table, key)?;
                moving.has_object(first) || journal.objects.contains_key(&first)
            }
            _ => moving.has_entry(key) || journal.entries.contains_key(key),
        };
        if !is_expected {
            self.tell(table, key, listed)?;
        }
        Ok(())
    }

    fn tell(&mut self, table: Table, key: &[u8], listed: Listed) -> Audited<R> {
        (self.find)(match table {
            Table::Objects => AuditFinding::Object {
                first: Pvbn(super::number_of(table, key)?),
                listed,
            },
            _ => AuditFinding::Record {
                table,
                key: key.to_vec(),
                listed,
            },
        });
        Ok(())
    }

    fn compare_journal(&mut self) -> Audited<R> {
        let journal = self.journal;
        for extent in journal.map.iter() {
            self.compared += if extent.target == Target::Hole { 0 } else { extent.count };
            self.compare_extent(extent)?;
        }
        for (key, value) in &journal.entries {
            if !self.moving.has_entry(key) {
                self.compare_record(Table::Entries, key, value.as_deref())?;
            }
        }
        for (key, value) in &journal.counters {
            if !self.moving.has_counter(key) {
                let value = (*value != 0).then(|| value.to_le_bytes());
                self.compare_record(Table::Counters, key, value.as_ref().map(|value| &value[..]))?;
            }
        }
        for (first, descriptor) in &journal.objects {
            if !self.moving.has_object(*first) {
                let value = descriptor.encode();
                self.compare_record(Table::Objects, &first.to_be_bytes(), Some(&value))?;
            }
        }
        Ok(())
    }

    /// What the journal maps a range to, against local metadata.
    fn compare_extent(&mut self, bucket: Extent) -> Audited<R> {
        let mut runs = MapRuns::new(self.reader, bucket.volume, bucket.first);
        let mut block = bucket.first;
        let none = ExtentMap::default();
        while block < bucket.end() {
            let run = runs.next()?;
            let run = run.filter(|run| run.volume == bucket.volume && run.first < bucket.end());
            let gap_end = run.map_or(bucket.end(), |run| run.first);
            if gap_end > block && bucket.target != Target::Hole {
                let gap = Extent {
                    volume: bucket.volume,
                    first: block,
                    count: gap_end - block,
                    target: Target::Hole,
                };
                self.tell_run(gap, bucket.target.plus(block - bucket.first), &none);
            }
            let Some(run) = run else { break };
            let count = run.count.min(bucket.end() - run.first);
            let expected = bucket.target.plus(run.first - bucket.first);
            if run.target != expected {
                self.tell_run(Extent { count, ..run }, expected, &none);
            }
            block = run.first + count;
        }
        Ok(())
    }

    fn compare_record(&mut self, table: Table, key: &[u8], bucket: Option<&[u8]>) -> Audited<R> {
        self.compared += 1;
        let local = get(self.reader, table, key)?;
        match (local.as_deref(), bucket) {
            (Some(local), Some(bucket)) if local != bucket => self.tell(table, key, Listed::Differently),
            (Some(_), None) => self.tell(table, key, Listed::Locally),
            (None, Some(_)) => self.tell(table, key, Listed::InBucket),
            _ => Ok(()),
        }
    }

    fn compare_volumes(&mut self, contents: Option<&TreeContents>) -> Audited<R> {
        let bytes = get(self.reader, Table::Super, &[])?.unwrap_or_default();
        let superblock = decode(Table::Super, &[], Superblock::decode(&bytes))?;
        let mut local: BTreeMap<VolumeId, Volume> = superblock
            .volumes
            .into_iter()
            .map(|volume| (volume.id, volume))
            .collect();
        let mut bucket = contents.map(|contents| contents.volumes.clone()).unwrap_or_default();
        for (id, volume) in &self.journal.volumes {
            match volume {
                Some(volume) => drop(bucket.insert(*id, volume.clone())),
                None => drop(bucket.remove(id)),
            }
        }
        let moving = self.moving;
        let numbers: BTreeSet<VolumeId> = local.keys().chain(bucket.keys()).copied().collect();
        for volume in numbers {
            let local = local.remove(&volume);
            // Changed since the checkpoint, or since the bucket was told.
            if moving.has_volume(volume) || moving.current.get(&volume) != local.as_ref() {
                continue;
            }
            let listed = match (&local, bucket.get(&volume)) {
                (Some(local), Some(bucket)) if local == bucket => continue,
                (Some(_), Some(_)) => Listed::Differently,
                (Some(_), None) => Listed::Locally,
                (None, _) => Listed::InBucket,
            };
            (self.find)(AuditFinding::Volume { volume, listed });
        }
        Ok(())
    }
}

/// The local runs that are left.
struct MapJoin<'r, R> {
    runs: MapRuns<'r, R>,
    next: Option<Extent>,
}

impl<'r, R: MetadataRead> MapJoin<'r, R> {
    fn new(runs: MapRuns<'r, R>) -> Self {
        Self { runs, next: None }
    }

    fn peek(&mut self) -> Result<Option<Extent>, MetadataFault<R::Error>> {
        if self.next.is_none() {
            self.next = self.runs.next()?;
        }
        Ok(self.next)
    }

    /// The first blocks of the run that was looked at.
    fn consume(&mut self, count: u64) {
        self.next = self.next.take().filter(|run| run.count > count).map(|run| Extent {
            first: run.first + count,
            count: run.count - count,
            target: run.target.plus(count),
            ..run
        });
    }
}

/// The local records that are left of a table.
struct TableJoin {
    table: Table,
    from: Vec<u8>,
    next: Option<Entry>,
}

impl TableJoin {
    fn new(table: Table) -> Self {
        Self {
            table,
            from: Vec::new(),
            next: None,
        }
    }

    fn peek<R: MetadataRead>(&mut self, reader: &R) -> Result<Option<&Entry>, MetadataFault<R::Error>> {
        if self.next.is_none() {
            self.next = reader.ceiling(self.table, &self.from).map_err(MetadataFault::Store)?;
            if let Some((key, _)) = &self.next {
                self.from.clone_from(key);
                self.from.push(0);
            }
        }
        Ok(self.next.as_ref())
    }
}

#[cfg(test)]
impl Moving {
    pub(super) fn of_volumes(volumes: impl IntoIterator<Item = Volume>) -> Self {
        Self {
            current: volumes.into_iter().map(|volume| (volume.id, volume)).collect(),
            ..Self::default()
        }
    }

    pub(super) fn take(&mut self, item: &crate::format::bucket_journal::Item) {
        use crate::format::bucket_journal::Item;
        match item {
            Item::Volume(volume) => drop(self.volumes.insert(volume.id)),
            Item::NoVolume(volume) => drop(self.volumes.insert(*volume)),
            Item::Run(extent) => self.maps[0].insert(*extent),
            Item::Object(descriptor) => drop(self.objects.insert(descriptor.first_pvbn().0)),
            Item::Entry(key, _) | Item::NoEntry(key) => self.entries[0].set(key, None),
            Item::Counter(key, _) => drop(self.counters.insert(key.clone())),
        }
    }
}
