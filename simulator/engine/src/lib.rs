//! The product's code outside of the product: [`faults`], the core among failing disks, clouds and power; [`replay`],
//! traces through the core with latency tables and a ledger; [`keys`], traces of keys through replacement policies alone;
//! [`objects`], caches of whole objects; [`load`], gateways before a store that feels their load; [`synthetic`], traces that
//! stand in for those of the Tombolo paper.
#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::unwrap_used)]

pub mod faults;
pub mod keys;
pub mod load;
pub mod objects;
mod random;
pub mod replay;
pub mod synthetic;

pub use faults::{Canary, Outcome, run_seed};
pub use tombolo_billing::{Dollars, Growth, Prices, Table};
