//! A history graph as plain data.

use serde::Serialize;
use std::collections::BTreeMap;
use tombolo_base::Instant;
use tombolo_prefetch::graph::{History, NodeId, Range};

/// Nodes are named by their place in `nodes`.
#[derive(Debug, Default, Serialize)]
pub struct Export {
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    pub bytes: usize,
}

#[derive(Debug, Serialize)]
pub struct Node {
    pub volume: u64,
    pub first: u64,
    pub count: u64,
}

/// The likelihood is part / whole.
#[derive(Debug, Serialize)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub part: u64,
    pub whole: u64,
    /// Times that the target was read right after the source, as far as remembered.
    pub count: u64,
    /// Whether the target begins where the source ends; such an edge exists without having been seen.
    pub adjacent: bool,
}

impl From<Range> for Node {
    fn from(range: Range) -> Self {
        Self {
            volume: range.volume.0,
            first: range.first,
            count: range.count,
        }
    }
}

pub fn export(history: &History, now: Instant) -> Export {
    let nodes: Vec<NodeId> = history.nodes().collect();
    let places: BTreeMap<NodeId, usize> = nodes.iter().enumerate().map(|(place, &node)| (node, place)).collect();
    let mut edges = Vec::new();
    for (from, &source) in nodes.iter().enumerate() {
        let range = history.range(source);
        for next in history.successors(source, now) {
            let target = history.range(next.node);
            // A node of a forgotten volume is no node any more.
            let Some(&to) = places.get(&next.node) else { continue };
            let adjacent = target.volume == range.volume && target.first == range.first + range.count;
            edges.push(Edge {
                from,
                to,
                part: next.part,
                whole: next.whole,
                count: next.part - u64::from(adjacent),
                adjacent,
            });
        }
    }
    Export {
        nodes: nodes.iter().map(|&node| history.range(node).into()).collect(),
        edges,
        bytes: history.bytes(),
    }
}
