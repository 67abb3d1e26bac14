//! The cloud: objects by key, and what is wrong with them.

use std::collections::{BTreeMap, BTreeSet};
use tombolo_base::{ObjectDescriptor, Prng, Pvbn};
use tombolo_cloud_driver::object::decode_object;

#[derive(Debug, Default)]
pub struct Store {
    objects: BTreeMap<String, Vec<u8>>,
    /// Blocks of objects that a bit flip has reached.
    damaged: BTreeMap<String, BTreeSet<Pvbn>>,
    pub outage_until: u64,
}

impl Store {
    pub fn put(&mut self, key: String, bytes: Vec<u8>) {
        // A PUT replaces the object, and with it the damage.
        self.damaged.remove(&key);
        self.objects.insert(key, bytes);
    }

    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.objects.get(key).map(|bytes| &bytes[..])
    }

    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.objects.keys()
    }

    /// What the whole ones hold.
    pub fn descriptors(&self) -> impl Iterator<Item = ObjectDescriptor> {
        let whole = self.objects.values().filter_map(|bytes| decode_object(bytes).ok());
        whole.map(|(descriptor, _)| descriptor)
    }

    pub fn is_damaged(&self, pvbn: Pvbn) -> bool {
        self.damaged.values().any(|pvbns| pvbns.contains(&pvbn))
    }

    /// Any of the objects, and which blocks it holds.
    fn any(&self, prng: &mut Prng) -> Option<(String, Vec<Pvbn>)> {
        let index = prng.below(self.objects.len().max(1) as u64) as usize;
        let (key, bytes) = self.objects.iter().nth(index)?;
        let (descriptor, _) = decode_object(bytes).ok()?;
        let pvbns = descriptor.blocks().iter().map(|block| block.pvbn);
        Some((key.clone(), pvbns.collect()))
    }

    pub fn lose_object(&mut self, prng: &mut Prng) {
        if let Some((key, pvbns)) = self.any(prng) {
            self.objects.remove(&key);
            self.damaged.entry(key).or_default().extend(pvbns);
        }
    }

    pub fn truncate_object(&mut self, prng: &mut Prng) {
        if let Some((key, pvbns)) = self.any(prng)
            && let Some(bytes) = self.objects.get_mut(&key)
        {
            bytes.truncate(prng.below(bytes.len() as u64) as usize);
            self.damaged.entry(key).or_default().extend(pvbns);
        }
    }

    pub fn rot_object(&mut self, prng: &mut Prng) {
        if self.objects.is_empty() {
            return;
        }
        let index = prng.below(self.objects.len() as u64) as usize;
        let Some((key, bytes)) = self.objects.iter_mut().nth(index) else {
            return;
        };
        if let Ok((descriptor, _)) = decode_object(bytes) {
            let packed = descriptor.blocks()[prng.below(descriptor.blocks().len() as u64) as usize];
            let place = u64::from(packed.offset_bytes) + prng.below(u64::from(packed.stored_bytes));
            bytes[place as usize] ^= 1 << prng.below(8);
            self.damaged.entry(key.clone()).or_default().insert(packed.pvbn);
        }
    }
}
