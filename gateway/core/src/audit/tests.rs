use super::*;
use crate::bucket_tree::tests::{Store, part};
use crate::bucket_tree::{BucketTree, FoldBase, JournalChanges, TreeContents, fold, read_tree};
use crate::format::bucket_journal::Item;
use crate::format::local_metadata::{Table, map_key};
use crate::format::page::{CountPage, References};
use crate::format::slot_page::{SlotEntry, encode_slot_page};
use crate::format::superblock::{Superblock, Volume};
use crate::merge::Merge;
use crate::state::entry_overlay::Entries;
use crate::state::extent_map::ExtentMap;
use crate::state::overlay::Frozen;
use crate::test_bench::{Tables, Transaction};
use alloc::sync::Arc;
use tombolo_base::{BlockEncoding, BlockSum, Fingerprint, FlushMode, ObjectDescriptor, Pvbn};
use tombolo_metadata_tree::Shape;

const VOLUME: VolumeId = VolumeId(1);
const FILE: VolumeId = VolumeId(1 << 63 | 9);
const OTHER_FILE: VolumeId = VolumeId(1 << 63 | 5);

fn object(pvbns: impl IntoIterator<Item = u64>) -> ObjectDescriptor {
    ObjectDescriptor::unnamed(
        pvbns
            .into_iter()
            .map(|pvbn| (Pvbn(pvbn), Fingerprint([pvbn as u8; 32]), 4096, BlockEncoding::Plain)),
    )
}

fn run(volume: VolumeId, first: u64, count: u64, pvbn: u64) -> Extent {
    let target = Target::At(Pvbn(pvbn));
    Extent {
        volume,
        first,
        count,
        target,
    }
}

fn volume() -> Volume {
    Volume {
        id: VOLUME,
        name: "one".into(),
        blocks: 1 << 20,
        flush: FlushMode::Local,
    }
}

const RUNS: [(VolumeId, u64, u64, u64); 4] = [
    (VOLUME, 0, 300, 1000),
    (VOLUME, 5000, 10, 1000),
    (VOLUME, 6000, 4, 9000),
    (FILE, 3, 20, 1100),
];
/// PVBN 9003 is in no object, but dirty in a slot.
fn objects() -> [ObjectDescriptor; 3] {
    [object(1000..1150), object(1150..1300), object([9000, 9001, 9002])]
}

fn tables() -> Tables {
    let mut map = ExtentMap::default();
    for (volume, first, count, pvbn) in RUNS {
        map.insert(run(volume, first, count, pvbn));
    }
    let mut entries = Entries::default();
    entries.set(b"Ione", Some(b"inode".as_slice().into()));
    entries.set_counter(b"Ub", 7);
    let dirty = SlotEntry::Dirty {
        pvbn: Pvbn(9003),
        sum: BlockSum(1),
        volume: VOLUME,
        block: 6003,
    };
    let frozen = Frozen {
        superblock: Superblock {
            volumes: vec![volume()],
            ..Superblock::first(7, 64)
        },
        map,
        objects: objects()
            .map(|object| (object.first_pvbn().0, Arc::new(object)))
            .into_iter()
            .collect(),
        entries,
        slot_pages: vec![(0, encode_slot_page([dirty, SlotEntry::Free].into_iter()))],
    };
    let mut tables = Tables::new();
    let mut transaction = Transaction {
        tables: &mut tables,
        changed: 0,
    };
    assert_eq!(Merge::new(Arc::new(frozen), 1 << 20).step(&mut transaction), Ok(true));
    tables
}

/// Looks at all in windows of so many pages.
fn audited(tables: &Tables, pages_max: usize) -> (u64, Vec<AuditFinding>) {
    let mut tables = tables.clone();
    let reader = Transaction {
        tables: &mut tables,
        changed: 0,
    };
    let (mut from, mut pvbns, mut found) = (Some(0), 0, Vec::new());
    while let Some(first) = from {
        let window = audit_window(&reader, first, pages_max, &mut |finding| found.push(finding)).unwrap();
        pvbns += window.pvbns;
        from = window.next;
    }
    (pvbns, found)
}

fn change_count(tables: &mut Tables, pvbn: u64, count: u64) {
    let key = (Table::References, (pvbn / PAGE_ENTRIES).to_be_bytes().to_vec());
    let mut page = CountPage::decode(&tables[&key]).unwrap();
    page.set(
        (pvbn % PAGE_ENTRIES) as u16,
        1,
        (count > 0).then_some(References(count)),
    );
    tables.insert(key, page.encode());
}

#[test]
fn sound_tables_have_nothing_to_be_found() {
    let tables = tables();
    for pages_max in [1, 2, 100] {
        assert_eq!(
            audited(&tables, pages_max),
            (304, Vec::new()),
            "windows of {pages_max} pages"
        );
    }
}

#[test]
fn a_count_off_by_one_is_found() {
    for (pvbn, right) in [(1004, 2), (1299, 1), (9003, 1)] {
        for wrong in [right - 1, right + 1] {
            let mut tables = tables();
            change_count(&mut tables, pvbn, wrong);
            for pages_max in [1, 100] {
                let expected = AuditFinding::References {
                    pvbn: Pvbn(pvbn),
                    blocks: 1,
                    counted: wrong,
                    named: right,
                };
                assert_eq!(audited(&tables, pages_max).1, [expected]);
            }
        }
    }
}

#[test]
fn a_count_of_what_no_map_names_is_found() {
    let mut tables = tables();
    let mut page = CountPage::default();
    page.set(3, 2, Some(References(4)));
    tables.insert((Table::References, 77u64.to_be_bytes().to_vec()), page.encode());
    let expected = AuditFinding::References {
        pvbn: Pvbn(77 * PAGE_ENTRIES + 3),
        blocks: 2,
        counted: 4,
        named: 0,
    };
    assert_eq!(audited(&tables, 1).1, [expected]);
}

#[test]
fn a_map_that_names_a_block_of_no_object_is_found() {
    let mut tables = tables();
    let key = (Table::Map, map_key(VOLUME, 5000 / PAGE_ENTRIES).to_vec());
    let mut page = MapPage::decode(&tables[&key]).unwrap();
    page.set((5002 % PAGE_ENTRIES) as u16, 1, Some(Pvbn(50_000)));
    tables.insert(key, page.encode());
    let strange = run(VOLUME, 5002, 1, 50_000);
    for pages_max in [1, 100] {
        let found = audited(&tables, pages_max).1;
        let expected = [
            AuditFinding::References {
                pvbn: Pvbn(50_000),
                blocks: 1,
                counted: 0,
                named: 1,
            },
            AuditFinding::NoObject {
                run: strange,
                is_damaged_slot: false,
            },
            AuditFinding::References {
                pvbn: Pvbn(1002),
                blocks: 1,
                counted: 2,
                named: 1,
            },
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(expected.iter().all(|finding| found.contains(finding)), "{found:?}");
    }
}

#[test]
fn a_missing_record_of_an_object_is_found_with_all_that_refer_to_it() {
    let mut tables = tables();
    tables.remove(&(Table::Objects, 1150u64.to_be_bytes().to_vec()));
    for pages_max in [1, 100] {
        let found = audited(&tables, pages_max).1;
        let mut lost = 0;
        for finding in &found {
            let AuditFinding::NoObject {
                run,
                is_damaged_slot: false,
            } = finding
            else {
                panic!("{finding:?}")
            };
            assert_eq!(run.target, Target::At(Pvbn(1000 + run.first)));
            assert!(run.volume == VOLUME && run.first >= 150 && run.end() <= 300);
            lost += run.count;
        }
        assert_eq!(lost, 150, "{found:?}");
    }
}

#[test]
fn a_dirty_block_whose_slot_is_damaged_or_gone_is_found() {
    let key = (Table::Slots, 0u32.to_be_bytes().to_vec());
    let corrupt = SlotEntry::Corrupt {
        pvbn: Pvbn(9003),
        sum: BlockSum(1),
        volume: VOLUME,
        block: 6003,
    };
    for (slot, is_damaged_slot) in [(corrupt, true), (SlotEntry::Free, false)] {
        let mut tables = tables();
        tables.insert(key.clone(), encode_slot_page([slot].into_iter()));
        let run = run(VOLUME, 6003, 1, 9003);
        assert_eq!(
            audited(&tables, 100).1,
            [AuditFinding::NoObject { run, is_damaged_slot }]
        );
    }
}

#[test]
fn an_object_that_lies_under_another_key_is_found() {
    let mut tables = tables();
    let moved = tables
        .remove(&(Table::Objects, 9000u64.to_be_bytes().to_vec()))
        .unwrap();
    let key = 9001u64.to_be_bytes().to_vec();
    tables.insert((Table::Objects, key.clone()), moved);
    let first = Pvbn(9000);
    assert_eq!(audited(&tables, 1).1, [AuditFinding::MisplacedObject { key, first }]);
}

/// Everything that [`tables`] has.
fn items() -> Vec<Item> {
    let mut items = vec![
        Item::Volume(volume()),
        Item::Entry(b"Ione".to_vec(), b"inode".to_vec()),
        Item::Counter(b"Ub".to_vec(), 7),
    ];
    items.extend(RUNS.map(|(volume, first, count, pvbn)| Item::Run(run(volume, first, count, pvbn))));
    items.extend(objects().map(Item::Object));
    items
}

/// The first `in_tree` items as a tree, the others as the journal behind it.
struct Bucket {
    nodes: Store,
    tree: BucketTree,
    journal: JournalChanges,
}

impl Bucket {
    fn of(items: Vec<Item>, in_tree: usize) -> Self {
        let mut items = items;
        let behind = items.split_off(in_tree);
        let (mut nodes, mut folded) = (Store::default(), JournalChanges::default());
        folded.lay(part(true, items));
        let base = FoldBase {
            shape: Shape {
                leaf_bytes: 256,
                ..Shape::default()
            },
            ..FoldBase::default()
        };
        let tree = fold(&mut nodes, base, &folded).unwrap().tree;
        let mut journal = JournalChanges::default();
        if !behind.is_empty() {
            journal.lay(part(false, behind));
        }
        Self { nodes, tree, journal }
    }

    fn compared(&mut self, tables: &Tables, moving: &Moving) -> Vec<AuditFinding> {
        let mut tables = tables.clone();
        let reader = Transaction {
            tables: &mut tables,
            changed: 0,
        };
        let mut found = Vec::new();
        let mut find = |finding| found.push(finding);
        let mut audit = BucketAudit::new(&reader, moving, &self.journal, &mut find);
        let contents: TreeContents = read_tree(&mut self.nodes, &self.tree, &mut |part| audit.take(&part)).unwrap();
        assert!(audit.finish(Some(&contents)).unwrap() > 0);
        found
    }
}

fn still() -> Moving {
    Moving::of_volumes([volume()])
}

#[test]
fn what_the_bucket_has_is_what_local_metadata_has() {
    for in_tree in 0..=items().len() {
        let mut bucket = Bucket::of(items(), in_tree);
        assert_eq!(bucket.compared(&tables(), &still()), [], "{in_tree} items in the tree");
    }
}

/// Each change to what the bucket has, and what it differs from.
fn changes() -> Vec<(Item, AuditFinding)> {
    let mut other = volume();
    other.blocks += 1;
    let hole = |volume, first, count| {
        Item::Run(Extent {
            target: Target::Hole,
            ..run(volume, first, count, 0)
        })
    };
    let map = |local: Extent, bucket| AuditFinding::Map { local, bucket };
    let record = |table, key: &[u8], listed| AuditFinding::Record {
        table,
        key: key.to_vec(),
        listed,
    };
    vec![
        (
            Item::Run(run(VOLUME, 7, 2, 555)),
            map(run(VOLUME, 7, 2, 1007), Target::At(Pvbn(555))),
        ),
        (hole(VOLUME, 5003, 1), map(run(VOLUME, 5003, 1, 1003), Target::Hole)),
        (hole(FILE, 22, 1), map(run(FILE, 22, 1, 1119), Target::Hole)),
        (
            Item::Run(run(OTHER_FILE, 1, 3, 1000)),
            map(
                Extent {
                    target: Target::Hole,
                    ..run(OTHER_FILE, 1, 3, 0)
                },
                Target::At(Pvbn(1000)),
            ),
        ),
        (
            Item::Object(object([700])),
            AuditFinding::Object {
                first: Pvbn(700),
                listed: Listed::InBucket,
            },
        ),
        (
            Item::Object(object([9000, 9001])),
            AuditFinding::Object {
                first: Pvbn(9000),
                listed: Listed::Differently,
            },
        ),
        (
            Item::Entry(b"Itwo".to_vec(), b"inode".to_vec()),
            record(Table::Entries, b"Itwo", Listed::InBucket),
        ),
        (
            Item::NoEntry(b"Ione".to_vec()),
            record(Table::Entries, b"Ione", Listed::Locally),
        ),
        (
            Item::Entry(b"Ione".to_vec(), b"other".to_vec()),
            record(Table::Entries, b"Ione", Listed::Differently),
        ),
        (
            Item::Counter(b"Ub".to_vec(), 8),
            record(Table::Counters, b"Ub", Listed::Differently),
        ),
        (
            Item::Counter(b"Ub".to_vec(), 0),
            record(Table::Counters, b"Ub", Listed::Locally),
        ),
        (
            Item::Volume(other),
            AuditFinding::Volume {
                volume: VOLUME,
                listed: Listed::Differently,
            },
        ),
    ]
}

#[test]
fn each_difference_is_found_whether_tree_or_journal_has_it() {
    for (change, expected) in changes() {
        let mut items = items();
        items.push(change);
        for in_tree in [items.len(), items.len() - 1, 0] {
            let found = Bucket::of(items.clone(), in_tree).compared(&tables(), &still());
            assert_eq!(found, std::slice::from_ref(&expected), "{in_tree} items in the tree");
        }
    }
}

#[test]
fn what_is_on_its_way_is_no_difference() {
    for (change, _) in changes() {
        let mut moving = still();
        moving.take(&change);
        let mut items = items();
        items.push(change);
        for in_tree in [items.len(), items.len() - 1, 0] {
            let found = Bucket::of(items.clone(), in_tree).compared(&tables(), &moving);
            assert_eq!(found, [], "{in_tree} items in the tree");
        }
    }
}

#[test]
fn a_volume_that_the_journal_deletes_is_missed_here_only_if_it_is_still_there() {
    let mut items = items();
    items.push(Item::NoVolume(VOLUME));
    let found = Bucket::of(items.clone(), items.len() - 1).compared(&tables(), &still());
    let gone = AuditFinding::Volume {
        volume: VOLUME,
        listed: Listed::Locally,
    };
    assert!(found.contains(&gone), "{found:?}");
    let mapped = |finding: &AuditFinding| match finding {
        AuditFinding::Map {
            local,
            bucket: Target::Hole,
        } => local.count,
        _ => 0,
    };
    assert_eq!(found.iter().map(mapped).sum::<u64>(), 314);
}
