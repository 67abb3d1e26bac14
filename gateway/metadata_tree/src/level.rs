//! The nodes of one level, below one parent, while they are made. A node whose contents are new is held until it is
//! known what stands beside it: then it is joined with a neighbour, or written in as many pieces as it needs, or not at
//! all if it has become empty. So no node is written and given up by the same change.
//!
//! A node that fills less than a quarter is joined with a neighbour, if both fill at most three quarters together; what
//! is nearer to the bounds would go back and forth.

use crate::apply::Apply;
use crate::codec::{Codec, record_bytes};
use crate::load::{Bounds, Nodes, TreeError, load_children, load_records};
use crate::node::{Child, RecordNode, Segments, encode_children, encode_records};
use alloc::vec::Vec;

/// What a node holds.
pub enum Contents<C: Codec> {
    Records(Vec<C::Record>),
    Children(Vec<Child<C::Key>>),
}

/// A node that is not written yet.
pub struct Fresh<C: Codec> {
    pub contents: Contents<C>,
    /// They come from a neighbour that it was joined with.
    segments: Segments,
    /// Bytes of a leaf, children of an interior node.
    size: usize,
}

impl<C: Codec> Fresh<C> {
    pub fn new(contents: Contents<C>) -> Self {
        let size = match &contents {
            Contents::Records(records) => record_bytes::<C>(records).sum(),
            Contents::Children(children) => children.len(),
        };
        Self {
            contents,
            segments: Segments::default(),
            size,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Its right neighbour becomes a part of it.
    fn append(&mut self, right: Self) {
        match (&mut self.contents, right.contents) {
            (Contents::Records(left), Contents::Records(records)) => left.extend(records),
            (Contents::Children(left), Contents::Children(children)) => left.extend(children),
            // Neighbours are of one level.
            _ => unreachable!("a leaf beside an interior node"),
        }
        if self.segments.pointers.is_empty() {
            self.segments = right.segments;
        }
        self.size += right.size;
    }
}

/// The children of one node, from the left to the right.
pub struct Level<C: Codec> {
    /// Of the nodes in it; zero for leaves.
    height: u8,
    children: Vec<Child<C::Key>>,
    /// The rightmost: not written yet, or as it was before this change.
    last: Last<C>,
}

enum Last<C: Codec> {
    None,
    Fresh(Fresh<C>),
    Kept(Child<C::Key>, Bounds<C::Key>),
}

impl<C: Codec> Level<C> {
    pub fn new(height: u8) -> Self {
        Self {
            height,
            children: Vec::new(),
            last: Last::None,
        }
    }

    /// A child whose node stays as it is, unless a neighbour needs it.
    pub fn keep<N: Nodes>(
        &mut self,
        apply: &mut Apply<'_, N>,
        child: Child<C::Key>,
        bounds: Bounds<C::Key>,
    ) -> Result<(), TreeError<N::Error>> {
        let mut last = core::mem::replace(&mut self.last, Last::None);
        if let Last::Fresh(left) = &mut last
            && let Some(right) = self.joinable(apply, &child, &bounds, left)?
        {
            left.append(right);
            self.last = last;
            return Ok(());
        }
        self.push(apply, last)?;
        self.last = Last::Kept(child, bounds);
        Ok(())
    }

    /// A child whose contents are new.
    pub fn add<N: Nodes>(&mut self, apply: &mut Apply<'_, N>, fresh: Fresh<C>) -> Result<(), TreeError<N::Error>> {
        if fresh.is_empty() {
            return Ok(());
        }
        let last = core::mem::replace(&mut self.last, Last::None);
        let left = match last {
            Last::Fresh(left) if self.fits(apply, left.size, fresh.size) => Some(left),
            Last::Kept(child, bounds) => {
                let left = self.joinable(apply, &child, &bounds, &fresh)?;
                if left.is_none() {
                    self.children.push(child);
                }
                left
            }
            last => {
                self.push(apply, last)?;
                None
            }
        };
        self.last = Last::Fresh(match left {
            Some(mut left) => {
                left.append(fresh);
                left
            }
            None => fresh,
        });
        Ok(())
    }

    /// All children.
    pub fn finish<N: Nodes>(mut self, apply: &mut Apply<'_, N>) -> Result<Vec<Child<C::Key>>, TreeError<N::Error>> {
        let last = core::mem::replace(&mut self.last, Last::None);
        self.push(apply, last)?;
        Ok(self.children)
    }

    fn push<N: Nodes>(&mut self, apply: &mut Apply<'_, N>, last: Last<C>) -> Result<(), TreeError<N::Error>> {
        match last {
            Last::None => {}
            Last::Fresh(fresh) => self.children.extend(write(apply, self.height, fresh)?),
            Last::Kept(child, _) => self.children.push(child),
        }
        Ok(())
    }

    fn full<N: Nodes>(&self, apply: &Apply<'_, N>) -> usize {
        match self.height {
            0 => apply.shape.leaf_bytes,
            _ => apply.shape.fanout,
        }
    }

    fn is_small<N: Nodes>(&self, apply: &Apply<'_, N>, size: usize) -> bool {
        size <= (self.full(apply) / 4).max(1)
    }

    fn fits<N: Nodes>(&self, apply: &Apply<'_, N>, left: usize, right: usize) -> bool {
        let is_small = self.is_small(apply, left) || self.is_small(apply, right);
        let full = self.full(apply);
        is_small && left + right <= full - full / 4
    }

    /// Reads a child's node, if it is to be joined with its neighbour; the node is given up then.
    fn joinable<N: Nodes>(
        &self,
        apply: &mut Apply<'_, N>,
        child: &Child<C::Key>,
        bounds: &Bounds<C::Key>,
        neighbour: &Fresh<C>,
    ) -> Result<Option<Fresh<C>>, TreeError<N::Error>> {
        // Segments of both would be more than there may be.
        if !child.segments.pointers.is_empty() && !neighbour.segments.pointers.is_empty() {
            return Ok(None);
        }
        let contents = if self.height == 0 {
            if !self.fits(apply, neighbour.size, child.node.bytes as usize) {
                return Ok(None);
            }
            let records = load_records::<C, N>(apply.nodes, &child.node, RecordNode::Leaf, bounds)?;
            Contents::Records(records)
        } else {
            // How many children it has is seen only when it is read.
            if !self.is_small(apply, neighbour.size) {
                return Ok(None);
            }
            let children = load_children::<C, N>(apply.nodes, &child.node, self.height, bounds)?;
            if !self.fits(apply, neighbour.size, children.len()) {
                return Ok(None);
            }
            Contents::Children(children)
        };
        apply.give_up(child.node);
        let mut fresh = Fresh::new(contents);
        fresh.segments.clone_from(&child.segments);
        Ok(Some(fresh))
    }
}

/// Writes a node, in pieces of the same size if it is too large for one.
pub fn write<C: Codec, N: Nodes>(
    apply: &mut Apply<'_, N>,
    height: u8,
    fresh: Fresh<C>,
) -> Result<Vec<Child<C::Key>>, TreeError<N::Error>> {
    let mut written = match &fresh.contents {
        Contents::Records(records) => write_leaves::<C, N>(apply, records)?,
        Contents::Children(children) => write_interior::<C, N>(apply, height, children)?,
    };
    // What was joined is small, so it is in one piece.
    debug_assert!(fresh.segments.pointers.is_empty() || written.len() == 1);
    if let Some(first) = written.first_mut() {
        first.segments = fresh.segments;
    }
    Ok(written)
}

fn write_leaves<C: Codec, N: Nodes>(
    apply: &mut Apply<'_, N>,
    records: &[C::Record],
) -> Result<Vec<Child<C::Key>>, TreeError<N::Error>> {
    let bytes: usize = record_bytes::<C>(records).sum();
    let pieces = bytes.div_ceil(apply.shape.leaf_bytes.max(1));
    let piece_bytes = bytes.div_ceil(pieces.max(1));
    let mut leaves = Vec::with_capacity(pieces);
    let (mut from, mut filled) = (0, 0);
    for (index, bytes) in record_bytes::<C>(records).enumerate() {
        filled += bytes;
        if filled >= piece_bytes || index + 1 == records.len() {
            let piece = &records[from..=index];
            leaves.push(Child {
                first: C::start(&piece[0]),
                node: apply.write(encode_records::<C>(RecordNode::Leaf, piece))?,
                segments: Segments::default(),
            });
            (from, filled) = (index + 1, 0);
        }
    }
    Ok(leaves)
}

fn write_interior<C: Codec, N: Nodes>(
    apply: &mut Apply<'_, N>,
    height: u8,
    children: &[Child<C::Key>],
) -> Result<Vec<Child<C::Key>>, TreeError<N::Error>> {
    let pieces = children.len().div_ceil(apply.shape.fanout.max(2));
    let size = children.len().div_ceil(pieces.max(1)).max(1);
    let mut nodes = Vec::with_capacity(pieces);
    for piece in children.chunks(size) {
        nodes.push(Child {
            first: piece[0].first.clone(),
            node: apply.write(encode_children::<C>(height, piece))?,
            segments: Segments::default(),
        });
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests;
