//! Nodes, read through the world and checked against their place in the tree.

use crate::codec::Codec;
use crate::node::{Child, HEIGHT_MAX, RecordNode, decode_children, decode_records};
use crate::pointer::Pointer;
use alloc::vec::Vec;
use tombolo_base::{DecodeError, TAG_BYTES};

/// Where nodes lie.
pub trait Nodes {
    /// Why a node could not be read or written.
    type Error;

    /// The node of this name, decrypted and verified: what was given to [`Self::write`].
    fn read(&mut self, pointer: &Pointer) -> Result<Vec<u8>, Self::Error>;

    /// These are read next, so they may be fetched at once.
    fn announce(&mut self, _pointers: &[Pointer]) {}

    /// Takes a new node and gives it a place. [`crate::apply`] reads nothing that it has written itself.
    fn write(&mut self, node: Vec<u8>) -> Result<Written, Self::Error>;
}

/// The place that a new node has got: its [`Pointer`] but for the birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The number of the object that the node is packed into.
    pub object: u64,
    /// The number of the node's message in that object.
    pub message: u32,
    /// Where its encrypted bytes begin, from the object's first byte.
    pub offset: u32,
    /// How many they are, the tag included.
    pub bytes: u32,
    /// Its authentication tag.
    pub tag: [u8; TAG_BYTES],
}

impl Written {
    /// The name of the node, which the checkpoint `birth` wrote.
    pub fn born(self, birth: u32) -> Pointer {
        Pointer {
            object: self.object,
            message: self.message,
            offset: self.offset,
            bytes: self.bytes,
            birth,
            tag: self.tag,
        }
    }
}

/// Why a tree could not be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError<E> {
    /// The world failed.
    #[error("{0}")]
    Nodes(E),
    /// A node that is not what it should be.
    #[error("node {message} of object {object:016x}: {error}", message = pointer.message, object = pointer.object)]
    Corrupt {
        /// Of the node.
        pointer: Pointer,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// Changes that the tree cannot take.
    #[error("changes to a tree: {0}")]
    Changes(DecodeError),
    /// A root, or a tree of so many leaves, that no decoder would take.
    #[error("a tree of more than {HEIGHT_MAX} levels of interior nodes")]
    Height,
}

/// Where a subtree begins, and where the next one does, if there is one.
#[derive(Clone, Debug)]
pub struct Bounds<K> {
    pub low: K,
    pub high: Option<K>,
}

impl<K: Clone + Ord> Bounds<K> {
    /// Whether any key is within both.
    pub fn overlap(&self, other: &Self) -> bool {
        let begins_before_end = |this: &Self, that: &Self| that.high.as_ref().is_none_or(|high| this.low < *high);
        begins_before_end(self, other) && begins_before_end(other, self)
    }

    /// The children of a node, each with its bounds.
    pub fn of_children(&self, children: Vec<Child<K>>) -> impl Iterator<Item = (Child<K>, Self)> {
        let mut children = children.into_iter().peekable();
        let end = self.high.clone();
        core::iter::from_fn(move || {
            let child = children.next()?;
            let high = children.peek().map(|next| next.first.clone()).or_else(|| end.clone());
            let low = child.first.clone();
            Some((child, Self { low, high }))
        })
    }
}

pub fn load_records<C: Codec, N: Nodes>(
    nodes: &mut N,
    pointer: &Pointer,
    node: RecordNode,
    bounds: &Bounds<C::Key>,
) -> Result<Vec<C::Record>, TreeError<N::Error>> {
    let bytes = nodes.read(pointer).map_err(TreeError::Nodes)?;
    let records = decode_records::<C>(node, &bytes).map_err(|error| corrupt(pointer, error))?;
    if !C::is_within(&records, &bounds.low, bounds.high.as_ref()) {
        return Err(misplaced(pointer));
    }
    Ok(records)
}

pub fn load_children<C: Codec, N: Nodes>(
    nodes: &mut N,
    pointer: &Pointer,
    height: u8,
    bounds: &Bounds<C::Key>,
) -> Result<Vec<Child<C::Key>>, TreeError<N::Error>> {
    let bytes = nodes.read(pointer).map_err(TreeError::Nodes)?;
    let children = decode_children::<C>(height, &bounds.low, &bytes).map_err(|error| corrupt(pointer, error))?;
    let last = children.last();
    if last.is_some_and(|last| bounds.high.as_ref().is_some_and(|high| last.first >= *high)) {
        return Err(misplaced(pointer));
    }
    Ok(children)
}

/// What some segments say together; `segments` are the oldest first.
pub fn load_segments<C: Codec, N: Nodes>(
    nodes: &mut N,
    segments: &[Pointer],
    bounds: &Bounds<C::Key>,
) -> Result<Vec<C::Record>, TreeError<N::Error>> {
    let mut changes = Vec::new();
    for segment in segments {
        let newer = load_records::<C, N>(nodes, segment, RecordNode::Segment, bounds)?;
        changes = C::lay_over(changes, newer);
    }
    Ok(changes)
}

fn corrupt<E>(pointer: &Pointer, error: DecodeError) -> TreeError<E> {
    TreeError::Corrupt {
        pointer: *pointer,
        error,
    }
}

fn misplaced<E>(pointer: &Pointer) -> TreeError<E> {
    let error = DecodeError::Invalid {
        what: "message of a node with keys of another place",
        value: pointer.message.into(),
    };
    corrupt(pointer, error)
}
