//! The metadata in the bucket: its journal and its root, who may put them, and what a recovery from them alone has to find.
//!
//! After every root a state directory is made of what the bucket holds, with the product's own code, and must be what the
//! model was at the root's position: blocks, entries, counters, volumes, reference counts. The local disk may be lost at any
//! moment, and the next life begins with such a state directory.

use crate::faults::checks::references;
use crate::faults::contents::ZERO;
use crate::faults::disk::Disk;
use crate::faults::index::{FingerprintIndex, RunFiles};
use crate::faults::metadata::{BucketNodes, Metadata, NodeObjects};
use crate::faults::operation::Operation;
use crate::faults::scenario::Canary;
use crate::faults::state::State;
use crate::faults::world::{Life, World};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use tombolo_base::{KeyId, ObjectDescriptor, Pvbn, VolumeId};
use tombolo_cloud_driver::encryption::KeyRing;
use tombolo_cloud_driver::metadata_object::{
    MetadataKind, decode_metadata, encode_metadata, journal_sequence, object_key_id,
};
use tombolo_cloud_driver::node_object::NodeObject;
use tombolo_core::backing::read_head;
use tombolo_core::bucket_journal::{PART_BYTES_MAX, Part, Parts, Salt};
use tombolo_core::bucket_tree::{BucketTree, FoldBase, JournalChanges, all_nodes, fold, read_tree};
use tombolo_core::cache_header::CacheHeader;
use tombolo_core::local_metadata::Table;
use tombolo_core::publisher::{Journaled, KnownRoot, NotTheWriter, Publisher, RootWriter};
use tombolo_core::recovery::{Bases, LocalDisk as _, PublishedPoint, Rebuild, Remains, load_superblock};
use tombolo_core::root::{ROOT_BYTES_MAX, ROOT_NAME, Root};
use tombolo_core::{
    Event, ExtentMap, Frozen, Lsn, MapPage, Merge, PAGE_ENTRIES, PublishFailure, RecoveryPoint, StoreFailure,
    Superblock, allocated_bytes,
};
use tombolo_metadata_tree::{Nodes, Pointer, Shape, UsageTable, Written};

/// How long a root may be on its way.
const LATE_ROOT_MICROS_MAX: u64 = 2_000_000;
/// Of the recovery points, those after which the journal is folded into the tree.
const FOLD_PERMILLE: u64 = 400;
/// ... and those of which the root is kept.
const COPY_PERMILLE: u64 = 400;
const ROOTS_KEPT: usize = 2;
/// Between two portions of what a recovery has left in the bucket.
const LOADING_MICROS_MAX: u64 = 3_000_000;
/// How long it may take to remove what is not needed.
const LATE_REMOVAL_MICROS_MAX: u64 = 2_000_000;
const LEASE_MS: u32 = 60_000;

/// A root as it is put: the object, and the root that it takes the place of.
#[derive(Clone, Debug)]
pub(crate) struct RootPut {
    pub(crate) known: KnownRoot,
    object: Vec<u8>,
    /// Of the object that must be there; it changes with each put.
    tag: u64,
}

/// What the bucket holds besides packs.
#[derive(Debug, Default)]
pub(crate) struct BucketObjects {
    journal: BTreeMap<String, Vec<u8>>,
    /// Objects of the tree's nodes.
    nodes: NodeObjects,
    root: Option<(KnownRoot, Vec<u8>)>,
    /// Copies of earlier roots, by sequence.
    copies: BTreeMap<u64, Root>,
    /// Grows with every root that is put.
    tag: u64,
}

/// What a gateway knows of it.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub objects: BucketObjects,
    publisher: Publisher,
    /// Of the root that is there, as far as the gateway knows.
    known_tag: Option<u64>,
    /// The local copy of the publisher, which is durable when it has been written.
    kept: Vec<u8>,
    identity: u64,
    roots: u64,
    /// The local journal holds everything since the root, as it does unless recovery points were off meanwhile.
    journal_is_kept: bool,
    /// Local metadata was made of what the bucket holds, which does not say which blocks were lost before they were uploaded.
    was_read: bool,
}

/// What no root needs, as it was when a root was put. It is removed some time later.
#[derive(Debug)]
pub(crate) struct Unneeded {
    nodes: BTreeSet<u64>,
    /// Up to this one.
    journal_last: u64,
    copies: BTreeSet<u64>,
}

/// What local metadata is made of the bucket for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Check,
    /// Another state directory takes the bucket over.
    TakeOver {
        identity: u64,
        epoch: u64,
    },
    /// The state directory that has put the root goes on from there, in this segment.
    GoOn {
        segment: u64,
    },
}

fn writer(identity: u64) -> RootWriter {
    RootWriter {
        identity,
        name: format!("gateway {identity:x}"),
        lease_ms: LEASE_MS,
        roots_kept: ROOTS_KEPT,
    }
}

impl Bucket {
    pub fn new(identity: u64) -> Self {
        let publisher = Publisher::new(writer(identity), None, Vec::new());
        Self {
            objects: BucketObjects::default(),
            kept: publisher.encode(),
            publisher,
            known_tag: None,
            identity,
            roots: 0,
            journal_is_kept: false,
            was_read: false,
        }
    }

    /// As the gateway knows it that is about to be taken over from.
    pub fn left_behind(&self) -> Self {
        Self {
            objects: BucketObjects::default(),
            publisher: self.publisher.clone(),
            kept: self.kept.clone(),
            ..*self
        }
    }

    pub fn published(&self) -> Option<PublishedPoint> {
        self.publisher.published()
    }

    /// What a start of the gateway finds: the local copy, and the root if the store answers.
    pub fn begin_life(&mut self, store_answers: bool) {
        self.publisher = Publisher::decode(&self.kept, writer(self.identity)).expect("the copy is whole");
        self.known_tag = None;
        if store_answers {
            self.find_own_root().expect("nobody else writes to this bucket");
        }
    }

    /// A look at the root that is there.
    fn find_own_root(&mut self) -> Result<(), NotTheWriter> {
        let found = self.objects.root.as_ref().map(|(known, _)| known.salt);
        self.publisher.found(found)?;
        self.known_tag = Some(self.objects.tag);
        self.kept = self.publisher.encode();
        Ok(())
    }

    pub fn roots(&self) -> u64 {
        self.roots
    }

    /// Whether root and local journal together hold everything.
    pub fn goes_on_in_journal(&self) -> bool {
        self.roots > 0 && self.journal_is_kept
    }

    /// Whether a block that was lost before it was uploaded may look like one that is there, until it is read.
    pub fn hides_losses(&self) -> bool {
        self.was_read
    }

    /// In a life without recovery points the journal is not kept for them.
    pub fn points_are_off(&mut self) {
        self.journal_is_kept = false;
    }
}

fn failure(reason: &str) -> PublishFailure {
    let (retryable, reason) = (true, reason.to_string());
    PublishFailure::Retry(StoreFailure { retryable, reason })
}

impl World {
    pub(crate) fn publish(&mut self, point: &Arc<RecoveryPoint>) {
        let result = self.put_point(point);
        if result.is_err() {
            self.life.store_faults += 1;
        }
        self.step(Event::Published { result });
        self.perhaps_crash_soon();
    }

    fn put_point(&mut self, point: &RecoveryPoint) -> Result<(), PublishFailure> {
        if self.is_fault(self.scenario.faults.put_failure) || self.now < self.store.outage_until {
            return Err(failure("503 Slow Down"));
        }
        // A gateway that knows which root is there need not look.
        if self.bucket.known_tag.is_none() || self.prng.chance(500) {
            self.look_at_root()?;
        }
        let root = self.journal_and_root(point, u64::MAX);
        let root = root.ok_or_else(|| failure("connection reset by peer"))?;
        if self.is_fault(self.scenario.faults.put_failure) {
            self.put_root_later(root);
            return Err(failure("timeout"));
        }
        let arrived = self.put_root(root);
        if self.is_fault(self.scenario.faults.put_reply_lost) {
            self.bucket.known_tag = None;
            return Err(failure("connection reset by peer"));
        }
        self.look_at_root()?;
        if !arrived {
            return Err(failure("another root of this gateway's came before"));
        }
        self.bucket.journal_is_kept = true;
        if self.prng.chance(FOLD_PERMILLE) {
            self.fold();
        }
        Ok(())
    }

    /// Whether it is still this gateway's.
    pub(crate) fn look_at_root(&mut self) -> Result<(), PublishFailure> {
        let found = self.bucket.find_own_root();
        found.map_err(|error| {
            self.learn_of_successor();
            match self.scenario.canary {
                Some(Canary::GoOnWhenFenced) => failure("another root is there"),
                _ => PublishFailure::Fenced(error.to_string()),
            }
        })
    }

    /// The journal goes into the tree, unless something goes wrong; then another time.
    fn fold(&mut self) {
        if self.look_at_root().is_err() {
            return;
        }
        let root = self.bucket.publisher.current().expect("a root was put").root.clone();
        if root.journal_first == 0 {
            return;
        }
        let mut changes = JournalChanges::default();
        for (part, _) in self.parts_of(&root) {
            changes.lay(part);
        }
        let tree = BucketTree::decode(&root.tree).expect("a tree");
        // Small ones, so that nodes die.
        let shape = Shape {
            leaf_bytes: 64 + self.prng.below(400) as usize,
            fanout: 2 + self.prng.below(4) as usize,
            segments_max: self.prng.below(3) as u8,
            ..Shape::default()
        };
        let (number, mut salt) = (self.prng.next_u64(), [0; 32]);
        self.prng.fill(&mut salt);
        let mut nodes = NodesBeingPut {
            bucket: self.nodes(),
            open: NodeObject::new(number, salt, self.store.ring()),
        };
        let base = FoldBase {
            usage: usage_of(&mut nodes.bucket, &root),
            usage_at: root.usage,
            tree,
            next_root: root.sequence + 1,
            shape,
        };
        let folded = fold(&mut nodes, base, &changes).expect("the tree is whole");
        let object = nodes.open.finish();
        if self.is_fault(self.scenario.faults.put_failure) {
            return;
        }
        if self.scenario.canary != Some(Canary::RootBeforeNodes) {
            self.nodes().objects().insert(number, object);
        }
        let random = self.prng.next_u64();
        let put = self.bucket.publisher.folded(&folded, random);
        let put = self.root_put(put);
        match self.prng.below(4) {
            0 if !self.is_calm => {}
            1 if !self.is_calm => self.put_root_later(put),
            _ => {
                let root = put.known.root.clone();
                let has_arrived = self.put_root(put);
                if self.look_at_root().is_err() {
                    return;
                }
                if has_arrived && self.prng.chance(COPY_PERMILLE) {
                    self.bucket.objects.copies.insert(root.sequence, root);
                    self.bucket.publisher.copied();
                }
                self.find_unneeded();
            }
        }
    }

    /// What no root needs any more goes, and what no root has ever had; but nothing as long as local metadata lacks some of it.
    fn find_unneeded(&mut self) {
        if !self.metadata.is_whole() && self.scenario.canary != Some(Canary::RemoveNodesBehind) {
            return;
        }
        let root = self.bucket.publisher.current().expect("a root was put").root.clone();
        let kept = match self.scenario.canary {
            Some(Canary::RemoveKeptNodes) => Vec::new(),
            _ => self.bucket.publisher.kept(),
        };
        let mut bucket_nodes = self.nodes();
        let usage = usage_of(&mut bucket_nodes, &root);
        let mut nodes: BTreeSet<u64> = usage.unused(&kept).map(|(object, _)| object).collect();
        if self.bucket.publisher.attempts().is_empty() && usage.is_complete() {
            let known: BTreeSet<u64> = usage.objects().collect();
            let there = bucket_nodes.objects();
            nodes.extend(there.keys().filter(|object| !known.contains(object)));
        }
        let kept = self.bucket.publisher.kept();
        let copies = self.bucket.objects.copies.keys();
        let is_given_up = |sequence: &&u64| **sequence <= root.sequence && !kept.contains(sequence);
        let unneeded = Unneeded {
            nodes,
            journal_last: if root.journal_first == 0 { root.journal_last } else { 0 },
            copies: copies.filter(is_given_up).copied().collect(),
        };
        if self.prng.chance(500) {
            let micros = self.prng.below(LATE_REMOVAL_MICROS_MAX);
            return self.schedule(micros, Operation::RemoveUnneeded(unneeded));
        }
        self.remove_unneeded(&unneeded);
        self.check_nodes(&root, true);
    }

    pub(crate) fn remove_unneeded(&mut self, unneeded: &Unneeded) {
        let objects = &mut self.bucket.objects;
        let mut nodes = objects.nodes.lock().expect("nobody panics with it");
        nodes.retain(|object, _| !unneeded.nodes.contains(object));
        let is_folded = |name: &str| journal_sequence(name).is_some_and(|found| found <= unneeded.journal_last);
        objects.journal.retain(|name, _| !is_folded(name));
        objects.copies.retain(|sequence, _| !unneeded.copies.contains(sequence));
    }

    /// What was to be removed some time ago: nothing of it is needed now, whoever the writer is.
    pub(crate) fn remove_late(&mut self, unneeded: &Unneeded) {
        self.say(|| format!("a removal of some time ago: {unneeded:?}"));
        self.remove_unneeded(unneeded);
        let root = self.bucket.objects.root.as_ref().map(|(known, _)| known.root.clone());
        let root = root.expect("there was one then");
        self.check_nodes(&root, false);
        self.parts_of(&root);
    }

    /// The bucket has the nodes of all roots that it keeps, and, right after all else was removed, no object without any.
    fn check_nodes(&self, root: &Root, is_exact: bool) {
        let mut nodes = self.nodes();
        let mut needed = BTreeSet::new();
        let kept = root
            .kept
            .iter()
            .map(|sequence| self.bucket.objects.copies.get(sequence).expect("a copy of a kept root"));
        for root in kept.chain([root]) {
            let tree = BucketTree::decode(&root.tree).expect("a tree");
            let read = read_tree(&mut nodes, &tree, &mut |_| Ok::<(), Infallible>(()));
            read.unwrap_or_else(|error| panic!("root {} cannot be read: {error}", root.sequence));
            let pointers = all_nodes(&mut nodes, &tree).expect("it was read");
            needed.extend(pointers.iter().chain(&root.usage).map(|pointer| pointer.object));
        }
        let there: BTreeSet<u64> = nodes.objects().keys().copied().collect();
        let missing: Vec<&u64> = needed.difference(&there).collect();
        assert!(
            missing.is_empty(),
            "objects of nodes that a root needs are gone: {missing:?}"
        );
        if is_exact && self.bucket.publisher.attempts().is_empty() && self.bucket.publisher.kept() == root.kept {
            assert_eq!(there, needed, "objects of nodes, and those that a root needs");
        }
    }

    pub(crate) fn nodes(&self) -> BucketNodes {
        BucketNodes {
            objects: self.bucket.objects.nodes.clone(),
            ring: Arc::new(self.store.ring().clone()),
            answers: None,
        }
    }

    /// Puts the parts of the point, at the most so many, and makes the root that is to follow, of which the local copy tells
    /// then. `None`: not all parts are there.
    fn journal_and_root(&mut self, point: &RecoveryPoint, parts_max: u64) -> Option<RootPut> {
        let (first, mut salt) = self.bucket.publisher.next_journal();
        let (mut next, mut bytes) = (first, 0);
        let maimed = self.without_a_change(point);
        let mut parts = Parts::new(maimed.as_ref().unwrap_or(point));
        while let Some(part) = parts.next(next, self.bucket.publisher.epoch(), salt) {
            if next - first >= parts_max || self.is_fault(self.scenario.faults.put_failure / 4) {
                return None;
            }
            let object = encode_metadata(MetadataKind::Journal(next), &part, self.ring());
            self.check_encrypted(MetadataKind::Journal(next), &object.bytes);
            (bytes, salt) = (bytes + object.bytes.len() as u64, Salt(object.salt));
            if self.scenario.canary != Some(Canary::RootBeforeJournal) {
                let before = self
                    .bucket
                    .objects
                    .journal
                    .insert(object.name.clone(), object.bytes.clone());
                assert!(
                    before.is_none_or(|before| before == object.bytes),
                    "{} has two contents",
                    object.name
                );
            }
            next += 1;
        }
        let journaled = Journaled {
            first,
            last: next - 1,
            salt,
            bytes,
        };
        let random = self.prng.next_u64();
        let root = self.bucket.publisher.root_of(point, &journaled, random);
        Some(self.root_put(root))
    }

    fn root_put(&mut self, root: Root) -> RootPut {
        let object = encode_metadata(MetadataKind::Root, &root.encode(), self.ring());
        self.check_encrypted(MetadataKind::Root, &object.bytes);
        let known = KnownRoot {
            root,
            salt: Salt(object.salt),
        };
        self.bucket.publisher.attempt(known.clone());
        self.bucket.kept = self.bucket.publisher.encode();
        RootPut {
            known,
            object: object.bytes,
            tag: self.bucket.known_tag.unwrap_or(self.bucket.objects.tag),
        }
    }

    fn ring(&self) -> &KeyRing {
        self.store.ring()
    }

    fn check_encrypted(&self, kind: MetadataKind, object: &[u8]) {
        let key = object_key_id(kind, object).expect("an object of its kind");
        assert_eq!(key == KeyId::NONE, !self.store.is_encrypted(), "{kind:?} is in clear");
    }

    /// The point without what it maps.
    fn without_a_change(&self, point: &RecoveryPoint) -> Option<RecoveryPoint> {
        if self.scenario.canary != Some(Canary::OmitChange) {
            return None;
        }
        (point.map.iter().next().is_some()).then(|| RecoveryPoint {
            map: ExtentMap::default(),
            ..point.clone()
        })
    }

    pub(crate) fn put_root_later(&mut self, root: RootPut) {
        let micros = self.prng.below(LATE_ROOT_MICROS_MAX);
        self.schedule(micros, Operation::LateRoot(Box::new(root)));
    }

    /// A conditional PUT. False: the root that it was to take the place of is not there any more.
    pub(crate) fn put_root(&mut self, put: RootPut) -> bool {
        if put.tag != self.bucket.objects.tag && self.scenario.canary != Some(Canary::StaleRoot) {
            return false;
        }
        let root = &put.known.root;
        if let Some((before, _)) = &self.bucket.objects.root {
            assert!(before.root.epoch <= root.epoch, "a root of an epoch that is over");
            assert_eq!(before.salt, root.before, "roots follow each other");
        }
        self.say(|| format!("root {} of epoch {}: LSN {}", root.sequence, root.epoch, root.lsn));
        let (lsn, is_own) = (root.lsn, root.identity == self.bucket.identity);
        self.bucket.objects.tag += 1;
        self.bucket.roots += 1;
        self.bucket.objects.root = Some((put.known, put.object));
        assert!(is_own, "a root of a state directory that is lost");
        self.model.on_published(lsn);
        self.check_root();
        true
    }

    /// The gateway died while it told the bucket of a point.
    pub(crate) fn interrupt_publish(&mut self, point: &RecoveryPoint) {
        if self.now < self.store.outage_until || self.prng.chance(250) {
            return;
        }
        if self.look_at_root().is_err() {
            return;
        }
        let parts_max = if self.prng.chance(700) {
            u64::MAX
        } else {
            self.prng.below(3)
        };
        match self.journal_and_root(point, parts_max) {
            Some(root) if self.prng.chance(500) => drop(self.put_root(root)),
            Some(root) if self.prng.chance(500) => self.put_root_later(root),
            _ => {}
        }
    }

    /// Local metadata made of what the bucket holds.
    fn rebuilt(&self, purpose: Purpose) -> Metadata {
        let (known, object) = self.bucket.objects.root.as_ref().expect("there is a root");
        let read = decode_metadata(MetadataKind::Root, ROOT_NAME, object, ROOT_BYTES_MAX, self.ring());
        let (salt, contents) = read.expect("the root can be read");
        assert_eq!(Salt(salt), known.salt);
        let root = Root::decode(&contents).expect("the root is whole");
        assert_eq!(root, known.root);
        let slot_count = self.scenario.config.slot_count;
        let mut rebuild = match purpose {
            Purpose::Check => Rebuild::new(root.clone(), 1, slot_count),
            Purpose::TakeOver { identity, .. } => Rebuild::new(root.clone(), identity, slot_count),
            Purpose::GoOn { segment } => Rebuild::again(root.clone(), slot_count, segment),
        };
        let superblock = rebuild.superblock();
        let mut metadata = Metadata::first(&superblock);
        let tree = BucketTree::decode(&root.tree).expect("a tree");
        let mut nodes = self.nodes();
        if let (Purpose::TakeOver { epoch, .. }, 0) = (purpose, root.journal_first) {
            let head = read_head(&mut nodes, &tree);
            let head = head.unwrap_or_else(|error| panic!("the tree cannot be read: {error}"));
            lay(
                &mut metadata,
                Frozen {
                    superblock,
                    ..head.counters
                },
            );
            lay(&mut metadata, rebuild.lay_tree(head.contents));
            lay(&mut metadata, rebuild.finish(epoch, None).expect("there are no parts"));
            metadata.lack(head.backing, nodes);
            return metadata;
        }
        let contents = read_tree(&mut nodes, &tree, &mut |frozen| {
            let superblock = superblock.clone();
            lay(&mut metadata, Frozen { superblock, ..frozen });
            Ok::<(), Infallible>(())
        });
        let contents = contents.unwrap_or_else(|error| panic!("the tree cannot be read: {error}"));
        lay(&mut metadata, rebuild.lay_tree(contents));
        for (part, salt) in self.parts_of(&root) {
            lay(&mut metadata, rebuild.lay(part, salt).expect("parts follow each other"));
        }
        let epoch = match purpose {
            Purpose::Check => return metadata,
            Purpose::TakeOver { epoch, .. } => epoch,
            Purpose::GoOn { .. } => root.epoch,
        };
        lay(&mut metadata, rebuild.finish(epoch, None).expect("all parts are there"));
        metadata
    }

    /// For the state directory that has put the root, which goes on in this segment.
    pub(crate) fn made_again(&self, segment: u64) -> Metadata {
        self.rebuilt(Purpose::GoOn { segment })
    }

    /// What the gateway takes for the bucket's root.
    pub(crate) fn known_root(&self) -> Option<Root> {
        self.bucket.publisher.current().map(|known| known.root.clone())
    }

    /// Whether no object needs to have it: it was lost before it was uploaded.
    pub(crate) fn may_be_missing(&self, pvbn: Pvbn) -> bool {
        self.rotten.contains(&pvbn) || self.unread.contains(&pvbn)
    }

    /// The parts that the root names, in their order.
    pub(crate) fn parts_of(&self, root: &Root) -> Vec<(Part, Salt)> {
        let mut parts = Vec::new();
        let mut salt = root.journal_salt;
        for sequence in root.journal().rev() {
            let kind = MetadataKind::Journal(sequence);
            let name = kind.name(&salt.0);
            let object = self.bucket.objects.journal.get(&name);
            let object = object.unwrap_or_else(|| panic!("the root names {name}, which is not there"));
            let read = decode_metadata(kind, &name, object, PART_BYTES_MAX, self.ring());
            let (found, contents) = read.expect("a journal object can be read");
            let part = Part::decode(&contents).expect("a part is whole");
            assert_eq!(Salt(found), salt);
            salt = part.header.before;
            parts.push((part, Salt(found)));
        }
        parts.reverse();
        parts
    }

    /// The bucket is a prefix of what was acknowledged: all of it up to the root's position, and nothing behind it.
    fn check_root(&self) {
        let metadata = self.rebuilt(Purpose::Check);
        let state = self.model.published_state();
        let stored: BTreeSet<Pvbn> = table_of_objects(&metadata);
        let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
        let mut mapped: BTreeMap<VolumeId, u64> = BTreeMap::new();
        for (key, bytes) in metadata.table(Table::Map) {
            let page = MapPage::decode(bytes).expect("a map page");
            let (volume, number) = crate::faults::checks::map_of(key);
            for entry in 0..PAGE_ENTRIES as u16 {
                let (Some(pvbn), _) = page.get(entry) else { continue };
                let block = number * PAGE_ENTRIES + u64::from(entry);
                let value = state.value(volume, block);
                assert_eq!(
                    self.model.value_of_pvbn(pvbn),
                    Some(value),
                    "in the bucket block {block} of {volume:?} maps to PVBN {}",
                    pvbn.0
                );
                assert!(
                    stored.contains(&pvbn) || self.may_be_missing(pvbn),
                    "in the bucket block {block} of {volume:?} maps to PVBN {}, which no object has",
                    pvbn.0
                );
                *counted.entry(pvbn.0).or_default() += 1;
                *mapped.entry(volume).or_default() += 1;
            }
        }
        assert_eq!(mapped, mapped_blocks(state), "blocks that the bucket maps");
        assert_eq!(references(&metadata), counted, "reference counts equal the map");
        let entries = state.entries.iter().map(|(key, value)| (&key[..], &value[..]));
        assert!(entries.eq(metadata.table(Table::Entries)), "the bucket's entries");
        let counters = state.counters.iter();
        let counters = counters.map(|(key, value)| (key.clone(), value.to_le_bytes().to_vec()));
        let found = metadata.table(Table::Counters);
        let found = found.map(|(key, value)| (key.to_vec(), value.to_vec()));
        assert!(counters.eq(found), "the bucket's counters");
        let volumes = state.volumes.iter();
        let volumes = volumes.map(|(id, found)| (*id, found.name.clone(), found.values.len() as u64, found.flush));
        let superblock = load_superblock(&metadata)
            .expect("metadata is whole")
            .expect("a superblock");
        let found = superblock.volumes.iter();
        let found = found.map(|volume| (volume.id, volume.name.clone(), volume.blocks, volume.flush));
        assert!(volumes.eq(found), "the bucket's volumes");
        let put = self.store.keys_ever();
        for descriptor in descriptors_of(&metadata) {
            let key = descriptor.id().key();
            assert!(put.contains(&key), "the bucket names object {key}, which was never put");
        }
    }

    /// The local disk is gone. The next life begins with what the bucket holds, on another machine. If the gateway before is
    /// alive, it may put another root in the meantime; then it is tried again.
    pub(crate) fn lose_disk(&mut self) {
        self.say(|| "the local disk is lost".to_string());
        let identity = self.prng.next_u64();
        self.bucket.identity = identity;
        let put = loop {
            let (known, _) = self.bucket.objects.root.clone().expect("there is a root");
            self.bucket.publisher = Publisher::new(writer(identity), Some(known), Vec::new());
            self.bucket.known_tag = Some(self.bucket.objects.tag);
            let random = self.prng.next_u64();
            let taken = self.bucket.publisher.taking_over(random, 0);
            let put = self.root_put(taken);
            self.let_former_run();
            if put.tag == self.bucket.objects.tag {
                break put;
            }
            self.say(|| "another root came before, and it is tried again".to_string());
        };
        let epoch = put.known.root.epoch;
        self.take_model_of_former();
        self.model.on_disk_lost();
        assert!(self.put_root(put), "nobody else puts a root at this moment");
        assert_eq!(self.bucket.find_own_root(), Ok(()));
        self.fold();
        let metadata = self.rebuilt(Purpose::TakeOver { identity, epoch });
        // What was lost before it was uploaded is lost for good.
        let stored = table_of_objects(&metadata.whole());
        let lost = std::mem::take(&mut self.rotten)
            .into_iter()
            .chain(std::mem::take(&mut self.unread));
        self.rotten = lost.filter(|pvbn| !stored.contains(pvbn)).collect();
        self.begin_with(metadata);
        self.disk = Disk::new(identity, self.scenario.config.slot_count);
        self.disk
            .set_allocated_bytes(allocated_bytes(self.scenario.config.segment_bytes));
        self.slot_pvbns.clear();
        self.life = Life::default();
    }

    /// Local metadata is gone, and nothing else: the bucket and the journal since its root hold everything.
    pub(crate) fn lose_metadata(&mut self) {
        // What is looked at is what the medium holds.
        self.disk.sync_all();
        self.disk.drop_pages();
        let (known, _) = self.bucket.objects.root.as_ref().expect("there is a root");
        let bases = Bases {
            local: None,
            bucket: Some(Lsn(known.root.lsn)),
        };
        let header = self.disk.cache_header().expect("the disk can be read");
        let mark = header.map(|header| CacheHeader::decode(&header).expect("a header").mark);
        let remains = Remains::find(&self.disk, self.bucket.identity, &bases, mark);
        let remains = remains.expect("the disk can be read").expect("there is a root");
        self.say(|| format!("local metadata is lost: {remains:?}"));
        assert!(
            remains.reached >= remains.durable,
            "the journal since the root is incomplete: {remains:?}"
        );
        let segment = remains.segment;
        let mut metadata = self.rebuilt(Purpose::GoOn { segment });
        if self.scenario.canary == Some(Canary::ForgetJournal) {
            let superblock = load_superblock(&metadata).expect("metadata is whole");
            let superblock = superblock.expect("a superblock");
            let lsn = remains.reached;
            lay(
                &mut metadata,
                Frozen {
                    superblock: Superblock { lsn, ..superblock },
                    ..Frozen::default()
                },
            );
        }
        self.begin_with(metadata);
    }

    /// The index begins empty.
    pub(crate) fn begin_with(&mut self, metadata: Metadata) {
        for descriptor in descriptors_of(&metadata.whole()) {
            let blocks = descriptor.blocks().iter();
            self.forgotten.extend(blocks.map(|packed| packed.fingerprint));
        }
        self.bucket.was_read = true;
        self.metadata = metadata;
        self.files = RunFiles::default();
        self.index = FingerprintIndex::open(&self.files, None, self.scenario.config.fingerprints_max);
    }

    /// Some time after a recovery from the bucket, some more of what it did not bring.
    pub(crate) fn schedule_loading(&mut self) {
        if !self.metadata.is_whole() {
            let micros = self.prng.below(LOADING_MICROS_MAX);
            self.schedule(micros, Operation::LoadMetadata);
        }
    }

    pub(crate) fn load_metadata(&mut self) {
        let records_max = 1 + self.prng.below(8);
        match self.nodes_answered() {
            u64::MAX => self.metadata.load(records_max),
            _ => self.life.store_faults += 1,
        }
        self.schedule_loading();
    }

    /// What is said of the age of what the bucket lacks is never less than the truth.
    pub(crate) fn check_unpublished_age(&self) {
        if self.scenario.config.recovery_point_ms.is_none() {
            return;
        }
        let Some(changed_at) = self.model.oldest_unpublished() else {
            return;
        };
        let told = self.core.snapshot().oldest_unpublished;
        assert!(
            told.is_some_and(|told| told.0 <= changed_at),
            "since {changed_at} the bucket lacks a change, and {told:?} is said"
        );
    }
}

/// Which objects of nodes the root needs.
fn usage_of(nodes: &mut BucketNodes, root: &Root) -> UsageTable {
    let usage = root
        .usage
        .map(|at| UsageTable::read(nodes, &at).expect("the table is whole"));
    usage.unwrap_or_else(UsageTable::complete)
}

/// Nodes as the bucket has them, and those that are being written.
struct NodesBeingPut<'b> {
    bucket: BucketNodes,
    open: NodeObject<'b>,
}

impl Nodes for NodesBeingPut<'_> {
    type Error = String;

    fn read(&mut self, pointer: &Pointer) -> Result<Vec<u8>, String> {
        self.bucket.read(pointer)
    }

    fn write(&mut self, node: Vec<u8>) -> Result<Written, String> {
        let placed = self.open.add(&node);
        Ok(Written {
            object: self.open.number(),
            message: placed.message,
            offset: placed.offset,
            bytes: placed.bytes,
            tag: placed.tag,
        })
    }
}

pub(crate) fn lay(metadata: &mut Metadata, frozen: Frozen) {
    let mut merge = Merge::new(Arc::new(frozen), 64);
    loop {
        let mut transaction = metadata.begin();
        let is_last = merge.step(&mut transaction).expect("metadata takes it");
        let changes = transaction.finish();
        metadata.install(changes, None);
        if is_last {
            return;
        }
    }
}

fn table_of_objects(metadata: &Metadata) -> BTreeSet<Pvbn> {
    let blocks = descriptors_of(metadata).flat_map(|descriptor| descriptor.blocks().to_vec());
    blocks.map(|packed| packed.pvbn).collect()
}

fn descriptors_of(metadata: &Metadata) -> impl Iterator<Item = ObjectDescriptor> {
    let descriptors = metadata.table(Table::Objects);
    descriptors.map(|(_, bytes)| ObjectDescriptor::decode(bytes).expect("a descriptor"))
}

fn mapped_blocks(state: &State) -> BTreeMap<VolumeId, u64> {
    let volumes = state.volumes.iter().map(|(volume, found)| {
        let mapped = found.values.iter().filter(|value| **value != ZERO);
        (*volume, mapped.count() as u64)
    });
    let files = state.files.iter().map(|(file, blocks)| (*file, blocks.len() as u64));
    volumes.chain(files).filter(|(_, count)| *count > 0).collect()
}
