//! Likelihoods, and balanced expansion: the nodes most likely to be read after a given one.
//!
//! C(X, Y): how often Y was read right after X, as far as remembered; C(X): the sum over all Y.
//! * Y begins where X ends: L = (1 + C(X, Y)) / (1 + C(X)), whether or not that was ever seen. The paper's formula (1)
//!   prints 1 while it was not seen; read literally it would never fade, against its own text.
//! * otherwise: L = C(X, Y) / C(X).
//!
//! The likelihood of a path is the product along it, and that of a node is that of the likeliest path to it: "shortest"
//! in the paper is Dijkstra's on -ln L, which taking the likeliest node first comes to. Likelihoods out of one node
//! may sum to more than one, as in the paper.

use super::history::{History, NodeId, Range};
use super::places::NONE;
use crate::Likelihood;
use alloc::{collections::BinaryHeap, vec::Vec};
use core::cmp::Reverse;
use tombolo_base::Instant;

/// A range that is likely to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What it covers.
    pub range: Range,
    /// Along the best way from the source.
    pub likelihood: Likelihood,
}

/// A node in the traverse set; of equally likely ones the lowest of the volume numbered first comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    likelihood: Likelihood,
    place: Reverse<(u64, u8)>,
    node: u32,
}

/// Where an expansion ends.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Less likely nodes are left out.
    pub threshold: Likelihood,
    /// The candidate that reaches this is the last.
    pub blocks_max: u64,
    /// No more than so many.
    pub candidates_max: usize,
}

/// Working memory, kept so that expansions do not allocate.
#[derive(Clone, Debug, Default)]
pub struct Expansion {
    pending: BinaryHeap<Pending>,
    settled: Vec<u32>,
}

impl Expansion {
    /// Appends the candidates from a node in order of falling likelihood. `blocks_of` says how much of the limit
    /// of blocks a candidate takes.
    pub fn run(
        &mut self,
        history: &History,
        source: NodeId,
        now: Instant,
        limits: Limits,
        mut blocks_of: impl FnMut(Range) -> u64,
        out: &mut Vec<Candidate>,
    ) {
        self.pending.clear();
        self.settled.clear();
        self.settled.push(source.0);
        self.push_successors(history, source.0, now, Likelihood::ONE, limits.threshold);
        let mut blocks = 0;
        while let Some(best) = self.pending.pop() {
            if blocks >= limits.blocks_max || self.settled.len() > limits.candidates_max {
                return;
            }
            if self.settled.contains(&best.node) || history.is_forgotten(&history.nodes[best.node]) {
                continue;
            }
            self.settled.push(best.node);
            let range = history.range(NodeId(best.node));
            blocks += blocks_of(range);
            out.push(Candidate {
                range,
                likelihood: best.likelihood,
            });
            self.push_successors(history, best.node, now, best.likelihood, limits.threshold);
        }
    }

    fn push_successors(
        &mut self,
        history: &History,
        from: u32,
        now: Instant,
        likelihood: Likelihood,
        least: Likelihood,
    ) {
        let pending = &mut self.pending;
        history.for_each_successor(from, now, |node, part, whole| {
            let likelihood = likelihood.times(part, whole);
            if likelihood >= least && likelihood > Likelihood::ZERO {
                let place = Reverse((history.nodes[node].place(), history.nodes[node].start));
                pending.push(Pending {
                    likelihood,
                    place,
                    node,
                });
            }
        });
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.pending.capacity() * size_of::<Pending>() + self.settled.capacity() * 4
    }
}

impl History {
    /// Calls `each` with every successor of a node and its likelihood as a fraction.
    pub(super) fn for_each_successor(&self, from: u32, now: Instant, mut each: impl FnMut(u32, u64, u64)) {
        let epoch = self.epoch(now);
        let node = &self.nodes[from];
        let mut total = 0;
        let mut at = node.out;
        while at != NONE {
            let edge = &self.edges[at];
            if self.is_live(edge) {
                total += u64::from(edge.count(epoch));
            }
            at = edge.next;
        }
        let adjacent = self.adjacent(node);
        let mut adjacent_count = 0;
        at = node.out;
        while at != NONE {
            let edge = &self.edges[at];
            let count = u64::from(edge.count(epoch));
            if count > 0 && self.is_live(edge) {
                if Some(edge.to) == adjacent {
                    adjacent_count = count;
                } else {
                    each(edge.to, count, total);
                }
            }
            at = edge.next;
        }
        if let Some(adjacent) = adjacent {
            each(adjacent, 1 + adjacent_count, 1 + total);
        }
    }
}
