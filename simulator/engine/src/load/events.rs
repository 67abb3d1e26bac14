//! What happens when: by time, and in order of adding where the time is the same.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

#[derive(Debug)]
struct Entry<E> {
    at_us: u64,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// The earliest is the greatest, for a heap.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_us, other.number).cmp(&(self.at_us, self.number))
    }
}

#[derive(Debug)]
pub(super) struct Events<E> {
    heap: BinaryHeap<Entry<E>>,
    number: u64,
}

impl<E> Events<E> {
    pub fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            number: 0,
        }
    }

    pub fn add(&mut self, at_us: u64, event: E) {
        self.number += 1;
        let number = self.number;
        self.heap.push(Entry { at_us, number, event });
    }

    pub fn next(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|entry| (entry.at_us, entry.event))
    }
}
