//! A bounded map that forgets what was used longest ago: for decoded map pages and object descriptors.

use alloc::collections::BTreeMap;
use core::ops::RangeInclusive;

#[derive(Debug)]
pub struct WeightedLru<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    order: BTreeMap<u64, K>,
    uses: u64,
    weight: usize,
    weight_max: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    weight: usize,
    used: u64,
}

impl<K: Ord + Copy, V> WeightedLru<K, V> {
    pub fn new(weight_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            order: BTreeMap::new(),
            uses: 0,
            weight: 0,
            weight_max,
        }
    }

    pub fn weight(&self) -> usize {
        self.weight
    }

    pub fn get(&mut self, key: K) -> Option<&V> {
        let entry = self.entries.get_mut(&key)?;
        if entry.used != self.uses {
            self.uses += 1;
            self.order.remove(&entry.used);
            entry.used = self.uses;
            self.order.insert(self.uses, key);
        }
        Some(&entry.value)
    }

    /// Of the entries within the range that match, the one with the greatest key.
    pub fn last_where(&mut self, keys: RangeInclusive<K>, matches: impl Fn(&V) -> bool) -> Option<&V> {
        let mut entries = self.entries.range(keys).rev();
        let found = *entries.find(|(_, entry)| matches(&entry.value))?.0;
        self.get(found)
    }

    pub fn insert(&mut self, key: K, value: V, weight: usize) {
        self.remove(key);
        self.uses += 1;
        self.entries.insert(
            key,
            Entry {
                value,
                weight,
                used: self.uses,
            },
        );
        self.order.insert(self.uses, key);
        self.weight += weight;
        // The newest always stays, so that a single heavy entry can be used at all.
        while self.weight > self.weight_max && self.entries.len() > 1 {
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.weight -= entry.weight;
            }
        }
    }

    pub fn remove(&mut self, key: K) {
        if let Some(entry) = self.entries.remove(&key) {
            self.order.remove(&entry.used);
            self.weight -= entry.weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_least_recently_used_and_keeps_its_weight() {
        let mut cache = WeightedLru::new(30);
        for key in 0..3u32 {
            cache.insert(key, key * 10, 10);
        }
        assert_eq!(cache.get(0), Some(&0));
        cache.insert(3, 30, 10);
        assert_eq!(cache.get(1), None);
        assert_eq!(cache.last_where(0..=2, |_| true), Some(&20));
        assert_eq!(cache.last_where(0..=2, |value| *value < 20), Some(&0));
        assert_eq!(cache.last_where(1..=1, |_| true), None);
        assert_eq!(cache.weight(), 30);
        cache.insert(9, 90, 100);
        assert_eq!(cache.get(9), Some(&90));
        assert_eq!(cache.get(0), None);
        assert_eq!(cache.weight(), 100);
        cache.remove(9);
        assert_eq!(cache.weight(), 0);
    }
}
