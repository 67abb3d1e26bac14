//! The Tombolo storage gateway: settings, the world around the core, the daemon, the admin API and the command line.

pub mod admin;
mod allocator;
pub mod cli;
pub mod control;
pub mod daemon;
pub mod logging;
pub mod meters;
pub mod metrics;
pub mod mount;
pub mod settings;
pub mod shares;
pub mod unix_socket;
pub mod world;
