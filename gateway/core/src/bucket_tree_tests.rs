//! The tree against plain maps: whatever is folded in, in whatever portions, is what is read out of it.

use super::*;
use crate::format::bucket_journal::{PartHeader, Salt};
use core::convert::Infallible;
use proptest::prelude::*;
use tombolo_base::{BlockEncoding, Fingerprint, FlushMode, Pvbn, WallTime};
use tombolo_metadata_tree::Written;

/// Nodes, and the object that the next ones are in.
#[derive(Clone, Default)]
pub(crate) struct Store(Vec<Vec<u8>>, u64);

impl Nodes for Store {
    type Error = Infallible;

    fn read(&mut self, pointer: &Pointer) -> Result<Vec<u8>, Infallible> {
        Ok(self.0[pointer.message as usize].clone())
    }

    fn write(&mut self, node: Vec<u8>) -> Result<Written, Infallible> {
        self.0.push(node);
        let message = self.0.len() as u32 - 1;
        Ok(Written {
            object: self.1,
            message,
            offset: message,
            bytes: 16 + self.0[message as usize].len() as u32,
            tag: [message as u8; 16],
        })
    }
}

pub(crate) fn part(is_whole: bool, items: Vec<Item>) -> Part {
    let header = PartHeader {
        sequence: 1,
        epoch: 1,
        before: Salt::NONE,
        is_whole,
        is_last: true,
        time: WallTime(0),
        next_pvbn: 1,
        next_volume: 1,
        totals: Totals {
            objects: items.len() as u64,
            ..Totals::default()
        },
    };
    Part { header, items }
}

#[derive(Debug, Default, PartialEq, Clone)]
struct Model {
    blocks: BTreeMap<(VolumeId, u64), Pvbn>,
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    counters: BTreeMap<Vec<u8>, i64>,
    objects: BTreeMap<u64, ObjectDescriptor>,
    volumes: BTreeMap<VolumeId, Volume>,
    totals: Totals,
}

impl Model {
    fn lay(&mut self, part: &Part) {
        if part.header.is_whole {
            *self = Self::default();
        }
        self.totals = part.header.totals;
        for item in part.items.clone() {
            match item {
                Item::Volume(volume) => drop(self.volumes.insert(volume.id, volume)),
                Item::NoVolume(volume) => {
                    self.volumes.remove(&volume);
                    self.blocks.retain(|(of, _), _| *of != volume);
                }
                Item::Run(extent) => {
                    for block in extent.first..extent.end() {
                        let place = (extent.volume, block);
                        match extent.target.plus(block - extent.first) {
                            BlockTarget::At(pvbn) => drop(self.blocks.insert(place, pvbn)),
                            BlockTarget::Hole => drop(self.blocks.remove(&place)),
                        }
                    }
                }
                Item::Object(descriptor) => drop(self.objects.insert(descriptor.first_pvbn().0, descriptor)),
                Item::Entry(key, value) => drop(self.entries.insert(key, value)),
                Item::NoEntry(key) => drop(self.entries.remove(&key)),
                Item::Counter(key, 0) => drop(self.counters.remove(&key)),
                Item::Counter(key, value) => drop(self.counters.insert(key, value)),
            }
        }
    }
}

fn read(store: &mut Store, tree: &BucketTree) -> Model {
    let mut found = Model::default();
    let contents = read_tree(store, tree, &mut |frozen| {
        for extent in frozen.map.iter() {
            let BlockTarget::At(pvbn) = extent.target else {
                panic!("a hole")
            };
            let blocks = (0..extent.count).map(|index| ((extent.volume, extent.first + index), pvbn.plus(index)));
            found.blocks.extend(blocks);
        }
        for (key, value) in frozen.entries.iter_from(&[]) {
            found
                .entries
                .insert(key.clone(), value.as_ref().expect("an entry").to_vec());
        }
        let counters = frozen.entries.counters();
        found.counters.extend(counters.map(|(key, value)| (key.clone(), value)));
        let objects = frozen.objects.iter();
        found
            .objects
            .extend(objects.map(|(first, object)| (*first, (**object).clone())));
        Ok::<(), Infallible>(())
    });
    let contents = contents.unwrap();
    found.volumes = contents.volumes;
    found.totals = contents.totals;
    found
}

pub(crate) fn items() -> impl Strategy<Value = Item> {
    let volume = prop_oneof![(1u64..4).prop_map(VolumeId), (1u64..4).prop_map(VolumeId::of_inode)];
    let target = prop::option::of(1u64..1000);
    let run = (volume, 0u64..200, 1u64..30, target).prop_map(|(volume, first, count, pvbn)| {
        Item::Run(Extent {
            volume,
            first,
            count,
            target: pvbn.map_or(BlockTarget::Hole, |pvbn| BlockTarget::At(Pvbn(pvbn))),
        })
    });
    let key = prop::collection::vec(any::<u8>(), 1..4);
    let value = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        8 => run,
        2 => (1u64..4, 1u64..9, prop_oneof![Just(FlushMode::Local), Just(FlushMode::Bucket)]).prop_map(|(id, blocks, flush)| Item::Volume(Volume {
            id: VolumeId(id),
            name: alloc::format!("volume {id}"),
            blocks,
            flush,
        })),
        4 => (key.clone(), value).prop_map(|(key, value)| Item::Entry(key, value)),
        2 => key.clone().prop_map(Item::NoEntry),
        2 => (key, -2i64..3).prop_map(|(key, value)| Item::Counter(key, value)),
        1 => (0u64..50).prop_map(|first| Item::Object(ObjectDescriptor::unnamed([(
            Pvbn(1 + 100 * first),
            Fingerprint::of(&first.to_le_bytes()),
            4096,
            BlockEncoding::Plain,
        )]))),
    ]
}

/// Volumes that runs speak of are there, as the core sees to it.
pub(crate) fn first_part() -> Part {
    let volumes = (1..4).map(|id| {
        Item::Volume(Volume {
            id: VolumeId(id),
            name: "first".into(),
            blocks: 300,
            flush: FlushMode::Local,
        })
    });
    part(true, volumes.collect())
}

proptest! {
    #[test]
    fn what_is_folded_is_what_is_read(
        portions in prop::collection::vec(prop::collection::vec((any::<u8>(), prop::collection::vec(items(), 0..30)), 1..4), 1..12),
        deleted in prop::option::of(1u64..4),
        leaf_bytes in 32usize..2000,
        segments_max in 0u8..4,
    ) {
        let (mut store, mut model) = (Store::default(), Model::default());
        let shape = Shape { leaf_bytes, segments_max, ..Shape::default() };
        let mut base = FoldBase { shape, ..FoldBase::default() };
        let mut portions: Vec<Vec<Part>> = portions
            .into_iter()
            .map(|parts| {
                let parts = parts.into_iter().enumerate();
                let parts = parts.map(|(index, (odds, items))| match (index, odds) {
                    (0, ..50) => first_part(),
                    _ => part(false, items),
                });
                parts.collect()
            })
            .collect();
        portions.insert(0, vec![first_part()]);
        if let Some(volume) = deleted {
            portions.push(vec![part(false, vec![Item::NoVolume(VolumeId(volume))])]);
        }
        for parts in portions {
            let mut changes = JournalChanges::default();
            for part in parts {
                model.lay(&part);
                changes.lay(part);
            }
            base.next_root += 1;
            store.1 = base.next_root / 3;
            let next_root = base.next_root;
            let Folded { tree, usage, usage_at } = fold(&mut store, base, &changes).unwrap();
            prop_assert_eq!(BucketTree::decode(&tree.encode()), Ok(tree.clone()));
            prop_assert_eq!(read(&mut store, &tree), model.clone());
            let mut reached: BTreeMap<u64, u32> = BTreeMap::new();
            for node in all_nodes(&mut store, &tree).unwrap() {
                *reached.entry(node.object).or_default() += 1;
            }
            prop_assert_eq!(usage.live().collect::<BTreeMap<_, _>>(), reached, "nodes that are counted are those of the tree");
            let usage = UsageTable::read(&mut store, &usage_at).unwrap();
            base = FoldBase { tree, usage, usage_at: Some(usage_at), next_root, shape };
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(tree) = BucketTree::decode(&bytes) {
            prop_assert_eq!(tree.encode(), bytes.clone());
        }
        if let Ok(dataset) = Dataset::decode(&bytes) {
            prop_assert_eq!(dataset.encode(), bytes);
        }
    }
}
