//! Objects that hold nodes of the metadata tree: each node is a message of its own, so that it can be read alone.
//!
//! ```text
//!  0  head                        56    kind 5, messages 0, a random salt
//! 56  nodes, one behind another, each with a tag of 16 bytes
//! ```
//!
//! The node that is added n-th, from 0, is message n. Without a cipher the tag is the first 16 bytes of the node's digest.
//! The object's number is random, and so is its salt: a node's tag has to be known before the object is complete, since
//! nodes behind it name it. So neither follows from the contents, as in all other objects; what is put again is the same
//! bytes, and what is made again, as after a crash, has another salt and another number.
//!
//! It owns that form. It does not own what nodes hold, or which of them are needed.

use crate::encryption::{Digest, Head, KeyRing, MessageKey, NotAuthentic, ObjectKind, SecretKey};
use tombolo_base::{DecodeError, KeyId, OBJECT_HEAD_BYTES, TAG_BYTES};

/// What the keys of these objects begin with.
pub const NODES_PREFIX: &str = "nodes/";

/// The key of an object of nodes in the bucket.
pub fn node_object_name(number: u64) -> String {
    format!("{NODES_PREFIX}{number:016x}")
}

/// The number of the object of nodes that has this key, if one has.
pub fn node_object_number(key: &str) -> Option<u64> {
    let digits = key.strip_prefix(NODES_PREFIX)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (node_object_name(number) == key).then_some(number)
}

/// Where a node was put: as its pointer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedNode {
    /// The number of its message.
    pub message: u32,
    /// Where its bytes begin, from the object's first byte.
    pub offset: u32,
    /// How many they are, the tag included.
    pub bytes: u32,
    /// Proves that it is this node.
    pub tag: [u8; TAG_BYTES],
}

/// Why a node cannot be read. Nothing of it may be used then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum NodeObjectError {
    #[error("{0}")]
    Damaged(#[from] DecodeError),
    #[error("it is encrypted with data key {0}, which is none of this store's")]
    KeyMissing(KeyId),
    #[error("{0}")]
    NotAuthentic(#[from] NotAuthentic),
    #[error("message {0} is another node than the one that is wanted")]
    OtherNode(u32),
}

/// An object in the making.
pub struct NodeObject<'k> {
    number: u64,
    key: Option<&'k SecretKey>,
    messages: MessageKey,
    bytes: Vec<u8>,
    count: u32,
}

impl<'k> NodeObject<'k> {
    /// An empty one, encrypted with the ring's current key if it has one. `number` and `salt` MUST be random.
    pub fn new(number: u64, salt: [u8; 32], ring: &'k KeyRing) -> Self {
        let key = ring.current();
        let head = Head {
            kind: ObjectKind::Nodes,
            key: key.map_or(KeyId::NONE, SecretKey::id),
            messages: 0,
            salt,
        };
        Self {
            number,
            key,
            messages: MessageKey::of(&head, &node_object_name(number), key),
            bytes: head.encode().to_vec(),
            count: 0,
        }
    }

    /// As the name says.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Adds a node.
    pub fn add(&mut self, node: &[u8]) -> PlacedNode {
        let (message, offset) = (self.count, self.bytes.len());
        self.bytes.extend_from_slice(node);
        match self.key {
            Some(_) => self.messages.encrypt(message, &mut self.bytes, offset),
            None => self.bytes.extend_from_slice(&digest_tag(node)),
        }
        self.count += 1;
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&self.bytes[self.bytes.len() - TAG_BYTES..]);
        PlacedNode {
            message,
            offset: offset as u32,
            bytes: (self.bytes.len() - offset) as u32,
            tag,
        }
    }

    /// Length so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it holds no node.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The object as it is put, under [`node_object_name`].
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

fn digest_tag(node: &[u8]) -> [u8; TAG_BYTES] {
    let mut digest = Digest::new(None);
    digest.update(node);
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(&digest.finish()[..TAG_BYTES]);
    tag
}

/// A node of an object. `head` is what the object begins with, [`OBJECT_HEAD_BYTES`] of it; `stored` is what it has at the
/// node's place.
///
/// # Errors
/// When it is not the node that was put there.
pub fn open_node(
    number: u64,
    head: &[u8],
    placed: &PlacedNode,
    stored: &[u8],
    ring: &KeyRing,
) -> Result<Vec<u8>, NodeObjectError> {
    let head = Head::decode(head, ObjectKind::Nodes)?;
    let other = || NodeObjectError::OtherNode(placed.message);
    let text_bytes = stored.len().checked_sub(TAG_BYTES).ok_or_else(other)?;
    if stored.len() != placed.bytes as usize || stored[text_bytes..] != placed.tag {
        return Err(other());
    }
    if head.key == KeyId::NONE {
        let node = &stored[..text_bytes];
        return match digest_tag(node) == placed.tag {
            true => Ok(node.to_vec()),
            false => Err(other()),
        };
    }
    let messages = MessageKey::new(&head, &node_object_name(number), ring);
    let messages = messages.ok_or(NodeObjectError::KeyMissing(head.key))?;
    let mut message = stored.to_vec();
    Ok(messages.decrypt(placed.message, &mut message)?.to_vec())
}

/// For fuzzing: opens whatever it is given.
pub fn fuzz_open(bytes: &[u8]) {
    let ring = KeyRing::new([SecretKey::new([7; 32])]);
    let (head, stored) = bytes.split_at(bytes.len().min(OBJECT_HEAD_BYTES));
    let mut tag = [0; TAG_BYTES];
    if let Some(last) = stored.last_chunk() {
        tag = *last;
    }
    let placed = PlacedNode {
        message: 1,
        offset: OBJECT_HEAD_BYTES as u32,
        bytes: stored.len() as u32,
        tag,
    };
    let _ = open_node(1, head, &placed, stored, &ring);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring(number: u8) -> KeyRing {
        KeyRing::new([SecretKey::new([number; 32])])
    }

    fn made(ring: &KeyRing) -> (Vec<u8>, Vec<PlacedNode>) {
        let mut object = NodeObject::new(0xab, [9; 32], ring);
        let placed = [&b"first"[..], b"", b"third"].map(|node| object.add(node));
        (object.finish(), placed.to_vec())
    }

    fn open(object: &[u8], number: u64, placed: &PlacedNode, ring: &KeyRing) -> Result<Vec<u8>, NodeObjectError> {
        let (from, end) = (placed.offset as usize, (placed.offset + placed.bytes) as usize);
        let stored = object.get(from..end).unwrap_or_default();
        open_node(
            number,
            &object[..OBJECT_HEAD_BYTES.min(object.len())],
            placed,
            stored,
            ring,
        )
    }

    #[test]
    fn each_node_is_read_alone() {
        for ring in [ring(1), KeyRing::default()] {
            let (object, placed) = made(&ring);
            let nodes: Vec<_> = placed
                .iter()
                .map(|placed| open(&object, 0xab, placed, &ring).unwrap())
                .collect();
            assert_eq!(nodes, [&b"first"[..], b"", b"third"]);
        }
        assert_eq!(node_object_name(0xab), "nodes/00000000000000ab");
    }

    #[test]
    fn another_node_object_or_key_is_told() {
        let (object, placed) = made(&ring(1));
        let swapped = PlacedNode {
            tag: placed[2].tag,
            ..placed[0]
        };
        assert_eq!(
            open(&object, 0xab, &swapped, &ring(1)),
            Err(NodeObjectError::OtherNode(0))
        );
        let renumbered = PlacedNode {
            message: 1,
            ..placed[0]
        };
        assert!(matches!(
            open(&object, 0xab, &renumbered, &ring(1)),
            Err(NodeObjectError::NotAuthentic(_))
        ));
        assert!(matches!(
            open(&object, 0xac, &placed[0], &ring(1)),
            Err(NodeObjectError::NotAuthentic(_))
        ));
        assert!(matches!(
            open(&object, 0xab, &placed[0], &ring(2)),
            Err(NodeObjectError::KeyMissing(_))
        ));
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_found(is_encrypted in any::<bool>(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let ring = if is_encrypted { ring(1) } else { KeyRing::default() };
            let (mut object, placed) = made(&ring);
            // The salt is no part of what is read without a cipher.
            let from = if is_encrypted { 0 } else { OBJECT_HEAD_BYTES };
            let index = from + at.index(object.len() - from);
            object[index] ^= 1 << bit;
            let is_whole = |placed: &PlacedNode| open(&object, 0xab, placed, &ring).is_ok();
            prop_assert!(!placed.iter().all(is_whole));
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzz_open(&bytes);
        }
    }
}
