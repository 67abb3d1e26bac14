//! The administrator's way in: what can be asked ([`endpoints`]), what is told ([`model`]), who answers ([`gateway`]), over what
//! ([`server`]), who asks ([`client`]), and all of it as a document ([`openapi`]).

pub(crate) mod client;
pub(crate) mod endpoint;
pub mod endpoints;
pub(crate) mod gateway;
pub mod model;
pub(crate) mod openapi;
pub mod server;
