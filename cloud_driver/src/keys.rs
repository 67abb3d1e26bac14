//! The data keys of a store as an object in it, encrypted by the master key; and the master key as a person keeps it.
//!
//! The object is one message behind a head of kind [`ObjectKind::Keys`], whose key is the master key:
//!
//! ```text
//!  0  identity of the store       u64   random
//!  8  keys                        u32   1..=65536
//! 12  per key, oldest first:
//!       made                      u64   seconds since 1970
//!       secret                    32
//! ```
//!
//! The last key encrypts; the others are kept for what they have encrypted. It owns this form. It does not own where the
//! object and the master key are kept, or when they change.

use crate::encryption::{
    Digest, Head, KeyRing, MessageKey, NoRandomness, NotAuthentic, ObjectKind, SECRET_BYTES, SecretKey,
};
use tombolo_base::{DecodeError, KeyId, OBJECT_HEAD_BYTES, Reader, TAG_BYTES, Writer};

/// Where the data keys are, below the store's prefix.
pub const KEYS_NAME: &str = "keys";
/// One a minute for more than a month; a rotation is an act of a person.
const KEYS_MAX: usize = 1 << 16;
const KEY_BYTES: usize = 8 + SECRET_BYTES;
/// More than this is not the object.
pub const KEYS_BYTES_MAX: usize = OBJECT_HEAD_BYTES + 12 + KEYS_MAX * KEY_BYTES + TAG_BYTES;
const MASTER_KEY_DIGITS: usize = 2 * SECRET_BYTES;

/// Why the data keys cannot be had from an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum KeysError {
    #[error("the data keys are damaged: {0}")]
    Damaged(#[from] DecodeError),
    #[error("the data keys are not encrypted, so this gateway did not write them")]
    NotEncrypted,
    #[error("the data keys are encrypted by master key {needed}, and the one given is {given}")]
    WrongMasterKey { needed: KeyId, given: KeyId },
    #[error("the data keys were altered, or are not those of this store: {0}")]
    NotAuthentic(#[from] NotAuthentic),
}

/// Why there is no other data key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NewKeyError {
    /// It could not be made.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// A list of keys ends somewhere.
    #[error("there are {KEYS_MAX} data keys already, which is as many as there can be")]
    TooMany,
}

/// The text is not a master key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a master key is 64 hexadecimal digits, and nothing else but white space around them")]
pub struct NotAMasterKey;

/// Reads a master key as [`master_key_text`] writes it.
///
/// # Errors
/// When the text is anything else. The error repeats nothing of it.
pub fn parse_master_key(text: &str) -> Result<SecretKey, NotAMasterKey> {
    let digits = text.trim().as_bytes();
    if digits.len() != MASTER_KEY_DIGITS {
        return Err(NotAMasterKey);
    }
    let mut secret = [0; SECRET_BYTES];
    for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16).ok_or(NotAMasterKey);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Ok(SecretKey::new(secret))
}

/// 64 hexadecimal digits and a newline: short enough to be written down.
pub fn master_key_text(key: &SecretKey) -> String {
    let digits: String = key.secret().iter().map(|byte| format!("{byte:02x}")).collect();
    digits + "\n"
}

/// A data key, and when it was made.
#[derive(Clone, Debug)]
pub struct MadeKey {
    /// Seconds since 1970, by the clock of the machine that made it.
    pub made_s: u64,
    /// The key.
    pub key: SecretKey,
}

/// All data keys of a store.
#[derive(Clone, Debug)]
pub struct StoreKeys {
    /// Tells this store from all others.
    pub identity: u64,
    keys: Vec<MadeKey>,
}

impl StoreKeys {
    /// Those of a store that has none yet.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn generate(now_s: u64) -> Result<Self, NoRandomness> {
        Ok(Self {
            identity: SecretKey::generate()?.id().0,
            keys: vec![MadeKey {
                made_s: now_s,
                key: SecretKey::generate()?,
            }],
        })
    }

    /// These and one more, which encrypts from then on.
    ///
    /// # Errors
    /// When the system gives no random numbers, or there are too many keys.
    pub fn with_new_key(&self, now_s: u64) -> Result<Self, NewKeyError> {
        if self.keys.len() >= KEYS_MAX {
            return Err(NewKeyError::TooMany);
        }
        let mut keys = self.clone();
        keys.keys.push(MadeKey {
            made_s: now_s,
            key: SecretKey::generate()?,
        });
        Ok(keys)
    }

    /// Oldest first; at least one. The last encrypts.
    pub fn keys(&self) -> &[MadeKey] {
        &self.keys
    }

    /// For reading and writing objects.
    pub fn ring(&self) -> KeyRing {
        KeyRing::new(self.keys.iter().map(|made| made.key.clone()))
    }

    /// Whether each of the other's keys is one of these, and both are of one store.
    pub fn hold_all_of(&self, other: &Self) -> bool {
        let has = |id| self.keys.iter().any(|made| made.key.id() == id);
        self.identity == other.identity && other.keys.iter().all(|made| has(made.key.id()))
    }

    /// The object that keeps them in the store.
    pub fn encode(&self, master: &SecretKey) -> Vec<u8> {
        let mut text = Writer::with_capacity(12 + self.keys.len() * KEY_BYTES);
        text.u64(self.identity).u32(self.keys.len() as u32);
        for made in &self.keys {
            text.u64(made.made_s).bytes(made.key.secret());
        }
        let mut digest = Digest::new(Some(master));
        digest.update(&text.0);
        let head = Head {
            kind: ObjectKind::Keys,
            key: master.id(),
            messages: 1,
            salt: digest.finish(),
        };
        let mut object = head.encode().to_vec();
        object.extend_from_slice(&text.0);
        MessageKey::of(&head, KEYS_NAME, Some(master)).encrypt(0, &mut object, OBJECT_HEAD_BYTES);
        object
    }

    /// # Errors
    /// When the object is damaged, or the master key is not the one that encrypted it.
    pub fn decode(object: &[u8], master: &SecretKey) -> Result<Self, KeysError> {
        let head = Head::decode(object, ObjectKind::Keys)?;
        match head.key {
            KeyId::NONE => return Err(KeysError::NotEncrypted),
            needed if needed != master.id() => {
                let given = master.id();
                return Err(KeysError::WrongMasterKey { needed, given });
            }
            _ => {}
        }
        let mut message = object[OBJECT_HEAD_BYTES..].to_vec();
        let text = MessageKey::of(&head, KEYS_NAME, Some(master)).decrypt(0, &mut message)?;
        let mut reader = Reader::new(text);
        let identity = reader.u64("identity of the store")?;
        let count = reader.u32("count of data keys")?;
        if !(1..=KEYS_MAX).contains(&(count as usize)) {
            return Err(DecodeError::Invalid {
                what: "count of data keys",
                value: count.into(),
            }
            .into());
        }
        let mut keys = Vec::new();
        for _ in 0..count {
            keys.push(MadeKey {
                made_s: reader.u64("time of a data key")?,
                key: SecretKey::new(reader.digest("data key")?),
            });
        }
        Ok(Self { identity, keys })
    }
}

/// Which master key the object says that it needs, for an error. Nothing is verified.
pub fn master_key_of(object: &[u8]) -> Option<KeyId> {
    Head::decode(object, ObjectKind::Keys).ok().map(|head| head.key)
}

/// For fuzzing: decodes whatever it is given.
pub fn fuzz_decode(bytes: &[u8]) {
    let master = SecretKey::new([7; SECRET_BYTES]);
    if let Ok(keys) = StoreKeys::decode(bytes, &master) {
        assert_eq!(keys.encode(&master), bytes, "one form for each list of keys");
    }
    let _ = parse_master_key(&String::from_utf8_lossy(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn master(number: u8) -> SecretKey {
        SecretKey::new([number; SECRET_BYTES])
    }

    #[test]
    fn a_master_key_as_text() {
        let key = SecretKey::generate().unwrap();
        let text = master_key_text(&key);
        assert_eq!(parse_master_key(&text).unwrap().secret(), key.secret());
        assert_eq!(parse_master_key(&format!("  {text}\r\n")).unwrap().id(), key.id());
        for text in [
            "",
            "00",
            &"0".repeat(63),
            &"0".repeat(65),
            &"g".repeat(64),
            &"é".repeat(32),
        ] {
            assert!(parse_master_key(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_come_back_and_the_last_encrypts() {
        let keys = StoreKeys::generate(100).unwrap().with_new_key(200).unwrap();
        let read = StoreKeys::decode(&keys.encode(&master(1)), &master(1)).unwrap();
        assert_eq!(read.identity, keys.identity);
        assert_eq!(read.keys()[1].made_s, 200);
        assert_eq!(read.ring().current().unwrap().id(), keys.keys()[1].key.id());
        assert!(read.ring().get(keys.keys()[0].key.id()).is_some());
        let older = StoreKeys::generate(100).unwrap();
        assert!(!read.hold_all_of(&older));
        assert!(read.hold_all_of(&keys));
    }

    /// What a reader refuses is never written.
    #[test]
    fn a_list_of_keys_ends_where_readers_end() {
        let mut keys = StoreKeys::generate(1).unwrap();
        keys.keys = vec![keys.keys[0].clone(); KEYS_MAX - 1];
        let full = keys.with_new_key(2).unwrap();
        let object = full.encode(&master(1));
        assert_eq!(object.len(), KEYS_BYTES_MAX);
        assert_eq!(StoreKeys::decode(&object, &master(1)).unwrap().keys().len(), KEYS_MAX);
        assert_eq!(full.with_new_key(3).unwrap_err(), NewKeyError::TooMany);
    }

    #[test]
    fn another_master_key_is_named() {
        let object = StoreKeys::generate(1).unwrap().encode(&master(1));
        let error = StoreKeys::decode(&object, &master(2)).unwrap_err();
        let (needed, given) = (master(1).id(), master(2).id());
        assert_eq!(error, KeysError::WrongMasterKey { needed, given });
    }

    proptest! {
        #[test]
        fn an_altered_object_is_found(at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>()) {
            let object = StoreKeys::generate(1).unwrap().encode(&master(1));
            let mut altered = object.clone();
            altered[at.index(object.len())] ^= 1 << bit;
            prop_assert!(StoreKeys::decode(&altered, &master(1)).is_err());
            prop_assert!(StoreKeys::decode(&object[..cut.index(object.len())], &master(1)).is_err());
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            fuzz_decode(&bytes);
        }
    }
}
