//! The gateway's border, the admin API and the command line, in front of a gateway made of a list.

mod admin;
mod cli;
mod exports;
mod fake;
mod shares;
