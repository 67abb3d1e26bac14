//! Dead lists: what died in the live tree while a snapshot still had it.
//!
//! An item's life is known when it ends: the first snapshot that has it, by its birth, and the last, the newest there is. Its
//! list has these two for a name and is never renamed. Deleting a snapshot frees the lists whose first and last snapshots
//! that are left are this one, so nothing is counted and nothing else is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

pub struct DeadLists<T> {
    snapshots: BTreeSet<u32>,
    /// By last snapshot, then first.
    lists: BTreeMap<(u32, u32), Vec<T>>,
}

pub struct Freed<T> {
    pub items: Vec<T>,
    /// Lists that were looked at.
    pub lists: u64,
}

impl<T> Default for DeadLists<T> {
    fn default() -> Self {
        Self {
            snapshots: BTreeSet::new(),
            lists: BTreeMap::new(),
        }
    }
}

impl<T> DeadLists<T> {
    pub fn snapshot(&mut self, epoch: u32) {
        self.snapshots.insert(epoch);
    }

    /// The first snapshot that has what was born at checkpoint `birth`.
    pub fn first_holder_of(&self, birth: u32) -> Option<u32> {
        self.snapshots.range(birth..).next().copied()
    }

    /// Gives back what no snapshot has.
    pub fn died(&mut self, item: T, first: Option<u32>) -> Option<T> {
        let (Some(first), Some(&last)) = (first, self.snapshots.last()) else {
            return Some(item);
        };
        self.lists.entry((last, first)).or_default().push(item);
        None
    }

    /// What is on a list.
    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.lists.values().flatten()
    }

    /// What only this snapshot had.
    pub fn delete(&mut self, epoch: u32) -> Freed<T> {
        self.snapshots.remove(&epoch);
        let before = self.snapshots.range(..epoch).next_back().copied();
        let after = self.snapshots.range(epoch..).next().copied();
        let first = before.map_or(0, |before| before + 1);
        let mut freed = Freed {
            items: Vec::new(),
            lists: 0,
        };
        let mut last = epoch;
        // For each last snapshot from this to before the next that is left, a range of first ones.
        while after.is_none_or(|after| last < after) {
            let names: Vec<(u32, u32)> = self
                .lists
                .range((last, first)..=(last, epoch))
                .map(|(&name, _)| name)
                .collect();
            for name in names {
                freed.lists += 1;
                freed.items.extend(self.lists.remove(&name).unwrap_or_default());
            }
            let next = self.lists.range((Excluded((last, u32::MAX)), Unbounded)).next();
            let Some((&(next, _), _)) = next else {
                break;
            };
            last = next;
        }
        freed
    }
}
