//! The administrator's way in: what can be asked ([`model`]), who answers ([`gateway`]), over what ([`server`]), and who asks
//! ([`client`]).

pub(crate) mod client;
pub mod gateway;
pub mod model;
pub mod server;
