//! Nodes of the size that they have in a bucket, so there are many records and few histories.

use crate::history::History;
use crate::reference::{Seen, check};
use tombolo_base::{Prng, Pvbn};
use tombolo_metadata_tree::{Entries, Entry, MapKey, Run, Runs, Shape, Target};

/// First all of them, then some at random.
fn checkpoints<R>(first: u64, others: u64, mut record: impl FnMut(&mut Prng, Option<u64>) -> R) -> Vec<Vec<R>> {
    let mut prng = Prng::new(first);
    let mut checkpoints = vec![(0..first).map(|number| record(&mut prng, Some(number))).collect()];
    for _ in 0..12 {
        checkpoints.push((0..others).map(|_| record(&mut prng, None)).collect());
    }
    checkpoints
}

#[test]
fn a_map_of_many_leaves_equals_the_reference() {
    const BLOCKS: u64 = 150_000;
    let mut next_pvbn = 1 << 30;
    let checkpoints = checkpoints(BLOCKS, 12_000, |prng, block| {
        next_pvbn += 20;
        let is_hole = block.is_none() && prng.chance(100);
        let start = MapKey {
            file: 1,
            block: block.unwrap_or_else(|| prng.below(BLOCKS)),
        };
        Run {
            start,
            length: if block.is_none() && prng.chance(250) { 10 } else { 1 },
            target: (!is_hole).then_some(Target {
                pvbn: Pvbn(next_pvbn),
                birth: None,
            }),
        }
    });
    let shape = Shape::default();
    let seen: Seen = check(&History::<Runs> { shape, checkpoints }, None).unwrap();
    assert_eq!(seen.height_max, 1);
}

#[test]
fn entries_of_many_leaves_equal_the_reference() {
    const ENTRIES: u64 = 60_000;
    let checkpoints = checkpoints(ENTRIES, 4_000, |prng, number| {
        let is_deletion = number.is_none() && prng.chance(300);
        let key = number.unwrap_or_else(|| prng.below(2 * ENTRIES)).to_be_bytes();
        Entry {
            key: [b"I", &key[..]].concat(),
            value: (!is_deletion).then(|| vec![prng.below(256) as u8; 60 + prng.below(40) as usize]),
        }
    });
    let shape = Shape::default();
    let seen: Seen = check(&History::<Entries> { shape, checkpoints }, None).unwrap();
    assert_eq!(seen.height_max, 2);
}
