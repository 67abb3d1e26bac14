//! The local disk: the cache file's slots and the journal's segments, each as what is durable and what was written
//! since. A crash decides what becomes of the latter.
//!
//! | event        | writes that completed           | writes under way                 | unlinked segments |
//! |--------------|---------------------------------|----------------------------------|-------------------|
//! | process kill | stay                            | kept, lost or torn, each by lot  | stay unlinked     |
//! | power loss   | kept, lost or torn, each by lot | likewise                         | may be back       |
//! | failed sync  | written, or kept as if it were  | not touched                      | not touched       |
//!
//! A write is torn at sectors of 512 bytes, in any pattern. What a failed sync did not write stays in memory, clean: it
//! is read until it is dropped ([`Disk::drop_pages`]) or a power loss comes, and no later sync writes it.

use crate::faults::contents::Block;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use tombolo_base::{BLOCK_BYTES, BlockSum, Lcbn, Prng, Pvbn};
use tombolo_core::cache_header::{CacheHeader, Mark};
use tombolo_core::record::{Batch, SegmentHeader};
use tombolo_core::recovery::LocalDisk;
use tombolo_core::{JournalMark, Lsn};

const SECTOR_BYTES: usize = 512;

#[derive(Debug, Default)]
struct Slot {
    durable: Option<Block>,
    /// Written since, with the order of their completion.
    pending: Vec<(u64, Block)>,
    /// In memory only: what a failed sync did not write.
    clean_but_wrong: Option<Block>,
}

impl Slot {
    fn view(&self) -> Option<&Block> {
        let pending = self.pending.last().map(|(_, block)| block);
        pending.or(self.clean_but_wrong.as_ref()).or(self.durable.as_ref())
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
    clean_but_wrong: Vec<Write>,
    unlinked: Option<u64>,
}

impl Segment {
    fn view(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for write in self.clean_but_wrong.iter().chain(&self.pending) {
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
    /// Of the state directory; in the cache file's header.
    identity: u64,
    has_cache: bool,
    /// Slots that cannot be read: until they are written, or for ever, nor written then.
    failed: BTreeMap<u32, bool>,
    /// Slots whose bytes were altered since they were last written.
    rotten: BTreeSet<u32>,
    /// How long a segment is made, durably, before it gets its name.
    allocated_bytes: usize,
    durable_mark: Mark,
    /// Written since, with the order of their completion.
    pending_marks: Vec<(u64, Mark)>,
    /// What the file beside the cache file notes of the journal, which is never synced.
    noted_beside: JournalMark,
    notes: u64,
    older_copy: Option<CacheCopy>,
}

/// Notes between two copies of the cache file.
const NOTES_BETWEEN_COPIES: u64 = 5;

/// The cache file as it was some time ago.
#[derive(Debug)]
pub struct CacheCopy {
    pub mark: Mark,
    slots: Vec<Option<Block>>,
}

impl CacheCopy {
    pub fn sum_slot(&self, slot: Lcbn) -> BlockSum {
        let zeroes = [0; BLOCK_BYTES];
        BlockSum::of(self.slots[slot.0 as usize].as_deref().unwrap_or(&zeroes))
    }
}

impl Disk {
    pub fn new(identity: u64, slot_count: u32) -> Self {
        Self {
            slots: (0..slot_count).map(|_| Slot::default()).collect(),
            segments: BTreeMap::new(),
            order: 0,
            identity,
            has_cache: true,
            failed: BTreeMap::new(),
            rotten: BTreeSet::new(),
            allocated_bytes: 0,
            durable_mark: Mark::default(),
            pending_marks: Vec::new(),
            noted_beside: JournalMark::default(),
            notes: 0,
            older_copy: None,
        }
    }

    /// In the cache file's header.
    pub fn note(&mut self, journal: JournalMark) {
        let mark = self.mark();
        if journal.lsn > self.noted_beside.lsn {
            self.noted_beside = journal;
        }
        self.notes += 1;
        if self.notes.is_multiple_of(NOTES_BETWEEN_COPIES) {
            self.older_copy = Some(CacheCopy {
                mark,
                slots: self.slots.iter().map(|slot| slot.view().cloned()).collect(),
            });
        }
        if journal.lsn > mark.journal.lsn {
            self.write_mark(Mark { journal, ..mark });
        }
    }

    pub fn note_pvbn(&mut self, next: Pvbn) {
        let next_pvbn = next.0;
        let mark = Mark {
            next_pvbn,
            ..self.mark()
        };
        self.write_mark(mark);
    }

    fn write_mark(&mut self, mark: Mark) {
        self.order += 1;
        self.pending_marks.push((self.order, mark));
    }

    /// Segments are made this long from now on.
    pub fn set_allocated_bytes(&mut self, bytes: u64) {
        self.allocated_bytes = bytes as usize;
    }

    /// Recovery gave up what is at and behind `lsn`: no batch of it can be found.
    pub fn check_end(&self, lsn: u64) {
        for (number, segment) in &self.segments {
            let bytes = segment.view();
            if segment.unlinked.is_some() || SegmentHeader::decode(&bytes).is_err() {
                continue;
            }
            let places = (0..bytes.len()).filter(|place| bytes[*place..].starts_with(b"TJB1"));
            for place in places {
                if let Ok((batch, _)) = Batch::decode(&bytes[place..], self.identity) {
                    assert!(
                        batch.lsn.0 < lsn,
                        "segment {number} still has the batch at {:?}",
                        batch.lsn
                    );
                }
            }
        }
    }

    /// Somebody has made it, and not of this moment.
    pub fn older_copy(&self) -> Option<&CacheCopy> {
        self.older_copy.as_ref()
    }

    pub fn slot_count(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn identity(&self) -> u64 {
        self.identity
    }

    fn mark(&self) -> Mark {
        self.pending_marks.last().map_or(self.durable_mark, |(_, mark)| *mark)
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

    /// It can be read, and holds what was written.
    pub fn is_whole(&self, slot: Lcbn) -> bool {
        self.is_readable(slot) && !self.rotten.contains(&slot.0)
    }

    pub fn is_writable(&self, slot: Lcbn) -> bool {
        self.failed.get(&slot.0) != Some(&true)
    }

    pub fn write_slot(&mut self, slot: Lcbn, block: Block) {
        self.order += 1;
        self.failed.retain(|failed, for_ever| *failed != slot.0 || *for_ever);
        self.rotten.remove(&slot.0);
        self.slots[slot.0 as usize].pending.push((self.order, block));
    }

    fn made(&mut self, segment: u64) -> &mut Segment {
        let allocated = self.allocated_bytes;
        self.segments.entry(segment).or_insert_with(|| Segment {
            durable: vec![0; allocated],
            ..Segment::default()
        })
    }

    pub fn write_segment(&mut self, segment: u64, offset: u64, bytes: &[u8]) {
        self.order += 1;
        let order = self.order;
        self.made(segment).pending.push(Write {
            order,
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

    pub fn zero_segment(&mut self, segment: u64, offset: u64) {
        if let Some(found) = self.segments.get(&segment) {
            let zeroes = vec![0; found.view().len() - offset as usize];
            self.write_segment(segment, offset, &zeroes);
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
                slot.clean_but_wrong = None;
            }
        }
        let count = self.pending_marks.partition_point(|(order, _)| *order <= upto);
        if let Some((_, mark)) = self.pending_marks.drain(..count).next_back() {
            self.durable_mark = mark;
        }
    }

    /// Makes all marks durable, and nothing else that need not be.
    pub fn sync_marks(&mut self) {
        if let Some((_, mark)) = self.pending_marks.drain(..).next_back() {
            self.durable_mark = mark;
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

    /// A sync failed: some of what it was to write is on the medium, the rest is clean in memory nevertheless.
    pub fn fail_sync(&mut self, upto: u64, prng: &mut Prng) {
        for slot in &mut self.slots {
            let count = slot.pending.partition_point(|(order, _)| *order <= upto);
            if let Some((_, block)) = slot.pending.drain(..count).next_back() {
                match prng.chance(500) {
                    true => (slot.durable, slot.clean_but_wrong) = (Some(block), None),
                    false => slot.clean_but_wrong = Some(block),
                }
            }
        }
        for segment in self.segments.values_mut() {
            let count = segment.pending.partition_point(|write| write.order <= upto);
            for write in segment.pending.drain(..count) {
                match prng.chance(500) {
                    true => overwrite(&mut segment.durable, write.offset, &write.bytes),
                    false => segment.clean_but_wrong.push(write),
                }
            }
        }
    }

    /// What memory holds of the medium is read from there again.
    pub fn drop_pages(&mut self) {
        for slot in &mut self.slots {
            slot.clean_but_wrong = None;
        }
        for segment in self.segments.values_mut() {
            segment.clean_but_wrong.clear();
        }
    }

    /// What is not durable survives whole, in part or not at all. Three kinds of luck, so that runs see the pure
    /// cases too.
    pub fn power_loss(&mut self, prng: &mut Prng) {
        let luck = prng.below(4);
        self.drop_pages();
        if luck == 0 {
            self.noted_beside = JournalMark::default();
        }
        for (_, mark) in std::mem::take(&mut self.pending_marks) {
            // Two places are written in turn, so a torn one leaves the one before.
            if survival(luck, prng) == Survival::Kept {
                self.durable_mark = mark;
            }
        }
        for slot in &mut self.slots {
            for (_, block) in std::mem::take(&mut slot.pending) {
                let old = slot.durable.clone().unwrap_or_else(|| Rc::from(&[0; BLOCK_BYTES][..]));
                slot.durable = match survival(luck, prng) {
                    Survival::Kept => Some(block),
                    Survival::Lost => slot.durable.take(),
                    Survival::Torn => Some(tear(&old, &block, prng)),
                };
            }
        }
        self.segments.retain(|_, segment| {
            let name_survives = segment.name_is_durable || survival(luck, prng) == Survival::Kept;
            let is_back = segment.unlinked.is_none() || prng.chance(500);
            segment.unlinked = None;
            for write in std::mem::take(&mut segment.pending) {
                tear_into(&mut segment.durable, &write, survival(luck, prng), prng);
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

    /// A bit flips, a sector is zeroed, or a write to `other` has gone here, in memory and on the medium.
    pub fn rot_slot(&mut self, slot: Lcbn, other: Lcbn, prng: &mut Prng) {
        self.rotten.insert(slot.0);
        let before = self.read_slot(slot);
        let mut bytes = before.to_vec();
        match prng.below(3) {
            0 => bytes.copy_from_slice(&self.read_slot(other)),
            1 => {
                let sector = prng.below((BLOCK_BYTES / SECTOR_BYTES) as u64) as usize;
                bytes[sector * SECTOR_BYTES..][..SECTOR_BYTES].fill(0);
            }
            _ => {}
        }
        if bytes == before[..] {
            bytes[prng.below(BLOCK_BYTES as u64) as usize] ^= 1 << prng.below(8);
        }
        let found = &mut self.slots[slot.0 as usize];
        found.pending.clear();
        found.clean_but_wrong = None;
        found.durable = Some(Rc::from(bytes));
    }

    /// The cache file is gone.
    pub fn lose_cache(&mut self) {
        for slot in &mut self.slots {
            *slot = Slot::default();
        }
        self.failed.clear();
        self.rotten.clear();
        self.has_cache = false;
        self.durable_mark = Mark::default();
        self.pending_marks.clear();
    }

    /// All of them.
    pub fn lose_segments(&mut self) {
        self.segments.clear();
    }

    /// Of a cache file that is made in place of one that was lost.
    pub fn set_mark(&mut self, mark: Mark) {
        self.durable_mark = mark;
        self.pending_marks.clear();
    }

    /// Of a cache file of which it is accepted what it lacks.
    pub fn raise_mark(&mut self, lsn: Lsn) {
        self.durable_mark.journal.lsn = lsn;
        self.pending_marks.clear();
    }

    /// Some slot holds what nobody has written to it.
    pub fn is_rotten(&self) -> bool {
        !self.rotten.is_empty()
    }

    /// An empty cache file, if there is none.
    pub fn make_cache(&mut self) {
        self.has_cache = true;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Survival {
    Kept,
    Lost,
    Torn,
}

fn survival(luck: u64, prng: &mut Prng) -> Survival {
    match (luck, prng.below(3)) {
        (0, _) => Survival::Lost,
        (1, 0 | 1) | (_, 0) => Survival::Kept,
        (_, 1) => Survival::Lost,
        _ => Survival::Torn,
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
fn tear_into(file: &mut Vec<u8>, write: &Write, survival: Survival, prng: &mut Prng) {
    if survival == Survival::Lost {
        return;
    }
    let mut start = 0;
    while start < write.bytes.len() {
        let place = write.offset + start;
        let length = (SECTOR_BYTES - place % SECTOR_BYTES).min(write.bytes.len() - start);
        if survival == Survival::Kept || prng.chance(500) {
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

    fn cache_header(&self) -> Result<Option<Vec<u8>>, String> {
        let header = CacheHeader {
            identity: self.identity,
            slot_count: self.slots.len() as u32,
            mark: self.mark(),
        };
        Ok(self.has_cache.then(|| header.encode()))
    }

    fn noted_beside(&self, _identity: u64) -> JournalMark {
        self.noted_beside
    }

    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        match self.is_readable(slot) {
            true => Ok(BlockSum::of(&self.read_slot(slot))),
            false => Err("EIO".to_string()),
        }
    }
}
