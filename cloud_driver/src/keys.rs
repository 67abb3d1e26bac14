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
//! The last key encrypts; the others are kept for what they have encrypted.
//!
//! Where a key service wraps the master key, the kind is [`ObjectKind::WrappedKeys`], and between head and message stands
//! in clear, and under the digest with the message, what the service needs to unwrap it:
//!
//! ```text
//!  0  service                     u8    1 AWS KMS
//!  1  identity of the store       u64   as in the message
//!  9  name of the wrapping key    u16 length, UTF-8
//! ..  wrapped master key          u16 length, bytes
//! ```
//!
//! It owns this form. It does not own where the object and the master key are kept, or when they change.

use crate::encryption::{
    Digest, Head, KeyRing, MessageKey, NoRandomness, NotAuthentic, ObjectKind, SECRET_BYTES, SecretKey,
};
use tombolo_base::{DecodeError, KeyId, OBJECT_HEAD_BYTES, Reader, TAG_BYTES, Writer};

/// Where the data keys are, below the store's prefix.
pub const KEYS_NAME: &str = "keys";
/// One a minute for more than a month; a rotation is an act of a person.
const KEYS_MAX: usize = 1 << 16;
const KEY_BYTES: usize = 8 + SECRET_BYTES;
const SERVICE_AWS_KMS: u8 = 1;
/// An alias has 256 characters, and what stands before it in an ARN less than as many.
pub const WRAPPING_KEY_NAME_BYTES_MAX: usize = 1024;
/// AWS KMS unwraps nothing longer.
pub const WRAPPED_BYTES_MAX: usize = 6144;
const WRAPPED_PART_BYTES_MAX: usize = 9 + 2 + WRAPPING_KEY_NAME_BYTES_MAX + 2 + WRAPPED_BYTES_MAX;
/// More than this is not the object.
pub const KEYS_BYTES_MAX: usize = OBJECT_HEAD_BYTES + WRAPPED_PART_BYTES_MAX + 12 + KEYS_MAX * KEY_BYTES + TAG_BYTES;
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

/// A master key as a key service has wrapped it. Nothing of it is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    /// The key that wraps it, as the service calls it: an ARN.
    pub wrapping_key: String,
    /// What the service unwraps.
    pub wrapped: Vec<u8>,
}

/// A wrapped master key, and what the service is told with it so that it unwraps it for this store alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapping {
    /// Of the store.
    pub identity: u64,
    /// Of the master key.
    pub master_key: KeyId,
    /// What the service needs.
    pub key: WrappedKey,
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

    /// The object that keeps them in the store. `wrapped` goes with a master key that a key service wraps.
    pub fn encode(&self, master: &SecretKey, wrapped: Option<&WrappedKey>) -> Vec<u8> {
        let mut text = Writer::with_capacity(12 + self.keys.len() * KEY_BYTES);
        text.u64(self.identity).u32(self.keys.len() as u32);
        for made in &self.keys {
            text.u64(made.made_s).bytes(made.key.secret());
        }
        let clear = wrapped.map_or_else(Vec::new, |wrapped| encode_wrapped(self.identity, wrapped));
        let head = Head {
            kind: match wrapped {
                Some(_) => ObjectKind::WrappedKeys,
                None => ObjectKind::Keys,
            },
            key: master.id(),
            messages: 1,
            salt: salt(master, &clear, &text.0),
        };
        let mut object = head.encode().to_vec();
        object.extend_from_slice(&clear);
        let message_start = object.len();
        object.extend_from_slice(&text.0);
        MessageKey::of(&head, KEYS_NAME, Some(master)).encrypt(0, &mut object, message_start);
        object
    }

    /// # Errors
    /// When the object is damaged, or the master key is not the one that encrypted it.
    pub fn decode(object: &[u8], master: &SecretKey) -> Result<Self, KeysError> {
        let (head, wrapping, message_start) = split(object)?;
        match head.key {
            KeyId::NONE => return Err(KeysError::NotEncrypted),
            needed if needed != master.id() => {
                let given = master.id();
                return Err(KeysError::WrongMasterKey { needed, given });
            }
            _ => {}
        }
        let mut message = object[message_start..].to_vec();
        let text = MessageKey::of(&head, KEYS_NAME, Some(master)).decrypt(0, &mut message)?;
        // The message does not vouch for what stands in clear before it.
        if salt(master, &object[OBJECT_HEAD_BYTES..message_start], text) != head.salt {
            return Err(NotAuthentic(0).into());
        }
        let mut reader = Reader::new(text);
        let identity = reader.u64("identity of the store")?;
        if wrapping.is_some_and(|wrapping| wrapping.identity != identity) {
            return Err(invalid("identity of the store", identity).into());
        }
        let count = reader.u32("count of data keys")?;
        if !(1..=KEYS_MAX).contains(&(count as usize)) {
            return Err(invalid("count of data keys", count.into()).into());
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

fn invalid(what: &'static str, value: u64) -> DecodeError {
    DecodeError::Invalid { what, value }
}

fn salt(master: &SecretKey, clear: &[u8], text: &[u8]) -> [u8; 32] {
    let mut digest = Digest::new(Some(master));
    digest.update(clear);
    digest.update(text);
    digest.finish()
}

fn encode_wrapped(identity: u64, key: &WrappedKey) -> Vec<u8> {
    let mut out = Writer::with_capacity(WRAPPED_PART_BYTES_MAX);
    out.u8(SERVICE_AWS_KMS).u64(identity);
    for part in [key.wrapping_key.as_bytes(), &key.wrapped] {
        out.u16(part.len() as u16).bytes(part);
    }
    out.0
}

/// The head, what a key service needs if there is one, and where the message begins. Nothing is verified.
fn split(object: &[u8]) -> Result<(Head, Option<Wrapping>, usize), DecodeError> {
    let Ok(head) = Head::decode(object, ObjectKind::WrappedKeys) else {
        return Ok((Head::decode(object, ObjectKind::Keys)?, None, OBJECT_HEAD_BYTES));
    };
    let clear = &object[OBJECT_HEAD_BYTES..];
    let mut reader = Reader::new(clear);
    let service = reader.u8("key service")?;
    if service != SERVICE_AWS_KMS {
        return Err(invalid("key service", service.into()));
    }
    let identity = reader.u64("identity of the store")?;
    let mut part = |what, bytes_max: usize| {
        let length = reader.u16(what)?;
        match usize::from(length) {
            bytes if (1..=bytes_max).contains(&bytes) => Ok(reader.bytes(what, bytes)?.to_vec()),
            _ => Err(invalid(what, length.into())),
        }
    };
    let name = part("name of the wrapping key", WRAPPING_KEY_NAME_BYTES_MAX)?;
    let name_bytes = name.len() as u64;
    let key = WrappedKey {
        wrapping_key: String::from_utf8(name).map_err(|_| invalid("name of the wrapping key", name_bytes))?,
        wrapped: part("wrapped master key", WRAPPED_BYTES_MAX)?,
    };
    let wrapping = Wrapping {
        identity,
        master_key: head.key,
        key,
    };
    let message_start = OBJECT_HEAD_BYTES + reader.offset();
    Ok((head, Some(wrapping), message_start))
}

/// What a key service needs to unwrap the object's master key; `None`: it is kept elsewhere. Nothing is verified.
///
/// # Errors
/// When the object is damaged.
pub fn wrapping_of(object: &[u8]) -> Result<Option<Wrapping>, DecodeError> {
    split(object).map(|(_, wrapping, _)| wrapping)
}

/// Which master key the object says that it needs, for an error. Nothing is verified.
pub fn master_key_of(object: &[u8]) -> Option<KeyId> {
    let head = Head::decode(object, ObjectKind::Keys).or_else(|_| Head::decode(object, ObjectKind::WrappedKeys));
    head.ok().map(|head| head.key)
}

/// For fuzzing: decodes whatever it is given.
pub fn fuzz_decode(bytes: &[u8]) {
    let master = SecretKey::new([7; SECRET_BYTES]);
    if let Ok(keys) = StoreKeys::decode(bytes, &master) {
        let wrapped = wrapping_of(bytes).ok().flatten().map(|wrapping| wrapping.key);
        assert_eq!(
            keys.encode(&master, wrapped.as_ref()),
            bytes,
            "one form for each list of keys"
        );
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
        let read = StoreKeys::decode(&keys.encode(&master(1), None), &master(1)).unwrap();
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
        let object = full.encode(&master(1), None);
        assert_eq!(object.len(), KEYS_BYTES_MAX - WRAPPED_PART_BYTES_MAX);
        assert_eq!(StoreKeys::decode(&object, &master(1)).unwrap().keys().len(), KEYS_MAX);
        assert_eq!(full.with_new_key(3).unwrap_err(), NewKeyError::TooMany);
    }

    fn wrapped() -> WrappedKey {
        WrappedKey {
            wrapping_key: "arn:aws:kms:eu-central-1:1:key/2".into(),
            wrapped: vec![9; 200],
        }
    }

    #[test]
    fn a_wrapped_master_key_goes_with_its_keys() {
        let keys = StoreKeys::generate(100).unwrap();
        let object = keys.encode(&master(1), Some(&wrapped()));
        let wrapping = wrapping_of(&object).unwrap().unwrap();
        let (identity, master_key) = (keys.identity, master(1).id());
        let key = wrapped();
        assert_eq!(
            wrapping,
            Wrapping {
                identity,
                master_key,
                key
            }
        );
        assert_eq!(master_key_of(&object), Some(master_key));
        assert!(StoreKeys::decode(&object, &master(1)).unwrap().hold_all_of(&keys));
        assert_eq!(wrapping_of(&keys.encode(&master(1), None)), Ok(None));
    }

    #[test]
    fn another_master_key_is_named() {
        let object = StoreKeys::generate(1).unwrap().encode(&master(1), None);
        let error = StoreKeys::decode(&object, &master(2)).unwrap_err();
        let (needed, given) = (master(1).id(), master(2).id());
        assert_eq!(error, KeysError::WrongMasterKey { needed, given });
    }

    proptest! {
        #[test]
        fn an_altered_object_is_found(
            at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>(), is_wrapped: bool
        ) {
            let wrapped = is_wrapped.then(wrapped);
            let object = StoreKeys::generate(1).unwrap().encode(&master(1), wrapped.as_ref());
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
