//! What the trees have under a key, around it, and portion by portion, as local metadata keys it.

use super::{Backing, FILES, Portion, Progress, TreeResult};
use crate::bucket_tree::{BucketTree, TreeRecord, record_of};
use crate::format::local_metadata::{Entry, Table, map_key};
use crate::format::page::{MapPage, PAGE_ENTRIES};
use crate::state::extent_map::{Extent, Target};
use crate::state::overlay::Frozen;
use alloc::{sync::Arc, vec::Vec};
use tombolo_base::{DecodeError, Pvbn, Reader, VolumeId, Writer};
use tombolo_metadata_tree::{Entries, MapKey, Nodes, Root, Run, Runs, Scan, get, last_below};

fn page_of(block: u64) -> u64 {
    block / PAGE_ENTRIES
}

/// The parts of a run in each page that it touches: number, first entry, entries, first PVBN.
pub fn parts_of(first: u64, count: u64, pvbn: Pvbn) -> impl Iterator<Item = (u64, u16, u16, Pvbn)> {
    let (mut block, end) = (first, first + count);
    core::iter::from_fn(move || {
        (block < end).then(|| {
            let length = (PAGE_ENTRIES - block % PAGE_ENTRIES).min(end - block);
            let part = (page_of(block), (block % PAGE_ENTRIES) as u16, length as u16);
            let pvbn = pvbn.plus(block - first);
            block += length;
            (part.0, part.1, part.2, pvbn)
        })
    })
}

/// Of what a leaf has, which is no hole.
fn parts_of_run(run: &Run) -> impl Iterator<Item = (u64, u16, u16, Pvbn)> {
    let target = run.target.into_iter();
    let (first, count) = (run.start.block, run.length);
    target.flat_map(move |target| parts_of(first, count, target.pvbn))
}

impl Backing {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(self.maps.len() as u32);
        for (first, map) in &self.maps {
            out.u64(*first);
            map.encode(&mut out);
        }
        self.entries.encode(&mut out);
        self.top.encode(&mut out);
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let count = reader.u32("maps")?;
        let mut maps: Vec<(u64, Root)> = Vec::new();
        for _ in 0..count {
            let first = reader.u64("first volume of a map")?;
            if maps.last().is_some_and(|(last, _)| *last >= first) {
                return Err(DecodeError::Invalid {
                    what: "first volume of a map",
                    value: first,
                });
            }
            maps.push((first, Root::decode(&mut reader)?));
        }
        let entries = Root::decode(&mut reader)?;
        let top = Root::decode(&mut reader)?;
        reader.finish("trees")?;
        Ok(Self { maps, entries, top })
    }

    /// The maps of the volumes that are not all below `volume`.
    fn maps_from(&self, volume: u64) -> &[(u64, Root)] {
        let behind = self.maps.partition_point(|(first, _)| *first <= volume);
        // Only that of files has those of more than one.
        let is_in_last = behind > 0 && (self.maps[behind - 1].0 == volume || self.maps[behind - 1].0 == FILES);
        &self.maps[behind - usize::from(is_in_last)..]
    }

    /// What the tree has under exactly this key.
    pub(super) fn get<N: Nodes>(&self, nodes: &mut N, table: Table, key: &[u8]) -> TreeResult<Option<Vec<u8>>, N> {
        match table {
            Table::Map => Ok(self
                .ceiling_page(nodes, key)?
                .filter(|(found, _)| found == key)
                .map(|(_, page)| page)),
            Table::Entries => Ok(get::<Entries, N>(nodes, &self.entries, &key.to_vec())?),
            Table::Objects => {
                let found = get::<Entries, N>(nodes, &self.top, &BucketTree::object_key(key))?;
                Ok(found.map(descriptor_in))
            }
            _ => Ok(None),
        }
    }

    /// The least key not below this one.
    pub(super) fn ceiling<N: Nodes>(&self, nodes: &mut N, table: Table, key: &[u8]) -> TreeResult<Option<Entry>, N> {
        let (root, from, to) = match table {
            Table::Map => return self.ceiling_page(nodes, key),
            Table::Entries => (&self.entries, key.to_vec(), None),
            Table::Objects => (&self.top, BucketTree::object_key(key), Some(BucketTree::objects_end())),
            _ => return Ok(None),
        };
        let found = Scan::<Entries>::new(root, from, to).next(nodes)?;
        Ok(found.and_then(|entry| local_entry(table, entry)))
    }

    /// The greatest key below this one.
    pub(super) fn below<N: Nodes>(&self, nodes: &mut N, table: Table, end: &[u8]) -> TreeResult<Option<Entry>, N> {
        let found = match table {
            Table::Map => return self.page_below(nodes, end),
            Table::Entries => last_below::<Entries, N>(nodes, &self.entries, &end.to_vec())?,
            Table::Objects => {
                let found = last_below::<Entries, N>(nodes, &self.top, &BucketTree::object_key(end))?;
                found.filter(|entry| entry.key >= BucketTree::object_key(&[]))
            }
            _ => None,
        };
        Ok(found.and_then(|entry| local_entry(table, entry)))
    }

    fn ceiling_page<N: Nodes>(&self, nodes: &mut N, key: &[u8]) -> TreeResult<Option<Entry>, N> {
        let (volume, page) = place_of(key);
        for (first, map) in self.maps_from(volume) {
            let file = volume.max(*first);
            let block = if file == volume {
                page.saturating_mul(PAGE_ENTRIES)
            } else {
                0
            };
            let from = MapKey { file, block };
            if let Some(run) = Scan::<Runs>::new(map, from, None).next(nodes)? {
                let page = page_of(run.start.block);
                return self.read_page(nodes, map, run.start.file, page).map(Some);
            }
        }
        Ok(None)
    }

    fn page_below<N: Nodes>(&self, nodes: &mut N, end: &[u8]) -> TreeResult<Option<Entry>, N> {
        let (volume, page) = place_of(end);
        let end = MapKey {
            file: volume,
            block: page.saturating_mul(PAGE_ENTRIES),
        };
        for (first, map) in self.maps.iter().rev().filter(|(first, _)| *first <= volume) {
            if let Some(run) = last_below::<Runs, N>(nodes, map, &end)? {
                debug_assert!(run.start.file >= *first, "a map has its own volume's runs");
                let last = (run.start.block + run.length - 1).min(match run.start.file == volume {
                    true => end.block - 1,
                    false => u64::MAX,
                });
                return self.read_page(nodes, map, run.start.file, page_of(last)).map(Some);
            }
        }
        Ok(None)
    }

    fn read_page<N: Nodes>(&self, nodes: &mut N, map: &Root, file: u64, number: u64) -> TreeResult<Entry, N> {
        let first = number * PAGE_ENTRIES;
        let at = |block| MapKey { file, block };
        let mut scan = Scan::<Runs>::new(map, at(first), Some(at(first + PAGE_ENTRIES)));
        let mut page = MapPage::default();
        while let Some(run) = scan.next(nodes)? {
            for (_, start, length, pvbn) in parts_of_run(&run) {
                page.set(start, length, Some(pvbn));
            }
        }
        Ok((map_key(VolumeId(file), number).to_vec(), page.encode()))
    }

    /// What comes next, about `records_max` records of it, and objects of about `blocks_max` blocks.
    ///
    /// # Errors
    /// When a node cannot be read.
    pub fn read<N: Nodes>(
        &self,
        nodes: &mut N,
        from: &Progress,
        records_max: u64,
        blocks_max: usize,
    ) -> TreeResult<Portion, N> {
        let mut portion = Portion {
            from: from.clone(),
            next: from.clone(),
            contents: Frozen::default(),
            records: 0,
        };
        match from {
            Progress::Maps(volume, page) => self.read_maps(nodes, &mut portion, *volume, *page, records_max)?,
            Progress::Entries(key) => {
                let mut scan = Scan::<Entries>::new(&self.entries, key.clone(), None);
                portion.next = Progress::Objects(0);
                while let Some(entry) = scan.next(nodes)? {
                    if portion.records == records_max {
                        portion.next = Progress::Entries(entry.key);
                        break;
                    }
                    portion.records += 1;
                    portion.contents.entries.set(&entry.key, entry.value.map(Into::into));
                }
            }
            Progress::Objects(first) => {
                let from = BucketTree::object_key(&first.to_be_bytes());
                let mut scan = Scan::<Entries>::new(&self.top, from, Some(BucketTree::objects_end()));
                portion.next = Progress::Clearing;
                let mut blocks = 0;
                while let Some(entry) = scan.next(nodes)? {
                    let TreeRecord::Object(descriptor) = record_of(&entry)? else {
                        continue;
                    };
                    let first = descriptor.first_pvbn().0;
                    if portion.records == records_max || blocks >= blocks_max {
                        portion.next = Progress::Objects(first);
                        break;
                    }
                    portion.records += 1;
                    blocks += descriptor.blocks().len();
                    portion.contents.objects.insert(first, Arc::new(descriptor));
                }
            }
            Progress::Clearing => {}
        }
        Ok(portion)
    }

    /// Whole pages of maps. A run of many pages is cut.
    fn read_maps<N: Nodes>(
        &self,
        nodes: &mut N,
        portion: &mut Portion,
        volume: VolumeId,
        page: u64,
        pages_max: u64,
    ) -> TreeResult<(), N> {
        let mut pages = 0;
        // The last page of which there is something.
        let mut open = None;
        for (first, map) in self.maps_from(volume.0) {
            let file = volume.0.max(*first);
            let block = if file == volume.0 { page * PAGE_ENTRIES } else { 0 };
            let mut scan = Scan::<Runs>::new(map, MapKey { file, block }, None);
            while let Some(run) = scan.next(nodes)? {
                for (number, start, length, pvbn) in parts_of_run(&run) {
                    let volume = VolumeId(run.start.file);
                    if open != Some((volume, number)) {
                        if pages == pages_max {
                            portion.next = Progress::Maps(volume, number);
                            return Ok(());
                        }
                        pages += 1;
                        portion.records += 1;
                        open = Some((volume, number));
                    }
                    portion.contents.map.insert(Extent {
                        volume,
                        first: number * PAGE_ENTRIES + u64::from(start),
                        count: length.into(),
                        target: Target::At(pvbn),
                    });
                }
            }
        }
        portion.next = Progress::Entries(Vec::new());
        Ok(())
    }
}

/// As local metadata keys it; the tree's value of an object has one byte in front.
pub fn local_entry(table: Table, entry: tombolo_metadata_tree::Entry) -> Option<Entry> {
    let value = entry.value?;
    Some(match table {
        Table::Objects => (entry.key.get(1..)?.to_vec(), descriptor_in(value)),
        _ => (entry.key, value),
    })
}

fn descriptor_in(value: Vec<u8>) -> Vec<u8> {
    value.get(1..).unwrap_or_default().to_vec()
}

/// What a key of the table of maps names, be it whole or not.
fn place_of(key: &[u8]) -> (u64, u64) {
    let mut whole = [0; 16];
    let length = key.len().min(16);
    whole[..length].copy_from_slice(&key[..length]);
    let part = |from: usize| {
        whole[from..from + 8]
            .iter()
            .fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    // A longer key comes behind that page.
    (part(0), part(8).saturating_add(u64::from(key.len() > whole.len())))
}
