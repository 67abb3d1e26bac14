use super::*;
use crate::format::record::Lsn;
use crate::format::superblock::Superblock;
use crate::state::entry_overlay::Entries;
use crate::state::extent_map::{Extent, ExtentMap};
use crate::test_bench::{Tables, Transaction};
use proptest::prelude::*;

/// Merges in at most so many transactions, and returns the changes of each.
fn merge(tables: &mut Tables, frozen: &Arc<Frozen>, pages_max: usize, transactions_max: usize) -> Vec<usize> {
    let mut merge = Merge::new(frozen.clone(), pages_max);
    let mut changes = Vec::new();
    while changes.len() < transactions_max {
        let mut transaction = Transaction { tables, changed: 0 };
        let is_last = merge.step(&mut transaction).unwrap();
        changes.push(transaction.changed);
        if is_last {
            break;
        }
    }
    changes
}

fn frozen(extents: impl IntoIterator<Item = (u64, u64, u64, Option<u64>)>, number: u64) -> Arc<Frozen> {
    let mut map = ExtentMap::default();
    for (volume, first, count, pvbn) in extents {
        let target = pvbn.map_or(Target::Hole, |pvbn| Target::At(Pvbn(pvbn)));
        let volume = VolumeId(volume);
        map.insert(Extent {
            volume,
            first,
            count,
            target,
        });
    }
    let superblock = Superblock {
        next_pvbn: number,
        ..Superblock::default()
    };
    Arc::new(Frozen {
        superblock,
        map,
        slot_pages: vec![(number as u32, vec![0; 64])],
        ..Frozen::default()
    })
}

/// The counts equal the number of blocks that map to each PVBN.
fn assert_references_equal_map(tables: &Tables) {
    let mut mapped: BTreeMap<u64, u64> = BTreeMap::new();
    let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
    for ((table, key), bytes) in tables {
        for entry in 0..PAGE_ENTRIES as u16 {
            match table {
                Table::Map => {
                    if let (Some(pvbn), _) = MapPage::decode(bytes).unwrap().get(entry) {
                        *mapped.entry(pvbn.0).or_default() += 1;
                    }
                }
                Table::References => {
                    if let (Some(count), _) = CountPage::decode(bytes).unwrap().get(entry) {
                        let page = u64::from_be_bytes(key.as_slice().try_into().unwrap());
                        counted.insert(page * PAGE_ENTRIES + u64::from(entry), count.0);
                    }
                }
                _ => {}
            }
        }
    }
    assert_eq!(mapped, counted);
}

#[test]
fn the_deletion_of_a_vast_volume_takes_many_small_transactions() {
    let pages = 20_000;
    let mut tables = Tables::new();
    merge(
        &mut tables,
        &frozen([(1, 0, pages * PAGE_ENTRIES, Some(1_000))], 1),
        100,
        usize::MAX,
    );
    assert!(tables.len() as u64 > 2 * pages);
    let changes = merge(
        &mut tables,
        &frozen([(1, 0, pages * PAGE_ENTRIES, None)], 2),
        100,
        usize::MAX,
    );
    assert!(changes.len() > 300, "{} transactions", changes.len());
    assert!(changes.iter().all(|changed| *changed <= 102), "{changes:?}");
    assert!(
        tables
            .keys()
            .all(|(table, _)| !matches!(table, Table::Map | Table::References))
    );
}

#[test]
fn a_page_that_refers_to_many_others_passes_the_bound_by_those_alone() {
    let scattered = |step: u64| (0..2_000).map(move |block| (1, block, 1, Some((block * 7_919 * step) % 1_000_003)));
    let mut tables = Tables::new();
    for (number, step) in [(1, 1), (2, 3)] {
        let changes = merge(&mut tables, &frozen(scattered(step), number), 100, usize::MAX);
        let bound = 100 + 2 * PAGE_ENTRIES as usize + 1;
        assert!(changes.iter().all(|changed| *changed <= bound), "{changes:?}");
        assert_references_equal_map(&tables);
    }
}

#[test]
fn slots_and_superblock_come_last_and_together() {
    let mut tables = Tables::new();
    let extents = (0..40).map(|page| (1, page * PAGE_ENTRIES, 3, Some(page * 1_000)));
    let frozen = frozen(extents, 1);
    let cut = merge(&mut tables, &frozen, 4, 3);
    assert_eq!(cut.len(), 3);
    let of_last = |tables: &Tables| {
        let keys = tables
            .keys()
            .filter(|(table, _)| matches!(table, Table::Super | Table::Slots));
        keys.count()
    };
    assert_eq!(of_last(&tables), 0);
    merge(&mut tables, &frozen, 4, usize::MAX);
    assert_eq!(of_last(&tables), 2);
}

/// Until the last it says up to where the journal is needed, be it begun anew or not.
#[test]
fn the_first_of_several_transactions_notes_where_the_merge_leads() {
    let superblock = |tables: &Tables| Superblock::decode(&tables[&(Table::Super, Vec::new())]).unwrap();
    let before = Superblock {
        lsn: Lsn(10),
        ..Superblock::first(1, 2)
    };
    let mut tables = Tables::from([((Table::Super, Vec::new()), before.encode())]);
    let extents = (0..40).map(|page| (1, page * PAGE_ENTRIES, 3, Some(page * 1_000)));
    let mut changes = Frozen::clone(&frozen(extents, 1));
    changes.superblock.lsn = Lsn(500);
    let changes = Arc::new(changes);
    for transactions in [1, 3] {
        merge(&mut tables, &changes, 4, transactions);
        let noted = Superblock {
            merging_to: Some(Lsn(500)),
            ..before.clone()
        };
        assert_eq!(superblock(&tables), noted);
    }
    merge(&mut tables, &changes, 4, usize::MAX);
    assert_eq!(superblock(&tables), changes.superblock);
}

/// Each transaction is a sync of local metadata.
#[test]
fn what_fits_into_one_transaction_takes_one() {
    let mut entries = Entries::default();
    (0..2).for_each(|number| entries.set(&[number], Some([number].into())));
    let frozen = Arc::new(Frozen {
        entries,
        slot_pages: vec![(0, vec![0; 64])],
        ..Frozen::default()
    });
    assert_eq!(
        merge(&mut Tables::new(), &frozen, 3, usize::MAX),
        [4],
        "with the superblock"
    );
    assert_eq!(merge(&mut Tables::new(), &frozen, 2, usize::MAX), [2, 2]);
}

#[test]
fn entries_are_put_and_deleted_a_few_at_a_time() {
    let key = |number: u8| vec![number; 3];
    let mut entries = Entries::default();
    (0..10).for_each(|number| entries.set(&key(number), Some([number; 2].into())));
    let first = Arc::new(Frozen {
        entries: entries.clone(),
        ..Frozen::default()
    });
    let mut tables = Tables::new();
    let changes = merge(&mut tables, &first, 3, usize::MAX);
    // The last one has the superblock too.
    assert_eq!(changes, [3, 3, 3, 2]);
    let found = |tables: &Tables, number| tables.get(&(Table::Entries, key(number))).cloned();
    assert!((0..10).all(|number| found(&tables, number) == Some(vec![number; 2])));
    let mut entries = Entries::default();
    entries.set(&key(4), None);
    entries.set(&key(5), Some(vec![9; 3 * PAGE_BYTES].into()));
    entries.set(&key(6), None);
    let second = Arc::new(Frozen {
        entries,
        ..Frozen::default()
    });
    let changes = merge(&mut tables, &second, 4, usize::MAX);
    // The first notes in the superblock that there are more.
    assert_eq!(changes, [3, 2], "a large value counts as the pages that it takes");
    assert_eq!([4, 6].map(|number| found(&tables, number)), [None, None]);
    assert_eq!(found(&tables, 5).map(|value| value.len()), Some(3 * PAGE_BYTES));
}

fn extents() -> impl Strategy<Value = Vec<(u64, u64, u64, Option<u64>)>> {
    let extent = (1u64..3, 0u64..3_000, 1u64..700, prop::option::of(0u64..5_000));
    prop::collection::vec(extent, 0..30)
}

proptest! {
    #[test]
    fn a_merge_that_is_cut_short_anywhere_and_begun_anew_ends_like_one_in_one_piece(
        first in extents(), second in extents(), cuts in prop::collection::vec(0usize..8, 0..4), pages_max in 1usize..12,
    ) {
        let (first, second) = (frozen(first, 1), frozen(second, 2));
        let (mut whole, mut parts) = (Tables::new(), Tables::new());
        merge(&mut whole, &first, usize::MAX, 1);
        merge(&mut whole, &second, usize::MAX, 1);
        merge(&mut parts, &first, pages_max, usize::MAX);
        for cut in cuts {
            merge(&mut parts, &second, pages_max, cut);
            assert_references_equal_map(&parts);
        }
        merge(&mut parts, &second, pages_max, usize::MAX);
        prop_assert_eq!(whole, parts);
    }
}
