//! The check that all these tests, and the canaries, go through.

use crate::history::History;
use crate::store::{Name, Store, name};
use crate::subject::{Model, Subject};
use std::collections::BTreeSet;
use tombolo_base::{Reader, Writer};
use tombolo_metadata_tree::{
    Applied, Child, Nodes, Pointer, RecordNode, Root, Scan, Shape, apply, decode_children, decode_records,
    encode_children, encode_records, get, last_below, visit,
};

/// What the check must find, to show that it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A change does not reach the tree.
    LostChange,
    /// A node is written that no root reaches.
    LeakedNode,
    /// A node that nothing reaches any more is not given up.
    ForgottenDeath,
    /// A node is given up that the new root reaches.
    WrongDeath,
    /// A node that an older root reaches is removed.
    EarlyFree,
}

/// What a history came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub height_max: u8,
    pub is_empty_at_end: bool,
    pub nodes_at_end: usize,
}

/// The checkpoint from which on a fault is there.
const FAULTY_CHECKPOINT: usize = 2;

pub fn check<C: Subject>(history: &History<C>, fault: Option<Fault>) -> Result<Seen, String> {
    let mut store = Store::default();
    let mut model = Model::<C>::new();
    let mut root = Root::default();
    let mut kept = Vec::new();
    let mut seen = Seen::default();
    for (index, changes) in history.checkpoints.iter().enumerate() {
        let fault = fault.filter(|_| index >= FAULTY_CHECKPOINT);
        changes.iter().for_each(|change| C::lay(&mut model, change));
        let mut sorted = History::<C>::sorted(changes);
        if fault == Some(Fault::LostChange) {
            sorted.pop();
        }
        let before = reachable::<C>(&mut store, &root)?;
        store.take_written();
        let birth = index as u32 + 1;
        let applied = apply::<C, _>(&mut store, &root, sorted, birth, &history.shape);
        let Applied { root: next, mut died } = applied.map_err(|error| error.to_string())?;
        match fault {
            Some(Fault::LeakedNode) => drop(store.write(vec![1])?),
            Some(Fault::ForgottenDeath) => drop(died.pop()),
            Some(Fault::WrongDeath) => died.extend(root.node.filter(|_| root.node == next.node).or(next.node)),
            Some(Fault::EarlyFree) => died.iter().for_each(|pointer| store.remove(name(pointer))),
            Some(Fault::LostChange) | None => {}
        }
        let written = store.take_written();
        let after = reachable::<C>(&mut store, &next)?;
        compare_nodes(&before, &after, &died, &written, birth)?;
        for name in written {
            check_node::<C>(store.bytes(name).ok_or("a node is gone")?, &history.shape)?;
        }
        root = encoded_and_decoded(&next)?;
        compare_all::<C>(&mut store, &root, &model)?;
        compare_parts::<C>(&mut store, &root, &model, index)?;
        kept.push((root.clone(), model.clone()));
        seen.height_max = seen.height_max.max(root.height);
        seen.is_empty_at_end = root == Root::default();
        seen.nodes_at_end = after.len();
    }
    for (index, (root, model)) in kept.iter().enumerate() {
        compare_all::<C>(&mut store, root, model).map_err(|error| format!("root {index}, at the end: {error}"))?;
    }
    Ok(seen)
}

/// Goes on with a tree of which one node was altered when it was read: all may fail, nothing may panic.
pub fn use_damaged<C: Subject>(history: &History<C>, at: u64) {
    let mut store = Store::default();
    let mut root = Root::default();
    let mut changes = history.checkpoints.iter().map(|changes| History::<C>::sorted(changes));
    let last = changes.next_back().unwrap_or_default();
    for changes in changes {
        let applied = apply::<C, _>(&mut store, &root, changes, 1, &history.shape).unwrap();
        store.take_written();
        root = applied.root;
    }
    store.damage = Some((store.reads + at % 16, at / 16));
    let _ = apply::<C, _>(&mut store.clone(), &root, last, 2, &history.shape);
    let _ = visit::<C, _>(&mut store.clone(), &root, &mut |_| true);
    let _ = scanned::<C>(&mut store.clone(), &root, C::lowest_key(), None);
    let probes = C::probes();
    let _ = last_below::<C, _>(&mut store.clone(), &root, &probes[at as usize % probes.len()]);
    let _ = get::<C, _>(&mut store, &root, &probes[at as usize % probes.len()]);
}

/// All nodes of a tree; each must be named once.
pub fn reachable<C: Subject>(store: &mut Store, root: &Root) -> Result<BTreeSet<Pointer>, String> {
    let mut pointers = BTreeSet::new();
    let mut twice = None;
    let visited = visit::<C, _>(store, root, &mut |pointer| {
        if !pointers.insert(*pointer) {
            twice = Some(*pointer);
        }
        true
    });
    visited.map_err(|error| error.to_string())?;
    match twice {
        Some(pointer) => Err(format!("{pointer:?} is named twice")),
        None => Ok(pointers),
    }
}

/// What is reachable is what was, without what has died, and what has been written.
fn compare_nodes(
    before: &BTreeSet<Pointer>,
    after: &BTreeSet<Pointer>,
    died: &[Pointer],
    written: &[Name],
    birth: u32,
) -> Result<(), String> {
    let names = |pointers: &BTreeSet<Pointer>| pointers.iter().map(name).collect::<BTreeSet<_>>();
    let died_once: BTreeSet<Pointer> = died.iter().copied().collect();
    if died_once.len() != died.len() || !died_once.is_subset(before) {
        return Err(format!("not all of {died:?} were there, each once"));
    }
    let mut expected = names(&before.difference(&died_once).copied().collect());
    expected.extend(written);
    if names(after) != expected {
        return Err(format!("{:?} can be reached, not {expected:?}", names(after)));
    }
    let is_born_right = |pointer: &&Pointer| (pointer.birth == birth) == written.contains(&name(pointer));
    match after.iter().find(|pointer| !is_born_right(pointer)) {
        Some(pointer) => Err(format!("{pointer:?} is said to be born at another checkpoint")),
        None => Ok(()),
    }
}

/// A node has one form, and keeps to the shape.
fn check_node<C: Subject>(bytes: &[u8], shape: &Shape) -> Result<(), String> {
    for node in [RecordNode::Leaf, RecordNode::Segment] {
        if let Ok(records) = decode_records::<C>(node, bytes) {
            let is_same = encode_records::<C>(node, &records) == bytes;
            let single_max = 16;
            let is_small = node == RecordNode::Segment || bytes.len() < 2 * shape.leaf_bytes + 2 * single_max;
            return (is_same && is_small)
                .then_some(())
                .ok_or_else(|| format!("{node:?} {records:?}"));
        }
    }
    let height = bytes[3];
    let children = decode_children::<C>(height, &C::lowest_key(), bytes).map_err(|error| error.to_string())?;
    let has_right_segments = |child: &Child<C::Key>| {
        let limit_bytes = if height == 1 {
            shape.leaf_pending_bytes
        } else {
            shape.node_pending_bytes
        };
        let pointers = &child.segments.pointers;
        let bytes: usize = pointers.iter().map(|segment| segment.bytes as usize).sum();
        let pending_bytes = bytes + child.segments.hidden_bytes as usize;
        pointers.len() <= usize::from(shape.segments_max) && pending_bytes <= limit_bytes
    };
    let is_same = encode_children::<C>(height, &children) == bytes;
    if !is_same || children.len() > shape.fanout.max(2) || !children.iter().all(has_right_segments) {
        return Err(format!("an interior node of height {height}: {children:?}"));
    }
    Ok(())
}

fn encoded_and_decoded(root: &Root) -> Result<Root, String> {
    let mut out = Writer::default();
    root.encode(&mut out);
    out.u8(7);
    let mut reader = Reader::new(&out.0);
    let decoded = Root::decode(&mut reader).map_err(|error| error.to_string())?;
    match (decoded == *root, reader.remaining()) {
        (true, 1) => Ok(decoded),
        _ => Err(format!("{root:?} came back as {decoded:?}")),
    }
}

pub fn scanned<C: Subject>(
    store: &mut Store,
    root: &Root,
    from: C::Key,
    to: Option<C::Key>,
) -> Result<Vec<C::Record>, String> {
    let mut scan = Scan::<C>::new(root, from, to);
    let mut records = Vec::new();
    while let Some(record) = scan.next(store).map_err(|error| error.to_string())? {
        records.push(record);
    }
    Ok(records)
}

fn as_model<C: Subject>(records: &[C::Record]) -> Result<Model<C>, String> {
    C::check(records).map_err(|error| error.to_string())?;
    let mut found = Model::<C>::new();
    records.iter().for_each(|record| C::lay(&mut found, record));
    Ok(found)
}

pub fn compare_all<C: Subject>(store: &mut Store, root: &Root, model: &Model<C>) -> Result<(), String> {
    let found = as_model::<C>(&scanned::<C>(store, root, C::lowest_key(), None)?)?;
    if found != *model {
        return Err(format!("a scan gives {found:?}, not {model:?}"));
    }
    Ok(())
}

/// Single keys, and ranges between some of them.
pub fn compare_parts<C: Subject>(store: &mut Store, root: &Root, model: &Model<C>, index: usize) -> Result<(), String> {
    let probes = C::probes();
    for key in probes.iter().skip(index % 3).step_by(3) {
        let found = get::<C, _>(store, root, key).map_err(|error| error.to_string())?;
        if found.as_ref() != model.get(key) {
            return Err(format!("{key:?}: {found:?}, not {:?}", model.get(key)));
        }
        let found = last_below::<C, _>(store, root, key).map_err(|error| error.to_string())?;
        let found = as_model::<C>(&found.into_iter().collect::<Vec<_>>())?;
        // Of a record of several keys those that are below.
        let last = |model: &Model<C>| {
            model
                .range(..key)
                .next_back()
                .map(|(key, value)| (key.clone(), value.clone()))
        };
        if last(&found) != last(model) {
            return Err(format!("below {key:?}: {found:?}, not {:?}", last(model)));
        }
    }
    for step in 1..4 {
        let from = &probes[index * 37 * step % probes.len()];
        let to = &probes[index * 53 * step % probes.len()];
        let found = as_model::<C>(&scanned::<C>(store, root, from.clone(), Some(to.clone()))?)?;
        let is_within = |key: &&C::Key| *key >= from && *key < to;
        let expected = model.iter().filter(|(key, _)| is_within(key));
        if !found.iter().eq(expected) {
            return Err(format!("from {from:?} to {to:?}: {found:?}"));
        }
    }
    Ok(())
}
