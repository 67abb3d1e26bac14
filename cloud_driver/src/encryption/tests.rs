use super::*;
use crate::object::{Compression, encode_object};
use proptest::prelude::*;
use tombolo_base::{BLOCK_BYTES, Fingerprint, ObjectDescriptor, Pvbn};

/// What a pair of key and nonce has encrypted so far. The key follows from head and name.
type Encrypted = BTreeMap<([u8; OBJECT_HEAD_BYTES], String, u32), Vec<u8>>;

/// An upload: PVBNs that may have been used before (by a life that a crash undid, or by a copy of the state directory),
/// with whatever contents and settings.
type Upload = (Vec<(u8, u8)>, i32, u8);

fn any_upload() -> impl Strategy<Value = Upload> {
    (prop::collection::vec((0u8..4, 0u8..4), 1..4), 0i32..4, 0u8..2)
}

fn upload((places, level, key): &Upload) -> (ObjectDescriptor, Vec<u8>, KeyRing) {
    let ring = KeyRing::new([SecretKey::new([*key; SECRET_BYTES])]);
    let contents: BTreeMap<u8, Vec<u8>> = places
        .iter()
        .map(|(pvbn, content)| (*pvbn, [*content, 7].repeat(BLOCK_BYTES / 2)))
        .collect();
    let blocks: Vec<_> = contents
        .iter()
        .map(|(pvbn, block)| (Pvbn((*pvbn).into()), Fingerprint::of(block), &block[..]))
        .collect();
    let compression = match level {
        0 => Compression::Off,
        level => Compression::Zstd { level: *level },
    };
    let (descriptor, object) = encode_object(&blocks, compression, &ring);
    (descriptor, object, ring)
}

/// Every message of the object as it was before encryption, by what its key and nonce are made from.
fn open_all(descriptor: &ObjectDescriptor, object: &[u8], ring: &KeyRing, encrypted: &mut Encrypted) {
    let head = Head::decode(object, ObjectKind::Pack).unwrap();
    let name = descriptor.id().key();
    let messages = MessageKey::new(&head, &name, ring).unwrap();
    let first = OBJECT_HEAD_BYTES..descriptor.blocks()[0].offset_bytes as usize;
    let blocks = descriptor.blocks().iter().map(|block| descriptor.extent(block));
    for (number, extent) in (0..).zip(std::iter::once(first).chain(blocks)) {
        let mut message = object[extent].to_vec();
        let text = messages.decrypt(number, &mut message).unwrap().to_vec();
        let before = encrypted.insert((head.encode(), name.clone(), number), text.clone());
        assert!(
            before.is_none_or(|before| before == text),
            "one key and nonce, two texts"
        );
    }
}

proptest! {
    /// Whatever is uploaded in whatever order, retried or packed anew with other settings by whoever has the key.
    #[test]
    fn no_nonce_is_used_twice(uploads in prop::collection::vec(any_upload(), 1..12)) {
        let mut encrypted = Encrypted::new();
        for parameters in &uploads {
            let (descriptor, object, ring) = upload(parameters);
            open_all(&descriptor, &object, &ring, &mut encrypted);
        }
    }

    #[test]
    fn equal_uploads_are_equal_objects(parameters in any_upload(), other in any_upload()) {
        let (one, two, three) = (upload(&parameters), upload(&parameters), upload(&other));
        prop_assert_eq!(&one.1, &two.1);
        prop_assert_eq!(one.0.id() == three.0.id(), one.1 == three.1, "a name for each content");
    }
}

/// The property above must be able to fail: names that leave out the frames let two versions of zstd meet.
#[test]
#[should_panic(expected = "one key and nonce, two texts")]
fn a_nonce_that_is_used_twice_is_noticed() {
    let ring = KeyRing::new([SecretKey::new([1; SECRET_BYTES])]);
    let head = Head {
        kind: ObjectKind::Pack,
        key: ring.current().unwrap().id(),
        messages: 2,
        salt: [0; SALT_BYTES],
    };
    let mut encrypted = Encrypted::new();
    for content in [1, 2] {
        let fingerprint = Fingerprint::of(&[content]);
        let stored = [(Pvbn(1), fingerprint, 4, tombolo_base::BlockEncoding::Zstd)];
        let id = tombolo_base::ObjectId(head.salt);
        let descriptor = ObjectDescriptor::new(id, head.key, stored);
        let messages = MessageKey::new(&head, &id.key(), &ring).unwrap();
        let mut object = head.encode().to_vec();
        object.extend_from_slice(&descriptor.encode());
        messages.encrypt(0, &mut object, OBJECT_HEAD_BYTES);
        let start = object.len();
        object.extend_from_slice(&[content; 4]);
        messages.encrypt(1, &mut object, start);
        open_all(&descriptor, &object, &ring, &mut encrypted);
    }
}

#[test]
fn a_secret_is_not_shown() {
    let key = SecretKey::new([0xab; SECRET_BYTES]);
    let shown = format!("{key:?} {:?}", KeyRing::new([key.clone()]));
    assert!(!shown.contains("171") && !shown.contains("abab"), "{shown}");
}

#[test]
fn keys_are_told_apart_by_their_ids() {
    let (one, two) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
    assert_ne!(one.id(), two.id());
    assert_eq!(SecretKey::new(*one.secret()).id(), one.id());
    let ring = KeyRing::new([one.clone(), two.clone()]);
    assert_eq!(ring.current().map(SecretKey::id), Some(two.id()));
    assert_eq!(ring.get(one.id()).map(SecretKey::id), Some(one.id()));
    assert!(ring.reading_only().current().is_none());
}

proptest! {
    #[test]
    fn any_head_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        for kind in [ObjectKind::Pack, ObjectKind::Keys] {
            if let Ok(head) = Head::decode(&bytes, kind) {
                assert_eq!(head.encode(), bytes[..OBJECT_HEAD_BYTES]);
            }
        }
    }
}
