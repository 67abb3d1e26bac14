//! An NBD server: fixed newstyle negotiation, structured replies, `base:allocation`, over anything that implements
//! [`Export`].
//!
//! Mechanism: one thread per connection reads and checks requests and hands them to [`Export::submit`] at once; the
//! answer may come from any thread, now or later, through its [`Completion`]. What a client may have under way is
//! bounded in requests and bytes; beyond that the server stops reading, so the pressure reaches the client's socket.
//!
//! Owns: the wire format ([`protocol`]), the negotiation ([`handshake`]), the rules of the transmission phase
//! ([`rules`]), sockets and threads. Does not own: data, durability, volumes, TLS.
#![warn(missing_docs, clippy::unwrap_used)]

pub mod connection;
pub mod export;
pub mod handshake;
#[cfg(feature = "testing")]
pub mod memory;
pub mod protocol;
pub mod rules;
pub mod server;

mod completion;
mod timed_source;

pub use completion::Completion;
pub use export::{Answer, Export, ExportInfo, Exports, Extent, NbdError, OpenError, Request};
pub use server::{Server, ServerConfig};
