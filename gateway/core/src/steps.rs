//! What the core does: how its state goes from one event to the next, a file for each subject.

#[cfg(test)]
mod bounds_tests;
mod dead_copies;
mod dispatch;
pub(crate) mod durability;
mod entries;
pub(crate) mod fetch;
pub(crate) mod flush;
pub(crate) mod losses;
pub(crate) mod partial_write;
pub(crate) mod policies;
#[cfg(test)]
mod policy_change_cost;
pub(crate) mod prefetch;
pub(crate) mod read;
pub(crate) mod redirects;
mod unmapping;
#[cfg(test)]
mod unmapping_cost;
pub(crate) mod verification;
pub(crate) mod volumes;
pub(crate) mod write;
