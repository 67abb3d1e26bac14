//! Encryption of what lies in the store: AES-256-GCM, a key of its own for each object.
//!
//! An object is a head in clear and messages behind it, each with a tag of its own, so that a ranged GET of one message can
//! be verified and decrypted without the rest:
//!
//! ```text
//!  0  magic "TOMB"                4
//!  4  format version              u16   2
//!  6  kind                        u8    [`ObjectKind`]
//!  7  cipher                      u8    0 none, 1 AES-256-GCM
//!  8  key                         u64   [`KeyId`]; zero without a cipher
//! 16  messages                    u32
//! 20  reserved, zero              u32
//! 24  salt                        32    a keyed digest of all that follows
//! 56  the messages, each followed by its tag of 16 bytes if there is a cipher
//! ```
//!
//! The key of an object is HKDF-SHA256 of the data key (input), without salt, over head and name in the store (info); the
//! nonce is the number of the message (u32 little-endian, then eight zero bytes); there is no associated data. So an object
//! of another name, kind, key or length, and a message in another place, do not open.
//!
//! **A pair of key and nonce never encrypts two texts.** The salt is HMAC-SHA256, under a key derived from the data key, of
//! everything that is encrypted, and the object's key depends on it. Other contents have another salt and so another key;
//! equal contents give the same bytes again. No counter and no random number has to be kept for that: it holds over
//! crashes, retries, copies of the state directory and two gateways at once.
//!
//! It owns keys and messages. It does not own what an object holds ([`crate::object`]) or where keys come from.

use core::fmt;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{hkdf, hmac};
use std::collections::BTreeMap;
use tombolo_base::{DecodeError, KeyId, OBJECT_HEAD_BYTES, Reader, TAG_BYTES, Writer};

const MAGIC: &[u8; 4] = b"TOMB";
const FORMAT_VERSION: u16 = 2;
const SALT_BYTES: usize = 32;
/// Length of a data key or master key.
pub const SECRET_BYTES: usize = 32;

const NAMING_INFO: &[u8] = b"tombolo 2 names";
const KEY_ID_INFO: &[u8] = b"tombolo 2 key id";

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// Blocks behind their descriptor.
    Pack,
    /// The data keys, encrypted by the master key.
    Keys,
    /// A part of the journal in the bucket.
    Journal,
    /// What the bucket holds, and whose it is.
    Root,
    /// Nodes of the metadata tree.
    Nodes,
    /// The data keys, encrypted by a master key that is there too, wrapped by a key service.
    WrappedKeys,
}

impl ObjectKind {
    const fn code(self) -> u8 {
        match self {
            Self::Pack => 1,
            Self::Keys => 2,
            Self::Journal => 3,
            Self::Root => 4,
            Self::Nodes => 5,
            Self::WrappedKeys => 6,
        }
    }
}

/// The system gave no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random numbers, without which no key can be made")]
pub struct NoRandomness;

/// A message does not open: it was altered, or belongs elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message {0} does not authenticate: it was altered, or belongs to another object")]
pub struct NotAuthentic(pub u32);

/// A secret of 32 bytes, and what is derived from it: a data key, or the master key that encrypts data keys.
#[derive(Clone)]
pub struct SecretKey {
    id: KeyId,
    secret: [u8; SECRET_BYTES],
    extracted: hkdf::Prk,
    naming: hmac::Key,
}

impl SecretKey {
    /// A key that nobody has had before.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut secret = [0; SECRET_BYTES];
        SystemRandom::new().fill(&mut secret).map_err(|_| NoRandomness)?;
        Ok(Self::new(secret))
    }

    /// From its bytes, as [`Self::secret`] gives them.
    pub fn new(secret: [u8; SECRET_BYTES]) -> Self {
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&secret);
        let mut naming = [0; SECRET_BYTES];
        let mut id = [0; 8];
        expand(&extracted, &[NAMING_INFO], &mut naming);
        expand(&extracted, &[KEY_ID_INFO], &mut id);
        Self {
            // Zero says that there is no key; of 2^64 keys one would be called so.
            id: KeyId(u64::from_le_bytes(id).max(1)),
            secret,
            extracted,
            naming: hmac::Key::new(hmac::HMAC_SHA256, &naming),
        }
    }

    /// What objects that it encrypts say of it.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The bytes that must be kept, and kept secret.
    pub fn secret(&self) -> &[u8; SECRET_BYTES] {
        &self.secret
    }

    fn message_key(&self, head: &[u8; OBJECT_HEAD_BYTES], name: &str) -> LessSafeKey {
        let info = [&head[..], name.as_bytes()];
        match self.extracted.expand(&info, &AES_256_GCM) {
            Ok(key) => LessSafeKey::new(UnboundKey::from(key)),
            Err(_) => unreachable!("HKDF gives up to 8,160 bytes, and 32 are asked for"),
        }
    }
}

/// Never shows the secret.
impl fmt::Debug for SecretKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SecretKey({})", self.id)
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(extracted: &hkdf::Prk, info: &[&[u8]], out: &mut [u8]) {
    let filled = extracted
        .expand(info, Length(out.len()))
        .and_then(|derived| derived.fill(out));
    assert!(
        filled.is_ok(),
        "HKDF gives up to 8,160 bytes, and at most 32 are asked for"
    );
}

/// The data keys of a store: which one encrypts now, and those that earlier objects were encrypted with.
#[derive(Clone, Debug, Default)]
pub struct KeyRing {
    keys: BTreeMap<KeyId, SecretKey>,
    current: Option<KeyId>,
}

impl KeyRing {
    /// A ring whose last key encrypts; without any, nothing is encrypted.
    pub fn new(keys: impl IntoIterator<Item = SecretKey>) -> Self {
        let mut ring = Self::default();
        keys.into_iter().for_each(|key| ring.add(key));
        ring
    }

    /// One more key, which encrypts from then on.
    pub fn add(&mut self, key: SecretKey) {
        self.current = Some(key.id);
        self.keys.insert(key.id, key);
    }

    /// The same keys to read with, and new objects are not encrypted.
    #[must_use]
    pub fn reading_only(mut self) -> Self {
        self.current = None;
        self
    }

    /// The key that new objects are encrypted with.
    pub fn current(&self) -> Option<&SecretKey> {
        self.keys.get(self.current.as_ref()?)
    }

    /// Whether what this key has encrypted cannot be decrypted.
    pub fn lacks(&self, id: KeyId) -> bool {
        id != KeyId::NONE && !self.keys.contains_key(&id)
    }

    /// The key of this id, if it is one of the ring.
    pub fn get(&self, id: KeyId) -> Option<&SecretKey> {
        self.keys.get(&id)
    }
}

/// The digest that names an object or salts its key. Fed with everything that will be encrypted.
pub(crate) struct Digest(hmac::Context);

impl Digest {
    /// Without a key a fixed one takes its place: names are plain digests then.
    pub(crate) fn new(key: Option<&SecretKey>) -> Self {
        match key {
            Some(key) => Self(hmac::Context::with_key(&key.naming)),
            None => Self(hmac::Context::with_key(&hmac::Key::new(
                hmac::HMAC_SHA256,
                &[0; SECRET_BYTES],
            ))),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> [u8; SALT_BYTES] {
        let mut out = [0; SALT_BYTES];
        out.copy_from_slice(self.0.sign().as_ref());
        out
    }
}

/// The part of an object that is never encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the object is.
    pub kind: ObjectKind,
    /// [`KeyId::NONE`]: it is not encrypted.
    pub key: KeyId,
    /// How many messages follow.
    pub messages: u32,
    /// The digest of what they hold.
    pub salt: [u8; SALT_BYTES],
}

impl Head {
    /// As the table at the head of this module has it.
    pub fn encode(&self) -> [u8; OBJECT_HEAD_BYTES] {
        let mut out = Writer::with_capacity(OBJECT_HEAD_BYTES);
        out.bytes(MAGIC)
            .u16(FORMAT_VERSION)
            .u8(self.kind.code())
            .u8(u8::from(self.key != KeyId::NONE))
            .u64(self.key.0)
            .u32(self.messages)
            .u32(0)
            .bytes(&self.salt);
        let mut head = [0; OBJECT_HEAD_BYTES];
        head.copy_from_slice(&out.0);
        head
    }

    /// Reads the head of an object; what follows it is not looked at.
    ///
    /// # Errors
    /// When it is not the head of an object of this format and kind.
    pub fn decode(bytes: &[u8], kind: ObjectKind) -> Result<Self, DecodeError> {
        let invalid = |what, value| DecodeError::Invalid { what, value };
        let mut reader = Reader::new(bytes);
        let magic = reader.bytes("object magic", MAGIC.len())?;
        if magic != MAGIC {
            return Err(invalid("object magic", u64::from(magic[0])));
        }
        let version = reader.u16("object format version")?;
        if version != FORMAT_VERSION {
            return Err(invalid("object format version", u64::from(version)));
        }
        let found = reader.u8("object kind")?;
        if found != kind.code() {
            return Err(invalid("object kind", u64::from(found)));
        }
        let cipher = reader.u8("object cipher")?;
        let key = KeyId(reader.u64("object key")?);
        if cipher != u8::from(key != KeyId::NONE) {
            return Err(invalid("object cipher", u64::from(cipher)));
        }
        let messages = reader.u32("object message count")?;
        let reserved = reader.u32("object reserved field")?;
        if reserved != 0 {
            return Err(invalid("object reserved field", u64::from(reserved)));
        }
        Ok(Self {
            kind,
            key,
            messages,
            salt: reader.digest("object salt")?,
        })
    }
}

/// Encrypts and decrypts the messages of one object. Cheap enough to be made for each request.
pub struct MessageKey(Option<LessSafeKey>);

impl MessageKey {
    /// Of the object with this head and name. `None`: the ring lacks its key.
    pub fn new(head: &Head, name: &str, ring: &KeyRing) -> Option<Self> {
        match head.key {
            KeyId::NONE => Some(Self(None)),
            id => Some(Self::of(head, name, Some(ring.get(id)?))),
        }
    }

    pub(crate) fn of(head: &Head, name: &str, key: Option<&SecretKey>) -> Self {
        Self(key.map(|key| key.message_key(&head.encode(), name)))
    }

    /// Encrypts what `object` holds from `start` on, and appends the tag.
    pub(crate) fn encrypt(&self, number: u32, object: &mut Vec<u8>, start: usize) {
        let Some(key) = &self.0 else { return };
        match key.seal_in_place_separate_tag(nonce(number), Aad::empty(), &mut object[start..]) {
            Ok(tag) => object.extend_from_slice(tag.as_ref()),
            Err(_) => unreachable!("AES-GCM takes messages of up to 64 GiB"),
        }
    }

    /// Decrypts a message and its tag in place; what is returned is what was encrypted.
    ///
    /// # Errors
    /// When the message is not the one that was encrypted under this number. Nothing of it may be used then.
    pub(crate) fn decrypt<'m>(&self, number: u32, message: &'m mut [u8]) -> Result<&'m mut [u8], NotAuthentic> {
        let Some(key) = &self.0 else {
            return Ok(message);
        };
        key.open_in_place(nonce(number), Aad::empty(), message)
            .map_err(|_| NotAuthentic(number))
    }

    /// What encryption adds to each message.
    pub(crate) fn tag_bytes(&self) -> usize {
        match self.0 {
            Some(_) => TAG_BYTES,
            None => 0,
        }
    }
}

fn nonce(number: u32) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
#[path = "encryption/tests.rs"]
mod tests;
