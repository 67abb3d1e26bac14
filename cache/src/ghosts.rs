//! Ghosts: names of blocks that were evicted, in lists by age, found by name. 22 bytes a ghost, taken when the ghost
//! first appears, never more than the limit.

use crate::key_index::KeyIndex;
use crate::list::{Links, List, NONE};
use alloc::vec::Vec;
use tombolo_base::Pvbn;

/// Ghost lists that one policy may keep.
const LISTS: usize = 2;

#[derive(Debug)]
pub(crate) struct Ghosts {
    keys: Vec<u64>,
    /// The list that each node is in.
    places: Vec<u8>,
    links: Links,
    lists: [List; LISTS],
    free: List,
    index: KeyIndex,
    limit: usize,
}

impl Ghosts {
    pub fn new(limit: u32) -> Self {
        let limit = limit as usize;
        Self {
            keys: Vec::with_capacity(limit),
            places: Vec::with_capacity(limit),
            links: Links::with_capacity(limit),
            lists: [List::EMPTY; LISTS],
            free: List::EMPTY,
            index: KeyIndex::with_capacity(limit),
            limit,
        }
    }

    pub fn len(&self, list: u8) -> u32 {
        self.lists[usize::from(list)].len()
    }

    pub fn total(&self) -> usize {
        self.index.len()
    }

    pub fn is_full(&self) -> bool {
        self.total() >= self.limit
    }

    /// The newest in `list` from now on. There MUST be room, and the name MUST NOT be a ghost already.
    pub fn remember(&mut self, list: u8, block: Pvbn) {
        assert!(!self.is_full(), "more ghosts than the limit");
        let node = match self.free.oldest() {
            NONE => {
                let node = self.keys.len() as u32;
                self.keys.push(0);
                self.places.push(0);
                self.links.reach(node);
                node
            }
            node => {
                self.free.remove(&mut self.links, node);
                node
            }
        };
        self.keys[node as usize] = block.0;
        self.places[node as usize] = list;
        self.lists[usize::from(list)].push_newest(&mut self.links, node);
        self.index.insert(&self.keys, node);
    }

    /// Forgets a name; says which list it was in.
    pub fn forget(&mut self, block: Pvbn) -> Option<u8> {
        let node = self.index.find(&self.keys, block.0)?;
        self.drop_node(node);
        Some(self.places[node as usize])
    }

    /// The list MUST NOT be empty.
    pub fn drop_oldest(&mut self, list: u8) {
        self.drop_node(self.lists[usize::from(list)].oldest());
    }

    /// Another limit; the oldest of the longest list go first.
    pub fn resize(&mut self, limit: u32) {
        let mut resized = Self::new(limit);
        while self.total() > limit as usize {
            let longest = u8::from(self.len(0) < self.len(1));
            self.drop_oldest(longest);
        }
        for list in 0..LISTS as u8 {
            for node in self.lists[usize::from(list)].iter(&self.links) {
                resized.remember(list, Pvbn(self.keys[node as usize]));
            }
        }
        *self = resized;
    }

    pub fn bytes(&self) -> usize {
        self.keys.capacity() * 8 + self.places.capacity() + self.links.bytes() + self.index.bytes()
    }

    pub fn check(&self) {
        for (number, list) in self.lists.iter().enumerate() {
            list.check(&self.links);
            for node in list.iter(&self.links) {
                assert_eq!(usize::from(self.places[node as usize]), number);
                assert_eq!(self.index.find(&self.keys, self.keys[node as usize]), Some(node));
            }
        }
        let listed: u32 = self.lists.iter().map(List::len).sum();
        assert_eq!(listed as usize, self.total());
        assert!(self.total() <= self.limit);
    }

    fn drop_node(&mut self, node: u32) {
        self.index.remove(&self.keys, node);
        self.lists[usize::from(self.places[node as usize])].remove(&mut self.links, node);
        self.free.push_newest(&mut self.links, node);
    }
}
