//! Changes to a tree: what a checkpoint folds in. Changes lie before a subtree, in segments, as long as there is room;
//! else its node is rewritten with them, or passes them on to its children, part by part.

use crate::codec::{Codec, without_deletions};
use crate::level::{Contents, Fresh, Level, write};
use crate::load::{Bounds, Nodes, TreeError, load_children, load_records, load_segments};
use crate::node::{Child, HEIGHT_MAX, RecordNode, Root, Segments, encode_records};
use crate::pointer::Pointer;
use crate::read::visit_subtree;
use alloc::vec::Vec;
use tombolo_base::TAG_BYTES;

/// When nodes are divided, and when segments are enough to be worth rewriting the node behind them. The default is what
/// `docs/decisions/0016-bucket-metadata.md` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a leaf's contents; a single record may be larger.
    pub leaf_bytes: usize,
    /// Children of an interior node; less than two count as two.
    pub fanout: usize,
    /// Segments before one subtree; none makes a plain copy-on-write B-tree.
    pub segments_max: u8,
    /// Bytes of segments before a leaf, and of what their deletions hide: see [`Codec::hidden_bytes`].
    pub leaf_pending_bytes: usize,
    /// Bytes of segments before an interior node, counted in the same way.
    pub node_pending_bytes: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            leaf_bytes: 32 << 10,
            fanout: 128,
            segments_max: 8,
            leaf_pending_bytes: 16 << 10,
            node_pending_bytes: 64 << 10,
        }
    }
}

/// A tree with changes in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The tree that has the changes.
    pub root: Root,
    /// Nodes that the root before has and this one has not.
    pub died: Vec<Pointer>,
}

/// Applies changes, in ascending order and without overlaps, to a tree; the tree before stays readable as long as its
/// nodes are kept. `birth` is the number of the checkpoint, which all new nodes carry.
///
/// One path from the root to a leaf is in memory at a time, with the changes to it, and the pointers that were given
/// up. After an error the tree is as it was, and what has been written belongs to no tree.
///
/// # Errors
/// When a node cannot be read, written or decoded, the changes are out of order, or the tree becomes higher than
/// [`HEIGHT_MAX`].
pub fn apply<C: Codec, N: Nodes>(
    nodes: &mut N,
    root: &Root,
    changes: Vec<C::Record>,
    birth: u32,
    shape: &Shape,
) -> Result<Applied, TreeError<N::Error>> {
    C::check(&changes).map_err(TreeError::Changes)?;
    let mut apply = Apply::new(nodes, birth, shape);
    let root = if changes.is_empty() {
        root.clone()
    } else {
        apply.apply_to_root::<C>(root, changes)?
    };
    Ok(Applied { root, died: apply.died })
}

fn hidden_bytes<C: Codec>(changes: &[C::Record]) -> u32 {
    let hidden = changes.iter().map(C::hidden_bytes);
    hidden.fold(0, u32::saturating_add)
}

/// One application under way.
pub struct Apply<'a, N> {
    pub nodes: &'a mut N,
    pub shape: &'a Shape,
    birth: u32,
    died: Vec<Pointer>,
}

impl<'a, N: Nodes> Apply<'a, N> {
    pub fn new(nodes: &'a mut N, birth: u32, shape: &'a Shape) -> Self {
        Self {
            nodes,
            shape,
            birth,
            died: Vec::new(),
        }
    }

    pub fn give_up(&mut self, pointer: Pointer) {
        self.died.push(pointer);
    }

    pub fn write(&mut self, node: Vec<u8>) -> Result<Pointer, TreeError<N::Error>> {
        let written = self.nodes.write(node).map_err(TreeError::Nodes)?;
        Ok(written.born(self.birth))
    }

    fn apply_to_root<C: Codec>(&mut self, root: &Root, changes: Vec<C::Record>) -> Result<Root, TreeError<N::Error>> {
        if root.height > HEIGHT_MAX {
            return Err(TreeError::Height);
        }
        let bounds = Bounds {
            low: C::lowest_key(),
            high: None,
        };
        let mut root = root.clone();
        let changes = if root == Root::default() {
            without_deletions::<C>(changes)
        } else {
            changes
        };
        if changes.is_empty() {
            return Ok(root);
        }
        let Some(changes) =
            self.postpone::<C>(root.node.as_ref(), &mut root.segments, root.height, &bounds, changes)?
        else {
            return Ok(root);
        };
        let fresh = self.rewrite::<C>(root.node, root.segments, root.height, &bounds, changes)?;
        self.grow(fresh, root.height)
    }

    /// As many levels above as it takes to have one node; none if one child is all that is left.
    fn grow<C: Codec>(&mut self, fresh: Fresh<C>, height: u8) -> Result<Root, TreeError<N::Error>> {
        let (mut level, mut height) = match fresh.contents {
            Contents::Children(children) => (children, height - 1),
            Contents::Records(_) => (write(self, 0, fresh)?, 0),
        };
        while level.len() > 1 {
            if height == HEIGHT_MAX {
                return Err(TreeError::Height);
            }
            height += 1;
            level = write::<C, N>(self, height, Fresh::new(Contents::Children(level)))?;
        }
        let Some(child) = level.pop() else {
            return Ok(Root::default());
        };
        Ok(Root {
            height,
            node: Some(child.node),
            segments: child.segments,
        })
    }

    /// Lays changes before a subtree, unless there are enough to rewrite its node: then they are given back.
    fn postpone<C: Codec>(
        &mut self,
        node: Option<&Pointer>,
        segments: &mut Segments,
        height: u8,
        bounds: &Bounds<C::Key>,
        changes: Vec<C::Record>,
    ) -> Result<Option<Vec<C::Record>>, TreeError<N::Error>> {
        let segments_max = usize::from(self.shape.segments_max);
        let (limit_bytes, hidden_max) = match (height, node) {
            // A leaf may be small, and then little is enough to hide all of it.
            (0, Some(leaf)) => (self.shape.leaf_pending_bytes, leaf.bytes / 2),
            (0, None) => (self.shape.leaf_pending_bytes, u32::MAX),
            _ => (self.shape.node_pending_bytes, u32::MAX),
        };
        let mut hidden_bytes = hidden_bytes::<C>(&changes);
        let pending_bytes = segments.weight_bytes() + hidden_bytes as usize;
        let hides_much = segments.hidden_bytes.saturating_add(hidden_bytes) > hidden_max;
        if segments_max == 0 || hides_much || pending_bytes > limit_bytes {
            return Ok(Some(changes));
        }
        let mut segment = encode_records::<C>(RecordNode::Segment, &changes);
        if pending_bytes + segment.len() + TAG_BYTES > limit_bytes {
            return Ok(Some(changes));
        }
        if segments.pointers.len() >= segments_max {
            // Many small ones: joined, since that costs less than the node. A record that is split weighs more.
            let joined = self.take_segments::<C>(segments, bounds, changes)?;
            segment = encode_records::<C>(RecordNode::Segment, &joined);
            hidden_bytes = self::hidden_bytes::<C>(&joined);
            if segment.len() + TAG_BYTES + hidden_bytes as usize > limit_bytes {
                return Ok(Some(joined));
            }
        }
        segments.pointers.push(self.write(segment)?);
        segments.hidden_bytes = segments.hidden_bytes.saturating_add(hidden_bytes);
        Ok(None)
    }

    /// The segments and, over them, the changes. The segments are given up.
    fn take_segments<C: Codec>(
        &mut self,
        segments: &mut Segments,
        bounds: &Bounds<C::Key>,
        changes: Vec<C::Record>,
    ) -> Result<Vec<C::Record>, TreeError<N::Error>> {
        let taken = core::mem::take(segments);
        let older = load_segments::<C, N>(self.nodes, &taken.pointers, bounds)?;
        self.died.extend(taken.pointers);
        Ok(C::lay_over(older, changes))
    }

    /// What a subtree's node has to hold, with its segments and the changes over it. All of these are given up.
    fn rewrite<C: Codec>(
        &mut self,
        node: Option<Pointer>,
        mut segments: Segments,
        height: u8,
        bounds: &Bounds<C::Key>,
        changes: Vec<C::Record>,
    ) -> Result<Fresh<C>, TreeError<N::Error>> {
        let changes = self.take_segments::<C>(&mut segments, bounds, changes)?;
        self.died.extend(node);
        let contents = match (node, height) {
            (None, _) => Contents::Records(without_deletions::<C>(changes)),
            (Some(node), 0) => {
                let records = load_records::<C, N>(self.nodes, &node, RecordNode::Leaf, bounds)?;
                Contents::Records(without_deletions::<C>(C::lay_over(records, changes)))
            }
            (Some(node), _) => {
                let children = load_children::<C, N>(self.nodes, &node, height, bounds)?;
                Contents::Children(self.pass_on::<C>(children, height - 1, bounds, &changes)?)
            }
        };
        Ok(Fresh::new(contents))
    }

    /// Applies to each child what is in its range. `height` is the children's.
    fn pass_on<C: Codec>(
        &mut self,
        children: Vec<Child<C::Key>>,
        height: u8,
        bounds: &Bounds<C::Key>,
        changes: &[C::Record],
    ) -> Result<Vec<Child<C::Key>>, TreeError<N::Error>> {
        let mut level = Level::<C>::new(height);
        for (mut child, bounds) in bounds.of_children(children) {
            let part = C::cut(changes, &bounds.low, bounds.high.as_ref());
            if part.is_empty() {
                level.keep(self, child, bounds)?;
                continue;
            }
            if let Some(fresh) = self.replace::<C>(&child, height, &bounds, &part)? {
                level.add(self, fresh)?;
            } else if let Some(part) =
                self.postpone::<C>(Some(&child.node), &mut child.segments, height, &bounds, part)?
            {
                let fresh = self.rewrite::<C>(Some(child.node), child.segments, height, &bounds, part)?;
                level.add(self, fresh)?;
            } else {
                level.keep(self, child, bounds)?;
            }
        }
        level.finish(self)
    }

    /// Gives up a subtree of which nothing is seen any more, and makes another of the changes. Otherwise a hole over a
    /// large file would keep all of it, since such a change is small.
    fn replace<C: Codec>(
        &mut self,
        child: &Child<C::Key>,
        height: u8,
        bounds: &Bounds<C::Key>,
        changes: &[C::Record],
    ) -> Result<Option<Fresh<C>>, TreeError<N::Error>> {
        if !C::covers(changes, &bounds.low, bounds.high.as_ref()) {
            return Ok(None);
        }
        let died = &mut self.died;
        let mut give_up = |pointer: &Pointer| {
            died.push(*pointer);
            true
        };
        visit_subtree::<C, N>(self.nodes, child, height, bounds, &mut give_up)?;
        let mut fresh = Fresh::new(Contents::Records(without_deletions::<C>(changes.to_vec())));
        for below in 0..height {
            fresh = Fresh::new(Contents::Children(write(self, below, fresh)?));
        }
        Ok(Some(fresh))
    }
}
