//! Objects that hold metadata: the root, and the parts of the journal. One message behind a head:
//!
//! ```text
//!  0  encoding                    u8    0 plain, 1 one zstd frame
//!  1  length                      u32   of the contents, before compression
//!  5  the contents
//! ```
//!
//! The head's salt tells the object from all others of its kind, also where nothing is encrypted: it is verified in either
//! case. A part of the journal is called after it, so two gateways never put different parts under one name, and a put that
//! comes late changes nothing. The root has always the same name.
//!
//! It owns that form and the names. It does not own what the contents mean: that is the core's.

use crate::encryption::{Digest, Head, KeyRing, MessageKey, NotAuthentic, ObjectKind, SecretKey};
use tombolo_base::{DecodeError, KeyId, OBJECT_HEAD_BYTES, Reader, Writer};

/// What the keys of roots that are kept begin with.
pub const KEPT_ROOTS_PREFIX: &str = "roots/";
/// What the keys of journal objects begin with.
pub const JOURNAL_PREFIX: &str = "journal/";
const LEVEL: i32 = 1;
const TEXT_HEAD_BYTES: usize = 5;
const PLAIN: u8 = 0;
const ZSTD: u8 = 1;

/// Which object of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataKind {
    /// What the bucket holds, and whose it is.
    Root,
    /// The same as it was, by the root's sequence.
    KeptRoot(u64),
    /// A part of the journal, by its sequence.
    Journal(u64),
}

impl MetadataKind {
    fn object_kind(self) -> ObjectKind {
        match self {
            Self::Root | Self::KeptRoot(_) => ObjectKind::Root,
            Self::Journal(_) => ObjectKind::Journal,
        }
    }

    /// Its key in the bucket, below the store's prefix.
    pub fn name(self, salt: &[u8; 32]) -> String {
        match self {
            Self::Root => "root".into(),
            Self::KeptRoot(sequence) => format!("{KEPT_ROOTS_PREFIX}{sequence:016x}"),
            Self::Journal(sequence) => {
                let salt: String = salt[..16].iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{JOURNAL_PREFIX}{sequence:016x}-{salt}")
            }
        }
    }
}

/// An object as it is put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataObject {
    /// Its key in the bucket.
    pub name: String,
    /// Tells it from all others.
    pub salt: [u8; 32],
    /// The whole object.
    pub bytes: Vec<u8>,
}

/// Why an object of metadata cannot be read. Nothing of it may be used then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum MetadataObjectError {
    #[error("{0}")]
    Damaged(#[from] DecodeError),
    #[error("it is encrypted with data key {0}, which is none of this store's")]
    KeyMissing(KeyId),
    #[error("{0}")]
    NotAuthentic(#[from] NotAuthentic),
    #[error("its contents are not those that its head names")]
    Altered,
    #[error("it is another object than the one that is called so")]
    Renamed,
    #[error("not a zstd frame of {0} bytes")]
    Decompress(usize),
}

/// Makes an object of contents, encrypted with the ring's current key if it has one. Equal contents make the same object.
pub fn encode_metadata(kind: MetadataKind, contents: &[u8], ring: &KeyRing) -> MetadataObject {
    let key = ring.current();
    let compressed = zstd::bulk::compress(contents, LEVEL).ok();
    let compressed = compressed.filter(|compressed| compressed.len() < contents.len());
    let (encoding, stored) = match &compressed {
        Some(compressed) => (ZSTD, &compressed[..]),
        None => (PLAIN, contents),
    };
    let mut text = Writer::with_capacity(TEXT_HEAD_BYTES + stored.len());
    text.u8(encoding).u32(contents.len() as u32).bytes(stored);
    let head = Head {
        kind: kind.object_kind(),
        key: key.map_or(KeyId::NONE, SecretKey::id),
        messages: 1,
        salt: salt_of(key, &text.0),
    };
    let name = kind.name(&head.salt);
    let mut bytes = head.encode().to_vec();
    bytes.extend_from_slice(&text.0);
    MessageKey::of(&head, &name, key).encrypt(0, &mut bytes, OBJECT_HEAD_BYTES);
    MetadataObject {
        name,
        salt: head.salt,
        bytes,
    }
}

/// The salt and the contents of the object called `name`.
///
/// # Errors
/// When it is not whole, not the one that was put under this name, longer than `contents_bytes_max`, or cannot be decrypted.
pub fn decode_metadata(
    kind: MetadataKind,
    name: &str,
    object: &[u8],
    contents_bytes_max: usize,
    ring: &KeyRing,
) -> Result<([u8; 32], Vec<u8>), MetadataObjectError> {
    let head = Head::decode(object, kind.object_kind())?;
    if kind.name(&head.salt) != name {
        return Err(MetadataObjectError::Renamed);
    }
    let messages = MessageKey::new(&head, name, ring).ok_or(MetadataObjectError::KeyMissing(head.key))?;
    let mut message = object[OBJECT_HEAD_BYTES..].to_vec();
    let text = messages.decrypt(0, &mut message)?;
    if head.messages != 1 || salt_of(ring.get(head.key), text) != head.salt {
        return Err(MetadataObjectError::Altered);
    }
    let mut reader = Reader::new(text);
    let encoding = reader.u8("metadata encoding")?;
    let length = reader.u32("metadata length")? as usize;
    let stored = reader.bytes("metadata", reader.remaining())?;
    if length > contents_bytes_max {
        return Err(DecodeError::Invalid {
            what: "metadata length",
            value: length as u64,
        }
        .into());
    }
    let contents = match encoding {
        PLAIN => stored.to_vec(),
        ZSTD => zstd::bulk::decompress(stored, length).map_err(|_| MetadataObjectError::Decompress(length))?,
        other => {
            return Err(DecodeError::Invalid {
                what: "metadata encoding",
                value: u64::from(other),
            }
            .into());
        }
    };
    match contents.len() == length {
        true => Ok((head.salt, contents)),
        false => Err(MetadataObjectError::Decompress(length)),
    }
}

/// The salt of an object of this kind, which tells it from all others. Nothing is verified.
///
/// # Errors
/// When it does not begin with the head of one.
pub fn salt_of_object(kind: MetadataKind, object: &[u8]) -> Result<[u8; 32], MetadataObjectError> {
    Ok(Head::decode(object, kind.object_kind())?.salt)
}

/// The data key that the object of this kind says it is encrypted with. Nothing is verified.
///
/// # Errors
/// When it does not begin with the head of one.
pub fn object_key_id(kind: MetadataKind, object: &[u8]) -> Result<KeyId, MetadataObjectError> {
    Ok(Head::decode(object, kind.object_kind())?.key)
}

fn salt_of(key: Option<&SecretKey>, text: &[u8]) -> [u8; 32] {
    let mut digest = Digest::new(key);
    digest.update(text);
    digest.finish()
}

/// The sequence of the journal object with this key, if it is one that [`MetadataKind::name`] gives.
pub fn journal_sequence(name: &str) -> Option<u64> {
    let (sequence, salt) = name.strip_prefix(JOURNAL_PREFIX)?.split_once('-')?;
    let is_hexadecimal = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if sequence.len() != 16 || salt.len() != 32 || !is_hexadecimal(sequence) || !is_hexadecimal(salt) {
        return None;
    }
    u64::from_str_radix(sequence, 16).ok()
}

/// The sequence of the root that is kept under this key, if it is one that [`MetadataKind::name`] gives.
pub fn kept_root_sequence(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(KEPT_ROOTS_PREFIX)?;
    let sequence = u64::from_str_radix(digits, 16).ok()?;
    (MetadataKind::KeptRoot(sequence).name(&[0; 32]) == name).then_some(sequence)
}

/// For fuzzing: decodes whatever it is given.
pub fn fuzz_decode(bytes: &[u8]) {
    let ring = KeyRing::new([SecretKey::new([7; 32])]);
    let _ = decode_metadata(MetadataKind::Root, "root", bytes, 1 << 20, &ring);
    let _ = journal_sequence(&String::from_utf8_lossy(bytes));
    // Behind a head that is right.
    let object = encode_metadata(MetadataKind::Root, bytes, &ring.clone().reading_only());
    let read = decode_metadata(MetadataKind::Root, "root", &object.bytes, bytes.len(), &ring);
    assert_eq!(read, Ok((object.salt, bytes.to_vec())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring(number: u8) -> KeyRing {
        KeyRing::new([SecretKey::new([number; 32])])
    }

    fn open(object: &MetadataObject, kind: MetadataKind, ring: &KeyRing) -> Result<Vec<u8>, MetadataObjectError> {
        decode_metadata(kind, &object.name, &object.bytes, 1 << 20, ring).map(|(_, contents)| contents)
    }

    #[test]
    fn contents_come_back_with_and_without_a_key() {
        let long = [b"tree".repeat(1000), b"leaf".repeat(999)].concat();
        for ring in [ring(1), KeyRing::default()] {
            for contents in [&b""[..], b"short", &long] {
                for kind in [MetadataKind::Root, MetadataKind::Journal(0xab)] {
                    let object = encode_metadata(kind, contents, &ring);
                    assert_eq!(open(&object, kind, &ring).as_deref(), Ok(contents));
                    assert_eq!(encode_metadata(kind, contents, &ring), object);
                }
            }
            let object = encode_metadata(MetadataKind::Root, &long, &ring);
            assert!(object.bytes.len() < 200, "it is compressed");
        }
    }

    #[test]
    fn names_tell_the_sequence_and_the_contents() {
        let name = |contents| encode_metadata(MetadataKind::Journal(0xab), contents, &ring(1)).name;
        assert!(name(b"a").starts_with("journal/00000000000000ab-"));
        assert_ne!(name(b"a"), name(b"b"));
        assert_eq!(journal_sequence(&name(b"a")), Some(0xab));
        for other in [
            "root",
            "journal/",
            "journal/ab-cd",
            &name(b"a").to_uppercase(),
            &name(b"a")[..30],
        ] {
            assert_eq!(journal_sequence(other), None, "{other}");
        }
        assert_eq!(encode_metadata(MetadataKind::Root, b"a", &ring(1)).name, "root");
        let kept = encode_metadata(MetadataKind::KeptRoot(0xcd), b"a", &ring(1));
        assert_eq!(
            (&kept.name[..], kept_root_sequence(&kept.name)),
            ("roots/00000000000000cd", Some(0xcd))
        );
        assert_eq!(
            ["root", "roots/", "roots/cd", "roots/+0000000000000cd"].map(kept_root_sequence),
            [None; 4]
        );
    }

    #[test]
    fn another_object_key_or_kind_is_told() {
        let kind = MetadataKind::Journal(1);
        let object = encode_metadata(kind, b"contents", &ring(1));
        let named = |name: &str| decode_metadata(kind, name, &object.bytes, 100, &ring(1)).unwrap_err();
        let other = encode_metadata(kind, b"other", &ring(1));
        assert_eq!(named(&other.name), MetadataObjectError::Renamed);
        assert!(matches!(
            open(&object, kind, &ring(2)),
            Err(MetadataObjectError::KeyMissing(_))
        ));
        let root = decode_metadata(MetadataKind::Root, "root", &object.bytes, 100, &ring(1));
        assert!(matches!(root, Err(MetadataObjectError::Damaged(_))));
        assert_eq!(
            open(&object, MetadataKind::Journal(2), &ring(1)),
            Err(MetadataObjectError::Renamed)
        );
        let long = decode_metadata(kind, &object.name, &object.bytes, 7, &ring(1));
        assert!(matches!(long, Err(MetadataObjectError::Damaged(_))));
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_found(is_encrypted in any::<bool>(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let ring = if is_encrypted { ring(1) } else { KeyRing::default() };
            let mut object = encode_metadata(MetadataKind::Root, &b"some contents ".repeat(9), &ring);
            let index = at.index(object.bytes.len());
            object.bytes[index] ^= 1 << bit;
            prop_assert!(open(&object, MetadataKind::Root, &ring).is_err());
            object.bytes.truncate(index);
            prop_assert!(open(&object, MetadataKind::Root, &ring).is_err());
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            fuzz_decode(&bytes);
        }
    }
}
