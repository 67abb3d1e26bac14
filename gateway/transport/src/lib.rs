//! Connections of clients over Unix sockets, whatever protocol they speak.
//!
//! Mechanism: each connection is served on a thread of its own, which the protocol says how to do ([`server`]); who is
//! connected is in a [`registry`]. What comes is read ahead into a buffer, and a payload that it lacks goes straight into
//! the vector that is handed on ([`input`]). What a client may have under way is bounded ([`in_flight`]), and what all of
//! them hold together too ([`budget`]). Replies may come from any thread; none but the client's own waits for it
//! ([`output`]).
//!
//! Owns: sockets, their bytes, and the memory that requests hold. Does not own: what the bytes mean.
#![warn(missing_docs, clippy::unwrap_used)]

pub mod budget;
pub mod descriptors;
pub mod in_flight;
pub mod input;
pub mod output;
pub mod registry;
pub mod server;
pub mod socket;

pub use budget::Budget;
pub use in_flight::{Admission, Held, InFlight, Limits};
pub use input::Input;
pub use output::{Message, Output, WhenFull};
pub use registry::{Registration, Registry};
pub use server::{Protocol, Server};
pub use socket::{Sink, Source};
