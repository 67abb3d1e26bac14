//! The Tombolo storage gateway: settings, the runtime around the core, its front ends, the daemon, the admin API and the
//! command line.

pub mod admin;
mod allocator;
pub mod cli;
pub mod daemon;
pub mod frontends;
pub mod logging;
pub mod metrics;
pub mod mount;
pub mod runtime;
pub mod settings;
mod signals;
pub mod unix_socket;
