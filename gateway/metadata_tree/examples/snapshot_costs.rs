//! What the tree costs with the default shape: many snapshots with random changes between two, kept and deleted; a large
//! map under random changes.
//!
//! ```text
//! cargo run --release -p tombolo-metadata-tree --example snapshot_costs -- snapshots BLOCKS CHANGES SNAPSHOTS
//! cargo run --release -p tombolo-metadata-tree --example snapshot_costs -- size BLOCKS CHANGES CHECKPOINTS
//! ```

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Instant;
use tombolo_base::{Prng, Pvbn, TAG_BYTES};
use tombolo_metadata_tree::{
    ExclusiveRuns, MapKey, Moment, Nodes, Pointer, Root, Run, Runs, Shape, Target, Written, apply, exclusive_nodes, get,
};

const OBJECT_NODES: u32 = 128;
const COLD_GETS: u64 = 2_000;
/// Blocks that are mapped first, at a time.
const FILL: u64 = 2_000_000;

#[derive(Default)]
struct Store {
    nodes: BTreeMap<(u64, u32), Vec<u8>>,
    next: (u64, u32),
    put_bytes: u64,
    reads: u64,
    read_bytes: u64,
}

impl Nodes for Store {
    type Error = Infallible;

    fn read(&mut self, pointer: &Pointer) -> Result<Vec<u8>, Infallible> {
        self.reads += 1;
        self.read_bytes += u64::from(pointer.bytes);
        Ok(self.nodes[&(pointer.object, pointer.message)].clone())
    }

    fn write(&mut self, node: Vec<u8>) -> Result<Written, Infallible> {
        let (object, message) = self.next;
        self.next = match message + 1 {
            OBJECT_NODES => (object + 1, 0),
            message => (object, message),
        };
        let bytes = (node.len() + TAG_BYTES) as u32;
        self.put_bytes += u64::from(bytes);
        self.nodes.insert((object, message), node);
        Ok(Written {
            object,
            message,
            // About what it is, so that pointers have their size.
            offset: message << 15,
            bytes,
            tag: [0; TAG_BYTES],
        })
    }
}

impl Store {
    fn remove(&mut self, pointer: &Pointer) {
        let node = self.nodes.remove(&(pointer.object, pointer.message));
        assert!(node.is_some(), "it dies once");
    }

    fn bytes(&self) -> usize {
        self.nodes.values().map(|node| node.len() + TAG_BYTES).sum()
    }
}

#[derive(Clone)]
struct State {
    root: Root,
    moment: Moment,
}

/// A map in one file, and the states of it that are kept.
struct Map {
    blocks: u64,
    prng: Prng,
    store: Store,
    live: State,
    snapshots: Vec<State>,
    /// Of each PVBN, how many lives it has.
    counts: Vec<u8>,
}

impl Map {
    /// Of blocks none of which continues another.
    fn new(blocks: u64) -> Self {
        let moment = Moment {
            checkpoint: 0,
            next_pvbn: Pvbn(blocks),
        };
        let mut map = Self {
            blocks,
            prng: Prng::new(7),
            store: Store::default(),
            live: State {
                root: Root::default(),
                moment,
            },
            snapshots: Vec::new(),
            counts: Vec::new(),
        };
        // A permutation, as the number is a prime and larger than any of them.
        let prime = 2_147_483_647;
        for first in (0..blocks).step_by(FILL as usize) {
            let blocks = first..blocks.min(first + FILL);
            let runs = blocks.map(|block| run(block, block * prime % map.blocks)).collect();
            map.apply(runs);
        }
        map
    }

    /// Changes in ascending order.
    fn apply(&mut self, changes: Vec<Run>) {
        let live = &mut self.live;
        live.moment.checkpoint += 1;
        let (birth, shape) = (live.moment.checkpoint, Shape::default());
        let applied = apply::<Runs, _>(&mut self.store, &live.root, changes, birth, &shape).expect("a tree");
        live.root = applied.root;
        let newest = self.snapshots.last().map(|snapshot| snapshot.moment);
        let is_kept = |pointer: &&Pointer| newest.is_none_or(|newest| !newest.has_node(pointer));
        applied
            .died
            .iter()
            .filter(is_kept)
            .for_each(|pointer| self.store.remove(pointer));
    }

    /// How many different blocks were changed.
    fn checkpoint(&mut self, changes: u64) -> usize {
        let mut blocks: Vec<u64> = (0..changes).map(|_| self.prng.below(self.blocks)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        // Written in a random order, so their PVBNs are.
        let mut pvbns: Vec<u64> = (0..blocks.len() as u64).collect();
        for index in (1..pvbns.len()).rev() {
            pvbns.swap(index, self.prng.below(index as u64 + 1) as usize);
        }
        let first = self.live.moment.next_pvbn.0;
        let changed = blocks.iter().zip(pvbns).map(|(block, pvbn)| run(*block, first + pvbn));
        let changed: Vec<Run> = changed.collect();
        self.live.moment.next_pvbn.0 += blocks.len() as u64;
        self.apply(changed);
        blocks.len()
    }

    /// Nodes and bytes that a get reads.
    fn gets(&mut self, root: &Root) -> (f64, f64) {
        let (reads, read_bytes) = (self.store.reads, self.store.read_bytes);
        for _ in 0..COLD_GETS {
            let block = self.prng.below(self.blocks);
            let found = get::<Runs, _>(&mut self.store, root, &MapKey { file: 1, block }).expect("a tree");
            assert!(found.is_some(), "all are mapped");
        }
        let per_get = |now: u64, then: u64| (now - then) as f64 / COLD_GETS as f64;
        (
            per_get(self.store.reads, reads),
            per_get(self.store.read_bytes, read_bytes),
        )
    }

    fn delete(&mut self, index: usize) -> Cost {
        let state = self.snapshots.remove(index);
        let before = index.checked_sub(1).map(|before| self.snapshots[before].moment);
        let after = self.snapshots.get(index).unwrap_or(&self.live).root.clone();
        let start = Instant::now();
        let (reads, read_bytes) = (self.store.reads, self.store.read_bytes);
        let store = &mut self.store;
        let nodes = exclusive_nodes::<Runs, _>(store, before, &state.root, state.moment, &after).expect("a tree");
        let mut lives = 0;
        let mut runs = ExclusiveRuns::new(before, &state.root, state.moment, &after);
        while let Some(run) = runs.next(store).expect("a tree") {
            let first = run.target.expect("no hole").pvbn.0 as usize;
            let counts = &mut self.counts[first..first + run.length as usize];
            counts.iter_mut().for_each(|count| *count -= 1);
            lives += run.length;
        }
        let cost = Cost {
            reads: store.reads - reads,
            read_bytes: store.read_bytes - read_bytes,
            nodes: nodes.len() as u64,
            lives,
            seconds: start.elapsed().as_secs_f64(),
        };
        nodes.iter().for_each(|pointer| self.store.remove(pointer));
        cost
    }

    /// Nodes, and lives of each PVBN, as one scan of all states finds them.
    fn counted(&mut self) -> (usize, Vec<u8>) {
        let mut nodes = 0;
        let mut counts = vec![0; self.live.moment.next_pvbn.0 as usize];
        let (mut before, after) = (None, Root::default());
        for State { root, moment } in self.snapshots.iter().chain([&self.live]) {
            let store = &mut self.store;
            nodes += exclusive_nodes::<Runs, _>(store, before, root, *moment, &after)
                .expect("a tree")
                .len();
            let mut runs = ExclusiveRuns::new(before, root, *moment, &after);
            while let Some(run) = runs.next(store).expect("a tree") {
                let first = run.target.expect("no hole").pvbn.0 as usize;
                counts[first..first + run.length as usize]
                    .iter_mut()
                    .for_each(|count| *count += 1);
            }
            before = Some(*moment);
        }
        (nodes, counts)
    }

    fn check(&mut self) -> &'static str {
        let (nodes, counts) = self.counted();
        match (nodes == self.store.nodes.len(), counts == self.counts) {
            (true, true) => "yes",
            _ => "no",
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Cost {
    reads: u64,
    read_bytes: u64,
    nodes: u64,
    lives: u64,
    seconds: f64,
}

impl Cost {
    fn plus(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            nodes: self.nodes + other.nodes,
            lives: self.lives + other.lives,
            seconds: self.seconds + other.seconds,
        }
    }

    fn print(&self, what: &str, deletions: usize, map: &mut Map) {
        println!(
            "{what}: {deletions} deleted, {} nodes and {:.1} MB read, {} nodes freed, {} lives ended, {:.3} s; {:.1} MB left, \
             exact: {}",
            self.reads,
            self.read_bytes as f64 / 1e6,
            self.nodes,
            self.lives,
            self.seconds,
            map.store.bytes() as f64 / 1e6,
            map.check()
        );
    }
}

fn run(block: u64, pvbn: u64) -> Run {
    Run {
        start: MapKey { file: 1, block },
        length: 1,
        target: Some(Target {
            pvbn: Pvbn(pvbn),
            birth: None,
        }),
    }
}

fn snapshots(blocks: u64, changes: u64, snapshots: u64) {
    let mut map = Map::new(blocks);
    let before = map.store.bytes();
    println!("before: {:.2} MB", before as f64 / 1e6);
    let start = Instant::now();
    for _ in 0..snapshots {
        map.snapshots.push(map.live.clone());
        map.checkpoint(changes);
    }
    let bytes = map.store.bytes();
    println!(
        "with {snapshots}: {:.1} MB, {:.1} bytes a change, {} nodes, {:.2} s per 10^6 changes",
        bytes as f64 / 1e6,
        (bytes - before) as f64 / (changes * snapshots) as f64,
        map.store.nodes.len(),
        start.elapsed().as_secs_f64() / (changes * snapshots) as f64 * 1e6
    );
    let last = map.snapshots.len() - 1;
    let roots = [&map.live, &map.snapshots[last], &map.snapshots[0]].map(|state| state.root.clone());
    for (name, root) in ["live", "newest", "oldest"].iter().zip(roots) {
        let (reads, bytes) = map.gets(&root);
        println!(
            "a get, {name}: {reads:.1} nodes, {:.0} KB, height {}",
            bytes / 1e3,
            root.height
        );
    }
    let start = Instant::now();
    let (reads, read_bytes) = (map.store.reads, map.store.read_bytes);
    let (nodes, counts) = map.counted();
    map.counts = counts;
    println!(
        "counted from the beginning: {nodes} nodes, {} lives, {} nodes and {:.1} MB read, {:.2} s",
        map.counts.iter().map(|count| u64::from(*count)).sum::<u64>(),
        map.store.reads - reads,
        (map.store.read_bytes - read_bytes) as f64 / 1e6,
        start.elapsed().as_secs_f64()
    );
    map.delete(last / 2).print("one in the middle", 1, &mut map);
    map.delete(0).print("the oldest", 1, &mut map);
    let newest = map.snapshots.len() - 1;
    map.delete(newest).print("the newest", 1, &mut map);
    // Each second one, then each second of what is left: so most have near neighbours.
    let (mut thinned, mut deletions) = (Cost::default(), 0);
    let mut goes: Vec<bool> = (0..map.snapshots.len()).map(|number| number % 60 != 0).collect();
    while goes.contains(&true) {
        let mut index = 0;
        while index < goes.len() {
            if goes[index] {
                goes.remove(index);
                thinned = thinned.plus(map.delete(index));
                deletions += 1;
            }
            index += 1;
        }
    }
    thinned.print("all but each 60th", deletions, &mut map);
    let (mut all, deletions) = (Cost::default(), map.snapshots.len());
    for _ in 0..deletions {
        all = all.plus(map.delete(0));
    }
    all.print("all, the oldest first", deletions, &mut map);
}

fn size(blocks: u64, changes: u64, checkpoints: u64) {
    let start = Instant::now();
    let mut map = Map::new(blocks);
    let million = |count: u64| count as f64 / 1e6;
    println!(
        "fresh: {:.2} MB per 10^6 blocks, height {}, {:.0} s",
        map.store.bytes() as f64 / 1e6 / million(blocks),
        map.live.root.height,
        start.elapsed().as_secs_f64()
    );
    println!("checkpoints: MB put per 10^6 changes, s, MB live per 10^6 blocks, height; a get: nodes, KB");
    let step = checkpoints.div_ceil(20);
    for first in (0..checkpoints).step_by(step as usize) {
        let count = step.min(checkpoints - first);
        let start = Instant::now();
        let put = map.store.put_bytes;
        let changed: usize = (0..count).map(|_| map.checkpoint(changes)).sum();
        let seconds = start.elapsed().as_secs_f64();
        let changed = million(changed as u64);
        let put = (map.store.put_bytes - put) as f64 / 1e6;
        let root = map.live.root.clone();
        let (reads, bytes) = map.gets(&root);
        println!(
            "{}..{}: {:.1}, {:.2}, {:.2}, {}; {reads:.1}, {:.0}",
            first + 1,
            first + count,
            put / changed,
            seconds / changed,
            map.store.bytes() as f64 / 1e6 / million(blocks),
            root.height,
            bytes / 1e3
        );
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments[index].parse().expect("a number");
    match arguments.first().map(String::as_str) {
        Some("snapshots") if arguments.len() == 4 => snapshots(number(1), number(2), number(3)),
        Some("size") if arguments.len() == 4 => size(number(1), number(2), number(3)),
        _ => eprintln!("snapshots BLOCKS CHANGES SNAPSHOTS, or size BLOCKS CHANGES CHECKPOINTS"),
    }
}
