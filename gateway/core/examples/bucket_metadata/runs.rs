//! Sorted runs: each checkpoint adds one, merges keep them few. Beneath snapshots each record has a version, the checkpoint
//! that wrote it, and a merge drops those that neither the live tree nor a snapshot reads.

use crate::Failure;
use crate::codec::{Pointer, Record, RecordCodec, find, merge, put_pointer, put_varint};
use crate::store::Store;
use crate::structure::{Deleted, Read, Structure};
use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};

const BLOCK_BYTES: usize = 16 << 10;
/// Blocks that one piece of a run's index names.
const INDEX_BLOCKS: usize = 1024;
/// Blocks of the largest run whose key range is merged at a time, which bounds memory.
const MERGE_BLOCKS: usize = 64;
/// Runs of a tier before they are merged, and of level 0.
const TIER_RUNS: usize = 4;
const LEVEL_RATIO: u64 = 10;
/// Of a run, in the root: number, tier, sizes, and of each piece of its index.
const RUN_BYTES: u64 = 32;
const INDEX_POINTER_BYTES: u64 = 36;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// Four runs of a tier become one of the next; all become one when the young ones are as large as the oldest.
    Tiered,
    /// One run a level, each level ten times the one above.
    Levelled,
}

struct Block {
    first: u64,
    pointer: Pointer,
}

struct Run {
    tier: u32,
    blocks: Vec<Block>,
    index: Vec<Pointer>,
    bytes: u64,
}

pub struct Runs {
    compaction: Compaction,
    codec: RecordCodec,
    /// Oldest first.
    runs: Vec<Run>,
    snapshots: BTreeSet<u32>,
    /// Bytes of the first run that a checkpoint made, which the levels are sized by.
    unit_bytes: u64,
    epoch: u32,
}

struct Cursor<'a> {
    blocks: &'a [Block],
    next: usize,
    rest: VecDeque<Record>,
}

impl Cursor<'_> {
    /// Everything below `high` that was not taken yet.
    fn take(&mut self, store: &Store, codec: RecordCodec, high: u64) -> Result<Vec<Record>, Failure> {
        while let Some(block) = self.blocks.get(self.next)
            && block.first < high
        {
            self.rest.extend(codec.decode(&store.read(&block.pointer)?)?);
            self.next += 1;
        }
        let count = self.rest.partition_point(|record| record.end() <= high);
        let mut taken: Vec<Record> = self.rest.drain(..count).collect();
        if let Some(record) = self.rest.front_mut()
            && record.start < high
        {
            taken.push(record.until(high));
            *record = record.from(high);
        }
        Ok(taken)
    }
}

/// Makes blocks of a stream of records.
struct Writer {
    codec: RecordCodec,
    birth: u32,
    pending: Vec<Record>,
    blocks: Vec<Block>,
}

impl Writer {
    fn new(codec: RecordCodec, birth: u32) -> Self {
        Self {
            codec,
            birth,
            pending: Vec::new(),
            blocks: Vec::new(),
        }
    }

    fn push(&mut self, store: &mut Store, records: &[Record]) -> Result<(), Failure> {
        self.pending.extend_from_slice(records);
        let (mut from, mut filled) = (0, 0);
        let sizes: Vec<usize> = self.codec.sizes(&self.pending).collect();
        for (index, size) in sizes.into_iter().enumerate() {
            filled += size;
            if filled >= BLOCK_BYTES {
                self.write_block(store, from, index + 1)?;
                (from, filled) = (index + 1, 0);
            }
        }
        self.pending.drain(..from);
        Ok(())
    }

    fn write_block(&mut self, store: &mut Store, from: usize, to: usize) -> Result<(), Failure> {
        let records = &self.pending[from..to];
        let pointer = store.write(self.codec.encode(records), self.birth)?;
        let first = records[0].start;
        self.blocks.push(Block { first, pointer });
        Ok(())
    }

    fn finish(mut self, store: &mut Store, tier: u32) -> Result<Run, Failure> {
        if !self.pending.is_empty() {
            self.write_block(store, 0, self.pending.len())?;
        }
        let mut index = Vec::new();
        for blocks in self.blocks.chunks(INDEX_BLOCKS) {
            let mut bytes = Vec::new();
            let mut before = 0;
            for block in blocks {
                put_varint(&mut bytes, block.first - before);
                before = block.first;
                put_pointer(&mut bytes, &block.pointer);
            }
            index.push(store.write(bytes, self.birth)?);
        }
        let nodes = self.blocks.iter().map(|block| &block.pointer).chain(&index);
        Ok(Run {
            tier,
            bytes: nodes.map(|node| u64::from(node.bytes)).sum(),
            blocks: self.blocks,
            index,
        })
    }
}

impl Runs {
    pub fn load(
        store: &mut Store,
        compaction: Compaction,
        codec: RecordCodec,
        records: impl Iterator<Item = Record>,
    ) -> Result<Self, Failure> {
        let mut writer = Writer::new(codec, 0);
        let mut chunk = Vec::new();
        for record in records {
            chunk.push(record);
            if chunk.len() == 1 << 16 {
                writer.push(store, &chunk)?;
                chunk.clear();
            }
        }
        writer.push(store, &chunk)?;
        Ok(Self {
            compaction,
            codec,
            runs: vec![writer.finish(store, u32::MAX)?],
            snapshots: BTreeSet::new(),
            unit_bytes: 0,
            epoch: 0,
        })
    }

    /// Makes one run of those from `from` to below `to`.
    fn merge_runs(&mut self, store: &mut Store, from: usize, to: usize, tier: u32) -> Result<(), Failure> {
        let inputs: Vec<Run> = self.runs.drain(from..to).collect();
        let largest = inputs
            .iter()
            .max_by_key(|run| run.blocks.len())
            .ok_or("no runs to merge")?;
        let borders = largest
            .blocks
            .iter()
            .step_by(MERGE_BLOCKS)
            .skip(1)
            .map(|block| block.first);
        let borders: Vec<u64> = borders.chain([u64::MAX]).collect();
        let mut cursors: Vec<Cursor> = inputs
            .iter()
            .map(|run| Cursor {
                blocks: &run.blocks,
                next: 0,
                rest: VecDeque::new(),
            })
            .collect();
        let mut writer = Writer::new(self.codec, self.epoch);
        for high in borders {
            let mut parts = Vec::with_capacity(cursors.len());
            for cursor in &mut cursors {
                parts.push(cursor.take(store, self.codec, high)?);
            }
            let merged = if self.codec.has_versions {
                self.visible(parts.concat())
            } else {
                parts.into_iter().fold(Vec::new(), |older, newer| merge(&older, &newer))
            };
            writer.push(store, &merged)?;
        }
        let run = writer.finish(store, tier)?;
        self.runs.insert(from, run);
        for node in inputs
            .iter()
            .flat_map(|run| run.blocks.iter().map(|block| &block.pointer).chain(&run.index))
        {
            store.free(node)?;
        }
        Ok(())
    }

    /// The versions that the live tree or a snapshot reads.
    fn visible(&self, mut records: Vec<Record>) -> Vec<Record> {
        records.sort_by_key(|record| (record.start, Reverse(record.version)));
        let mut newer: Option<Record> = None;
        records.retain(|record| {
            let replaced = newer.replace(*record).filter(|newer| newer.start == record.start);
            replaced.is_none_or(|newer| self.snapshots.range(record.version..newer.version).next().is_some())
        });
        records
    }

    fn compact(&mut self, store: &mut Store) -> Result<(), Failure> {
        match self.compaction {
            Compaction::Tiered => self.compact_tiers(store),
            Compaction::Levelled => self.compact_levels(store),
        }
    }

    fn compact_tiers(&mut self, store: &mut Store) -> Result<(), Failure> {
        loop {
            let young: u64 = self.runs.iter().skip(1).map(|run| run.bytes).sum();
            if self.runs.len() > 1 && young >= self.runs[0].bytes {
                return self.merge_all(store);
            }
            let Some(tier) = self.runs.last().map(|run| run.tier) else {
                return Ok(());
            };
            let first = self.runs.iter().position(|run| run.tier <= tier).unwrap_or_default();
            if self.runs.len() - first < TIER_RUNS {
                return Ok(());
            }
            self.merge_runs(store, first, self.runs.len(), tier + 1)?;
        }
    }

    fn capacity(&self, level: u32) -> u64 {
        self.unit_bytes * TIER_RUNS as u64 * LEVEL_RATIO.saturating_pow(level - 1)
    }

    fn compact_levels(&mut self, store: &mut Store) -> Result<(), Failure> {
        if self.runs[0].tier == u32::MAX {
            let last = (1..64).find(|&level| self.capacity(level) >= self.runs[0].bytes);
            self.runs[0].tier = last.unwrap_or(1);
        }
        let last = self.runs[0].tier;
        if self.runs.iter().filter(|run| run.tier == 0).count() < TIER_RUNS {
            return Ok(());
        }
        let mut level = 0;
        loop {
            // This level's runs, and that of the next, if it has one.
            let to = self
                .runs
                .iter()
                .rposition(|run| run.tier == level)
                .map_or(0, |at| at + 1);
            let from = self
                .runs
                .iter()
                .position(|run| run.tier <= level + 1)
                .unwrap_or_default();
            self.merge_runs(store, from, to, level + 1)?;
            level += 1;
            if level == last || self.runs[from].bytes <= self.capacity(level) {
                return Ok(());
            }
        }
    }

    pub fn merge_all(&mut self, store: &mut Store) -> Result<(), Failure> {
        let tier = self.runs[0].tier;
        self.merge_runs(store, 0, self.runs.len(), tier)
    }

    fn find(&self, records: &[Record], snapshot: Option<u32>, key: u64) -> Option<u64> {
        if !self.codec.has_versions {
            return find(records, key);
        }
        let snapshot = snapshot.unwrap_or(u32::MAX);
        let from = records.partition_point(|record| record.start < key);
        let versions = records[from..].iter().take_while(|record| record.start == key);
        let mut versions = versions.skip_while(|record| record.version > snapshot);
        versions.next().map(|record| record.value)
    }
}

impl Structure for Runs {
    fn checkpoint(&mut self, store: &mut Store, epoch: u32, mut changes: Vec<Record>) -> Result<(), Failure> {
        self.epoch = epoch;
        for change in &mut changes {
            change.version = epoch;
        }
        let mut writer = Writer::new(self.codec, epoch);
        writer.push(store, &changes)?;
        let run = writer.finish(store, 0)?;
        self.unit_bytes = self.unit_bytes.max(run.bytes);
        self.runs.push(run);
        self.compact(store)?;
        let bytes = self
            .runs
            .iter()
            .map(|run| RUN_BYTES + INDEX_POINTER_BYTES * run.index.len() as u64);
        store.checkpoint(bytes.sum());
        Ok(())
    }

    fn snapshot(&mut self, epoch: u32) {
        self.snapshots.insert(epoch);
    }

    fn delete_snapshot(&mut self, _: &mut Store, epoch: u32) -> Result<Deleted, Failure> {
        self.snapshots.remove(&epoch);
        // Its versions go with the merges that come.
        Ok(Deleted::default())
    }

    fn read(&self, store: &Store, snapshot: Option<u32>, key: u64) -> Result<Read, Failure> {
        let mut read = Read {
            round_trips: 2,
            ..Read::default()
        };
        for run in self.runs.iter().rev() {
            // Versions of one key may go over several blocks.
            let mut block = run.blocks.partition_point(|block| block.first < key).saturating_sub(1);
            let mut is_first = true;
            while let Some(candidate) = run.blocks.get(block).filter(|block| block.first <= key) {
                if is_first {
                    let index = &run.index[block / INDEX_BLOCKS];
                    read.gets += 1;
                    read.bytes += u64::from(index.bytes);
                    is_first = false;
                }
                read.gets += 1;
                read.bytes += u64::from(candidate.pointer.bytes);
                if read.value.is_none() {
                    let records = self.codec.decode(&store.read(&candidate.pointer)?)?;
                    read.value = self.find(&records, snapshot, key);
                }
                block += 1;
                if read.value.is_some() {
                    break;
                }
            }
        }
        Ok(read)
    }

    fn merge_everything(&mut self, store: &mut Store) -> Result<(), Failure> {
        self.merge_all(store)
    }

    fn reachable(&self, _: &Store) -> Result<u64, Failure> {
        Ok(self
            .runs
            .iter()
            .map(|run| (run.blocks.len() + run.index.len()) as u64)
            .sum())
    }

    fn shape(&self) -> String {
        format!("{} runs", self.runs.len())
    }
}
