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
    walk: Walk<C>,
    ready: vec::IntoIter<C::Record>,
}

impl<C: Codec> Scan<C> {
    /// From `from` to below `to`, or to the end. Reads nothing yet.
    pub fn new(root: &Root, from: C::Key, to: Option<C::Key>) -> Self {
        Self {
            range: Bounds { low: from, high: to },
            walk: Walk::new(root, None),
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
            let Some(bounds) = self.walk.bounds() else {
                return Ok(None);
            };
            if !bounds.overlap(&self.range) {
                self.walk.skip();
            } else if let Some(portion) = self.walk.enter(nodes)? {
                let records = without_deletions::<C>(portion.records);
                self.ready = C::cut(&records, &self.range.low, self.range.high.as_ref()).into_iter();
            }
        }
    }
}

/// From the left to the right through the subtrees of a tree, each of which may be entered or left out.
pub struct Walk<C: Codec> {
    /// Nodes that were born then or before are not read.
    since: Option<u32>,
    levels: Vec<Ahead<C>>,
}

/// Subtrees of one level that are still to be read.
struct Ahead<C: Codec> {
    /// Whose children they are; none of the whole tree.
    parent: Option<Pointer>,
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

/// What a tree has in a range.
pub struct Portion<C: Codec> {
    /// A leaf, or the older node that was not read.
    pub node: Option<Pointer>,
    pub bounds: Bounds<C::Key>,
    /// With deletions.
    pub records: Vec<C::Record>,
    /// Whether there is nothing where there is no record. Otherwise that is in older nodes, which were not read.
    pub is_whole: bool,
}

impl<C: Codec> Walk<C> {
    /// `since`: only through nodes that were born after this checkpoint, and what else it takes to know what the tree
    /// has where they have something.
    pub fn new(root: &Root, since: Option<u32>) -> Self {
        let part = Part {
            node: root.node,
            segments: root.segments.clone(),
            bounds: all_keys::<C>(),
        };
        let top = Ahead {
            parent: None,
            height: root.height,
            parts: [part].into(),
            changes: Vec::new(),
        };
        Self {
            since,
            levels: [top].into(),
        }
    }

    /// Of the next subtree; none at the end.
    pub fn bounds(&mut self) -> Option<&Bounds<C::Key>> {
        while self.levels.last().is_some_and(|level| level.parts.is_empty()) {
            self.levels.pop();
        }
        let part = self.levels.last()?.parts.last()?;
        Some(&part.bounds)
    }

    /// Whether the next subtree is this node's, or below it.
    pub fn is_within(&self, node: &Pointer) -> bool {
        let part = self.levels.last().and_then(|level| level.parts.last());
        part.is_some_and(|part| part.node.as_ref() == Some(node)) || self.has_entered(node)
    }

    /// Whether the last subtree that was entered is below this node.
    pub fn has_entered(&self, node: &Pointer) -> bool {
        self.levels.iter().any(|level| level.parent.as_ref() == Some(node))
    }

    /// Leaves the next subtree out.
    pub fn skip(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.parts.pop();
        }
    }

    /// Reads the node of the next subtree and the segments before it. What it has, unless it is an interior node: then
    /// its children are next.
    pub fn enter<N: Nodes>(&mut self, nodes: &mut N) -> Result<Option<Portion<C>>, TreeError<N::Error>> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(None);
        };
        let height = level.height;
        let Some(part) = level.parts.pop() else {
            return Ok(None);
        };
        if height > HEIGHT_MAX {
            return Err(TreeError::Height);
        }
        let Part {
            node,
            mut segments,
            bounds,
        } = part;
        let above = C::cut(&level.changes, &bounds.low, bounds.high.as_ref());
        let since = self.since;
        let is_new = |pointer: &Pointer| since.is_none_or(|since| pointer.birth > since);
        if node.as_ref().is_some_and(|node| !is_new(node)) {
            // What is below is older still. The segments are the newest last, so what is left out is below what is not.
            segments.pointers.retain(is_new);
            let changes = load_segments::<C, N>(nodes, &segments.pointers, &bounds)?;
            return Ok(Some(Portion {
                node,
                bounds,
                records: C::lay_over(changes, above),
                is_whole: false,
            }));
        }
        // A new node may have older segments before it, when it was joined with a neighbour: they lie over it.
        announce(nodes, node.as_ref(), &segments);
        let below = load_segments::<C, N>(nodes, &segments.pointers, &bounds)?;
        let changes = C::lay_over(below, above);
        let records = match node {
            Some(node) if height > 0 => {
                let children = load_children::<C, N>(nodes, &node, height, &bounds)?;
                let parts = bounds.of_children(children).map(|(child, bounds)| Part {
                    node: Some(child.node),
                    segments: child.segments,
                    bounds,
                });
                let mut parts: Vec<_> = parts.collect();
                parts.reverse();
                self.levels.push(Ahead {
                    parent: Some(node),
                    height: height - 1,
                    parts,
                    changes,
                });
                return Ok(None);
            }
            Some(node) => load_records::<C, N>(nodes, &node, RecordNode::Leaf, &bounds)?,
            None => Vec::new(),
        };
        Ok(Some(Portion {
            node,
            bounds,
            records: C::lay_over(records, changes),
            is_whole: true,
        }))
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
