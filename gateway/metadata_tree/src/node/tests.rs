use super::*;
use crate::entries::{Entries, Entry};
use crate::runs::{MapKey, Run, Runs, Target};
use alloc::vec;
use proptest::prelude::*;
use tombolo_base::{Pvbn, TAG_BYTES};

const TAG: [u8; TAG_BYTES] = [9; TAG_BYTES];

fn pointer(object: u64, message: u32) -> Pointer {
    Pointer {
        object,
        message,
        offset: 56,
        bytes: 40,
        birth: 1,
        tag: TAG,
    }
}

fn run(file: u64, block: u64, pvbn: Option<u64>) -> Run {
    Run {
        start: MapKey { file, block },
        length: 1,
        target: pvbn.map(|pvbn| Target {
            pvbn: Pvbn(pvbn),
            birth: None,
        }),
    }
}

fn segments_of(pointers: Vec<Pointer>) -> Segments {
    let hidden_bytes = 150 * pointers.len() as u32;
    Segments { pointers, hidden_bytes }
}

fn child(file: u64, block: u64, object: u64, segments: u32) -> Child<MapKey> {
    Child {
        first: MapKey { file, block },
        node: pointer(object, 0),
        segments: segments_of((1..=segments).map(|message| pointer(object, message)).collect()),
    }
}

#[test]
fn nodes_of_records_are_pinned() {
    let leaf = encode_records::<Runs>(RecordNode::Leaf, &[run(1, 2, Some(3))]);
    assert_eq!(leaf, b"TN\x01\x00\x00\x00\x00\x00\x05\x00\x00\x00\x01\x0c\x01\x02\x06");
    let segment = encode_records::<Runs>(RecordNode::Segment, &[run(1, 2, None)]);
    assert_eq!(segment, b"TN\x03\x00\x00\x00\x00\x00\x04\x00\x00\x00\x01\x0d\x01\x02");
    let entry = Entry {
        key: b"k".to_vec(),
        value: Some(b"v".to_vec()),
    };
    let leaf = encode_records::<Entries>(RecordNode::Leaf, core::slice::from_ref(&entry));
    assert_eq!(leaf, b"TN\x04\x00\x00\x00\x00\x00\x06\x00\x00\x00\x01\x00\x01k\x02v");
    let segment = encode_records::<Entries>(RecordNode::Segment, &[Entry { value: None, ..entry }]);
    assert_eq!(segment, b"TN\x06\x00\x00\x00\x00\x00\x05\x00\x00\x00\x01\x00\x01k\x00");
}

#[test]
fn interior_nodes_and_roots_are_pinned() {
    let children = [child(0, 0, 7, 1), child(0, 9, 7, 0), child(2, 4, 6, 0)];
    let node = encode_children::<Runs>(3, &children);
    let expected = [
        &b"TN\x02\x03\x00\x00\x00\x00"[..],
        &[94, 0, 0, 0, 3],
        &[14, 0, 56, 40, 2],
        &TAG,
        &[1, 0x96, 1, 0, 1, 56, 40, 0],
        &TAG,
        &[0, 9, 0, 0, 56, 40, 0],
        &TAG,
        &[0],
        &[2, 4, 1, 0, 56, 40, 0],
        &TAG,
        &[0],
    ]
    .concat();
    assert_eq!(node, expected);
    assert_eq!(
        decode_children::<Runs>(3, &MapKey::default(), &node),
        Ok(children.to_vec())
    );

    let root = Root {
        height: 3,
        node: Some(pointer(7, 0)),
        segments: segments_of(vec![pointer(8, 2)]),
    };
    let mut out = Writer::default();
    root.encode(&mut out);
    let expected = [
        &[3, 1, 14, 0, 56, 40, 2][..],
        &TAG,
        &[1, 0x96, 1, 2, 2, 56, 40, 0],
        &TAG,
    ]
    .concat();
    assert_eq!(out.0, expected);
    let mut out = Writer::default();
    Root::default().encode(&mut out);
    assert_eq!(out.0, [0, 0, 0]);
}

#[test]
fn a_first_child_begins_where_its_node_does() {
    let low = MapKey { file: 0, block: 5 };
    let node = encode_children::<Runs>(1, &[child(9, 9, 7, 0), child(0, 6, 7, 0)]);
    let children = decode_children::<Runs>(1, &low, &node).unwrap();
    assert_eq!(children[0].first, low);
    // The second must begin behind it.
    let beyond = MapKey { file: 0, block: 6 };
    assert!(decode_children::<Runs>(1, &beyond, &node).is_err());
}

#[test]
fn what_no_encoder_writes_is_refused() {
    let leaf = encode_records::<Runs>(RecordNode::Leaf, &[run(1, 2, Some(3))]);
    let decode = |bytes: &[u8]| decode_records::<Runs>(RecordNode::Leaf, bytes);
    assert!(decode(&leaf).is_ok());
    for (at, value) in [
        (0, b'X'),
        (2, 3),
        (2, 4),
        (3, 1),
        (4, 1),
        (5, 1),
        (7, 1),
        (8, 4),
        (8, 6),
        (12, 0),
        (12, 2),
    ] {
        let mut bytes = leaf.clone();
        bytes[at] = value;
        assert!(decode(&bytes).is_err(), "byte {at}");
    }
    for length in 0..leaf.len() {
        assert!(decode(&leaf[..length]).is_err(), "{length} bytes");
    }
    assert!(decode(&[&leaf[..], &[0]].concat()).is_err());
    // A leaf has no deletions.
    let hole = encode_records::<Runs>(RecordNode::Leaf, &[run(1, 2, None)]);
    assert!(decode(&hole).is_err());
    // A count that is far more than there is.
    let mut bytes = begin(Runs::LEAF_KIND, 0);
    varint::put(&mut bytes, u64::MAX);
    assert!(decode(&finish(bytes)).is_err());
}

#[test]
fn children_out_of_order_and_heights_out_of_bounds_are_refused() {
    let low = MapKey::default();
    for children in [
        [child(0, 0, 1, 0), child(0, 0, 1, 0)],
        [child(0, 0, 1, 0), child(1, 0, 1, 0)],
    ] {
        let node = encode_children::<Runs>(1, &children);
        let is_right = children[0].first < children[1].first;
        assert_eq!(decode_children::<Runs>(1, &low, &node).is_ok(), is_right);
        assert!(decode_children::<Runs>(2, &low, &node).is_err());
    }
    let children = [child(0, 0, 1, 0), child(0, 7, 1, 0), child(0, 7, 1, 0)];
    assert!(decode_children::<Runs>(1, &low, &encode_children::<Runs>(1, &children)).is_err());
    for (height, is_right) in [(0, false), (1, true), (HEIGHT_MAX, true), (HEIGHT_MAX + 1, false)] {
        let node = encode_children::<Runs>(height, &[child(0, 0, 1, 0)]);
        assert_eq!(
            decode_children::<Runs>(height, &low, &node).is_ok(),
            is_right,
            "{height}"
        );
    }
}

#[test]
fn impossible_roots_are_refused() {
    let decode = |bytes: &[u8]| Root::decode(&mut Reader::new(bytes));
    assert_eq!(decode(&[0, 0, 0]), Ok(Root::default()));
    for bytes in [&[1, 0, 0][..], &[0, 2, 0], &[0, 1, 0], &[0, 0, 1], &[17, 1, 0]] {
        assert!(decode(bytes).is_err(), "{bytes:?}");
    }
    let too_high = Root {
        height: HEIGHT_MAX + 1,
        node: Some(pointer(1, 1)),
        segments: Segments::default(),
    };
    let mut out = Writer::default();
    too_high.encode(&mut out);
    assert!(decode(&out.0).is_err());
}

/// What is decoded is what is encoded: no two texts mean the same.
fn decoders_are_strict(bytes: &[u8]) -> Result<(), TestCaseError> {
    fn records<C: Codec>(bytes: &[u8]) -> Result<(), TestCaseError> {
        for node in [RecordNode::Leaf, RecordNode::Segment] {
            if let Ok(records) = decode_records::<C>(node, bytes) {
                prop_assert_eq!(C::check(&records), Ok(()));
                prop_assert_eq!(encode_records::<C>(node, &records), bytes);
            }
        }
        for height in 0..=HEIGHT_MAX + 1 {
            if let Ok(children) = decode_children::<C>(height, &C::lowest_key(), bytes) {
                prop_assert_eq!(encode_children::<C>(height, &children), bytes);
            }
        }
        Ok(())
    }
    records::<Runs>(bytes)?;
    records::<Entries>(bytes)?;
    let mut reader = Reader::new(bytes);
    if let Ok(root) = Root::decode(&mut reader) {
        let mut out = Writer::default();
        root.encode(&mut out);
        prop_assert_eq!(out.0, &bytes[..reader.offset()]);
    }
    Ok(())
}

/// Real nodes and a root, to be damaged.
fn samples() -> Vec<Vec<u8>> {
    let runs = [run(0, 3, Some(5)), run(0, 4, None), run(2, 1, Some(1 << 40))];
    let entry = |key: &[u8], value: Option<&[u8]>| Entry {
        key: key.to_vec(),
        value: value.map(<[u8]>::to_vec),
    };
    let entries = [
        entry(b"", Some(b"")),
        entry(b"ab", Some(b"x")),
        entry(b"abc", None),
        entry(b"b", None),
    ];
    let children = [child(0, 0, 7, 1), child(0, 9, 7, 0), child(2, 4, 6, 2)];
    let key_children = entries.clone().map(|entry| Child {
        first: entry.key,
        node: pointer(1 << 40, 3),
        segments: segments_of(vec![pointer(2, 1)]),
    });
    let mut root = Writer::default();
    Root {
        height: 2,
        node: Some(pointer(7, 0)),
        segments: segments_of(vec![pointer(8, 2)]),
    }
    .encode(&mut root);
    vec![
        encode_records::<Runs>(RecordNode::Segment, &runs),
        encode_records::<Runs>(RecordNode::Leaf, &runs[..1]),
        encode_records::<Entries>(RecordNode::Segment, &entries),
        encode_records::<Entries>(RecordNode::Leaf, &entries[..2]),
        encode_children::<Runs>(1, &children),
        encode_children::<Entries>(2, &key_children),
        root.0,
    ]
}

#[test]
fn each_flipped_bit_is_an_error_or_another_node() {
    for sample in samples() {
        for bit in 0..sample.len() * 8 {
            let mut bytes = sample.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            decoders_are_strict(&bytes).unwrap();
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        decoders_are_strict(&bytes)?;
    }

    #[test]
    fn arbitrary_contents_never_panic(
        kind in 0u8..8,
        height in 0u8..3,
        contents in prop::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..80),
    ) {
        let mut out = begin(kind, height);
        out.bytes(&contents);
        decoders_are_strict(&finish(out))?;
    }

    #[test]
    fn damaged_nodes_never_panic(
        sample in 0usize..7,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = samples().swap_remove(sample);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        decoders_are_strict(&bytes)?;
    }
}
