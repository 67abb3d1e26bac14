use super::*;
use crate::apply::Shape;
use crate::entries::{Entries, Entry};
use crate::load::Written;
use crate::pointer::Pointer;
use alloc::vec;
use tombolo_base::TAG_BYTES;

const SHAPE: Shape = Shape {
    leaf_bytes: 400,
    fanout: 8,
    segments_max: 4,
    leaf_pending_bytes: 200,
    node_pending_bytes: 200,
};

#[derive(Default)]
struct Memory(Vec<Vec<u8>>);

impl Nodes for Memory {
    type Error = ();

    fn read(&mut self, pointer: &Pointer) -> Result<Vec<u8>, ()> {
        self.0.get(pointer.message as usize).cloned().ok_or(())
    }

    fn write(&mut self, node: Vec<u8>) -> Result<Written, ()> {
        self.0.push(node);
        Ok(Written {
            object: 1,
            message: self.0.len() as u32 - 1,
            offset: 0,
            bytes: (self.0[self.0.len() - 1].len() + TAG_BYTES) as u32,
            tag: [0; TAG_BYTES],
        })
    }
}

fn entries(numbers: core::ops::Range<u8>) -> Vec<Entry> {
    let entry = |number| Entry {
        key: vec![number],
        value: Some(vec![number; 6]),
    };
    numbers.map(entry).collect()
}

fn fresh(numbers: core::ops::Range<u8>) -> Fresh<Entries> {
    Fresh::new(Contents::Records(entries(numbers)))
}

fn bounds(numbers: &core::ops::Range<u8>) -> Bounds<Vec<u8>> {
    Bounds {
        low: vec![numbers.start],
        high: Some(vec![numbers.end]),
    }
}

/// A leaf as it was before, with so many segments, of which only the pointers matter here.
fn kept(apply: &mut Apply<'_, Memory>, numbers: &core::ops::Range<u8>, segments: u32) -> Child<Vec<u8>> {
    let leaf = encode_records::<Entries>(RecordNode::Leaf, &entries(numbers.clone()));
    let node = apply.write(leaf).unwrap();
    Child {
        first: vec![numbers.start],
        node,
        segments: Segments {
            pointers: vec![node; segments as usize],
            hidden_bytes: 10 * segments,
        },
    }
}

/// The first keys of the leaves that come of it, and how many segments stand before each.
fn leaves_of(
    left: (core::ops::Range<u8>, u32),
    middle: core::ops::Range<u8>,
    right: (core::ops::Range<u8>, u32),
) -> Vec<(u8, usize)> {
    let mut nodes = Memory::default();
    let mut apply = Apply::new(&mut nodes, 1, &SHAPE);
    let mut level = Level::<Entries>::new(0);
    let child = kept(&mut apply, &left.0, left.1);
    level.keep(&mut apply, child, bounds(&left.0)).unwrap();
    level.add(&mut apply, fresh(middle)).unwrap();
    let child = kept(&mut apply, &right.0, right.1);
    level.keep(&mut apply, child, bounds(&right.0)).unwrap();
    let children = level.finish(&mut apply).unwrap();
    let hidden = children.iter().map(|child| child.segments.hidden_bytes).sum::<u32>();
    assert_eq!(hidden, 10 * (left.1 + right.1));
    children
        .iter()
        .map(|child| (child.first[0], child.segments.pointers.len()))
        .collect()
}

/// A leaf of ten entries has about a quarter of the bytes, one of thirty nearly all.
#[test]
fn a_small_leaf_is_joined_with_its_neighbours() {
    assert_eq!(leaves_of((0..9, 0), 10..19, (20..26, 0)), [(0, 0)]);
    assert_eq!(leaves_of((0..30, 0), 30..39, (40..49, 0)), [(0, 0), (30, 0)]);
    assert_eq!(leaves_of((0..9, 0), 10..40, (40..49, 0)), [(0, 0), (10, 0), (40, 0)]);
    assert_eq!(leaves_of((0..15, 0), 15..30, (30..45, 0)), [(0, 0), (15, 0), (30, 0)]);
}

#[test]
fn an_empty_leaf_is_left_out() {
    assert_eq!(leaves_of((0..9, 0), 10..10, (20..29, 0)), [(0, 0), (20, 0)]);
}

#[test]
fn segments_stay_before_what_they_change() {
    assert_eq!(leaves_of((0..9, 2), 10..19, (20..26, 0)), [(0, 2)]);
    assert_eq!(leaves_of((0..9, 0), 10..19, (20..26, 3)), [(0, 3)]);
    // Of two neighbours only one is joined, if both have segments.
    assert_eq!(leaves_of((0..9, 2), 10..19, (20..26, 3)), [(0, 2), (20, 3)]);
}
