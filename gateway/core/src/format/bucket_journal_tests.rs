use super::*;
use crate::format::record::Lsn;
use crate::state::entry_overlay::Entries;
use crate::state::extent_map::ExtentMap;
use alloc::{collections::BTreeMap, sync::Arc};
use proptest::prelude::*;
use tombolo_base::{BlockEncoding, Fingerprint, FlushMode};

fn point(entry_bytes: usize, entries: u32) -> RecoveryPoint {
    let volume = VolumeId(3);
    let extent = |first, count, target| Extent {
        volume,
        first,
        count,
        target,
    };
    let mut map = ExtentMap::default();
    map.insert(extent(0, 5, Target::At(Pvbn(70))));
    map.insert(extent(9, 1, Target::Hole));
    let mut changed = Entries::default();
    for number in 0..entries {
        changed.set(&number.to_be_bytes(), Some(vec![number as u8; entry_bytes].into()));
    }
    changed.set(b"gone", None);
    changed.set_counter(b"count", -7);
    let stored = (Pvbn(70), Fingerprint::of(b"x"), 4096, BlockEncoding::Plain);
    let object = ObjectDescriptor::unnamed([stored]);
    RecoveryPoint {
        lsn: Lsn(11),
        time: WallTime(12),
        next_pvbn: Pvbn(80),
        next_volume: 6,
        totals: Totals::default(),
        is_whole: true,
        map,
        entries: changed,
        volumes: BTreeMap::from([
            (
                volume,
                Some(Volume {
                    id: volume,
                    name: "disk".into(),
                    blocks: 10,
                    flush: FlushMode::Bucket,
                }),
            ),
            (VolumeId(5), None),
        ]),
        objects: BTreeMap::from([(70, Arc::new(object))]),
    }
}

fn parts_of(point: &RecoveryPoint) -> Vec<Vec<u8>> {
    let mut parts = Parts::new(point);
    let mut found: Vec<Vec<u8>> = Vec::new();
    while let Some(part) = parts.next(1 + found.len() as u64, 4, Salt([found.len() as u8; 32])) {
        found.push(part);
    }
    found
}

#[test]
fn a_point_comes_back_item_by_item() {
    let point = point(3, 2);
    let parts = parts_of(&point);
    assert_eq!(parts.len(), 1);
    let part = Part::decode(&parts[0]).unwrap();
    let header = part.header;
    assert_eq!(
        (header.sequence, header.epoch, header.is_whole, header.is_last),
        (1, 4, true, true)
    );
    assert_eq!(
        (header.time, header.next_pvbn, header.next_volume),
        (WallTime(12), 80, 6)
    );
    let kinds: Vec<u8> = part.items.iter().map(kind_of).collect();
    assert_eq!(kinds, [1, 2, 5, 3, 4, 6, 6, 7, 8]);
    assert!(part.items.contains(&Item::Counter(b"count".to_vec(), -7)));
}

fn kind_of(item: &Item) -> u8 {
    let mut out = Writer::default();
    encode_item(item, &mut out);
    out.0[0]
}

#[test]
fn a_large_point_is_cut_into_parts_of_which_one_is_the_last() {
    let point = point(60_000, 200);
    let parts = parts_of(&point);
    assert_eq!(parts.len(), 3);
    assert!(parts.iter().all(|part| part.len() <= PART_BYTES_MAX));
    let parts: Vec<Part> = parts.iter().map(|part| Part::decode(part).unwrap()).collect();
    let heads: Vec<_> = parts
        .iter()
        .map(|part| (part.header.sequence, part.header.is_last))
        .collect();
    assert_eq!(heads, [(1, false), (2, false), (3, true)]);
    let entries = parts.iter().flat_map(|part| &part.items);
    assert_eq!(entries.filter(|item| matches!(item, Item::Entry(..))).count(), 200);
}

proptest! {
    #[test]
    fn what_is_accepted_is_what_would_be_written(
        tail in prop::collection::vec(any::<u8>(), 0..300),
        position in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = parts_of(&point(3, 2)).remove(0);
        bytes.extend_from_slice(&tail);
        let index = position.index(bytes.len());
        bytes[index] ^= byte;
        if let Ok(part) = Part::decode(&bytes) {
            let mut again = Writer(part.header.encode());
            part.items.iter().for_each(|item| encode_item(item, &mut again));
            prop_assert_eq!(again.0, bytes);
        }
        let _ = Part::decode(&tail);
    }
}
