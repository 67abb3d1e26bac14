//! How much of the bucket is held by objects of which only some nodes are live: a map of many blocks, changed at random,
//! folded in checkpoint after checkpoint.
//!
//! ```text
//! cargo run --release -p tombolo-metadata-tree --example node_space
//! ```

use std::collections::BTreeMap;
use std::convert::Infallible;
use tombolo_base::Prng;
use tombolo_metadata_tree::{
    Counting, MapKey, Nodes, Pointer, Root, Run, Runs, Shape, Target, UsageTable, Written, apply,
};

const OBJECT_BYTES: usize = 4 << 20;

#[derive(Default)]
struct Store {
    nodes: BTreeMap<(u64, u32), Vec<u8>>,
    object: u64,
    message: u32,
    object_bytes: BTreeMap<u64, usize>,
}

impl Store {
    fn close(&mut self) {
        self.object += 1;
        self.message = 0;
    }
}

impl Nodes for Store {
    type Error = Infallible;

    fn read(&mut self, pointer: &Pointer) -> Result<Vec<u8>, Infallible> {
        Ok(self.nodes[&(pointer.object, pointer.message)].clone())
    }

    fn write(&mut self, node: Vec<u8>) -> Result<Written, Infallible> {
        if self
            .object_bytes
            .get(&self.object)
            .is_some_and(|bytes| *bytes >= OBJECT_BYTES)
        {
            self.close();
        }
        let bytes = node.len();
        *self.object_bytes.entry(self.object).or_default() += bytes;
        let message = self.message;
        self.nodes.insert((self.object, message), node);
        self.message += 1;
        Ok(Written {
            object: self.object,
            message,
            offset: 0,
            bytes: bytes as u32,
            tag: [0; 16],
        })
    }
}

fn run(block: u64, length: u64, pvbn: u64) -> Run {
    let pvbn = tombolo_base::Pvbn(pvbn);
    Run {
        start: MapKey { file: 1, block },
        length,
        target: Some(Target { pvbn, birth: None }),
    }
}

fn main() {
    println!("blocks, changes a checkpoint, checkpoints: MB live, MB in objects, ratio, objects, bytes of the table");
    for (blocks, changes, checkpoints) in [
        (1_000_000, 50_000, 200),
        (1_000_000, 500_000, 40),
        (10_000_000, 500_000, 100),
    ] {
        let mut prng = Prng::new(7);
        let (mut store, mut usage) = (Store::default(), UsageTable::complete());
        let (mut root, mut live_bytes) = (Root::default(), 0_usize);
        let mut pvbn = 1;
        for checkpoint in 1..=checkpoints {
            let mut changed: BTreeMap<u64, Run> = BTreeMap::new();
            if checkpoint == 1 {
                for block in (0..blocks).step_by(64) {
                    changed.insert(block, run(block, 64, pvbn));
                    pvbn += 64;
                }
            } else {
                for _ in 0..changes {
                    let block = prng.below(blocks);
                    changed.insert(block, run(block, 1, pvbn));
                    pvbn += 1;
                }
            }
            store.close();
            let mut counting = Counting::new(&mut store);
            let changed = changed.into_values().collect();
            let shape = Shape::default();
            let applied = apply::<Runs, _>(&mut counting, &root, changed, checkpoint, &shape).expect("a tree");
            let written = counting.written();
            for object in written {
                usage.add(object, u64::from(checkpoint));
            }
            for died in &applied.died {
                usage.subtract(died.object, u64::from(checkpoint));
                let node = store.nodes.remove(&(died.object, died.message));
                assert!(node.is_some(), "it dies once");
            }
            let unused: Vec<u64> = usage.unused(&[]).map(|(object, _)| object).collect();
            for object in unused {
                usage.remove(object);
                store.object_bytes.remove(&object);
            }
            root = applied.root;
            live_bytes = store.nodes.values().map(Vec::len).sum();
        }
        let there: usize = store.object_bytes.values().sum();
        println!(
            "{blocks}, {changes}, {checkpoints}: {:.1}, {:.1}, {:.2}, {}, {}",
            live_bytes as f64 / 1e6,
            there as f64 / 1e6,
            there as f64 / live_bytes as f64,
            store.object_bytes.len(),
            usage.encode(1).len()
        );
    }
}
