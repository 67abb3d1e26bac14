//! The gateway's core in virtual time: the very code of the product, with a modelled disk, metadata store, fingerprint
//! index and cloud that fail in every way that [`scenario`] lists, and a reference model that checks every answer and
//! every recovery.
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
//! | `bucket`    | metadata in the bucket: journal, root, tree, and who may put them   |
//! | `former`    | a gateway that was taken over from and is alive                    |
//! | `local_loss`| parts of the local disk that are lost, and that is accepted         |
//! | `canary`    | defects built in on purpose                                        |
//! | `clients`   | what clients ask for, and when                                     |
//! | `request`   | one request: its event, what it touches and changes                |
//! | `reuse`     | when slots may be used again, and blocks uploaded                  |
//! | `answers`   | what comes back, which refusals are justified                      |
//! | `files`     | clients of the file service: files' maps, entries, commits         |
//! | `linking`   | a link of one file's blocks to another's, stage by stage           |
//! | `scans`     | lookups and scans of entries through core and metadata             |
//! | `model`     | what volumes, files' maps, entries and counters must hold          |
//! | `state`     | such a state, and what a record changes of it                      |
//! | `change`    | what a request asked for, to be found in one batch                 |
//! | `watch`     | what a look under way may find                                     |
//! | `checks`    | the state after a crash and at the end, as a whole                 |
//! | `audit`     | what a check of the store compares, at every moment                  |
//! | `service`   | the file service itself, its clients, and what they must be answered |
//! | `run`       | a seed from beginning to end                                       |
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]

mod answers;
mod audit;
mod bucket;
mod canary;
mod change;
mod checks;
mod clients;
mod contents;
mod delays;
mod disasters;
mod disk;
mod files;
mod former;
mod index;
mod linking;
mod local_loss;
mod metadata;
mod model;
mod operation;
mod partial;
mod policies;
mod probes;
mod request;
mod reuse;
mod run;
mod scans;
mod scenario;
mod service;
mod state;
mod store;
mod watch;
mod world;

pub use run::{Outcome, run_seed};
pub use scenario::Canary;
