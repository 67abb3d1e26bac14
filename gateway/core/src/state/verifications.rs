//! Objects that the store has shown in this life of the gateway, and duplicates that wait until theirs is asked for.

use crate::event::JobId;
use crate::state::weighted_lru::WeightedLru;
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use tombolo_base::{Instant, ObjectDescriptor, Pvbn};

/// A duplicate, and the block that it equals.
pub type Follower = (Pvbn, Pvbn);

#[derive(Debug)]
pub struct Check {
    pub descriptor: Arc<ObjectDescriptor>,
    pub followers: Vec<Follower>,
    pub running: Option<JobId>,
    pub retry_at: Option<Instant>,
    pub failures: u32,
}

#[derive(Debug)]
pub struct Verification {
    /// Objects that were put, read or verified, by their first PVBN.
    pub present: WeightedLru<u64, ()>,
    pub checks: BTreeMap<u64, Check>,
    /// Duplicates of blocks whose object's descriptor is being loaded.
    pub unlocated: BTreeMap<Pvbn, Vec<Pvbn>>,
}

impl Verification {
    pub fn new(objects_max: usize) -> Self {
        Self {
            present: WeightedLru::new(objects_max),
            checks: BTreeMap::new(),
            unlocated: BTreeMap::new(),
        }
    }

    /// The store has shown that it has the object.
    pub fn is_present_now(&mut self, descriptor: &ObjectDescriptor) {
        self.present.insert(descriptor.first_pvbn().0, (), 1);
    }

    pub fn forget(&mut self, descriptor: &ObjectDescriptor) {
        self.present.remove(descriptor.first_pvbn().0);
    }

    pub fn running_count(&self) -> usize {
        self.checks.values().filter(|check| check.running.is_some()).count()
    }

    pub fn has_lane(&self, running_max: usize) -> bool {
        self.running_count() < running_max
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.checks.values().filter_map(|check| check.retry_at).min()
    }

    /// Duplicates that wait until their original's object is verified.
    pub fn awaiting_count(&self) -> usize {
        let located = self.checks.values().map(|check| check.followers.len());
        let unlocated = self.unlocated.values().map(Vec::len);
        located.chain(unlocated).sum()
    }
}
