//! A world of virtual time around the gateway's core: the very code of the product, with a modelled disk, metadata
//! store, fingerprint index and cloud that fail in every way that [`scenario`] lists, and a reference model that
//! checks every answer and every recovery.
//!
//! | module      | holds                                                              |
//! |-------------|--------------------------------------------------------------------|
//! | `scenario`  | what a seed decides, and which faults must be survived             |
//! | `delays`    | how long everything takes                                          |
//! | `world`     | virtual time, crashes, one life of the gateway after another       |
//! | `operation` | the core's commands, carried out                                   |
//! | `disk`      | cache file and journal, durable or not                             |
//! | `metadata`  | tables and transactions                                            |
//! | `index`     | the product's fingerprint index over files in memory               |
//! | `store`     | objects                                                            |
//! | `disasters` | outages and flipped bits                                           |
//! | `clients`   | requests, reactions, which refusals are justified                  |
//! | `model`     | what the volumes must hold                                         |
//! | `run`       | a seed from beginning to end                                       |
#![forbid(unsafe_code)]

mod clients;
mod contents;
mod delays;
mod disasters;
mod disk;
mod index;
mod metadata;
mod model;
mod operation;
mod run;
pub mod scenario;
mod store;
mod world;

pub use run::{Outcome, run_seed};
pub use scenario::Canary;
