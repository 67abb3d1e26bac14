//! What a tree goes through: its shape, and the changes of each checkpoint.

use crate::subject::Subject;
use proptest::prelude::*;
use tombolo_metadata_tree::Shape;

#[derive(Clone, Debug)]
pub struct History<C: Subject> {
    pub shape: Shape,
    /// As they came; later ones count.
    pub checkpoints: Vec<Vec<C::Record>>,
}

impl<C: Subject> History<C> {
    /// The changes of a checkpoint as a tree takes them: in order, the last one for each key.
    pub fn sorted(changes: &[C::Record]) -> Vec<C::Record> {
        match changes.len() {
            0 | 1 => changes.to_vec(),
            count => {
                let (older, newer) = changes.split_at(count / 2);
                C::lay_over(Self::sorted(older), Self::sorted(newer))
            }
        }
    }
}

pub fn any_shape() -> impl Strategy<Value = Shape> {
    (16usize..80, 2usize..6, 0u8..5, 0usize..120, 0usize..200).prop_map(
        |(leaf_bytes, fanout, segments_max, leaf_pending_bytes, node_pending_bytes)| Shape {
            leaf_bytes,
            fanout,
            segments_max,
            leaf_pending_bytes,
            node_pending_bytes,
        },
    )
}

/// Times of growth and of shrinking.
pub fn any_history<C: Subject>() -> impl Strategy<Value = History<C>> {
    let changes = |deletions| prop::collection::vec(C::any_record(deletions), 0..60);
    let checkpoint = prop_oneof![4 => changes(5), 2 => changes(40), 1 => changes(95)];
    let checkpoints = prop::collection::vec(checkpoint, 1..24);
    (any_shape(), checkpoints).prop_map(|(shape, checkpoints)| History { shape, checkpoints })
}
