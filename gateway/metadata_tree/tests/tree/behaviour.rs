//! Single properties, each with what it is for.

use crate::reference::{reachable, scanned};
use crate::store::Store;
use crate::subject::Subject;
use std::collections::BTreeSet;
use tombolo_base::{Prng, Pvbn};
use tombolo_metadata_tree::{
    Applied, BLOCKS_MAX, Child, Entries, Entry, HEIGHT_MAX, MapKey, Nodes, Pointer, Root, Run, Runs, Scan, Segments,
    Shape, Target, TreeError, apply, encode_children, get, visit,
};

pub const SMALL: Shape = Shape {
    leaf_bytes: 256,
    fanout: 6,
    segments_max: 4,
    leaf_pending_bytes: 128,
    node_pending_bytes: 512,
};

/// A copy-on-write B-tree without segments.
fn plain(shape: Shape) -> Shape {
    Shape {
        segments_max: 0,
        ..shape
    }
}

struct Tree {
    store: Store,
    root: Root,
    shape: Shape,
    birth: u32,
}

impl Tree {
    fn new(shape: Shape) -> Self {
        Self {
            store: Store::default(),
            root: Root::default(),
            shape,
            birth: 0,
        }
    }

    /// How many nodes were written, and which died.
    fn apply<C: Subject>(&mut self, changes: Vec<C::Record>) -> (usize, Applied) {
        self.birth += 1;
        let applied = apply::<C, _>(&mut self.store, &self.root, changes, self.birth, &self.shape).unwrap();
        self.root.clone_from(&applied.root);
        (self.store.take_written().len(), applied)
    }

    fn bytes<C: Subject>(&mut self) -> u64 {
        let pointers = reachable::<C>(&mut self.store, &self.root).unwrap();
        pointers.iter().map(|pointer| u64::from(pointer.bytes)).sum()
    }

    fn nodes<C: Subject>(&mut self) -> usize {
        reachable::<C>(&mut self.store, &self.root).unwrap().len()
    }
}

fn run(file: u64, block: u64, length: u64, pvbn: Option<u64>) -> Run {
    Run {
        start: MapKey { file, block },
        length,
        target: pvbn.map(|pvbn| Target {
            pvbn: Pvbn(pvbn),
            birth: None,
        }),
    }
}

/// Blocks that do not continue each other.
fn scattered(file: u64, blocks: std::ops::Range<u64>) -> Vec<Run> {
    blocks
        .map(|block| run(file, block * 2, 1, Some(block * 7919 % 100_003)))
        .collect()
}

fn entry(number: u64, value: Option<&[u8]>) -> Entry {
    Entry {
        key: number.to_be_bytes().to_vec(),
        value: value.map(<[u8]>::to_vec),
    }
}

#[test]
fn no_changes_change_nothing() {
    let mut tree = Tree::new(SMALL);
    tree.apply::<Runs>(scattered(1, 0..500));
    let (root, reads) = (tree.root.clone(), tree.store.reads);
    let (written, applied) = tree.apply::<Runs>(Vec::new());
    assert_eq!((written, applied.died.len(), tree.store.reads - reads), (0, 0, 0));
    assert_eq!(applied.root, root);
}

#[test]
fn a_deletion_in_an_empty_tree_writes_nothing() {
    let mut tree = Tree::new(Shape::default());
    let (written, applied) = tree.apply::<Entries>(vec![entry(1, None)]);
    assert_eq!((written, applied.root), (0, Root::default()));
}

#[test]
fn a_tree_that_has_lost_everything_has_no_node() {
    let mut tree = Tree::new(plain(SMALL));
    tree.apply::<Entries>((0..2000).map(|number| entry(number, Some(b"value"))).collect());
    assert!(tree.root.height >= 3, "{:?}", tree.root);
    let before = tree.nodes::<Entries>();
    let (written, applied) = tree.apply::<Entries>((0..2000).map(|number| entry(number, None)).collect());
    assert_eq!((written, applied.root), (0, Root::default()));
    assert_eq!(applied.died.len(), before);
}

#[test]
fn a_tree_that_shrinks_gives_up_nodes_and_levels() {
    let mut tree = Tree::new(SMALL);
    for step in 0..4 {
        let numbers = (0..4000).filter(|number| number % 4 == step);
        tree.apply::<Entries>(numbers.map(|number| entry(number, Some(b"value"))).collect());
    }
    let (nodes, height) = (tree.nodes::<Entries>(), tree.root.height);
    let mut prng = Prng::new(1);
    let mut left: Vec<u64> = (0..4000).collect();
    while left.len() > 40 {
        let mut gone: Vec<u64> = (0..40)
            .map(|_| left.swap_remove(prng.below(left.len() as u64) as usize))
            .collect();
        gone.sort_unstable();
        tree.apply::<Entries>(gone.into_iter().map(|number| entry(number, None)).collect());
    }
    let now = (tree.nodes::<Entries>(), tree.root.height);
    assert!(
        now.0 * 8 < nodes && now.1 < height,
        "{nodes} nodes, {height} levels; now {now:?}"
    );
}

/// Deletions are far smaller than what they delete, so they must not wait by their own size alone.
#[test]
fn deleted_entries_are_given_up_in_time() {
    let mut tree = Tree::new(Shape::default());
    tree.apply::<Entries>((0..20_000).map(|number| entry(number, Some(&[7; 100]))).collect());
    let before = tree.bytes::<Entries>();
    let mut prng = Prng::new(3);
    let mut left: Vec<u64> = (0..20_000).collect();
    while !left.is_empty() {
        let next = |_| left.swap_remove(prng.below(left.len() as u64) as usize);
        let mut gone: Vec<u64> = (0..200).map(next).collect();
        gone.sort_unstable();
        tree.apply::<Entries>(gone.into_iter().map(|number| entry(number, None)).collect());
        if left.len() == 4_000 {
            let now = tree.bytes::<Entries>();
            assert!(now * 2 < before, "{before} bytes, now {now}");
        }
    }
    let now = tree.bytes::<Entries>();
    assert!(now * 50 < before, "{before} bytes, now {now}");
}

/// The change is small, but what it hides is not.
#[test]
fn what_one_run_covers_is_given_up() {
    for (shape, target) in [(SMALL, None), (plain(SMALL), None), (SMALL, Some(1 << 20))] {
        let mut tree = Tree::new(shape);
        tree.apply::<Runs>([scattered(1, 0..50), scattered(5, 0..10_000), scattered(9, 0..50)].concat());
        let nodes = tree.nodes::<Runs>();
        let length = if target.is_none() { BLOCKS_MAX } else { 20_000 };
        tree.apply::<Runs>(vec![run(5, 0, length, target)]);
        // The run may wait in a segment until enough others have come.
        for step in 0..400 {
            let block = step % 150 * 2;
            tree.apply::<Runs>(vec![run(1, block, 1, Some(step)), run(9, block, 1, Some(step))]);
        }
        let now = tree.nodes::<Runs>();
        assert!(now * 6 < nodes, "{nodes} nodes, then {now}: {shape:?}");
    }
}

/// A single change costs a node of its own size, until there are enough for a leaf.
#[test]
fn changes_wait_in_segments() {
    let mut tree = Tree::new(Shape::default());
    tree.apply::<Runs>(scattered(1, 0..20_000));
    let node = tree.root.node;
    assert_eq!(tree.root.height, 1);
    for step in 0..100 {
        let segments = tree.root.segments.pointers.len();
        let (written, applied) = tree.apply::<Runs>(vec![run(1, step * 101, 1, Some(step))]);
        assert_eq!(written, 1);
        let joined = if segments == 8 { 8 } else { 0 };
        assert_eq!((applied.died.len(), applied.root.node), (joined, node));
        assert_eq!(applied.root.segments.pointers.len(), segments + 1 - joined);
    }
}

/// A hole that a newer run splits hides as much twice.
#[test]
fn joined_segments_that_weigh_too_much_are_not_kept() {
    let mut tree = Tree::new(Shape {
        leaf_bytes: 4096,
        segments_max: 1,
        leaf_pending_bytes: 250,
        ..SMALL
    });
    tree.apply::<Runs>(scattered(1, 0..300));
    let leaf = tree.root.node;
    tree.apply::<Runs>(vec![run(1, 0, 100, None)]);
    assert_eq!((tree.root.node, tree.root.segments.hidden_bytes), (leaf, 96));
    tree.apply::<Runs>(vec![run(1, 30, 1, Some(1)), run(1, 60, 1, Some(2))]);
    assert_ne!(tree.root.node, leaf);
    assert_eq!(tree.root.segments, Segments::default());
}

#[test]
fn a_read_takes_no_more_nodes_than_there_are_on_its_way() {
    let mut tree = Tree::new(SMALL);
    let mut prng = Prng::new(2);
    for _ in 0..60 {
        let mut blocks: Vec<u64> = (0..50).map(|_| prng.below(2000)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        tree.apply::<Runs>(
            blocks
                .into_iter()
                .map(|block| run(1, block * 2, 1, Some(block)))
                .collect(),
        );
    }
    assert!(tree.root.height >= 3);
    let path = (u64::from(tree.root.height) + 1) * (1 + u64::from(SMALL.segments_max));
    for block in (0..4000).step_by(91) {
        let key = MapKey { file: 1, block };
        let before = tree.store.reads;
        get::<Runs, _>(&mut tree.store, &tree.root, &key).unwrap();
        assert!(tree.store.reads - before <= path);
        let before = tree.store.reads;
        let next = MapKey {
            file: 1,
            block: block + 1,
        };
        scanned::<Runs>(&mut tree.store, &tree.root, key, Some(next)).unwrap();
        assert!(tree.store.reads - before <= path);
    }
    // What a segment has is not looked for below.
    tree.apply::<Runs>(vec![run(1, 7, 1, None)]);
    assert!(!tree.root.segments.pointers.is_empty());
    let before = tree.store.reads;
    assert_eq!(
        get::<Runs, _>(&mut tree.store, &tree.root, &MapKey { file: 1, block: 7 }),
        Ok(None)
    );
    assert_eq!(tree.store.reads - before, 1);
}

#[test]
fn a_range_of_one_block_is_in_one_leaf() {
    let mut tree = Tree::new(plain(SMALL));
    tree.apply::<Runs>(scattered(1, 0..500));
    for block in 0..1000 {
        let [from, to] = [block, block + 1].map(|block| MapKey { file: 1, block });
        let before = tree.store.reads;
        scanned::<Runs>(&mut tree.store, &tree.root, from, Some(to)).unwrap();
        assert_eq!(tree.store.reads - before, u64::from(tree.root.height) + 1, "{block}");
    }
}

#[test]
fn a_scan_reads_as_it_goes() {
    let mut tree = Tree::new(SMALL);
    tree.apply::<Runs>(scattered(1, 0..2000));
    let before = tree.store.reads;
    let mut scan = Scan::<Runs>::new(&tree.root, MapKey::default(), None);
    assert_eq!(tree.store.reads, before);
    scan.next(&mut tree.store).unwrap();
    assert!(tree.store.reads - before <= u64::from(tree.root.height) + 1);
}

/// So that what was born after a snapshot is found without reading what is older.
#[test]
fn a_visit_passes_by_what_is_older() {
    let mut tree = Tree::new(SMALL);
    tree.apply::<Runs>(scattered(1, 0..3000));
    let old = reachable::<Runs>(&mut tree.store, &tree.root).unwrap();
    let since = tree.birth + 1;
    for step in 0..30 {
        tree.apply::<Runs>(scattered(1, step * 5..step * 5 + 5));
    }
    let new = reachable::<Runs>(&mut tree.store, &tree.root).unwrap();
    let before = tree.store.reads;
    let mut found = BTreeSet::new();
    let mut enter = |pointer: &Pointer| {
        found.insert(*pointer);
        pointer.birth >= since
    };
    visit::<Runs, _>(&mut tree.store, &tree.root, &mut enter).unwrap();
    assert!(new.difference(&old).all(|pointer| found.contains(pointer)));
    assert!(found.len() * 4 < new.len(), "{} of {}", found.len(), new.len());
    assert!((tree.store.reads - before) * 4 < new.len() as u64);
}

#[test]
fn changes_out_of_order_are_refused() {
    let mut store = Store::default();
    let changes = vec![entry(2, None), entry(1, None)];
    let applied = apply::<Entries, _>(&mut store, &Root::default(), changes, 1, &SMALL);
    assert!(matches!(applied, Err(TreeError::Changes(_))), "{applied:?}");
    assert!(store.take_written().is_empty());
}

#[test]
fn a_node_that_is_gone_or_of_another_kind_is_an_error() {
    let mut tree = Tree::new(plain(SMALL));
    tree.apply::<Runs>(scattered(1, 0..200));
    let read = get::<Entries, _>(&mut tree.store, &tree.root, &vec![1]);
    assert!(matches!(read, Err(TreeError::Corrupt { .. })), "{read:?}");
    let node = tree.root.node.unwrap();
    tree.store.remove((node.object, node.message));
    let changes = scattered(1, 0..1);
    let applied = apply::<Runs, _>(&mut tree.store, &tree.root, changes, 9, &tree.shape);
    assert!(matches!(applied, Err(TreeError::Nodes(_))), "{applied:?}");
}

/// Each node may be whole, but they do not belong together.
#[test]
fn a_node_in_the_place_of_another_is_an_error() {
    let mut tree = Tree::new(plain(SMALL));
    tree.apply::<Runs>(scattered(1, 0..10));
    let leaf = tree.root.node.unwrap();
    let mut parent_of = |height: u8, node: Pointer, second: u64| {
        let child = |block| Child {
            first: MapKey { file: 1, block },
            node,
            segments: Segments::default(),
        };
        let bytes = encode_children::<Runs>(height, &[child(0), child(second)]);
        let written = tree.store.write(bytes).unwrap();
        tree.store.take_written();
        Pointer {
            object: written.object,
            message: written.message,
            offset: written.offset,
            bytes: written.bytes,
            tag: written.tag,
            ..leaf
        }
    };
    // The leaf has blocks 0 to 18, and goes beyond either of these borders; the lower node has a border at 30.
    let low = parent_of(1, leaf, 7);
    let high = parent_of(1, leaf, 30);
    let above_high = parent_of(2, high, 25);
    for (height, node, block) in [(1, low, 5), (1, low, 9), (2, above_high, 5)] {
        let root = Root {
            height,
            node: Some(node),
            segments: Segments::default(),
        };
        let key = MapKey { file: 1, block };
        let read = get::<Runs, _>(&mut tree.store, &root, &key);
        assert!(matches!(read, Err(TreeError::Corrupt { .. })), "{block}: {read:?}");
        let changes = vec![run(1, block, 1, Some(1))];
        let applied = apply::<Runs, _>(&mut tree.store, &root, changes, 9, &tree.shape);
        assert!(
            matches!(applied, Err(TreeError::Corrupt { .. })),
            "{block}: {applied:?}"
        );
        assert!(scanned::<Runs>(&mut tree.store, &root, key, None).is_err());
    }
}

#[test]
fn a_tree_does_not_grow_beyond_what_decoders_take() {
    let shape = Shape {
        leaf_bytes: 1,
        fanout: 2,
        ..plain(SMALL)
    };
    for (leaves, is_right) in [(1 << HEIGHT_MAX, true), ((1 << HEIGHT_MAX) + 1, false)] {
        let mut store = Store::default();
        let applied = apply::<Runs, _>(&mut store, &Root::default(), scattered(1, 0..leaves), 1, &shape);
        match applied {
            Ok(applied) => assert!(is_right && applied.root.height == HEIGHT_MAX),
            Err(error) => assert!(!is_right && error == TreeError::Height, "{error}"),
        }
    }
    let too_high = Root {
        height: HEIGHT_MAX + 1,
        ..Root::default()
    };
    let mut store = Store::default();
    assert_eq!(
        get::<Runs, _>(&mut store, &too_high, &MapKey::default()),
        Err(TreeError::Height)
    );
    assert_eq!(
        visit::<Runs, _>(&mut store, &too_high, &mut |_| true),
        Err(TreeError::Height)
    );
    assert!(scanned::<Runs>(&mut store, &too_high, MapKey::default(), None).is_err());
    let applied = apply::<Runs, _>(&mut store, &too_high, scattered(1, 0..1), 1, &SMALL);
    assert_eq!(applied, Err(TreeError::Height));
}
