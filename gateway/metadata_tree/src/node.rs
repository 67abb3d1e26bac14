//! The bytes of nodes, as they are before encryption, and of a tree's root.
//!
//! ```text
//! node
//!   0 magic "TN"
//!   2 kind             u8    1 leaf, 2 interior, 3 segment of a map; 4, 5, 6 of entries
//!   3 height           u8    1..=16 of an interior node, else 0
//!   4 flags            u8 = 0
//!   5 reserved         3 bytes = 0
//!   8 bytes that follow  u32
//!  12 contents
//!
//! leaf, segment    count varint, then the records; only segments have deletions
//! interior         count varint, then per child: its first key, but for the first child; the pointer of its node;
//!                  its segments
//! root             height u8 | has a node u8 | the pointer of the node, if it has one | its segments
//! segments         count u8; unless it is 0, bytes that their deletions hide, varint; the pointer of each, oldest
//!                  first
//! ```
//!
//! A node's first child begins where the node itself does, which is said one level above. The pointers of one node, and
//! of one root, are one [`PointerSequence`]. Decoders take any bytes, and accept only what the encoders write.

use crate::codec::Codec;
use crate::pointer::{Pointer, PointerSequence};
use crate::varint;
use alloc::vec::Vec;
use tombolo_base::{DecodeError, Reader, Writer};

const MAGIC: &[u8; 2] = b"TN";
const HEADER_BYTES: usize = 12;
/// Interior nodes above each other; with two children each they would reach 2^16 leaves.
pub const HEIGHT_MAX: u8 = 16;

/// What a node of records is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordNode {
    /// Values, without deletions.
    Leaf,
    /// Changes to what is below.
    Segment,
}

impl RecordNode {
    fn kind<C: Codec>(self) -> u8 {
        match self {
            Self::Leaf => C::LEAF_KIND,
            Self::Segment => C::LEAF_KIND + 2,
        }
    }
}

fn interior_kind<C: Codec>() -> u8 {
    C::LEAF_KIND + 1
}

/// The segments before a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// The oldest first; at most 255.
    pub pointers: Vec<Pointer>,
    /// About how much their deletions make superfluous below: [`Codec::hidden_bytes`] of them all, 0 without segments.
    pub hidden_bytes: u32,
}

/// A child of an interior node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child<K> {
    /// No key in it is below.
    pub first: K,
    /// The child itself.
    pub node: Pointer,
    /// Changes that lie over it.
    pub segments: Segments,
}

/// A tree: what names its topmost node, and the segments before that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Levels of interior nodes; a tree without a node has none.
    pub height: u8,
    /// None in a tree that has nothing but segments, or nothing at all.
    pub node: Option<Pointer>,
    /// Changes that lie over the node.
    pub segments: Segments,
}

fn invalid(what: &'static str, value: impl Into<u64>) -> DecodeError {
    DecodeError::Invalid {
        what,
        value: value.into(),
    }
}

fn begin(kind: u8, height: u8) -> Writer {
    let mut out = Writer::default();
    out.bytes(MAGIC).u8(kind).u8(height).u32(0).u32(0);
    out
}

fn finish(mut out: Writer) -> Vec<u8> {
    let contents_bytes = (out.0.len() - HEADER_BYTES) as u32;
    out.0[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&contents_bytes.to_le_bytes());
    out.0
}

/// A reader of the contents, and how many records or children these say they have.
fn open(bytes: &[u8], kind: u8, height: u8) -> Result<(Reader<'_>, usize), DecodeError> {
    let mut reader = Reader::new(bytes);
    let magic = reader.u16("node's magic")?;
    if magic != u16::from_le_bytes(*MAGIC) {
        return Err(invalid("node's magic", magic));
    }
    for (what, expected) in [("node's kind", kind), ("node's height", height)] {
        let found = reader.u8(what)?;
        if found != expected {
            return Err(invalid(what, found));
        }
    }
    let flags = reader.u32("node's flags")?;
    if flags != 0 {
        return Err(invalid("node's flags", flags));
    }
    let contents_bytes = reader.u32("node's bytes")?;
    if contents_bytes as usize != reader.remaining() {
        return Err(invalid("node's bytes", contents_bytes));
    }
    let count = varint::get(&mut reader, "node's count")?;
    // Each takes a byte and more, so memory is bounded by the node's own length.
    if count == 0 || count > reader.remaining() as u64 {
        return Err(invalid("node's count", count));
    }
    Ok((reader, count as usize))
}

/// A leaf or segment of these records, which [`Codec::check`] accepts; at least one.
pub fn encode_records<C: Codec>(node: RecordNode, records: &[C::Record]) -> Vec<u8> {
    let mut out = begin(node.kind::<C>(), 0);
    varint::put(&mut out, records.len() as u64);
    let mut position = C::Position::default();
    for record in records {
        C::put_record(&mut out, &mut position, record);
    }
    finish(out)
}

/// The records of a leaf or segment; at least one.
///
/// # Errors
/// When the bytes are not what [`encode_records`] writes.
pub fn decode_records<C: Codec>(node: RecordNode, bytes: &[u8]) -> Result<Vec<C::Record>, DecodeError> {
    let (mut reader, count) = open(bytes, node.kind::<C>(), 0)?;
    let mut records = Vec::new();
    let mut position = C::Position::default();
    for index in 0..count {
        let record = C::get_record(&mut reader, &mut position)?;
        if node == RecordNode::Leaf && C::is_deletion(&record) {
            return Err(invalid("index of a deletion in a leaf", index as u64));
        }
        records.push(record);
    }
    reader.finish("node")?;
    Ok(records)
}

/// An interior node of these children, in ascending order; at least one. The first key of the first one is not written.
pub fn encode_children<C: Codec>(height: u8, children: &[Child<C::Key>]) -> Vec<u8> {
    let mut out = begin(interior_kind::<C>(), height);
    varint::put(&mut out, children.len() as u64);
    let mut pointers = PointerSequence::default();
    let mut before = None;
    for (index, child) in children.iter().enumerate() {
        if index > 0 {
            C::put_key(&mut out, before, &child.first);
            before = Some(&child.first);
        }
        pointers.put(&mut out, &child.node);
        child.segments.put(&mut out, &mut pointers);
    }
    finish(out)
}

/// The children of an interior node of this height that begins at `low`; at least one.
///
/// # Errors
/// When the bytes are not what [`encode_children`] writes, or a child that is not the first begins at `low` or below.
pub fn decode_children<C: Codec>(height: u8, low: &C::Key, bytes: &[u8]) -> Result<Vec<Child<C::Key>>, DecodeError> {
    if !(1..=HEIGHT_MAX).contains(&height) {
        return Err(invalid("node's height", height));
    }
    let (mut reader, count) = open(bytes, interior_kind::<C>(), height)?;
    let mut pointers = PointerSequence::default();
    let mut children: Vec<Child<C::Key>> = Vec::new();
    for index in 0..count {
        let mut first = low.clone();
        if let Some(last) = children.last() {
            let before = (index > 1).then_some(&last.first);
            first = C::get_key(&mut reader, before)?;
            if first <= last.first {
                return Err(invalid("index of a child that is out of order", index as u64));
            }
        }
        let node = pointers.get(&mut reader)?;
        let segments = Segments::get(&mut reader, &mut pointers)?;
        children.push(Child { first, node, segments });
    }
    reader.finish("node")?;
    Ok(children)
}

impl Segments {
    /// What they take, and what they make superfluous.
    pub(crate) fn weight_bytes(&self) -> usize {
        let bytes: usize = self.pointers.iter().map(|segment| segment.bytes as usize).sum();
        bytes + self.hidden_bytes as usize
    }

    fn put(&self, out: &mut Writer, pointers: &mut PointerSequence) {
        out.u8(self.pointers.len() as u8);
        if self.pointers.is_empty() {
            return;
        }
        varint::put(out, self.hidden_bytes.into());
        for segment in &self.pointers {
            pointers.put(out, segment);
        }
    }

    fn get(reader: &mut Reader<'_>, pointers: &mut PointerSequence) -> Result<Self, DecodeError> {
        let count = reader.u8("count of segments")?;
        if count == 0 {
            return Ok(Self::default());
        }
        let hidden_bytes = varint::get_u32(reader, "bytes that segments hide")?;
        let pointers = (0..count).map(|_| pointers.get(reader)).collect::<Result<_, _>>()?;
        Ok(Self { pointers, hidden_bytes })
    }
}

impl Root {
    /// Appends it.
    pub fn encode(&self, out: &mut Writer) {
        out.u8(self.height).u8(self.node.is_some().into());
        let mut pointers = PointerSequence::default();
        if let Some(node) = &self.node {
            pointers.put(out, node);
        }
        self.segments.put(out, &mut pointers);
    }

    /// The next root; what follows it is left to be read.
    ///
    /// # Errors
    /// When the bytes are not what [`Self::encode`] writes, or the tree is higher than [`HEIGHT_MAX`].
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let height = reader.u8("root's height")?;
        let has_node = reader.u8("root's node")?;
        if has_node > 1 {
            return Err(invalid("root's node", has_node));
        }
        if height > HEIGHT_MAX || (height > 0 && has_node == 0) {
            return Err(invalid("root's height", height));
        }
        let mut pointers = PointerSequence::default();
        let node = match has_node {
            0 => None,
            _ => Some(pointers.get(reader)?),
        };
        let segments = Segments::get(reader, &mut pointers)?;
        Ok(Self { height, node, segments })
    }
}

#[cfg(test)]
mod tests;
