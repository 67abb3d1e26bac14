//! ATTACH, the first message on every connection, and its answer. FUSE has no such thing: there, the mount says which
//! file system a channel belongs to.
//!
//! | bytes | body of the request | | bytes | body of the answer |
//! |---|---|---|---|---|
//! | 4 | version, 1 | | 4 | version, 1 |
//! | 4 | flags | | 4 | 1: attributes tell of ACLs ([`super::flags::ATTRIBUTES_ACCESS_ACL`]); 2: answers to WRITE bring attributes if asked to ([`super::flags::WRITE_WITH_ATTRIBUTES`]); 4: creations may bring attributes ([`super::flags::CREATION_WITH_ATTRIBUTES`]) |
//! | 8 | incarnation of the client | | 8 | session |
//! | 4 | bytes of the client's name | | 8 | boot: another one after each start of the server |
//! | 4 | bytes of the share's name | | 8 | node of the share's root |
//! | 4 | minor version of FUSE | | 4 | largest write, and read |
//! | 4 | zero | | 4 | grace period in milliseconds |
//! | 8 | what INIT agreed on (a device only) | | 8 | 1 when the session existed before |
//! | .. | the client's name, the share's name | | | |

use super::abi::{IN_HEADER_BYTES, InHeader, OUT_HEADER_BYTES, OutHeader};
use super::opcode::Opcode;
use super::wire::{Wire, wire_structs};
use crate::Errno;

/// The only one so far.
pub const ATTACH_VERSION: u32 = 1;
/// Of a client's or a share's name.
pub const ATTACH_NAME_BYTES_MAX: usize = 255;

/// Metadata changes are on stable storage when they are answered.
pub const ATTACH_STABLE: u32 = 1 << 0;
/// Descriptors of /dev/fuse come along; they are served until the connection closes.
pub const ATTACH_DEVICE: u32 = 1 << 1;
/// The client has requests that were sent before and not answered.
pub const ATTACH_RESUME: u32 = 1 << 2;
/// The client wants notifications.
pub const ATTACH_NOTIFY: u32 = 1 << 3;

/// Attributes tell of ACLs.
const FEATURE_ACL_FLAGS: u32 = 1 << 0;
/// Answers to WRITE bring attributes if asked to.
const FEATURE_WRITE_ATTRIBUTES: u32 = 1 << 1;
/// Creations may bring attributes.
const FEATURE_CREATION_ATTRIBUTES: u32 = 1 << 2;

const ATTACH_FLAGS: u32 = ATTACH_STABLE | ATTACH_DEVICE | ATTACH_RESUME | ATTACH_NOTIFY;

wire_structs! {
    AttachIn = "tombolo_attach_in" since 0 {
        version: u32,
        flags: u32,
        incarnation: u64,
        client_name_bytes: u32,
        share_name_bytes: u32,
        fuse_minor: u32,
        reserved: u32,
        init_flags: u64,
    }
    AttachOut = "tombolo_attach_out" since 0 {
        version: u32,
        features: u32,
        session: u64,
        boot: u64,
        root: u64,
        max_write: u32,
        grace_ms: u32,
        resumed: u64,
    }
}

/// Longest message of a client that attaches.
pub const ATTACH_MESSAGE_BYTES_MAX: usize = IN_HEADER_BYTES + AttachIn::BYTES + 2 * ATTACH_NAME_BYTES_MAX;

/// Who attaches, to what and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// One client is one session, on however many connections.
    pub client_name: String,
    /// At most [`ATTACH_NAME_BYTES_MAX`].
    pub share_name: String,
    /// Another one when the client has started anew and knows nothing of its former requests, locks and files.
    pub incarnation: u64,
    /// [`ATTACH_STABLE`].
    pub stable: bool,
    /// [`ATTACH_DEVICE`].
    pub device: bool,
    /// [`ATTACH_RESUME`].
    pub resume: bool,
    /// [`ATTACH_NOTIFY`].
    pub notify: bool,
    /// The version of FUSE that it speaks: 7 and this.
    pub fuse_minor: u32,
    /// Of [`super::flags::init`]; what INIT agreed on. A device only.
    pub init_flags: u64,
}

/// What a client that attaches is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachReply {
    /// Its number.
    pub session: u64,
    /// Another one after each start of the server.
    pub boot: u64,
    /// The inode of the share's root directory.
    pub root: u64,
    /// The longest write, in bytes.
    pub max_write: u32,
    /// How long the session is kept without a connection.
    pub grace_ms: u32,
    /// The session existed already.
    pub resumed: bool,
    /// Attributes tell of ACLs.
    pub acl_flags: bool,
    /// Answers to WRITE bring attributes if asked to.
    pub write_attributes: bool,
    /// Creations may bring attributes.
    pub creation_attributes: bool,
}

impl Attach {
    /// `message` without its header. Which errno answers a bad one is part of the protocol: EPROTO for another version,
    /// EINVAL otherwise.
    pub fn decode(body: &[u8]) -> Result<Self, Errno> {
        let (fixed, names) = body.split_at_checked(AttachIn::BYTES).ok_or(Errno::INVAL)?;
        let fixed = AttachIn::get(fixed);
        if fixed.version != ATTACH_VERSION {
            return Err(Errno::PROTO);
        }
        let client_name_bytes = fixed.client_name_bytes as usize;
        let (client_name, share_name) = names.split_at_checked(client_name_bytes).ok_or(Errno::INVAL)?;
        if fixed.share_name_bytes as usize != share_name.len() || fixed.flags & !ATTACH_FLAGS != 0 {
            return Err(Errno::INVAL);
        }
        let has = |flag: u32| fixed.flags & flag != 0;
        Ok(Self {
            client_name: name(client_name)?,
            share_name: name(share_name)?,
            incarnation: fixed.incarnation,
            stable: has(ATTACH_STABLE),
            device: has(ATTACH_DEVICE),
            resume: has(ATTACH_RESUME),
            notify: has(ATTACH_NOTIFY),
            fuse_minor: fixed.fuse_minor,
            init_flags: fixed.init_flags,
        })
    }

    /// The whole message. Names beyond [`ATTACH_NAME_BYTES_MAX`] are refused by whoever gets it.
    pub fn encode(&self, unique: u64) -> Vec<u8> {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        let fixed = AttachIn {
            version: ATTACH_VERSION,
            flags: flag(self.stable, ATTACH_STABLE)
                | flag(self.device, ATTACH_DEVICE)
                | flag(self.resume, ATTACH_RESUME)
                | flag(self.notify, ATTACH_NOTIFY),
            incarnation: self.incarnation,
            client_name_bytes: self.client_name.len() as u32,
            share_name_bytes: self.share_name.len() as u32,
            fuse_minor: self.fuse_minor,
            reserved: 0,
            init_flags: self.init_flags,
        };
        let bytes = IN_HEADER_BYTES + AttachIn::BYTES + self.client_name.len() + self.share_name.len();
        let header = InHeader {
            len: bytes as u32,
            opcode: Opcode::Attach.number(),
            unique,
            ..InHeader::default()
        };
        let mut message = Vec::with_capacity(bytes);
        header.put(&mut message);
        fixed.put(&mut message);
        message.extend_from_slice(self.client_name.as_bytes());
        message.extend_from_slice(self.share_name.as_bytes());
        message
    }
}

fn name(bytes: &[u8]) -> Result<String, Errno> {
    if bytes.is_empty() || bytes.len() > ATTACH_NAME_BYTES_MAX || bytes.contains(&0) {
        return Err(Errno::INVAL);
    }
    String::from_utf8(bytes.to_vec()).map_err(|_| Errno::INVAL)
}

/// Length of the answer, header included.
pub const ATTACH_REPLY_BYTES: usize = OUT_HEADER_BYTES + AttachOut::BYTES;

impl AttachReply {
    /// The whole message.
    pub fn encode(&self, unique: u64) -> Vec<u8> {
        let header = OutHeader {
            len: ATTACH_REPLY_BYTES as u32,
            error: 0,
            unique,
        };
        let feature = |on: bool, feature: u32| if on { feature } else { 0 };
        let body = AttachOut {
            version: ATTACH_VERSION,
            features: feature(self.acl_flags, FEATURE_ACL_FLAGS)
                | feature(self.write_attributes, FEATURE_WRITE_ATTRIBUTES)
                | feature(self.creation_attributes, FEATURE_CREATION_ATTRIBUTES),
            session: self.session,
            boot: self.boot,
            root: self.root,
            max_write: self.max_write,
            grace_ms: self.grace_ms,
            resumed: self.resumed.into(),
        };
        let mut message = Vec::with_capacity(ATTACH_REPLY_BYTES);
        header.put(&mut message);
        body.put(&mut message);
        message
    }

    /// What follows the header of an answer without an error; `None` when it is not one.
    pub fn decode(body: &[u8]) -> Option<Self> {
        if body.len() != AttachOut::BYTES {
            return None;
        }
        let out = AttachOut::get(body);
        (out.version == ATTACH_VERSION).then_some(Self {
            session: out.session,
            boot: out.boot,
            root: out.root,
            max_write: out.max_write,
            grace_ms: out.grace_ms,
            resumed: out.resumed == 1,
            acl_flags: out.features & FEATURE_ACL_FLAGS != 0,
            write_attributes: out.features & FEATURE_WRITE_ATTRIBUTES != 0,
            creation_attributes: out.features & FEATURE_CREATION_ATTRIBUTES != 0,
        })
    }
}
