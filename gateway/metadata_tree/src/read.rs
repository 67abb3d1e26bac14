//! Reading: one key, the records of a range, and the pointers of all nodes. A node and its segments are named one level
//! above, so whoever implements [`Nodes`] may fetch them at once.

use crate::codec::{Codec, without_deletions};
use crate::load::{Bounds, Nodes, TreeError, load_children, load_records, load_segments};
use crate::node::{Child, HEIGHT_MAX, RecordNode, Root, Segments};
use crate::pointer::Pointer;
use alloc::vec::{self, Vec};

fn all_keys<C: Codec>() -> Bounds<C::Key> {
    Bounds {
        low: C::lowest_key(),
        high: None,
    }
}

fn check_height<E>(root: &Root) -> Result<(), TreeError<E>> {
    if root.height > HEIGHT_MAX {
        return Err(TreeError::Height);
    }
    Ok(())
}

/// What a tree has at a key; none for a hole or an absent entry. Ends with the first segment that says so.
///
/// # Errors
/// When a node cannot be read or decoded.
pub fn get<C: Codec, N: Nodes>(
    nodes: &mut N,
    root: &Root,
    key: &C::Key,
) -> Result<Option<C::Value>, TreeError<N::Error>> {
    check_height(root)?;
    let mut bounds = all_keys::<C>();
    let (mut node, mut segments, mut height) = (root.node, root.segments.clone(), root.height);
    loop {
        announce(nodes, node.as_ref(), &segments);
        for segment in segments.pointers.iter().rev() {
            let changes = load_records::<C, N>(nodes, segment, RecordNode::Segment, &bounds)?;
            if let Some(change) = C::find(&changes, key) {
                return Ok(C::value(change, key));
            }
        }
        let Some(pointer) = node else { return Ok(None) };
        if height == 0 {
            let records = load_records::<C, N>(nodes, &pointer, RecordNode::Leaf, &bounds)?;
            return Ok(C::find(&records, key).and_then(|record| C::value(record, key)));
        }
        let children = load_children::<C, N>(nodes, &pointer, height, &bounds)?;
        let part = bounds
            .of_children(children)
            .take_while(|(child, _)| child.first <= *key);
        let Some((child, below)) = part.last() else {
            return Ok(None);
        };
        bounds = below;
        (node, segments) = (Some(child.node), child.segments);
        height -= 1;
    }
}

fn announce<N: Nodes>(nodes: &mut N, node: Option<&Pointer>, segments: &Segments) {
    let mut pointers = segments.pointers.clone();
    pointers.extend(node);
    nodes.announce(&pointers);
}

/// The last record of a tree that begins below `end`.
///
/// # Errors
/// When a node cannot be read or decoded.
pub fn last_below<C: Codec, N: Nodes>(
    nodes: &mut N,
    root: &Root,
    end: &C::Key,
) -> Result<Option<C::Record>, TreeError<N::Error>> {
    let mut end = end.clone();
    loop {
        // Of the leaf that the keys just below `end` are in.
        let low = leaf_below::<C, N>(nodes, root, &end)?;
        let mut scan = Scan::<C>::new(root, low.clone(), Some(end));
        let mut last = None;
        while let Some(record) = scan.next(nodes)? {
            last = Some(record);
        }
        if last.is_some() || low == C::lowest_key() {
            return Ok(last);
        }
        end = low;
    }
}

/// Where the last leaf that begins below `end` begins.
fn leaf_below<C: Codec, N: Nodes>(nodes: &mut N, root: &Root, end: &C::Key) -> Result<C::Key, TreeError<N::Error>> {
    check_height(root)?;
    let mut bounds = all_keys::<C>();
    let mut node = root.node;
    for height in (1..=root.height).rev() {
        let Some(pointer) = node else { break };
        let children = load_children::<C, N>(nodes, &pointer, height, &bounds)?;
        let part = bounds.of_children(children).take_while(|(child, _)| child.first < *end);
        let Some((child, below)) = part.last() else { break };
        (bounds, node) = (below, Some(child.node));
    }
    Ok(bounds.low)
}

/// The records of a range, in ascending order, read a leaf at a time as they are asked for. Records across its borders
/// are cut. A long run of blocks may come in parts, one for each leaf or segment that has some of it.
///
/// In memory are one path from the root to a leaf, and the segments along it: some 8 * 64 KiB for each level, as
/// decoded.
pub struct Scan<C: Codec> {
    range: Bounds<C::Key>,
    levels: Vec<Ahead<C>>,
    ready: vec::IntoIter<C::Record>,
}

/// Subtrees of one level that are still to be read.
struct Ahead<C: Codec> {
    height: u8,
    /// The next one is the last.
    parts: Vec<Part<C>>,
    /// What the segments above say.
    changes: Vec<C::Record>,
}

struct Part<C: Codec> {
    node: Option<Pointer>,
    segments: Segments,
    bounds: Bounds<C::Key>,
}

impl<C: Codec> Scan<C> {
    /// From `from` to below `to`, or to the end. Reads nothing yet.
    pub fn new(root: &Root, from: C::Key, to: Option<C::Key>) -> Self {
        let part = Part {
            node: root.node,
            segments: root.segments.clone(),
            bounds: all_keys::<C>(),
        };
        let top = Ahead {
            height: root.height,
            parts: [part].into(),
            changes: Vec::new(),
        };
        Self {
            range: Bounds { low: from, high: to },
            levels: [top].into(),
            ready: Vec::new().into_iter(),
        }
    }

    /// The next record; none at the end.
    ///
    /// # Errors
    /// When a node cannot be read or decoded. The scan is at its end, or goes on behind that node.
    pub fn next<N: Nodes>(&mut self, nodes: &mut N) -> Result<Option<C::Record>, TreeError<N::Error>> {
        loop {
            if let Some(record) = self.ready.next() {
                return Ok(Some(record));
            }
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            let height = level.height;
            let Some(part) = level.parts.pop() else {
                self.levels.pop();
                continue;
            };
            let above = C::cut(&level.changes, &part.bounds.low, part.bounds.high.as_ref());
            self.enter(nodes, height, part, above)?;
        }
    }

    fn enter<N: Nodes>(
        &mut self,
        nodes: &mut N,
        height: u8,
        part: Part<C>,
        above: Vec<C::Record>,
    ) -> Result<(), TreeError<N::Error>> {
        if height > HEIGHT_MAX {
            return Err(TreeError::Height);
        }
        let bounds = part.bounds;
        announce(nodes, part.node.as_ref(), &part.segments);
        let below = load_segments::<C, N>(nodes, &part.segments.pointers, &bounds)?;
        let changes = C::lay_over(below, above);
        if let Some(node) = part.node
            && height > 0
        {
            let children = load_children::<C, N>(nodes, &node, height, &bounds)?;
            let parts = bounds.of_children(children).filter(|(_, bounds)| self.overlaps(bounds));
            let mut parts: Vec<_> = parts
                .map(|(child, bounds)| Part {
                    node: Some(child.node),
                    segments: child.segments,
                    bounds,
                })
                .collect();
            parts.reverse();
            self.levels.push(Ahead {
                height: height - 1,
                parts,
                changes,
            });
            return Ok(());
        }
        let records = match part.node {
            Some(node) => load_records::<C, N>(nodes, &node, RecordNode::Leaf, &bounds)?,
            None => Vec::new(),
        };
        let records = without_deletions::<C>(C::lay_over(records, changes));
        self.ready = C::cut(&records, &self.range.low, self.range.high.as_ref()).into_iter();
        Ok(())
    }

    fn overlaps(&self, bounds: &Bounds<C::Key>) -> bool {
        let begins_before_end = self.range.high.as_ref().is_none_or(|to| bounds.low < *to);
        let ends_behind_start = bounds.high.as_ref().is_none_or(|high| *high > self.range.low);
        begins_before_end && ends_behind_start
    }
}

/// Calls `enter` with the pointer of each node and segment of a tree, each once. If it answers false for a node, what
/// is below that is left out: it was born when the node was, or earlier. Leaves and segments are not read.
///
/// # Errors
/// When an interior node cannot be read or decoded.
pub fn visit<C: Codec, N: Nodes>(
    nodes: &mut N,
    root: &Root,
    enter: &mut impl FnMut(&Pointer) -> bool,
) -> Result<(), TreeError<N::Error>> {
    check_height(root)?;
    let bounds = all_keys::<C>();
    let Some(node) = root.node else {
        root.segments.pointers.iter().for_each(|segment| {
            enter(segment);
        });
        return Ok(());
    };
    let top = Child {
        first: bounds.low.clone(),
        node,
        segments: root.segments.clone(),
    };
    visit_subtree::<C, N>(nodes, &top, root.height, &bounds, enter)
}

pub fn visit_subtree<C: Codec, N: Nodes>(
    nodes: &mut N,
    child: &Child<C::Key>,
    height: u8,
    bounds: &Bounds<C::Key>,
    enter: &mut impl FnMut(&Pointer) -> bool,
) -> Result<(), TreeError<N::Error>> {
    child.segments.pointers.iter().for_each(|segment| {
        enter(segment);
    });
    if !enter(&child.node) || height == 0 {
        return Ok(());
    }
    let children = load_children::<C, N>(nodes, &child.node, height, bounds)?;
    for (child, bounds) in bounds.of_children(children) {
        visit_subtree::<C, N>(nodes, &child, height - 1, &bounds, enter)?;
    }
    Ok(())
}
