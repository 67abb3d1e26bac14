//! The candidates by name.

use crate::codec::{Record, RecordCodec};
use crate::runs::{Compaction, Runs};
use crate::store::Store;
use crate::structure::Structure;
use crate::tree::{Shape, Tree};
use crate::{Failure, SegmentShape};
use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Candidate {
    /// Copy-on-write B-tree, nodes of 4 KiB.
    #[value(name = "tree-4k")]
    Tree4,
    #[value(name = "tree-16k")]
    Tree16,
    #[value(name = "tree-64k")]
    Tree64,
    /// The same with segments before its subtrees, leaves of 16 KiB.
    #[value(name = "segments-16k")]
    Segments16,
    #[value(name = "segments-32k")]
    Segments32,
    #[value(name = "segments-64k")]
    Segments64,
    /// Sorted runs, merged by tiers.
    #[value(name = "runs-tiered")]
    RunsTiered,
    /// Sorted runs, merged by levels.
    #[value(name = "runs-levelled")]
    RunsLevelled,
}

impl Candidate {
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().into())
    }

    fn tree_shape(self, given: SegmentShape) -> Option<Shape> {
        let segments = |leaf_bytes: usize| Shape {
            leaf_bytes,
            fanout: given.fanout.unwrap_or(128),
            segments_max: given.segments_max.unwrap_or(8),
            leaf_pending_bytes: leaf_bytes * given.leaf_pending_percent.unwrap_or(50) / 100,
            node_pending_bytes: given.node_pending_kib.map_or(2 * leaf_bytes, |kib| kib << 10),
        };
        match self {
            Self::Tree4 => Some(Shape::plain(4 << 10)),
            Self::Tree16 => Some(Shape::plain(16 << 10)),
            Self::Tree64 => Some(Shape::plain(64 << 10)),
            Self::Segments16 => Some(segments(16 << 10)),
            Self::Segments32 => Some(segments(32 << 10)),
            Self::Segments64 => Some(segments(64 << 10)),
            Self::RunsTiered | Self::RunsLevelled => None,
        }
    }

    /// Whether snapshots are versions of records; else they are roots.
    pub fn has_versions(self) -> bool {
        matches!(self, Self::RunsTiered | Self::RunsLevelled)
    }

    /// Runs come and go as a whole, and so do their objects.
    pub fn cleans(self) -> bool {
        !self.has_versions()
    }

    /// Whether it works off changes later, so that it must be measured over as many as there are blocks.
    pub fn postpones(self) -> bool {
        !matches!(self, Self::Tree4 | Self::Tree16 | Self::Tree64)
    }

    pub fn load(
        self,
        store: &mut Store,
        codec: RecordCodec,
        shape: SegmentShape,
        records: impl Iterator<Item = Record>,
    ) -> Result<Box<dyn Structure>, Failure> {
        let compaction = match self {
            Self::RunsTiered => Compaction::Tiered,
            _ => Compaction::Levelled,
        };
        Ok(match self.tree_shape(shape) {
            Some(shape) => Box::new(Tree::load(store, shape, codec, records)?),
            None => Box::new(Runs::load(store, compaction, codec, records)?),
        })
    }

    /// With nodes so small that a few thousand blocks make several levels.
    pub fn small(
        self,
        store: &mut Store,
        records: impl Iterator<Item = Record>,
    ) -> Result<Box<dyn Structure>, Failure> {
        let codec = RecordCodec {
            payload_bytes: 0,
            has_versions: self.has_versions(),
        };
        match self.tree_shape(SegmentShape::default()) {
            None => self.load(store, codec, SegmentShape::default(), records),
            Some(shape) => {
                let small = Shape {
                    leaf_bytes: shape.leaf_bytes >> 7,
                    fanout: 5,
                    leaf_pending_bytes: shape.leaf_pending_bytes >> 6,
                    node_pending_bytes: shape.node_pending_bytes >> 6,
                    ..shape
                };
                Ok(Box::new(Tree::load(store, small, codec, records)?))
            }
        }
    }
}
