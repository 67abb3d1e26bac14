//! The Tombolo storage gateway: settings, the runtime around the core, its front ends, the daemon, the admin API and the
//! command line.
#![warn(missing_docs, clippy::unwrap_used)]

pub mod admin;
mod allocator;
mod bill;
pub mod cli;
pub mod daemon;
mod frontends;
mod logging;
mod measured;
pub mod metrics;
mod mount;
mod runtime;
mod salvage;
pub mod settings;
mod signals;
pub mod unix_socket;
