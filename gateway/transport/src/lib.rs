//! Connections of clients over Unix sockets, whatever protocol they speak.
//!
//! Mechanism: what comes is read ahead into a buffer, and a payload that it lacks goes straight into the vector that is
//! handed on ([`input`]). What all clients hold together is bounded ([`budget`]).
//!
//! Owns: sockets, their bytes, and the memory that requests hold. Does not own: what the bytes mean.

pub mod budget;
pub mod descriptors;
pub mod input;
pub mod socket;

pub use budget::{Account, Budget};
pub use input::Input;
pub use socket::{Sink, Source};
