//! Messages that a server sends on its own: what a client has cached is no longer so.

use super::abi::{NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, OUT_HEADER_BYTES, OutHeader};
use super::flags::bits;
use super::wire::Wire;

/// What a server tells a client unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of <linux/fuse.h>")]
pub enum Notification {
    /// Attributes, and the data from `offset` on; `length` 0 reaches to the end, a negative offset leaves data alone.
    InvalidateNode { node: u64, offset: i64, length: i64 },
    /// A name was added, removed or stands for something else. With `expire_only` it is looked up again before its next
    /// use, and what is mounted or open below it stays.
    InvalidateEntry {
        parent: u64,
        name: Vec<u8>,
        expire_only: bool,
    },
    /// The name was removed, and `child` with it: a client that watches the directory hears of it.
    Delete { parent: u64, child: u64, name: Vec<u8> },
    /// To a device: send again what was not answered.
    Resend,
}

impl Notification {
    /// The whole message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::InvalidateNode { node, offset, length } => {
                let body = NotifyInvalInodeOut {
                    ino: *node,
                    off: *offset,
                    len: *length,
                };
                message(bits::NOTIFY_INVAL_INODE, &body.to_bytes(), None)
            }
            Self::InvalidateEntry {
                parent,
                name,
                expire_only,
            } => {
                let body = NotifyInvalEntryOut {
                    parent: *parent,
                    namelen: name.len() as u32,
                    flags: if *expire_only { bits::EXPIRE_ONLY } else { 0 },
                };
                message(bits::NOTIFY_INVAL_ENTRY, &body.to_bytes(), Some(name))
            }
            Self::Delete { parent, child, name } => {
                let body = NotifyDeleteOut {
                    parent: *parent,
                    child: *child,
                    namelen: name.len() as u32,
                    padding: 0,
                };
                message(bits::NOTIFY_DELETE, &body.to_bytes(), Some(name))
            }
            Self::Resend => message(bits::NOTIFY_RESEND, &[], None),
        }
    }
}

/// A notification's code stands where a reply has its error, and its unique is 0.
fn message(code: u32, body: &[u8], name: Option<&[u8]>) -> Vec<u8> {
    let name_bytes = name.map_or(0, |name| name.len() + 1);
    let bytes = OUT_HEADER_BYTES + body.len() + name_bytes;
    let header = OutHeader {
        len: bytes as u32,
        error: code as i32,
        unique: 0,
    };
    let mut message = Vec::with_capacity(bytes);
    header.put(&mut message);
    message.extend_from_slice(body);
    if let Some(name) = name {
        message.extend_from_slice(name);
        message.push(0);
    }
    message
}
