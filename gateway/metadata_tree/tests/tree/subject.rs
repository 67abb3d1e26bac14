//! What the two kinds of trees are to the tests: how a record changes a sorted map of single keys, and random records.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Debug;
use tombolo_base::Pvbn;
use tombolo_metadata_tree::{BLOCKS_MAX, Codec, Entries, Entry, MapKey, Run, Runs, Target};

pub type Model<C> = BTreeMap<<C as Codec>::Key, <C as Codec>::Value>;

pub trait Subject: Codec<Key: 'static, Record: 'static, Value: Clone + PartialEq + Debug> + Debug + 'static {
    /// The record over the model.
    fn lay(model: &mut Model<Self>, record: &Self::Record)
    where
        Self: Sized;

    /// Keys that random records have, and some that none has.
    fn probes() -> Vec<Self::Key>;

    /// Deletions with this likelihood in percent.
    fn any_record(deletions: u32) -> BoxedStrategy<Self::Record>;
}

const FILES: u64 = 3;
const BLOCKS: u64 = 150;

impl Subject for Runs {
    fn lay(model: &mut Model<Self>, run: &Run) {
        let covered: Vec<MapKey> = model.range(run.start..run.end()).map(|(key, _)| *key).collect();
        for key in covered {
            model.remove(&key);
        }
        let Some(target) = run.target else { return };
        for offset in 0..run.length {
            let key = MapKey {
                block: run.start.block + offset,
                ..run.start
            };
            let pvbn = target.pvbn.plus(offset);
            model.insert(key, Target { pvbn, ..target });
        }
    }

    fn probes() -> Vec<MapKey> {
        let blocks = |file| {
            (0..BLOCKS + 12)
                .chain([BLOCKS_MAX - 1])
                .map(move |block| MapKey { file, block })
        };
        (0..=FILES).flat_map(blocks).collect()
    }

    fn any_record(deletions: u32) -> BoxedStrategy<Run> {
        let target = (0u64..100_000, prop::option::weighted(0.1, 1u32..200)).prop_map(|(pvbn, birth)| Target {
            pvbn: Pvbn(pvbn),
            birth,
        });
        let target = prop::option::weighted(1.0 - f64::from(deletions) / 100.0, target);
        let length = prop_oneof![4 => 1u64..3, 2 => 1u64..12, 1 => Just(u64::MAX)];
        let fields = (0..FILES, 0..BLOCKS, length, target);
        let run = fields.prop_map(|(file, block, length, target)| {
            // A hole may go on to the end of the file.
            let length_max = if target.is_none() { BLOCKS_MAX - block } else { 9 };
            Run {
                start: MapKey { file, block },
                length: length.min(length_max),
                target,
            }
        });
        run.boxed()
    }
}

impl Subject for Entries {
    fn lay(model: &mut Model<Self>, entry: &Entry) {
        match &entry.value {
            Some(value) => model.insert(entry.key.clone(), value.clone()),
            None => model.remove(&entry.key),
        };
    }

    fn probes() -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
        for from in 0..85 {
            let key: &[u8] = &keys[from].clone();
            keys.extend((0..4).map(|byte| [key, &[byte]].concat()));
        }
        keys
    }

    fn any_record(deletions: u32) -> BoxedStrategy<Entry> {
        let value = prop::collection::vec(any::<u8>(), 0..6);
        let value = prop::option::weighted(1.0 - f64::from(deletions) / 100.0, value);
        let key = prop::collection::vec(0u8..4, 0..5);
        (key, value).prop_map(|(key, value)| Entry { key, value }).boxed()
    }
}
