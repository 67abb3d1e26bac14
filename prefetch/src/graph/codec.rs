//! The history on disk. It is a hint: a damaged file costs predictions, nothing else, so the caller drops it and starts
//! with an empty one.
//!
//! ```text
//! header   magic 8 | version u16 | zero u16 | chunks u32 | window_micros u64 | phase_micros u64 | sum u64
//! chunk    payload bytes u32 | nodes u32 | sum u64 | payload
//! payload  volumes varint | their identifiers, each as zigzag varint difference to the one before | nodes
//! node     place, as zigzag varint difference to the one before | start u8 | blocks - 1 (6 bits), 0x40: with degree,
//!          0x80: not read in the current window | [p varint | g varint] | edges u8 | edges
//! edge     place, as zigzag varint difference to the node's | start (6 bits), 0x40: of the window before, 0x80: with
//!          counts of the window before | count varint | [count before varint]
//! ```
//!
//! Integers are little-endian; sums are XXH3-64 of all before (header) and of the payload (chunk). A place is the volume's
//! position in its chunk's list (22 bits) and the number of the place in the volume (42 bits).
//!
//! A chunk is complete in itself: edges name their targets by address. So chunks may be written one at a time between reads; a node that overlaps one of
//! an earlier chunk, or an edge to a node that is gone, is left out when they are read back. Time spent switched off does
//! not count towards expiry.

use super::history::{Edge, GRANULE_BITS, History, HistoryConfig, Node, OUT_DEGREE_MAX, PLACE_BLOCKS};
use super::places::NONE;
use super::slab::PIECE;
use alloc::{collections::BTreeMap, vec::Vec};
use tombolo_base::{BlockSum, DecodeError, Instant, Reader, VolumeId, Writer};

const MAGIC: &[u8; 8] = b"TMBHIST\0";
/// Of the format; others are not read.
pub const VERSION: u16 = 2;
const SUM_BYTES: usize = 8;
/// Length of what [`History::encode_header`] returns.
pub const HEADER_BYTES: usize = 40;
const GRANULE_MASK: u64 = (1 << GRANULE_BITS) - 1;

impl History {
    /// How many chunks there are to encode now.
    pub fn chunk_count(&self) -> u32 {
        self.nodes.len().div_ceil(PIECE) as u32
    }

    /// What stands before the chunks: their number, and the age of the counts at `now`.
    pub fn encode_header(&self, now: Instant) -> Vec<u8> {
        let mut out = Writer::with_capacity(HEADER_BYTES);
        out.bytes(MAGIC).u16(VERSION).u16(0).u32(self.chunk_count());
        out.u64(self.config.window_micros).u64(self.phase(now));
        let sum = BlockSum::of(&out.0);
        out.u64(sum.0);
        out.0
    }

    /// One of [`Self::chunk_count`] parts of the history, as it is at `now`.
    pub fn encode_chunk(&self, now: Instant, chunk: u32) -> Vec<u8> {
        let epoch = self.epoch(now);
        let nodes = || {
            self.nodes
                .piece(chunk as usize)
                .iter()
                .filter(|node| self.is_kept(node))
        };
        let mut payload = Writer::default();
        let volumes = self.encode_volumes(&mut payload, nodes(), epoch);
        let (mut count, mut place) = (0, 0);
        for node in nodes() {
            put_difference(&mut payload, place, volumes.place(node));
            place = volumes.place(node);
            self.encode_node(&mut payload, &volumes, node, epoch);
            count += 1;
        }
        let mut out = Writer::with_capacity(payload.0.len() + 16);
        out.u32(payload.0.len() as u32)
            .u32(count)
            .u64(BlockSum::of(&payload.0).0)
            .bytes(&payload.0);
        out.0
    }

    /// Header and all chunks.
    pub fn encode(&self, now: Instant) -> Vec<u8> {
        let mut out = self.encode_header(now);
        (0..self.chunk_count()).for_each(|chunk| out.extend_from_slice(&self.encode_chunk(now, chunk)));
        out
    }

    fn is_kept(&self, node: &Node) -> bool {
        node.len() > 0 && !self.is_forgotten(node)
    }

    /// The edges of a node that are written.
    fn kept_edges(&self, node: &Node, epoch: u16) -> impl Iterator<Item = &Edge> {
        let mut at = node.out;
        core::iter::from_fn(move || {
            let edge = (at != NONE).then(|| &self.edges[at])?;
            at = edge.next;
            Some(edge)
        })
        .filter(move |edge| edge.count(epoch) > 0 && self.is_live(edge) && self.is_kept(&self.nodes[edge.to]))
    }

    /// Writes the list of the volumes that these nodes and their edges name.
    fn encode_volumes<'a>(&self, out: &mut Writer, nodes: impl Iterator<Item = &'a Node>, epoch: u16) -> ChunkVolumes {
        let mut positions = BTreeMap::new();
        for node in nodes {
            positions.insert(node.volume(), 0);
            let targets = self.kept_edges(node, epoch).map(|edge| self.nodes[edge.to].volume());
            positions.extend(targets.map(|number| (number, 0)));
        }
        put_varint(out, positions.len() as u64);
        let mut before = 0;
        for (at, (number, position)) in positions.iter_mut().enumerate() {
            *position = at as u64;
            let VolumeId(id) = self.volumes.id(*number);
            put_difference(out, before, id);
            before = id;
        }
        ChunkVolumes { positions }
    }

    fn encode_node(&self, out: &mut Writer, volumes: &ChunkVolumes, node: &Node, epoch: u16) {
        let initial = self.config.degree_initial.max(1);
        let with_degree = (node.p, node.g) != (initial, initial / 2);
        let aged = epoch != node.epoch;
        out.u8(node.start)
            .u8((node.len() - 1) | (u8::from(with_degree) << 6) | (u8::from(aged) << 7));
        if with_degree {
            put_varint(out, node.p.into());
            put_varint(out, node.g.into());
        }
        out.u8(self.kept_edges(node, epoch).count() as u8);
        for edge in self.kept_edges(node, epoch) {
            let target = &self.nodes[edge.to];
            put_difference(out, volumes.place(node), volumes.place(target));
            Self::encode_edge(out, target, edge, epoch);
        }
    }

    fn encode_edge(out: &mut Writer, target: &Node, edge: &Edge, epoch: u16) {
        let aged = edge.epoch != epoch;
        let with_previous = !aged && edge.previous > 0;
        out.u8(target.start | u8::from(aged) << 6 | u8::from(with_previous) << 7);
        put_varint(out, edge.current.into());
        if with_previous {
            put_varint(out, edge.previous.into());
        }
    }

    /// Reads back what [`Self::encode`] wrote; more nodes than the settings allow are left out.
    pub fn decode(config: HistoryConfig, now: Instant, bytes: &[u8]) -> Result<Self, DecodeError> {
        let (header, mut rest) = bytes.split_at(bytes.len().min(HEADER_BYTES));
        let mut restorer = Restorer::new(config, now, header)?;
        let mut chunks = Vec::new();
        for _ in 0..restorer.chunk_count() {
            let length = Restorer::chunk_bytes(rest)?;
            let mut reader = Reader::new(rest);
            chunks.push(reader.bytes("history chunk", length)?);
            rest = &rest[length..];
        }
        Reader::new(rest).finish("history")?;
        chunks.iter().try_for_each(|chunk| restorer.nodes(chunk))?;
        chunks.iter().try_for_each(|chunk| restorer.edges(chunk))?;
        Ok(restorer.finish())
    }
}

/// Positions of volumes, by their numbers, in the list of a chunk.
struct ChunkVolumes {
    positions: BTreeMap<u32, u64>,
}

impl ChunkVolumes {
    fn place(&self, node: &Node) -> u64 {
        self.positions[&node.volume()] << GRANULE_BITS | node.place() & GRANULE_MASK
    }
}

/// Reads a history back chunk by chunk: first [`Self::nodes`] for each, then [`Self::edges`] for each.
#[derive(Debug)]
pub struct Restorer {
    history: History,
    chunks: u32,
}

/// What precedes a node's edges.
struct NodeHead {
    volume: VolumeId,
    place: u64,
    start: u8,
    len: u8,
    degree: Option<(u16, u16)>,
    aged: bool,
    edges: u8,
}

struct EdgeRecord {
    volume: VolumeId,
    place: u64,
    start: u8,
    aged: bool,
    current: u16,
    previous: u16,
}

impl Restorer {
    /// `header` is what [`History::encode_header`] wrote.
    ///
    /// # Errors
    /// When it is damaged or of another version.
    pub fn new(config: HistoryConfig, now: Instant, header: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(header);
        let magic = reader.bytes("history magic", MAGIC.len())?;
        if magic != MAGIC {
            let value = u64::from_le_bytes(core::array::from_fn(|at| magic[at]));
            return Err(DecodeError::Invalid {
                what: "history magic",
                value,
            });
        }
        let version = reader.u16("history version")?;
        if version != VERSION {
            let value = version.into();
            return Err(DecodeError::Invalid {
                what: "history version",
                value,
            });
        }
        reader.u16("history reserved")?;
        let chunks = reader.u32("history chunks")?;
        let window = reader.u64("history window")?;
        let phase = reader.u64("history phase")?;
        let found = reader.u64("history sum")?;
        reader.finish("history header")?;
        check_sum("history header", found, &header[..HEADER_BYTES - SUM_BYTES])?;
        if window == 0 || phase >= window {
            return Err(DecodeError::Invalid {
                what: "history phase",
                value: phase,
            });
        }
        let mut history = History::new(config);
        history.set_phase(now, phase);
        Ok(Self { history, chunks })
    }

    /// How many chunks follow the header.
    pub fn chunk_count(&self) -> u32 {
        self.chunks
    }

    /// The length of the chunk that begins here, from its first four bytes.
    pub fn chunk_bytes(start: &[u8]) -> Result<usize, DecodeError> {
        Ok(Reader::new(start).u32("history chunk length")? as usize + 16)
    }

    /// Adds the nodes of a chunk.
    pub fn nodes(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        self.walk(chunk, History::restore_node, |_, _, _| ())
    }

    /// Adds the edges of a chunk; the nodes of all chunks must be there.
    pub fn edges(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        self.walk(
            chunk,
            |history, head| history.find_written(head.volume, head.place, head.start),
            History::restore_edge,
        )
    }

    /// What was restored so far.
    pub fn finish(self) -> History {
        self.history
    }

    fn walk(
        &mut self,
        chunk: &[u8],
        mut on_node: impl FnMut(&mut History, &NodeHead) -> Option<u32>,
        mut on_edge: impl FnMut(&mut History, u32, &EdgeRecord),
    ) -> Result<(), DecodeError> {
        let mut reader = Reader::new(chunk);
        let length = reader.u32("history chunk length")? as usize;
        let nodes = reader.u32("history chunk nodes")?;
        let found = reader.u64("history chunk sum")?;
        let payload = reader.bytes("history chunk payload", length)?;
        reader.finish("history chunk")?;
        check_sum("history chunk", found, payload)?;
        let mut reader = Reader::new(payload);
        let volumes = read_volumes(&mut reader)?;
        let mut place = 0;
        for _ in 0..nodes {
            let head = read_node(&mut reader, &volumes, place)?;
            place = head.place;
            let node = on_node(&mut self.history, &head);
            for _ in 0..head.edges {
                let edge = read_edge(&mut reader, &volumes, place)?;
                if let Some(node) = node {
                    on_edge(&mut self.history, node, &edge);
                }
            }
        }
        reader.finish("history chunk payload")
    }
}

impl History {
    /// The node that begins at an address of a chunk.
    fn find_written(&self, volume: VolumeId, place: u64, start: u8) -> Option<u32> {
        let number = self.volumes.find(volume)?;
        self.find_start(own_place(number, place), start)
    }

    fn restore_node(&mut self, head: &NodeHead) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        // A volume that is new has no nodes, so this one is added and the number does not stay unused.
        let place = own_place(self.volumes.number(head.volume)?, head.place);
        if self.overlaps(place, head.start, head.start + head.len) {
            return None;
        }
        // Window 0 is the current one.
        let epoch = if head.aged { u16::MAX } else { 0 };
        let id = self.add_node(place, head.start, head.len, epoch);
        if let Some((p, g)) = head.degree {
            (self.nodes[id].p, self.nodes[id].g) = (p, g);
        }
        Some(id)
    }

    fn restore_edge(&mut self, from: u32, edge: &EdgeRecord) {
        let Some(to) = self.find_written(edge.volume, edge.place, edge.start) else {
            return;
        };
        let (mut at, mut degree) = (self.nodes[from].out, 0);
        while at != NONE {
            if self.edges[at].to == to {
                return;
            }
            degree += 1;
            at = self.edges[at].next;
        }
        if degree < OUT_DEGREE_MAX && self.has_room_for_edge() {
            let id = self.add_edge(from, to, if edge.aged { u16::MAX } else { 0 });
            (self.edges[id].current, self.edges[id].previous) = (edge.current, edge.previous);
        }
    }
}

/// An address of a chunk as a place of the history, in which the volume has another number.
fn own_place(volume: u32, place: u64) -> u64 {
    u64::from(volume) << GRANULE_BITS | place & GRANULE_MASK
}

fn read_volumes(reader: &mut Reader<'_>) -> Result<Vec<VolumeId>, DecodeError> {
    let (count, mut before) = (read_varint(reader)?, 0);
    let mut volumes = Vec::new();
    for _ in 0..count {
        before = read_difference(reader, before)?;
        volumes.push(VolumeId(before));
    }
    Ok(volumes)
}

fn volume_of(volumes: &[VolumeId], place: u64) -> Result<VolumeId, DecodeError> {
    let position = place >> GRANULE_BITS;
    let volume = volumes.get(position as usize);
    volume.copied().ok_or(DecodeError::Invalid {
        what: "history volume",
        value: position,
    })
}

fn read_node(reader: &mut Reader<'_>, volumes: &[VolumeId], before: u64) -> Result<NodeHead, DecodeError> {
    let place = read_difference(reader, before)?;
    let volume = volume_of(volumes, place)?;
    let start = reader.u8("history node start")?;
    let flags = reader.u8("history node blocks")?;
    let len = (flags & 0x3f) + 1;
    if u64::from(start) + u64::from(len) > PLACE_BLOCKS {
        let value = u64::from(start) << 8 | u64::from(len);
        return Err(DecodeError::Invalid {
            what: "history node range",
            value,
        });
    }
    let degree = if flags & 0x40 == 0 {
        None
    } else {
        let (p, g) = (read_count(reader)?, read_count(reader)?);
        if g >= p {
            return Err(DecodeError::Invalid {
                what: "history node degree",
                value: g.into(),
            });
        }
        Some((p, g))
    };
    let edges = reader.u8("history node edges")?;
    if usize::from(edges) > OUT_DEGREE_MAX {
        return Err(DecodeError::Invalid {
            what: "history node edges",
            value: edges.into(),
        });
    }
    let aged = flags & 0x80 != 0;
    Ok(NodeHead {
        volume,
        place,
        start,
        len,
        degree,
        aged,
        edges,
    })
}

fn read_edge(reader: &mut Reader<'_>, volumes: &[VolumeId], from: u64) -> Result<EdgeRecord, DecodeError> {
    let place = read_difference(reader, from)?;
    let volume = volume_of(volumes, place)?;
    let flags = reader.u8("history edge start")?;
    let current = read_count(reader)?;
    let previous = if flags & 0x80 == 0 { 0 } else { read_count(reader)? };
    Ok(EdgeRecord {
        volume,
        place,
        start: flags & 0x3f,
        aged: flags & 0x40 != 0,
        current,
        previous,
    })
}

fn check_sum(what: &'static str, found: u64, bytes: &[u8]) -> Result<(), DecodeError> {
    let computed = BlockSum::of(bytes).0;
    if found == computed {
        Ok(())
    } else {
        Err(DecodeError::Checksum { what, found, computed })
    }
}

fn put_varint(out: &mut Writer, mut value: u64) {
    while value >= 0x80 {
        out.u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.u8(value as u8);
}

fn read_varint(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = reader.u8("history varint")?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(DecodeError::Invalid {
                what: "history varint",
                value: bits,
            });
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(DecodeError::Invalid {
        what: "history varint",
        value,
    })
}

fn read_count(reader: &mut Reader<'_>) -> Result<u16, DecodeError> {
    let value = read_varint(reader)?;
    u16::try_from(value).map_err(|_| DecodeError::Invalid {
        what: "history count",
        value,
    })
}

fn put_difference(out: &mut Writer, before: u64, value: u64) {
    let difference = value.wrapping_sub(before) as i64;
    put_varint(out, (difference << 1 ^ difference >> 63) as u64);
}

fn read_difference(reader: &mut Reader<'_>, before: u64) -> Result<u64, DecodeError> {
    let zigzag = read_varint(reader)?;
    Ok(before.wrapping_add(zigzag >> 1 ^ 0u64.wrapping_sub(zigzag & 1)))
}
