//! What the core does: how its state goes from one event to the next, a file for each subject.

mod acknowledge;
mod apply;
#[cfg(test)]
mod bounds_tests;
mod checkpoint;
mod commit;
mod dead_copies;
mod dispatch;
#[cfg(test)]
mod durability_tests;
mod entries;
pub(crate) mod fetch;
pub(crate) mod flush;
mod load_metadata;
mod losses;
pub(crate) mod map_query;
pub(crate) mod partial_write;
pub(crate) mod policies;
#[cfg(test)]
mod policy_change_cost;
pub(crate) mod prefetch;
pub(crate) mod read;
mod recovery_point;
pub(crate) mod redirects;
mod sync;
mod transitions;
mod unmapping;
#[cfg(test)]
mod unmapping_cost;
pub(crate) mod verification;
pub(crate) mod volumes;
pub(crate) mod write;
