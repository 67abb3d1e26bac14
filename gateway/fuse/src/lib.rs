//! FUSE without a file system: the wire format, and servers that read requests from a Unix socket or from `/dev/fuse`
//! and hand them to a [`Session`].
//!
//! Mechanism: a client connects to the socket and attaches ([`protocol::attach`]). It then either speaks FUSE over the
//! connection, or has brought descriptors of `/dev/fuse` along, which are served as long as the connection stands.
//! Requests that may wait are carried out by several threads per client; the answer may come from any thread, now or
//! later, through its [`Completion`]. What a client may have under way is bounded; beyond that the server stops
//! reading, so the pressure reaches the client.
//!
//! Owns: the wire format ([`protocol`]), connections, devices and threads ([`server`]), mounting ([`mount`]). Does not
//! own: files, sessions, permissions, what survives a restart.
#![warn(missing_docs, clippy::unwrap_used)]

pub mod mount;
pub mod protocol;
pub mod server;

mod completion;
mod errno;
mod interrupts;
mod notifier;
mod service;

pub use completion::Completion;
pub use errno::Errno;
pub use notifier::Notifier;
pub use protocol::attach::{Attach, AttachReply};
pub use protocol::directory::{DirectoryBuffer, DirectoryEntry};
pub use protocol::notify::Notification;
pub use protocol::reply::{Attributes, Entry, Opened, Reply, Statfs};
pub use protocol::request::{Request, RequestHeader};
pub use server::{Server, ServerConfig};
pub use service::{Attached, Service, Session};
