//! Local metadata in memory: the map and the objects, as checkpoints leave them, over what was there before the trace.

use super::contents;
use super::layout::Layout;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use tombolo_base::{BlockSum, ObjectDescriptor, Pvbn, VolumeId};
use tombolo_core::local_metadata::{MetadataRead, OBJECT_SPAN_MAX, Table};
use tombolo_core::{Extent, Frozen, MapPage, PAGE_ENTRIES, Superblock, Target};

#[derive(Debug)]
pub struct Metadata {
    layout: Layout,
    /// Pages that differ from the layout's.
    pages: HashMap<(VolumeId, u64), MapPage>,
    objects: BTreeMap<u64, Arc<ObjectDescriptor>>,
    /// The fingerprint index: sums in the place of fingerprints.
    index: HashMap<BlockSum, Pvbn>,
}

/// A hole of more pages than this visits the pages that there are, not those that it covers.
const HOLE_PAGES_MAX: u64 = 1024;

impl Metadata {
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            pages: HashMap::new(),
            objects: BTreeMap::new(),
            index: HashMap::new(),
        }
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn page(&self, volume: VolumeId, page: u64) -> MapPage {
        match self.pages.get(&(volume, page)) {
            Some(found) => found.clone(),
            None => self.layout.page(volume, page),
        }
    }

    pub fn descriptor(&self, pvbn: Pvbn) -> Option<Arc<ObjectDescriptor>> {
        if let Some(preloaded) = self.layout.descriptor(pvbn) {
            return Some(preloaded);
        }
        let near = (pvbn.0 + 1).saturating_sub(OBJECT_SPAN_MAX)..=pvbn.0;
        let mut near = self.objects.range(near).rev();
        near.find(|(_, object)| object.find(pvbn).is_some())
            .map(|(_, object)| object.clone())
    }

    /// What the fingerprint index knows.
    pub fn find(&self, sum: BlockSum) -> Option<Pvbn> {
        self.index.get(&sum).copied()
    }

    pub fn remember(&mut self, descriptor: &ObjectDescriptor) {
        for block in descriptor.blocks() {
            self.index.insert(contents::sum(&block.fingerprint), block.pvbn);
        }
    }

    pub fn apply(&mut self, frozen: &Frozen) {
        for extent in frozen.map.iter() {
            self.apply_extent(&extent);
        }
        let objects = frozen.objects.iter();
        self.objects
            .extend(objects.map(|(first, object)| (*first, object.clone())));
    }

    #[expect(clippy::disallowed_methods, reason = "each page is changed for itself")]
    fn apply_extent(&mut self, extent: &Extent) {
        let (first, last) = (extent.first / PAGE_ENTRIES, (extent.end() - 1) / PAGE_ENTRIES);
        if extent.target == Target::Hole && last - first > HOLE_PAGES_MAX {
            let changed = self.pages.keys().filter(|(volume, _)| *volume == extent.volume);
            let mut pages: Vec<u64> = changed.map(|(_, page)| *page).collect();
            pages.extend(self.layout.pages_of(extent.volume));
            pages.retain(|page| (first..=last).contains(page));
            pages.into_iter().for_each(|page| self.apply_to_page(extent, page));
        } else {
            (first..=last).for_each(|page| self.apply_to_page(extent, page));
        }
    }

    fn apply_to_page(&mut self, extent: &Extent, page: u64) {
        let from = extent.first.max(page * PAGE_ENTRIES);
        let to = extent.end().min((page + 1) * PAGE_ENTRIES);
        let target = match extent.target.plus(from - extent.first) {
            Target::Hole => None,
            Target::At(pvbn) => Some(pvbn),
        };
        let layout = &self.layout;
        let entry = self.pages.entry((extent.volume, page));
        let map = entry.or_insert_with(|| layout.page(extent.volume, page));
        map.set((from % PAGE_ENTRIES) as u16, (to - from) as u16, target);
    }
}

/// A state directory without a journal, whose next PVBN lies behind what was there before the trace.
pub struct Beginning {
    pub slot_count: u32,
    pub next_pvbn: u64,
}

impl MetadataRead for Beginning {
    type Error = Infallible;

    fn get(&self, table: Table, _key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        let superblock = || Superblock {
            journal_identity: 1,
            slot_count: self.slot_count,
            segment: 1,
            next_pvbn: self.next_pvbn,
            next_volume: 1,
            ..Superblock::default()
        };
        Ok((table == Table::Super).then(|| superblock().encode()))
    }

    fn ceiling(&self, _table: Table, _key: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, Infallible> {
        Ok(None)
    }

    fn floor(&self, _table: Table, _key: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, Infallible> {
        Ok(None)
    }
}
