//! A cache over arbitrary 64-bit keys, for trace simulation: it supplies what the gateway's slots supply, and nothing
//! is pinned. Objects may have sizes and costs, and be dirty while they are cached.

use crate::key_index::KeyIndex;
use crate::{Access, Arrival, Capacity, Cause, Incoming, Replacement, Residents, Verdict};
use alloc::{boxed::Box, vec::Vec};
use tombolo_base::{BLOCK_BYTES, Lcbn, Pvbn};

/// One request of a trace: for something that is cached and evicted as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// What is asked for.
    pub key: u64,
    /// See [`Arrival::object`]; the key again, unless the trace's keys are parts of something larger.
    pub object: u64,
    /// Its size.
    pub bytes: u32,
    /// Whether the request makes it dirty.
    pub is_write: bool,
    /// See [`Arrival::cost_class`] and [`Arrival::latency_us`].
    pub cost_class: u8,
    /// Microseconds; zero: not measured.
    pub latency_us: u32,
}

impl Object {
    /// A read of a block of the usual size.
    pub fn block(key: u64) -> Self {
        Self {
            key,
            object: key,
            bytes: BLOCK_BYTES as u32,
            is_write: false,
            cost_class: 0,
            latency_us: 0,
        }
    }
}

/// What one request did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// It was cached, in the same size.
    pub is_hit: bool,
    /// How many others made room.
    pub evicted: u32,
    /// Of the evicted, how many would have been uploaded.
    pub evicted_dirty: u32,
}

/// What left to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// What it was asked for by.
    pub key: u64,
    /// Its size.
    pub bytes: u32,
    /// Whether it would have been uploaded.
    pub is_dirty: bool,
}

/// A cache of whole objects under one policy, without their contents.
pub struct KeyedCache {
    policy: Box<dyn Replacement>,
    capacity: Capacity,
    /// By slot.
    keys: Vec<u64>,
    entries: Vec<Entry>,
    index: KeyIndex,
    free: Vec<u32>,
    used_bytes: u64,
    evicted: Vec<Evicted>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    bytes: u32,
    is_dirty: bool,
}

/// All may go but the object that is being rewritten.
struct Unpinned<'a> {
    keys: &'a [u64],
    kept: Option<u32>,
}

impl Residents for Unpinned<'_> {
    fn block(&self, slot: Lcbn) -> Pvbn {
        Pvbn(self.keys[slot.0 as usize])
    }

    fn judge(&mut self, slot: Lcbn) -> Verdict {
        if self.kept == Some(slot.0) {
            Verdict::Keep
        } else {
            Verdict::Evict
        }
    }
}

impl KeyedCache {
    /// The policy MUST be new and of the same capacity.
    pub fn new(capacity: Capacity, policy: Box<dyn Replacement>) -> Self {
        Self {
            policy,
            capacity,
            keys: Vec::new(),
            entries: Vec::new(),
            index: KeyIndex::with_capacity(1024),
            free: Vec::new(),
            used_bytes: 0,
            evicted: Vec::new(),
        }
    }

    /// What the last request evicted, in that order.
    pub fn last_evicted(&self) -> &[Evicted] {
        &self.evicted
    }

    /// For what it says of itself.
    pub fn policy(&self) -> &dyn Replacement {
        &*self.policy
    }

    /// The sizes of all that is cached.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Counts as no use.
    pub fn contains(&self, key: u64) -> bool {
        self.find(key).is_some()
    }

    /// Reads or writes a block of the usual size; true: a hit.
    pub fn access(&mut self, key: u64) -> bool {
        self.request(&Object::block(key)).is_hit
    }

    /// An object that comes back in another size is another object: the old one goes. One that exceeds the cache is
    /// passed by.
    pub fn request(&mut self, object: &Object) -> Outcome {
        self.evicted.clear();
        let access = Access::to(Pvbn(object.key));
        if let Some(slot) = self.find(object.key) {
            if self.entries[slot as usize].bytes == object.bytes {
                self.policy.touch(Lcbn(slot), &access);
                if object.is_write {
                    self.entries[slot as usize].is_dirty = true;
                    self.policy.set_dirty(Lcbn(slot), true);
                }
                return Outcome {
                    is_hit: true,
                    ..Outcome::default()
                };
            }
            self.policy.remove(Lcbn(slot));
            self.forget(slot);
        }
        let miss_hint = self.policy.miss(&access);
        let incoming = Incoming {
            miss_hint,
            bytes: u64::from(object.bytes),
        };
        let Some(outcome) = self.make_room(incoming) else {
            return Outcome::default();
        };
        let arrival = Arrival {
            object: object.object,
            bytes: object.bytes,
            cost_class: object.cost_class,
            latency_us: object.latency_us,
            is_dirty: object.is_write,
            ..Arrival::of_block(access, Cause::Demand, miss_hint)
        };
        self.store(&arrival);
        outcome
    }

    /// A request that gives a cached object another size without making it another object: a hit, and what the policy
    /// knows of it stays. Others make room. One that then exceeds the cache leaves it.
    pub fn rewrite(&mut self, object: &Object) -> Outcome {
        match self.find(object.key) {
            Some(slot)
                if self.entries[slot as usize].bytes != object.bytes
                    && u64::from(object.bytes) <= self.capacity.bytes =>
            {
                self.rewrite_slot(slot, object)
            }
            _ => self.request(object),
        }
    }

    fn rewrite_slot(&mut self, slot: u32, object: &Object) -> Outcome {
        self.evicted.clear();
        let before = u64::from(self.entries[slot as usize].bytes);
        let bytes = u64::from(object.bytes);
        let growth = Incoming {
            bytes: bytes.saturating_sub(before),
            ..Incoming::BLOCK
        };
        let mut outcome = Outcome {
            is_hit: true,
            ..Outcome::default()
        };
        while self.used_bytes - before + bytes > self.capacity.bytes {
            self.evict(growth, Some(slot), &mut outcome);
        }
        self.used_bytes = self.used_bytes - before + bytes;
        self.entries[slot as usize].bytes = object.bytes;
        self.policy.set_bytes(Lcbn(slot), object.bytes);
        self.policy.touch(Lcbn(slot), &Access::to(Pvbn(object.key)));
        if object.is_write {
            self.entries[slot as usize].is_dirty = true;
            self.policy.set_dirty(Lcbn(slot), true);
        }
        outcome
    }

    /// Brings a block in without a request for it; false: it is here already.
    pub fn prefetch(&mut self, access: Access) -> bool {
        if self.contains(access.block.0) || self.make_room(Incoming::BLOCK).is_none() {
            return false;
        }
        let arrival = Arrival::of_block(access, Cause::Prefetch, Incoming::BLOCK.miss_hint);
        self.store(&arrival);
        true
    }

    /// What was dirty has been uploaded.
    pub fn clean(&mut self, key: u64) {
        if let Some(slot) = self.find(key) {
            self.entries[slot as usize].is_dirty = false;
            self.policy.set_dirty(Lcbn(slot), false);
        }
    }

    /// Forgets an object, if it is here.
    pub fn remove(&mut self, key: u64) {
        if let Some(slot) = self.find(key) {
            self.policy.remove(Lcbn(slot));
            self.forget(slot);
        }
    }

    /// What does not fit any more is evicted at once.
    pub fn resize(&mut self, capacity: Capacity) {
        self.evicted.clear();
        self.capacity = capacity;
        self.policy.resize(capacity);
        let nothing = Incoming {
            bytes: 0,
            ..Incoming::BLOCK
        };
        let mut evicted = Outcome::default();
        while self.used_bytes > capacity.bytes || self.index.len() > capacity.blocks as usize {
            self.evict(nothing, None, &mut evicted);
        }
    }

    fn find(&self, key: u64) -> Option<u32> {
        self.index.find(&self.keys, key)
    }

    /// `None` when the block is larger than the cache.
    fn make_room(&mut self, incoming: Incoming) -> Option<Outcome> {
        if incoming.bytes > self.capacity.bytes || self.capacity.blocks == 0 {
            return None;
        }
        let mut outcome = Outcome::default();
        while self.used_bytes + incoming.bytes > self.capacity.bytes
            || self.index.len() >= self.capacity.blocks as usize
        {
            self.evict(incoming, None, &mut outcome);
        }
        Some(outcome)
    }

    fn evict(&mut self, incoming: Incoming, kept: Option<u32>, outcome: &mut Outcome) {
        let mut residents = Unpinned { keys: &self.keys, kept };
        let victim = self.policy.victim(incoming, &mut residents);
        let Some(Lcbn(slot)) = victim else {
            unreachable!("at most one object is kept, and there are others");
        };
        let entry = self.entries[slot as usize];
        outcome.evicted += 1;
        outcome.evicted_dirty += u32::from(entry.is_dirty);
        self.evicted.push(Evicted {
            key: self.keys[slot as usize],
            bytes: entry.bytes,
            is_dirty: entry.is_dirty,
        });
        self.forget(slot);
    }

    fn forget(&mut self, slot: u32) {
        self.index.remove(&self.keys, slot);
        self.used_bytes -= u64::from(self.entries[slot as usize].bytes);
        self.free.push(slot);
    }

    fn store(&mut self, arrival: &Arrival) {
        let entry = Entry {
            bytes: arrival.bytes,
            is_dirty: arrival.is_dirty,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.keys.push(0);
            self.entries.push(entry);
            self.keys.len() as u32 - 1
        });
        self.keys[slot as usize] = arrival.access.block.0;
        self.entries[slot as usize] = entry;
        self.index.insert(&self.keys, slot);
        self.used_bytes += u64::from(arrival.bytes);
        self.policy.insert(Lcbn(slot), arrival);
    }
}
