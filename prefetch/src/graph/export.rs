//! A look at the whole graph from outside: its nodes, and the successors of each as an expansion sees them. For analysis;
//! no policy needs it.

use super::history::{History, NodeId};
use alloc::vec::Vec;
use tombolo_base::Instant;

/// A successor of a node, with its likelihood as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Successor {
    /// Where it leads.
    pub node: NodeId,
    /// How often it was read next.
    pub part: u64,
    /// How often anything was.
    pub whole: u64,
}

impl History {
    /// Every node of a volume that is not forgotten, in the order of their slots.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        (0..self.nodes.len() as u32)
            .filter(|&slot| self.nodes[slot].len() > 0 && !self.is_forgotten(&self.nodes[slot]))
            .map(NodeId)
    }

    /// Where a node leads, the node that begins where it ends included; empty for a slot without a node.
    pub fn successors(&self, node: NodeId, now: Instant) -> Vec<Successor> {
        let mut successors = Vec::new();
        if self.degree(node).is_some() {
            self.for_each_successor(node.0, now, |to, part, whole| {
                successors.push(Successor {
                    node: NodeId(to),
                    part,
                    whole,
                });
            });
        }
        successors
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HistoryConfig, Range};
    use super::*;
    use tombolo_base::VolumeId;

    #[test]
    fn nodes_and_fractions_are_those_that_were_recorded() {
        let mut history = History::new(HistoryConfig::within(8 << 20, u64::MAX, 64));
        let volume = VolumeId(3);
        let read = |first| Range {
            volume,
            first,
            count: 2,
        };
        for (previous, first) in [
            (None, 0),
            (Some(1), 100),
            (Some(101), 0),
            (Some(1), 200),
            (Some(201), 0),
            (Some(1), 100),
        ] {
            history.record(Instant(1), previous.map(|block| (volume, block)), read(first));
        }
        let starts: Vec<u64> = history.nodes().map(|node| history.range(node).first).collect();
        assert_eq!(starts, [0, 100, 200]);
        let source = history.find(volume, 0).expect("it was read");
        let mut fractions: Vec<(u64, u64, u64)> = history
            .successors(source, Instant(1))
            .iter()
            .map(|next| (history.range(next.node).first, next.part, next.whole))
            .collect();
        fractions.sort_unstable();
        assert_eq!(fractions, [(100, 2, 3), (200, 1, 3)]);
        assert!(history.successors(NodeId(77), Instant(1)).is_empty());
    }

    #[test]
    fn a_forgotten_volume_has_no_nodes() {
        let mut history = History::new(HistoryConfig::within(8 << 20, u64::MAX, 64));
        let read = Range {
            volume: VolumeId(1),
            first: 5,
            count: 1,
        };
        history.record(Instant(1), None, read);
        history.forget_volume(VolumeId(1));
        assert_eq!(history.nodes().count(), 0);
    }
}
