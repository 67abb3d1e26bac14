//! The local disk: the cache file's slots and the journal's segments, each as what is durable and what was written
//! since. A crash decides what becomes of the latter.
//!
//! | event        | writes that completed           | writes under way                 | unlinked segments |
//! |--------------|---------------------------------|----------------------------------|-------------------|
//! | process kill | stay                            | kept, lost or torn, each by lot  | stay unlinked     |
//! | power loss   | kept, lost or torn, each by lot | likewise                         | may be back       |
//! | failed sync  | kept or dropped, each by lot    | not touched                      | not touched       |
//!
//! A write is torn at sectors of 512 bytes, in any pattern.

use crate::contents::Block;
use std::collections::BTreeMap;
use std::rc::Rc;
use tombolo_base::{BLOCK_BYTES, BlockSum, Lcbn, Prng};
use tombolo_core::recovery::LocalDisk;

const SECTOR_BYTES: usize = 512;

#[derive(Debug, Default)]
struct Slot {
    durable: Option<Block>,
    /// Written since, with the order of their completion.
    pending: Vec<(u64, Block)>,
}

impl Slot {
    fn view(&self) -> Option<&Block> {
        self.pending.last().map(|(_, block)| block).or(self.durable.as_ref())
    }
}

#[derive(Debug)]
struct Write {
    order: u64,
    offset: usize,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Segment {
    durable: Vec<u8>,
    /// The name survives a power loss.
    name_is_durable: bool,
    pending: Vec<Write>,
    unlinked: Option<u64>,
}

impl Segment {
    fn view(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for write in &self.pending {
            overwrite(&mut bytes, write.offset, &write.bytes);
        }
        bytes
    }
}

fn overwrite(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}

#[derive(Debug)]
pub struct Disk {
    slots: Vec<Slot>,
    segments: BTreeMap<u64, Segment>,
    order: u64,
    cache_is_new: bool,
    /// Slots that cannot be read: until they are written, or for ever, nor written then.
    failed: BTreeMap<u32, bool>,
}

impl Disk {
    pub fn new(slot_count: u32) -> Self {
        Self {
            slots: (0..slot_count).map(|_| Slot::default()).collect(),
            segments: BTreeMap::new(),
            order: 0,
            cache_is_new: true,
            failed: BTreeMap::new(),
        }
    }

    /// Everything that has completed so far: what a sync that begins now covers.
    pub fn order(&self) -> u64 {
        self.order
    }

    pub fn read_slot(&self, slot: Lcbn) -> Block {
        let zeroes = || Rc::from(&[0; BLOCK_BYTES][..]);
        self.slots[slot.0 as usize].view().cloned().unwrap_or_else(zeroes)
    }

    pub fn fail_sector(&mut self, slot: Lcbn, for_ever: bool) {
        self.failed.insert(slot.0, for_ever);
    }

    pub fn failed_sectors(&self) -> usize {
        self.failed.len()
    }

    pub fn is_readable(&self, slot: Lcbn) -> bool {
        !self.failed.contains_key(&slot.0)
    }

    pub fn is_writable(&self, slot: Lcbn) -> bool {
        self.failed.get(&slot.0) != Some(&true)
    }

    pub fn write_slot(&mut self, slot: Lcbn, block: Block) {
        self.order += 1;
        self.failed.retain(|failed, for_ever| *failed != slot.0 || *for_ever);
        self.slots[slot.0 as usize].pending.push((self.order, block));
    }

    pub fn write_segment(&mut self, segment: u64, offset: u64, bytes: &[u8]) {
        self.order += 1;
        let found = self.segments.entry(segment).or_default();
        found.pending.push(Write {
            order: self.order,
            offset: offset as usize,
            bytes: bytes.to_vec(),
        });
    }

    /// Some of the sectors of a write that was under way.
    pub fn write_slot_torn(&mut self, slot: Lcbn, block: &Block, prng: &mut Prng) {
        let torn = tear(&self.read_slot(slot), block, prng);
        self.write_slot(slot, torn);
    }

    pub fn write_segment_torn(&mut self, segment: u64, offset: u64, bytes: &[u8], prng: &mut Prng) {
        let view = self.segments.get(&segment).map(Segment::view).unwrap_or_default();
        let offset_end = offset as usize + bytes.len();
        let mut old = vec![0; bytes.len()];
        if let Some(known) = view.get(offset as usize..view.len().min(offset_end)) {
            old[..known.len()].copy_from_slice(known);
        }
        let torn = tear(&old, bytes, prng);
        self.write_segment(segment, offset, &torn);
    }

    pub fn truncate_segment(&mut self, segment: u64, length_bytes: u64) {
        if let Some(found) = self.segments.get_mut(&segment) {
            let mut bytes = found.view();
            bytes.truncate(length_bytes as usize);
            // Modelled as durable at once: the caller syncs before anything else happens, or recovers again.
            found.durable = bytes;
            found.pending.clear();
        }
    }

    pub fn unlink_below(&mut self, keep_from: u64) {
        let gone: Vec<u64> = self.segments.range(..keep_from).map(|(number, _)| *number).collect();
        for number in gone {
            self.unlink(number);
        }
    }

    pub fn unlink(&mut self, segment: u64) {
        self.order += 1;
        if let Some(found) = self.segments.get_mut(&segment) {
            found.unlinked.get_or_insert(self.order);
        }
    }

    pub fn sync_slots(&mut self, upto: u64) {
        for slot in &mut self.slots {
            let count = slot.pending.partition_point(|(order, _)| *order <= upto);
            if let Some((_, block)) = slot.pending.drain(..count).next_back() {
                slot.durable = Some(block);
            }
        }
    }

    pub fn sync_segments(&mut self, upto: u64) {
        self.segments
            .retain(|_, segment| segment.unlinked.is_none_or(|order| order > upto));
        for segment in self.segments.values_mut() {
            let count = segment.pending.partition_point(|write| write.order <= upto);
            for write in segment.pending.drain(..count) {
                overwrite(&mut segment.durable, write.offset, &write.bytes);
            }
            segment.name_is_durable = true;
        }
    }

    pub fn sync_all(&mut self) {
        self.sync_slots(self.order);
        self.sync_segments(self.order);
    }

    /// A sync failed: the kernel may have dropped what it could not write.
    pub fn drop_unsynced(&mut self, upto: u64, prng: &mut Prng) {
        let mut keep = |order: u64| order > upto || prng.chance(500);
        for slot in &mut self.slots {
            slot.pending.retain(|(order, _)| keep(*order));
        }
        for segment in self.segments.values_mut() {
            segment.pending.retain(|write| keep(write.order));
        }
    }

    /// What is not durable survives whole, in part or not at all. Three kinds of luck, so that runs see the pure
    /// cases too.
    pub fn power_loss(&mut self, prng: &mut Prng) {
        let luck = prng.below(4);
        for slot in &mut self.slots {
            for (_, block) in std::mem::take(&mut slot.pending) {
                let old = slot.durable.clone().unwrap_or_else(|| Rc::from(&[0; BLOCK_BYTES][..]));
                slot.durable = match fate(luck, prng) {
                    Fate::Kept => Some(block),
                    Fate::Lost => slot.durable.take(),
                    Fate::Torn => Some(tear(&old, &block, prng)),
                };
            }
        }
        self.segments.retain(|_, segment| {
            let name_survives = segment.name_is_durable || fate(luck, prng) == Fate::Kept;
            let is_back = segment.unlinked.is_none() || prng.chance(500);
            segment.unlinked = None;
            for write in std::mem::take(&mut segment.pending) {
                tear_into(&mut segment.durable, &write, fate(luck, prng), prng);
            }
            segment.name_is_durable = true;
            name_survives && is_back
        });
    }

    /// The daemon alone died: unlinked files are gone for it.
    pub fn forget_unlinked(&mut self) {
        self.order += 1;
        self.segments.retain(|_, segment| segment.unlinked.is_none());
    }

    /// One bit flips, in memory and on the medium.
    pub fn rot_slot(&mut self, slot: Lcbn, prng: &mut Prng) {
        let mut bytes = self.read_slot(slot).to_vec();
        bytes[prng.below(BLOCK_BYTES as u64) as usize] ^= 1 << prng.below(8);
        let found = &mut self.slots[slot.0 as usize];
        found.pending.clear();
        found.durable = Some(Rc::from(bytes));
    }

    /// The cache file is replaced by an empty one.
    pub fn renew_cache(&mut self) {
        for slot in &mut self.slots {
            *slot = Slot::default();
        }
        self.failed.clear();
        self.cache_is_new = true;
    }

    pub fn cache_exists_now(&mut self) {
        self.cache_is_new = false;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Lost,
    Torn,
}

fn fate(luck: u64, prng: &mut Prng) -> Fate {
    match (luck, prng.below(3)) {
        (0, _) => Fate::Lost,
        (1, 0 | 1) | (_, 0) => Fate::Kept,
        (_, 1) => Fate::Lost,
        _ => Fate::Torn,
    }
}

/// The new bytes in some sectors, the old ones in the others.
fn tear(old: &[u8], new: &[u8], prng: &mut Prng) -> Block {
    let mut bytes = new.to_vec();
    for (torn, kept) in bytes.chunks_mut(SECTOR_BYTES).zip(old.chunks(SECTOR_BYTES)) {
        if prng.chance(500) {
            torn.copy_from_slice(kept);
        }
    }
    Rc::from(bytes)
}

/// Sectors of a file are aligned to the file, not to the write.
fn tear_into(file: &mut Vec<u8>, write: &Write, fate: Fate, prng: &mut Prng) {
    if fate == Fate::Lost {
        return;
    }
    let mut start = 0;
    while start < write.bytes.len() {
        let place = write.offset + start;
        let length = (SECTOR_BYTES - place % SECTOR_BYTES).min(write.bytes.len() - start);
        if fate == Fate::Kept || prng.chance(500) {
            overwrite(file, place, &write.bytes[start..start + length]);
        }
        start += length;
    }
}

impl LocalDisk for Disk {
    fn segments(&self) -> Result<Vec<u64>, String> {
        Ok(self
            .segments
            .iter()
            .filter(|(_, segment)| segment.unlinked.is_none())
            .map(|(number, _)| *number)
            .collect())
    }

    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String> {
        Ok(self.segments.get(&segment).ok_or("no such segment")?.view())
    }

    fn cache_is_new(&self) -> bool {
        self.cache_is_new
    }

    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        match self.is_readable(slot) {
            true => Ok(BlockSum::of(&self.read_slot(slot))),
            false => Err("EIO".to_string()),
        }
    }
}
