//! What the bucket does not have yet: changes since the last recovery point that it was told of, the last value of each key.
//!
//! A *recovery point* is a position in the journal. The bucket holds one whole, and then the next: what is mapped, which
//! entries and volumes there are, as they stood at that position. On its way there a point is *frozen*: what is written after
//! it must not be in it, and what it maps must be in the store, even if that was overwritten meanwhile.

use crate::event::{Answer, Token};
use crate::format::record::{LinkRun, Lsn, Record, VOLUME_BLOCKS_MAX};
use crate::format::superblock::{Totals, Volume};
use crate::state::dirty::DirtyBlock;
use crate::state::entry_overlay::Entries;
use crate::state::extent_map::{Extent, ExtentMap, Target};
use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    vec::Vec,
};
use tombolo_base::{EntryChange, Instant, ObjectDescriptor, Pvbn, VolumeId, WallTime};

/// Blocks of a hole whose extents are removed at once.
const REMOVED_AT_ONCE_MAX: u64 = 4096;

/// Everything that changed between two recovery points, and what holds of all before: what the bucket is told of one.
#[derive(Clone, Debug)]
pub struct RecoveryPoint {
    /// The position in this state directory's journal.
    pub lsn: Lsn,
    /// When it was frozen, by the machine's clock: the bucket has all that was acknowledged before.
    pub time: WallTime,
    /// No block of it has a PVBN from here on.
    pub next_pvbn: Pvbn,
    /// No volume of it has a number from here on.
    pub next_volume: u64,
    /// As they stood then.
    pub totals: Totals,
    /// It holds everything, and what the bucket was told before does not count any more.
    pub is_whole: bool,
    /// What blocks map to, where that has changed.
    pub map: ExtentMap,
    /// Changed entries, and the new values of changed counters.
    pub entries: Entries,
    /// Volumes that were made or resized, and `None` for those that were deleted.
    pub volumes: BTreeMap<VolumeId, Option<Volume>>,
    /// Objects that the store has and the bucket was not told of, by their first PVBN.
    pub objects: BTreeMap<u64, Arc<ObjectDescriptor>>,
}

/// How far the point that is on its way has come.
#[derive(Clone, Debug)]
pub enum Stage {
    /// Blocks of it are not in the store.
    Uploading,
    /// They are; the records that say so end here and are not all durable.
    Confirming(Lsn),
    /// The bucket is being told.
    Publishing {
        /// It failed; not again before this.
        retry_at: Option<Instant>,
        failures: u32,
    },
}

/// A point on its way to the bucket.
#[derive(Clone, Debug)]
pub struct FrozenPoint {
    pub point: Arc<RecoveryPoint>,
    pub stage: Stage,
    /// When the oldest change in it was made.
    pub since: Instant,
}

/// A request that is answered when the bucket has everything before a position.
#[derive(Debug)]
pub struct AwaitingPoint {
    pub end: Lsn,
    pub token: Token,
    pub answer: Answer,
    pub since: Instant,
}

/// Changes since the point that was frozen last.
#[derive(Debug, Default)]
pub struct Unpublished {
    /// Off: the bucket is told of no points, and nothing is kept here.
    pub is_on: bool,
    /// The next point has to hold everything.
    pub is_whole: bool,
    pub map: ExtentMap,
    pub entries: Entries,
    pub counters: BTreeSet<Vec<u8>>,
    pub volumes: BTreeSet<VolumeId>,
    pub objects: BTreeMap<u64, Arc<ObjectDescriptor>>,
    /// When the oldest of these was made; `None`: there are none.
    pub since: Option<Instant>,
    pub frozen: Option<FrozenPoint>,
    /// The bucket holds everything before this position.
    pub published: Lsn,
    /// Of the point that it holds.
    pub published_time: Option<WallTime>,
    /// A point is wanted at once.
    pub is_wanted: bool,
    /// Flushes that the bucket is to cover, in the journal's order: while there are any, points follow each other without a pause.
    pub waiting: VecDeque<AwaitingPoint>,
    /// When the store last took an object of the frozen point, or a point.
    pub moved_at: Instant,
}

/// What the bucket lacks, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnpublishedChanges {
    /// It is not known what the bucket has: everything may be missing there.
    pub is_all: bool,
    /// When the oldest of these changes was made.
    pub since: Option<Instant>,
    /// What blocks map to now.
    pub runs: Vec<Extent>,
    /// Keys of entries, with whether there is an entry now.
    pub entries: Vec<(Vec<u8>, bool)>,
    /// Volumes that were made, resized or deleted.
    pub volumes: Vec<VolumeId>,
}

impl Unpublished {
    /// With the point that is on its way.
    pub fn changes(&self) -> UnpublishedChanges {
        let mut changes = UnpublishedChanges {
            is_all: self.is_whole,
            since: self.oldest(),
            ..UnpublishedChanges::default()
        };
        let (mut map, mut entries) = (ExtentMap::default(), BTreeMap::new());
        let mut volumes = BTreeSet::new();
        let frozen = self.frozen.as_ref().map(|frozen| &frozen.point);
        let older = frozen.map(|point| (&point.map, &point.entries));
        for (changed, of_entries) in older.into_iter().chain([(&self.map, &self.entries)]) {
            changed.iter().for_each(|extent| map.insert(extent));
            let found = of_entries.iter_from(&[]);
            entries.extend(found.map(|(key, value)| (key.clone(), value.is_some())));
        }
        volumes.extend(frozen.iter().flat_map(|point| point.volumes.keys()));
        volumes.extend(&self.volumes);
        changes.is_all |= frozen.is_some_and(|point| point.is_whole);
        changes.runs = map.iter().collect();
        changes.entries = entries.into_iter().collect();
        changes.volumes = volumes.into_iter().collect();
        changes
    }

    /// Takes a record in that was made at `now`, in the journal's order.
    pub fn note(&mut self, now: Instant, record: &Record) {
        if !self.is_on {
            return;
        }
        match record {
            Record::Write {
                volume,
                first,
                pvbn,
                sums,
                ..
            } => self.map(*volume, *first, sums.len() as u64, Target::At(*pvbn)),
            Record::Hole { volume, first, count } => self.unmap(*volume, *first, *count),
            Record::Link(LinkRun {
                volume,
                first,
                count,
                pvbn,
            }) => self.map(*volume, *first, *count, Target::At(*pvbn)),
            Record::Redirect {
                volume,
                first,
                count,
                from,
                to,
            } => {
                for index in 0..u64::from(*count) {
                    self.redirect(*volume, first + index, from.plus(index), to.plus(index));
                }
            }
            Record::Object(descriptor) => {
                let descriptor = Arc::new(descriptor.clone());
                self.objects.insert(descriptor.first_pvbn().0, descriptor);
                // Nobody misses an object that nothing refers to.
                return;
            }
            Record::Create { volume, .. } | Record::Resize { volume, .. } => {
                self.volumes.insert(*volume);
            }
            Record::Delete { volume } => {
                self.volumes.insert(*volume);
                self.unmap(*volume, 0, VOLUME_BLOCKS_MAX);
            }
            Record::Entries(changes) => changes.iter().for_each(|change| self.note_entry(change)),
        }
        self.since.get_or_insert(now);
    }

    fn note_entry(&mut self, change: &EntryChange) {
        match change {
            EntryChange::Put { key, value } => self.entries.set(key, Some(value.as_slice().into())),
            EntryChange::Delete { key } => self.entries.set(key, None),
            EntryChange::Add { key, .. } => {
                self.counters.insert(key.clone());
            }
        }
    }

    fn map(&mut self, volume: VolumeId, first: u64, count: u64, target: Target) {
        self.map.insert(Extent {
            volume,
            first,
            count,
            target,
        });
    }

    /// A long range may hold very many extents: they are swept later.
    fn unmap(&mut self, volume: VolumeId, first: u64, count: u64) {
        match count <= REMOVED_AT_ONCE_MAX {
            true => self.map(volume, first, count, Target::Hole),
            false => self.map.cover(volume, first, first + count, Some(Target::Hole)),
        }
    }

    /// The block maps to `to` from now on, which is what `from` is. A point that is still open is told so too: the store will
    /// never have `from`.
    fn redirect(&mut self, volume: VolumeId, block: u64, from: Pvbn, to: Pvbn) {
        if !self.redirect_frozen(volume, block, from, to) {
            self.map(volume, block, 1, Target::At(to));
        }
    }

    /// Whether the point that is on its way maps the block to `from`; then it maps it to `to`.
    pub fn redirect_frozen(&mut self, volume: VolumeId, block: u64, from: Pvbn, to: Pvbn) -> bool {
        let Some(FrozenPoint {
            point,
            stage: Stage::Uploading,
            ..
        }) = &mut self.frozen
        else {
            return false;
        };
        let is_there = point
            .map
            .get(volume, block)
            .is_some_and(|extent| extent.target == Target::At(from));
        if is_there {
            Arc::make_mut(point).map.insert(Extent {
                volume,
                first: block,
                count: 1,
                target: Target::At(to),
            });
        }
        is_there
    }

    /// Whether the point that is on its way maps the block to this PVBN, so that the store has to get it.
    pub fn needs(&self, block: &DirtyBlock) -> bool {
        let Some(FrozenPoint {
            point,
            stage: Stage::Uploading,
            ..
        }) = &self.frozen
        else {
            return false;
        };
        let is_older = block.pvbn < point.next_pvbn;
        is_older
            && point
                .map
                .get(block.volume, block.block)
                .is_some_and(|extent| extent.target == Target::At(block.pvbn))
    }

    /// The store has taken an object.
    pub fn on_uploaded(&mut self, now: Instant) {
        let is_uploading = |frozen: &FrozenPoint| matches!(frozen.stage, Stage::Uploading);
        if self.frozen.as_ref().is_some_and(is_uploading) {
            self.moved_at = now;
        }
    }

    /// Gives the point up that is on its way: what it would have held is lost. The next one holds its changes too.
    pub fn thaw(&mut self) {
        let Some(frozen) = self.frozen.take() else { return };
        let older = Arc::unwrap_or_clone(frozen.point);
        let newer = core::mem::replace(&mut self.map, older.map);
        for extent in newer.iter() {
            self.map.insert(extent);
        }
        let newer = core::mem::replace(&mut self.entries, older.entries);
        self.entries.append(newer);
        self.volumes.extend(older.volumes.into_keys());
        for (key, _) in self.entries.counters() {
            self.counters.insert(key.clone());
        }
        self.objects.extend(older.objects);
        self.is_whole |= older.is_whole;
        self.since = Some(frozen.since);
    }

    /// Forgets what was noted.
    pub fn clear(&mut self) {
        *self = Self {
            is_on: self.is_on,
            ..Self::default()
        };
    }

    /// The journal from here on says what the next point has to hold, whenever the gateway is started again.
    pub fn needed_from(&self) -> Lsn {
        match &self.frozen {
            _ if !self.is_on || self.is_whole => Lsn(u64::MAX),
            Some(frozen) if frozen.point.is_whole => frozen.point.lsn,
            _ => self.published,
        }
    }

    /// When the oldest change was made that the bucket does not have.
    pub fn oldest(&self) -> Option<Instant> {
        self.frozen.as_ref().map(|frozen| frozen.since).or(self.since)
    }

    /// When the first of the waiting flushes has waited in vain: the store has taken nothing meanwhile of what they wait for.
    pub fn waiting_until(&self, stall_timeout_ms: u64) -> Option<Instant> {
        let first = self.waiting.front()?;
        Some(first.since.max(self.moved_at).plus_millis(stall_timeout_ms))
    }

    /// Extents and bytes of entries, those of the frozen point included: the measure of their memory.
    pub fn size(&self) -> (usize, usize) {
        let frozen = self.frozen.as_ref().map(|frozen| &frozen.point);
        let (extents, bytes) = frozen.map_or((0, 0), |point| (point.map.len(), point.entries.bytes()));
        (self.map.len() + extents, self.entries.bytes() + bytes)
    }
}
