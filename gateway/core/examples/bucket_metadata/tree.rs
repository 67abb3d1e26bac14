//! A copy-on-write B-tree of immutable nodes whose subtrees may have segments: changes that lie in front of a node, in
//! immutable pieces of their own, until there are enough of them to be worth rewriting the node. Without segments it is the
//! plain copy-on-write B-tree.

use crate::Failure;
use crate::codec::{Pointer, Reader, Record, RecordCodec, find, merge, pointer, put_pointer, put_varint, range};
use crate::lifetimes::DeadLists;
use crate::store::Store;
use crate::structure::{Deleted, Read, Structure};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub leaf_bytes: usize,
    /// Children of an interior node.
    pub fanout: usize,
    /// Segments before one subtree; none makes the plain tree.
    pub segments_max: usize,
    /// Bytes of segments before a leaf.
    pub leaf_pending_bytes: usize,
    /// Bytes of segments before an interior node.
    pub node_pending_bytes: usize,
}

impl Shape {
    /// Nodes of one size, changes go to the leaves at once.
    pub fn plain(node_bytes: usize) -> Self {
        Self {
            leaf_bytes: node_bytes,
            // An entry has a key, a pointer and a count: 32 to 36 bytes.
            fanout: node_bytes / 36,
            segments_max: 0,
            leaf_pending_bytes: 0,
            node_pending_bytes: 0,
        }
    }
}

#[derive(Clone, Debug)]
struct Subtree {
    first: u64,
    node: Pointer,
    /// Oldest first.
    segments: Vec<Pointer>,
}

impl Subtree {
    fn pending_bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.bytes as usize).sum()
    }
}

#[derive(Clone)]
struct Root {
    subtree: Subtree,
    /// Zero: the root is a leaf.
    height: u32,
}

pub struct Tree {
    shape: Shape,
    codec: RecordCodec,
    root: Root,
    snapshots: BTreeMap<u32, Root>,
    dead: DeadLists<Pointer>,
    epoch: u32,
    /// In this checkpoint.
    freed: Vec<Pointer>,
    /// Of the dead lists; they go with the last snapshot.
    dead_list_pieces: Vec<Pointer>,
}

/// Leaves of a bulk load, in quarters, as random insertion would leave them.
const LOAD_QUARTERS: usize = 3;

impl Tree {
    pub fn load(
        store: &mut Store,
        shape: Shape,
        codec: RecordCodec,
        records: impl Iterator<Item = Record>,
    ) -> Result<Self, Failure> {
        let mut level = Vec::new();
        let mut pending = Vec::new();
        let target = shape.leaf_bytes * LOAD_QUARTERS / 4;
        // Records of a load are much alike, so the leaf's size is judged by a few.
        let mut batch = 0;
        for record in records {
            pending.push(record);
            if pending.len() >= batch.max(1) {
                let bytes: usize = codec.sizes(&pending).sum();
                if bytes >= target {
                    level.push(write_leaf(store, codec, &pending, 0)?);
                    batch = pending.len();
                    pending.clear();
                } else {
                    batch = pending.len() * target / bytes.max(1) + 1;
                }
            }
        }
        if !pending.is_empty() || level.is_empty() {
            level.push(write_leaf(store, codec, &pending, 0)?);
        }
        let mut height = 0;
        while level.len() > 1 {
            height += 1;
            let fanout = (shape.fanout * LOAD_QUARTERS / 4).max(2);
            let nodes = level.chunks(fanout).map(|children| write_interior(store, children, 0));
            level = nodes.collect::<Result<_, _>>()?;
        }
        let mut subtree = level.remove(0);
        subtree.first = 0;
        Ok(Self {
            shape,
            codec,
            root: Root { subtree, height },
            snapshots: BTreeMap::new(),
            dead: DeadLists::default(),
            epoch: 0,
            freed: Vec::new(),
            dead_list_pieces: Vec::new(),
        })
    }

    /// Replaces a subtree by those that hold `changes` too.
    fn apply(
        &mut self,
        store: &mut Store,
        mut subtree: Subtree,
        height: u32,
        changes: Vec<Record>,
    ) -> Result<Vec<Subtree>, Failure> {
        if self.postpone(store, &mut subtree, height, &changes)? {
            return Ok(vec![subtree]);
        }
        let changes = self.take_segments(store, &mut subtree, &changes)?;
        let bytes = store.read(&subtree.node)?;
        self.freed.push(subtree.node);
        if height == 0 {
            let merged = self.joined(merge(&self.codec.decode(&bytes)?, &changes));
            return self.write_leaves(store, subtree.first, &merged);
        }
        let children = decode_interior(&bytes)?;
        let mut replaced = Vec::with_capacity(children.len() + 1);
        let mut borders = children.iter().skip(1).map(|child| child.first).collect::<Vec<_>>();
        borders.push(u64::MAX);
        let mut low = subtree.first;
        for (child, high) in children.into_iter().zip(borders) {
            let part = range(&changes, low, high);
            low = high;
            if part.is_empty() {
                replaced.push(child);
            } else {
                replaced.extend(self.apply(store, child, height - 1, part)?);
            }
        }
        let pieces = replaced.len().div_ceil(self.shape.fanout);
        let size = replaced.len().div_ceil(pieces);
        let mut nodes = Vec::with_capacity(pieces);
        for chunk in replaced.chunks(size) {
            nodes.push(write_interior(store, chunk, self.epoch)?);
        }
        nodes[0].first = subtree.first;
        Ok(nodes)
    }

    /// Lays changes in front of a subtree, unless there are enough to rewrite its node.
    fn postpone(
        &mut self,
        store: &mut Store,
        subtree: &mut Subtree,
        height: u32,
        changes: &[Record],
    ) -> Result<bool, Failure> {
        let limit = if height == 0 {
            self.shape.leaf_pending_bytes
        } else {
            self.shape.node_pending_bytes
        };
        let bytes: usize = self.codec.sizes(changes).sum();
        if self.shape.segments_max == 0 || subtree.pending_bytes() + bytes > limit {
            return Ok(false);
        }
        let mut segment = None;
        if subtree.segments.len() == self.shape.segments_max {
            // Many small ones: joined, since that costs less than the node.
            segment = Some(self.take_segments(store, subtree, changes)?);
        }
        let encoded = self.codec.encode(segment.as_deref().unwrap_or(changes));
        subtree.segments.push(store.write(encoded, self.epoch)?);
        Ok(true)
    }

    /// The subtree's segments and, over them, `changes`.
    fn take_segments(
        &mut self,
        store: &mut Store,
        subtree: &mut Subtree,
        changes: &[Record],
    ) -> Result<Vec<Record>, Failure> {
        let mut merged = Vec::new();
        for segment in std::mem::take(&mut subtree.segments) {
            merged = merge(&merged, &self.codec.decode(&store.read(&segment)?)?);
            self.freed.push(segment);
        }
        Ok(merge(&merged, changes))
    }

    /// Runs that continue each other become one.
    fn joined(&self, records: Vec<Record>) -> Vec<Record> {
        if self.codec.payload_bytes > 0 {
            return records;
        }
        let mut joined: Vec<Record> = Vec::with_capacity(records.len());
        for record in records {
            match joined.last_mut() {
                Some(last) if last.end() == record.start && last.value + u64::from(last.length) == record.value => {
                    last.length += record.length;
                }
                _ => joined.push(record),
            }
        }
        joined
    }

    fn write_leaves(&self, store: &mut Store, first: u64, records: &[Record]) -> Result<Vec<Subtree>, Failure> {
        let bytes: usize = self.codec.sizes(records).sum();
        let pieces = bytes.div_ceil(self.shape.leaf_bytes).max(1);
        let target = bytes.div_ceil(pieces);
        let mut leaves = Vec::with_capacity(pieces);
        let (mut from, mut filled) = (0, 0);
        for (index, size) in self.codec.sizes(records).enumerate() {
            filled += size;
            if filled >= target && leaves.len() + 1 < pieces {
                leaves.push(write_leaf(store, self.codec, &records[from..=index], self.epoch)?);
                (from, filled) = (index + 1, 0);
            }
        }
        leaves.push(write_leaf(store, self.codec, &records[from..], self.epoch)?);
        leaves[0].first = first;
        Ok(leaves)
    }

    fn root_at(&self, snapshot: Option<u32>) -> Result<&Root, Failure> {
        match snapshot {
            None => Ok(&self.root),
            Some(epoch) => Ok(self.snapshots.get(&epoch).ok_or("no such snapshot")?),
        }
    }
}

impl Structure for Tree {
    fn checkpoint(&mut self, store: &mut Store, epoch: u32, changes: Vec<Record>) -> Result<(), Failure> {
        self.epoch = epoch;
        let root = self.root.clone();
        let mut level = self.apply(store, root.subtree, root.height, changes)?;
        let mut height = root.height;
        while level.len() > 1 {
            height += 1;
            let size = level.len().div_ceil(level.len().div_ceil(self.shape.fanout));
            let nodes = level
                .chunks(size)
                .map(|children| write_interior(store, children, epoch));
            level = nodes.collect::<Result<_, _>>()?;
        }
        let subtree = level.remove(0);
        self.root = Root { subtree, height };
        let mut dead_bytes = 0;
        for node in std::mem::take(&mut self.freed) {
            let first = self.dead.first_holder_of(node.birth);
            match self.dead.died(node, first) {
                Some(node) => store.free(&node)?,
                // Object, offset and length; who reads a dead list reads no node by it.
                None => dead_bytes += 10,
            }
        }
        if dead_bytes > 0 {
            self.dead_list_pieces.push(store.write(vec![0; dead_bytes], epoch)?);
        }
        store.checkpoint(encoded_subtrees(std::slice::from_ref(&self.root.subtree)).len() as u64);
        Ok(())
    }

    fn snapshot(&mut self, epoch: u32) {
        self.snapshots.insert(epoch, self.root.clone());
        self.dead.snapshot(epoch);
    }

    fn delete_snapshot(&mut self, store: &mut Store, epoch: u32) -> Result<Deleted, Failure> {
        self.snapshots.remove(&epoch).ok_or("no such snapshot")?;
        let freed = self.dead.delete(epoch);
        let mut deleted = Deleted::default();
        for node in &freed.items {
            store.free(node)?;
            deleted.nodes += 1;
            deleted.bytes += u64::from(node.bytes);
        }
        deleted.steps = freed.lists;
        if self.snapshots.is_empty() {
            for piece in std::mem::take(&mut self.dead_list_pieces) {
                store.free(&piece)?;
            }
        }
        Ok(deleted)
    }

    fn read(&self, store: &Store, snapshot: Option<u32>, key: u64) -> Result<Read, Failure> {
        let root = self.root_at(snapshot)?;
        let mut subtree = root.subtree.clone();
        let mut height = root.height;
        let mut read = Read::default();
        loop {
            // A subtree's node and segments are asked for together: all are named where it is.
            read.round_trips += 1;
            for segment in subtree.segments.iter().chain([&subtree.node]) {
                read.gets += 1;
                read.bytes += u64::from(segment.bytes);
            }
            for segment in subtree.segments.iter().rev() {
                if let Some(value) = find(&self.codec.decode(&store.read(segment)?)?, key) {
                    read.value = Some(value);
                    return Ok(read);
                }
            }
            let bytes = store.read(&subtree.node)?;
            if height == 0 {
                read.value = find(&self.codec.decode(&bytes)?, key);
                return Ok(read);
            }
            let children = decode_interior(&bytes)?;
            let after = children.partition_point(|child| child.first <= key);
            subtree = children[after.saturating_sub(1)].clone();
            height -= 1;
        }
    }

    fn reachable(&self, store: &Store) -> Result<u64, Failure> {
        let mut names = std::collections::BTreeSet::new();
        for root in self.snapshots.values().chain([&self.root]) {
            collect(store, &root.subtree, root.height, &mut names)?;
        }
        Ok((names.len() + self.dead_list_pieces.len()) as u64)
    }

    fn shape(&self) -> String {
        format!("{} levels", self.root.height + 1)
    }
}

fn collect(
    store: &Store,
    subtree: &Subtree,
    height: u32,
    names: &mut std::collections::BTreeSet<(u32, u32)>,
) -> Result<(), Failure> {
    for segment in &subtree.segments {
        names.insert((segment.object, segment.offset));
    }
    if !names.insert((subtree.node.object, subtree.node.offset)) || height == 0 {
        return Ok(());
    }
    for child in decode_interior(&store.read(&subtree.node)?)? {
        collect(store, &child, height - 1, names)?;
    }
    Ok(())
}

fn write_leaf(store: &mut Store, codec: RecordCodec, records: &[Record], birth: u32) -> Result<Subtree, Failure> {
    Ok(Subtree {
        first: records.first().map_or(0, |record| record.start),
        node: store.write(codec.encode(records), birth)?,
        segments: Vec::new(),
    })
}

fn write_interior(store: &mut Store, children: &[Subtree], birth: u32) -> Result<Subtree, Failure> {
    Ok(Subtree {
        first: children[0].first,
        node: store.write(encoded_subtrees(children), birth)?,
        segments: Vec::new(),
    })
}

fn encoded_subtrees(children: &[Subtree]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, children.len() as u64);
    let mut before = 0;
    for child in children {
        put_varint(&mut bytes, child.first - before);
        before = child.first;
        put_pointer(&mut bytes, &child.node);
        put_varint(&mut bytes, child.segments.len() as u64);
        for segment in &child.segments {
            put_pointer(&mut bytes, segment);
        }
    }
    bytes
}

fn decode_interior(bytes: &[u8]) -> Result<Vec<Subtree>, Failure> {
    let mut reader = Reader(bytes);
    let count = reader.varint()?;
    let mut children = Vec::with_capacity(count as usize);
    let mut first = 0;
    for _ in 0..count {
        first += reader.varint()?;
        let node = pointer(&mut reader)?;
        let segments = (0..reader.varint()?).map(|_| pointer(&mut reader));
        children.push(Subtree {
            first,
            node,
            segments: segments.collect::<Result<_, _>>()?,
        });
    }
    Ok(children)
}
