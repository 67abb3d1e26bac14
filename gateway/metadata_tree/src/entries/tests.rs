use super::*;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

fn entry(key: &[u8], value: Option<&[u8]>) -> Entry {
    Entry {
        key: key.to_vec(),
        value: value.map(<[u8]>::to_vec),
    }
}

fn encoded(entries: &[Entry]) -> Vec<u8> {
    let (mut out, mut before) = (Writer::default(), None);
    for entry in entries {
        Entries::put_record(&mut out, &mut before, entry);
    }
    out.0
}

fn decoded(bytes: &[u8]) -> Result<Vec<Entry>, DecodeError> {
    let (mut reader, mut before) = (Reader::new(bytes), None);
    let mut entries = Vec::new();
    while reader.remaining() > 0 {
        entries.push(Entries::get_record(&mut reader, &mut before)?);
    }
    Ok(entries)
}

#[test]
fn bytes_are_pinned() {
    let entries = [
        entry(b"", Some(b"")),
        entry(b"abc", Some(b"xy")),
        entry(b"abd", None),
        entry(b"abde", Some(b"z")),
    ];
    let expected = b"\x00\x00\x01\x00\x03abc\x03xy\x02\x01d\x00\x03\x01e\x02z";
    assert_eq!(encoded(&entries), expected);
    assert_eq!(decoded(expected), Ok(entries.to_vec()));
}

#[test]
fn impossible_entries_are_refused() {
    let longest = entry(&[7; ENTRY_KEY_BYTES_MAX], None);
    assert!(decoded(&encoded(&[longest])).is_ok());
    for (what, bytes) in [
        (
            "a key that is too long",
            encoded(&[entry(&[7; ENTRY_KEY_BYTES_MAX + 1], None)]),
        ),
        ("more shared than there is", b"\x00\x01a\x00\x02\x01b\x00".to_vec()),
        ("less shared than there is", b"\x00\x02ab\x00\x00\x02ac\x00".to_vec()),
        ("a key below the one before", b"\x00\x02ab\x00\x01\x01a\x00".to_vec()),
        ("the key before", b"\x00\x02ab\x00\x02\x00\x00".to_vec()),
        ("its beginning", b"\x00\x02ab\x00\x01\x00\x00".to_vec()),
        ("a value that is cut", b"\x00\x01a\x03x".to_vec()),
        (
            "a value of 2^64 - 1 bytes",
            [&b"\x00\x01a"[..], &[0xff; 9], &[1]].concat(),
        ),
    ] {
        assert!(decoded(&bytes).is_err(), "{what}");
    }
}

#[test]
fn keys_out_of_order_are_found() {
    let [first, second] = [entry(b"a", None), entry(b"b", None)];
    assert_eq!(Entries::check(&[first.clone(), second.clone()]), Ok(()));
    assert!(Entries::check(&[second, first.clone()]).is_err());
    assert!(Entries::check(&[first.clone(), first]).is_err());
    assert!(Entries::check(&[entry(&[7; ENTRY_KEY_BYTES_MAX + 1], None)]).is_err());
}

type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn entries_of(model: Model) -> Vec<Entry> {
    model.into_iter().map(|(key, value)| Entry { key, value }).collect()
}

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0u8..3, 0..5)
}

fn any_model() -> impl Strategy<Value = Model> {
    let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..4));
    prop::collection::btree_map(any_key(), value, 0..30)
}

proptest! {
    #[test]
    fn entries_come_back(model in any_model()) {
        let entries = entries_of(model);
        prop_assert_eq!(Entries::check(&entries), Ok(()));
        prop_assert_eq!(decoded(&encoded(&entries)), Ok(entries));
    }

    #[test]
    fn the_newer_of_two_counts(older in any_model(), newer in any_model(), low in any_key(), high in any_key()) {
        let merged = Entries::lay_over(entries_of(older.clone()), entries_of(newer.clone()));
        let mut model = older;
        model.extend(newer);
        prop_assert_eq!(&merged, &entries_of(model.clone()));
        for (key, value) in &model {
            prop_assert_eq!(Entries::find(&merged, key).map(|entry| &entry.value), Some(value));
        }
        let part = Entries::cut(&merged, &low, Some(&high));
        model.retain(|key, _| (&low..&high).contains(&key));
        prop_assert_eq!(&part, &entries_of(model));
        prop_assert!(low > high || Entries::is_within(&part, &low, Some(&high)));
    }
}
