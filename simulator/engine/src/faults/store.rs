//! The cloud: objects by key, and what is wrong with them; and the keys that objects are encrypted with.

use std::collections::{BTreeMap, BTreeSet};
use tombolo_base::{BLOCK_BYTES, BlockSum, Fingerprint, KeyId, ObjectDescriptor, ObjectId, Prng, Pvbn};
use tombolo_cloud_driver::encryption::{KeyRing, SECRET_BYTES, SecretKey};
use tombolo_cloud_driver::object::{Compression, ObjectError, decode_object, encode_object};

#[derive(Debug, Default)]
pub struct Store {
    /// Empty: nothing is encrypted.
    ring: KeyRing,
    objects: BTreeMap<String, Vec<u8>>,
    /// What was put under each key, at any time.
    sums: BTreeMap<String, BlockSum>,
    /// Blocks of objects that a bit flip has reached.
    damaged: BTreeMap<String, BTreeSet<Pvbn>>,
    pub outage_until: u64,
}

impl Store {
    pub fn encrypted(prng: &mut Prng) -> Self {
        let mut store = Self::default();
        store.rotate_key(prng);
        store
    }

    pub fn is_encrypted(&self) -> bool {
        self.ring.current().is_some()
    }

    /// Another data key for new objects.
    pub fn rotate_key(&mut self, prng: &mut Prng) {
        let mut secret = [0; SECRET_BYTES];
        prng.fill(&mut secret);
        self.ring.add(SecretKey::new(secret));
    }

    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    pub fn pack(&self, blocks: &[(Pvbn, Fingerprint, &[u8])], compression: Compression) -> (ObjectDescriptor, Vec<u8>) {
        encode_object(blocks, compression, &self.ring)
    }

    /// # Panics
    /// When an encrypted store is given something in clear, or one name is given to two contents: then a key and a nonce
    /// would have encrypted two texts.
    pub fn put(&mut self, key: String, bytes: Vec<u8>) {
        let sum = BlockSum::of(&bytes);
        let before = self.sums.insert(key.clone(), sum);
        assert!(
            before.is_none_or(|before| before == sum),
            "object {key} has two contents"
        );
        if self.is_encrypted() {
            let (descriptor, blocks) = self.open(&key, &bytes).expect("what is put can be read");
            assert_ne!(descriptor.key_id(), KeyId::NONE, "object {key} is in clear");
            for (packed, block) in descriptor.blocks().iter().zip(blocks.chunks_exact(BLOCK_BYTES)) {
                let head = &bytes[..descriptor.blocks()[0].offset_bytes as usize];
                let names = head.windows(packed.fingerprint.0.len());
                let stored = &bytes[descriptor.extent(packed)];
                assert!(
                    !names.clone().any(|bytes| bytes == packed.fingerprint.0) && !stored.starts_with(&block[..64]),
                    "object {key} is in clear"
                );
            }
        }
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

    fn open(&self, key: &str, bytes: &[u8]) -> Result<(ObjectDescriptor, Vec<u8>), ObjectError> {
        let id = ObjectId::from_key(key).expect("objects have keys of their form");
        decode_object(bytes, id, &self.ring)
    }

    /// The keys of all objects that were put at any time.
    pub fn keys_ever(&self) -> BTreeSet<&String> {
        self.sums.keys().collect()
    }

    /// What the whole ones hold.
    pub fn descriptors(&self) -> impl Iterator<Item = ObjectDescriptor> {
        let whole = self
            .objects
            .iter()
            .filter_map(|(key, bytes)| self.open(key, bytes).ok());
        whole.map(|(descriptor, _)| descriptor)
    }

    pub fn is_damaged(&self, pvbn: Pvbn) -> bool {
        self.damaged.values().any(|pvbns| pvbns.contains(&pvbn))
    }

    /// Any of the objects, and which blocks it holds.
    fn any(&self, prng: &mut Prng) -> Option<(String, Vec<Pvbn>)> {
        let index = prng.below(self.objects.len().max(1) as u64) as usize;
        let (key, bytes) = self.objects.iter().nth(index)?;
        let (descriptor, _) = self.open(key, bytes).ok()?;
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
        let Some((key, bytes)) = self.objects.iter().nth(index) else {
            return;
        };
        let key = key.clone();
        if let Ok((descriptor, _)) = self.open(&key, bytes) {
            let packed = descriptor.blocks()[prng.below(descriptor.blocks().len() as u64) as usize];
            let place = u64::from(packed.offset_bytes) + prng.below(u64::from(packed.stored_bytes));
            let bit = 1 << prng.below(8);
            if let Some(bytes) = self.objects.get_mut(&key) {
                bytes[place as usize] ^= bit;
            }
            self.damaged.entry(key).or_default().insert(packed.pvbn);
        }
    }
}
