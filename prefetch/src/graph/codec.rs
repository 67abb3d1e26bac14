//! The history on disk. It is a hint: a damaged file costs predictions, nothing else, so the caller drops it and starts
//! with an empty one.
//!
//! ```text
//! header   magic 8 | version u16 | zero u16 | chunks u32 | window_micros u64 | phase_micros u64 | sum u64
//! chunk    payload bytes u32 | nodes u32 | sum u64 | payload
//! node     place, as zigzag varint difference to the one before | start u8 | blocks - 1 (6 bits), 0x40: with degree,
//!          0x80: not read in the current window | [p varint | g varint] | edges u8 | edges
//! edge     place, as zigzag varint difference to the node's | start (6 bits), 0x40: of the window before, 0x80: with
//!          counts of the window before | count varint | [count before varint]
//! ```
//!
//! Integers are little-endian; sums are XXH3-64 of all before (header) and of the payload (chunk). A chunk is complete in itself: edges name
//! their targets by address. So chunks may be written one at a time between reads; a node that overlaps one of
//! an earlier chunk, or an edge to a node that is gone, is left out when they are read back. Time spent switched off does
//! not count towards expiry.

use super::history::{Edge, History, HistoryConfig, Node, OUT_DEGREE_MAX, PLACE_BLOCKS};
use super::places::NONE;
use super::slab::PIECE;
use alloc::vec::Vec;
use tombolo_base::{BlockSum, DecodeError, Instant, Reader, Writer};

const MAGIC: &[u8; 8] = b"TMBHIST\0";
pub const VERSION: u16 = 1;
const SUM_BYTES: usize = 8;
pub const HEADER_BYTES: usize = 40;

impl History {
    /// How many chunks there are to encode now.
    pub fn chunk_count(&self) -> u32 {
        self.nodes.len().div_ceil(PIECE) as u32
    }

    pub fn encode_header(&self, now: Instant) -> Vec<u8> {
        let mut out = Writer::with_capacity(HEADER_BYTES);
        out.bytes(MAGIC).u16(VERSION).u16(0).u32(self.chunk_count());
        out.u64(self.config.window_micros).u64(self.phase(now));
        let sum = BlockSum::of(&out.0);
        out.u64(sum.0);
        out.0
    }

    pub fn encode_chunk(&self, now: Instant, chunk: u32) -> Vec<u8> {
        let epoch = self.epoch(now);
        let mut payload = Writer::default();
        let (mut count, mut place) = (0, 0);
        for node in self.nodes.piece(chunk as usize).iter().filter(|node| node.len() > 0) {
            put_difference(&mut payload, place, node.place());
            place = node.place();
            self.encode_node(&mut payload, node, epoch);
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

    fn encode_node(&self, out: &mut Writer, node: &Node, epoch: u16) {
        let initial = self.config.degree_initial.max(1);
        let with_degree = (node.p, node.g) != (initial, initial / 2);
        let aged = epoch != node.epoch;
        out.u8(node.start)
            .u8((node.len() - 1) | (u8::from(with_degree) << 6) | (u8::from(aged) << 7));
        if with_degree {
            put_varint(out, node.p.into());
            put_varint(out, node.g.into());
        }
        let edges = || {
            let mut at = node.out;
            core::iter::from_fn(move || {
                let edge = (at != NONE).then(|| &self.edges[at])?;
                at = edge.next;
                Some(edge)
            })
            .filter(|edge| edge.count(epoch) > 0 && self.is_live(edge))
        };
        out.u8(edges().count() as u8);
        edges().for_each(|edge| self.encode_edge(out, node, edge, epoch));
    }

    fn encode_edge(&self, out: &mut Writer, from: &Node, edge: &Edge, epoch: u16) {
        let target = &self.nodes[edge.to];
        put_difference(out, from.place(), target.place());
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

/// Reads a history back chunk by chunk: first [`Self::nodes`] for each, then [`Self::edges`] for each.
#[derive(Debug)]
pub struct Restorer {
    history: History,
    chunks: u32,
}

/// What precedes a node's edges.
struct NodeHead {
    place: u64,
    start: u8,
    len: u8,
    degree: Option<(u16, u16)>,
    aged: bool,
    edges: u8,
}

struct EdgeRecord {
    place: u64,
    start: u8,
    aged: bool,
    current: u16,
    previous: u16,
}

impl Restorer {
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

    pub fn chunk_count(&self) -> u32 {
        self.chunks
    }

    /// The length of the chunk that begins here, from its first four bytes.
    pub fn chunk_bytes(start: &[u8]) -> Result<usize, DecodeError> {
        Ok(Reader::new(start).u32("history chunk length")? as usize + 16)
    }

    /// Adds the nodes of a chunk.
    pub fn nodes(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        self.walk(chunk, |history, head| history.restore_node(head), |_, _, _| ())
    }

    /// Adds the edges of a chunk; the nodes of all chunks must be there.
    pub fn edges(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        self.walk(
            chunk,
            |history, head| history.find_start(head.place, head.start),
            |history, from, edge| history.restore_edge(from, edge),
        )
    }

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
        let mut place = 0;
        for _ in 0..nodes {
            let head = read_node(&mut reader, place)?;
            place = head.place;
            let node = on_node(&mut self.history, &head);
            for _ in 0..head.edges {
                let edge = read_edge(&mut reader, place)?;
                if let Some(node) = node {
                    on_edge(&mut self.history, node, &edge);
                }
            }
        }
        reader.finish("history chunk payload")
    }
}

impl History {
    fn restore_node(&mut self, head: &NodeHead) -> Option<u32> {
        if !self.has_room() || self.overlaps(head.place, head.start, head.start + head.len) {
            return None;
        }
        // Window 0 is the current one.
        let epoch = if head.aged { u16::MAX } else { 0 };
        let id = self.add_node(head.place, head.start, head.len, epoch);
        if let Some((p, g)) = head.degree {
            (self.nodes[id].p, self.nodes[id].g) = (p, g);
        }
        Some(id)
    }

    fn restore_edge(&mut self, from: u32, edge: &EdgeRecord) {
        let Some(to) = self.find_start(edge.place, edge.start) else {
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

fn read_node(reader: &mut Reader<'_>, before: u64) -> Result<NodeHead, DecodeError> {
    let place = read_difference(reader, before)?;
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
        place,
        start,
        len,
        degree,
        aged,
        edges,
    })
}

fn read_edge(reader: &mut Reader<'_>, from: u64) -> Result<EdgeRecord, DecodeError> {
    let place = read_difference(reader, from)?;
    let flags = reader.u8("history edge start")?;
    let current = read_count(reader)?;
    let previous = if flags & 0x80 == 0 { 0 } else { read_count(reader)? };
    Ok(EdgeRecord {
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
