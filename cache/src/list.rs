//! Doubly linked lists threaded through one table: a node is an index, a list three numbers, and several lists share
//! the table because a node is in at most one of them at a time. 8 bytes a node.

use crate::{LOOK_AT_MAX, Residents, Verdict};
use alloc::vec::Vec;
use tombolo_base::Lcbn;

pub(crate) const NONE: u32 = u32::MAX;
/// In `newer`: the node is in no list.
const OUTSIDE: u32 = u32::MAX - 1;

#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Links(Vec<Link>);

impl Links {
    pub fn with_capacity(nodes: usize) -> Self {
        Self(Vec::with_capacity(nodes))
    }

    /// Makes room for the node.
    pub fn reach(&mut self, node: u32) {
        assert!(node < OUTSIDE, "a link cannot name node {node}");
        if node as usize >= self.0.len() {
            let outside = Link {
                newer: OUTSIDE,
                older: NONE,
            };
            self.0.resize(node as usize + 1, outside);
        }
    }

    pub fn newer(&self, node: u32) -> u32 {
        self.0[node as usize].newer
    }

    pub fn is_linked(&self, node: u32) -> bool {
        self.0.get(node as usize).is_some_and(|link| link.newer != OUTSIDE)
    }

    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Link>()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    oldest: u32,
    newest: u32,
    len: u32,
}

impl List {
    pub const EMPTY: Self = Self {
        oldest: NONE,
        newest: NONE,
        len: 0,
    };

    pub fn len(&self) -> u32 {
        self.len
    }

    /// [`NONE`] when the list is empty.
    pub fn oldest(&self) -> u32 {
        self.oldest
    }

    /// [`NONE`] when the list is empty.
    pub fn newest(&self) -> u32 {
        self.newest
    }

    pub fn push_newest(&mut self, links: &mut Links, node: u32) {
        assert!(!links.is_linked(node), "node {node} is in a list already");
        links.0[node as usize] = Link {
            newer: NONE,
            older: self.newest,
        };
        match self.newest {
            NONE => self.oldest = node,
            newest => links.0[newest as usize].newer = node,
        }
        self.newest = node;
        self.len += 1;
    }

    pub fn remove(&mut self, links: &mut Links, node: u32) {
        let Link { newer, older } = links.0[node as usize];
        assert!(newer != OUTSIDE, "node {node} is in no list");
        match older {
            NONE => self.oldest = newer,
            _ => links.0[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => links.0[newer as usize].older = older,
        }
        links.0[node as usize].newer = OUTSIDE;
        self.len -= 1;
    }

    pub fn move_to_newest(&mut self, links: &mut Links, node: u32) {
        if self.newest != node {
            self.remove(links, node);
            self.push_newest(links, node);
        }
    }

    /// Puts `fresh`, which is in no list, where `node` is.
    pub fn replace(&mut self, links: &mut Links, node: u32, fresh: u32) {
        let link = links.0[node as usize];
        assert!(link.newer != OUTSIDE && !links.is_linked(fresh));
        links.0[fresh as usize] = link;
        links.0[node as usize].newer = OUTSIDE;
        match link.older {
            NONE => self.oldest = fresh,
            older => links.0[older as usize].newer = fresh,
        }
        match link.newer {
            NONE => self.newest = fresh,
            newer => links.0[newer as usize].older = fresh,
        }
    }

    /// From the oldest to the newest.
    pub fn iter<'a>(&self, links: &'a Links) -> impl Iterator<Item = u32> + 'a {
        let mut node = self.oldest;
        core::iter::from_fn(move || {
            let current = (node != NONE).then_some(node)?;
            node = links.newer(current);
            Some(current)
        })
    }

    /// The oldest slot that may go; it stays in the list. Slots that deserve a second round move to the newest end.
    pub fn find_victim(&mut self, links: &mut Links, residents: &mut dyn Residents, looks: &mut Looks) -> Option<u32> {
        let mut node = self.oldest;
        while node != NONE && looks.take() {
            let newer = links.newer(node);
            match residents.judge(Lcbn(node)) {
                Verdict::Evict => return Some(node),
                Verdict::Keep => node = newer,
                Verdict::Again => {
                    self.move_to_newest(links, node);
                    node = if newer == NONE { node } else { newer };
                }
            }
        }
        None
    }

    /// Checks that the chain is whole and as long as the list says.
    pub fn check(&self, links: &Links) {
        let mut older = NONE;
        let mut count = 0;
        for node in self.iter(links) {
            assert_eq!(links.0[node as usize].older, older);
            older = node;
            count += 1;
            assert!(count <= self.len, "the chain is longer than the list");
        }
        assert_eq!((older, count), (self.newest, self.len));
    }
}

/// How many more slots one search for a victim may look at.
pub(crate) struct Looks(u32);

impl Looks {
    pub fn new() -> Self {
        Self(LOOK_AT_MAX)
    }

    pub fn take(&mut self) -> bool {
        let left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        left
    }
}
