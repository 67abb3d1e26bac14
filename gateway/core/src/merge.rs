//! The merge of a frozen overlay into local metadata, in transactions of bounded size. Pure over
//! [`MetadataTransaction`], so LMDB and the simulator's model run the same code.
//!
//! Every transaction leaves the reference counts equal to the maps, and all but the last change only what the journal
//! behind the superblock's LSN says again: maps, objects, entries. The first of several notes in the superblock how far
//! the journal is needed from then on. So a merge that is cut short anywhere, by an error or a crash, is begun anew, with
//! the same frozen state or with one that recovery has made of the journal. What recovery builds upon (slots, counters,
//! superblock) changes in the last transaction, together.

use crate::format::local_metadata::{
    MetadataFault, MetadataRead, MetadataTransaction, Table, decode, get, load_map_page, map_key, put,
};
use crate::format::page::{CountPage, MapPage, PAGE_ENTRIES, References};
use crate::format::superblock::Superblock;
use crate::recovery::load_superblock;
use crate::state::extent_map::Target;
use crate::state::overlay::Frozen;
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use tombolo_base::{Pvbn, VolumeId};

/// A merge under way.
#[derive(Clone, Debug)]
pub struct Merge {
    frozen: Arc<Frozen>,
    pages_max: usize,
    next: Next,
    is_noted: bool,
}

/// What comes next.
#[derive(Clone, Debug)]
enum Next {
    /// The map from this block on.
    Map(VolumeId, u64),
    /// The objects from this first PVBN on.
    Objects(u64),
    /// The entries from this key on.
    Entries(Vec<u8>),
    Rest,
}

/// Bytes of a value that count as another page.
const PAGE_BYTES: usize = 4096;

impl Merge {
    /// A transaction changes about `pages_max` pages: it may pass that by what one page of the map refers to, by one
    /// value, and in the last by the slot pages.
    pub fn new(frozen: Arc<Frozen>, pages_max: usize) -> Self {
        Self {
            frozen,
            pages_max,
            next: Next::Map(VolumeId(0), 0),
            is_noted: false,
        }
    }

    /// What is being merged.
    pub fn frozen(&self) -> &Arc<Frozen> {
        &self.frozen
    }

    /// Brings the next part into a transaction, which MUST be committed before the next call. True: it was the last.
    ///
    /// # Errors
    /// When the transaction fails, or holds what cannot be. The merge is to be begun anew.
    pub fn step<T: MetadataTransaction>(&mut self, transaction: &mut T) -> Result<bool, MetadataFault<T::Error>> {
        let is_last = self.merge_part(transaction)?;
        if !is_last && !core::mem::replace(&mut self.is_noted, true) {
            self.note(transaction)?;
        }
        Ok(is_last)
    }

    /// From the first transaction on to the last there is no state of any moment here without the journal.
    fn note<T: MetadataTransaction>(&self, transaction: &mut T) -> Result<(), MetadataFault<T::Error>> {
        let Some(superblock) = load_superblock(transaction)? else {
            return Ok(());
        };
        let noted = Superblock {
            merging_to: superblock.merging_to.max(Some(self.frozen.superblock.lsn)),
            ..superblock
        };
        put(transaction, Table::Super, &[], &noted.encode())
    }

    fn merge_part<T: MetadataTransaction>(&mut self, transaction: &mut T) -> Result<bool, MetadataFault<T::Error>> {
        let frozen = self.frozen.clone();
        let mut changed = 0;
        loop {
            let next = match &self.next {
                Next::Map(volume, block) => self.merge_map(&frozen, *volume, *block, transaction, &mut changed)?,
                Next::Objects(first) => self.merge_objects(&frozen, *first, transaction, &mut changed)?,
                Next::Entries(key) => self.merge_entries(&frozen, key, transaction, &mut changed)?,
                Next::Rest if changed > 0 && changed + frozen.slot_pages.len() > self.pages_max => return Ok(false),
                Next::Rest => {
                    merge_rest(&frozen, transaction)?;
                    return Ok(true);
                }
            };
            self.next = next;
            if changed >= self.pages_max {
                return Ok(false);
            }
        }
    }

    fn merge_map<T: MetadataTransaction>(
        &self,
        frozen: &Frozen,
        volume: VolumeId,
        block: u64,
        transaction: &mut T,
        changed: &mut usize,
    ) -> Result<Next, MetadataFault<T::Error>> {
        let mut references = ReferenceChanges::default();
        let mut next = Next::Objects(0);
        let mut pages = 0;
        // Extents of one page are applied together, so each page is read and written once.
        let mut open: Option<(VolumeId, u64, MapPage)> = None;
        'extents: for extent in frozen.map.iter_from(volume, block) {
            let mut block = extent.first;
            while block < extent.end() {
                let number = block / PAGE_ENTRIES;
                let part = (PAGE_ENTRIES - block % PAGE_ENTRIES).min(extent.end() - block);
                if open
                    .as_ref()
                    .is_none_or(|(volume, page, _)| (*volume, *page) != (extent.volume, number))
                {
                    close_map_page(transaction, open.take())?;
                    if pages + references.pages.len() >= self.pages_max {
                        next = Next::Map(extent.volume, block);
                        break 'extents;
                    }
                    // A long hole must not visit every page of a vast empty volume.
                    if extent.target == Target::Hole {
                        match next_map_page(transaction, extent.volume, number, extent.end())? {
                            Some(next) if next > number => {
                                block = next * PAGE_ENTRIES;
                                continue;
                            }
                            Some(_) => {}
                            None => break,
                        }
                    }
                    let page = load_map_page(transaction, extent.volume, number)?;
                    let key = map_key(extent.volume, number);
                    if !transaction.is_counted(&key).map_err(MetadataFault::Store)? {
                        references.count(&page);
                    }
                    open = Some((extent.volume, number, page));
                    pages += 1;
                }
                let Some((_, _, page)) = open.as_mut() else { break };
                let start = (block % PAGE_ENTRIES) as u16;
                references.count_part(page, start, part as u16, -1);
                let target = match extent.target.plus(block - extent.first) {
                    Target::Hole => None,
                    Target::At(pvbn) => {
                        references.add(pvbn, part, 1);
                        Some(pvbn)
                    }
                };
                page.set(start, part as u16, target);
                block += part;
            }
        }
        close_map_page(transaction, open)?;
        *changed += pages + references.pages.len();
        references.apply(transaction)?;
        Ok(next)
    }

    fn merge_objects<T: MetadataTransaction>(
        &self,
        frozen: &Frozen,
        first: u64,
        transaction: &mut T,
        changed: &mut usize,
    ) -> Result<Next, MetadataFault<T::Error>> {
        for (first, descriptor) in frozen.objects.range(first..) {
            if *changed >= self.pages_max {
                return Ok(Next::Objects(*first));
            }
            let bytes = descriptor.encode();
            put(transaction, Table::Objects, &first.to_be_bytes(), &bytes)?;
            *changed += pages_of(bytes.len());
        }
        Ok(Next::Entries(Vec::new()))
    }

    fn merge_entries<T: MetadataTransaction>(
        &self,
        frozen: &Frozen,
        key: &[u8],
        transaction: &mut T,
        changed: &mut usize,
    ) -> Result<Next, MetadataFault<T::Error>> {
        for (key, value) in frozen.entries.iter_from(key) {
            if *changed >= self.pages_max {
                return Ok(Next::Entries(key.clone()));
            }
            match value {
                Some(value) => put(transaction, Table::Entries, key, value)?,
                None => transaction.delete(Table::Entries, key).map_err(MetadataFault::Store)?,
            }
            *changed += pages_of(value.as_ref().map_or(0, |value| value.len()));
        }
        Ok(Next::Rest)
    }
}

fn pages_of(bytes: usize) -> usize {
    1 + bytes / PAGE_BYTES
}

fn merge_rest<T: MetadataTransaction>(frozen: &Frozen, transaction: &mut T) -> Result<(), MetadataFault<T::Error>> {
    for (page, bytes) in &frozen.slot_pages {
        put(transaction, Table::Slots, &page.to_be_bytes(), bytes)?;
    }
    for (key, value) in frozen.entries.counters() {
        put_or_delete(transaction, Table::Counters, key, value == 0, || {
            value.to_le_bytes().to_vec()
        })?;
    }
    put(transaction, Table::Super, &[], &frozen.superblock.encode())
}

/// References won and lost, as runs of PVBNs, applied a page at a time.
#[derive(Default)]
pub(crate) struct ReferenceChanges {
    pages: BTreeMap<u64, [i32; PAGE_ENTRIES as usize]>,
}

impl ReferenceChanges {
    fn add(&mut self, first: Pvbn, count: u64, change: i32) {
        for pvbn in first.0..first.0 + count {
            let page = self
                .pages
                .entry(pvbn / PAGE_ENTRIES)
                .or_insert([0; PAGE_ENTRIES as usize]);
            page[(pvbn % PAGE_ENTRIES) as usize] += change;
        }
    }

    /// All that the page has.
    pub(crate) fn count(&mut self, page: &MapPage) {
        self.count_part(page, 0, PAGE_ENTRIES as u16, 1);
    }

    fn count_part(&mut self, page: &MapPage, start: u16, length: u16, change: i32) {
        let mut entry = start;
        while entry < start + length {
            let (pvbn, run) = page.get(entry);
            let part = run.min(start + length - entry);
            if let Some(pvbn) = pvbn {
                self.add(pvbn, u64::from(part), change);
            }
            entry += part;
        }
    }

    pub(crate) fn apply<T: MetadataTransaction>(self, transaction: &mut T) -> Result<(), MetadataFault<T::Error>> {
        for (page_number, changes) in self.pages {
            let key = page_number.to_be_bytes();
            let mut page = match get(transaction, Table::References, &key)? {
                Some(bytes) => decode(Table::References, &key, CountPage::decode(&bytes))?,
                None => CountPage::default(),
            };
            for (entry, change) in changes.iter().enumerate().filter(|(_, change)| **change != 0) {
                let before = page.get(entry as u16).0.map_or(0, |found| found.0);
                let count = before as i64 + i64::from(*change);
                if count < 0 {
                    let pvbn = page_number * PAGE_ENTRIES + entry as u64;
                    return Err(MetadataFault::NegativeReferences { pvbn, count });
                }
                page.set(entry as u16, 1, (count > 0).then_some(References(count as u64)));
            }
            put_or_delete(transaction, Table::References, &key, page.is_empty(), || page.encode())?;
        }
        Ok(())
    }
}

fn next_map_page<T: MetadataRead>(
    transaction: &T,
    volume: VolumeId,
    page: u64,
    end_block: u64,
) -> Result<Option<u64>, MetadataFault<T::Error>> {
    let found = transaction
        .ceiling(Table::Map, &map_key(volume, page))
        .map_err(MetadataFault::Store)?;
    let Some((key, _)) = found else { return Ok(None) };
    let Some((found_volume, page_bytes)) = key.split_at_checked(8) else {
        return Ok(None);
    };
    let Ok(page_bytes) = <[u8; 8]>::try_from(page_bytes) else {
        return Ok(None);
    };
    let found_page = u64::from_be_bytes(page_bytes);
    Ok((found_volume == volume.0.to_be_bytes() && found_page * PAGE_ENTRIES < end_block).then_some(found_page))
}

fn close_map_page<T: MetadataTransaction>(
    transaction: &mut T,
    open: Option<(VolumeId, u64, MapPage)>,
) -> Result<(), MetadataFault<T::Error>> {
    let Some((volume, number, page)) = open else {
        return Ok(());
    };
    let key = map_key(volume, number);
    put_or_delete(transaction, Table::Map, &key, page.is_empty(), || page.encode())
}

fn put_or_delete<T: MetadataTransaction>(
    transaction: &mut T,
    table: Table,
    key: &[u8],
    empty: bool,
    encode: impl FnOnce() -> Vec<u8>,
) -> Result<(), MetadataFault<T::Error>> {
    if empty {
        transaction.delete(table, key).map_err(MetadataFault::Store)
    } else {
        put(transaction, table, key, &encode())
    }
}

#[cfg(test)]
mod tests;
