//! Whatever the slots hold: after a resize each block that is needed is where local metadata says.

use super::*;
use crate::format::superblock::Superblock;
use crate::test_bench::{Tables, Transaction};
use alloc::collections::BTreeMap;
use proptest::prelude::*;
use tombolo_base::{BlockSum, Pvbn, VolumeId};

fn entry(slot: u32, kind: u8) -> SlotEntry {
    let (pvbn, sum) = (Pvbn(1000 + u64::from(slot)), BlockSum(u64::from(slot)));
    let (volume, block) = (VolumeId(1), u64::from(slot));
    match kind {
        0 => SlotEntry::Free,
        1 => SlotEntry::Clean { pvbn, sum },
        2 => SlotEntry::Dirty {
            pvbn,
            sum,
            volume,
            block,
        },
        _ => SlotEntry::Corrupt {
            pvbn,
            sum,
            volume,
            block,
        },
    }
}

fn metadata(kinds: &[u8], page_is_absent: impl Fn(usize) -> bool) -> Tables {
    let superblock = Superblock::first(7, kinds.len() as u32);
    let mut tables = Tables::from([((Table::Super, Vec::new()), superblock.encode())]);
    for (page, kinds) in kinds.chunks(SLOTS_PER_PAGE as usize).enumerate() {
        if page_is_absent(page) && kinds.iter().all(|kind| *kind == 0) {
            continue;
        }
        let first = page as u32 * SLOTS_PER_PAGE;
        let entries = (first..).zip(kinds).map(|(slot, kind)| entry(slot, *kind));
        let key = (page as u32).to_be_bytes().to_vec();
        tables.insert((Table::Slots, key), encode_slot_page(entries));
    }
    tables
}

/// What the tables say of each slot that holds something.
fn slots(tables: &Tables) -> BTreeMap<u32, SlotEntry> {
    let mut slots = BTreeMap::new();
    for ((table, key), value) in tables {
        if *table == Table::Slots {
            let page = number_of::<()>(key).unwrap();
            let entries = decode_slot_page(value).unwrap();
            let found = (page * SLOTS_PER_PAGE..).zip(entries);
            slots.extend(found.filter(|(_, entry)| *entry != SlotEntry::Free));
        }
    }
    slots
}

fn pvbn_of(entry: &SlotEntry) -> u64 {
    match entry {
        SlotEntry::Free => 0,
        SlotEntry::Clean { pvbn, .. } | SlotEntry::Dirty { pvbn, .. } | SlotEntry::Corrupt { pvbn, .. } => pvbn.0,
    }
}

fn is_needed(entry: &SlotEntry) -> bool {
    matches!(entry, SlotEntry::Dirty { .. } | SlotEntry::Corrupt { .. })
}

proptest! {
    #[test]
    fn what_is_needed_keeps_its_contents(
        kinds in prop::collection::vec(prop_oneof![3 => Just(0u8), 2 => Just(1), 2 => Just(2), 1 => Just(3)], 1..400),
        slot_count in 1u32..500,
        absent in any::<bool>(),
    ) {
        let mut tables = metadata(&kinds, |_| absent);
        let before = slots(&tables);
        let needed = before.values().filter(|entry| is_needed(entry)).count() as u64;
        // What each slot of the file holds: the block that it held at first.
        let mut file: BTreeMap<u32, u64> = before.iter().map(|(slot, entry)| (*slot, pvbn_of(entry))).collect();
        let mut transaction = Transaction { tables: &mut tables, changed: 0 };
        match resize(&mut transaction, slot_count) {
            Ok(resize) => {
                prop_assert_eq!(resize.slots_before as usize, kinds.len());
                for SlotMove { from, to } in &resize.moves {
                    let old = before.get(&to.0);
                    prop_assert!(!old.is_some_and(is_needed), "it overwrites what is needed");
                    prop_assert!(to.0 < slot_count && from.0 >= slot_count);
                    let contents = file[&from.0];
                    file.insert(to.0, contents);
                }
                let after = slots(&tables);
                prop_assert_eq!(after.values().filter(|entry| is_needed(entry)).count() as u64, needed);
                for (slot, entry) in &after {
                    prop_assert!(*slot < slot_count);
                    prop_assert_eq!(file[slot], pvbn_of(entry), "slot {}", slot);
                }
                let gone = before.len() - after.len();
                prop_assert_eq!(resize.clean_dropped, gone as u64);
                let superblock = load_superblock(&Transaction { tables: &mut tables, changed: 0 }).unwrap().unwrap();
                prop_assert_eq!(superblock, Superblock::first(7, slot_count));
            }
            Err(ResizeError::TooSmall { blocks, .. }) => {
                prop_assert_eq!(blocks, needed);
                prop_assert!(needed > u64::from(slot_count));
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}
