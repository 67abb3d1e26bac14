//! What a store charges, and what comes of it: [`Prices`] and the shipped [`Table`]s of them, what was used of a store
//! ([`Usage`], [`Held`]), the equations from the one to [`Dollars`], and the [`Ledger`] of a calendar month with its [`Rates`],
//! its [`Forecast`] and the [`Budget`] that this is compared with.
//!
//! One format of prices and one place of the equations, for the daemon, the simulator and the policies that weigh money
//! ([`UnitPrices`]). It does not count requests, read files or know what time it is: callers bring all of that.
//!
//! Storage is charged by equations (4) to (6) of the Tombolo paper ([`Growth`]), operations by what was asked for and moved.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
#![warn(missing_docs, clippy::unwrap_used)]
extern crate alloc;

mod budget;
mod dollars;
mod ledger;
mod month;
mod prices;
mod rates;
mod tables;
mod usage;

pub use budget::{Budget, Crossing, SHARES_PERCENT};
pub use dollars::{Dollars, GIB, Growth, MONTH_DAYS, MONTH_SECONDS};
pub use ledger::{Forecast, Ledger, MonthTally};
pub use month::{Date, DateError, Month};
pub use prices::{PRICE_MAX, PriceFault, Prices, UNITS_PER_DOLLAR, UnitPrices};
pub use rates::{DAY_S, HOUR_S, Rates, Window};
pub use tables::{AGE_DAYS_MAX, PriceList, Table};
pub use usage::{Held, Usage};

#[cfg(test)]
mod tests;
