//! Every candidate beside a reference model, which keeps a full copy of the map for each snapshot.

use crate::codec::{Record, merge};
use crate::references::References;
use crate::store::Store;
use crate::{Candidate, Failure};
use std::collections::{BTreeMap, BTreeSet};
use tombolo_base::Prng;

const BLOCKS: u64 = 3_000;
const CHECKPOINTS: u32 = 120;

struct Model {
    live: Vec<u64>,
    snapshots: BTreeMap<u32, Vec<u64>>,
}

impl Model {
    fn reachable(&self) -> BTreeSet<u64> {
        let maps = self.snapshots.values().chain([&self.live]);
        maps.flatten().copied().collect()
    }
}

/// What the comparison must find, to show that it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A change does not reach the structure.
    LostChange,
    /// A node is written that no root reaches.
    LeakedNode,
    /// A PVBN is released although something has it.
    EarlyRelease,
    /// A snapshot is deleted, but its dead lists are kept.
    KeptLists,
}

impl Fault {
    pub const ALL: [Self; 4] = [Self::LostChange, Self::LeakedNode, Self::EarlyRelease, Self::KeptLists];
}

/// The checkpoint in which a fault is put, and after which it stays.
const FAULT_EPOCH: u32 = 20;

/// Random checkpoints, snapshots and deletions; everything is compared after each.
pub fn check(candidate: Candidate, seed: u64, fault: Option<Fault>) -> Result<(), Failure> {
    let mut prng = Prng::new(seed);
    let mut store = Store::new(candidate.cleans())?;
    let initial = (0..BLOCKS).map(|block| Record {
        start: block,
        value: block,
        length: 1,
        version: 0,
    });
    let mut structure = candidate.small(&mut store, initial)?;
    let mut references = References::new(BLOCKS);
    let mut model = Model {
        live: (0..BLOCKS).collect(),
        snapshots: BTreeMap::new(),
    };
    let mut next_pvbn = BLOCKS;
    for epoch in 1..=CHECKPOINTS {
        let mut changes: Vec<Record> = Vec::new();
        for _ in 0..prng.below(60) {
            // Versions of runs longer than a block would have to be cut against each other.
            let length = if candidate.has_versions() {
                1
            } else {
                1 + prng.below(20)
            };
            let start = prng.below(BLOCKS - length);
            let is_redirect = prng.chance(200);
            let value = if is_redirect {
                // A duplicate of what is mapped somewhere, as the fingerprint index would name it.
                model.live[prng.below(BLOCKS) as usize]
            } else {
                next_pvbn += length;
                next_pvbn - length
            };
            let length = if is_redirect { 1 } else { length };
            let change = Record {
                start,
                value,
                length: length as u32,
                version: 0,
            };
            for block in start..start + length {
                references.map(block, change.from(block).value, is_redirect.then_some(epoch));
                model.live[block as usize] = change.from(block).value;
            }
            changes = merge(&changes, &[change]);
        }
        match fault.filter(|_| epoch >= FAULT_EPOCH) {
            Some(Fault::LostChange) => drop(changes.pop()),
            Some(Fault::LeakedNode) => drop(store.write(vec![1], epoch)?),
            Some(Fault::EarlyRelease) => references.release(model.live[0]),
            Some(Fault::KeptLists) | None => {}
        }
        structure.checkpoint(&mut store, epoch, changes)?;
        if prng.chance(600) {
            structure.snapshot(epoch);
            references.snapshot(epoch, next_pvbn);
            model.snapshots.insert(epoch, model.live.clone());
        }
        compare(&*structure, &store, &references, &model)?;
        references.take_freed();
        let victims = if prng.chance(300) { prng.below(4) } else { 0 };
        for _ in 0..victims.min(model.snapshots.len() as u64) {
            let index = prng.below(model.snapshots.len() as u64) as usize;
            let victim = *model.snapshots.keys().nth(index).ok_or("no snapshot")?;
            let before = model.reachable();
            model.snapshots.remove(&victim);
            structure.delete_snapshot(&mut store, victim)?;
            if fault != Some(Fault::KeptLists) {
                references.delete_snapshot(victim);
            }
            let freed: BTreeSet<u64> = references.take_freed().into_iter().collect();
            let expected = &before - &model.reachable();
            if freed != expected {
                return Err(format!("snapshot {victim}: freed {freed:?}, only it held {expected:?}").into());
            }
            compare(&*structure, &store, &references, &model)?;
        }
    }
    Ok(())
}

fn compare(
    structure: &dyn crate::structure::Structure,
    store: &Store,
    references: &References,
    model: &Model,
) -> Result<(), Failure> {
    let maps = model.snapshots.iter().map(|(&epoch, map)| (Some(epoch), map));
    for (snapshot, map) in maps.chain([(None, &model.live)]) {
        // Enough of them to meet each leaf; all would take minutes.
        for block in (0..BLOCKS).step_by(37) {
            let value = structure.read(store, snapshot, block)?.value;
            if value != Some(map[block as usize]) {
                return Err(format!("block {block} at {snapshot:?}: {value:?}, not {}", map[block as usize]).into());
            }
        }
    }
    if references.counted() != model.reachable() {
        return Err("the counted PVBNs are not those that are reachable".into());
    }
    if !references.are_found_by_a_scan() {
        return Err("the counts are not what a scan finds".into());
    }
    let reachable = structure.reachable(store)?;
    if store.live_nodes() != reachable {
        return Err(format!("{} nodes are kept, {reachable} are reachable", store.live_nodes()).into());
    }
    Ok(())
}
