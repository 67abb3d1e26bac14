//! The administrator's way in: what can be asked ([`endpoints`]), what is told ([`model`]), who answers ([`gateway`]), over what
//! ([`server`]), who asks ([`client`]), and all of it as a document ([`openapi`]).

pub(crate) mod client;
pub mod endpoint;
pub mod endpoints;
pub mod gateway;
pub mod model;
pub mod openapi;
pub mod server;
