//! The history graph: which range of blocks was read right after which (Tombolo, MSST'16, section 4.2.3).
//!
//! *Nodes* are ranges that do not overlap. A read splits nodes that it overlaps in part and fills gaps with new nodes, so it
//! is a sequence of whole nodes afterwards. *Edges* carry how often their target's first node was read right after their source's last.
//!
//! The paper does not say what splitting X = [a, c) at s does to edges. Here in-edges stay with [a, s), out-edges move
//! to [s, c). The likelihood of going from the first to the second part is then 1/1, so that every product of
//! likelihoods along a path through X stays what it was. Parts are merged again when nothing distinguishes them.
//!
//! Nodes do not cross the borders of 16-block *places*, so that a hash table of places finds the node that covers a
//! block among at most sixteen. By the rule above this changes no likelihood: it is a split made in advance.
//!
//! *Expiry*: counts have two buckets, the current window and the one before, rotated when touched. An event is
//! thus forgotten after one to two windows. *Bounds*: 28 bytes a node, 4 for its chain, 16 an edge, 16 edges a node at the
//! most (the least counted gives way), 20 a volume. When nodes or edges are used up, a clock hand evicts nodes that were not
//! read since it last passed. Volumes that do not fit are not learnt. Edges to a removed node are recognised by the
//! generation of its slot and dropped when next looked at; nodes of a forgotten volume stay until the hand or the sweep
//! comes by, and lead nowhere.

use super::places::{NONE, Places};
use super::slab::{PIECE, Slab};
use super::volumes::{NUMBER_BITS, VOLUME_BYTES, Volumes};
use tombolo_base::{Instant, VolumeId};

/// Edges out of one node at the most.
pub const OUT_DEGREE_MAX: usize = 16;
/// Blocks of one read that enter the graph at the most; what reads more at once is not random.
pub const READ_BLOCKS_MAX: u64 = 1024;
/// Memory for one node with its chain, and for one edge.
pub const NODE_BYTES: usize = size_of::<Node>() + 4;
/// Memory of one edge.
pub const EDGE_BYTES: usize = size_of::<Edge>();

pub(super) const PLACE_SHIFT: u32 = 4;
pub(super) const PLACE_BLOCKS: u64 = 1 << PLACE_SHIFT;
/// Bits of the number of a place within its volume; with the volume's number they make 64.
pub(super) const GRANULE_BITS: u32 = u64::BITS - NUMBER_BITS;
const _: () = assert!(crate::BLOCKS_MAX >> PLACE_SHIFT <= 1 << GRANULE_BITS);
/// There is room for one volume for so many nodes, fewer when that is more than there are numbers.
const NODES_PER_VOLUME: u32 = 4;
/// Nodes that covering one place can take: a gap between each two of eight nodes, and a split at either end.
const NODES_PER_PLACE: usize = 11;
/// Nodes that the clock hand passes over before it takes the next one, read or not.
const HAND_STEPS_MAX: u32 = 64;

/// A node, as long as nothing changes the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// The blocks of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// Where it lies.
    pub volume: VolumeId,
    /// Its first block.
    pub first: u64,
    /// Its length in blocks, at least one.
    pub count: u64,
}

/// Bounds of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    /// Beyond it what is oldest is forgotten.
    pub nodes_max: u32,
    /// Beyond it what is oldest is forgotten.
    pub edges_max: u32,
    /// Width of a bucket of counts. `u64::MAX` never forgets.
    pub window_micros: u64,
    /// The degree of a new node.
    pub degree_initial: u16,
}

impl HistoryConfig {
    /// As many nodes as fit with two edges and their part of a volume each.
    pub fn within(memory_bytes: u64, window_micros: u64, degree_initial: u16) -> Self {
        let part_of_volume = VOLUME_BYTES.div_ceil(NODES_PER_VOLUME as usize);
        let nodes = memory_bytes / (NODE_BYTES + 2 * EDGE_BYTES + part_of_volume) as u64;
        let nodes_max = nodes.clamp(4 * PIECE as u64, 1 << 30) as u32;
        Self {
            nodes_max,
            edges_max: nodes_max * 2,
            window_micros: window_micros.max(1),
            degree_initial,
        }
    }

    /// Volumes of which anything is known at a time.
    pub fn volumes_max(&self) -> u32 {
        (self.nodes_max / NODES_PER_VOLUME).clamp(1, 1 << NUMBER_BITS)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// Number of the volume (22 bits) and of the place in it (42 bits), in two halves to spare padding.
    place: [u32; 2],
    /// The next node of the chain, or the next free one.
    pub(super) chain: u32,
    /// The first edge.
    pub(super) out: u32,
    pub(super) generation: u16,
    /// The window of the last read.
    pub(super) epoch: u16,
    /// Degree and trigger distance of graph-aware AMP, in blocks.
    pub(super) p: u16,
    pub(super) g: u16,
    /// Edges from other nodes or itself; stays at the maximum once reached.
    pub(super) in_count: u16,
    /// First block within the place.
    pub(super) start: u8,
    /// Blocks, 1 to 16; zero: the slot is free. The upper bit: read since the hand passed.
    blocks: u8,
}

const READ_SINCE: u8 = 0x80;

impl Node {
    pub(super) fn place(&self) -> u64 {
        u64::from(self.place[0]) << 32 | u64::from(self.place[1])
    }

    pub(super) fn len(&self) -> u8 {
        self.blocks & !READ_SINCE
    }

    /// The number of the volume.
    pub(super) fn volume(&self) -> u32 {
        self.place[0] >> (GRANULE_BITS - 32)
    }

    /// One past the last block within the place.
    pub(super) fn end(&self) -> u8 {
        self.start + self.len()
    }

    fn set_len(&mut self, len: u8) {
        self.blocks = self.blocks & READ_SINCE | len;
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) to: u32,
    pub(super) next: u32,
    /// That of the target when the edge was made.
    pub(super) generation: u16,
    /// The window of `current`.
    pub(super) epoch: u16,
    pub(super) current: u16,
    pub(super) previous: u16,
}

impl Edge {
    /// Events that are not forgotten yet.
    pub(super) fn count(&self, epoch: u16) -> u32 {
        match epoch.wrapping_sub(self.epoch) {
            0 => u32::from(self.current) + u32::from(self.previous),
            1 => u32::from(self.current),
            _ => 0,
        }
    }

    fn rotate(&mut self, epoch: u16) {
        match epoch.wrapping_sub(self.epoch) {
            0 => {}
            1 => (self.previous, self.current) = (self.current, 0),
            _ => (self.previous, self.current) = (0, 0),
        }
        self.epoch = epoch;
    }
}

/// The history graph: nodes are ranges of blocks, edges count how often one was read right after another.
#[derive(Clone, Debug)]
pub struct History {
    pub(super) config: HistoryConfig,
    pub(super) nodes: Slab<Node>,
    pub(super) edges: Slab<Edge>,
    places: Places,
    pub(super) volumes: Volumes,
    free_node: u32,
    free_edge: u32,
    pub(super) live_nodes: usize,
    pub(super) live_edges: usize,
    /// The instant at which window 0 began, modulo 2^64.
    origin: u64,
    /// Where the next eviction and the next sweep begin.
    hand: u32,
    broom: u32,
    evicted: u64,
}

pub(super) fn place_of(volume: u32, block: u64) -> u64 {
    u64::from(volume) << GRANULE_BITS | block >> PLACE_SHIFT
}

impl History {
    /// Knows nothing yet.
    pub fn new(config: HistoryConfig) -> Self {
        let config = HistoryConfig {
            window_micros: config.window_micros.max(1),
            // Room for the largest read, twice.
            nodes_max: config.nodes_max.max(2048),
            edges_max: config.edges_max.max(64),
            ..config
        };
        Self {
            volumes: Volumes::new(config.volumes_max()),
            config,
            nodes: Slab::new(),
            edges: Slab::new(),
            places: Places::new(),
            free_node: NONE,
            free_edge: NONE,
            live_nodes: 0,
            live_edges: 0,
            origin: 0,
            hand: 0,
            broom: 0,
            evicted: 0,
        }
    }

    /// Nodes in memory, those included that are forgotten and not swept yet.
    pub fn node_count(&self) -> usize {
        self.live_nodes
    }

    /// Edges in memory, those included that are forgotten and not swept yet.
    pub fn edge_count(&self) -> usize {
        self.live_edges
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.nodes.bytes() + self.edges.bytes() + self.places.bytes() + self.volumes.bytes()
    }

    /// The most memory that these settings let it hold, to a piece of each kind.
    pub fn bytes_max(config: &HistoryConfig) -> usize {
        let pieces = |count: u32, bytes: usize| (count as usize).div_ceil(PIECE) * PIECE * bytes;
        pieces(config.nodes_max, size_of::<Node>())
            + pieces(config.nodes_max + 1, 4)
            + pieces(config.edges_max, EDGE_BYTES)
            + Volumes::bytes_max(config.volumes_max())
    }

    /// Nodes that had to make room.
    pub fn evicted_count(&self) -> u64 {
        self.evicted
    }

    pub(super) fn epoch(&self, now: Instant) -> u16 {
        (now.0.wrapping_sub(self.origin) / self.config.window_micros) as u16
    }

    /// How far into its window an instant is.
    pub(super) fn phase(&self, now: Instant) -> u64 {
        now.0.wrapping_sub(self.origin) % self.config.window_micros
    }

    pub(super) fn set_phase(&mut self, now: Instant, phase: u64) {
        self.origin = now.0.wrapping_sub(phase % self.config.window_micros);
    }

    /// What the node covers; the node MUST exist.
    pub fn range(&self, node: NodeId) -> Range {
        let node = &self.nodes[node.0];
        Range {
            volume: self.volumes.id(node.volume()),
            first: ((node.place() & ((1 << GRANULE_BITS) - 1)) << PLACE_SHIFT) + u64::from(node.start),
            count: u64::from(node.len()),
        }
    }

    /// Degree and trigger distance of a node, if the slot holds one.
    pub fn degree(&self, node: NodeId) -> Option<(u16, u16)> {
        let known = (node.0 as usize) < self.nodes.len() && self.nodes[node.0].len() > 0;
        known.then(|| (self.nodes[node.0].p, self.nodes[node.0].g))
    }

    /// Changes AMP's degree and trigger distance, which the node keeps for the stream that begins there.
    pub fn set_degree(&mut self, node: NodeId, p: u16, g: u16) {
        if self.degree(node).is_some() {
            (self.nodes[node.0].p, self.nodes[node.0].g) = (p, g);
        }
    }

    /// The node that covers a block.
    pub fn find(&self, volume: VolumeId, block: u64) -> Option<NodeId> {
        if block >= crate::BLOCKS_MAX {
            return None;
        }
        let offset = (block & (PLACE_BLOCKS - 1)) as u8;
        self.chain(place_of(self.volumes.find(volume)?, block))
            .find(|(_, node)| node.start <= offset && offset < node.end())
            .map(|(id, _)| NodeId(id))
    }

    /// The node that begins at an offset of a place.
    pub(super) fn find_start(&self, place: u64, start: u8) -> Option<u32> {
        self.chain(place)
            .find(|(_, node)| node.start == start)
            .map(|(id, _)| id)
    }

    pub(super) fn overlaps(&self, place: u64, begin: u8, end: u8) -> bool {
        self.chain(place)
            .any(|(_, node)| node.start < end && begin < node.end())
    }

    /// The nodes of a place, in no particular but reproducible order.
    fn chain(&self, place: u64) -> impl Iterator<Item = (u32, &Node)> {
        let mut at = self.places.head(self.places.chain(place));
        core::iter::from_fn(move || {
            while at != NONE {
                let (id, node) = (at, &self.nodes[at]);
                at = node.chain;
                if node.place() == place {
                    return Some((id, node));
                }
            }
            None
        })
    }

    /// The node that begins where this one ends.
    pub(super) fn adjacent(&self, node: &Node) -> Option<u32> {
        if u64::from(node.end()) < PLACE_BLOCKS {
            return self.find_start(node.place(), node.end());
        }
        let number = node.place() & ((1 << GRANULE_BITS) - 1);
        (number + 1 < 1 << GRANULE_BITS).then(|| self.find_start(node.place() + 1, 0))?
    }

    pub(super) fn is_live(&self, edge: &Edge) -> bool {
        let target = &self.nodes[edge.to];
        target.len() > 0 && target.generation == edge.generation
    }

    /// One read of a range that continued no stream, right after a read that ended with the block `previous`. Returns the
    /// last node of the range; none for a range that the graph does not take, or for whose volume there is no room.
    pub fn record(&mut self, now: Instant, previous: Option<(VolumeId, u64)>, read: Range) -> Option<NodeId> {
        if read.count == 0 || read.first.saturating_add(read.count) > crate::BLOCKS_MAX {
            return None;
        }
        let end = read.first + read.count.min(READ_BLOCKS_MAX);
        let places = ((end - 1) >> PLACE_SHIFT) - (read.first >> PLACE_SHIFT) + 1;
        self.make_room(now, places as usize * NODES_PER_PLACE, 1);
        let epoch = self.epoch(now);
        let volume = self.number_of(read.volume, epoch)?;
        let (mut head, mut tail, mut at) = (NONE, NONE, read.first);
        while at < end {
            let base = at & !(PLACE_BLOCKS - 1);
            let to = end.min(base + PLACE_BLOCKS);
            let ends = self.cover(place_of(volume, at), (at - base) as u8, (to - base) as u8, epoch);
            head = if head == NONE { ends.0 } else { head };
            (tail, at) = (ends.1, to);
        }
        if let Some(NodeId(from)) = previous.and_then(|(volume, block)| self.find(volume, block)) {
            self.count_edge(from, head, epoch);
        }
        Some(NodeId(tail))
    }

    /// The number of a volume that is about to get a node. When all are taken one node is evicted, so that numbers become
    /// free in the course of time.
    fn number_of(&mut self, volume: VolumeId, epoch: u16) -> Option<u32> {
        if self.volumes.is_full() && self.volumes.find(volume).is_none() {
            self.evict_one(epoch);
        }
        self.volumes.number(volume)
    }

    /// Makes [begin, end) of a place a sequence of whole nodes; returns the first and the last.
    fn cover(&mut self, place: u64, begin: u8, end: u8, epoch: u16) -> (u32, u32) {
        let mut overlapping = [(0u8, NONE); PLACE_BLOCKS as usize];
        let mut count = 0;
        for (id, node) in self
            .chain(place)
            .filter(|(_, node)| node.start < end && begin < node.end())
        {
            overlapping[count] = (node.start, id);
            count += 1;
        }
        overlapping[..count].sort_unstable();
        let (mut first, mut last, mut at) = (NONE, NONE, begin);
        let mut join = |id: u32| {
            first = if first == NONE { id } else { first };
            last = id;
        };
        for &(start, mut id) in &overlapping[..count] {
            if start < begin {
                id = self.split(id, begin);
            } else if at < start {
                join(self.add_node(place, at, start - at, epoch));
            }
            if self.nodes[id].end() > end {
                self.split(id, end);
            }
            self.nodes[id].epoch = epoch;
            self.nodes[id].blocks |= READ_SINCE;
            at = self.nodes[id].end();
            join(id);
        }
        if at < end {
            join(self.add_node(place, at, end - at, epoch));
        }
        (first, last)
    }

    /// Splits a node in two; returns the second, which has the out-edges.
    fn split(&mut self, id: u32, at: u8) -> u32 {
        let whole = self.nodes[id];
        let second = self.add_node(whole.place(), at, whole.end() - at, whole.epoch);
        let (p, g) = (whole.p, whole.g);
        let node = &mut self.nodes[second];
        (node.out, node.p, node.g) = (whole.out, p, g);
        let first = &mut self.nodes[id];
        first.out = NONE;
        first.set_len(at - whole.start);
        second
    }

    /// Adds a node; there must be room.
    pub(super) fn add_node(&mut self, place: u64, start: u8, len: u8, epoch: u16) -> u32 {
        let p = self.config.degree_initial.max(1);
        let mut node = Node {
            place: [(place >> 32) as u32, place as u32],
            chain: NONE,
            out: NONE,
            generation: 0,
            epoch,
            p,
            g: p / 2,
            in_count: 0,
            start,
            blocks: len | READ_SINCE,
        };
        let id = if self.free_node == NONE {
            self.nodes.push(node)
        } else {
            let id = self.free_node;
            self.free_node = self.nodes[id].chain;
            node.generation = self.nodes[id].generation;
            self.nodes[id] = node;
            id
        };
        self.live_nodes += 1;
        self.volumes.add_node(self.nodes[id].volume());
        if self.live_nodes > self.places.len() {
            self.divide_chain();
        }
        self.hang(id);
        id
    }

    fn divide_chain(&mut self) {
        let from = self.places.divide().from;
        let mut at = self.places.head(from);
        self.places.set_head(from, NONE);
        while at != NONE {
            let next = self.nodes[at].chain;
            self.hang(at);
            at = next;
        }
    }

    fn hang(&mut self, id: u32) {
        let chain = self.places.chain(self.nodes[id].place());
        self.nodes[id].chain = self.places.head(chain);
        self.places.set_head(chain, id);
    }

    fn unhang(&mut self, id: u32) {
        let (chain, after) = (self.places.chain(self.nodes[id].place()), self.nodes[id].chain);
        let mut at = self.places.head(chain);
        if at == id {
            return self.places.set_head(chain, after);
        }
        while self.nodes[at].chain != id {
            at = self.nodes[at].chain;
        }
        self.nodes[at].chain = after;
    }

    fn remove_node(&mut self, id: u32) {
        while self.nodes[id].out != NONE {
            self.drop_edge_after(id, NONE);
        }
        self.unhang(id);
        self.volumes.remove_node(self.nodes[id].volume());
        let node = &mut self.nodes[id];
        node.blocks = 0;
        node.generation = node.generation.wrapping_add(1);
        node.chain = self.free_node;
        self.free_node = id;
        self.live_nodes -= 1;
    }

    /// Drops the edge behind `before`, or the first one of the node.
    fn drop_edge_after(&mut self, from: u32, before: u32) {
        let id = if before == NONE {
            self.nodes[from].out
        } else {
            self.edges[before].next
        };
        let edge = self.edges[id];
        if before == NONE {
            self.nodes[from].out = edge.next;
        } else {
            self.edges[before].next = edge.next;
        }
        if self.is_live(&edge) && self.nodes[edge.to].in_count < u16::MAX {
            self.nodes[edge.to].in_count -= 1;
        }
        self.edges[id].next = self.free_edge;
        self.free_edge = id;
        self.live_edges -= 1;
    }

    /// Drops the edges of a node that lead nowhere or are forgotten; returns how many are left.
    fn tidy(&mut self, from: u32, epoch: u16) -> usize {
        let (mut before, mut at, mut left) = (NONE, self.nodes[from].out, 0);
        while at != NONE {
            let edge = self.edges[at];
            if edge.count(epoch) == 0 || !self.is_live(&edge) {
                self.drop_edge_after(from, before);
            } else {
                before = at;
                left += 1;
            }
            at = edge.next;
        }
        left
    }

    fn count_edge(&mut self, from: u32, to: u32, epoch: u16) {
        let degree = self.tidy(from, epoch);
        let mut at = self.nodes[from].out;
        while at != NONE && self.edges[at].to != to {
            at = self.edges[at].next;
        }
        if at == NONE {
            if degree >= OUT_DEGREE_MAX {
                self.drop_least(from, epoch);
            }
            at = self.add_edge(from, to, epoch);
        }
        self.edges[at].rotate(epoch);
        if self.edges[at].current == u16::MAX {
            self.halve(from);
        }
        self.edges[at].current += 1;
    }

    /// Adds an edge without a count; there must be room.
    pub(super) fn add_edge(&mut self, from: u32, to: u32, epoch: u16) -> u32 {
        let edge = Edge {
            to,
            next: self.nodes[from].out,
            generation: self.nodes[to].generation,
            epoch,
            current: 0,
            previous: 0,
        };
        let id = if self.free_edge == NONE {
            self.edges.push(edge)
        } else {
            let id = self.free_edge;
            self.free_edge = self.edges[id].next;
            self.edges[id] = edge;
            id
        };
        self.nodes[from].out = id;
        self.nodes[to].in_count = self.nodes[to].in_count.saturating_add(1);
        self.live_edges += 1;
        id
    }

    /// Drops the edge with the least count, of several that with the lowest target.
    fn drop_least(&mut self, from: u32, epoch: u16) {
        let (mut before, mut at) = (NONE, self.nodes[from].out);
        let mut least = None;
        while at != NONE {
            let edge = &self.edges[at];
            let target = &self.nodes[edge.to];
            let key = (edge.count(epoch), target.place(), target.start);
            if least.is_none_or(|(least, _)| key < least) {
                least = Some((key, before));
            }
            (before, at) = (at, edge.next);
        }
        if let Some((_, before)) = least {
            self.drop_edge_after(from, before);
        }
    }

    /// Halves all counts of a node, so that they keep their proportions.
    fn halve(&mut self, from: u32) {
        let mut at = self.nodes[from].out;
        while at != NONE {
            let edge = &mut self.edges[at];
            edge.current = edge.current.div_ceil(2);
            edge.previous /= 2;
            at = edge.next;
        }
    }

    /// Evicts until so many nodes and edges can be added.
    fn make_room(&mut self, now: Instant, nodes: usize, edges: usize) {
        let epoch = self.epoch(now);
        while self.live_nodes > 0
            && (self.live_nodes + nodes > self.config.nodes_max as usize
                || self.live_edges + edges > self.config.edges_max as usize)
        {
            self.evict_one(epoch);
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.live_nodes < self.config.nodes_max as usize
    }

    pub(super) fn has_room_for_edge(&self) -> bool {
        self.live_edges < self.config.edges_max as usize
    }

    fn evict_one(&mut self, epoch: u16) {
        let mut passed = 0;
        loop {
            let id = self.hand;
            self.hand = (self.hand + 1) % self.nodes.len() as u32;
            if self.nodes[id].len() == 0 {
                continue;
            }
            passed += 1;
            if self.nodes[id].blocks & READ_SINCE == 0 || passed > HAND_STEPS_MAX {
                self.remove_node(id);
                self.evicted += 1;
                return;
            }
            self.nodes[id].blocks &= !READ_SINCE;
            self.tidy(id, epoch);
        }
    }

    /// Looks after the next `steps` slots: drops what is forgotten, merges what nothing distinguishes.
    pub fn sweep(&mut self, now: Instant, steps: usize) {
        let epoch = self.epoch(now);
        for _ in 0..steps.min(self.nodes.len()) {
            let id = self.broom;
            self.broom = (self.broom + 1) % self.nodes.len() as u32;
            if self.nodes[id].len() == 0 {
                continue;
            }
            if self.is_forgotten(&self.nodes[id]) {
                self.remove_node(id);
                continue;
            }
            let degree = self.tidy(id, epoch);
            let node = self.nodes[id];
            if degree == 0 && node.in_count == 0 && epoch.wrapping_sub(node.epoch) >= 2 {
                self.remove_node(id);
            } else if degree == 0 {
                self.merge(id);
            }
        }
    }

    /// Merges a node without out-edges with the one behind it in its place, if no edge leads to that one.
    fn merge(&mut self, id: u32) {
        let first = self.nodes[id];
        let Some(second_id) = self.find_start(first.place(), first.end()) else {
            return;
        };
        let second = self.nodes[second_id];
        if second.in_count > 0 {
            return;
        }
        // The out-edges go over as they are, so no target's count of in-edges changes.
        self.nodes[second_id].out = NONE;
        self.remove_node(second_id);
        let node = &mut self.nodes[id];
        node.set_len(first.len() + second.len());
        (node.out, node.p, node.g) = (second.out, second.p, second.g);
    }

    /// Nothing is found in the volume any more, nor suggested of it. Its nodes go by and by.
    pub fn forget_volume(&mut self, volume: VolumeId) {
        self.volumes.forget(volume);
    }

    /// Whether a node lies in a volume that was forgotten.
    pub(super) fn is_forgotten(&self, node: &Node) -> bool {
        self.volumes.is_forgotten(node.volume())
    }

    /// Nodes do not overlap and hang in the chain of their place; degrees, counts and bounds hold.
    pub fn check_invariants(&self) {
        let mut in_counts = alloc::collections::BTreeMap::new();
        let mut covered = alloc::collections::BTreeMap::new();
        let mut volumes = alloc::collections::BTreeMap::new();
        let (mut live, mut edges) = (0, 0);
        for id in (0..self.nodes.len() as u32).filter(|id| self.nodes[*id].len() > 0) {
            let node = &self.nodes[id];
            live += 1;
            *volumes.entry(node.volume()).or_insert(0) += 1;
            assert!(u64::from(node.end()) <= PLACE_BLOCKS && node.g < node.p);
            assert_eq!(self.find_start(node.place(), node.start), Some(id));
            let mask = (u64::MAX >> (64 - u32::from(node.len()))) << node.start;
            let taken = covered.entry(node.place()).or_insert(0u64);
            assert_eq!(*taken & mask, 0, "nodes overlap");
            *taken |= mask;
            let (mut at, mut degree) = (node.out, 0);
            while at != NONE {
                let edge = &self.edges[at];
                degree += 1;
                if self.is_live(edge) {
                    *in_counts.entry(edge.to).or_insert(0u16) += 1;
                }
                at = edge.next;
            }
            assert!(degree <= OUT_DEGREE_MAX);
            edges += degree;
        }
        self.volumes.check_invariants(&volumes);
        assert_eq!((live, edges), (self.live_nodes, self.live_edges));
        assert!(live <= self.config.nodes_max as usize && edges <= self.config.edges_max as usize);
        for id in (0..self.nodes.len() as u32).filter(|id| self.nodes[*id].len() > 0) {
            assert_eq!(self.nodes[id].in_count, in_counts.get(&id).copied().unwrap_or(0));
        }
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
