//! Local metadata with a tree behind it against local metadata that has all of it: whatever is changed, read and brought here in
//! whatever order, nobody can tell the two apart.

use super::*;
use crate::bucket_tree::tests::{Store, first_part, items, part};
use crate::bucket_tree::{FoldBase, JournalChanges, fold, read_tree};
use crate::format::bucket_journal::Item;
use crate::merge::Merge;
use crate::state::extent_map::{Extent, Target};
use crate::test_bench::{Tables, Transaction};
use alloc::sync::Arc;
use core::convert::Infallible;
use proptest::prelude::*;
use tombolo_metadata_tree::Shape;

const TABLES: [Table; 3] = [Table::Map, Table::Entries, Table::Objects];

fn transaction(tables: &mut Tables) -> Transaction<'_> {
    Transaction { tables, changed: 0 }
}

fn state_of(items: Vec<Item>) -> Frozen {
    let mut frozen = Frozen::default();
    for item in items {
        match item {
            Item::Run(extent) => frozen.map.insert(extent),
            Item::Object(object) => drop(frozen.objects.insert(object.first_pvbn().0, Arc::new(object))),
            Item::Entry(key, value) => frozen.entries.set(&key, Some(value.into())),
            Item::NoEntry(key) => frozen.entries.set(&key, None),
            Item::Counter(..) | Item::Volume(_) | Item::NoVolume(_) => {}
        }
    }
    frozen
}

fn merge<T: MetadataTransaction<Error: core::fmt::Debug>>(transaction: &mut T, frozen: Frozen, pages_max: usize) {
    let mut merge = Merge::new(Arc::new(frozen), pages_max);
    while !merge.step(transaction).unwrap() {}
}

/// The same tree twice: all of it here, and none.
fn both(parts: Vec<Vec<Item>>, shape: Shape) -> (Tables, Tables, Store, Backing) {
    let mut store = Store::default();
    let mut base = FoldBase {
        shape,
        ..FoldBase::default()
    };
    let first = [first_part()].into_iter();
    for part in first.chain(parts.into_iter().map(|items| part(false, items))) {
        let mut changes = JournalChanges::default();
        changes.lay(part);
        let folded = fold(&mut store, base, &changes).unwrap();
        base = FoldBase {
            tree: folded.tree,
            shape,
            ..FoldBase::default()
        };
    }
    let (mut whole, mut lacking) = (Tables::default(), Tables::default());
    let contents = read_tree(&mut store, &base.tree, &mut |frozen| {
        merge(&mut transaction(&mut whole), frozen, 1000);
        Ok::<(), Infallible>(())
    });
    let head = read_head(&mut store, &base.tree).unwrap();
    assert_eq!(head.contents, contents.unwrap());
    merge(&mut transaction(&mut lacking), head.counters, 1000);
    begin(&mut transaction(&mut lacking), &head.backing).unwrap();
    let found = load_backing(&transaction(&mut lacking)).unwrap();
    assert_eq!(found, Some(head.backing.clone()));
    (whole, lacking, store, head.backing)
}

#[derive(Clone, Debug)]
enum Step {
    Change(Vec<Item>, usize),
    Delete(u64),
    Bring(u64),
    Read(Table, Vec<u8>),
}

fn keys() -> impl Strategy<Value = (Table, Vec<u8>)> {
    let volume = prop_oneof![0u64..5, (0u64..5).prop_map(|number| FILES | number)];
    let map = (volume, 0u64..3, 0usize..19).prop_map(|(volume, page, length)| {
        let mut key = map_key(VolumeId(volume), page).to_vec();
        key.resize(length.max(1), 0);
        (Table::Map, key)
    });
    let entry = prop::collection::vec(any::<u8>(), 1..4).prop_map(|key| (Table::Entries, key));
    let object =
        (0u64..5200, 1usize..9).prop_map(|(first, length)| (Table::Objects, first.to_be_bytes()[..length].to_vec()));
    prop_oneof![map, entry, object]
}

fn steps() -> impl Strategy<Value = Step> {
    let items = prop::collection::vec(items(), 0..20);
    prop_oneof![
        3 => (items, 1usize..6).prop_map(|(items, pages)| Step::Change(items, pages)),
        1 => (1u64..4).prop_map(Step::Delete),
        3 => (1u64..12).prop_map(Step::Bring),
        9 => keys().prop_map(|(table, key)| Step::Read(table, key)),
    ]
}

/// All of a volume becomes a hole, as when it is deleted.
fn deletion(volume: u64) -> Frozen {
    let mut frozen = Frozen::default();
    frozen.map.insert(Extent {
        volume: VolumeId(volume),
        first: 0,
        count: 1 << 20,
        target: Target::Hole,
    });
    frozen
}

fn bring(lacking: &mut Tables, backing: &Backing, store: &mut Store, records_max: u64) -> bool {
    let mut local = transaction(lacking);
    let progress = load_progress(&local).unwrap();
    let portion = backing.read(store, &progress, records_max, 3).unwrap();
    assert!(portion.records <= records_max);
    lay(&mut local, &portion).unwrap()
}

proptest! {
    #[test]
    fn nobody_can_tell_that_a_part_is_not_here(
        parts in prop::collection::vec(prop::collection::vec(items(), 0..40), 1..5),
        leaf_bytes in 32usize..500,
        segments_max in 0u8..4,
        steps in prop::collection::vec(steps(), 0..60),
        records_max in 1u64..20,
    ) {
        let shape = Shape { leaf_bytes, segments_max, ..Shape::default() };
        let (mut whole, mut lacking, mut store, backing) = both(parts, shape);
        let behind = Behind { backing: Arc::new(backing.clone()), nodes: store.clone() };
        // It is laid more than once.
        let early = backing.read(&mut store, &Progress::start(), records_max, usize::MAX).unwrap();
        for step in steps {
            match step {
                Step::Bring(1) => drop(lay(&mut transaction(&mut lacking), &early).unwrap()),
                Step::Bring(records_max) => drop(bring(&mut lacking, &backing, &mut store, records_max)),
                Step::Read(table, key) => {
                    let expected = transaction(&mut whole);
                    let found = Backed::new(transaction(&mut lacking), Some(behind.clone()));
                    prop_assert_eq!(found.get(table, &key).unwrap(), expected.get(table, &key).unwrap());
                    prop_assert_eq!(found.ceiling(table, &key).unwrap(), expected.ceiling(table, &key).unwrap());
                    prop_assert_eq!(found.floor(table, &key).unwrap(), expected.floor(table, &key).unwrap());
                    let some = found.entries(&key, &[200], records_max as usize).unwrap();
                    let all = Backed::<_, Store>::new(transaction(&mut whole), None);
                    prop_assert_eq!(some, all.entries(&key, &[200], records_max as usize).unwrap());
                }
                Step::Change(..) | Step::Delete(_) => {
                    let (frozen, pages_max) = match step {
                        Step::Change(items, pages_max) => (state_of(items), pages_max),
                        Step::Delete(volume) => (deletion(volume), 3),
                        _ => unreachable!("it is one of the two"),
                    };
                    merge(&mut transaction(&mut whole), frozen.clone(), pages_max);
                    let mut local = Backed::new(transaction(&mut lacking), Some(behind.clone()));
                    merge(&mut local, frozen, pages_max);
                }
            }
        }
        for table in TABLES {
            let mut key = Vec::new();
            loop {
                let expected = transaction(&mut whole).ceiling(table, &key).unwrap();
                let found = Backed::new(transaction(&mut lacking), Some(behind.clone())).ceiling(table, &key).unwrap();
                prop_assert_eq!(&found, &expected);
                let Some((found, _)) = found else { break };
                key = found;
                key.push(0);
            }
        }
        while !bring(&mut lacking, &backing, &mut store, records_max) {}
        prop_assert_eq!(lacking, whole, "with the counts of references, and without a trace");
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(backing) = Backing::decode(&bytes) {
            prop_assert_eq!(backing.encode(), bytes.clone());
        }
        if let Ok(progress) = Progress::decode(&bytes) {
            prop_assert_eq!(progress.encode(), bytes);
        }
    }
}
