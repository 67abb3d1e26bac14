//! Every policy against a plain model of its paper, slow and obvious, and all of them against the common contract.

mod contract;
mod driver;
mod gateway;
mod gds;
mod ghost_policies;
mod keyed;
mod queue_policies;
mod sarc;
